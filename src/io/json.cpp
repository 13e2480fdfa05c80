// io/json.cpp — see json.hpp.
//
// A text is looked through once before the parser sees it, for its depth alone: the
// parser's values are freed by recursion, and a text of a million brackets would overflow
// the stack there. The library's messages are shortened to what is wrong, and the place
// is told apart from them.
#include "io/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/plural.hpp"

namespace trireme::io {
namespace {

// More of a problem is the file's text, not its description.
constexpr std::size_t kLongestProblem = 300;

std::string cut(std::string text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (text[bytes] & 0xC0) == 0x80) --bytes;  // whole characters
  text.resize(bytes);
  return text + "...";
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
// -> "syntax error ...": the place is told apart.
std::string problem_of(std::string_view what) {
  const auto drop = [&](std::string_view prefix, std::string_view end) {
    const std::size_t at = what.starts_with(prefix) ? what.find(end) : what.npos;
    if (at != what.npos) what.remove_prefix(at + end.size());
  };
  drop("[", "] ");
  const bool is_syntax = what.starts_with("parse error");
  drop("parse error at line ", ": ");
  return cut((is_syntax ? "not valid JSON: " : "") + std::string(what), kLongestProblem);
}

JsonError error_at(std::string_view text, std::size_t at, const std::string& problem) {
  const std::string_view before = text.substr(0, at);
  const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return {1 + std::count(before.begin(), before.end(), '\n'),
          static_cast<std::int64_t>(at - line_begin) + 1, problem};
}

// Looks through a text before the parser sees it, as what that builds is freed and moved
// by recursion. Up to the first error of syntax, strings begin and end here where they do
// for the parser.
void check_levels(std::string_view text) {
  int levels = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++levels > kMostJsonLevels) {
        throw error_at(text, at,
                       fmt::format("nested more than {} deep",
                                   format_plural(kMostJsonLevels, "level")));
      }
    } else if (c == ']' || c == '}') {
      --levels;
    }
  }
}

// Reads a text and leaves where it stands: the library's exceptions tell that for
// errors of syntax only.
struct Tracking {
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** reached;

  reference operator*() const { return *at; }
  Tracking& operator++() {
    *reached = ++at;
    return *this;
  }
  bool operator==(const Tracking& other) const { return at == other.at; }
  bool operator!=(const Tracking& other) const { return at != other.at; }
};

template <class T>
std::string kind_name() {
  if constexpr (std::same_as<T, bool>) {
    return "true or false";
  } else if constexpr (std::same_as<T, double>) {
    return "a number";
  } else if constexpr (std::same_as<T, std::string>) {
    return "a string";
  } else if constexpr (std::integral<T>) {
    return fmt::format("an integer from {} to {}", std::numeric_limits<T>::min(),
                       std::numeric_limits<T>::max());
  } else {
    return "a list, each of it " + kind_name<typename T::value_type>();
  }
}

template <class T, class Json>
bool is_of_kind(const Json& json) {
  if constexpr (std::same_as<T, bool>) {
    return json.is_boolean();
  } else if constexpr (std::same_as<T, double>) {
    return json.is_number();
  } else if constexpr (std::same_as<T, std::string>) {
    return json.is_string();
  } else if constexpr (std::integral<T>) {
    return json.is_number_unsigned()
               ? std::in_range<T>(json.template get<std::uint64_t>())
               : json.is_number_integer() &&
                     std::in_range<T>(json.template get<std::int64_t>());
  } else {
    return json.is_array() && std::ranges::all_of(json, [](const Json& item) {
             return is_of_kind<typename T::value_type>(item);
           });
  }
}

// Null where the object has no such key, or is none.
template <class Json>
const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

template <class Json>
JsonError wrong_value(const Json* found, const char* key, const std::string& expected) {
  return {0, 0,
          found == nullptr ? fmt::format("'{}' is missing; expected {}", key, expected)
                           : fmt::format("'{}' is {}; expected {}", key,
                                         json_excerpt(*found), expected)};
}

}  // namespace

JsonError::JsonError(std::int64_t line, std::int64_t column, const std::string& problem)
    : InputError(line == 0
                     ? problem
                     : fmt::format("line {}, column {}: {}", line, column, problem)),
      line_(line),
      column_(column),
      problem_(problem) {}

std::string JsonError::in_file(std::string_view file, std::int64_t first_line) const {
  if (line_ == 0) return fmt::format("{}: {}", file, problem_);
  return fmt::format("{}:{}:{}: {}", file, first_line + line_ - 1, column_, problem_);
}

