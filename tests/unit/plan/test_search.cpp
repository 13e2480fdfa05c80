// The search among all layouts.
#include "plan/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using test::Case;
using test::deck_of;
using test::machine_named;

struct Published {
  const char* name;
  Case layout;
  int devices;
};

class SearchPublished : public ::testing::TestWithParam<Published> {};

TEST_P(SearchPublished, ChosenLayoutIsAsFastAtLeast) {
  const auto& [name, layout, devices] = GetParam();
  const config::Deck deck = deck_of(layout);
  PerformanceModel model(machine_named("selene"), deck);
  const Plan published = plan_of(model, deck);
  const auto begin = std::chrono::steady_clock::now();
  const SearchResult result = search(model, deck, devices);
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const Plan& p : result.plans)
    std::printf("%s %s: %.2f s %.1f GiB %s\n", p.layout.grid_text().c_str(),
                p.layout.text().c_str(), p.seconds(), p.memory.total() / 1073741824.,
                why_slower(result.plans.front(), p).c_str());
  for (const Plan& p : result.too_large)
    std::printf("too large: %s %s: %.2f s %.1f GiB\n", p.layout.grid_text().c_str(),
                p.layout.text().c_str(), p.seconds(), p.memory.total() / 1073741824.);
  std::printf("published %.2f s %.1f GiB; %ld legal %ld fit; %.2f s\n",
              published.seconds(), published.memory.total() / 1073741824.,
              long(result.legal), long(result.fitting), took);
  EXPECT_LE(result.plans.front().seconds(), published.seconds()) << name;
}

INSTANTIATE_TEST_SUITE_P(SearchModels, SearchPublished,
                         ::testing::Values(Published{"175B",
                                                     {.layers = 96,
                                                      .hidden = 12288,
                                                      .heads = 96,
                                                      .tensor = 8,
                                                      .pipeline = 16,
                                                      .chunks = 3,
                                                      .data = 8,
                                                      .global = 1536},
                                                     1024},
                                           Published{"530B",
                                                     {.layers = 105,
                                                      .hidden = 20480,
                                                      .heads = 128,
                                                      .tensor = 8,
                                                      .pipeline = 35,
                                                      .chunks = 3,
                                                      .data = 9,
                                                      .global = 2520},
                                                     2520},
                                           Published{"1T",
                                                     {.layers = 128,
                                                      .hidden = 25600,
                                                      .heads = 160,
                                                      .tensor = 8,
                                                      .pipeline = 64,
                                                      .data = 6,
                                                      .global = 3072},
                                                     3072}));

}  // namespace
}  // namespace trireme::plan
