// inference/sampler.cpp — see sampler.hpp.
//
// A vocabulary has 50,000 tokens and more, and a step of generation takes milliseconds:
// tokens are gone through in blocks whose loops vectorise, and what is slower than that
// is done with the few that count. Top-k: the k-th largest of the blocks' largest logits
// is a bound that at least k tokens reach, and as a rule not many more. Nucleus: tokens
// so improbable that all of their kind together are less than what may be left out are
// dropped before the others are sorted.
#include "inference/sampler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/impl/token_weights.hpp"

namespace trireme::inference {

namespace {

constexpr std::size_t kBlock = 64;  // tokens

std::size_t blocks_of(std::size_t count) {
  return (count + kBlock - 1) / kBlock;
}

}  // namespace

void SamplingConfig::validate() const {
  std::string wrong;
  const auto check = [&](bool good, const std::string& message) {
    if (!good) wrong += (wrong.empty() ? "" : "\n") + message;
  };
  check(std::isfinite(temperature) && temperature >= 0.0,
        fmt::format("temperature {}: expected 0 (greedy) or a positive number",
                    temperature));
  check(top_k >= 0,
        fmt::format("top-k {}: expected 0 (no limit) or a number of tokens", top_k));
  check(top_p > 0.0 && top_p <= 1.0,
        fmt::format("top-p {}: expected a probability above 0, at most 1", top_p));
  TRIREME_REQUIRE_INPUT(wrong.empty(), "{}", wrong);
}

Sampler::Sampler(const SamplingConfig& config, index_t vocabulary) : config_(config) {
  config.validate();
  TRIREME_REQUIRE(vocabulary < kernels::kMostTokens,
                  "a vocabulary of {}: fewer than {} can be drawn from",
                  format_plural(vocabulary, "token"), kernels::kMostTokens);
  const std::size_t tokens = extent(vocabulary);
  largest_of_block_.reserve(blocks_of(tokens));
  bounds_.reserve(blocks_of(tokens));
  candidates_.reserve(tokens);
  weights_.reserve(tokens);
  sums_.reserve(blocks_of(tokens));
}

data::TokenId Sampler::choose(std::span<const Logit> logits, const Draw& draw) {
  TRIREME_REQUIRE(!logits.empty(), "no logits to choose a token from");
  const std::size_t best = find_largest(logits, draw);
  if (config_.temperature == 0.0) return static_cast<data::TokenId>(best);

  const Logit largest = logits[best];
  if (limits_count(logits.size())) {
    take_top_k(logits);
  } else {
    weights_.assign(logits.begin(), logits.end());
    weigh(largest);
    if (config_.top_p >= 1.0) return static_cast<data::TokenId>(fall(draw));
    take_all_but_the_least(logits);
  }
  keep_nucleus();
  // Candidates are in the order of ids whatever was cut away: limits that cut nothing
  // change nothing.
  std::ranges::sort(candidates_, {}, &Candidate::id);
  weights_.clear();
  for (const Candidate& candidate : candidates_) weights_.push_back(candidate.weight);
  return candidates_[fall(draw)].id;
}

// Whether top_k leaves out any of so many tokens.
bool Sampler::limits_count(std::size_t tokens) const {
  return config_.top_k > 0 && static_cast<std::size_t>(config_.top_k) < tokens;
}

// Fills largest_of_block_. The first of the largest; an Error where one is not finite.
std::size_t Sampler::find_largest(Logits logits, const Draw& draw) {
  largest_of_block_.clear();
  constexpr std::uint32_t kInfinite = 0x7f800000u;  // so many, or more, without the sign
  std::uint32_t magnitude = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, logits.size() - begin);
    Logit largest = logits[begin];
    for (std::size_t i = 0; i < count; ++i) {
      const Logit logit = logits[begin + i];
      largest = logit > largest ? logit : largest;
      magnitude = std::max(magnitude, std::bit_cast<std::uint32_t>(logit) & 0x7fffffffu);
    }
    largest_of_block_.push_back(largest);
  }
  if (magnitude >= kInfinite) {
    const auto bad =
        std::ranges::find_if(logits, [](Logit x) { return !std::isfinite(x); });
    TRIREME_REQUIRE(false,
                    "the logit of token {} at position {} is {}: the weights are not "
                    "those of a healthy model (did its training diverge?)",
                    bad - logits.begin(), draw.position, *bad);
  }
  const auto block = std::ranges::max_element(largest_of_block_);
  const auto first = static_cast<std::size_t>(block - largest_of_block_.begin()) * kBlock;
  return static_cast<std::size_t>(std::ranges::find(logits.subspan(first), *block) -
                                  logits.begin());
}

