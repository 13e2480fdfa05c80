// step/attention_choice.cpp — see attention_choice.hpp.
//
// What decides is separate from where it is found, so that a test can try every case
// without a GPU and without the library. The facts come from the deck and the build alone
// as far as they can, because a plan on another machine must choose as the run does. The
// library is looked for last, and only where all else speaks for it: loading it takes
// time and memory.
#include "step/attention_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/device.hpp"
#include "base/exec.hpp"
#include "base/host_name.hpp"
#include "base/plural.hpp"
#include "kernels/cudnn_scratch.hpp"
#include "step/deck_model.hpp"

namespace trireme::step {

using config::AttentionKernels;
using kernels::AttentionLibrary;

namespace {

// Whether cuDNN's attention is for this run and proven for this build, whatever memory it
// takes.
bool suits_cudnn(const AttentionFacts& facts) {
  return facts.is_narrow && !facts.has_dropout && facts.has_cudnn_heads &&
         facts.has_cudnn_masks && facts.has_cudnn && facts.is_proven;
}

// As the call of the library takes it (kernels/cudnn_attention.cpp).
bool has_cudnn_mask(const model::AttentionSpec& of) {
  using kernels::MaskKind;
  return (of.mask == MaskKind::none || of.mask == MaskKind::causal) && !of.has_bias;
}

bool takes_too_much(const AttentionFacts& facts) {
  return facts.scratch_bytes > kMostCudnnScratch;
}

// Rounded up: what is more than the bound reads as more.
std::string in_mib(std::size_t bytes) {
  constexpr std::size_t kMib = std::size_t{1} << 20;
  return format_grouped(static_cast<std::int64_t>((bytes + kMib - 1) / kMib)) + " MiB";
}

std::string scratch_note(const AttentionFacts& facts) {
  return fmt::format(
      "attention is computed by Trireme's own kernels: those of NVIDIA's cuDNN, faster "
      "here where its library is, would take up to {} of memory, which is more than the "
      "{} that they may take unless asked for. precision.attention: cudnn asks for them; "
      "run.deterministic: false or a smaller batch.micro makes it less. With "
      "precision.attention: own this is not said",
      in_mib(facts.scratch_bytes), in_mib(kMostCudnnScratch));
}

}  // namespace

bool wants_cudnn(const AttentionFacts& facts) {
  if (facts.asked != AttentionKernels::automatic) {
    return facts.asked == AttentionKernels::cudnn;
  }
  return suits_cudnn(facts) && !takes_too_much(facts);
}

bool takes_cudnn(const AttentionFacts& facts) {
  return wants_cudnn(facts) && (facts.is_found || facts.asked == AttentionKernels::cudnn);
}

std::size_t cudnn_scratch(const model::Blueprint& blueprint, const config::Deck& deck) {
  const auto length = [&](int stream) {
    return blueprint.batch.streams.at(extent(stream)).sequence;
  };
  std::size_t most = 0;
  for (const model::AttentionSpec& of : blueprint.attention()) {
    const kernels::AttentionDesc desc{.batch = deck.batch.micro,
                                      .q_length = length(of.queries),
                                      .kv_length = length(of.keys),
                                      .heads = of.heads / deck.parallel.tensor,
                                      .kv_heads = of.kv_heads / deck.parallel.tensor,
                                      .head_dim = of.head_size};
    most = std::max(most, kernels::cudnn_scratch_bytes(desc, deck.run.deterministic));
  }
  return most;
}

AttentionFacts attention_facts(const config::Deck& deck) {
  return attention_facts(model::make_blueprint(deck.model), deck);
}

AttentionFacts attention_facts(const model::Blueprint& blueprint,
                               const config::Deck& deck) {
  const std::vector<model::AttentionSpec> all = blueprint.attention();
  AttentionFacts facts;
  facts.asked = deck.precision.attention;
  facts.is_narrow = deck.precision.compute != config::Precision::fp32;
  facts.has_dropout = deck.model.attention_dropout > 0.0;
  facts.has_cudnn_heads = std::ranges::all_of(all, kernels::has_cudnn_heads,
                                              &model::AttentionSpec::head_size);
  facts.has_cudnn_masks = std::ranges::all_of(all, has_cudnn_mask);
  facts.scratch_bytes = cudnn_scratch(blueprint, deck);
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

std::string own_attention_note(const AttentionFacts& facts, const std::string& problem) {
  const bool is_left = facts.asked == AttentionKernels::automatic;
  if (is_left && suits_cudnn(facts) && takes_too_much(facts)) return scratch_note(facts);
  if (!wants_cudnn(facts) || takes_cudnn(facts)) return {};
  return fmt::format(
      "attention is computed by Trireme's own kernels: those of NVIDIA's cuDNN 9 are "
      "faster here, and its library cannot be loaded ({}). Load its module, or install "
      "NVIDIA's package for this CUDA (pip install nvidia-cudnn-cu13, or -cu12), and add "
      "the directory of libcudnn.so.9 to LD_LIBRARY_PATH. With precision.attention: own "
      "this is not said",
      problem);
}

std::string own_attention_note(const config::Deck& deck) {
  const AttentionFacts facts = attention_facts(deck);
  // The library is not looked for where that is no question.
  const bool is_missing = wants_cudnn(facts) && !takes_cudnn(facts);
  return own_attention_note(facts, is_missing ? kernels::cudnn_library().problem : "");
}

config::AttentionKernels attention_as_in(const config::Deck& run,
                                         const config::Deck& deck) {
  config::Deck here = run;
  here.precision.compute = deck.precision.compute;
  AttentionFacts facts = attention_facts(here);
  // The run that asked for it by name had it, whatever it took; this build or machine may
  // not have it.
  if (facts.asked == AttentionKernels::cudnn) {
    facts.asked = AttentionKernels::automatic;
    facts.is_proven = true;
    facts.scratch_bytes = 0;
  }
  return takes_cudnn(facts) ? AttentionKernels::cudnn : AttentionKernels::own;
}

}  // namespace trireme::step
