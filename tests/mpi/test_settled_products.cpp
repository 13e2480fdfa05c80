// Ranks that settle by which algorithms they multiply: one table on all of them, each
// product timed by one.
#include "step/settled_products.hpp"

#include <gmock/gmock.h>

#include <set>

#include "base/error.hpp"
#include "comm/mpi_communicator.hpp"
#include "step/gemm_table_text.hpp"
#include "support/fake_gemm_tuner.hpp"

namespace trireme::step {
namespace {

using test::fake_product;
using test::FakeGemmTuner;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

class SettledProductsOfRanks : public ::testing::Test {
 protected:
  std::shared_ptr<comm::Communicator> world_ = comm::make_mpi_world();
  int rank_ = world_->rank(), ranks_ = world_->size();

  // Every rank has one product that all have, and one of its own, as stages do.
  std::vector<ProductShape> mine() const {
    return {fake_product(5), fake_product(100 + rank_, test::FakeEpilogue::gelu)};
  }
  SettledProducts settle(FakeGemmTuner& tuner, const std::string& stored, bool times) {
    return settle_products(*world_, tuner,
                           {.stored = rank_ == 0 ? stored : "read by rank 0 alone",
                            .times = times,
                            .occurring = [this] { return mine(); }});
  }
  bool is_same_on_all(const std::string& text) {
    const auto all = world_->gather(text);
    return std::set<std::string>(all.begin(), all.end()).size() == 1;
  }
};

// The word of an algorithm is its chooser's rank: that all ranks have the same table says
// that none goes by its own times.
TEST_F(SettledProductsOfRanks, TakeOneTable) {
  FakeGemmTuner tuner(static_cast<std::uint64_t>(rank_));
  const SettledProducts settled = settle(tuner, "", true);
  EXPECT_EQ(settled.table.products.size(), static_cast<std::size_t>(1 + 3 * ranks_));
  for (const ProductShape& shape : mine()) EXPECT_TRUE(settled.table.has(shape));
  EXPECT_TRUE(is_same_on_all(text_of(settled.table)));
  EXPECT_EQ(world_->all_reduce(static_cast<std::int64_t>(tuner.timed.size())),
            1 + 3 * ranks_)
      << "each once";
  EXPECT_GE(tuner.timed.size(), 1u) << "all ranks take part";
}

TEST_F(SettledProductsOfRanks, ARestartTimesNothing) {
  FakeGemmTuner tuner(static_cast<std::uint64_t>(rank_)), again(77);
  const std::string stored = text_of(settle(tuner, "", true).table);
  const SettledProducts settled = settle(again, stored, true);
  EXPECT_THAT(again.timed, IsEmpty());
  EXPECT_EQ(text_of(settled.table), stored);
  EXPECT_EQ(text_of(settle(again, stored, false).table), stored);
}

// A rank that fails as it times takes all of them down with its message.
TEST_F(SettledProductsOfRanks, AnErrorIsEverybodys) {
  FakeGemmTuner tuner;
  const ProductRequest request{
      .stored = {}, .times = true, .occurring = [this]() -> std::vector<ProductShape> {
        if (rank_ == ranks_ - 1) throw Error("no memory");
        return mine();
      }};
  EXPECT_THAT([&] { settle_products(*world_, tuner, request); },
              ThrowsMessage<Error>(HasSubstr("no memory")));
}

// Ranks on unlike devices cannot have the same bits: each takes its library's first.
TEST_F(SettledProductsOfRanks, OfUnlikeDevicesHaveNoTable) {
  FakeGemmTuner tuner;
  const std::string stored = text_of(settle(tuner, "", true).table);
  tuner.timed.clear();
  if (rank_ == 0) tuner.device.device = "Fake A100";
  const SettledProducts settled = settle(tuner, stored, true);
  if (ranks_ == 1) {
    EXPECT_THAT(settled.warning, IsEmpty());
    return;
  }
  EXPECT_THAT(settled.table.products, IsEmpty());
  EXPECT_EQ(settled.table.library, tuner.device);
  EXPECT_THAT(tuner.timed, IsEmpty());
  EXPECT_THAT(settled.warning, HasSubstr("different libraries or devices: rank 0 (on "));
}

}  // namespace
}  // namespace trireme::step