// weights_ = the weights of the logits in it.
void Sampler::weigh(Logit largest) {
  const Logit inverse = kernels::inverse_of(config_.temperature);
  for (Logit& weight : weights_) {
    weight = kernels::token_weight(weight, largest, inverse);
  }
}

// The candidates are the top_k largest.
void Sampler::take_top_k(Logits logits) {
  const auto keep = static_cast<std::size_t>(config_.top_k);
  Logit bound = -std::numeric_limits<Logit>::infinity();
  if (keep <= largest_of_block_.size()) {
    bounds_.assign(largest_of_block_.begin(), largest_of_block_.end());
    const auto last = bounds_.begin() + config_.top_k - 1;
    std::ranges::nth_element(bounds_, last, std::greater<>());
    bound = *last;
  }
  candidates_.clear();
  for (std::size_t block = 0; block < largest_of_block_.size(); ++block) {
    if (largest_of_block_[block] < bound) continue;
    const std::size_t end = std::min((block + 1) * kBlock, logits.size());
    for (std::size_t i = block * kBlock; i < end; ++i) {
      if (logits[i] < bound) continue;
      candidates_.push_back({logits[i], 0, static_cast<data::TokenId>(i)});
    }
  }
  if (candidates_.size() > keep) {
    std::ranges::nth_element(candidates_, candidates_.begin() + config_.top_k,
                             comes_before);
    candidates_.resize(keep);
  }
  // By id, and not in the order that nth_element left, which differs between libraries.
  std::ranges::sort(candidates_, {}, &Candidate::id);
  weights_.clear();
  for (const Candidate& candidate : candidates_) weights_.push_back(candidate.logit);
  weigh(std::ranges::max(largest_of_block_));
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    candidates_[i].weight = weights_[i];
  }
}

// The candidates are all tokens, but for those that together have less than 1 - top_p of
// the sum: none of them is needed to reach top_p.
void Sampler::take_all_but_the_least(Logits logits) {
  double total = 0.0;
  for (const Logit weight : weights_) total += static_cast<double>(weight);
  const auto least = static_cast<Logit>((1.0 - config_.top_p) * total /
                                        static_cast<double>(logits.size()) * 0.999);
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (weights_[i] < least) continue;
    candidates_.push_back({logits[i], weights_[i], static_cast<data::TokenId>(i)});
  }
}

// Of the candidates, the first whose weights reach top_p of the sum of weights_.
void Sampler::keep_nucleus() {
  if (config_.top_p >= 1.0) return;
  double total = 0.0;
  for (const Logit weight : weights_) total += static_cast<double>(weight);
  std::ranges::sort(candidates_, comes_before);
  const auto least = static_cast<double>(
      kernels::share_of(config_.top_p, static_cast<std::uint64_t>(total)));
  double sum = 0.0;
  std::size_t count = 0;
  while (count < candidates_.size() && sum < least) {
    sum += static_cast<double>(candidates_[count++].weight);
  }
  candidates_.resize(std::max<std::size_t>(count, 1));
}

std::size_t Sampler::fall(const Draw& draw) {
  sums_.clear();
  double total = 0.0;
  for (std::size_t begin = 0; begin < weights_.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, weights_.size() - begin);
    constexpr std::size_t kLanes = 8;
    double lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        lanes[l] += static_cast<double>(weights_[begin + i + l]);
      }
    }
    for (; i < count; ++i) lanes[0] += static_cast<double>(weights_[begin + i]);
    sums_.push_back(std::accumulate(lanes, lanes + kLanes, 0.0));
    total += sums_.back();
  }
  const std::uint64_t owner = draw.prompt | (draw.sample << 32);
  const auto target = static_cast<double>(
      kernels::multiply_high(kernels::number_of_draw(config_.seed, owner, draw.position),
                             static_cast<std::uint64_t>(total)));
  double sum = 0.0;
  std::size_t block = 0;
  while (target >= sum + sums_[block]) sum += sums_[block++];
  std::size_t place = block * kBlock;
  for (sum += static_cast<double>(weights_[place]); target >= sum;) {
    sum += static_cast<double>(weights_[++place]);
  }
  return place;
}

}  // namespace trireme::inference
