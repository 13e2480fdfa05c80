// data/json_problem.hpp — what a JSON parser found wrong, without its own names.
#ifndef TRIREME_DATA_JSON_PROBLEM_HPP_
#define TRIREME_DATA_JSON_PROBLEM_HPP_

#include <string>

namespace trireme::data {

// "[json.exception.parse_error.101] parse error at line 1, ..." -> "parse error at ..."
inline std::string json_problem(const std::string& what) {
  const std::size_t end = what.starts_with('[') ? what.find("] ") : std::string::npos;
  return end == std::string::npos ? what : what.substr(end + 2);
}

}  // namespace trireme::data

#endif  // TRIREME_DATA_JSON_PROBLEM_HPP_
