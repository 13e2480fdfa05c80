// data/sample_index.cpp — see sample_index.hpp.
//
// Whether a blend can be made is a function of the weights alone, so that the check of a
// deck asks it without a corpus and before a job waits, and the constructor asks the
// same. A share is an integer of 32 bits and not a double: how many of the first p
// positions are a corpus' must be the same bits on every machine. So a share that rounds
// to nothing, or to all, is an error: with the weights 1e10 and 1 the second corpus would
// get 0 of 2^32.
#include "data/sample_index.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "data/permutation.hpp"

namespace trireme::data {

std::vector<TokenRange> split_tokens(index_t tokens, const std::vector<double>& shares) {
  double sum = 0.0;
  std::string text;
  bool valid = !shares.empty();
  for (const double share : shares) {
    sum += share;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", share);
    valid = valid && share >= 0.0;
  }
  TRIREME_REQUIRE_INPUT(
      valid && std::abs(sum - 1.0) < 1e-6,
      "data.split is [{}]: expected shares of at least 0 that add up to 1", text);
  std::vector<TokenRange> parts;
  double until = 0.0;
  index_t begin = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    until += shares[i];
    // Rounding must not leave a crumb behind the last share that is not zero.
    const bool last = std::abs(until - 1.0) < 1e-9;
    const index_t end =
        last ? tokens
             : static_cast<index_t>(std::floor(until * static_cast<double>(tokens)));
    parts.push_back({begin, end});
    begin = end;
  }
  return parts;
}

SampleIndex::SampleIndex(TokenRange range, Windows windows, std::uint64_t seed,
                         Order order, const std::string& name, int corpus, Tail tail)
    : range_(range),
      windows_(windows),
      samples_((range.size() - windows.shared() +
                (tail == Tail::counted ? windows.stride - 1 : 0)) /
               windows.stride),
      seed_(seed),
      order_(order),
      corpus_(corpus) {
  TRIREME_REQUIRE(corpus >= 0 && corpus < 65536, "corpus {} of a blend of at most 65536",
                  corpus);
  TRIREME_REQUIRE_INPUT(tail == Tail::left_out || range.size() > windows.shared(),
                        "{} has {}: there is none to predict from the one before it",
                        name, format_plural(range.size(), "token"));
  TRIREME_REQUIRE_INPUT(
      tail == Tail::counted || range.size() >= windows.tokens,
      "{} has {}, one sample takes {} (by model.sequence): take a larger corpus, a "
      "larger share of it (data.split), or a shorter sequence",
      name, format_plural(range.size(), "token"), windows.tokens);
}

SampleId SampleIndex::sample(index_t position) const {
  TRIREME_REQUIRE(position >= 0, "sample position {} is negative", position);
  const index_t epoch = position / samples_;
  index_t window = position % samples_;
  if (order_ == Order::shuffled) {
    const std::uint64_t key = static_cast<std::uint64_t>(corpus_) << 32 |
                              (static_cast<std::uint64_t>(epoch) & 0xffffffffu);
    const Permutation permutation(static_cast<std::uint64_t>(samples_), seed_, key);
    window = static_cast<index_t>(permutation(static_cast<std::uint64_t>(window)));
  }
  return {corpus_, epoch, window};
}

TokenRange SampleIndex::tokens(index_t window) const {
  const index_t begin = range_.begin + window * windows_.stride;
  return {begin, std::min(begin + windows_.tokens, range_.end)};
}

index_t SampleIndex::left_out() const {
  return std::max<index_t>(
      0, range_.size() - windows_.shared() - samples_ * windows_.stride);
}

namespace {

// A share of all, in units of 2^-32.
constexpr std::uint64_t kWhole = std::uint64_t{1} << 32;

// What each corpus takes of the positions that reach it; the last one takes all.
std::vector<std::uint64_t> shares_by(const std::vector<double>& weights) {
  std::vector<std::uint64_t> shares;
  double rest = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const double weight : weights) {
    const double share = std::min(1.0, weight / rest);
    shares.push_back(
        static_cast<std::uint64_t>(std::llround(share * static_cast<double>(kWhole))));
    rest -= weight;
  }
  shares.back() = kWhole;
  return shares;
}

}  // namespace

std::string blend_problem(const std::vector<double>& weights) {
  if (weights.empty()) return "";
  if (!std::isfinite(std::accumulate(weights.begin(), weights.end(), 0.0))) {
    return "has weights without a finite sum: not all corpora would be taken";
  }
  const std::vector<std::uint64_t> shares = shares_by(weights);
  const auto is_part = [](std::uint64_t share) { return share > 0 && share < kWhole; };
  if (std::all_of(shares.begin(), shares.end() - 1, is_part)) return "";
  const auto [least, most] = std::ranges::minmax(weights);
  return fmt::format(
      "has weights from {} to {}, too far apart: not all corpora would be taken", least,
      most);
}

double least_weight(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double least = kLeastPart * sum;
  return number_in<double>(fmt::format("{:.1e}", least)).value_or(least);
}

std::vector<double> nearest_blend(std::vector<double> weights) {
  if (weights.empty()) return weights;
  if (!std::isfinite(least_weight(weights))) {
    const double most = std::ranges::max(weights);
    for (double& weight : weights) weight /= most;
  }
  const double least = least_weight(weights);
  for (double& weight : weights) weight = std::max(weight, least);
  return weights;
}

Blend::Blend(const std::vector<double>& weights) {
  TRIREME_REQUIRE_INPUT(!weights.empty(), "a blend of no corpora");
  for (const double weight : weights) {
    TRIREME_REQUIRE_INPUT(weight > 0.0 && std::isfinite(weight),
                          "a corpus of the blend has weight {}, expected one above 0",
                          weight);
  }
  const std::string problem = blend_problem(weights);
  TRIREME_REQUIRE_INPUT(
      problem.empty(),
      "data.train {}. Give each at least {} of their sum, or leave the smallest out",
      problem, kLeastPart);
  share_ = shares_by(weights);
}

// How many of the `reached` positions, which the corpora before leave over, are this
// corpus'.
std::uint64_t Blend::own(std::size_t corpus, std::uint64_t reached) const {
  return static_cast<std::uint64_t>(
      static_cast<unsigned __int128>(reached) * share_[corpus] >> 32);
}

Blend::Place Blend::place(index_t position) const {
  auto reached = static_cast<std::uint64_t>(position);
  for (std::size_t corpus = 0;; ++corpus) {
    const std::uint64_t before = own(corpus, reached);
    if (own(corpus, reached + 1) > before || corpus + 1 == share_.size()) {
      return {static_cast<int>(corpus), static_cast<index_t>(before)};
    }
    reached -= before;
  }
}

index_t Blend::count(int corpus, index_t positions) const {
  auto reached = static_cast<std::uint64_t>(positions);
  for (std::size_t before = 0; before < static_cast<std::size_t>(corpus); ++before) {
    reached -= own(before, reached);
  }
  return static_cast<index_t>(own(static_cast<std::size_t>(corpus), reached));
}

}  // namespace trireme::data
