// step/block_probe.hpp — what the blocks of a model take on this machine, for a pipeline
// whose layers are dealt by measured costs (parallel.balance).
#ifndef TRIREME_STEP_BLOCK_PROBE_HPP_
#define TRIREME_STEP_BLOCK_PROBE_HPP_

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/types.hpp"
#include "comm/process_groups.hpp"
#include "config/deck.hpp"
#include "schedule/balance.hpp"
#include "step/model_state.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::step {

// Element i of a field of a micro-batch of so many samples, made up; of weights its bits.
// All positions are real, and count. Words are looked up all over their table, as in a
// text, and few of them twice; rows are all over their stream.
std::int32_t probed_element(const BatchSpec& batch, const FieldSpec& field, index_t i,
                            index_t samples);

// Seconds of the passes of one micro-batch through a block, in the type T that the model
// computes in. On the ranks of a tensor group together.
template <class T>
schedule::PieceCost time_block(const ModelState<T>& state, std::size_t block,
                               const config::Deck& deck);

// Seconds of the passes of one micro-batch through each block. Collective over the world:
// all ranks run the same blocks at the same time, as they will in training, and the
// slowest rank's time is every rank's result.
schedule::ModelCost measured_cost(const comm::ProcessGroups& groups,
                                  const config::Deck& deck);

// Deals the layers of a deck whose stages are to be measured (is_to_be_measured), which
// has them from then on; what was measured, for people. Collective as measured_cost():
// the costs are the same on every rank, and so is what follows from them.
std::string deal_by_measured_costs(const comm::ProcessGroups& groups, config::Deck& deck);

}  // namespace trireme::step

#endif  // TRIREME_STEP_BLOCK_PROBE_HPP_
