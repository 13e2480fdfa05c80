// Sampler: the distribution it draws from, its limits, its order on ties, its seeds; and
// that its tokens are those of kernels/sampling.hpp.
#include "inference/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.hpp"
#include "base/random.hpp"
#include "kernels/sampling.hpp"
#include "support/arrays.hpp"

namespace trireme::inference {
namespace {

using data::TokenId;
using Logits = std::vector<step::Logit>;

std::vector<double> counts_of(const SamplingConfig& config, const Logits& logits,
                              int draws) {
  Sampler sampler(config, static_cast<index_t>(logits.size()));
  std::vector<double> counts(logits.size(), 0.0);
  for (int i = 0; i < draws; ++i) {
    counts[sampler.choose(logits, {.position = static_cast<std::uint64_t>(i)})] += 1;
  }
  return counts;
}

// Softmax over the tokens listed, zero elsewhere: the definition, in another order.
std::vector<double> expected(const Logits& logits, double temperature,
                             const std::vector<TokenId>& kept) {
  std::vector<double> p(logits.size(), 0.0);
  double total = 0;
  for (const TokenId id : kept) total += std::exp(logits[id] / temperature);
  for (const TokenId id : kept) p[id] = std::exp(logits[id] / temperature) / total;
  return p;
}

void expect_distribution(const std::vector<double>& counts,
                         const std::vector<double>& p) {
  double draws = 0, chi2 = 0;
  int categories = 0;
  for (const double c : counts) draws += c;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0.0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " should have been cut away";
      continue;
    }
    ++categories;
    chi2 += std::pow(counts[i] - draws * p[i], 2) / (draws * p[i]);
  }
  // Five standard deviations of chi-square with categories - 1 degrees of freedom.
  const double freedom = categories - 1;
  EXPECT_LE(chi2, freedom + 5 * std::sqrt(2 * freedom) + 10);
}

const Logits kLogits = {0.3f, -1.0f, 2.0f, 0.3f, 1.1f, -7.0f, 0.0f, 1.9f};

