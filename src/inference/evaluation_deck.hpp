// inference/evaluation_deck.hpp — the deck of a checkpoint made one for an evaluation:
// its model and its data, on a grid of this start's own.
#ifndef TRIREME_INFERENCE_EVALUATION_DECK_HPP_
#define TRIREME_INFERENCE_EVALUATION_DECK_HPP_

#include <string>
#include <vector>

#include "ckpt/reader.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"

namespace trireme::inference {

// Collective. All ranks are data ranks unless `overrides` (--set) say otherwise: they may
// name keys of `parallel`, batch.micro, precision.compute and precision.gemm; without the
// last two it computes as the run did. Nothing is dropped, and of the activations no more
// is kept than the next layer needs. InputError (DeckErrors on rank 0).
config::Deck evaluation_deck(comm::Communicator& world,
                             const ckpt::CheckpointReader& checkpoint,
                             const std::vector<std::string>& overrides);

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_EVALUATION_DECK_HPP_
