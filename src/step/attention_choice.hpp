// step/attention_choice.hpp — whose kernels a run computes attention by: what decides it,
// and what is said of it. Plans and runs ask here alike, so that the memory that a plan
// has for attention is what the run takes.
#ifndef TRIREME_STEP_ATTENTION_CHOICE_HPP_
#define TRIREME_STEP_ATTENTION_CHOICE_HPP_

#include <cstddef>
#include <string>

#include "comm/communicator.hpp"
#include "config/deck.hpp"
#include "config/enums.hpp"
#include "kernels/attention.hpp"
#include "model/blueprint.hpp"
#include "step/product_ways.hpp"

namespace trireme::step {

// The most that cuDNN's attention may take besides its operands where nobody asked for
// it: so the default makes no run take much more than own kernels do. Where sums have one
// order, what it takes grows with the square of the sequence without bound; up to here it
// is a small part of the memory of the GPUs that it is proven on.
inline constexpr std::size_t kMostCudnnScratch = std::size_t{2} << 30;

struct AttentionFacts {
  config::AttentionKernels asked = config::AttentionKernels::automatic;
  // Of the run.
  bool is_narrow = false;         // it computes in 16 bits
  bool has_dropout = false;       // of attention's probabilities
  bool has_cudnn_heads = false;   // all attention: kernels::has_cudnn_heads()
  bool has_cudnn_masks = false;   // and each has a mask that the library has, and no bias
  std::size_t scratch_bytes = 0;  // cudnn_scratch()
  // Of the build.
  bool has_cudnn = false;
  bool is_proven = false;  // its architecture is among kernels::kCudnnProvenOn
  // Of the machine: the library is there.
  bool is_found = false;
};
// Whether attention is cuDNN's but for the library, which need not be looked for where it
// is not; and with it. What the deck asks for by name is not doubted: where that cannot
// be, it is an error elsewhere.
bool wants_cudnn(const AttentionFacts& facts);
bool takes_cudnn(const AttentionFacts& facts);

// What cuDNN's backward pass takes at most on one rank, for its heads of a micro-batch of
// the attention that takes most: kernels::cudnn_scratch_bytes().
std::size_t cudnn_scratch(const model::Blueprint& blueprint, const config::Deck& deck);
// Of this build and this machine; of the deck's model, or of `blueprint`.
AttentionFacts attention_facts(const config::Deck& deck);
AttentionFacts attention_facts(const model::Blueprint& blueprint,
                               const config::Deck& deck);
kernels::AttentionLibrary attention_library(const config::Deck& deck);

// What records and people are told: "cuDNN 9.19.0 (deterministic)", "own kernels".
std::string name_of_attention(kernels::AttentionLibrary library,
                              const std::string& version);
// The same of this machine. Nothing where it is no question: in builds for host cores,
// and in fp32.
std::string attention_name(const config::Deck& deck);
// The same of the ranks of `world`, with a warning where they differ. Collective.
ProductWays attention_ways(comm::Communicator& world, const config::Deck& deck);
// What to tell the user where cuDNN's kernels would be taken if its library were here or
// they took less memory, and how to get them; else nothing. `problem`: why the library
// cannot be loaded.
std::string own_attention_note(const AttentionFacts& facts, const std::string& problem);
std::string own_attention_note(const config::Deck& deck);

// How an evaluation computes attention: as the run's own validations do, where this
// machine can. `deck`: with the type that is computed in.
config::AttentionKernels attention_as_in(const config::Deck& run,
                                         const config::Deck& deck);

}  // namespace trireme::step

#endif  // TRIREME_STEP_ATTENTION_CHOICE_HPP_
