// apps/subcommands.hpp — one function per subcommand: it describes the options, and what
// the program then does.
#ifndef TRIREME_APPS_SUBCOMMANDS_HPP_
#define TRIREME_APPS_SUBCOMMANDS_HPP_

#include "apps/command_line.hpp"

namespace trireme::apps {

void add_inspect(CommandLine& line);
void add_tokenize(CommandLine& line);
// The command line as it was typed: for the run's environment.json and for its advice.
void add_train(CommandLine& line, int argc, char** argv);
void add_convert(CommandLine& line);
void add_embed(CommandLine& line);
void add_evaluate(CommandLine& line);
void add_fill(CommandLine& line);
void add_generate(CommandLine& line);
void add_jobscript(CommandLine& line);
void add_plan(CommandLine& line);
void add_selftest(CommandLine& line);

}  // namespace trireme::apps

#endif  // TRIREME_APPS_SUBCOMMANDS_HPP_
