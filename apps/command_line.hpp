// apps/command_line.hpp — the program's command line: subcommands and their options.
//
// A front of CLI11, whose templates would take the compiler seconds in every subcommand's
// file. An option writes to a variable that lives until its command has run.
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

// One option, to be described further.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  // Help shows the variable's value.
  Option& show_default();
  // Help shows this in place of TEXT or INT.
  Option& placeholder(const std::string& text);
  // Of a list: "--x a --x b" and not "--x a b"; `--x a,b` too, where there is a
  // separator.
  Option& one_each();
  Option& separator(char character);
  Option& one_of(const std::vector<std::string>& words);
  Option& between(std::int64_t least, std::int64_t most);
  Option& needs(const Option& other);
  Option& excludes(const Option& other);

 private:
  CLI::Option* option_;
};

// One subcommand. Names with dashes are options, others are arguments by position.
class Command {
 public:
  explicit Command(CLI::App* app, Action* chosen) : app_(app), chosen_(chosen) {}
  Option add(const std::string& name, std::string& value, const std::string& help);
  Option add(const std::string& name, std::vector<std::string>& values,
             const std::string& help);
  Option add(const std::string& name, std::int64_t& value, const std::string& help);
  // A sign is an error, where CLI11 would take -1 for the largest number there is.
  Option add(const std::string& name, std::uint64_t& value, const std::string& help);
  Option add(const std::string& name, double& value, const std::string& help);
  // Takes no value: true where it is given.
  Option add_flag(const std::string& name, bool& value, const std::string& help);
  // --set and --run-dir: what every command that takes a deck lets its user change of it.
  void add_deck_changes(std::vector<std::string>& overrides, std::string& run_dir);
  // What it is to do when the user names it.
  void does(Action action);

 private:
  CLI::App* app_;
  Action* chosen_;
};

class CommandLine {
 public:
  CommandLine();
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command add_command(const std::string& name, const std::string& help);
  // Nothing when there is something to run, which action() then is; else the exit status,
  // after help (0) or what is wrong with the arguments (2) was printed, if `speaks`.
  std::optional<int> parse(int argc, char** argv, bool speaks);
  const Action& action() const { return chosen_; }

 private:
  std::unique_ptr<CLI::App> app_;
  Action chosen_;
};

// What was typed, quoted so that a shell reads it again.
std::string shell_text(int argc, char** argv);

// Collective: which ranks were started with which arguments, where they are not all the
// same; empty where they are. Ranks that do different things would wait for each other.
std::string different_arguments(const comm::Environment& environment, int argc,
                                char** argv);

// InputError where write_file() could not write what --json or --out names, or where it
// is one of the files that the command reads: before the work, not after it. A result
// that is there is replaced. "" is no file.
void require_output(const std::string& file, const std::vector<std::string>& inputs = {});
// Before this output is made: what killed calls have left of it goes, and the log is
// told.
void remove_leftovers(const std::filesystem::path& output, Log& log);

// InputError where `file`, which a command is to write, is one of those that it reads.
void require_no_input(const std::string& file, const std::vector<std::string>& inputs);

}  // namespace trireme::apps

#endif  // TRIREME_APPS_COMMAND_LINE_HPP_
