// io/json.hpp — JSON from text and to text.
//
// The library's parser and its writer take the compiler seconds in every file that uses
// them; these are compiled once. Values are nlohmann's own: ordered_json, which keeps the
// order of keys, or json, which finds one among very many fast.
#ifndef TRIREME_IO_JSON_HPP_
#define TRIREME_IO_JSON_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace trireme::io {

// What the library's exception says, without its own names.
std::string json_problem(std::string_view what);

// The text is not JSON: "parse error at line 1, column 2: ...".
class JsonError : public InputError {
 public:
  using InputError::InputError;
};

// JsonError where it is not JSON.
template <class Json>
Json parse_json(std::string_view text);
// Null where it is not JSON.
template <class Json>
Json parse_json_or_null(std::string_view text);

// json[key] as a T: int, std::int64_t or std::uint64_t. JsonError, with the key, where it
// is not there, no integer, or one that is no T: the library's own get() would cut it.
template <class T, class Json>
T integer_at(const Json& json, const char* key);

// On one line, or a line per value and `indent` blanks per level. Bytes that are not
// UTF-8 (names come from file names, too) are written as U+FFFD.
template <class Json>
std::string json_text(const Json& json, int indent = -1);
// The same for what is read again: InputError where a string is not UTF-8.
template <class Json>
std::string exact_json_text(const Json& json, int indent = -1);

}  // namespace trireme::io

#endif  // TRIREME_IO_JSON_HPP_
