// job/batch_options.cpp — see batch_options.hpp.
//
// sbatch reads its lines by rules of its own, which are not those of a shell; words_of()
// has them as they were found by trying. A backslash takes the next character as it is, a
// quote hides blanks, and # ends the line. Writing goes the other way through the same
// rules, and quotes whatever is not known to be plain.
#include "job/batch_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.hpp"
#include "base/words.hpp"

namespace trireme::job {

namespace {

constexpr std::string_view kPrefix = "#SBATCH";
constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";

// The short names of options that a job may want, with the long names under which they
// are looked up.
constexpr std::array<std::pair<char, std::string_view>, 23> kShortNames = {{
    {'A', "account"},  {'C', "constraint"},    {'D', "chdir"},
    {'G', "gpus"},     {'J', "job-name"},      {'L', "licenses"},
    {'M', "clusters"}, {'N', "nodes"},         {'S', "core-spec"},
    {'b', "begin"},    {'c', "cpus-per-task"}, {'d', "dependency"},
    {'e', "error"},    {'i', "input"},         {'m', "distribution"},
    {'n', "ntasks"},   {'o', "output"},        {'p', "partition"},
    {'q', "qos"},      {'s', "oversubscribe"}, {'t', "time"},
    {'w', "nodelist"}, {'x', "exclude"},
}};

// The words of a line, without what quotes them; nothing where a quote is open at its
// end.
std::optional<std::vector<std::string>> words_of(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  const auto add = [&](char c) {
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c != '\0') words.back() += c;
  };
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\') {
      if (i + 1 < line.size()) add(line[++i]);
    } else if (c == quote) {
      quote = '\0';
    } else if (quote != '\0') {
      add(c);
    } else if (c == '"' || c == '\'') {
      quote = c;
      add('\0');
    } else if (c == '#') {
      break;
    } else if (kBlanks.find(c) != std::string_view::npos) {
      in_word = false;
    } else {
      add(c);
    }
  }
  return quote == '\0' ? std::optional(words) : std::nullopt;
}

// "-N4", or "-N" with its value in the next word.
BatchOption short_option(const std::string& word, const std::string& place) {
  for (const auto& [letter, name] : kShortNames) {
    if (word[1] == letter) return {std::string(name), word.substr(2)};
  }
  throw InputError(
      fmt::format("{}: '{}' is a short option that is not known here: write the long "
                  "one, --name=value",
                  place, word));
}

BatchOption option_of(const std::string& word, const std::string& place) {
  if (word.size() > 1 && word[0] == '-' && word[1] != '-') {
    return short_option(word, place);
  }
  const std::size_t equals = std::min(word.find('='), word.size());
  const std::string name = word.substr(std::min<std::size_t>(2, equals),
                                       equals - std::min<std::size_t>(2, equals));
  TRIREME_REQUIRE_INPUT(
      word.starts_with("--") && !name.empty() &&
          name.find_first_not_of(kNameLetters) == std::string::npos,
      "{}: '{}' is no option of sbatch: expected --name or --name=value", place, word);
  return {name, equals < word.size() ? word.substr(equals + 1) : ""};
}

// An option that has no value yet takes the word behind it, if that is none itself.
std::vector<BatchOption> options_of_line(std::string_view line,
                                         const std::string& place) {
  const auto words = words_of(line.substr(kPrefix.size()));
  TRIREME_REQUIRE_INPUT(words, "{}: a quote is open at the end of the line: {}", place,
                        line);
  std::vector<BatchOption> options;
  bool wants_value = false;
  for (const std::string& word : *words) {
    if (wants_value && !word.starts_with('-')) {
      options.back().value = word;
      wants_value = false;
      continue;
    }
    options.push_back(option_of(word, place));
    wants_value = options.back().value.empty() && word.find('=') == std::string::npos;
  }
  return options;
}

}  // namespace

bool is_batch_line(std::string_view line) {
  return line.starts_with(kPrefix) && line.size() > kPrefix.size() &&
         kBlanks.find(line[kPrefix.size()]) != std::string_view::npos;
}

std::vector<BatchOption> batch_options(const std::string& script,
                                       const std::string& file) {
  std::vector<BatchOption> options;
  int number = 0;
  for (const std::string_view line : lines_of(script)) {
    ++number;
    if (!is_batch_line(line)) continue;
    const std::string place = fmt::format("{}:{}", file, number);
    for (const BatchOption& option : options_of_line(line, place)) {
      set_batch_option(options, option);
    }
  }
  return options;
}

std::string batch_line(const BatchOption& option) {
  if (option.value.empty()) return fmt::format("{} --{}\n", kPrefix, option.name);
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%[]";
  if (option.value.find_first_not_of(kPlain) == std::string::npos) {
    return fmt::format("{} --{}={}\n", kPrefix, option.name, option.value);
  }
  std::string quoted;
  for (const char c : option.value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return fmt::format("{} --{}=\"{}\"\n", kPrefix, option.name, quoted);
}

void set_batch_option(std::vector<BatchOption>& options, const BatchOption& wanted) {
  const auto same = std::ranges::find(options, wanted.name, &BatchOption::name);
  if (same == options.end()) {
    options.push_back(wanted);
  } else {
    *same = wanted;
  }
}

}  // namespace trireme::job
