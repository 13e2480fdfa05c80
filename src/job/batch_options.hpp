// job/batch_options.hpp — the #SBATCH lines of a script, read and written by sbatch's
// own rules (as tried): a backslash takes the next character for what it is, also between
// quotes of either kind; outside of them # begins a comment.
#ifndef TRIREME_JOB_BATCH_OPTIONS_HPP_
#define TRIREME_JOB_BATCH_OPTIONS_HPP_

#include <string>
#include <string_view>
#include <vector>

namespace trireme::job {

// What an sbatch script says of one option: "--nodes=8", or its value.
struct BatchOption {
  std::string name, value;  // "nodes", "8"; no value: "exclusive", ""
};

// A line of a script that is options for sbatch.
bool is_batch_line(std::string_view line);
// The options of a script's #SBATCH lines, each with its long name: "-N 8", "--nodes 8"
// and "--nodes=8" are one. InputError, which names `file`, where a line is not as sbatch
// wants it.
std::vector<BatchOption> batch_options(const std::string& script,
                                       const std::string& file);
// The line, with its newline, from which sbatch reads the option with the bytes that its
// value has. These must be free of control characters: quoting cannot bring these in.
std::string batch_line(const BatchOption& option);
// Puts an option in place of the one of its name, or behind the others.
void set_batch_option(std::vector<BatchOption>& options, const BatchOption& wanted);

}  // namespace trireme::job

#endif  // TRIREME_JOB_BATCH_OPTIONS_HPP_
