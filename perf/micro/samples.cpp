// perf/micro/samples.cpp — the samples that a run trains on, for a peer that is to be
// measured on the same ones:
//
//   trireme_samples DECK COUNT [KEY=VALUE ...]
//
// prints a line of JSON for each of the run's first samples: the fields of its kind of
// model by name, each a list of its elements.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/load.hpp"
#include "data/batch.hpp"
#include "data/datasets.hpp"
#include "data/sample_maker.hpp"
#include "main_on_ranks.hpp"
#include "model/blueprint.hpp"

namespace trireme::perf {
namespace {

template <class T>
std::vector<T> elements(const data::Batch& batch, const FieldSpec& field) {
  const auto matrix = batch.field<T>(field.name);
  std::vector<T> list(matrix.extent(0));
  for (std::size_t row = 0; row < list.size(); ++row) list[row] = matrix(row, 0);
  return list;
}

nlohmann::json as_json(const data::Batch& batch, const BatchSpec& spec) {
  nlohmann::json sample;
  for (const FieldSpec& field : spec.fields) {
    if (field.type() == DType::float32) {
      sample[field.name] = elements<float>(batch, field);
    } else {
      sample[field.name] = elements<std::int32_t>(batch, field);
    }
  }
  return sample;
}

int print_samples(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  TRIREME_REQUIRE_INPUT(words.size() >= 3,
                        "usage: trireme_samples DECK COUNT [KEY=VALUE ...]");
  config::LoadOptions options;
  options.overrides.assign(words.begin() + 3, words.end());
  const config::Deck deck = config::load(words[1], options);
  const index_t count = std::stoll(words[2]);
  const auto training = data::make_training_set(deck, data::open_corpora(deck));
  const BatchSpec spec = model::make_blueprint(deck.model).batch;
  data::Batch batch(spec, 1);
  const auto maker = data::make_sample_maker(*training);
  for (index_t position = 0; position < count; ++position) {
    batch.fill(*maker, position, 1);
    fmt::print("{}\n", as_json(batch, spec).dump());
  }
  return 0;
}

}  // namespace
}  // namespace trireme::perf

int main(int argc, char** argv) {
  return trireme::perf::main_on_ranks("trireme_samples", argc, argv,
                                      trireme::perf::print_samples);
}
