// Dropout masks in every layout are those of one rank, bit by bit: of the embedding, of
// attention probabilities, and of the outputs of a layer, forward and backward; of a
// decoder's layer those of cross attention, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "comm/rank_grid.hpp"
#include "layouts/layout_masks.hpp"

namespace trireme::test {
namespace {

// What this rank has drawn is as one rank has it; all together drew so many copies.
void expect_same(comm::Communicator& ranks, const MaskTable& part, const MaskTable& whole,
                 int copies, const char* what) {
  index_t drawn = 0, wrong = 0;
  for (std::size_t i = 0; i < whole.values.size(); ++i) {
    if (part.values[i] == MaskTable::kNotHere) continue;
    ++drawn;
    if (part.values[i] != whole.values[i]) ++wrong;
  }
  EXPECT_EQ(wrong, 0) << what;
  EXPECT_EQ(ranks.all_reduce(static_cast<double>(drawn)),
            copies * static_cast<double>(whole.values.size()))
      << what;
}

void expect_same(const comm::RankGrid& grid, const Layout& layout, const Masks& whole) {
  SCOPED_TRACE(layout.name());
  const index_t share = kGlobal / layout.data;
  const Masks part = draw_masks(grid.groups(), layout.sequence != 0,
                                grid.coordinates().data * share, share, layout.micro());
  const auto expect = [&](const char* what, MaskTable Masks::*table, int copies) {
    expect_same(*grid.groups().world, part.*table, whole.*table, copies, what);
  };
  const int rows = layout.sequence != 0 ? 1 : layout.tensor;
  expect("embedding", &Masks::embedding, rows);
  expect("outputs of a layer", &Masks::outputs, rows);
  expect("probabilities", &Masks::probabilities, 1);
  expect("outputs of a decoder's layer", &Masks::decoder_outputs, rows);
  expect("probabilities of cross attention", &Masks::cross_probabilities, 1);
  // Backward, the gradients of all rows come together on every tensor rank.
  expect("attention output, backward", &Masks::attention_backward, layout.tensor);
  expect("mlp output, backward", &Masks::mlp_backward, layout.tensor);
  expect("cross attention output, backward", &Masks::cross_backward, layout.tensor);
  expect("embedding, backward", &Masks::embedding_backward, 1);
}

TEST(LayoutMasks, AreThoseOfOneRank) {
  const auto world = layout_world();
  const Masks whole = masks_of_one_rank();
  std::vector<Layout> layouts = all_layouts(8);
  std::erase_if(layouts, [](const Layout& layout) {
    return layout.zero > 0 || layout.small_buckets != 0 ||  // masks know nothing of them
           (layout.microbatches != 1 && layout.microbatches != 3);
  });
  const auto check = [&](const auto& ranks, const Layout& first) {
    const comm::RankGrid grid(ranks, first.grid());
    for (const Layout& layout : layouts) {
      if (layout.is_on_grid_of(first)) expect_same(grid, layout, whole);
    }
  };
  for_each_layout(*world, one_of_each_grid(layouts), check);
}

// What is compared above are masks: of one rank, half of each is kept, forward and
// backward alike, and no two are the same.
TEST(LayoutMasks, OfOneRankAreMasks) {
  const Masks masks = masks_of_one_rank();
  const std::size_t count = masks.embedding.values.size();
  constexpr std::size_t kMasks = 6;  // the embedding's, two of a layer, three of another
  std::array<std::size_t, kMasks> kept{};
  std::array<std::array<std::size_t, kMasks>, kMasks> same{};
  for (std::size_t i = 0; i < count; ++i) {
    const int of_layer = masks.outputs.values[i];
    const int of_decoder = masks.decoder_outputs.values[i];
    ASSERT_TRUE(of_layer >= 0 && of_layer <= 6 && of_layer % 2 == 0) << of_layer;
    ASSERT_TRUE(of_decoder >= 0 && of_decoder <= 14 && of_decoder % 2 == 0) << of_decoder;
    const std::array<int, kMasks> bits = {masks.embedding.values[i] / 2,
                                          of_layer / 2 % 2,
                                          of_layer / 4,
                                          of_decoder / 2 % 2,
                                          of_decoder / 4 % 2,
                                          of_decoder / 8};
    ASSERT_EQ(masks.embedding.values[i], 2 * (bits[0] & 1));
    ASSERT_EQ(masks.embedding_backward.values[i], 2 * bits[0]);
    ASSERT_EQ(masks.attention_backward.values[i], 2 * bits[1]);
    ASSERT_EQ(masks.mlp_backward.values[i], 2 * bits[2]);
    ASSERT_EQ(masks.cross_backward.values[i], 2 * bits[5]);
    for (std::size_t a = 0; a < kMasks; ++a) {
      kept[a] += static_cast<std::size_t>(bits[a]);
      for (std::size_t b = 0; b < a; ++b) same[a][b] += bits[a] == bits[b] ? 1 : 0;
    }
  }
  const auto of_count = [&](std::size_t part) {
    return static_cast<double>(part) / static_cast<double>(count);
  };
  for (std::size_t a = 0; a < kMasks; ++a) {
    EXPECT_NEAR(of_count(kept[a]), 0.5, 0.02);
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_NEAR(of_count(same[a][b]), 0.5, 0.02) << a << " and " << b;
    }
  }
}

// Of the keys that the queries see, which only those bits are of, half are kept.
void expect_half_of_keys(const MaskTable& table, index_t head_dim,
                         const std::function<index_t(index_t)>& keys_of_query) {
  index_t kept = 0, all = 0;
  for (std::size_t i = 0; i < table.values.size(); ++i) {
    const auto at = static_cast<index_t>(i);
    const index_t query = at / table.columns % kSequence, column = at % head_dim;
    const index_t visible =
        std::clamp<index_t>(keys_of_query(query) - column * kMaskBits, 0, kMaskBits);
    const int bits = table.values[i];
    ASSERT_GE(bits, 0);
    ASSERT_LT(bits, 1 << visible);
    kept += std::popcount(static_cast<unsigned>(bits));
    all += visible;
  }
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(all), 0.5, 0.02);
}

TEST(LayoutMasks, OfOneRankHaveABitForEachKey) {
  const Masks masks = masks_of_one_rank();
  expect_half_of_keys(masks.probabilities, kMaskHeadDim,
                      [](index_t query) { return query + 1; });
  expect_half_of_keys(masks.cross_probabilities, kMaskCrossDim,
                      [](index_t) { return kMaskSource; });
}

}  // namespace
}  // namespace trireme::test
