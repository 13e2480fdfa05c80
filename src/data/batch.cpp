// data/batch.cpp — see batch.hpp.
#include "data/batch.hpp"

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::data {

Batch::Batch(index_t sequence, index_t max_columns)
    : sequence_(sequence),
      max_columns_(max_columns),
      inputs_("trireme::data::inputs", sequence * max_columns),
      labels_("trireme::data::labels", sequence * max_columns),
      positions_("trireme::data::positions", sequence * max_columns),
      loss_mask_("trireme::data::loss_mask", sequence * max_columns) {}

void Batch::fill(const Dataset& dataset, index_t first_sample, index_t columns,
                 bool mask_end_of_document) {
  TRIREME_REQUIRE(
      columns >= 1 && columns <= max_columns_ && dataset.sequence() == sequence_,
      "a batch of {} x {} in room for {} x {}", dataset.sequence(),
      format_plural(columns, "token"), sequence_, max_columns_);
  columns_ = columns;
  first_sample_ = first_sample;
  const auto vocabulary = static_cast<std::int32_t>(dataset.vocabulary_size());
  const auto end = static_cast<std::int32_t>(dataset.end_of_document());
  std::int32_t largest = 0;
  loss_tokens_ = 0;
  for (index_t j = 0; j < columns; ++j) {
    const Dataset::Window window = dataset.window(first_sample + j);
    window.corpus->copy(window.begin, window.labels, inputs_.data() + j, columns);
    window.corpus->copy(window.begin + 1, window.labels, labels_.data() + j, columns);
    for (index_t i = window.labels; i < sequence_; ++i) {
      inputs_(i * columns + j) = labels_(i * columns + j) = end;
    }
    for (index_t i = 0; i < sequence_; ++i) {
      const index_t at = i * columns + j;
      const bool masked =
          i >= window.labels || (mask_end_of_document && inputs_(at) == end);
      positions_(at) = static_cast<std::int32_t>(i);
      loss_mask_(at) = masked ? 0.0f : 1.0f;
      loss_tokens_ += masked ? 0 : 1;
      // Unsigned: an id beyond 2^31 of a damaged file is large, not negative.
      if (static_cast<std::uint32_t>(inputs_(at)) > static_cast<std::uint32_t>(largest)) {
        largest = inputs_(at);
      }
      if (static_cast<std::uint32_t>(labels_(at)) > static_cast<std::uint32_t>(largest)) {
        largest = labels_(at);
      }
    }
    // An id outside would read beyond the embedding table.
    TRIREME_REQUIRE_INPUT(
        static_cast<std::uint32_t>(largest) < static_cast<std::uint32_t>(vocabulary),
        "corpus '{}': token id {} near token {} is outside its vocabulary of {}: the "
        "file is "
        "damaged (`trireme inspect --verify` tells more)",
        window.corpus->path().string(), static_cast<std::uint32_t>(largest), window.begin,
        vocabulary);
  }
}

}  // namespace trireme::data
