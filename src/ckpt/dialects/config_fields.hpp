// ckpt/dialects/config_fields.hpp — values out of a config.json, with all that is wrong
// with it collected, so that it is said together.
#ifndef TRIREME_CKPT_DIALECTS_CONFIG_FIELDS_HPP_
#define TRIREME_CKPT_DIALECTS_CONFIG_FIELDS_HPP_

#include <fmt/format.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace trireme::ckpt {

class ConfigFields {
 public:
  explicit ConfigFields(const nlohmann::json& json) : json_(json) {}

  // At least 1; 0 where there is none.
  index_t size(const char* key);
  // Null means the default, as in transformers.
  index_t size_or(const char* key, index_t fallback);
  double probability(const char* key, double fallback);
  double number(const char* key, double fallback);
  // A switch that must have one value here.
  void must_be(const char* key, bool value, const char* why);
  // Weights that are not numbers of their own.
  void refuse_quantised();

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // InputError with all that was wrong; `where` is the file.
  void require_right(const std::string& where) const;

 private:
  const nlohmann::json& json_;
  std::vector<std::string> problems_;
};

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_DIALECTS_CONFIG_FIELDS_HPP_
