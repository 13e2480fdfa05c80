// The parameters that a GPT registers: names as a checkpoint has them, the count that
// the blocks say for every model and every rank of a tensor group, decay on matrices
// only.
#include <gmock/gmock.h>

#include "base/error.hpp"
#include "comm/planned_communicator.hpp"
#include "comm/process_groups.hpp"
#include "comm/self_communicator.hpp"
#include "model/chunk.hpp"
#include "support/model_flops.hpp"

namespace trireme::model {
namespace {

using test::parameter_count;

ParamRegistry registered(const Architecture& config, int size = 1, int rank = 0) {
  const comm::ProcessGroups groups = comm::make_process_groups(
      comm::make_planned_communicator(rank, size, "world"), {.tensor = size});
  ParamRegistry registry;
  const ParamBuffer<float> params;
  const Blueprint blueprint = make_blueprint(config);
  const Chunk<float> chunk(nn::Builder<float>{registry, params, groups}, blueprint,
                           blueprint.whole());
  EXPECT_TRUE(registry.tied().empty());
  EXPECT_EQ(std::ssize(chunk.cache_columns()), config.layers);
  return registry;
}

Architecture gpt(index_t layers, index_t hidden, index_t heads, index_t kv_heads,
                 index_t ffn_hidden, index_t sequence, index_t vocabulary) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .ffn_hidden = ffn_hidden,
          .sequence = sequence,
          .vocab = vocabulary};
}

TEST(GptRegistryNames, AreThoseOfACheckpoint) {
  const ParamRegistry registry = registered(gpt(2, 8, 2, 2, 32, 16, 50));
  const auto row = [&](std::size_t i) {
    const ParamSpec& spec = registry.spec(i);
    return spec.name + " " + to_string(spec.shard.global_shape) +
           (spec.decay ? " decays" : "");
  };
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < registry.size(); ++i) rows.push_back(row(i));
  std::vector<std::string> want = {"embedding/word/weight (50, 8) decays",
                                   "embedding/position/weight (16, 8) decays"};
  for (const std::string layer : {"layers/0/", "layers/1/"}) {
    for (const char* rest :
         {"input_norm/weight (8)", "input_norm/bias (8)",
          "attention/qkv/weight (24, 8) decays", "attention/qkv/bias (24)",
          "attention/projection/weight (8, 8) decays", "attention/projection/bias (8)",
          "mlp_norm/weight (8)", "mlp_norm/bias (8)", "mlp/fc1/weight (32, 8) decays",
          "mlp/fc1/bias (32)", "mlp/fc2/weight (8, 32) decays", "mlp/fc2/bias (8)"}) {
      want.push_back(layer + rest);
    }
  }
  want.push_back("final_norm/weight (8)");
  want.push_back("final_norm/bias (8)");
  EXPECT_THAT(rows, ::testing::UnorderedElementsAreArray(want));
  EXPECT_EQ(rows.front(), want.front());
}

// GPT-2's initialisation: N(0, 0.02^2), the two matrices that write to the residual
// stream smaller by the root of their number; norms one, biases zero.
TEST(GptRegistryInitialisation, IsGpt2s) {
  const index_t layers = 8;
  const ParamRegistry registry = registered(gpt(layers, 8, 2, 2, 32, 16, 50));
  for (const ParamSpec& spec : registry.specs()) {
    const bool is_matrix = spec.shard.global_shape.size() == 2;
    const bool is_output = spec.name.find("projection/weight") != std::string::npos ||
                           spec.name.find("fc2/weight") != std::string::npos;
    const bool is_norm_weight = spec.name.find("norm/weight") != std::string::npos;
    EXPECT_EQ(spec.init.kind == Initializer::Kind::normal, is_matrix) << spec.name;
    const double value = is_output        ? 0.02 / 4
                         : is_matrix      ? 0.02
                         : is_norm_weight ? 1.0
                                          : 0.0;
    EXPECT_DOUBLE_EQ(spec.init.value, value) << spec.name;
    EXPECT_EQ(spec.decay, is_matrix) << spec.name;
  }
}

