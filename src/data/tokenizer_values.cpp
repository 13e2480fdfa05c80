// data/tokenizer_values.cpp — see tokenizer_values.hpp.
#include "data/tokenizer_values.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace trireme::data {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 26;

}  // namespace

nlohmann::json parse_tokenizer_json(const std::string& name, const std::string& text) {
  try {
    return io::parse_json<nlohmann::json>(text);
  } catch (const io::JsonError& error) {
    throw InputError("tokenizer file " + error.in_file(name));
  }
}

std::string type_of(const nlohmann::json& part) {
  return part.is_object() ? value_or<std::string>(part, "type", "") : std::string();
}

TokenId checked_id(const std::string& name, const std::string& text,
                   const nlohmann::json& id) {
  TRIREME_REQUIRE_INPUT(
      id.is_number_integer() && id.get<std::int64_t>() >= 0 &&
          id.get<std::int64_t>() < kMostTokens,
      "tokenizer file '{}': the id of token '{}' is {}, expected a number "
      "from 0 to {}",
      name, text, io::json_excerpt(id), kMostTokens - 1);
  return id.get<TokenId>();
}

std::vector<std::string> vocabulary_of(const std::string& name,
                                       const nlohmann::json& entries) {
  TRIREME_REQUIRE_INPUT(entries.is_object() && !entries.empty(),
                        "tokenizer file '{}': expected the vocabulary as an object of "
                        "token: id pairs, found {}",
                        name, entries.is_object() ? "an empty one" : entries.type_name());
  std::vector<std::string> tokens;
  for (const auto& [text, value] : entries.items()) {
    const TokenId id = checked_id(name, text, value);
    if (id >= tokens.size()) tokens.resize(id + 1);
    TRIREME_REQUIRE_INPUT(tokens[id].empty(),
                          "tokenizer file '{}': two tokens have the id {}, the second is "
                          "'{}'",
                          name, id, text);
    TRIREME_REQUIRE_INPUT(!text.empty(), "tokenizer file '{}': token {} is empty", name,
                          id);
    tokens[id] = text;
  }
  return tokens;
}

}  // namespace trireme::data
