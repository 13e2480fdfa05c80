// Merging against a plain reference (lowest rank first, leftmost first), short pieces and
// long ones, with and without the cache.
#include "data/bpe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::data {
namespace {

struct Random {
  std::vector<std::string> tokens;
  std::vector<BpeModel::Merge> merges;
};

// Random merges over a few letters: ranks in no relation to ids.
Random random_merges(unsigned seed, int count) {
  Random made;
  for (int byte = 0; byte < 256; ++byte)
    made.tokens.emplace_back(1, static_cast<char>(byte));
  std::mt19937 random(seed);
  std::vector<TokenId> usable = {'a', 'b', 'c', 'd'};
  while (static_cast<int>(made.merges.size()) < count) {
    const Pair pair = {usable[random() % usable.size()],
                       usable[random() % usable.size()]};
    bool known = false;
    for (const auto& merge : made.merges) known = known || merge.pair == pair;
    if (known) continue;
    const auto id = static_cast<TokenId>(made.tokens.size());
    made.tokens.push_back(made.tokens[pair.left] + made.tokens[pair.right]);
    made.merges.push_back({pair, id});
    usable.push_back(id);
  }
  std::shuffle(made.merges.begin(), made.merges.end(), random);
  return made;
}

std::vector<TokenId> reference(const Random& made, const std::string& piece) {
  std::vector<TokenId> ids;
  for (const char byte : piece) ids.push_back(static_cast<unsigned char>(byte));
  while (true) {
    std::size_t best_rank = made.merges.size(), best = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (made.merges[rank].pair == Pair{ids[i], ids[i + 1]}) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == made.merges.size()) return ids;
    ids[best] = made.merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<long>(best) + 1);
  }
}

TEST(BpeEncode, EqualsThePlainReference) {
  std::mt19937 random(5);
  for (unsigned seed = 0; seed < 6; ++seed) {
    const Random made = random_merges(seed, 60);
    const BpeModel model(made.tokens, made.merges);
    BpeEncoder encoder(model);
    // 4, 8, 16 and 25 are where the cache's keys change, 97 where the algorithm does.
    for (const std::size_t length :
         {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 23, 24, 25, 33, 95, 96, 97, 257}) {
      for (int repeat = 0; repeat < 8; ++repeat) {
        std::string piece(length, 'a');
        for (char& letter : piece)
          letter = static_cast<char>('a' + random() % (1 + seed));
        std::vector<TokenId> plain, first, again;
        model.encode(piece, plain);
        encoder.encode(piece, first);
        encoder.encode(piece, again);
        const std::vector<TokenId> expected = reference(made, piece);
        ASSERT_EQ(plain, expected) << piece;
        ASSERT_EQ(first, expected) << piece;
        ASSERT_EQ(again, expected) << piece;
      }
    }
  }
}

TEST(BpeEncode, CacheForgetsAndMixesNothingUp) {
  const Random made = random_merges(1, 60);
  const BpeModel model(made.tokens, made.merges);
  BpeEncoder encoder(model);
  const auto check = [&](const std::string& piece) {
    std::vector<TokenId> ids, expected;
    encoder.encode(piece, ids);
    model.encode(piece, expected);
    ASSERT_EQ(ids, expected) << piece;
  };
  // More different pieces than the cache holds, of short and of long keys, and each again
  // while it is there.
  for (int i = 0; i < 300000; ++i) {
    const std::string piece = (i % 2 == 0 ? "ab" : "abcdabcdabcda") + std::to_string(i);
    check(piece);
    if (i % 7 == 0) check(piece);
  }
  // Eight letters twice and three times: keys that only their length tells apart, some of
  // them in one set.
  std::mt19937 random(5);
  for (int i = 0; i < 200000; ++i) {
    std::string letters(8, 'a');
    for (char& letter : letters) letter = static_cast<char>('a' + random() % 26);
    check(letters + letters);
    check(letters + letters + letters);
    check(letters + letters);
  }
  std::vector<TokenId> none;
  encoder.encode("", none);
  EXPECT_TRUE(none.empty());
}

TEST(BpeModel, TakesWholePiecesFirstWhenAsked) {
  Random made = random_merges(2, 5);
  made.tokens.push_back("zzz");  // in the vocabulary, but no merges lead to it
  const BpeModel merging(made.tokens, made.merges);
  const BpeModel whole(made.tokens, made.merges, true);
  std::vector<TokenId> ids;
  merging.encode("zzz", ids);
  EXPECT_EQ(ids.size(), 3u);
  ids.clear();
  whole.encode("zzz", ids);
  EXPECT_EQ(ids, std::vector<TokenId>{static_cast<TokenId>(made.tokens.size() - 1)});
}

TEST(BpeModel, NeedsAllBytes) {
  Random made = random_merges(2, 5);
  made.tokens[0x7F] = "xy";
  EXPECT_THAT(test::message_of<InputError>([&] { BpeModel(made.tokens, made.merges); }),
              ::testing::HasSubstr("no token for the byte 0x7F"));
}

}  // namespace
}  // namespace trireme::data
