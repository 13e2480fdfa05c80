// apps/command_line.hpp — the program's command line: subcommands and their options.
//
// CLI11 does the work. An option writes to a variable that lives until its command has
// run.
#ifndef TRIREME_APPS_COMMAND_LINE_HPP_
#define TRIREME_APPS_COMMAND_LINE_HPP_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "comm/environment.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trireme::apps {

// What a subcommand does, with MPI and Kokkos up; returns the exit status.
using Action = std::function<int(comm::Environment&)>;

class CommandLine {
 public:
  CommandLine();
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // A subcommand, to which its options are added, and what it does when it is named.
  CLI::App& add_command(const std::string& name, const std::string& help, Action action);
  // Nothing when there is something to run, which action() then is; else the exit status,
  // after help (0) or what is wrong with the arguments (2) was printed, if `speaks`.
  std::optional<int> parse(int argc, char** argv, bool speaks);
  const Action& action() const { return chosen_; }

 private:
  std::unique_ptr<CLI::App> app_;
  Action chosen_;
};

// An option that is a whole number; a sign is an error, where CLI11 would take -1 for the
// largest number there is.
CLI::Option* add_unsigned(CLI::App& command, const std::string& name,
                          std::uint64_t& value, const std::string& help);
// --set and --run-dir: what every command that takes a deck lets its user change of it.
void add_deck_changes(CLI::App& command, std::vector<std::string>& overrides,
                      std::string& run_dir);

// What was typed, quoted so that a shell reads it again.
std::string shell_text(int argc, char** argv);

// Collective: which ranks were started with which arguments, where they are not all the
// same; empty where they are. Ranks that do different things would wait for each other.
std::string different_arguments(const comm::Environment& environment, int argc,
                                char** argv);

// InputError where write_file() could not write what --json or --out names, or where it
// is one of the files that the command reads: before the work, not after it. A result
// that is there is replaced; an HDF5 file, weights, and what training or a checkpoint has
// written are not, and are an InputError, too. "" is no file.
void require_output(const std::string& file, const std::vector<std::string>& inputs = {});
// InputError where two of a command's outputs are one file, of which one would be lost.
struct Output {
  std::string option, file;
};
void require_apart(const std::vector<Output>& outputs);
// What a command makes that takes work: HDF5 files that all have these at their root.
struct Product {
  std::string one, many;  // "corpus", "corpora"
  std::vector<std::string> datasets, attributes;
  std::string caution;  // what replacing one means, behind the message; may be empty
};
// May a command replace what it made before?
enum class Replace { no, yes };
// InputError where `out` could not be written; where it is there and is no such product,
// which nothing replaces; or where it is one, and `replace` does not allow it.
void require_product(const std::string& out, const Product& product, Replace replace);
// Removes what killed calls have left of an output, before it is made again, and tells
// the log.
void remove_leftovers(const std::filesystem::path& output, Log& log);

// InputError where `file`, which a command is to write, is one of those that it reads.
void require_no_input(const std::string& file, const std::vector<std::string>& inputs);

}  // namespace trireme::apps

#endif  // TRIREME_APPS_COMMAND_LINE_HPP_
