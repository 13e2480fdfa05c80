// By which algorithms a start multiplies: what it takes over from the run, what it times,
// and what it says. Of several ranks: tests/mpi/test_settled_products.cpp.
#include "step/settled_products.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "comm/process_groups.hpp"
#include "comm/self_communicator.hpp"
#include "step/gemm_table_text.hpp"
#include "support/fake_gemm_tuner.hpp"

namespace trireme::step {
namespace {

using test::fake_library;
using test::fake_product;
using test::FakeEpilogue;
using test::FakeGemmTuner;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

const ProductShape kBias = fake_product(7, FakeEpilogue::bias);
const ProductShape kGelu = fake_product(7, FakeEpilogue::gelu);

class SettledProductsOfOne : public ::testing::Test {
 protected:
  SettledProducts settle(FakeGemmTuner& tuner, const std::string& stored, bool times,
                         const std::vector<ProductShape>& shapes) {
    const ProductRequest request{.stored = stored, .times = times, .occurring = [&] {
                                   EXPECT_TRUE(times) << "asked for what is not timed";
                                   return shapes;
                                 }};
    return settle_products(*world_, tuner, request);
  }

  std::shared_ptr<comm::Communicator> world_ = comm::make_self_communicator("world");
};

TEST_F(SettledProductsOfOne, TimesWhatOccurs) {
  FakeGemmTuner tuner;
  const SettledProducts settled =
      settle(tuner, "", true, {fake_product(5), kGelu, fake_product(5)});
  EXPECT_EQ(settled.table.library, fake_library());
  // With the products that the GeLU begins with.
  EXPECT_THAT(tuner.timed, ElementsAre(fake_product(7), kBias, kGelu, fake_product(5)));
  EXPECT_EQ(settled.table.products.size(), 4u);
  EXPECT_THAT(settled.note,
              HasSubstr("4 matrix products timed on 1 rank in 0.0 s: 3 are computed in "
                        "another way by fakeBLAS 1.2.3 on Fake H100 (9.0, 7 "
                        "multiprocessors) than without times"));
  EXPECT_THAT(settled.warning, IsEmpty());
}

// The promise of a restart: what the run has is neither timed nor changed.
TEST_F(SettledProductsOfOne, ARestartTakesWhatTheRunHas) {
  FakeGemmTuner before(1), now(2);
  const auto first = settle(before, "", true, {fake_product(5), kGelu});
  const std::string stored = text_of(first.table);
  for (const bool times : {false, true}) {
    const auto again = settle(now, stored, times, {fake_product(5), kGelu});
    EXPECT_THAT(now.timed, IsEmpty());
    EXPECT_EQ(text_of(again.table), stored);
    EXPECT_THAT(again.note, IsEmpty());
    EXPECT_THAT(again.warning, IsEmpty());
  }
  // Another layout has other products; the table grows.
  const auto other =
      settle(now, stored, true, {fake_product(5), fake_product(9), fake_product(7)});
  EXPECT_THAT(now.timed, ElementsAre(fake_product(9)));
  EXPECT_EQ(other.table.products.size(), 5u);
  EXPECT_EQ(other.table.products.at(fake_product(5)).algorithm[0], 1u);
  EXPECT_EQ(other.table.products.at(fake_product(9)).algorithm[0], 2u);
}

// A table that has the product with its bias already: the GeLU is timed behind that.
TEST_F(SettledProductsOfOne, AnEpilogueJoinsAKnownProduct) {
  FakeGemmTuner tuner;
  const auto first = settle(tuner, "", true, {kBias});
  tuner.timed.clear();
  const auto second = settle(tuner, text_of(first.table), true, {kGelu});
  EXPECT_THAT(tuner.timed, ElementsAre(kGelu));
  EXPECT_EQ(second.table.products.size(), 3u);
}

TEST_F(SettledProductsOfOne, NothingIsTimedWhereBitsMustBeTheSame) {
  FakeGemmTuner tuner;
  const auto settled = settle(tuner, "", false, {fake_product(5)});
  EXPECT_THAT(tuner.timed, IsEmpty());
  EXPECT_EQ(settled.table.library, fake_library());
  EXPECT_THAT(settled.table.products, IsEmpty());
}

TEST_F(SettledProductsOfOne, AnotherDeviceOrLibraryBeginsAnew) {
  FakeGemmTuner tuner;
  const std::string stored = text_of(settle(tuner, "", true, {fake_product(5)}).table);
  FakeGemmTuner other(2);
  other.device.name = "fakeBLAS 1.2.4";
  EXPECT_THAT(settle(other, stored, false, {}).table.products, IsEmpty());
  const auto timed = settle(other, stored, true, {fake_product(5)});
  EXPECT_EQ(timed.table.library, other.device);
  EXPECT_EQ(timed.table.products.at(fake_product(5)).algorithm[0], 2u);
  other.device = fake_library();
  other.device.multiprocessors = 6;
  EXPECT_THAT(settle(other, stored, false, {}).table.products, IsEmpty());
}

TEST_F(SettledProductsOfOne, WhatTheLibraryRefusesIsSaidAndChosenAnew) {
  FakeGemmTuner tuner;
  const std::string stored =
      text_of(settle(tuner, "", true, {fake_product(5), fake_product(7)}).table);
  FakeGemmTuner other(2);
  other.refused = {fake_product(5)};
  const auto settled = settle(other, stored, true, {fake_product(5), fake_product(7)});
  EXPECT_THAT(settled.warning,
              HasSubstr("the algorithms of 1 matrix product in the run's table of matrix "
                        "products are refused by fakeBLAS 1.2.3"));
  EXPECT_THAT(other.timed, ElementsAre(fake_product(5)));
  EXPECT_EQ(settled.table.products.at(fake_product(7)).algorithm[0], 1u);
}

TEST_F(SettledProductsOfOne, ATableThatCannotBeReadIsSaid) {
  FakeGemmTuner tuner;
  EXPECT_THAT(
      [&] { settle(tuner, "{\"kind\": 1}", false, {}); },
      ThrowsMessage<InputError>(HasSubstr("the run's table of matrix products: it is")));
}

// Without a choice there is nothing to settle, and no text to keep.
TEST_F(SettledProductsOfOne, NoChoiceNoTable) {
  FakeGemmTuner none;
  none.device = {};
  const auto settled = settle(none, "", true, {fake_product(5)});
  EXPECT_TRUE(settled.table.library.is_empty());
  EXPECT_EQ(text_of(settled.table), "");
  EXPECT_THAT(settled.note, HasSubstr("without effect: run.deterministic: false"));
  EXPECT_THAT(settle(none, "", false, {}).note, IsEmpty());
  if (kHostExecution) {
    EXPECT_TRUE(kernels::make_gemm_tuner(Exec())->library().is_empty());
    EXPECT_TRUE(kernels::gemm_table(Exec()).library.is_empty());
    EXPECT_THROW(kernels::use_gemm_table(Exec(), {fake_library(), {}}), Error);
    ckpt::TrainingState state;
    state.texts[kGemmTableText] = "not looked at";
    multiply_as_in(Exec(), state);
  }
}

// All products of a step, each once: of GPT's layers, of the head, and no others.
TEST_F(SettledProductsOfOne, ProductsOfAStep) {
  const model::Architecture config{.layers = 3,
                                   .hidden = 64,
                                   .heads = 4,
                                   .kv_heads = 4,
                                   .ffn_hidden = 256,
                                   .sequence = 32,
                                   .vocab = 200};
  const auto replica =
      make_replica(DType::bfloat16, comm::make_process_groups(world_, comm::GridShape()),
                   model::make_blueprint(config));
  const StepShape shape{.micro = 4, .sequence = 32, .microbatches = 2};
  std::vector<ProductShape> products = products_of(*replica, shape);
  std::ranges::sort(products);
  EXPECT_TRUE(std::ranges::adjacent_find(products) == products.end()) << "one twice";
  const auto count = [&](index_t m, index_t n, index_t k, DType type_c) {
    return std::ranges::count_if(products, [&](const ProductShape& product) {
      return product.type == DType::bfloat16 && product.type_c == type_c &&
             product.m == m && product.n == n && product.k == k;
    });
  };
  const index_t rows = 4 * 32;
  struct Layer {
    index_t out, in;
  };
  for (const auto& [out, in] : std::vector<Layer>{{192, 64}, {256, 64}, {64, 256}}) {
    EXPECT_GE(count(rows, out, in, DType::bfloat16), 1) << out << " from " << in;
    EXPECT_GE(count(rows, in, out, DType::bfloat16), 1) << out << " from " << in;
    EXPECT_EQ(count(out, in, rows, DType::float32), 1) << out << " from " << in;
  }
  // What a product does besides is a matter of the machine.
  for (const ProductShape& product : products) {
    EXPECT_EQ(product.ld_kept, product.has_gelu ? 256 : 0);
  }
  // Each is timed before the model takes its memory, in less than that.
  const StepPlan plan = replica->plan_step(
      shape,
      PipelinePlans(replica->part().sharing.pipeline, replica->part().blueprint, shape));
  for (const ProductShape& product : products) {
    EXPECT_EQ(product.alignment, 16);
    EXPECT_LT(kernels::trial_bytes(product), plan.memory.total());
  }
}

}  // namespace
}  // namespace trireme::step
