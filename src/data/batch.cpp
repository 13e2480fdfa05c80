// data/batch.cpp — see batch.hpp.
#include "data/batch.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::data {

namespace {

std::vector<std::size_t> all_of(const BatchSpec& spec) {
  std::vector<std::size_t> fields(spec.fields.size());
  std::iota(fields.begin(), fields.end(), std::size_t{0});
  return fields;
}

}  // namespace

Batch::Batch(const BatchSpec& spec, index_t max_columns)
    : Batch(spec, max_columns, all_of(spec)) {}

Batch::Batch(const BatchSpec& spec, index_t max_columns,
             const std::vector<std::size_t>& fields)
    : sequence_(spec.streams.at(0).sequence), max_columns_(max_columns) {
  for (const std::size_t index : fields) {
    const FieldSpec& field = spec.fields.at(index);
    const index_t rows = spec.elements(field, 1);
    fields_.push_back({index, field, rows, field_named(field.name),
                       HostArray<std::byte>("trireme::data::" + field.name,
                                            static_cast<std::size_t>(rows * max_columns) *
                                                size_of(field.type()))});
  }
  tokens_.resize(static_cast<std::size_t>(sequence_) + 1);
}

const Batch::Field& Batch::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(fields_, [&](const Field& f) { return f.spec.name == name; });
  TRIREME_REQUIRE(found != fields_.end(), "the batch was made without its field '{}'",
                  name);
  return *found;
}

void Batch::sum_weights() {
  for (Field& field : fields_) {
    if (field.spec.type() != DType::float32) continue;
    const auto weights = this->field<float>(field.spec.name);
    field.sum = std::accumulate(weights.data(), weights.data() + weights.size(), 0.0);
  }
}

HostBatch Batch::view() const {
  HostBatch batch;
  for (const Field& field : fields_) batch.fields[field.index] = field.memory.data();
  batch.first_sample = static_cast<std::uint64_t>(first_sample_);
  return batch;
}

// An id outside would read beyond the embedding table.
void Batch::require_in_vocabulary(const Dataset& dataset,
                                  const Dataset::Window& window) const {
  const auto vocabulary = static_cast<std::uint32_t>(dataset.vocabulary_size());
  std::uint32_t largest = 0;
  for (index_t i = 0; i <= window.labels; ++i) {
    // Unsigned: an id beyond 2^31 of a damaged file is large, not negative.
    largest = std::max(largest,
                       static_cast<std::uint32_t>(tokens_[static_cast<std::size_t>(i)]));
  }
  TRIREME_REQUIRE_INPUT(largest < vocabulary,
                        "corpus '{}': token id {} near token {} is outside its "
                        "vocabulary of {}: the file is damaged (`trireme inspect "
                        "--verify` tells more)",
                        window.corpus->path().string(), largest, window.begin,
                        vocabulary);
}

void Batch::fill(const Dataset& dataset, index_t first_sample, index_t columns,
                 bool mask_end_of_document) {
  TRIREME_REQUIRE(
      columns >= 1 && columns <= max_columns_ && dataset.sequence() == sequence_,
      "a batch of {} x {} in room for {} x {}", dataset.sequence(),
      format_plural(columns, "token"), sequence_, max_columns_);
  columns_ = columns;
  first_sample_ = first_sample;
  if (fields_.empty()) return;
  const auto end = static_cast<std::int32_t>(dataset.end_of_document());
  for (index_t j = 0; j < columns; ++j) {
    const Dataset::Window window = dataset.window(first_sample + j);
    window.corpus->copy(window.begin, window.labels + 1, tokens_.data());
    require_in_vocabulary(dataset, window);
    const Sample sample{{tokens_.data(), static_cast<std::size_t>(window.labels) + 1},
                        sequence_,
                        end,
                        mask_end_of_document};
    for (const Field& field : fields_) {
      std::byte* const first =
          field.memory.data() + static_cast<std::size_t>(j) * size_of(field.spec.type());
      field.fill(sample, {first, columns, field.rows, field.spec.type()});
    }
  }
  sum_weights();
}

void Batch::discount_columns(index_t first) {
  for (const Field& field : fields_) {
    if (field.spec.type() != DType::float32) continue;
    const auto weights = this->field<float>(field.spec.name);
    for (index_t j = std::max<index_t>(first, 0); j < columns_; ++j) {
      for (std::size_t s = 0; s < weights.extent(0); ++s) weights(s, j) = 0.0f;
    }
  }
  sum_weights();
}

}  // namespace trireme::data
