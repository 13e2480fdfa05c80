// ckpt/dialects/config_fields.hpp — values out of a config.json, with all that is wrong
// with it collected, so that it is said together.
#ifndef TRIREME_CKPT_DIALECTS_CONFIG_FIELDS_HPP_
#define TRIREME_CKPT_DIALECTS_CONFIG_FIELDS_HPP_

#include <fmt/format.h>

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
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
  double positive(const char* key, double fallback);
  bool boolean(const char* key, bool fallback);
  // The place in `words` of the text that a key has; 0, which is transformers' default,
  // where it has none.
  std::size_t word(const char* key, std::initializer_list<const char*> words);
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

// What of a model of ours a config.json has no words for, a line each.
struct Exportable {
  std::vector<std::string> problems;

  void check(bool holds, const char* key, const char* only);
};

// The id that a key names: an integer, null, absent, or (newer files) a list. None where
// it is no id of a vocabulary; a warning then says that the model has no `what`.
std::optional<index_t> read_token_id(const nlohmann::json& json, const char* key,
                                     index_t vocab, const char* what,
                                     const std::string& where, Log& log);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_DIALECTS_CONFIG_FIELDS_HPP_
