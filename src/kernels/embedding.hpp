// kernels/embedding.hpp — table look-up and its gradient, for a shard of the rows.
#ifndef TRIREME_KERNELS_EMBEDDING_HPP_
#define TRIREME_KERNELS_EMBEDDING_HPP_

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/dropout.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {

// y[r] = table[ids[r] - row_begin] where that row is in this shard, else 0; accumulate: y
// +=. ids (rows), table (v_tp, h), y (rows, h).
enum class Write { overwrite, add };
template <class T>
void embedding_forward(const Exec& exec, View1<const std::int32_t> ids,
                       View2<const T> table, index_t row_begin, Write write, View2<T> y);

// A table of few rows: the types of tokens.
template <class T>
struct TokenTypes {
  View1<const std::int32_t> ids;  // (rows)
  View2<const T> table;           // (types, h)
};

// y[r] = dropout(words[ids[r]] + places[positions[r]] + types.table[types.ids[r]]), in
// one pass: ids, positions (rows), words (v, h), places (S, h), y (rows, h). A null View
// of ids: words has a row for each r, looked up before, and y may alias it. Without types
// there are two terms. Rows that are not there count as zeros. Its backward pass is
// dropout_backward, an embedding_backward for words and places, and for types
// embedding_backward_types.
template <class T>
void embedding_dropout_forward(const Exec& exec, const DropoutDesc& desc,
                               StepStateView step, View1<const std::int32_t> ids,
                               View2<const T> words, View1<const std::int32_t> positions,
                               View2<const T> places, View2<T> y,
                               const TokenTypes<T>& types = {});

// d_table[ids[r] - row_begin] += d_y[r] where that row is in this shard; where it does
// not accumulate, the whole table is zeroed first, in the same pass. Every element is
// summed by one thread in the order of r: deterministic, and the same bits on the host
// (where threads share out the columns) and on a GPU (where rows are sorted by id).
// scratch: embedding_scratch_elements() integers. Ids are taken as they are: one outside
// the whole vocabulary is in no shard, and whoever reads tokens has to refuse it. Where G
// is narrower than Accumulator<T> sums are rounded once, behind the last row; for that
// rows are sorted on the host, too.
template <class T, class G = Accumulator<T>>
index_t embedding_scratch_elements(index_t rows, index_t table_rows);
template <class T, class G = Accumulator<T>>
void embedding_backward(const Exec& exec, View1<const std::int32_t> ids,
                        View2<const T> d_y, index_t row_begin,
                        View1<std::int32_t> scratch, Accumulate accumulate,
                        View2<G> d_table);

// The same for a table of few rows, each of which many ids ask for: sums of d_y over
// blocks of rows, each id's by itself, in one pass over d_y. partials
// (partial_count(rows, h), table_rows * h), for add_partials(). An id outside the table
// adds to none.
template <class T>
void embedding_backward_types(const Exec& exec, View1<const std::int32_t> ids,
                              View2<const T> d_y, View2<Accumulator<T>> partials);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_EMBEDDING_HPP_
