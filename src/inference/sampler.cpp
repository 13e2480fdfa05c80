// inference/sampler.cpp — see sampler.hpp.
#include "inference/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"

namespace trireme::inference {

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
  candidates_.reserve(static_cast<std::size_t>(vocabulary));
}

data::TokenId Sampler::choose(std::span<const double> logits, const Draw& draw) {
  TRIREME_REQUIRE(!logits.empty(), "no logits to choose a token from");
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    TRIREME_REQUIRE(
        std::isfinite(logits[i]),
        "the logit of token {} at position {} is {}: the weights are not those "
        "of a healthy model (did its training diverge?)",
        i, draw.position, logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  if (config_.temperature == 0.0) return static_cast<data::TokenId>(best);

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((logits[i] - logits[best]) / config_.temperature);
    candidates_.push_back({logits[i], weight, static_cast<data::TokenId>(i)});
  }
  keep_top_k();
  keep_nucleus();
  // Candidates are in the order of ids whatever was cut away: limits that cut nothing
  // change nothing.
  std::ranges::sort(candidates_, {}, &Candidate::id);
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const double target = uniform(draw) * total;
  double sum = 0.0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (target < sum) return candidate.id;
  }
  // Unreachable: the sum is added in the same order as the total, and target < total.
  return static_cast<data::TokenId>(best);
}

void Sampler::keep_top_k() {
  const auto keep = static_cast<std::size_t>(config_.top_k);
  if (keep == 0 || keep >= candidates_.size()) return;
  std::ranges::nth_element(candidates_, candidates_.begin() + config_.top_k,
                           comes_before);
  candidates_.resize(keep);
}

void Sampler::keep_nucleus() {
  if (config_.top_p >= 1.0) return;
  // Summed by id, not in the order nth_element left behind: that differs between
  // libraries.
  std::ranges::sort(candidates_, {}, &Candidate::id);
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  // All tokens below this weight together have less than 1 - top_p: none of them is
  // needed, and the rest is quickly sorted.
  const double least =
      (1.0 - config_.top_p) * total / static_cast<double>(candidates_.size());
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < least; });
  std::ranges::sort(candidates_, comes_before);
  double sum = 0.0;
  std::size_t count = 0;
  while (count < candidates_.size() && sum < config_.top_p * total) {
    sum += candidates_[count++].weight;
  }
  candidates_.resize(std::max<std::size_t>(count, 1));
}

double Sampler::uniform(const Draw& draw) const {
  const random::Generator generator{.seed = config_.seed,
                                    .owner = draw.prompt | (draw.sample << 32),
                                    .stream = random::Stream::evaluation};
  const random::Words words = generator.block(draw.position);
  const std::uint64_t bits =
      (static_cast<std::uint64_t>(words.word[0]) << 21) | (words.word[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace trireme::inference
