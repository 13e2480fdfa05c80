// step/deck_model.hpp — from the deck's sections to what the lower modules take.
#ifndef TRIREME_STEP_DECK_MODEL_HPP_
#define TRIREME_STEP_DECK_MODEL_HPP_

#include <string>

#include "base/types.hpp"
#include "comm/rank_grid.hpp"
#include "config/deck.hpp"
#include "kernels/adamw.hpp"
#include "optim/lr_schedule.hpp"
#include "step/model_state.hpp"

namespace trireme::step {

// The name, in checkpoints, of the tensor whose rows are the vocabulary's.
std::string vocabulary_tensor(const config::Deck& deck);
comm::GridShape grid_shape(const config::Deck& deck);
Sharing sharing(const config::Deck& deck);
// How the layers are dealt to the pieces of the pipeline, as the deck says or by
// simulation.
PipelineLayout pipeline_layout(const config::Deck& deck);
kernels::AdamWDesc adamw_desc(const config::Deck& deck);
optim::LrSchedule lr_schedule(const config::Deck& deck);
// The type of activations and of the weights used with them.
DType compute_type(const config::Deck& deck);
// A queue whose products are computed as the deck says.
Exec make_exec(const config::Deck& deck);
// The same of an Exec that there is, also a shape-only one. InputError where this build
// or this device has no such kernels.
void set_kernels(const Exec& exec, const config::Deck& deck);
// What one rank does in a step of the deck.
StepShape step_shape(const config::Deck& deck);

}  // namespace trireme::step

#endif  // TRIREME_STEP_DECK_MODEL_HPP_
