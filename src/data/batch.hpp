// data/batch.hpp — the host side of a micro-batch: named fields, (s, b) as activations
// are (s, b, h), b fastest.
#ifndef TRIREME_DATA_BATCH_HPP_
#define TRIREME_DATA_BATCH_HPP_

#include <cstdint>

#include "base/exec.hpp"
#include "data/dataset.hpp"

namespace trireme::data {

template <class T>
using HostMatrix = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace,
                                Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

class Batch {
 public:
  Batch() = default;
  // Room for up to `max_columns` samples of `sequence` tokens.
  Batch(index_t sequence, index_t max_columns);

  index_t sequence() const { return sequence_; }
  index_t columns() const { return columns_; }
  // Position in the run of column 0; column j is the sample first_sample() + j.
  index_t first_sample() const { return first_sample_; }

  HostMatrix<std::int32_t> inputs() const { return matrix(inputs_); }
  HostMatrix<std::int32_t> labels() const { return matrix(labels_); }  // the next tokens
  HostMatrix<std::int32_t> positions() const { return matrix(positions_); }
  HostMatrix<float> loss_mask() const { return matrix(loss_mask_); }  // 1: counts; 0: not
  // Labels that count, for the token-weighted loss.
  index_t loss_tokens() const { return loss_tokens_; }

  // Column j becomes the sample at first_sample + j. A pure function of its arguments. A
  // window with fewer labels is filled up with what does not count.
  // With mask_end_of_document, nothing is learned from predicting past the end of a
  // document.
  void fill(const Dataset& dataset, index_t first_sample, index_t columns,
            bool mask_end_of_document);

 private:
  template <class T>
  HostMatrix<T> matrix(const HostArray<T>& array) const {
    return {array.data(), static_cast<std::size_t>(sequence_),
            static_cast<std::size_t>(columns_)};
  }

  index_t sequence_ = 0;
  index_t max_columns_ = 0;
  index_t columns_ = 0;
  index_t first_sample_ = 0;
  index_t loss_tokens_ = 0;
  HostArray<std::int32_t> inputs_, labels_, positions_;
  HostArray<float> loss_mask_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_BATCH_HPP_
