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
    : max_columns_(max_columns) {
  for (const std::size_t index : fields) {
    const FieldSpec& field = spec.fields.at(index);
    const index_t rows = spec.elements(field, 1);
    fields_.push_back({index, field, rows,
                       HostArray<std::byte>("trireme::data::" + field.name,
                                            static_cast<std::size_t>(rows * max_columns) *
                                                size_of(field.type()))});
  }
  sample_.reserve(fields_.size());
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

void Batch::fill(SampleMaker& maker, index_t first_sample, index_t columns) {
  TRIREME_REQUIRE(columns >= 1 && columns <= max_columns_, "a batch of {} in room for {}",
                  format_plural(columns, "sample"), max_columns_);
  columns_ = columns;
  first_sample_ = first_sample;
  if (fields_.empty()) return;
  for (index_t j = 0; j < columns; ++j) {
    sample_.clear();
    for (const Field& field : fields_) {
      std::byte* const first =
          field.memory.data() + static_cast<std::size_t>(j) * size_of(field.spec.type());
      sample_.push_back(
          {field.spec.name, {first, columns, field.rows, field.spec.type()}});
    }
    maker.make(first_sample + j, sample_);
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
