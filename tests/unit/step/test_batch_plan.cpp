// Which samples make a micro-batch, against a plain walk through the steps: full and
// growing batches, several data ranks, and from the middle of a run.
#include "step/batch_plan.hpp"

#include <gtest/gtest.h>

#include "config/load.hpp"

namespace trireme::step {
namespace {

config::Deck deck_with(const std::string& ramp, int data, int micro, int steps) {
  return config::parse(
      fmt::format("model: {{layers: 1, hidden: 8, heads: 2, sequence: 4, vocab: 10}}\n"
                  "data: {{train: c.h5}}\n"
                  "parallel: {{data: {}}}\n"
                  "batch: {{micro: {}, global: 24, ramp_up: {}}}\n"
                  "run: {{steps: {}}}\n",
                  data, micro, ramp, steps),
      "test", {.ranks = data});
}

void check_plan(const config::Deck& deck) {
  const int ranks = deck.parallel.data;
  const index_t micro = deck.batch.micro;
  // Where every step begins.
  std::vector<index_t> starts = {0};
  for (index_t k = 0; k < deck.run.steps.steps; ++k) {
    starts.push_back(starts.back() + deck.batch.size_at(starts.back()));
  }
  for (std::size_t from = 0; from + 1 < starts.size(); ++from) {
    for (int rank = 0; rank < ranks; ++rank) {
      const BatchPlan plan(deck, static_cast<index_t>(from), starts[from], rank);
      index_t n = 0;
      for (std::size_t k = from; k + 1 < starts.size(); ++k) {
        const index_t size = starts[k + 1] - starts[k];
        ASSERT_EQ(plan.samples_of_step(starts[k]), size);
        ASSERT_EQ(plan.microbatches(starts[k]), size / ranks / micro);
        for (index_t m = 0; m < size / ranks / micro; ++m, ++n) {
          const data::ColumnRange columns = plan.columns(n);
          ASSERT_EQ(columns.first_sample, starts[k] + rank * (size / ranks) + m * micro)
              << "step " << k << " of rank " << rank << ", from " << from;
          ASSERT_EQ(columns.columns, micro);
        }
      }
      EXPECT_EQ(plan.columns(n).columns, 0);  // after the last step
    }
  }
}

TEST(BatchPlanSamples, AreThoseOfTheSteps) {
  for (const int data : {1, 2, 4}) {
    for (const int micro : {1, 2}) {
      check_plan(deck_with("none", data, micro, 7));
      check_plan(deck_with("{start: 8, increment: 8, samples: 100}", data, micro, 15));
      check_plan(deck_with("{start: 8, increment: 16, samples: 30}", data, micro, 9));
      check_plan(deck_with("{start: 8, increment: 8, samples: 1000}", data, micro, 20));
    }
  }
}

}  // namespace
}  // namespace trireme::step
