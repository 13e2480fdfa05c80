// apps/command_line.hpp — the program's subcommands and common options.
#ifndef TRIREME_APPS_COMMAND_LINE_HPP_
#define TRIREME_APPS_COMMAND_LINE_HPP_

#include <optional>
#include <string>

#include "apps/subcommands.hpp"
#include "comm/environment.hpp"

namespace trireme::apps {

// What was typed, quoted so that a shell reads it again.
std::string shell_text(int argc, char** argv);

// Collective: which ranks were started with which arguments, where they are not all the
// same; empty where they are. Ranks that do different things would wait for each other.
std::string different_arguments(const comm::Environment& environment, int argc,
                                char** argv);

// InputError where write_file() could not write what --json or --out names: before the
// work, not after it. "" is no file.
void require_output(const std::string& file);

// Adds every subcommand; parsing then sets `action` to the chosen one's.
void describe_commands(CLI::App& app, Action& action, const std::string& command_line);

// Nothing when there is something to run; else the exit status, after help (0) or what is
// wrong with the arguments (2) was printed, if `speaks`.
std::optional<int> parse(CLI::App& app, int argc, char** argv, bool speaks);

}  // namespace trireme::apps

#endif  // TRIREME_APPS_COMMAND_LINE_HPP_
