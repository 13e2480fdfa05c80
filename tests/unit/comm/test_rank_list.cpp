// Ranks in one line.
#include "comm/rank_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

TEST(RankList, JoinsNeighbours) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7-8");
  std::vector<int> even;
  for (int rank = 0; rank < 40; rank += 2) even.push_back(rank);
  EXPECT_EQ(rank_list(even), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 12 more");
}

TEST(RankListGroups, AreInOrderOfTheirLowestRank) {
  EXPECT_EQ(grouped_by_text({"b", "a", "b", "b"}), "ranks 0, 2-3: b; rank 1: a");
  EXPECT_EQ(grouped_by_text({"b", "a", "b"}, {"n0", "n0", "n1"}),
            "ranks 0, 2 (on n0, n1): b; rank 1 (on n0): a");
}

TEST(RankListGroups, AreNotEndless) {
  std::vector<std::string> texts, hosts;
  for (int rank = 0; rank < 10; ++rank) {
    texts.push_back("t" + std::to_string(rank));
    hosts.push_back("h" + std::to_string(rank));
  }
  EXPECT_THAT(grouped_by_text(texts), testing::EndsWith("rank 7: t7; 2 more"));
  EXPECT_EQ(grouped_by_text(std::vector<std::string>(10, "t"), hosts),
            "ranks 0-9 (on h0, h1, h2, h3, 6 more): t");
}

}  // namespace
}  // namespace trireme::comm
