// base/words.hpp — texts taken apart: words, parts and numbers of what users and files
// say.
#ifndef TRIREME_BASE_WORDS_HPP_
#define TRIREME_BASE_WORDS_HPP_

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace trireme {

// The number that all of the text is; none where it is something else or no T holds it.
template <class T, class... Base>
std::optional<T> number_in(std::string_view text, Base... base) {
  T number{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, base...);
  return error == std::errc{} && end == last ? std::optional(number) : std::nullopt;
}

// What stands between the separators: one part more than there are of them.
std::vector<std::string_view> split(std::string_view text, std::string_view separator);
// A last line without an end counts; what follows the last end, if empty, does not.
std::vector<std::string_view> lines_of(std::string_view text);
// The text without blanks, tabs and carriage returns at either end.
std::string_view trimmed(std::string_view text);
std::string lower_case(std::string_view text);

// Insertions, deletions, replacements and swaps of neighbours that make one of the other.
int edit_distance(std::string_view a, std::string_view b);

}  // namespace trireme

#endif  // TRIREME_BASE_WORDS_HPP_
