// What is masked, against a plain version of the rules and against a simulation of its
// own, and by what it is replaced.
#include "data/word_masking.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "unit/data/binomial.hpp"

namespace trireme::data {
namespace {

constexpr std::int32_t kClassify = 2, kSeparate = 3, kMask = 4, kFirstWord = 5;
constexpr std::int32_t kVocabulary = 1000;

// Every fourth id goes on with a word.
std::shared_ptr<const MaskedVocabulary> made_vocabulary() {
  MaskedVocabulary vocabulary{.padding = 0,
                              .classify = kClassify,
                              .separate = kSeparate,
                              .mask = kMask,
                              .end_of_document = kSeparate,
                              .begins_word = std::vector<std::uint8_t>(kVocabulary, 1),
                              .is_structural = std::vector<std::uint8_t>(kVocabulary, 0),
                              .ordinary = {}};
  for (const std::size_t id : {0, 2, 3, 4}) vocabulary.is_structural[id] = 1;
  for (std::int32_t id = kFirstWord; id < kVocabulary; ++id) {
    vocabulary.begins_word[static_cast<std::size_t>(id)] = id % 4 == 0 ? 0 : 1;
    vocabulary.ordinary.push_back(id);
  }
  return std::make_shared<const MaskedVocabulary>(vocabulary);
}

MaskedRules masking_rules(index_t ngrams, bool whole_words) {
  return {.sequence = 128,
          .predictions = 20,
          .whole_words = whole_words,
          .max_ngrams = ngrams,
          .vocabulary = made_vocabulary()};
}

using MaskedIds = std::vector<std::int32_t>;

// [CLS] words [SEP] words [SEP], with a [SEP] here and there.
MaskedIds random_text(std::mt19937& random, std::size_t tokens) {
  MaskedIds ids = {kClassify};
  while (ids.size() + 1 < tokens) {
    const auto word = static_cast<std::int32_t>(random() % (kVocabulary - kFirstWord));
    ids.push_back(random() % 40 == 0 ? kSeparate : kFirstWord + word);
  }
  ids.push_back(kSeparate);
  return ids;
}

// The words of a text, each with its positions.
std::vector<std::vector<std::int32_t>> words_of_text(const MaskedIds& ids,
                                                     const MaskedRules& rules) {
  std::vector<std::vector<std::int32_t>> words;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    const auto at = static_cast<std::int32_t>(i);
    if (rules.vocabulary->is_structural[id] != 0) continue;
    const bool goes_on = rules.whole_words && rules.vocabulary->begins_word[id] == 0 &&
                         !words.empty() && words.back().back() == at - 1;
    if (goes_on) {
      words.back().push_back(at);
    } else {
      words.push_back({at});
    }
  }
  return words;
}

// The rules of word_masking.hpp, by lists and sets. below(n) draws.
template <class Below>
std::set<std::int32_t> plain_masking(const MaskedIds& ids, std::size_t wanted,
                                     const MaskedRules& rules, const Below& below) {
  const auto words = words_of_text(ids, rules);
  index_t multiple = 1, all_parts = 0;
  for (index_t n = 1; n <= rules.max_ngrams; ++n) multiple = std::lcm(multiple, n);
  for (index_t n = 1; n <= rules.max_ngrams; ++n) all_parts += multiple / n;
  std::vector<std::size_t> left(words.size());
  std::iota(left.begin(), left.end(), std::size_t{0});
  std::set<std::int32_t> masked;
  while (!left.empty() && masked.size() < wanted) {
    const auto at = static_cast<std::size_t>(below(std::ssize(left)));
    const std::size_t word = left[at];
    left[at] = left.front();
    left.erase(left.begin());
    std::size_t n = 1;
    if (rules.max_ngrams > 1) {
      index_t part = below(all_parts);
      while (part >= multiple / static_cast<index_t>(n)) {
        part -= multiple / static_cast<index_t>(n++);
      }
    }
    std::vector<std::int32_t> ngram;
    for (; n > 0; --n) {  // a shorter one where there is no room
      ngram = words[word];
      for (std::size_t next = word + 1; next < std::min(word + n, words.size()); ++next) {
        if (words[next].front() != ngram.back() + 1) break;
        ngram.insert(ngram.end(), words[next].begin(), words[next].end());
      }
      if (masked.size() + ngram.size() <= wanted) break;
    }
    const auto is_masked = [&](std::int32_t i) { return masked.contains(i); };
    if (n == 0 || std::ranges::any_of(ngram, is_masked)) continue;
    masked.insert(ngram.begin(), ngram.end());
  }
  return masked;
}

TEST(WordMasking, IsThatOfThePlainRules) {
  std::mt19937 random(1);
  std::size_t masked = 0;
  for (const index_t ngrams : {1, 2, 3, 16}) {
    for (const bool whole_words : {true, false}) {
      const MaskedRules rules = masking_rules(ngrams, whole_words);
      WordMasking masking(rules);
      for (index_t window = 0; window < 500; ++window) {
        const MaskedIds ids = random_text(random, 3 + random() % 126);
        const auto wanted = static_cast<index_t>(1 + random() % 20);
        const SampleId sample{0, 0, window};
        Draws draws(5, sample, Draws::Purpose::masked_words);
        const auto expected = plain_masking(ids, static_cast<std::size_t>(wanted), rules,
                                            [&](index_t n) { return draws.below(n); });
        const auto found =
            masking.choose(ids, wanted, Draws(5, sample, Draws::Purpose::masked_words));
        ASSERT_THAT(found, ::testing::ElementsAreArray(expected)) << ngrams;
        masked += found.size();
      }
    }
  }
  EXPECT_GT(masked, 20000u);
}

// Of single tokens as many as are wanted, each position as often; of words so many unless
// none that is left has room.
TEST(WordMasking, MasksAsManyAsWanted) {
  std::mt19937 random(2);
  constexpr index_t kTexts = 8000, kTokens = 128, kWanted = 19;
  const MaskedRules single = masking_rules(1, false), whole = masking_rules(1, true);
  WordMasking of_tokens(single), of_words(whole);
  std::vector<index_t> count(kTokens);
  MaskedIds plain(kTokens, 7);
  plain.front() = kClassify;
  plain.back() = kSeparate;
  for (index_t window = 0; window < kTexts; ++window) {
    const Draws draws(6, {0, 0, window}, Draws::Purpose::masked_words);
    const auto tokens = of_tokens.choose(plain, kWanted, draws);
    ASSERT_EQ(std::ssize(tokens), kWanted);
    for (const std::int32_t at : tokens) ++count[static_cast<std::size_t>(at)];
    const MaskedIds ids = random_text(random, kTokens);
    const auto words = of_words.choose(ids, kWanted, draws);
    const std::set<std::int32_t> masked(words.begin(), words.end());
    ASSERT_TRUE(std::ranges::is_sorted(words));
    ASSERT_EQ(masked.size(), words.size());
    for (const auto& word : words_of_text(ids, whole)) {
      const auto in_word = std::ranges::count_if(
          word, [&](std::int32_t at) { return masked.contains(at); });
      ASSERT_TRUE(in_word == 0 || in_word == std::ssize(word));
      ASSERT_TRUE(in_word > 0 || std::ssize(masked) + std::ssize(word) > kWanted);
    }
  }
  EXPECT_EQ(count.front() + count.back(), 0);
  for (std::size_t at = 1; at + 1 < count.size(); ++at) {
    test::expect_binomial(count[at], kTexts, kWanted / 126.0,
                          "position " + std::to_string(at));
  }
}

// Runs of masked words of each length, and words of each number of pieces, over 10^6
// tokens, as often as where another generator draws by the plain rules.
TEST(WordMasking, NgramsAreAsOftenAsSimulated) {
  constexpr std::size_t kTokens = 128, kTexts = 7900, kWanted = 19;
  for (const index_t ngrams : {3, 5}) {
    const MaskedRules rules = masking_rules(ngrams, true);
    WordMasking masking(rules);
    std::mt19937 random(3);
    std::map<std::size_t, index_t> runs[2], pieces[2];
    for (std::size_t window = 0; window < kTexts; ++window) {
      const MaskedIds ids = random_text(random, kTokens);
      const auto found = masking.choose(
          ids, kWanted,
          {7, {0, 1, static_cast<index_t>(window)}, Draws::Purpose::masked_words});
      const std::set<std::int32_t> masked[2] = {
          {found.begin(), found.end()},
          plain_masking(ids, kWanted, rules, [&](index_t n) {
            return std::uniform_int_distribution<index_t>(0, n - 1)(random);
          })};
      for (int i = 0; i < 2; ++i) {
        std::size_t run = 0;
        for (const auto& word : words_of_text(ids, rules)) {
          const bool is_masked = masked[i].contains(word.front());
          if (is_masked) ++pieces[i][word.size()];
          if (!is_masked && run > 0) ++runs[i][run];
          run = is_masked ? run + 1 : 0;
        }
      }
    }
    for (std::size_t length = 1; length <= 8; ++length) {
      test::expect_alike(runs[0][length], runs[1][length],
                         "run of " + std::to_string(length));
      test::expect_alike(pieces[0][length], pieces[1][length],
                         "word of " + std::to_string(length));
    }
    EXPECT_GT(runs[0][static_cast<std::size_t>(ngrams)], 1000);
  }
}

TEST(WordMasking, ReplacesEightOneOne) {
  constexpr index_t kTokens = 1'000'000;
  const auto vocabulary = made_vocabulary();
  Draws draws(9, {0, 0, 0}, Draws::Purpose::replacements);
  const auto ordinary = static_cast<double>(vocabulary->ordinary.size());
  std::vector<index_t> count(kVocabulary);
  for (index_t i = 0; i < kTokens; ++i) {
    ++count[static_cast<std::size_t>(replacement_of(700, *vocabulary, draws))];
  }
  test::expect_binomial(count[kMask], kTokens, 0.8, "[MASK]");
  test::expect_binomial(count[700], kTokens, 0.1 + 0.1 / ordinary, "itself");
  index_t others = 0;
  for (const std::int32_t id : vocabulary->ordinary) {
    if (id == 700) continue;
    others += count[static_cast<std::size_t>(id)];
    test::expect_binomial(count[static_cast<std::size_t>(id)], kTokens, 0.1 / ordinary,
                          "id " + std::to_string(id));
  }
  EXPECT_EQ(others + count[kMask] + count[700], kTokens);
}

TEST(WordMasking, WhatIsNoTextIsLeftAlone) {
  WordMasking masking(masking_rules(3, true));
  const auto choose = [&](const MaskedIds& ids) {
    const auto found =
        masking.choose(ids, 3, {1, {0, 0, 0}, Draws::Purpose::masked_words});
    return MaskedIds(found.begin(), found.end());
  };
  EXPECT_EQ(choose({kClassify, kSeparate}), MaskedIds());
  EXPECT_EQ(choose({kClassify, kMask, 0, 8, kSeparate}),
            MaskedIds{3});  // goes on with nothing
  EXPECT_EQ(choose({kClassify, 7, 8, 8, 8, kSeparate}), MaskedIds());  // a word of four
}

}  // namespace
}  // namespace trireme::data
