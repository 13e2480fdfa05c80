// nn/gather_rows.hpp — into a tensor-parallel region: all rows of a tensor whose local
// rows a rank has.
#ifndef TRIREME_NN_GATHER_ROWS_HPP_
#define TRIREME_NN_GATHER_ROWS_HPP_

#include "base/exec.hpp"
#include "comm/group.hpp"
#include "nn/context.hpp"
#include "parallel/mappings.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

// All rows; they are there after arrival.wait().
template <class T>
struct GatheredRows {
  View2<const T> rows;
  comm::Request arrival;
};

// x itself where its rows are all there are; else gathered into memory of `arena`.
template <class T>
GatheredRows<T> start_gather_rows(const Context& context, View2<const T> x, Arena& arena,
                                  comm::Site site) {
  if (!context.sequence_parallel) return {x, {}};
  const auto whole = arena.matrix<T>(Category::hidden, context.rows(),
                                     static_cast<index_t>(x.extent(1)));
  return {whole, parallel::start_gather_from_sequence_parallel_region<T>(
                     context.exec, *context.groups.tensor, x, whole, site)};
}
template <class T>
View2<const T> gather_rows(const Context& context, View2<const T> x, Arena& arena,
                           comm::Site site) {
  GatheredRows<T> gathered = start_gather_rows(context, x, arena, site);
  gathered.arrival.wait(context.exec);
  return gathered.rows;
}

}  // namespace trireme::nn

#endif  // TRIREME_NN_GATHER_ROWS_HPP_
