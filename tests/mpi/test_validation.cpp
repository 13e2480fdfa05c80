// Validation looks at the samples that it should, each once, whatever the micro-batches
// and the number of data-parallel ranks: sums are those of one rank, sample by sample.
#include "inference/validation.hpp"

#include <gtest/gtest.h>

#include "comm/mpi_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "comm/self_communicator.hpp"
#include "config/load.hpp"
#include "step/deck_model.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::inference {
namespace {

constexpr index_t kSequence = 8;

class ValidationRanks : public ::testing::Test {
 protected:
  // A corpus with ends of documents, which the loss leaves out after. Each rank has its
  // own file of the same bytes.
  ValidationRanks() {
    const std::string text = io::read_file(test::fixture("sample.txt"));
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < 60; ++i) texts.push_back(text.substr(i * 40, 40));
    test::make_corpus(scratch_, "c.h5", texts, test::trained_tokenizer());
    corpus_ = std::make_shared<const data::Corpus>(scratch_ / "c.h5");
  }
  data::ValidationSet set(index_t samples) const {
    return {"test", std::make_unique<data::Dataset>(
                        std::vector<data::Dataset::Part>{
                            {corpus_, {0, samples * kSequence + 1}, 1.0}},
                        data::sample_rules(data::NextTokenRules{kSequence, true}, 1),
                        data::Order::sequential, "test")};
  }
  kernels::LossSum loss(const std::shared_ptr<comm::Communicator>& world, index_t micro,
                        index_t wanted, const data::ValidationSet& set) const {
    return loss_unless(world, micro, wanted, set, {}).value().front();
  }
  std::optional<step::LossSums> loss_unless(
      const std::shared_ptr<comm::Communicator>& world, index_t micro, index_t wanted,
      const data::ValidationSet& set, const std::function<bool()>& stop) const {
    const int ranks = world->size();
    const config::Deck deck = config::parse(
        fmt::format("model: {{layers: 1, hidden: 8, heads: 2, sequence: {}, vocab: 700, "
                    "dropout: 0.5}}\n"
                    "data: {{train: c.h5, mask_eod_loss: true}}\n"
                    "parallel: {{data: {}}}\n"
                    "batch: {{micro: {}, global: {}}}\n"
                    "run: {{validate_samples: {}}}\n",
                    kSequence, ranks, micro, micro * ranks, wanted),
        "test", {.overrides = {}, .run_dir = "", .ranks = ranks});
    const comm::RankGrid grid(world, step::grid_shape(deck));
    const auto replica = step::make_replica(DType::float64, grid.groups(),
                                            model::make_blueprint(deck.model));
    replica->begin_evaluation(Exec(), step::step_shape(deck));
    replica->initialize(3);
    return Validation(deck, grid, *replica,
                      data::Batch(replica->part().blueprint.batch, deck.batch.micro,
                                  replica->part().fields()))
        .loss_of(set, stop);
  }

  test::Scratch scratch_;
  std::shared_ptr<const data::Corpus> corpus_;
};

TEST_F(ValidationRanks, LooksAtEachSampleOnce) {
  const auto self = comm::make_self_communicator("self");
  const auto world = comm::make_mpi_world();
  const index_t samples = 11;
  const data::ValidationSet all = set(samples);
  for (const index_t wanted :
       {index_t{0}, index_t{1}, index_t{7}, index_t{11}, index_t{4096}}) {
    const index_t looked_at = wanted == 0 ? samples : std::min(wanted, samples);
    // One rank, one sample at a time, of a set that has no more.
    const kernels::LossSum expected = loss(self, 1, 0, set(looked_at));
    EXPECT_GT(expected.count, 0.8 * static_cast<double>(looked_at * kSequence));
    if (looked_at > 5) {
      EXPECT_LT(expected.count, static_cast<double>(looked_at * kSequence));
    }
    for (const index_t micro : {1, 2, 3, 16}) {
      const kernels::LossSum found = loss(world, micro, wanted, all);
      EXPECT_EQ(found.count, expected.count) << micro << ", " << wanted;
      EXPECT_NEAR(found.sum, expected.sum, 1e-10 * expected.sum)
          << micro << ", " << wanted;
    }
  }
}

// Asked between every eight micro-batches of a rank; all ranks leave it together.
TEST_F(ValidationRanks, IsLeftEarlyWhereThatIsWanted) {
  const auto world = comm::make_mpi_world();
  const index_t samples = 40;
  const data::ValidationSet all = set(samples);
  const index_t rounds = (samples + world->size() - 1) / world->size();
  int asked = 0;
  const auto go_on = [&] { return ++asked < 0; };
  const auto found = loss_unless(world, 1, 0, all, go_on);
  ASSERT_TRUE(found);
  EXPECT_EQ(asked, (rounds - 1) / 8);
  EXPECT_EQ(found->front().count, loss(world, 16, 0, all).count);
  asked = 0;
  EXPECT_FALSE(loss_unless(world, 1, 0, all, [&] { return ++asked == 1; }));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(world->all_reduce(std::int64_t{1}), world->size());  // nobody is lost
}

}  // namespace
}  // namespace trireme::inference