TEST(GptRegistryCount, IsThatOfTheBlocks) {
  for (const Architecture& config :
       {gpt(12, 768, 12, 12, 3072, 1024, 50257), gpt(48, 1600, 25, 25, 6400, 1024, 50257),
        gpt(1, 8, 1, 1, 8, 1, 1), gpt(3, 48, 4, 4, 192, 32, 211),
        gpt(5, 66, 6, 1, 173, 77, 1009), gpt(5, 66, 6, 3, 173, 77, 1009)}) {
    EXPECT_EQ(registered(config).global_element_count(), parameter_count(config));
  }
}

// Every rank knows the same global tensors; their parts together are the whole.
TEST(GptRegistryCount, IsTheSameOnEveryRank) {
  const Architecture config = gpt(3, 48, 8, 8, 192, 32, 211);
  const ParamRegistry whole = registered(config);
  for (const int size : {1, 2, 4, 8}) {
    std::vector<index_t> held(whole.size());
    for (int rank = 0; rank < size; ++rank) {
      const ParamRegistry registry = registered(config, size, rank);
      ASSERT_EQ(registry.size(), whole.size());
      EXPECT_EQ(registry.global_element_count(), parameter_count(config));
      for (std::size_t p = 0; p < whole.size(); ++p) {
        const ParamSpec& spec = registry.spec(p);
        EXPECT_EQ(spec.name, whole.spec(p).name);
        EXPECT_EQ(spec.shard.global_shape, whole.spec(p).shard.global_shape);
        const index_t all = element_count(spec.shard.global_shape);
        if (spec.shard.is_replicated()) {
          held[p] += rank == 0 ? all : 0;
          continue;
        }
        const auto dimension = static_cast<std::size_t>(spec.shard.dimension);
        for (const Segment& segment : spec.shard.segments) {
          held[p] += all / spec.shard.global_shape[dimension] * segment.extent;
        }
      }
    }
    for (std::size_t p = 0; p < whole.size(); ++p) {
      EXPECT_EQ(held[p], element_count(whole.spec(p).shard.global_shape))
          << whole.spec(p).name << " over " << size;
    }
  }
}

// All the large tensors are shared out: what a rank holds falls with their number.
TEST(GptRegistryCount, MatricesAreSplit) {
  const ParamRegistry registry = registered(gpt(2, 48, 8, 8, 192, 32, 208), 4, 1);
  for (const ParamSpec& spec : registry.specs()) {
    const bool is_split =
        spec.shard.global_shape.size() == 2 && spec.name != "embedding/position/weight";
    const bool is_split_bias = spec.name.find("qkv/bias") != std::string::npos ||
                               spec.name.find("fc1/bias") != std::string::npos;
    EXPECT_EQ(spec.shard.real_elements() * (is_split || is_split_bias ? 4 : 1),
              element_count(spec.shard.global_shape))
        << spec.name;
  }
}

TEST(GptRegistryErrors, WhatCannotBeSplitOrCut) {
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  EXPECT_THAT([] { registered(gpt(1, 48, 6, 6, 192, 32, 211), 4, 0); },
              ThrowsMessage<Error>(
                  HasSubstr("layers/0/attention: 6 heads and 6 key heads over 4 ranks")));
  EXPECT_THAT([] { registered(gpt(1, 48, 8, 8, 190, 32, 211), 4, 0); },
              ThrowsMessage<Error>(HasSubstr("a block of 190 rows is split in 4")));
  // A variant must not become a GPT-2 in silence.
  const auto refuses = [](auto change) {
    Architecture config = gpt(2, 8, 2, 2, 32, 16, 50);
    change(config);
    EXPECT_THAT([&] { registered(config); },
                ThrowsMessage<Error>(HasSubstr("needs layers that this version lacks")));
  };
  refuses([](Architecture& c) { c.norm = Norm::rmsnorm; });
  refuses([](Architecture& c) { c.activation = Activation::gelu; });
  refuses([](Architecture& c) { c.position = Position::rope; });
  refuses([](Architecture& c) { c.bias = false; });
  refuses([](Architecture& c) { c.tie_embeddings = false; });
}

}  // namespace
}  // namespace trireme::model
