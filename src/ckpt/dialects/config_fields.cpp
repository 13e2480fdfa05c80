// ckpt/dialects/config_fields.cpp — see config_fields.hpp.
#include "ckpt/dialects/config_fields.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

index_t ConfigFields::size(const char* key) {
  const auto it = json_.find(key);
  if (it == json_.end()) {
    fail("{}: missing", key);
  } else if (!it->is_number_integer() || it->get<double>() < 1 ||
             it->get<double>() > 2147483647.0) {
    fail("{}: expected a number of at least 1, found {}", key, io::json_excerpt(*it));
  } else {
    return it->get<index_t>();
  }
  return 0;
}

index_t ConfigFields::size_or(const char* key, index_t fallback) {
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? fallback : size(key);
}

double ConfigFields::probability(const char* key, double fallback) {
  const double value = number(key, fallback);
  if (!(value >= 0.0 && value < 1.0)) {
    fail("{}: expected a probability in [0, 1), found {}", key, value);
  }
  return value;
}

double ConfigFields::number(const char* key, double fallback) {
  const auto it = json_.find(key);
  if (it == json_.end()) return fallback;
  if (it->is_number()) return it->get<double>();
  fail("{}: expected a number, found {}", key, io::json_excerpt(*it));
  return fallback;
}

void ConfigFields::must_be(const char* key, bool value, const char* why) {
  const auto it = json_.find(key);
  if (it == json_.end() || (it->is_boolean() && it->get<bool>() == value)) return;
  fail("{}: {} is not supported ({}); expected {}", key, io::json_excerpt(*it), why,
       value);
}

void ConfigFields::refuse_quantised() {
  const auto it = json_.find("quantization_config");
  if (it == json_.end() || it->is_null()) return;
  fail(
      "quantization_config: quantised weights are not supported; save the model in "
      "fp32, fp16 or bf16");
}

void ConfigFields::require_right(const std::string& where) const {
  if (problems_.empty()) return;
  std::string message = fmt::format("'{}' is not a model that Trireme can take:", where);
  for (const std::string& problem : problems_) message += "\n  " + problem;
  throw InputError(message);
}

}  // namespace trireme::ckpt
