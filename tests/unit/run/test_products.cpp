// By which instructions a run multiplies: what it keeps of that, and what it says where
// they are others at the next start, or on other ranks.
#include "run/products.hpp"

#include <gmock/gmock.h>

#include "base/exec.hpp"
#include "config/load.hpp"
#include "step/product_ways.hpp"

namespace trireme::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A deck that computes in this type.
config::Deck deck_in(const std::string& type) {
  return config::parse(
      "model: {layers: 1, hidden: 8, heads: 2, sequence: 8, vocab: 300}\n"
      "data: {train: corpus.h5}\nprecision: {compute: " +
          type + "}\n",
      "deck");
}

TEST(ProductsOfRun, KeepsTypeAndInstructions) {
  ckpt::TrainingState state;
  EXPECT_THAT(adopt_products(state, deck_in("bf16"), "AMX tiles"), IsEmpty());
  EXPECT_EQ(state.texts.at("product_instructions"), "bf16: AMX tiles");
  EXPECT_THAT(adopt_products(state, deck_in("bf16"), "AMX tiles"), IsEmpty());
  EXPECT_THAT(adopt_products(state, deck_in("fp32"), "native"), IsEmpty());
  EXPECT_TRUE(state.texts.empty());
}

// Another type's instructions are no change of this one's.
TEST(ProductsOfRun, AnotherTypeIsNoChange) {
  ckpt::TrainingState state;
  adopt_products(state, deck_in("bf16"), "AMX tiles");
  EXPECT_THAT(adopt_products(state, deck_in("fp16"), "widened"), IsEmpty());
  EXPECT_EQ(state.texts.at("product_instructions"), "fp16: widened");
}

TEST(ProductsOfRun, OtherInstructionsAreSaid) {
  ckpt::TrainingState state;
  state.step = 500;
  adopt_products(state, deck_in("bf16"), "AMX tiles");
  EXPECT_THAT(adopt_products(state, deck_in("bf16"), "AVX-512 BF16"),
              AllOf(HasSubstr("products of bf16 are computed by other instructions from "
                              "step 501 on: AVX-512 BF16, and AMX tiles before"),
                    Not(HasSubstr("precision.gemm"))));
  EXPECT_EQ(state.texts.at("product_instructions"), "bf16: AVX-512 BF16");
  adopt_products(state, deck_in("bf16"), "widened");
  const std::string back = adopt_products(state, deck_in("bf16"), "AMX tiles");
  EXPECT_EQ(kHostExecution, back.find("precision.gemm: widened") != std::string::npos);
}

TEST(ProductsOfRun, RanksThatDifferAreNamed) {
  const auto same = step::ways_of({"AMX tiles", "AMX tiles"}, {"a", "b"});
  EXPECT_EQ(same.names, "AMX tiles");
  EXPECT_THAT(same.warning, IsEmpty());
  const auto other = step::ways_of({"widened", "AMX tiles", "widened"}, {"a", "b", "a"});
  EXPECT_EQ(other.names, "AMX tiles, widened");
  EXPECT_THAT(other.warning,
              AllOf(HasSubstr("different instructions"), HasSubstr("rank 1 (on b): AMX"),
                    HasSubstr("precision.gemm: widened")));
}

}  // namespace
}  // namespace trireme::run
