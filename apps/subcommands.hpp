// apps/subcommands.hpp — one function per subcommand: it describes the options and sets
// what main runs when the user chose it. An action returns the exit status.
#ifndef TRIREME_APPS_SUBCOMMANDS_HPP_
#define TRIREME_APPS_SUBCOMMANDS_HPP_

#include <functional>
#include <string>

#include "comm/environment.hpp"

namespace CLI {
class App;
}

namespace trireme::apps {

using Action = std::function<int(comm::Environment&)>;

void add_inspect(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
// command_line: for the run's environment.json.
void add_train(CLI::App& app, Action& action, const std::string& command_line);
void add_convert(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_selftest(CLI::App& app, Action& action);

}  // namespace trireme::apps

#endif  // TRIREME_APPS_SUBCOMMANDS_HPP_
