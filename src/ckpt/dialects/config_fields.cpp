// ckpt/dialects/config_fields.cpp — see config_fields.hpp.
#include "ckpt/dialects/config_fields.hpp"

#include <fmt/ranges.h>

#include <algorithm>
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

double ConfigFields::positive(const char* key, double fallback) {
  const double value = number(key, fallback);
  if (!(value > 0.0)) fail("{}: expected a number above 0, found {}", key, value);
  return value;
}

bool ConfigFields::boolean(const char* key, bool fallback) {
  const auto it = json_.find(key);
  if (it == json_.end() || it->is_null()) return fallback;
  if (it->is_boolean()) return it->get<bool>();
  fail("{}: expected true or false, found {}", key, io::json_excerpt(*it));
  return fallback;
}

std::size_t ConfigFields::word(const char* key,
                               std::initializer_list<const char*> words) {
  const auto it = json_.find(key);
  if (it == json_.end()) return 0;
  const auto found =
      std::ranges::find_if(words, [&](const char* word) { return *it == word; });
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  fail("{}: {} is not supported; expected one of {}", key, io::json_excerpt(*it),
       fmt::join(words, ", "));
  return 0;
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

void Exportable::check(bool holds, const char* key, const char* only) {
  if (holds) return;
  problems.push_back(fmt::format("model.{}: only {} can be exported", key, only));
}

std::optional<index_t> read_token_id(const nlohmann::json& json, const char* key,
                                     index_t vocab, const char* what,
                                     const std::string& where, Log& log) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return {};
  const nlohmann::json value = it->is_array() && !it->empty() ? it->front() : *it;
  if (value.is_number_integer()) {
    const auto id = value.get<index_t>();
    if (id >= 0 && id < vocab) return id;
  }
  log.warning(
      "'{}': {} {} is no id of the vocabulary (0 to {}); the model is taken to have no "
      "{}",
      where, key, io::json_excerpt(*it), vocab - 1, what);
  return {};
}

}  // namespace trireme::ckpt
