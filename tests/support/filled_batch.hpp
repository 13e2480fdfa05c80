// tests/support/filled_batch.hpp — a micro-batch on the host whose fields are filled by a
// function of sample and position.
#ifndef TRIREME_TESTS_SUPPORT_FILLED_BATCH_HPP_
#define TRIREME_TESTS_SUPPORT_FILLED_BATCH_HPP_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/types.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::test {

class FilledBatch {
 public:
  FilledBatch(BatchSpec spec, index_t samples)
      : spec_(std::move(spec)), samples_(samples) {
    for (const FieldSpec& field : spec_.fields) {
      memory_.emplace_back(extent(spec_.elements(field, samples)));
    }
  }

  // element(field, sample, position) is a number; of a field per sample the position is
  // 0, and samples are counted from that of the batch on which is `first` of all.
  template <class Element>
  HostBatch fill(index_t first, const Element& element) {
    HostBatch batch{.first_sample = static_cast<std::uint64_t>(first)};
    for (std::size_t f = 0; f < memory_.size(); ++f) {
      const FieldSpec& field = spec_.fields[f];
      for (std::size_t i = 0; i < memory_[f].size(); ++i) {
        const auto at = static_cast<index_t>(i);
        const auto number =
            static_cast<double>(element(field, first + at % samples_, at / samples_));
        memory_[f][i] = field.holds == Holds::weights
                            ? std::bit_cast<std::int32_t>(static_cast<float>(number))
                            : static_cast<std::int32_t>(number);
      }
      batch.fields.at(f) = memory_[f].data();
    }
    return batch;
  }

  const BatchSpec& spec() const { return spec_; }
  index_t samples() const { return samples_; }

 private:
  BatchSpec spec_;
  index_t samples_;
  std::vector<std::vector<std::int32_t>> memory_;  // of a field; floats by their bits
};

// What a field's elements of the samples [first, end) add up to.
template <class Element>
double sum_of(const BatchSpec& spec, const FieldSpec& field, index_t first, index_t end,
              const Element& element) {
  double sum = 0.0;
  for (index_t sample = first; sample < end; ++sample) {
    for (index_t p = 0; p < spec.elements(field, 1); ++p) {
      sum += static_cast<double>(element(field, sample, p));
    }
  }
  return sum;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_FILLED_BATCH_HPP_
