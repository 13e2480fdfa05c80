// Tokens drawn by launches: those of the definition, sorted whole and walked along, for
// any limits, ties, layouts of the logits and types; weights that are the exponential's;
// and how texts go on and end.
#include "kernels/sampling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "kernels/impl/token_weights.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using Values = std::vector<double>;
using Floats = std::vector<float>;

// Rows of texts on the device, of which each may get so many tokens.
struct Rows {
  Rows(const Values& sizes_in, double left_in, index_t most_in = 4)
      : count(std::ssize(sizes_in)),
        most(most_in),
        tokens(sizes_in.size(), 0.0),
        positions(sizes_in),
        lengths(sizes_in),
        sizes(sizes_in),
        left(sizes_in.size(), left_in),
        counts(sizes_in.size(), 0.0),
        drawn(static_cast<std::size_t>(count * most), -77.0),
        owners(sizes_in.size(), 0.0) {
    Values one_less;
    for (const double size : sizes_in) one_less.push_back(size - 1);
    positions.set(one_less);
  }
  TextRows view() const {
    return {
        tokens.vector(), positions.vector(), lengths.vector(), sizes.vector(),
        left.vector(),   owners.vector(),    counts.vector(),  drawn.matrix(count, most)};
  }

  index_t count, most;
  test::Array<std::int32_t> tokens, positions, lengths, sizes, left, counts, drawn;
  test::Array<std::uint64_t> owners;
};

// Logits of texts as a tensor group of so many ranks gathers them, NaN behind the words.
template <class T>
struct Logits {
  Logits(const std::vector<Floats>& of_texts, index_t ranks_in = 1, index_t padding = 0)
      : vocabulary(std::ssize(of_texts[0])),
        texts(std::ssize(of_texts)),
        ranks(ranks_in),
        share((vocabulary + ranks - 1) / ranks),
        columns(share + padding),
        data(values(of_texts)) {}

  Values values(const std::vector<Floats>& of_texts) const {
    Values all(static_cast<std::size_t>(ranks * texts * columns), NAN);
    for (index_t text = 0; text < texts; ++text) {
      for (index_t i = 0; i < vocabulary; ++i) {
        all[((i / share) * texts + text) * columns + i % share] = of_texts[text][i];
      }
    }
    return all;
  }
  TextLogits<T> view(index_t usable = 0) const {
    return {.data = data.vector().data(),
            .count = texts,
            .columns = columns,
            .ranks = ranks,
            .share = share,
            .usable = usable > 0 ? usable : vocabulary};
  }

  index_t vocabulary, texts, ranks, share, columns;
  test::Array<T> data;
};

// Of one text; position: the size of the text.
template <class T>
std::int32_t drawn_by_launch(const SamplingRule& rule, const Logits<T>& logits,
                             double position, index_t usable = 0) {
  const Rows rows({position}, 9);
  draw_tokens<T>(Exec(), rule, logits.view(usable), -1, 1 << 20, rows.view());
  return static_cast<std::int32_t>(rows.drawn.values()[0]);
}

std::int32_t drawn_plainly(const SamplingRule& rule, const Floats& logits,
                           std::uint64_t owner, std::uint64_t position) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (rule.temperature == 0) return static_cast<std::int32_t>(order[0]);
  if (rule.top_k > 0 && rule.top_k < std::ssize(order)) {
    order.resize(extent(rule.top_k));
  }
  const float largest = logits[order[0]];
  const auto weight = [&](std::size_t i) {
    return static_cast<std::uint64_t>(
        token_weight(logits[i], largest, inverse_of(rule.temperature)));
  };
  const auto sum_of = [&](std::size_t count) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += weight(order[i]);
    return sum;
  };
  if (rule.top_p < 1.0) {
    const std::uint64_t least = share_of(rule.top_p, sum_of(order.size()));
    std::size_t count = 1;
    std::uint64_t sum = weight(order[0]);
    while (sum < least) sum += weight(order[count++]);
    order.resize(count);
  }
  std::uint64_t rest =
      multiply_high(number_of_draw(rule.seed, owner, position), sum_of(order.size()));
  std::ranges::sort(order);
  for (const std::size_t i : order) {
    if (rest < weight(i)) return static_cast<std::int32_t>(i);
    rest -= weight(i);
  }
  return -999;
}

// With ties, also at the largest.
Floats random_logits(std::size_t count, unsigned seed, double steps = 8) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  Floats logits(count);
  for (float& logit : logits) {
    logit = static_cast<float>(std::round(normal(random) * steps) / steps);
  }
  return logits;
}

