// run/run_commands.cpp — see run_commands.hpp.
#include "run/run_commands.hpp"

#include <fmt/format.h>

#include "base/format.hpp"

namespace trireme::run {

namespace {

constexpr int kIndent = 2;

// Parts of a command, each of words that stay together.
class Parts {
 public:
  void add(std::initializer_list<std::string> words) {
    std::string part;
    for (const std::string& word : words) {
      part += (part.empty() ? "" : " ") + shell_word(word);
    }
    parts_.push_back(part);
  }
  std::string text() const {
    return std::string(kIndent, ' ') + wrap_command(parts_, kScreenColumns, kIndent);
  }

 private:
  std::vector<std::string> parts_;
};

}  // namespace

std::string continue_command(const TrainCommand& train,
                             std::optional<std::int64_t> steps) {
  Parts parts;
  for (const std::string& word : train.launcher) parts.add({word});
  parts.add({train.program, "train"});
  parts.add({train.deck});
  if (!train.run_dir.empty()) parts.add({"--run-dir", train.run_dir});
  for (const std::string& change : train.overrides) {
    const bool is_replaced = steps && change.substr(0, change.find('=')) == "run.steps";
    if (!is_replaced) parts.add({"--set", change});
  }
  parts.add({"--resume", "auto"});
  if (steps) parts.add({"--set", fmt::format("run.steps={}", *steps)});
  return parts.text();
}

std::string generate_command(const TrainCommand& train, const std::string& run_directory,
                             bool has_tokenizer) {
  Parts parts;
  parts.add({train.program, "generate"});
  parts.add({"--checkpoint", run_directory});
  if (has_tokenizer) {
    parts.add({"--prompt", "Once upon a time"});
  } else {
    parts.add({"--prompt-ids", "0"});
  }
  return parts.text();
}

std::string fill_command(const TrainCommand& train, const std::string& run_directory,
                         const std::string& blank) {
  Parts parts;
  parts.add({train.program, "fill", run_directory});
  parts.add({"--text", fmt::format("Once upon a {}", blank)});
  return parts.text();
}

std::string advice_to_go_on(const TrainCommand& train) {
  return "To go on:\n" + continue_command(train);
}

std::string advice_to_train_on(const TrainCommand& train, std::int64_t steps) {
  return "To train on, twice as long for example:\n" + continue_command(train, 2 * steps);
}

}  // namespace trireme::run
