// inference/sampler.hpp — the next token, drawn from the logits of one position.
//
//   p_i = softmax(logits / temperature)_i, restricted to the top_k largest, then to the
//   nucleus: the smallest set of the largest whose sum reaches top_p (Holtzman et al.
//   2020, arXiv:1904.09751); renormalised.
// A draw is a pure function of (seed, prompt, sample, position) and the logits: it knows
// nothing of batches or of the other prompts. Of equal logits the lower token id comes
// first. Weights are whole numbers, kept in float, with exact sums in double: this is the
// way of a host to the tokens that kernels/sampling.hpp draws on a device.
#ifndef TRIREME_INFERENCE_SAMPLER_HPP_
#define TRIREME_INFERENCE_SAMPLER_HPP_

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "data/bpe.hpp"
#include "step/decoder.hpp"

namespace trireme::inference {

struct SamplingConfig {
  double temperature = 1.0;  // 0: always the most probable token
  index_t top_k = 0;         // 0: no limit
  double top_p = 1.0;        // in (0, 1]
  std::uint64_t seed = 1234;

  // InputError that lists everything out of range.
  void validate() const;
};

// Which number of the random sequence decides.
struct Draw {
  std::uint64_t prompt = 0;    // number of the prompt, below 2^32
  std::uint64_t sample = 0;    // of this prompt's samples, below 2^16
  std::uint64_t position = 0;  // of the new token in its text
};

class Sampler {
 public:
  // All memory is taken here.
  Sampler(const SamplingConfig& config, index_t vocabulary);

  // `logits`: one per token of the vocabulary. Error where one is not finite.
  data::TokenId choose(std::span<const step::Logit> logits, const Draw& draw);

 private:
  using Logit = step::Logit;
  using Logits = std::span<const Logit>;
  struct Candidate {
    Logit logit;
    Logit weight;  // 2^32 exp((logit - largest) / temperature), a whole number
    data::TokenId id;
  };
  static bool comes_before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
  std::size_t find_largest(Logits logits, const Draw& draw);
  bool limits_count(std::size_t tokens) const;
  void take_top_k(Logits logits);
  void take_all_but_the_least(Logits logits);
  void keep_nucleus();
  void weigh(Logit largest);
  // The place in weights_ that the draw's number falls on.
  std::size_t fall(const Draw& draw);

  SamplingConfig config_;
  // The largest logit of each block of tokens, and room to change them.
  std::vector<Logit> largest_of_block_, bounds_;
  std::vector<Candidate> candidates_;  // where there is a limit: what it leaves
  std::vector<Logit> weights_;         // of the candidates, or of all tokens
  std::vector<double> sums_;           // of blocks of weights_
};

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_SAMPLER_HPP_
