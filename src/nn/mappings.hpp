// nn/mappings.hpp — the collectives at the ends of tensor-parallel regions, Megatron-
// LM's mappings.
//
// Without sequence parallelism (Shoeybi et al. 2019, figure 3: f and g) activations
// between the regions are whole on every rank, and each end is an identity one way and
// an all-reduce the other. With it (Korthikanti et al. 2022, figure 5: g and g-bar) every
// rank has its local rows between the regions; going in gathers, coming out is a
// reduce-scatter, and each is the other's backward. Activations are (s, b, h), so that a
// part of the sequence is a run of rows.
#ifndef TRIREME_NN_MAPPINGS_HPP_
#define TRIREME_NN_MAPPINGS_HPP_

#include "base/exec.hpp"
#include "comm/group.hpp"
#include "nn/context.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

// All rows; they are there after arrival.wait().
template <class T>
struct GatheredRows {
  View2<const T> rows;
  comm::Request arrival;
};

// Into a region: x itself where its rows are all there are; else gathered into memory of
// `arena`.
template <class T>
GatheredRows<T> start_gather_rows(const Context& context, View2<const T> x, Arena& arena,
                                  comm::Site site) {
  if (!context.sequence_parallel()) return {x, {}};
  const auto whole = arena.matrix<T>(Category::hidden, context.rows(),
                                     static_cast<index_t>(x.extent(1)));
  return {whole, context.groups.tensor->start_all_gather(context.exec, comm::span_of(x),
                                                         comm::span_of(whole), site)};
}
template <class T>
View2<const T> gather_rows(const Context& context, View2<const T> x, Arena& arena,
                           comm::Site site) {
  GatheredRows<T> gathered = start_gather_rows(context, x, arena, site);
  gathered.arrival.wait(context.exec);
  return gathered.rows;
}

// Out of a region: y (local rows) = this rank's rows of the sum over ranks of what
// compute(partial) makes, of all rows. y is there after wait(), and so long takes what it
// needs from `arena`.
template <class T, class Compute>
comm::Request start_reduce_rows(const Context& context, View2<T> y, Arena& arena,
                                Category category, comm::Site site,
                                const Compute& compute) {
  comm::Group& tensor = *context.groups.tensor;
  if (!context.sequence_parallel()) {
    compute(y);
    return tensor.start_all_reduce(context.exec, comm::span_of(y), comm::Op::sum, site);
  }
  const auto partial =
      arena.matrix<T>(category, context.rows(), static_cast<index_t>(y.extent(1)));
  compute(partial);
  return tensor.start_reduce_scatter(context.exec, comm::span_of(as_const(partial)),
                                     comm::span_of(y), comm::Op::sum, site);
}
template <class T, class Compute>
void reduce_rows(const Context& context, View2<T> y, comm::Site site,
                 const Compute& compute) {
  const ArenaScope scope(context.scratch);
  start_reduce_rows(context, y, context.scratch, Category::hidden, site, compute)
      .wait(context.exec);
}

}  // namespace trireme::nn

#endif  // TRIREME_NN_MAPPINGS_HPP_
