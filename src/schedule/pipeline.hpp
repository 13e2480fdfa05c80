// schedule/pipeline.hpp — in which order the stages of a pipeline do the passes of a
// step's micro-batches.
//
// The model is cut into stages x chunks pieces; piece g is chunk g / stages of stage
// g % stages (Narayanan et al. 2021, Fig. 4). With one chunk per stage, piece and stage
// are the same. Every order here is legal for every number of stages, chunks and
// micro-batches from 1 on.
#ifndef TRIREME_SCHEDULE_PIPELINE_HPP_
#define TRIREME_SCHEDULE_PIPELINE_HPP_

#include <functional>
#include <vector>

#include "schedule/schedule.hpp"

namespace trireme::schedule {

struct PipelineShape {
  int stages = 1;
  int chunks = 1;  // of each stage: virtual pipeline
  int microbatches = 1;

  int pieces() const { return stages * chunks; }
  int piece(int stage, int chunk) const { return chunk * stages + stage; }
  int stage_of(int piece) const { return piece % stages; }
  int chunk_of(int piece) const { return piece / stages; }
};

// The order of passes of any stage, made when it is asked for: a rank of a deep pipeline
// plans with its own and its neighbours' alone.
using OrderOf = std::function<Order(int stage)>;
std::vector<Order> orders_of_all(const PipelineShape& shape, const OrderOf& order_of);

// All forward passes, then all backward passes (GPipe, Huang et al. 2019): the order of
// one stage. Here and below, slots are assigned.
Order all_forward_all_backward(const PipelineShape& shape, int stage);

// One forward, one backward (PipeDream-flush, Narayanan et al. 2021, 2.2): at most
// stages - stage micro-batches in flight. One chunk per stage.
Order one_forward_one_backward(const PipelineShape& shape, int stage);

// Interleaved 1F1B (Narayanan et al. 2021, 2.2): micro-batches pass all chunks in groups.
// Megatron's groups have `stages` micro-batches each, and must come out even. Here the
// micro-batches are dealt evenly to `groups` groups of at least `stages`, so that every
// number of micro-batches will do; groups: from 1 to most_groups().
Order interleaved(const PipelineShape& shape, int stage, int groups);
int most_groups(const PipelineShape& shape);

// The order of interleaved(), or 1F1B, with backward passes split: weight gradients of a
// micro-batch come as many backward passes later as keep the stage no further ahead than
// the first one is anyway (ZB-H1 of Qi et al. 2023, for any number of chunks). What
// zero_bubble() of simulate.hpp finds is better where pieces differ; this needs no
// search.
Order zero_bubble_by_rule(const PipelineShape& shape, int stage);

// The order of any stage in an evaluation: forward passes alone, in groups of `stages`
// micro-batches. Each chunk has one slot, which the next micro-batch takes over.
Order forward_only(const PipelineShape& shape);

// The forward (backward) passes of any stage in the order of interleaved().
struct Pass {
  int microbatch = 0;
  int chunk = 0;
};
std::vector<Pass> in_groups(const PipelineShape& shape, int groups, bool is_forward);
// The most (micro-batch, chunk) pairs that a stage of interleaved(), or of 1F1B, has in
// flight.
int most_in_flight(const PipelineShape& shape, int stage, int groups);

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_PIPELINE_HPP_
