// Lists of blocks that contradict themselves are refused, each by its reason.
#include "model/blueprint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "unit/io/scratch.hpp"
#include "unit/model/gpt_pass.hpp"

namespace trireme::model {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void(Blueprint&)>& change) {
  Blueprint blueprint = make_blueprint(test::small_gpt());
  change(blueprint);
  return test::message_of<Error>([&] { blueprint.check(); });
}

TEST(BlueprintCheck, SeesWhatContradictsItself) {
  EXPECT_THAT(refusal([](Blueprint& of) { of.blocks[1].reads = {"memory"}; }),
              HasSubstr("reads 'memory', which does not cross"));
  EXPECT_THAT(refusal([](Blueprint& of) {
                of.blocks[0].border.push_back(of.blocks[0].border[0]);
              }),
              HasSubstr("crosses the border behind block 'embedding' twice"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.blocks[1].stream = 1; }),
              HasSubstr("works on stream 1 of 1"));
  EXPECT_THAT(refusal([](Blueprint& of) {
                of.objectives.push_back({.name = "balance", .mask = "loss_mask"});
                of.blocks[1].fields = {"loss_mask"};
                of.blocks[1].objective = 1;
              }),
              HasSubstr("a layer must not"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.objectives[0].mask = "labels"; }),
              HasSubstr("does not read its mask 'labels'"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.blocks[0].objective = 0; }),
              HasSubstr("objective 'loss' is made by 2 blocks; 1 wanted"));
  EXPECT_THAT(refusal([](Blueprint& of) {
                of.blocks[1].reads.clear();
                of.blocks[0].border.clear();
                of.blocks[0].makes.clear();
              }),
              HasSubstr("reads nothing"));
  EXPECT_THAT(
      refusal([](Blueprint& of) { of.blocks[1].gradients_in_forward = true; }),
      HasSubstr("block 'layers/0' takes gradients in its forward pass, but makes no "
                "objective"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.decoded.positions = "places"; }),
              HasSubstr("no field 'places'"));
  EXPECT_THAT(refusal([](Blueprint& of) { of.vocabulary = "no"; }),
              HasSubstr("there is no table 'no'"));
}

TEST(BlueprintLikes, AreBlocksThatDifferInNameAlone) {
  Blueprint blueprint = make_blueprint(test::small_gpt());
  ASSERT_GE(blueprint.layer_count(), 2);
  EXPECT_EQ(blueprint.first_like(2), 1u);
  blueprint.blocks[2].table = "embedding/word";
  EXPECT_EQ(blueprint.first_like(2), 2u);
}

}  // namespace
}  // namespace trireme::model
