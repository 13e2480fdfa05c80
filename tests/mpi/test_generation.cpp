// Generation with the model split over a tensor group: the tokens of one rank, on every
// rank, drawn by the host or on the device. The vocabulary divides by none of the sizes.
#include <gtest/gtest.h>

#include "comm/mpi_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "comm/self_communicator.hpp"
#include "inference/generation.hpp"

namespace trireme::inference {
namespace {

std::vector<data::TokenId> generate(const comm::ProcessGroups& groups,
                                    DrawingPlace drawing) {
  step::ModelState<double> state(groups, {.layers = 2,
                                          .hidden = 48,
                                          .heads = 12,
                                          .kv_heads = 6,
                                          .ffn_hidden = 60,
                                          .sequence = 31,
                                          .vocab = 53,
                                          .init_std = 0.3});
  state.params.allocate(state.registry, ParamBuffer<double>::Use::inference);
  state.params.initialize(Exec(), 17);
  Generator generator(step::make_decoder(Exec(), state, 2), drawing);
  const GenerationConfig config{.sampling = {.top_p = 0.95, .seed = 9},
                                .max_tokens = 40,
                                .at_limit = AtContextLimit::slide};
  std::vector<data::TokenId> tokens;
  for (const Generation& text : generator.run({{.prompt = {1, 52, 3}, .number = 0},
                                               {.prompt = {4, 5, 6}, .number = 1},
                                               {.prompt = {7}, .number = 2}},
                                              config)) {
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
  }
  return tokens;
}

TEST(GenerationRanks, TensorGroupGivesTheTokensOfOneRank) {
  const auto expected = generate(comm::make_groups_of_one(), DrawingPlace::host);
  ASSERT_EQ(expected.size(), 120u);
  const auto world = comm::make_mpi_world();
  const comm::RankGrid grid(world, {.tensor = world->size()});
  EXPECT_EQ(generate(grid.groups(), DrawingPlace::host), expected);
  EXPECT_EQ(generate(grid.groups(), DrawingPlace::device), expected);
}

}  // namespace
}  // namespace trireme::inference