const std::vector<SamplingRule> kRules = {
    {.temperature = 0.0},
    {.temperature = 1.0},
    {.temperature = 0.7, .top_k = 1},
    {.temperature = 0.7, .top_k = 10},
    {.temperature = 1.3, .top_k = 31},
    {.temperature = 1.0, .top_k = 100000},
    {.temperature = 1.0, .top_p = 1e-12},
    {.temperature = 1.0, .top_p = 0.5},
    {.temperature = 2.5, .top_p = 0.97, .seed = 5},
    {.temperature = 1.0, .top_p = 1.0 - 1e-9},
    {.temperature = 1.0, .top_k = 33, .top_p = 0.9},
    {.temperature = 4.0, .top_k = 20, .top_p = 0.999},
    {.temperature = 1e-300},
    {.temperature = 1e300, .top_k = 7}};

TEST(SamplingDraws, AreTheDefinitions) {
  for (const std::size_t size : {1u, 2u, 31u, 257u, 1000u, 5003u}) {
    for (const double steps : {0.2, 8.0, 1e6}) {  // few values, and hardly any twice
      const Floats of_text = random_logits(size, static_cast<unsigned>(size), steps);
      const Logits<float> logits({of_text});
      for (const SamplingRule& rule : kRules) {
        for (std::uint64_t position = 1; position < (size < 300 ? 12 : 4); ++position) {
          EXPECT_EQ(drawn_by_launch(rule, logits, static_cast<double>(position)),
                    drawn_plainly(rule, of_text, 0, position))
              << size << " tokens, " << rule.temperature << " " << rule.top_k << " "
              << rule.top_p;
        }
      }
    }
  }
}

