// data/batch_loader.hpp — micro-batches made ahead of their use by a thread of its own,
// in a ring of buffers that is allocated once.
//
// The thread calls neither MPI nor HDF5: tokens come from mapped memory. What it throws
// is thrown to the consumer in the place of the batch that it could not make.
#ifndef TRIREME_DATA_BATCH_LOADER_HPP_
#define TRIREME_DATA_BATCH_LOADER_HPP_

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "data/batch.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::data {

// The samples [first_sample, first_sample + columns) of one micro-batch; no columns:
// there are no more micro-batches.
struct ColumnRange {
  index_t first_sample = 0;
  index_t columns = 0;
};

class BatchLoader {
 public:
  struct Options {
    BatchSpec spec;
    std::vector<std::size_t> fields;  // of the spec, that batches have
    index_t max_columns = 1;
    int depth = 4;  // buffers, the one in use included; at least 2
    // The fields of weights that sum_ahead() sums, by their numbers in the spec, and over
    // how many batches at most. Their sums are kept, not the batches: a step may have
    // thousands.
    std::vector<std::size_t> summed = {};
    index_t most_summed = 0;
  };
  // Samples are those of the data set's rules. plan(n): the columns of the n-th batch
  // that next() gives, n = 0, 1, 2 ...; a pure function, called by the thread. `dataset`
  // and what plan refers to must outlive the loader.
  BatchLoader(const Dataset& dataset, std::function<ColumnRange(index_t)> plan,
              Options options);
  // Stops the thread, in the middle of its work if need be.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The next batch, valid until the next call. Error after the last.
  const Batch& next();
  // The sum of a field (one of Options::summed) over the next batches, so many, which
  // next() has yet to give: what counts in a step is known before it begins.
  double sum_ahead(index_t batches, std::string_view field);

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_BATCH_LOADER_HPP_
