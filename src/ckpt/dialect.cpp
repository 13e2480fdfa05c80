// ckpt/dialect.cpp — see dialect.hpp.
#include "ckpt/dialect.hpp"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "ckpt/dialects/bert.hpp"
#include "ckpt/dialects/gpt2.hpp"
#include "ckpt/dialects/t5.hpp"
#include "config/enums.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

Shape ForeignTensor::stored_shape() const {
  const auto parts = static_cast<index_t>(theirs.size());
  TRIREME_REQUIRE(parts > 0 && !shape.empty() && shape[0] % parts == 0,
                  "'{}' {} is not {} equal parts", name, to_string(shape), parts);
  Shape stored = shape;
  stored[0] /= parts;
  if (is_transposed) std::swap(stored.at(0), stored.at(1));
  return stored;
}

std::string Dialect::without_prefix(const std::string& theirs) const {
  return theirs.starts_with(prefix) ? theirs.substr(prefix.size()) : theirs;
}

std::span<const Dialect> known_dialects() {
  static const std::vector<Dialect> known = {gpt2_dialect(), bert_dialect(),
                                             megatron_bert_dialect(), t5_dialect()};
  return known;
}

const Dialect& dialect_of_config(const nlohmann::json& config, const std::string& where,
                                 std::span<const Dialect> dialects) {
  TRIREME_REQUIRE_INPUT(config.is_object(),
                        "'{}' is not a JSON object: is it the config.json "
                        "of a Hugging Face model?",
                        where);
  const auto type = config.value("model_type", nlohmann::json("none"));
  std::vector<std::string> types;
  for (const Dialect& dialect : dialects) {
    if (type == dialect.model_type) return dialect;
    types.push_back(fmt::format("\"{}\"", dialect.model_type));
  }
  throw InputError(fmt::format("'{}': model_type is {}; Trireme can convert {}", where,
                               io::json_excerpt(type), fmt::join(types, ", ")));
}

const Dialect& dialect_of_model(const config::ModelConfig& model,
                                const std::string& where,
                                std::span<const Dialect> dialects) {
  std::string problems;
  std::set<std::string_view> kinds;
  for (const Dialect& dialect : dialects) {
    kinds.insert(config::name_of(dialect.kind));
    if (dialect.kind != model.kind) continue;
    const std::vector<std::string> lines = dialect.inexpressible(model);
    if (lines.empty()) return dialect;
    problems += fmt::format(
        "{}'{}' is not a model that transformers' {} can express:\n  {}",
        problems.empty() ? "" : "\n", where, dialect.name, fmt::join(lines, "\n  "));
  }
  TRIREME_REQUIRE_INPUT(
      !problems.empty(),
      "'{}' is a model of kind {}; a Hugging Face directory can be made "
      "of {}",
      where, config::name_of(model.kind), fmt::join(kinds, ", "));
  throw InputError(problems);
}

}  // namespace trireme::ckpt
