// apps/command_line.cpp — see command_line.hpp.
//
// CLI11 reads the arguments; what it does otherwise than users expect is put right here.
// Its help runs over the edge of the screen and is wrapped, its messages do not know
// which command was meant, and it takes "-1" for the largest unsigned number. What a
// command does is only noted while the arguments are read, and is called when MPI is up:
// a mistake in the arguments must end the program with a message from one rank.
#include "apps/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "apps/run_guarded.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/version.hpp"
#include "base/words.hpp"
#include "check/run_start.hpp"
#include "ckpt/build_identity.hpp"
#include "ckpt/manifest.hpp"
#include "comm/board_format.hpp"
#include "comm/rank_list.hpp"
#include "config/text.hpp"
#include "io/atomic_file.hpp"
#include "io/hdf5.hpp"

namespace trireme::apps {
namespace {

// Help in lines that fit the screen; the library's go on behind its edge.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::istringstream lines(CLI::Formatter::make_help(app, std::move(name), mode));
    std::string text;
    for (std::string line; std::getline(lines, line);) text += fitted(line) + "\n";
    return text;
  }

 private:
  std::string fitted(const std::string& line) const {
    if (display_width(line) <= kScreenColumns) return line;
    // What an option does stands in a column of its own.
    const std::size_t column = get_column_width();
    const bool has_column = line[column - 1] == ' ' && line[column] != ' ';
    const std::size_t begin = has_column ? column : line.find_first_not_of(' ');
    return line.substr(0, begin) +
           wrap_words(line.substr(begin), kScreenColumns, static_cast<int>(begin));
  }
};

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

// The fields of environment.json, a line each; and how srun has to start this build,
// which the job scripts look for.
std::string version_text() {
  std::string text = "trireme " + program_version();
  for (const auto& [name, value] : ckpt::build_identity()) {
    if (name == "trireme" || name == "git") continue;
    text += fmt::format("\n  {:<16}", name);
    text += wrap_words(value, kScreenColumns, 18);
  }
  const std::string type = comm::srun_mpi_type();
  if (!type.empty()) text += fmt::format("\n  {:<16}srun --mpi={}", "launcher", type);
  return text;
}

// Is the name one that training gives to files of a run or of a checkpoint?
bool is_name_of_training(const std::filesystem::path& name) {
  constexpr std::array kNames = {
      ".lock",           "deck.yaml",    "efficiency.json", "environment.json",
      "gemm_table.json", "log.txt",      "manifest.json",   "profile.json",
      "report.json",     "starts.jsonl", "train.csv",       "train.jsonl"};
  // deck.1.yaml is a deck of an earlier start; ranks.NODE says what ranks are at.
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         name.extension() == ".h5" || name.string().starts_with(comm::kBoardPrefix) ||
         (name.extension() == ".yaml" && name.stem().stem() == "deck");
}

// What took work or holds a model is not given up for a result, which takes another name.
void require_no_work(const std::filesystem::path& file) {
  std::error_code ignored;  // then writing it says more
  if (!std::filesystem::is_regular_file(file, ignored)) return;
  TRIREME_REQUIRE_INPUT(
      !io::check_hdf5(file).is_hdf5 && file.extension() != ".safetensors",
      "'{}' is there and holds a corpus, vectors or weights, which a result does not "
      "replace: name another file",
      file.string());
  const std::filesystem::path directory =
      file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const bool holds_work =
      std::filesystem::exists(directory / ckpt::kManifestName, ignored) ||
      check::has_run_records(directory);
  TRIREME_REQUIRE_INPUT(
      !is_name_of_training(file.filename()) || !holds_work,
      "'{}' is there and is part of the run or checkpoint in '{}', which a result does "
      "not replace: name another file",
      file.string(), directory.string());
}

bool is_product(const std::string& file, const Product& product) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored) ||
      !io::check_hdf5(file).problem.empty()) {
    return false;
  }
  const io::H5File found = io::H5File::open(file);
  return std::all_of(product.datasets.begin(), product.datasets.end(),
                     [&](const std::string& name) {
                       return found.has(name) && !found.is_group(name);
                     }) &&
         std::all_of(product.attributes.begin(), product.attributes.end(),
                     [&](const std::string& name) { return found.has_attribute(name); });
}

}  // namespace

