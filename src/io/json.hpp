// io/json.hpp — JSON from text and to text, and typed values out of it.
//
// The library's parser and its writer take the compiler seconds in every file that uses
// them; these are compiled once. Values are nlohmann's own: ordered_json, which keeps the
// order of keys, or json, which finds one among very many fast.
//
// Whatever is wrong with a text, JsonError says so with the place; no exception of the
// library leaves these functions. Values are nested 64 levels deep at most: copying,
// writing and freeing recurse.
#ifndef TRIREME_IO_JSON_HPP_
#define TRIREME_IO_JSON_HPP_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace trireme::io {

inline constexpr int kMostJsonLevels = 64;

// The text is no JSON, or a value in it is not of the kind that is asked for.
class JsonError : public InputError {
 public:
  // Counted from 1, columns in bytes; a line of 0 where the place is not known.
  JsonError(std::int64_t line, std::int64_t column, const std::string& problem);

  // "FILE:3:17: not valid JSON: ..."; the text's first line is `first_line` of the file.
  std::string in_file(std::string_view file, std::int64_t first_line = 1) const;

 private:
  std::int64_t line_;
  std::int64_t column_;
  std::string problem_;
};

// Whether an object may name a key twice: the last one holds, as with most readers; or
// that is an error, where a format forbids it.
enum class Keys { any, once };

// JsonError where it is not JSON, holds a number beyond all (1e999), or is too deep.
template <class Json>
Json parse_json(std::string_view text, Keys keys = Keys::any);
// Parses a file's content: InputError as JsonError::in_file() words it.
template <class Json>
Json parse_json_file(std::string_view text, std::string_view file, Keys keys = Keys::any);
// Null where parse_json() throws: for what may be damaged without harm.
template <class Json>
Json parse_json_or_null(std::string_view text);

// The value of a key: JsonError with key, what was expected and what was found where it
// is missing, of another kind, or an integer that T cannot hold. T is bool, int,
// std::int64_t, std::uint64_t, double (integers, too), std::string, or a std::vector of
// std::int64_t or std::string.
template <class T, class Json>
T json_value(const Json& object, const char* key);
// The list under a key, as it is; JsonError where there is none.
template <class Json>
const Json& json_list(const Json& object, const char* key);

// On one line, or a line per value and `indent` blanks per level. Bytes that are not
// UTF-8 (names come from file names, too) are written as U+FFFD.
template <class Json>
std::string json_text(const Json& json, int indent = -1);
// The text of JSON that will be read again: InputError where a string is not UTF-8.
template <class Json>
std::string exact_json_text(const Json& json, int indent = -1);
// The beginning of a text of JSON, for messages: about `bytes`, and "..." where there is
// more.
template <class Json>
std::string json_excerpt(const Json& json, std::size_t bytes = 100);

}  // namespace trireme::io

#endif  // TRIREME_IO_JSON_HPP_
