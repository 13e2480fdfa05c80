// Dropout masks in every layout are those of one rank, bit by bit: of the embedding, of
// attention probabilities, and of both outputs of a layer, forward and backward.
#include <gtest/gtest.h>

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
  // Backward, the gradients of all rows come together on every tensor rank.
  expect("attention output, backward", &Masks::attention_backward, layout.tensor);
  expect("mlp output, backward", &Masks::mlp_backward, layout.tensor);
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
  Masks masks = masks_of_one_rank();
  const std::size_t count = masks.embedding.values.size();
  std::size_t embedding = 0, attention = 0, mlp = 0, same = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int kept = masks.embedding.values[i] / 2;
    const int of_attention = masks.outputs.values[i] / 2 % 2;
    const int of_mlp = masks.outputs.values[i] / 4;
    ASSERT_TRUE(kept == 0 || kept == 1);
    ASSERT_GE(masks.outputs.values[i], 0);
    ASSERT_EQ(masks.outputs.values[i], 2 * of_attention + 4 * of_mlp);
    ASSERT_EQ(masks.embedding_backward.values[i], 2 * kept);
    ASSERT_EQ(masks.attention_backward.values[i], 2 * of_attention);
    ASSERT_EQ(masks.mlp_backward.values[i], 2 * of_mlp);
    embedding += static_cast<std::size_t>(kept);
    attention += static_cast<std::size_t>(of_attention);
    mlp += static_cast<std::size_t>(of_mlp);
    same += kept == of_attention || of_attention == of_mlp ? 1 : 0;
  }
  for (const std::size_t kept : {embedding, attention, mlp}) {
    EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(count), 0.5, 0.02);
  }
  EXPECT_LT(same, count * 4 / 5);
  // Query q of a head sees q + 1 keys.
  std::size_t bits = 0;
  for (index_t sample = 0; sample < kGlobal; ++sample) {
    for (index_t q = 0; q < kSequence; ++q) {
      for (index_t j = 0; j < kMaskHeads * kMaskHeadDim; ++j) {
        const int row = masks.probabilities.at(sample, q, j);
        const index_t visible =
            std::clamp<index_t>(q + 1 - j % kMaskHeadDim * kMaskBits, 0, kMaskBits);
        ASSERT_GE(row, 0);
        ASSERT_LT(row, 1 << visible);
        for (int rest = row; rest > 0; rest /= 2) bits += rest % 2 != 0 ? 1 : 0;
      }
    }
  }
  const auto visible =
      static_cast<double>(kGlobal * kMaskHeads * kSequence * (kSequence + 1) / 2);
  EXPECT_NEAR(static_cast<double>(bits) / visible, 0.5, 0.02);
}

}  // namespace
}  // namespace trireme::test