TEST(SamplerDistribution, IsTheSoftmax) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    expect_distribution(counts_of({.temperature = temperature}, kLogits, 40000),
                        expected(kLogits, temperature, {0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

TEST(SamplerDistribution, TopKKeepsTheLargestAndTheLowerIdOfEquals) {
  // 2.0, 1.9, 1.1, and of the two 0.3 the first.
  expect_distribution(counts_of({.top_k = 4}, kLogits, 20000),
                      expected(kLogits, 1.0, {2, 7, 4, 0}));
  expect_distribution(counts_of({.top_k = 1}, kLogits, 50), expected(kLogits, 1.0, {2}));
}

TEST(SamplerDistribution, TopPKeepsTheSmallestSetThatReachesIt) {
  // Of 2.0, 1.9, 1.1, 0.3, 0.3: 0.349, 0.316, 0.142, 0.064, 0.064.
  expect_distribution(counts_of({.top_p = 0.34}, kLogits, 200),
                      expected(kLogits, 1.0, {2}));
  expect_distribution(counts_of({.top_p = 0.36}, kLogits, 20000),
                      expected(kLogits, 1.0, {2, 7}));
  expect_distribution(counts_of({.top_p = 0.86}, kLogits, 20000),
                      expected(kLogits, 1.0, {2, 7, 4, 0}));
  expect_distribution(counts_of({.top_p = 1e-12}, kLogits, 50),
                      expected(kLogits, 1.0, {2}));
}

TEST(SamplerDistribution, TopPIsAShareOfWhatTopKLeft) {
  // Of {2.0, 1.9, 1.1} renormalised, 0.8 needs two; of all tokens it needs three.
  expect_distribution(counts_of({.top_k = 3, .top_p = 0.8}, kLogits, 20000),
                      expected(kLogits, 1.0, {2, 7}));
  expect_distribution(counts_of({.top_p = 0.8}, kLogits, 20000),
                      expected(kLogits, 1.0, {2, 7, 4}));
}

TEST(SamplerDistribution, LimitsThatCutNothingChangeNothing) {
  const auto plain = counts_of({}, kLogits, 500);
  EXPECT_EQ(counts_of({.top_k = 8}, kLogits, 500), plain);
  EXPECT_EQ(counts_of({.top_k = 100}, kLogits, 500), plain);
  EXPECT_EQ(counts_of({.top_p = 1.0 - 1e-9}, kLogits, 500), plain);
}

// The draw by the definition: sorted whole, cut, put in the order of ids, walked along.
TokenId drawn_plainly(const SamplingConfig& config, const Logits& logits, double number) {
  std::vector<std::pair<double, TokenId>> tokens;  // minus logit: the order of both
  for (std::size_t i = 0; i < logits.size(); ++i) {
    tokens.emplace_back(-logits[i], static_cast<TokenId>(i));
  }
  std::ranges::sort(tokens);
  const double largest = -tokens[0].first;
  if (config.top_k > 0 && config.top_k < std::ssize(tokens)) {
    tokens.resize(static_cast<std::size_t>(config.top_k));
  }
  const auto weight = [&](const auto& token) {
    return std::exp((-token.first - largest) / config.temperature);
  };
  double total = 0, sum = 0;
  for (const auto& token : tokens) total += weight(token);
  std::size_t count = 0;
  while (count < tokens.size() && sum < config.top_p * total) {
    sum += weight(tokens[count++]);
  }
  if (config.top_p < 1.0) tokens.resize(count);
  std::ranges::sort(tokens, {}, &std::pair<double, TokenId>::second);
  total = sum = 0;
  for (const auto& token : tokens) total += weight(token);
  for (const auto& token : tokens) {
    sum += weight(token);
    if (number * total < sum) return token.second;
  }
  return tokens.back().second;
}

// A vocabulary of many blocks, and of a broken one; limits below and above the number of
// blocks, which is 16.
TEST(SamplerDistribution, OfManyTokensIsTheDefinitions) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  Logits logits(1000);
  for (float& logit : logits) logit = std::round(normal(random) * 8) / 8;  // with ties
  for (const SamplingConfig& config :
       {SamplingConfig{}, SamplingConfig{.temperature = 0.7, .top_k = 10},
        SamplingConfig{.top_k = 16}, SamplingConfig{.top_k = 17},
        SamplingConfig{.top_k = 300, .top_p = 0.9}, SamplingConfig{.top_p = 0.5},
        SamplingConfig{.temperature = 2.5, .top_p = 0.97}}) {
    Sampler sampler(config, 1000);
    int differ = 0;
    for (std::uint64_t i = 0; i < 500; ++i) {
      const random::Generator generator{
          .seed = config.seed, .owner = 0, .stream = random::Stream::evaluation};
      const random::Words words = generator.block(i);
      const double number = static_cast<double>((std::uint64_t{words.word[0]} << 21) |
                                                (words.word[1] >> 11)) *
                            0x1p-53;
      differ += sampler.choose(logits, {.position = i}) !=
                drawn_plainly(config, logits, number);
    }
    // A number may fall so near the border of two tokens that rounding decides.
    EXPECT_LE(differ, 1) << config.top_k << " " << config.top_p;
  }
}

// As many texts as there are positions, drawn by a launch.
std::vector<double> drawn_by_launch(const SamplingConfig& config, const Logits& logits,
                                    int positions, double owner) {
  const auto count = static_cast<std::size_t>(positions);
  std::vector<double> all, sizes(count);
  for (int i = 0; i < positions; ++i) {
    all.insert(all.end(), logits.begin(), logits.end());
    sizes[static_cast<std::size_t>(i)] = i + 1;
  }
  const test::Array<float> on_device(all);
  const test::Array<std::int32_t> tokens(count), at(count), lengths(sizes), size(sizes),
      left(count, 9.0), counts(count), drawn(count);
  const test::Array<std::uint64_t> owners(count, owner);
  const auto width = static_cast<index_t>(logits.size());
  kernels::draw_tokens<float>(
      Exec(), {config.temperature, config.top_k, config.top_p, config.seed},
      {.data = on_device.vector().data(),
       .count = positions,
       .columns = width,
       .share = width,
       .usable = width},
      -1, 1 << 20,
      {tokens.vector(), at.vector(), lengths.vector(), size.vector(), left.vector(),
       owners.vector(), counts.vector(), drawn.matrix(positions, 1)});
  return drawn.values();
}

// Of a vocabulary like GPT-2's, and of small ones, with and without ties.
TEST(SamplerDevice, DrawsTheSameTokens) {
  constexpr int kPositions = 4;
  for (const std::size_t size : {7u, 1000u, 50257u}) {
    std::mt19937 random(static_cast<unsigned>(size));
    std::normal_distribution<float> normal(0.0f, 3.0f);
    for (const float steps : {4.0f, 1e5f}) {
      Logits logits(size);
      for (float& logit : logits) logit = std::round(normal(random) * steps) / steps;
      for (const SamplingConfig& config :
           {SamplingConfig{.temperature = 0}, SamplingConfig{},
            SamplingConfig{.temperature = 0.7, .top_k = 40},
            SamplingConfig{.top_k = 900, .top_p = 0.9}, SamplingConfig{.top_p = 0.5},
            SamplingConfig{.top_p = 1e-12}, SamplingConfig{.top_p = 1 - 1e-9},
            SamplingConfig{.temperature = 3.0, .top_p = 0.999, .seed = 8},
            SamplingConfig{.temperature = 1e-300, .top_p = 0.9},
            SamplingConfig{.temperature = 1e300, .top_k = 50}}) {
        Sampler sampler(config, static_cast<index_t>(size));
        std::vector<double> expected_tokens;
        for (int i = 0; i < kPositions; ++i) {
          expected_tokens.push_back(sampler.choose(
              logits, {.prompt = 3, .sample = 2, .position = std::uint64_t(i) + 1}));
        }
        EXPECT_EQ(drawn_by_launch(config, logits, kPositions, 3 + 2 * 0x1p32),
                  expected_tokens)
            << size << " tokens, " << config.temperature << " " << config.top_k << " "
            << config.top_p;
      }
    }
  }
}

TEST(SamplerGreedy, TakesTheFirstOfTheLargest) {
  Sampler sampler({.temperature = 0.0}, 4);
  EXPECT_EQ(sampler.choose(Logits{1, 3, 3, 2}, {}), 1u);
  EXPECT_EQ(sampler.choose(Logits{-5, -5, -5, -5}, {}), 0u);
}

TEST(SamplerStability, ExtremeLogitsAndTemperatures) {
  const Logits huge = {1e38f, -1e38f, 0.0f, 1e37f};
  for (const double temperature : {1e-300, 1e-6, 1.0}) {
    Sampler sampler({.temperature = temperature}, 4);
    EXPECT_EQ(sampler.choose(huge, {}), 0u);
  }
  expect_distribution(counts_of({.temperature = 1e300}, kLogits, 40000),
                      std::vector<double>(8, 0.125));
  // Weights that underflow to zero are never drawn.
  const auto counts = counts_of({}, {0.0, -2000.0, -2000.0}, 1000);
  EXPECT_EQ(counts[0], 1000);
}

TEST(SamplerStability, NotFiniteIsAnError) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      Sampler sampler({.temperature = temperature}, 3);
      try {
        sampler.choose(Logits{0.0, bad, 0.0}, {.position = 12});
        FAIL() << bad;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("logit of token 1 at position 12"));
      }
    }
  }
}

