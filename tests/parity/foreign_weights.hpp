// parity/foreign_weights.hpp — a fixture's model as Hugging Face saves it, read by the
// names of its parameters and fields alone.
#ifndef TRIREME_TESTS_PARITY_FOREIGN_WEIGHTS_HPP_
#define TRIREME_TESTS_PARITY_FOREIGN_WEIGHTS_HPP_

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/safetensors.hpp"
#include "parity/parity_case.hpp"
#include "support/safetensors.hpp"
#include "tensor/batch_spec.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::test {

// Of each parameter of ours those whose rows it stacks.
using ForeignNames = std::map<std::string, std::vector<std::string>>;

inline nlohmann::json foreign_config(const std::string& directory) {
  return nlohmann::json::parse(std::ifstream(directory + "/config.json"));
}

inline std::function<std::vector<float>(const ParamSpec&)> foreign_weights(
    const std::string& directory, const ForeignNames& names) {
  const auto reader =
      std::make_shared<const io::SafetensorsReader>(directory + "/model.safetensors");
  return [reader, names](const ParamSpec& spec) {
    std::vector<float> values;
    const auto found = names.find(spec.name);
    TRIREME_REQUIRE(found != names.end(), "the fixture has no '{}'", spec.name);
    for (const std::string& name : found->second) {
      const std::vector<float> part = elements<float>(reader->at(name));
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  };
}

// Fields by name, each (n, b) or (n, b, positions); places are 0, 1, 2 ...
inline std::function<double(const FieldSpec&, index_t, index_t)> fields_of_oracle(
    const BatchSpec& batch, const std::string& oracle) {
  const io::SafetensorsReader reader(oracle);
  std::map<std::string, std::vector<double>> fields;
  for (const FieldSpec& field : batch.fields) {
    if (field.holds == Holds::places) continue;
    const auto& tensor = reader.at(field.name);
    std::vector<double>& values = fields[field.name];
    if (field.type() == DType::float32) {
      const auto numbers = elements<float>(tensor);
      values.assign(numbers.begin(), numbers.end());
    } else {
      const auto numbers = elements<std::int32_t>(tensor);
      values.assign(numbers.begin(), numbers.end());
    }
  }
  return [batch, fields](const FieldSpec& field, index_t sample, index_t position) {
    if (field.holds == Holds::places) return static_cast<double>(position);
    const index_t positions = batch.elements(field, 1);
    return fields.at(field.name).at(extent(sample * positions + position));
  };
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_PARITY_FOREIGN_WEIGHTS_HPP_
