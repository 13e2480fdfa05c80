// perf/gpu/tally.cpp — trireme_gpu_tally: what a step of these decks launches on a GPU,
// as JSON for perf/gpu/predict.py: of each kernel calls, FLOPs and bytes, and the
// products of matrices by their shapes; and the shared memory of a block that makes a
// token of several texts.
//
//   trireme_gpu_tally DECK.yaml... > perf/gpu/tally.json
//
// It is the dry run of `trireme train`, with the kernels that a CUDA build chooses in the
// place of the host's. Two sizes are still a host's: how many rows of logits the head
// takes at a time, and into how many blocks rows are cut for sums over them.
#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "kernels/attention.hpp"
#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/decode_layers.hpp"
#include "model/blueprint.hpp"
#include "plan/dry_run.hpp"

namespace {

using nlohmann::ordered_json;
using trireme::index_t;
using trireme::model::AttentionSpec;
using trireme::model::BlockSpec;
using trireme::model::Blueprint;

constexpr std::size_t kGib = std::size_t{1} << 30;

// Deck settings that a case is counted with, beside its own.
struct Variant {
  const char* name;
  std::vector<std::string> overrides;
};

const std::vector<Variant> kVariants = {
    {"dropout 0", {"model.dropout=0", "model.attention_dropout=0"}},
    {"dropout 0.1", {"model.dropout=0.1", "model.attention_dropout=0.1"}}};

ordered_json json_of(const trireme::KernelTally& kernel) {
  return {{"label", kernel.label},
          {"calls", kernel.calls},
          {"flops", kernel.cost.flops},
          {"masked_flops", kernel.cost.masked_flops},
          {"bytes", kernel.cost.bytes}};
}

ordered_json json_of(const trireme::ProductTally& product) {
  const trireme::ProductShape& shape = product.shape;
  return {{"calls", product.calls},
          {"m", shape.m},
          {"n", shape.n},
          {"k", shape.k},
          {"transpose_a", shape.transpose_a},
          {"transpose_b", shape.transpose_b},
          {"type_c", std::string(trireme::name_of(shape.type_c))},
          {"alignment", shape.alignment},
          {"bias", shape.has_bias},
          {"gelu", shape.has_gelu},
          {"kept", shape.ld_kept > 0},
          {"residual", shape.ld_residual > 0}};
}

// Positions of a full sample in the stream.
index_t length_of(const Blueprint& blueprint, int stream) {
  return blueprint.batch.streams.at(trireme::extent(stream)).sequence;
}

// Each kind of attention that there is, with the blocks that have it: their kernels are
// counted by one name.
ordered_json attention_of(const Blueprint& blueprint) {
  ordered_json kinds = ordered_json::array();
  for (const AttentionSpec& of : blueprint.attention()) {
    std::ptrdiff_t blocks = 0;
    for (const BlockSpec& block : blueprint.blocks) {
      blocks += std::ranges::count(block.attention, of);
    }
    kinds.push_back({{"blocks", blocks},
                     {"queries", length_of(blueprint, of.queries)},
                     {"keys", length_of(blueprint, of.keys)},
                     {"causal", of.mask == trireme::kernels::MaskKind::causal},
                     {"bias", of.has_bias}});
  }
  return kinds;
}

// Positions of a sample that the blocks look words up for, block by block.
ordered_json embedded_of(const Blueprint& blueprint) {
  ordered_json lengths = ordered_json::array();
  for (const BlockSpec& block : blueprint.blocks) {
    const bool has_words = block.table == blueprint.vocabulary && block.objective < 0;
    if (has_words) lengths.push_back(length_of(blueprint, block.stream));
  }
  return lengths;
}

// Those that the head makes logits of.
index_t predicted_of(const Blueprint& blueprint) {
  const auto words = static_cast<int>(blueprint.objective_over_words());
  for (const BlockSpec& block : blueprint.blocks) {
    if (block.objective == words) return length_of(blueprint, block.stream);
  }
  return 0;
}

// Null of models whose layers no such block makes.
ordered_json token_shared_bytes(const Blueprint& blueprint) {
  const bool has_plain_layers =
      blueprint.generates_text() && !blueprint.decoded.has_source();
  if (!has_plain_layers) return nullptr;
  const trireme::model::Architecture& model = blueprint.architecture;
  trireme::cuda::DecodeLayersTask task;
  task.layer_count = static_cast<int>(model.layers);
  task.hidden = static_cast<int>(model.hidden);
  task.heads = static_cast<int>(model.heads);
  task.kv_heads = static_cast<int>(model.kv_heads);
  task.head_dim = static_cast<int>(model.head_elements());
  task.ffn = static_cast<int>(model.ffn_hidden);
  return trireme::cuda::least_shared_bytes<trireme::cuda::WeightCopies::quads>(task);
}

ordered_json json_of(const trireme::plan::DryRun& plan) {
  const trireme::config::Deck& deck = plan.deck;
  const Blueprint blueprint = trireme::model::make_blueprint(deck.model);
  const int data = deck.parallel.data;
  const auto samples = static_cast<double>(deck.batch.global) / data;  // of this GPU
  ordered_json kernels = ordered_json::array(), products = ordered_json::array();
  const trireme::Tally& tally = plan.stages.front().tally;
  for (const trireme::KernelTally& kernel : tally.kernels()) {
    kernels.push_back(json_of(kernel));
  }
  for (const trireme::ProductTally& product : tally.products()) {
    products.push_back(json_of(product));
  }
  return {{"layers", deck.model.layers},
          {"hidden", deck.model.hidden},
          {"heads", deck.model.heads},
          {"head_size", deck.model.head_size},
          {"sequence", deck.model.sequence},
          {"predicted", predicted_of(blueprint)},
          {"embedded", embedded_of(blueprint)},
          {"vocab", deck.model.vocab},
          {"micro", deck.batch.micro},
          {"micro_batches", samples / static_cast<double>(deck.batch.micro)},
          {"tokens", samples * static_cast<double>(deck.model.sequence)},
          {"parameters", plan.parameters},
          {"data_ranks", data},
          {"model_flops", plan.model_flops / data},
          {"token_shared_bytes", token_shared_bytes(blueprint)},
          {"memory_gib", (plan.stages.front().memory.total() + kGib - 1) / kGib},
          {"attention", attention_of(blueprint)},
          {"kernels", kernels},
          {"products", products}};
}

// One line for each kernel and product, so that a change shows as the lines that changed.
std::string text_of(const ordered_json& cases) {
  std::string text = "{";
  const char* separator = "\n";
  for (const auto& [name, entry] : cases.items()) {
    text += separator + ordered_json(name).dump() + ": {";
    const char* comma = "\n ";
    for (const auto& [key, value] : entry.items()) {
      text += comma + ordered_json(key).dump() + ": ";
      if (!value.is_array()) {
        text += value.dump();
      } else {
        text += "[";
        const char* next = "\n  ";
        for (const auto& row : value) {
          text += next + row.dump();
          next = ",\n  ";
        }
        text += "]";
      }
      comma = ",\n ";
    }
    text += "}";
    separator = ",\n";
  }
  return text + "\n}\n";
}

}  // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos;
  ordered_json cases;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string name = std::filesystem::path(argv[i]).stem().string();
      for (const Variant& variant : kVariants) {
        const auto plan =
            trireme::plan::dry_run({.deck = argv[i], .overrides = variant.overrides});
        cases[name + ", " + variant.name] = json_of(plan);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme_gpu_tally: %s\n", error.what());
    return 2;
  }
  std::fputs(text_of(cases).c_str(), stdout);
  return 0;
}
