// config/key_readers.hpp — makes the entries of the key table: one function per type of
// value.
#ifndef TRIREME_CONFIG_KEY_READERS_HPP_
#define TRIREME_CONFIG_KEY_READERS_HPP_

#include <limits>
#include <string>
#include <string_view>

#include "base/types.hpp"
#include "config/key_table.hpp"
#include "config/text.hpp"

namespace trireme::config {

std::optional<Problem> read_integer(const YamlValue& value, index_t least, index_t most,
                                    index_t& out);
// Bounds may be left out: [least, most), or (least, most) where open_below.
struct NumberRange {
  double least = -std::numeric_limits<double>::max();
  double most = std::numeric_limits<double>::max();
  bool open_below = false, open_above = false;
};
std::optional<Problem> read_number(const YamlValue& value, const NumberRange& range,
                                   double& out);
std::optional<Problem> read_boolean(const YamlValue& value, bool& out);
std::optional<Problem> read_text(const YamlValue& value, std::string& out);
// Reads a path, with its home directory and variables filled in.
std::optional<Problem> read_path(const YamlValue& value, std::string& out);
std::optional<Problem> read_length(const YamlValue& value, index_t least, Length& out);
// word: "none" or "auto", which leaves `out` empty.
std::optional<Problem> read_time(const YamlValue& value, const std::string& word,
                                 std::optional<double>& out);
// A scalar that is one of the words: its place among them.
std::optional<Problem> read_word(const YamlValue& value,
                                 const std::vector<std::string_view>& words,
                                 std::size_t& out);
// Whether a value is this word, in quotes or not.
bool says(const YamlValue& value, std::string_view word);
// What a value is, in words: "a list", "text in quotes" ...
std::string kind_of(const YamlValue& value);

// A path as a YAML scalar that is read as this path.
std::string path_value(const std::string& path);

std::string join_words(const std::vector<std::string_view>& words);

template <class E>
std::vector<std::string_view> words_of() {
  std::vector<std::string_view> words;
  for (const auto& choice : choices<E>()) words.push_back(choice.second);
  return words;
}

template <class E>
std::optional<Problem> read_choice(const YamlValue& value, E& out) {
  std::size_t index = 0;
  auto problem = read_word(value, words_of<E>(), index);
  if (!problem) out = choices<E>()[index].first;
  return problem;
}

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_KEY_READERS_HPP_
