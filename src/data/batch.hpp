// data/batch.hpp — the host side of a micro-batch: the fields of a BatchSpec, (s, b) each
// as activations are (s, b, h), b fastest; those per sample (b).
#ifndef TRIREME_DATA_BATCH_HPP_
#define TRIREME_DATA_BATCH_HPP_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/exec.hpp"
#include "data/sample_maker.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::data {

template <class T>
using HostMatrix = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace,
                                Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

class Batch {
 public:
  Batch() = default;
  // Room for up to `max_columns` samples. Of the spec's fields those of these indices,
  // ascending; a stage of a pipeline asks for what its blocks read.
  Batch(const BatchSpec& spec, index_t max_columns,
        const std::vector<std::size_t>& fields);
  // A batch with all fields of the spec.
  Batch(const BatchSpec& spec, index_t max_columns);

  index_t columns() const { return columns_; }
  // Position in the run of column 0; column j is the sample first_sample() + j.
  index_t first_sample() const { return first_sample_; }
  // Error where the batch does not have the field. T: int32 or float, as the spec says.
  template <class T>
  HostMatrix<T> field(std::string_view name) const {
    const Field& found = find(name);
    return {reinterpret_cast<T*>(found.memory.data()),
            static_cast<std::size_t>(found.rows), static_cast<std::size_t>(columns_)};
  }
  // Sum of a field of weights: how many labels count.
  double sum(std::string_view name) const { return find(name).sum; }
  // Valid until the next fill().
  HostBatch view() const;

  // Column j becomes the sample at first_sample + j. A pure function of its arguments.
  void fill(SampleMaker& maker, index_t first_sample, index_t columns);
  // Columns from `first` on are there to make up a micro-batch: fields of weights (all
  // that are float32) are zero there, so that they count for nothing.
  void discount_columns(index_t first);

 private:
  struct Field {
    std::size_t index = 0;  // in the spec
    FieldSpec spec;
    index_t rows = 1;
    HostArray<std::byte> memory;
    double sum = 0.0;  // of weights
  };
  void sum_weights();
  const Field& find(std::string_view name) const;

  index_t max_columns_ = 0;
  index_t columns_ = 0;
  index_t first_sample_ = 0;
  std::vector<Field> fields_;
  std::vector<SampleColumn> sample_;  // of the one that is made
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_BATCH_HPP_
