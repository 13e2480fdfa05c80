// By which instructions a run multiplies: what it keeps of that, and what it says where
// they are others at the next start, or on other ranks.
#include "run/products.hpp"

#include <gmock/gmock.h>

#include "base/exec.hpp"
#include "config/load.hpp"
#include "step/gemm_table_text.hpp"
#include "step/product_ways.hpp"
#include "support/fake_gemm_tuner.hpp"

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

TEST(ProductsOfRun, OtherAttentionIsSaid) {
  ckpt::TrainingState state;
  state.step = 500;
  EXPECT_THAT(adopt_attention(state, "own kernels"), IsEmpty());
  EXPECT_EQ(state.texts.at("attention_kernels"), "own kernels");
  EXPECT_THAT(adopt_attention(state, "own kernels"), IsEmpty());
  EXPECT_THAT(
      adopt_attention(state, "cuDNN 9.19.0 (deterministic)"),
      AllOf(HasSubstr("attention is computed by cuDNN 9.19.0 (deterministic) from "
                      "step 501 on, and by own kernels before"),
            HasSubstr("Rounding differs")));
  EXPECT_EQ(state.texts.at("attention_kernels"), "cuDNN 9.19.0 (deterministic)");
  // Where there is no choice nothing is kept.
  EXPECT_THAT(adopt_attention(state, ""), IsEmpty());
  EXPECT_TRUE(state.texts.empty());
}

// The table that a start with this tuner has for products of 5 and 7 rows.
kernels::GemmTable timed_table(test::FakeGemmTuner tuner) {
  return tuner.time({test::fake_product(5), test::fake_product(7)}, {});
}

TEST(ProductsOfRun, KeepsTheTableOfAlgorithms) {
  ckpt::TrainingState state;
  const kernels::GemmTable table = timed_table(test::FakeGemmTuner(1));
  EXPECT_THAT(adopt_gemm_table(state, deck_in("bf16"), table), IsEmpty());
  EXPECT_EQ(state.texts.at("gemm_table"), step::text_of(table));
  EXPECT_THAT(adopt_gemm_table(state, deck_in("bf16"), table), IsEmpty());
  // Of a device without a choice nothing is kept.
  ckpt::TrainingState host;
  EXPECT_THAT(adopt_gemm_table(host, deck_in("bf16"), {}), IsEmpty());
  EXPECT_TRUE(host.texts.empty());
}

TEST(ProductsOfRun, OtherAlgorithmsAreSaid) {
  ckpt::TrainingState state;
  state.step = 500;
  const config::Deck deck = deck_in("bf16");
  const kernels::GemmTable untimed{test::fake_library(), {}};
  adopt_gemm_table(state, deck, untimed);
  EXPECT_THAT(adopt_gemm_table(state, deck, timed_table(test::FakeGemmTuner(1))),
              HasSubstr("from step 501 on 2 matrix products are computed by algorithms "
                        "that the run has not taken for them so far"));
  kernels::GemmTable one = timed_table(test::FakeGemmTuner(1));
  one.products.begin()->second.algorithm[5] = 1;
  EXPECT_THAT(adopt_gemm_table(state, deck, one), HasSubstr("1 matrix product is"));
  one.products.erase(one.products.begin());
  EXPECT_THAT(adopt_gemm_table(state, deck, one), HasSubstr("1 matrix product is"));
  // What is timed and stays the library's first proposal is no change.
  one.products[test::fake_product(9)] = {};
  EXPECT_THAT(adopt_gemm_table(state, deck, one), IsEmpty());
}

TEST(ProductsOfRun, AnotherDeviceIsSaid) {
  ckpt::TrainingState state;
  state.step = 20;
  kernels::GemmTable table{test::fake_library(), {}};
  adopt_gemm_table(state, deck_in("fp32"), table);
  table.library.name = "fakeBLAS 2.0.0";
  EXPECT_THAT(adopt_gemm_table(state, deck_in("fp32"), table),
              AllOf(HasSubstr("matrices are multiplied by fakeBLAS 2.0.0 on Fake H100"),
                    HasSubstr("from step 21 on, and by fakeBLAS 1.2.3 on")));
  EXPECT_THAT(adopt_gemm_table(state, deck_in("fp32"), {}),
              HasSubstr("by the host's cores from step 21 on, and by fakeBLAS 2.0.0"));
  EXPECT_TRUE(state.texts.empty());
  EXPECT_THAT(adopt_gemm_table(state, deck_in("fp32"), {}), IsEmpty());
}

}  // namespace
}  // namespace trireme::run
