// io/json.cpp — see json.hpp.
#include "io/json.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/checked.hpp"

namespace trireme::io {

// "[json.exception.parse_error.101] parse error at line 1, ..." -> "parse error at ..."
std::string json_problem(std::string_view what) {
  const std::size_t end = what.starts_with('[') ? what.find("] ") : what.npos;
  return std::string(end == what.npos ? what : what.substr(end + 2));
}

template <class Json>
Json parse_json(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const typename Json::parse_error& error) {
    throw JsonError(json_problem(error.what()));
  }
}

template <class Json>
Json parse_json_or_null(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json() : json;
}

template <class T, class Json>
T integer_at(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end()) throw JsonError(fmt::format("'{}' is missing", key));
  std::optional<T> value;
  if (it->is_number_unsigned()) {
    value = checked_cast<T>(it->template get<std::uint64_t>());
  } else if (it->is_number_integer()) {
    value = checked_cast<T>(it->template get<std::int64_t>());
  }
  if (!value) {
    throw JsonError(fmt::format("'{}' is {}; expected an integer from {} to {}", key,
                                json_text(*it), std::numeric_limits<T>::min(),
                                std::numeric_limits<T>::max()));
  }
  return *value;
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
        fmt::format("a text cannot be written as JSON: {}", json_problem(error.what())));
  }
}

#define TRIREME_INSTANTIATE(Json)                              \
  template int integer_at(const Json&, const char*);           \
  template std::int64_t integer_at(const Json&, const char*);  \
  template std::uint64_t integer_at(const Json&, const char*); \
  template Json parse_json<Json>(std::string_view);            \
  template Json parse_json_or_null<Json>(std::string_view);    \
  template std::string json_text(const Json&, int);            \
  template std::string exact_json_text(const Json&, int);
TRIREME_INSTANTIATE(nlohmann::json)
TRIREME_INSTANTIATE(nlohmann::ordered_json)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::io