std::string shell_text(int argc, char** argv) {
  std::string text;
  for (int i = 0; i < argc; ++i) {
    if (i > 0) text += ' ';
    text += shell_word(argv[i]);
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

void require_no_input(const std::string& file, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code ignored;  // not there: no matter here
    TRIREME_REQUIRE_INPUT(
        !std::filesystem::equivalent(file, input, ignored),
        "output '{}' is also what is read ('{}'), and would be written over it; name "
        "another file",
        file, input);
  }
}

void remove_leftovers(const std::filesystem::path& output, Log& log) {
  // "out/" names out.
  const auto path = output.has_filename() ? output : output.parent_path();
  for (const std::string& line : io::remove_leftovers_of(path)) log.warning("{}", line);
}

void require_output(const std::string& file, const std::vector<std::string>& inputs) {
  if (file.empty() || io::is_stream(file)) return;
  require_no_input(file, inputs);
  TRIREME_REQUIRE_INPUT(file != "-",
                        "output '-': for standard output give /dev/stdout; for a file of "
                        "that name, ./-");
  io::require_writable(file);
  require_no_work(file);
}

void require_product(const std::string& out, const Product& product, Replace replace) {
  io::require_writable(out);
  std::error_code ignored;  // then writing it says more
  if (!std::filesystem::exists(std::filesystem::symlink_status(out, ignored))) return;
  TRIREME_REQUIRE_INPUT(is_product(out, product),
                        "'{}' exists already and is no {}, and --overwrite replaces {} "
                        "alone: name another --out, or remove it yourself",
                        out, product.one, product.many);
  TRIREME_REQUIRE_INPUT(
      replace == Replace::yes,
      "'{}' exists already: name another file, or give --overwrite to replace it{}", out,
      product.caution);
}

void require_apart(const std::vector<Output>& outputs) {
  // By the directory that it will be in, as the file may not be there yet.
  const auto place = [](const std::string& file) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::absolute(file);
    const std::filesystem::path found = std::filesystem::weakly_canonical(path, error);
    return error ? path.lexically_normal() : found;
  };
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (output->file.empty() || io::is_stream(output->file)) continue;
    const auto same = std::find_if(outputs.begin(), output, [&](const Output& other) {
      return !other.file.empty() && place(other.file) == place(output->file);
    });
    TRIREME_REQUIRE_INPUT(
        same == output,
        "{} and {} both write '{}', one over the other; name another file for one",
        same->option, output->option, output->file);
  }
}

CLI::Option* add_unsigned(CLI::App& command, const std::string& name,
                          std::uint64_t& value, const std::string& help) {
  const CLI::Validator no_sign(
      [](std::string& text) {
        return number_in<std::uint64_t>(text)
                   ? std::string()
                   : fmt::format("'{}' is no whole number from 0 to 2^64 - 1", text);
      },
      "0 to 2^64 - 1");
  return command.add_option(name, value, help)->check(no_sign);
}

void add_deck_changes(CLI::App& command, std::vector<std::string>& overrides,
                      std::string& run_dir) {
  command
      .add_option("--set", overrides,
                  "Override a key of the deck: --set model.layers=2 (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_option("--run-dir", run_dir, "Where the run lives: in place of run.dir")
      ->type_name("DIR");
}

CommandLine::CommandLine()
    : app_(std::make_unique<CLI::App>(
          "Trireme: training of Transformer language models on supercomputers",
          "trireme")) {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->set_version_flag("--version", version_text);
  app_->require_subcommand(1);
  app_->footer(
      "Started alone, by mpiexec or by srun. `trireme COMMAND --help` tells more.\n"
      "Exit status: 0 done; 2 wrong arguments, deck or input files; 75 stopped early\n"
      "with a checkpoint (run again to go on); 1 anything else.");
}

CommandLine::~CommandLine() = default;

CLI::App& CommandLine::add_command(const std::string& name, const std::string& help,
                                   Action action) {
  CLI::App& command = *app_->add_subcommand(name, help);
  command.callback([this, action = std::move(action)] { chosen_ = action; });
  return command;
}

std::optional<int> CommandLine::parse(int argc, char** argv, bool speaks) {
  try {
    app_->parse(argc, argv);
    return {};
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version
      if (speaks) app_->exit(error, std::cout, std::cerr);
      return 0;
    }
    if (!speaks) return kExitInput;
    const std::string first = argc > 1 ? argv[1] : "";
    const std::vector<std::string> names = command_names(*app_);
    const bool is_command = std::find(names.begin(), names.end(), first) != names.end();
    if (first.empty()) {
      std::cerr << app_->help();
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
