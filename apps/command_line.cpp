// apps/command_line.cpp — see command_line.hpp.
#include "apps/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "apps/run_guarded.hpp"
#include "base/error.hpp"
#include "comm/rank_list.hpp"
#include "config/text.hpp"
#include "io/atomic_file.hpp"

namespace trireme::apps {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  return names;
}

// "trireme trian": what was meant, and what there is.
std::string unknown_command(const std::vector<std::string>& names,
                            const std::string& word) {
  const std::string nearest = config::nearest_word(word, {names.begin(), names.end()});
  return fmt::format("there is no command '{}'{}\nCommands: {}. See trireme --help", word,
                     nearest.empty() ? "" : "; did you mean '" + nearest + "'?",
                     fmt::join(names, ", "));
}

}  // namespace

std::string shell_text(int argc, char** argv) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%";
  std::string text;
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    if (i > 0) text += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) {
      if (c == '\'') {
        text += "'\\''";
      } else {
        text += c;
      }
    }
    text += '\'';
  }
  return text;
}

std::string different_arguments(const comm::Environment& environment, int argc,
                                char** argv) {
  comm::Communicator& world = *environment.world();
  const std::string arguments = argc > 1 ? shell_text(argc - 1, argv + 1) : "none";
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>{}(arguments));
  if (comm::all_same(world.gather(hash))) return {};
  return fmt::format(
      "the ranks were started with different arguments: {}. Start all with the same ones",
      comm::grouped_by_text(world.gather(arguments)));
}

void require_output(const std::string& file) {
  if (file.empty() || io::is_stream(file)) return;
  TRIREME_REQUIRE_INPUT(file != "-",
                        "output '-': for standard output give /dev/stdout; for a file of "
                        "that name, ./-");
  io::require_writable(file);
}

void describe_commands(CLI::App& app, Action& action, const std::string& command_line) {
  app.set_version_flag("--version", std::string("trireme ") + TRIREME_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Started alone, by mpiexec or by srun. `trireme COMMAND --help` tells more.\n"
      "Exit status: 0 done; 2 wrong arguments, deck or input files; 75 stopped early "
      "with "
      "a\ncheckpoint (run again to go on); 1 anything else.");
  add_train(app, action, command_line);
  add_tokenize(app, action);
  add_inspect(app, action);
  add_convert(app, action);
  add_generate(app, action);
  add_selftest(app, action);
}

std::optional<int> parse(CLI::App& app, int argc, char** argv, bool speaks) {
  try {
    app.parse(argc, argv);
    return {};
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version
      if (speaks) app.exit(error, std::cout, std::cerr);
      return 0;
    }
    if (!speaks) return kExitInput;
    const std::string first = argc > 1 ? argv[1] : "";
    const std::vector<std::string> names = command_names(app);
    const bool is_command = std::find(names.begin(), names.end(), first) != names.end();
    if (first.empty()) {
      std::cerr << app.help();
    } else if (!is_command && first[0] != '-') {
      std::cerr << "trireme: " << unknown_command(names, first) << "\n";
    } else {
      const std::string command = is_command ? "trireme " + first : "trireme";
      std::cerr << command << ": " << error.what() << "\nSee " << command << " --help\n";
    }
    return kExitInput;
  }
}

}  // namespace trireme::apps
