// parity/hugging_face_case.hpp — a fixture whose model Hugging Face has saved: its
// architecture and weights as the program itself reads them, its batches from the oracle.
#ifndef TRIREME_TESTS_PARITY_HUGGING_FACE_CASE_HPP_
#define TRIREME_TESTS_PARITY_HUGGING_FACE_CASE_HPP_

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "ckpt/hugging_face.hpp"
#include "io/safetensors.hpp"
#include "parity/parity_case.hpp"
#include "support/safetensors.hpp"
#include "tensor/batch_spec.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::test {

inline std::shared_ptr<const ckpt::HuggingFaceModel> hugging_face_model(
    const std::string& directory) {
  Log log{false};
  return std::make_shared<const ckpt::HuggingFaceModel>(directory, log);
}

inline std::function<std::vector<float>(const ParamSpec&)> weights_of(
    const std::shared_ptr<const ckpt::HuggingFaceModel>& model) {
  return [model](const ParamSpec& spec) {
    const auto& all = model->tensors();
    const auto found = std::ranges::find(all, spec.name, &ckpt::ForeignTensor::name);
    TRIREME_REQUIRE(found != all.end(), "the fixture has no '{}'", spec.name);
    return model->read(*found);
  };
}

// Fields by name, each (n, b) or (n, b, positions); places are 0, 1, 2 ...
inline ElementOfField fields_of_oracle(const BatchSpec& batch,
                                       const std::string& oracle) {
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

// To the bit: another word behind the end of each sample changes neither the loss nor a
// gradient. `tokens`: the field of the words of a stream that has `lengths`.
inline void expect_padding_takes_no_part(ParityFixture fixture, const std::string& tokens,
                                         const std::string& lengths) {
  const std::vector<double> want = ParityCase<float>(fixture).loss_and_gradients();
  const BatchSpec& spec = fixture.blueprint.batch;
  const FieldSpec of_lengths = spec.fields[spec.field(lengths)];
  int changed = 0;
  fixture.element = [&, element = fixture.element](const FieldSpec& field, index_t sample,
                                                   index_t position) {
    const double word = element(field, sample, position);
    if (field.name != tokens || position < element(of_lengths, sample, 0)) return word;
    ++changed;
    return word == 7.0 ? 8.0 : 7.0;
  };
  EXPECT_EQ(ParityCase<float>(fixture).loss_and_gradients(), want);
  EXPECT_GT(changed, 0) << "no sample ends before the longest";
}

// `names`: what ParityCase is run with, one after the other.
template <class T, class MakeFixture>
void expect_logits_and_loss(const std::vector<const char*>& names,
                            const MakeFixture& make, double logit_bound,
                            double loss_bound) {
  for (const char* name : names) {
    SCOPED_TRACE(name);
    ParityCase<T>(make(name)).expect_logits_and_loss(logit_bound, loss_bound);
  }
}
template <class T, class MakeFixture>
void expect_gradients(const std::vector<const char*>& names, const MakeFixture& make,
                      double bound) {
  for (const char* name : names) {
    SCOPED_TRACE(name);
    ParityCase<T>(make(name)).expect_gradients(bound);
  }
}
template <class T, class MakeFixture>
void expect_training(const std::vector<const char*>& names, const MakeFixture& make,
                     double bound, double weight_bound) {
  for (const char* name : names) {
    SCOPED_TRACE(name);
    ParityCase<T>(make(name)).expect_training(bound, weight_bound);
  }
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_PARITY_HUGGING_FACE_CASE_HPP_
