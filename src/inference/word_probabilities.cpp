// inference/word_probabilities.cpp — see word_probabilities.hpp.
#include "inference/word_probabilities.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace trireme::inference {

WordProbabilities::WordProbabilities(std::span<const float> logits)
    : logits_(logits), largest_(static_cast<double>(*std::ranges::max_element(logits))) {
  for (data::TokenId id = 0; id < logits.size(); ++id) sum_ += weight(id);
  TRIREME_REQUIRE_INPUT(std::isfinite(sum_),
                        "the model gives logits that are not finite: look at the "
                        "checkpoint's weights (trireme inspect --verify)");
}

double WordProbabilities::weight(data::TokenId id) const {
  return std::exp(static_cast<double>(logits_[id]) - largest_);
}

std::vector<data::TokenId> WordProbabilities::most_probable(index_t count) const {
  std::vector<data::TokenId> ids(logits_.size());
  std::iota(ids.begin(), ids.end(), data::TokenId{0});
  const auto end = ids.begin() + std::min<std::ptrdiff_t>(count, std::ssize(ids));
  std::ranges::partial_sort(ids, end, [&](auto a, auto b) {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  });
  ids.erase(end, ids.end());
  return ids;
}

}  // namespace trireme::inference