TEST(SamplerDraws, DependOnSeedPromptSampleAndPosition) {
  Logits logits(1000, 0.0f);
  const auto draw = [&](std::uint64_t seed, const Draw& at) {
    return Sampler({.seed = seed}, 1000).choose(logits, at);
  };
  const TokenId base = draw(1, {.prompt = 3, .sample = 4, .position = 5});
  EXPECT_EQ(draw(1, {.prompt = 3, .sample = 4, .position = 5}), base);
  EXPECT_NE(draw(2, {.prompt = 3, .sample = 4, .position = 5}), base);
  EXPECT_NE(draw(1, {.prompt = 4, .sample = 4, .position = 5}), base);
  EXPECT_NE(draw(1, {.prompt = 3, .sample = 5, .position = 5}), base);
  EXPECT_NE(draw(1, {.prompt = 3, .sample = 4, .position = 6}), base);
  // Prompt and sample do not run into each other.
  EXPECT_NE(draw(1, {.prompt = 1, .sample = 0}), draw(1, {.prompt = 0, .sample = 1}));
}

TEST(SamplerConfig, NamesEverythingOutOfRange) {
  try {
    SamplingConfig{.temperature = -1, .top_k = -2, .top_p = 0}.validate();
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("temperature -1"),
                                             testing::HasSubstr("top-k -2"),
                                             testing::HasSubstr("top-p 0")));
  }
  EXPECT_THROW((SamplingConfig{.temperature = std::nan("")}.validate()), InputError);
  EXPECT_THROW((SamplingConfig{.top_p = 1.5}.validate()), InputError);
}

}  // namespace
}  // namespace trireme::inference
