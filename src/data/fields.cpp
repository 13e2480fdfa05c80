// data/fields.cpp — see fields.hpp.
#include "data/fields.hpp"

namespace trireme::data {

namespace {

// The tokens from `first` on, filled up with what does not count.
void fill_tokens(const Sample& sample, index_t first, const FieldColumn& column) {
  const auto element = column.elements<std::int32_t>(sample.sequence);
  for (index_t i = 0; i < sample.sequence; ++i) {
    element(i) = i < sample.labels() ? sample.tokens[static_cast<std::size_t>(first + i)]
                                     : sample.end_of_document;
  }
}

void tokens(const Sample& sample, const FieldColumn& column) {
  fill_tokens(sample, 0, column);
}

// A label is the token behind the position's own.
void labels(const Sample& sample, const FieldColumn& column) {
  fill_tokens(sample, 1, column);
}

void positions(const Sample& sample, const FieldColumn& column) {
  const auto element = column.elements<std::int32_t>(sample.sequence);
  for (index_t i = 0; i < sample.sequence; ++i) {
    element(i) = static_cast<std::int32_t>(i);
  }
}

// The mask is 1 where the label counts.
void loss_mask(const Sample& sample, const FieldColumn& column) {
  const auto element = column.elements<float>(sample.sequence);
  for (index_t i = 0; i < sample.sequence; ++i) {
    const bool masked =
        i >= sample.labels() ||
        (sample.mask_end_of_document &&
         sample.tokens[static_cast<std::size_t>(i)] == sample.end_of_document);
    element(i) = masked ? 0.0f : 1.0f;
  }
}

constexpr NamedField<Sample> kFields[] = {{"tokens", tokens},
                                          {"labels", labels},
                                          {"positions", positions},
                                          {"loss_mask", loss_mask}};

}  // namespace

void fill_field(std::string_view name, const Sample& sample, const FieldColumn& column) {
  fill_field<Sample>(kFields, name, sample, column);
}

void fill_ids(std::span<const std::int32_t> ids, index_t rows, std::int32_t rest,
              const FieldColumn& column) {
  const auto element = column.elements<std::int32_t>(rows);
  for (index_t i = 0; i < rows; ++i) {
    element(i) = i < std::ssize(ids) ? ids[static_cast<std::size_t>(i)] : rest;
  }
}

}  // namespace trireme::data
