// What BERT and T5 save for a backward pass, planned on shapes, against the closed
// formulas of docs/math/memory.md, to the byte: samples are so many that every array of
// rows is a multiple of what arrays begin at. Formulas are of the numbers of the model
// and the layout alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "comm/planned_communicator.hpp"
#include "comm/process_groups.hpp"
#include "comm/rank_grid.hpp"
#include "config/enums.hpp"
#include "model/blueprint.hpp"
#include "step/step_plan.hpp"
#include "tensor/arena.hpp"

namespace trireme::plan {
namespace {

using Bytes = std::map<std::string, index_t>;

constexpr index_t kSamples = 64;  // b

struct Ranks {
  int t = 1;
  bool sequence = false;
  bool selective = false;       // recomputation
  std::vector<int> split = {};  // layers of each stage; empty: one has all
  int stage = 0;

  int stages() const { return std::max<int>(1, static_cast<int>(split.size())); }
  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == stages(); }
  // How many of the layers [begin, end) the stage has.
  index_t layers(index_t begin, index_t end) const {
    if (split.empty()) return end - begin;
    const index_t before = std::accumulate(split.begin(), split.begin() + stage, 0);
    const index_t behind = before + split.at(extent(stage));
    return std::max<index_t>(0, std::min(end, behind) - std::max(begin, before));
  }
  // Micro-batches that a stage keeps, of as many as there are stages: by 1F1B.
  index_t kept() const { return stages() - stage; }
  // Of a stream's rows, those that a rank has between the tensor-parallel regions.
  index_t own(index_t rows) const { return sequence ? rows / t : rows; }
  std::string name() const {
    return fmt::format("t {}{}{} stage {} of [{}]", t, sequence ? " sequence" : "",
                       selective ? " selective" : "", stage, fmt::join(split, ", "));
  }
};

// By category; those of which nothing is saved are left out.
Bytes saved_bytes(const Ranks& ranks, const model::Architecture& a) {
  const comm::GridShape shape{.tensor = ranks.t, .pipeline = ranks.stages()};
  const int rank = comm::rank_of(shape, {.tensor = ranks.t - 1, .pipeline = ranks.stage});
  const step::ModelState<float> state(
      comm::make_process_groups(
          comm::make_planned_communicator(rank, shape.size(), "world"), shape),
      a,
      {.sequence_parallel = ranks.sequence,
       .pipeline = {.stages = ranks.stages(), .split = ranks.split}});
  step::StepShape micro_batches{.micro = kSamples,
                                .sequence = a.sequence,
                                .microbatches = std::max(2, ranks.stages())};
  micro_batches.recompute.selective = ranks.selective;
  const auto saved = step::plan_step(state, micro_batches).memory.saved_by_category;
  Bytes bytes;
  for (int c = 0; c < kCategoryCount; ++c) {
    const std::size_t amount = saved.at(extent(c));
    if (amount == 0) continue;
    bytes[std::string(name_of(static_cast<Category>(c)))] = static_cast<index_t>(amount);
  }
  return bytes;
}

// Elements that an array of n takes, of four bytes each.
index_t room(index_t n) {
  return (n + 63) / 64 * 64;
}

template <class Function>
void for_each_ranks(const Function& function) {
  for (const int t : {1, 2, 4}) {
    for (const bool sequence : {false, true}) {
      for (const bool selective : {false, true}) {
        if (t == 1 && sequence) continue;
        const Ranks ranks{.t = t, .sequence = sequence, .selective = selective};
        SCOPED_TRACE(ranks.name());
        function(ranks);
      }
    }
  }
}

model::Architecture some_bert(config::NormPlacement placement, bool has_pairs) {
  return {.kind = model::ModelKind::bert,
          .layers = 3,
          .hidden = 24,
          .heads = 4,
          .kv_heads = 4,
          .ffn_hidden = 40,
          .sequence = 12,
          .vocab = 300,
          .activation = model::Activation::gelu,
          .norm_placement = placement,
          .type_vocab_size = 2,
          .binary_head = has_pairs,
          .max_predictions = 3};
}

// Elements by category to the bytes of all micro-batches that are kept.
Bytes bytes_of(const Ranks& ranks, const Bytes& elements) {
  Bytes bytes;
  for (const auto& [category, count] : elements) {
    if (count > 0) bytes[category] = 4 * ranks.kept() * count;
  }
  return bytes;
}

// A stage's input from another, and its output to one, lie in buffers of messages.
Bytes bytes_of_bert(const Ranks& ranks, const model::Architecture& a) {
  const index_t h = a.hidden, f = a.ffn_hidden, t = ranks.t, b = kSamples;
  const index_t R = a.sequence * b, own = ranks.own(R), L = ranks.layers(0, a.layers);
  const index_t first = ranks.is_first() ? 1 : 0, last = ranks.is_last() ? 1 : 0;
  const index_t M = last * a.max_predictions * b;
  const bool is_post = a.norm_placement == config::NormPlacement::post;
  const index_t pairs = last * (a.binary_head ? 1 : 0);
  const index_t words = 128 * (((a.vocab + t - 1) / t + 127) / 128);
  const index_t normed = ranks.selective ? 0 : h, out = 1 - last;
  Bytes elements;
  elements["hidden"] =
      own * h * (is_post ? 3 * L + 2 * first - out : 2 * L + first + last - out) +
      3 * M * h + pairs * 3 * b * h;
  elements["norm"] = is_post ? own * (L * (normed + 4) + 2 * first) + first * room(h)
                             : own * (2 * L * (normed + 2) + 2 * last);
  elements["norm"] += M * (h + 2);
  elements["attention"] = R * L * (4 * h + a.heads) / t;
  elements["mlp"] = (ranks.selective ? 1 : 2) * R * L * f / t;
  elements["logits"] = M + pairs * 2 * (room(2 * b) + room(b));
  elements["gradient"] = last * words;
  return bytes_of(ranks, elements);
}

TEST(KindMemory, OfBertIsThatOfTheFormulas) {
  for (const auto placement : {config::NormPlacement::pre, config::NormPlacement::post}) {
    for (const bool has_pairs : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", config::name_of(placement), has_pairs));
      for_each_ranks([&](const Ranks& ranks) {
        const model::Architecture bert = some_bert(placement, has_pairs);
        EXPECT_EQ(saved_bytes(ranks, bert), bytes_of_bert(ranks, bert));
      });
    }
  }
}

// Heads are wider than hidden / heads, and the stacks of unlike depth and length.
model::Architecture some_t5(bool is_gated) {
  return {
      .kind = model::ModelKind::t5,
      .layers = 2,
      .decoder_layers = 3,
      .hidden = 24,
      .heads = 4,
      .kv_heads = 4,
      .head_size = 8,
      .ffn_hidden = 40,
      .sequence = 12,
      .decoder_sequence = 8,
      .vocab = 300,
      .norm = model::Norm::rmsnorm,
      .activation = is_gated ? model::Activation::geglu_tanh : model::Activation::relu,
      .position = model::Position::relative,
      .bias = false};
}

Bytes bytes_of_t5(const Ranks& ranks, const model::Architecture& a) {
  const index_t h = a.hidden, f = a.ffn_hidden, t = ranks.t;
  const index_t L = ranks.layers(0, a.layers);
  const index_t L_y = ranks.layers(a.layers, a.total_layers());
  const index_t first = ranks.is_first() ? 1 : 0, last = ranks.is_last() ? 1 : 0;
  // The memory is made where the decoder begins, and kept there, wherever else it goes.
  const index_t begins = ranks.layers(a.layers, a.layers + 1);
  const index_t out = L_y > 0 ? 0 : 1 - last, out_y = L_y > 0 ? 1 - last : 0;
  const index_t R = a.sequence * kSamples, R_y = a.decoder_sequence * kSamples;
  const index_t own = ranks.own(R), own_y = ranks.own(R_y);
  const index_t hq = a.heads * a.head_size, hkv = a.kv_heads * a.head_size;
  const index_t self = 2 * hq + 2 * hkv + a.heads, cross = 2 * hq + a.heads;
  const index_t normed = ranks.selective ? 0 : h;
  // Of a ReLU what is behind it; of a gated one both sides before, and what is behind.
  index_t widths = 1;
  if (a.is_gated()) widths = ranks.selective ? 2 : 3;
  Bytes elements;
  elements["hidden"] =
      h * (own * (2 * L + first + begins - out) + own_y * (3 * L_y + begins - out_y));
  elements["norm"] = own * (2 * L * (normed + 1) + begins) +
                     own_y * (3 * L_y * (normed + 1) + last * (h + 1));
  elements["attention"] =
      (R * L * self + R_y * L_y * (self + cross) + R * L_y * 2 * hkv) / t;
  elements["mlp"] = widths * f * (R * L + R_y * L_y) / t;
  elements["logits"] = last * R_y;
  return bytes_of(ranks, elements);
}

TEST(KindMemory, OfT5IsThatOfTheFormulas) {
  for (const bool is_gated : {false, true}) {
    SCOPED_TRACE(is_gated ? "gated" : "ReLU");
    for_each_ranks([&](const Ranks& ranks) {
      const model::Architecture t5 = some_t5(is_gated);
      EXPECT_EQ(saved_bytes(ranks, t5), bytes_of_t5(ranks, t5));
    });
  }
}

// Of every stage, each of which has a part of a sequence, or not.
template <class Formula>
void check_memory_of_stages(const model::Architecture& a,
                            const std::vector<std::vector<int>>& splits,
                            const Formula& formula) {
  for (const std::vector<int>& split : splits) {
    for_each_ranks([&](Ranks ranks) {
      ranks.split = split;
      for (ranks.stage = 0; ranks.stage < ranks.stages(); ++ranks.stage) {
        SCOPED_TRACE(ranks.name());
        EXPECT_EQ(saved_bytes(ranks, a), formula(ranks, a));
      }
    });
  }
}

TEST(KindMemory, OfEveryStageOfBert) {
  for (const auto placement : {config::NormPlacement::pre, config::NormPlacement::post}) {
    SCOPED_TRACE(config::name_of(placement));
    check_memory_of_stages(some_bert(placement, true), {{1, 2}, {1, 1, 1}},
                           bytes_of_bert);
  }
}

// Cut within the encoder, between the stacks, within the decoder, and before the head.
TEST(KindMemory, OfEveryStageOfT5) {
  check_memory_of_stages(some_t5(true), {{1, 4}, {2, 3}, {1, 2, 2}, {3, 1, 1}, {2, 3, 0}},
                         bytes_of_t5);
}

index_t all_of(const Bytes& bytes) {
  index_t sum = 0;
  for (const auto& [category, amount] : bytes) sum += amount;
  return sum;
}

// What one layer more takes in plain numbers, of 768 rows of a source and 512 of a
// target: a decoder's layer keeps keys and values of the source's rows, too.
TEST(KindMemory, OfALayerMoreIsAsOnThatPage) {
  const auto more = [](model::Architecture a, index_t model::Architecture::*layers) {
    const index_t before = all_of(saved_bytes({}, a));
    a.*layers += 1;
    return all_of(saved_bytes({}, a)) - before;
  };
  using model::Architecture;
  const auto pre = some_bert(config::NormPlacement::pre, true);
  const auto post = some_bert(config::NormPlacement::post, true);
  EXPECT_EQ(more(pre, &Architecture::layers), 860160);
  EXPECT_EQ(more(post, &Architecture::layers), 860160);
  EXPECT_EQ(more(some_t5(false), &Architecture::layers), 829440);
  EXPECT_EQ(more(some_t5(false), &Architecture::decoder_layers), 989184);
}

}  // namespace
}  // namespace trireme::plan
