// run/run_commands.hpp — the commands that a start ends with, for a person to copy:
// how the run goes on, and how its model writes text.
#ifndef TRIREME_RUN_RUN_COMMANDS_HPP_
#define TRIREME_RUN_RUN_COMMANDS_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::run {

// How this start was asked for, as it was typed.
struct TrainCommand {
  std::vector<std::string> launcher = {};  // "mpiexec", "-n", "4"; none: started alone
  std::string program = "trireme";
  std::string deck = {};
  std::vector<std::string> overrides = {};  // --set
  std::string run_dir = {};                 // --run-dir; empty: the deck's
};

// Lines of 80 columns as far as words allow, each begun with two blanks and without the
// last newline. `steps`: run.steps is to be that.
std::string continue_command(const TrainCommand& train,
                             std::optional<std::int64_t> steps = {});
// `run_directory` is the run's, whatever named it.
std::string generate_command(const TrainCommand& train, const std::string& run_directory,
                             bool has_tokenizer);
// `blank` is what a text has in the place of words that the model is to find.
std::string fill_command(const TrainCommand& train, const std::string& run_directory,
                         const std::string& blank);

// That command beneath a line that says what it is for: for a run that is not at its end,
// and for one that is, at run.steps of `steps`.
std::string advice_to_go_on(const TrainCommand& train);
std::string advice_to_train_on(const TrainCommand& train, std::int64_t steps);

}  // namespace trireme::run

#endif  // TRIREME_RUN_RUN_COMMANDS_HPP_
