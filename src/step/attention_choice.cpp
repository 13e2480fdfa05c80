// step/attention_choice.cpp — see attention_choice.hpp.
#include "step/attention_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/device.hpp"
#include "base/exec.hpp"
#include "base/host_name.hpp"
#include "step/deck_model.hpp"

namespace trireme::step {

using config::AttentionKernels;
using kernels::AttentionLibrary;

bool wants_cudnn(const AttentionFacts& facts) {
  if (facts.asked != AttentionKernels::automatic) {
    return facts.asked == AttentionKernels::cudnn;
  }
  return facts.is_narrow && !facts.has_dropout && facts.has_cudnn_heads &&
         facts.has_cudnn && facts.is_proven;
}

bool takes_cudnn(const AttentionFacts& facts) {
  return wants_cudnn(facts) && (facts.is_found || facts.asked == AttentionKernels::cudnn);
}

AttentionFacts attention_facts(const config::Deck& deck) {
  AttentionFacts facts;
  facts.asked = deck.precision.attention;
  facts.is_narrow = deck.precision.compute != config::Precision::fp32;
  facts.has_dropout = deck.model.attention_dropout > 0.0;
  facts.has_cudnn_heads = kernels::has_cudnn_heads(deck.model.head_elements());
  facts.has_cudnn = kernels::has_cudnn_attention();
  facts.is_proven = std::ranges::find(kernels::kCudnnProvenOn, built_capability()) !=
                    kernels::kCudnnProvenOn.end();
  facts.is_found = wants_cudnn(facts) && !kernels::cudnn_library().version.empty();
  return facts;
}

AttentionLibrary attention_library(const config::Deck& deck) {
  if (!takes_cudnn(attention_facts(deck))) return AttentionLibrary::own;
  return deck.run.deterministic ? AttentionLibrary::cudnn
                                : AttentionLibrary::cudnn_in_any_order;
}

std::string name_of_attention(AttentionLibrary library, const std::string& version) {
  if (library == AttentionLibrary::own) return "own kernels";
  return fmt::format(
      "cuDNN{}{} ({})", version.empty() ? "" : " ", version,
      library == AttentionLibrary::cudnn ? "deterministic" : "sums in any order");
}

std::string attention_name(const config::Deck& deck) {
  if (kHostExecution || deck.precision.compute == config::Precision::fp32) return {};
  const AttentionLibrary library = attention_library(deck);
  return name_of_attention(
      library, library == AttentionLibrary::own ? "" : kernels::cudnn_library().version);
}

ProductWays attention_ways(comm::Communicator& world, const config::Deck& deck) {
  const std::string mine = attention_name(deck);
  if (mine.empty()) return {};
  const WayWords words{"the ranks compute attention by different kernels",
                       "precision.attention: own is one way for all"};
  return ways_of(world.gather(mine), world.gather(host_name()), words);
}

std::string missing_cudnn_note(const AttentionFacts& facts, const std::string& problem) {
  if (!wants_cudnn(facts) || takes_cudnn(facts)) return {};
  return fmt::format(
      "attention is computed by Trireme's own kernels: those of NVIDIA's cuDNN 9 are "
      "faster here, and its library cannot be loaded ({}). Load its module, or install "
      "NVIDIA's package for this CUDA (pip install nvidia-cudnn-cu13, or -cu12), and add "
      "the directory of libcudnn.so.9 to LD_LIBRARY_PATH. With precision.attention: own "
      "this is not said",
      problem);
}

std::string missing_cudnn_note(const config::Deck& deck) {
  const AttentionFacts facts = attention_facts(deck);
  if (!wants_cudnn(facts) || takes_cudnn(facts)) return {};
  return missing_cudnn_note(facts, kernels::cudnn_library().problem);
}

config::AttentionKernels attention_as_in(const config::Deck& run,
                                         const config::Deck& deck) {
  config::Deck here = run;
  here.precision.compute = deck.precision.compute;
  AttentionFacts facts = attention_facts(here);
  // The run that asked for it by name had it; this build or machine may not.
  if (facts.asked == AttentionKernels::cudnn) {
    facts.asked = AttentionKernels::automatic;
    facts.is_proven = true;
  }
  return takes_cudnn(facts) ? AttentionKernels::cudnn : AttentionKernels::own;
}

}  // namespace trireme::step