// More tokens than the threads of a team take at a time: the first of equal ones, also
// where another thread comes to it first.
TEST(SamplingDraws, TheLargestOfManyTokens) {
  Floats of_text = random_logits(40'000, 3);
  of_text[39'999] = 60.0f;
  const SamplingRule greedy{.temperature = 0.0};
  EXPECT_EQ(drawn_by_launch(greedy, Logits<float>({of_text}), 1), 39'999);
  of_text[20'001] = of_text[33'000] = 60.0f;
  EXPECT_EQ(drawn_by_launch(greedy, Logits<float>({of_text}), 1), 20'001);
  of_text[7] = 60.0f;
  EXPECT_EQ(drawn_by_launch(greedy, Logits<float>({of_text}), 1), 7);
}

template <class T>
class SamplingOf : public testing::Test {};
TYPED_TEST_SUITE(SamplingOf, test::RealTypes);

// As one rank has them, in rows of whole pieces or not, and as three have.
TYPED_TEST(SamplingOf, LogitsLieWhereTheyDo) {
  using T = TypeParam;
  std::vector<Floats> of_texts;
  for (unsigned i = 0; i < 3; ++i) of_texts.push_back(random_logits(391, i));
  for (const index_t ranks : {1, 3, 4}) {
    for (const index_t padding : {0, 9}) {
      const Logits<T> logits(of_texts, ranks, padding);
      for (const SamplingRule& rule : kRules) {
        const Rows rows({5, 6, 7}, 9);
        draw_tokens<T>(Exec(), rule, logits.view(), -1, 1 << 20, rows.view());
        const Values got = rows.drawn.values();
        for (unsigned i = 0; i < 3; ++i) {
          EXPECT_EQ(got[i * 4], drawn_plainly(rule, of_texts[i], 0, 5 + i))
              << ranks << " ranks, padding of " << padding;
        }
      }
    }
  }
}

TEST(SamplingDraws, OnlyUsableTokens) {
  Floats of_text = random_logits(100, 1);
  of_text[60] = 50.0f;
  of_text[99] = NAN;
  for (const index_t ranks : {1, 4}) {
    const Logits<float> logits({of_text}, ranks);
    for (const SamplingRule& rule : kRules) {
      EXPECT_EQ(drawn_by_launch(rule, logits, 3, 55),
                drawn_plainly(rule, Floats(of_text.begin(), of_text.begin() + 55), 0, 3));
    }
  }
}

TEST(SamplingDraws, DependOnSeedOwnerAndSize) {
  const Logits<float> logits({Floats(5000, 0.0f)});
  const auto draw = [&](std::uint64_t seed, double owner, double size) {
    Rows rows({size}, 9);
    rows.owners.set({owner});
    draw_tokens<float>(Exec(), {.seed = seed}, logits.view(), -1, 1 << 20, rows.view());
    return rows.tokens.values()[0];
  };
  const double base = draw(1, 3, 4);
  EXPECT_EQ(base, drawn_plainly({.seed = 1}, Floats(5000, 0.0f), 3, 4));
  EXPECT_EQ(draw(1, 3, 4), base);
  EXPECT_NE(draw(2, 3, 4), base);
  EXPECT_NE(draw(1, 3 + 0x1p32, 4), base);
  EXPECT_NE(draw(1, 3, 5), base);
}

TEST(SamplingDraws, FollowTheSoftmax) {
  const Floats of_text = {0.3f, -1.0f, 2.0f, 0.3f, 1.1f, -7.0f, -0.0f, 1.9f};
  constexpr int kDraws = 20000;
  const Logits<float> logits(std::vector<Floats>(100, of_text));
  Values counts(of_text.size(), 0.0), sizes(100);
  for (int begin = 0; begin < kDraws; begin += 100) {
    std::iota(sizes.begin(), sizes.end(), begin + 1);
    const Rows rows(sizes, 9);
    draw_tokens<float>(Exec(), {.temperature = 1.5}, logits.view(), -1, 1 << 20,
                       rows.view());
    for (const double token : rows.tokens.values()) ++counts[static_cast<int>(token)];
  }
  double total = 0, chi2 = 0;
  for (const float logit : of_text) total += std::exp(logit / 1.5);
  for (std::size_t i = 0; i < of_text.size(); ++i) {
    const double want = kDraws * std::exp(of_text[i] / 1.5) / total;
    chi2 += (counts[i] - want) * (counts[i] - want) / want;
  }
  EXPECT_LE(chi2, 7 + 5 * std::sqrt(14.0));
}

TEST(SamplingDraws, TiesAreTheLowerTokensFirst) {
  const Logits<float> logits({{-0.0f, 0.0f, -1.0f, 0.0f, 0.0f}});
  EXPECT_EQ(drawn_by_launch({.temperature = 0.0}, logits, 1), 0);
  std::vector<int> counts(5, 0);
  for (int i = 1; i < 60; ++i) ++counts[drawn_by_launch({.top_k = 2}, logits, i)];
  EXPECT_THAT(counts, testing::ElementsAre(testing::Gt(0), testing::Gt(0), 0, 0, 0));
  // 0.5 of four equal ones is two of them.
  counts.assign(5, 0);
  for (int i = 1; i < 60; ++i) {
    ++counts[drawn_by_launch({.top_k = 4, .top_p = 0.5}, logits, i)];
  }
  EXPECT_THAT(counts, testing::ElementsAre(testing::Gt(0), testing::Gt(0), 0, 0, 0));
}

TEST(SamplingDraws, NotFiniteIsNoToken) {
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    Floats of_text = random_logits(1000, 1);
    of_text[700] = of_text[801] = bad;
    for (const SamplingRule& rule : kRules) {
      const Rows rows({5}, 9);
      draw_tokens<float>(Exec(), rule, Logits<float>({of_text}).view(), -1, 1 << 20,
                         rows.view());
      const auto drawn = static_cast<std::int32_t>(rows.drawn.values()[0]);
      EXPECT_FALSE(TextRows::is_token(drawn));
      EXPECT_EQ(TextRows::bad_logit(drawn), 700);
      EXPECT_EQ(rows.lengths.values()[0], 0) << "the text goes on";
      EXPECT_EQ(rows.tokens.values()[0], 0) << "the token that was read";
    }
  }
}

TEST(SamplingTexts, GoOnAndEnd) {
  // Token 2 is drawn by all but the last one.
  Rows rows({5, 8, 3, 6}, 9, 2);
  rows.left.set({9, 9, 1, 9});
  rows.lengths.set({5, 8, 3, 0});
  rows.tokens.set({1, 1, 1, 1});
  const Logits<float> logits(std::vector<Floats>(4, Floats{0, 1, 5, 2}));
  const auto step = [&](std::int32_t end_of_document) {
    draw_tokens<float>(Exec(), {.temperature = 0}, logits.view(), end_of_document, 8,
                       rows.view());
  };
  step(-1);
  EXPECT_EQ(rows.tokens.values(), (Values{2, 1, 1, 1}));
  EXPECT_EQ(rows.positions.values(), (Values{5, 7, 2, 5}));
  // The second has filled its 8 positions, the third has all its tokens.
  EXPECT_EQ(rows.lengths.values(), (Values{6, 0, 0, 0}));
  EXPECT_EQ(rows.sizes.values(), (Values{6, 9, 4, 6}));
  EXPECT_EQ(rows.left.values(), (Values{8, 8, 0, 9}));
  step(2);  // the first ends its document
  EXPECT_EQ(rows.lengths.values(), Values(4, 0.0));
  EXPECT_EQ(rows.counts.values(), (Values{2, 1, 1, 0}));
  EXPECT_EQ(rows.drawn.values(), (Values{2, 2, 2, -77, 2, -77, -77, -77}));
  step(-1);
  EXPECT_EQ(rows.counts.values(), (Values{2, 1, 1, 0}));
  // Where there is no more room for what is drawn, a text waits.
  Rows full({1}, 9, 1);
  draw_tokens<float>(Exec(), {.temperature = 0}, Logits<float>({{0, 1}}).view(), -1, 8,
                     full.view());
  EXPECT_EQ(full.lengths.values(), Values(1, 0.0));
}

// Whole numbers, within float's rounding of the exponential; where that is large, and
// where it becomes none.
TEST(SamplingWeights, AreTheExponentialsToTheNearestWholeNumber) {
  EXPECT_EQ(token_weight(3.0f, 3.0f, 0.7f), static_cast<float>(kLargestWeight));
  float last = 0;
  for (int i = 0; i <= 30000; ++i) {
    const float x = -30.0f + 0.001f * static_cast<float>(i);
    const float weight = token_weight(x, 0.0f, 1.0f);
    const double want = 0x1p32 * std::exp(static_cast<double>(x));
    EXPECT_EQ(weight, std::round(weight));
    EXPECT_NEAR(weight, want, 0.501 + 3e-7 * want) << x;
    EXPECT_GE(weight, last);
    last = weight;
  }
  EXPECT_EQ(token_weight(-INFINITY, 0.0f, 1.0f), 0.0f);
  EXPECT_EQ(token_weight(-3e38f, 3e38f, 1.0f), 0.0f);
  EXPECT_EQ(token_weight(-3e38f, 3e38f, 0.0f), 0.0f);  // no number times 0
  EXPECT_EQ(token_weight(-5.0f, 3.0f, 0.0f), static_cast<float>(kLargestWeight));
}

TEST(SamplingWeights, OrderAndProducts) {
  const Floats rising = {-3e38f, -1.0f, -1e-45f, 0.0f, 1e-45f, 2.0f, 3e38f};
  for (std::size_t i = 1; i < rising.size(); ++i) {
    EXPECT_LT(order_of(rising[i - 1]), order_of(rising[i])) << rising[i];
  }
  EXPECT_EQ(order_of(-0.0f), order_of(0.0f));
  EXPECT_GT(order_of(-NAN), order_of(3e38f));
  EXPECT_EQ(multiply_high(~0ull, ~0ull), ~0ull - 1);
  EXPECT_EQ(multiply_high(1ull << 63, 6), 3u);
  EXPECT_EQ(multiply_high(0x123456789abcdef0ull, 0xfedcba9876543210ull),
            0x121fa00ad77d7422ull);
  EXPECT_EQ(share_of(0.5, 7), 4u);
  EXPECT_EQ(share_of(0.5, 8), 4u);
  EXPECT_EQ(share_of(1e-12, 8), 1u);
}

TEST(SamplingErrors, AreNamed) {
  const Rows rows({1}, 9);
  const auto message_of = [&](const TextLogits<float>& logits) {
    try {
      draw_tokens<float>(Exec(), {}, logits, -1, 8, rows.view());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(message_of({.columns = 4, .share = 4, .usable = 5}),
              testing::HasSubstr("5 tokens of 1 rank with 4 each"));
  EXPECT_THAT(message_of({.count = 2, .columns = 4, .share = 4, .usable = 4}),
              testing::HasSubstr("tokens of 1 text, logits of 2"));
}

TEST(SamplingCosts, LogitsAreReadOnce) {
  Tally tally;
  const Rows rows({1, 1}, 9);
  draw_tokens<bf16>(Exec::shape_only(tally), {.top_k = 3},
                    {.count = 2, .columns = 8, .share = 8, .usable = 5}, -1, 8,
                    rows.view());
  EXPECT_EQ(tally.kernel("trireme::kernels::draw_tokens").calls, 1);
  EXPECT_EQ(tally.kernel("trireme::kernels::draw_tokens").cost.bytes, 2 * 5 * 2);
}

}  // namespace
}  // namespace trireme::kernels
