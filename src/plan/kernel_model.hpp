// plan/kernel_model.hpp — how long the parts of a step take on a machine: products of
// matrices, attention, passes over memory, messages. Pure functions; all times are in
// seconds, all amounts in bytes.
//
// Products are computed in tiles, one on each multiprocessor at a time: a wave. The last
// wave may be partly empty, and a large tile may hang over the edge of the result; of the
// tiles, and of ways to split the terms of a sum, the fastest counts. What is larger than
// the memory lets through takes as long as that.
//
// A collective is a ring over all its ranks, with the latencies of a tree (NCCL takes
// either, by size). Of a group with several ranks in a node each of them carries its part
// over the next level of the network. All groups of a layout send at the same time, and a
// step waits for the last of them: where nodes do not hold whole groups, the one whose
// ranks lie worst counts.
#ifndef TRIREME_PLAN_KERNEL_MODEL_HPP_
#define TRIREME_PLAN_KERNEL_MODEL_HPP_

#include <cstddef>
#include <limits>
#include <string_view>

#include "base/product_shape.hpp"
#include "base/tally.hpp"
#include "base/types.hpp"
#include "plan/machine.hpp"

namespace trireme::plan {

// `batch` such products in one kernel.
double product_seconds(const Device& device, const ProductShape& shape,
                       index_t batch = 1);
// Kernels that read and write so many bytes, in so many calls, of a model that computes
// in `type`.
double rows_seconds(const Device& device, DType type, double bytes, double calls);

// Groups of every `stride`-th rank, so many of them, on the first `devices` of the
// machine, all of which are in one. 0: on as many as it takes to see every way they lie.
struct GroupPlace {
  int ranks = 1, stride = 1, devices = 0;
};
// Ranks of such a group that a unit of so many devices holds at least, of the units that
// hold any: all of them where no group lies across two units.
int fewest_inside(const GroupPlace& place, int unit);
enum class Collective { all_reduce, all_gather, reduce_scatter };
// `bytes`: of the whole buffer, of all calls together.
double collective_seconds(const Machine& machine, const GroupPlace& place,
                          Collective operation, double bytes, double calls = 1.0);
// From one rank of such a group to the next: over the level that holds every group whole.
double message_seconds(const Machine& machine, const GroupPlace& place, double bytes);

// What the collectives of such a group go over: the bandwidth of each of its ranks on the
// narrowest level that they cross, which that is, from the inside out, and the latency of
// the outermost. Of one rank: no bandwidth bounds it.
struct Crossing {
  double bandwidth = std::numeric_limits<double>::infinity(), latency = 0.0;
  std::size_t narrowest = 0;
};
Crossing collective_crossing(const Machine& machine, const GroupPlace& place);
// The level that message_seconds() goes over.
std::size_t message_level(const Machine& machine, const GroupPlace& place);

// Of a model, what a tally does not say of its attention.
struct AttentionShape {
  index_t sequence = 1, head_elements = 1;
  DType type = {};
};

// Where the groups of a layout lie.
struct Places {
  GroupPlace tensor, gradient, model, tied, pipeline;
};

struct TallySeconds {
  double products = 0.0, attention = 0.0, rows = 0.0;
  double attention_forward = 0.0;  // the part of `attention` that forward passes are
  double tensor_messages = 0.0, stage_messages = 0.0, other_messages = 0.0;

  double kernels() const { return products + attention + rows; }
  double messages() const { return tensor_messages + stage_messages + other_messages; }
};
TallySeconds tally_seconds(const Machine& machine, const Places& places,
                           const AttentionShape& attention, const Tally& tally);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_KERNEL_MODEL_HPP_
