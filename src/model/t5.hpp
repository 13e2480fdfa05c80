// model/t5.hpp — T5 as a list of blocks (Raffel et al. 2020): an encoder, and a decoder
// that attends to what the encoder has made of the source, "memory".
//
//   block   encoder/    encoder/     encoder/     decoder/    decoder/       head
//           embedding   layers/0 ... final_norm   embedding   layers/0 ...
//   stream  source      source       source       target      target         target
//   reads               source_text  source_text  -           text, memory   text
//   makes   source_text source_text  memory       text        text
//
// The memory passes by every decoder layer but the last, where it ends. All layers of a
// stack share a table of relative positions, which adds to the scores of self-attention.
#ifndef TRIREME_MODEL_T5_HPP_
#define TRIREME_MODEL_T5_HPP_

#include "model/blueprint.hpp"
#include "model/facts.hpp"

namespace trireme::model {

inline constexpr int kSource = 0, kTarget = 1;  // streams

Blueprint t5_blueprint(const Architecture& architecture);
Facts t5_facts(const Architecture& architecture);

}  // namespace trireme::model

#endif  // TRIREME_MODEL_T5_HPP_
