// Which layouts there are: none that a deck may not have, and all but the odd ones.
#include "plan/layouts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "config/deck_error.hpp"
#include "config/load.hpp"
#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using test::Case;
using test::deck_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

config::Deck layouts_deck() {
  return deck_of({.layers = 6, .hidden = 96, .heads = 6, .sequence = 64, .global = 24});
}

bool is_legal(config::Deck deck, const Layout& layout, int devices) {
  set_layout(deck, layout);
  try {
    config::parse_resolved(config::resolved_text(deck), devices);
    return true;
  } catch (const config::DeckErrors&) {
    return false;
  }
}

TEST(Layouts, AreLegalDecks) {
  const config::Deck deck = layouts_deck();
  for (const int devices : {1, 2, 6, 12}) {
    const std::vector<Layout> layouts = legal_layouts(deck, devices);
    for (const Layout& layout : layouts) {
      EXPECT_TRUE(is_legal(deck, layout, devices))
          << layout.grid_text() << ", " << layout.text();
      EXPECT_EQ(layout.tensor * layout.pipeline * layout.data, devices);
    }
    EXPECT_EQ(std::set(layouts.begin(), layouts.end()).size(), layouts.size());
  }
}

// Those of an encoder and a decoder: stages of both, and positions of both streams.
TEST(Layouts, OfKindsAreLegalDecks) {
  for (const char* const model :
       {"{kind: bert, layers: 6, hidden: 96, heads: 6, sequence: 64, vocab: 100}",
        "{kind: t5, layers: 2, decoder_layers: 4, hidden: 96, heads: 6, sequence: 64, "
        "decoder_sequence: 22, vocab: 100}"}) {
    const config::Deck deck =
        config::parse(fmt::format("model: {}\ndata: {{train: none}}\n"
                                  "batch: {{micro: 1, global: 12}}\n",
                                  model),
                      "deck");
    std::set<int> stages, of_sequences;
    for (const int devices : {2, 6}) {
      for (const Layout& layout : legal_layouts(deck, devices)) {
        EXPECT_TRUE(is_legal(deck, layout, devices))
            << model << ": " << layout.grid_text() << ", " << layout.text();
        stages.insert(layout.pipeline);
        if (layout.sequence) of_sequences.insert(layout.tensor);
      }
    }
    EXPECT_THAT(stages, ::testing::ElementsAre(1, 2, 3, 6)) << model;
    EXPECT_THAT(of_sequences, ::testing::ElementsAre(2)) << model;
  }
}

// What the deck asks for of its own stages a layout without any need not have: what it
// would have measured is dealt by what is modelled, and it says so.
TEST(Layouts, OfADeckThatMeasuresItsStagesAreLegalDecks) {
  config::Deck deck = layouts_deck();
  deck.parallel.balance = config::Balance::measured;
  for (const int pipeline : {1, 2}) {
    const Layout layout{.pipeline = pipeline, .data = 2 / pipeline, .micro = 1};
    EXPECT_TRUE(is_legal(deck, layout, 2)) << layout.grid_text();
    config::Deck found = deck;
    set_layout(found, layout);
    EXPECT_EQ(found.parallel.balance, config::Balance::modelled);
  }
}

// Text is taken from whole models alone.
TEST(Layouts, OfADeckThatSamplesHaveNoStages) {
  config::Deck deck = layouts_deck();
  deck.run.sample_every.steps = 10;
  const std::vector<Layout> layouts = legal_layouts(deck, 6);
  EXPECT_FALSE(layouts.empty());
  for (const Layout& layout : layouts) {
    EXPECT_TRUE(is_legal(deck, layout, 6)) << layout.grid_text();
  }
}

// Every grid and micro-batch that a deck may have is among them.
TEST(Layouts, LeaveNoGridOut) {
  const config::Deck deck = layouts_deck();
  constexpr int kDevices = 12;
  const std::vector<Layout> layouts = legal_layouts(deck, kDevices);
  int grids = 0;
  for (int tensor = 1; tensor <= kDevices; ++tensor) {
    for (int pipeline = 1; pipeline <= 6; ++pipeline) {
      if (kDevices % (tensor * pipeline) != 0) continue;
      for (index_t micro = 1; micro <= 16; ++micro) {
        const Layout layout{.tensor = tensor,
                            .pipeline = pipeline,
                            .data = kDevices / (tensor * pipeline),
                            .micro = micro};
        const bool is_there = std::ranges::find(layouts, layout) != layouts.end();
        EXPECT_EQ(is_there, is_legal(deck, layout, kDevices)) << layout.grid_text();
        grids += is_there ? 1 : 0;
      }
    }
  }
  EXPECT_GT(grids, 20);
}

TEST(Layouts, AreWhatADeckHas) {
  config::Deck deck = layouts_deck();
  const Layout layout{.tensor = 2,
                      .pipeline = 3,
                      .chunks = 2,
                      .data = 2,
                      .sequence = true,
                      .zero = 1,
                      .micro = 4,
                      .recompute = config::Recompute::selective};
  set_layout(deck, layout);
  EXPECT_EQ(layout_of(deck), layout);
  EXPECT_THAT(deck.parallel.stages, ::testing::Each(1));
  EXPECT_EQ(layout.grid_text(), "2 x 3 x 2");
  EXPECT_EQ(layout.text(), "2 chunks, micro 4, ZeRO 1, sequence, recompute selective");
}

TEST(LayoutsThatAreNone, SayWhatTheNearestFailsBy) {
  const config::Deck deck = layouts_deck();
  EXPECT_TRUE(legal_layouts(deck, 7).empty());
  EXPECT_THAT(why_no_layout(deck, 7),
              AllOf(HasSubstr("no layout of 7 devices"), HasSubstr("data 7"),
                    HasSubstr("cannot share batch.global: 24; 21 would do")));
  EXPECT_THAT(why_no_layout(deck, 31), HasSubstr("batch.global: 24; 31 would do"));
  config::Deck ramped = layouts_deck();
  ramped.batch.ramp_up = config::RampUp{.start = 1, .increment = 1, .samples = 100};
  EXPECT_TRUE(legal_layouts(ramped, 72).empty());
  EXPECT_THAT(why_no_layout(ramped, 72), HasSubstr("batch.ramp_up has batches"));
}

}  // namespace
}  // namespace trireme::plan