template <class Json>
Json parse_json(std::string_view text, Keys keys) {
  check_levels(text);
  const char* reached = text.data();
  std::vector<std::set<std::string>> open;  // keys of the objects around
  const typename Json::parser_callback_t refuse_second =
      [&](int, typename Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::object_start) {
          open.emplace_back();
        } else if (event == Json::parse_event_t::object_end) {
          open.pop_back();
        } else if (event == Json::parse_event_t::key &&
                   !open.back().insert(parsed.template get<std::string>()).second) {
          throw error_at(
              text, static_cast<std::size_t>(reached - text.data()) - 1,
              fmt::format("a second key {} in one object", json_excerpt(parsed)));
        }
        return true;
      };
  try {
    return Json::parse(Tracking{text.data(), &reached},
                       Tracking{text.data() + text.size(), &reached},
                       keys == Keys::once ? refuse_second : nullptr);
  } catch (const typename Json::exception& error) {
    // The last character that was read is the one that is too many.
    const auto read = static_cast<std::size_t>(reached - text.data());
    throw error_at(text, std::max<std::size_t>(read, 1) - 1, problem_of(error.what()));
  }
}

template <class Json>
Json parse_json_file(std::string_view text, std::string_view file, Keys keys) {
  try {
    return parse_json<Json>(text, keys);
  } catch (const JsonError& error) {
    throw InputError(error.in_file(file));
  }
}

template <class Json>
Json parse_json_or_null(std::string_view text) {
  try {
    return parse_json<Json>(text);
  } catch (const JsonError&) {
    return Json();
  }
}

template <class T, class Json>
T json_value(const Json& object, const char* key) {
  const Json* found = find(object, key);
  if (found != nullptr && is_of_kind<T>(*found)) return found->template get<T>();
  throw wrong_value(found, key, kind_name<T>());
}

template <class Json>
const Json& json_list(const Json& object, const char* key) {
  const Json* found = find(object, key);
  if (found != nullptr && found->is_array()) return *found;
  throw wrong_value(found, key, "a list");
}

template <class Json>
std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

template <class Json>
std::string exact_json_text(const Json& json, int indent) {
  try {
    return json.dump(indent);
  } catch (const typename Json::type_error& error) {
    throw InputError(
        fmt::format("a text cannot be written as JSON: {}", problem_of(error.what())));
  }
}

namespace {

// Stops where the text has become long enough.
template <class Json>
void append_excerpt(const Json& json, std::size_t bytes, std::string& text) {
  if (json.is_string()) {
    text += json_text(Json(cut(json.template get_ref<const std::string&>(), bytes)));
    return;
  }
  if (!json.is_structured()) {
    text += json_text(json);
    return;
  }
  text += json.is_object() ? '{' : '[';
  bool is_first = true;
  for (const auto& [key, value] : json.items()) {
    if (text.size() > bytes) break;
    if (!is_first) text += ',';
    is_first = false;
    if (json.is_object()) {
      append_excerpt(Json(key), bytes, text);
      text += ':';
    }
    append_excerpt(value, bytes, text);
  }
  text += json.is_object() ? '}' : ']';
}

}  // namespace

template <class Json>
std::string json_excerpt(const Json& json, std::size_t bytes) {
  std::string text;
  append_excerpt(json, bytes, text);
  return cut(std::move(text), bytes);
}

#define TRIREME_INSTANTIATE_VALUE(Json)                                    \
  template bool json_value(const Json&, const char*);                      \
  template int json_value(const Json&, const char*);                       \
  template std::int64_t json_value(const Json&, const char*);              \
  template std::uint64_t json_value(const Json&, const char*);             \
  template double json_value(const Json&, const char*);                    \
  template std::string json_value(const Json&, const char*);               \
  template std::vector<std::int64_t> json_value(const Json&, const char*); \
  template std::vector<std::string> json_value(const Json&, const char*);  \
  template const Json& json_list(const Json&, const char*);
#define TRIREME_INSTANTIATE(Json)                                                \
  template Json parse_json<Json>(std::string_view, Keys);                        \
  template Json parse_json_file<Json>(std::string_view, std::string_view, Keys); \
  template Json parse_json_or_null<Json>(std::string_view);                      \
  template std::string json_text(const Json&, int);                              \
  template std::string exact_json_text(const Json&, int);                        \
  template std::string json_excerpt(const Json&, std::size_t);                   \
  TRIREME_INSTANTIATE_VALUE(Json)
TRIREME_INSTANTIATE(nlohmann::json)
TRIREME_INSTANTIATE(nlohmann::ordered_json)
#undef TRIREME_INSTANTIATE
#undef TRIREME_INSTANTIATE_VALUE

}  // namespace trireme::io
