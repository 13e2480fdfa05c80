// kernels/embedding.hpp — table look-up and its gradient, for a shard of the rows.
#ifndef TRIREME_KERNELS_EMBEDDING_HPP_
#define TRIREME_KERNELS_EMBEDDING_HPP_

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"

namespace trireme::kernels {

// y[r] = table[ids[r] - row_begin] where that row is in this shard, else 0; accumulate: y
// +=. ids (rows), table (v_tp, h), y (rows, h).
enum class Write { overwrite, add };
template <class T>
void embedding_forward(const Exec& exec, View1<const std::int32_t> ids,
                       View2<const T> table, index_t row_begin, Write write, View2<T> y);

// d_table[ids[r] - row_begin] += d_y[r] where that row is in this shard; where it does
// not accumulate, the whole table is zeroed first, in the same pass. Every element is
// summed by one thread in the order of r: deterministic, and the same bits on the host
// (where threads share out the columns) and on a GPU (where chains of equal ids are
// walked). scratch: embedding_scratch_elements(rows) integers, none on the host. Ids are
// taken as they are: one outside the whole vocabulary is in no shard, and whoever reads
// tokens has to refuse it.
index_t embedding_scratch_elements(index_t rows);
template <class T>
void embedding_backward(const Exec& exec, View1<const std::int32_t> ids,
                        View2<const T> d_y, index_t row_begin,
                        View1<std::int32_t> scratch, Accumulate accumulate,
                        View2<Accumulator<T>> d_table);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_EMBEDDING_HPP_
