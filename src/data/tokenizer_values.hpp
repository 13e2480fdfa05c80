// data/tokenizer_values.hpp — values of a tokenizer.json, for its readers. `name` is the
// file's, for messages.
#ifndef TRIREME_DATA_TOKENIZER_VALUES_HPP_
#define TRIREME_DATA_TOKENIZER_VALUES_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "data/token_model.hpp"
#include "io/json.hpp"

namespace trireme::data {

// Value of a key that may be missing or null.
template <class T, class Json>
T value_or(const Json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if constexpr (std::is_same_v<T, Json>) {
    return *found;
  } else {
    return io::json_value<T>(object, key);
  }
}

nlohmann::json parse_tokenizer_json(const std::string& name, const std::string& text);

// The "type" of a part of a tokenizer.json; empty where there is none.
std::string type_of(const nlohmann::json& part);

// Tokens by id, as the file spells them; of ids that are not in use they are empty.
std::vector<std::string> vocabulary_of(const std::string& name,
                                       const nlohmann::json& entries);

// An id of a tokenizer, of the token that is spelt so.
TokenId checked_id(const std::string& name, const std::string& text,
                   const nlohmann::json& id);

}  // namespace trireme::data

#endif  // TRIREME_DATA_TOKENIZER_VALUES_HPP_
