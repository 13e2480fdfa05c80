// kernels/sampling.hpp — the next token of each text, drawn from its logits where these
// lie.
//
//   p_i = softmax(logits / temperature)_i, restricted to the top_k largest, then to the
//   nucleus: the smallest set of the largest whose sum reaches top_p; renormalised.
// Of equal logits the lower token comes first. Weights are whole numbers, and the number
// that decides is a function of (seed, text, position): a token is the same on every
// machine and in any batch, for the same logits. docs/math/generation.md;
// inference/sampler.hpp draws the same tokens on a host, faster than these launches do.
#ifndef TRIREME_KERNELS_SAMPLING_HPP_
#define TRIREME_KERNELS_SAMPLING_HPP_

#include <cstdint>

#include "base/exec.hpp"

namespace trireme::kernels {

struct SamplingRule {
  double temperature = 1.0;  // 0: always the largest logit
  index_t top_k = 0;         // 0: no limit
  double top_p = 1.0;        // in (0, 1]
  std::uint64_t seed = 0;
};

// The logits of some texts, as a tensor group has gathered them: of rank r and text t,
// row r * count + t of a matrix of `columns`. A rank has `share` words, the last one may
// have fewer; only tokens below `usable` are drawn, fewer than 2^21.
template <class T>
struct TextLogits {
  const T* data = nullptr;
  index_t count = 1;
  index_t columns = 1;
  index_t ranks = 1;
  index_t share = 1;
  index_t usable = 1;
};

// Texts under way, a row each. Arrays of (count) but for `drawn`. Of a row whose text has
// ended, token and position remain some that there are.
struct TextRows {
  View1<std::int32_t> tokens;     // the last of each text: what the next step reads
  View1<std::int32_t> positions;  // where that one stands in the cache
  View1<std::int32_t> lengths;  // positions + 1; 0: the text has ended, or there is none
  View1<std::int32_t> sizes;    // tokens of the text, those forgotten too
  View1<std::int32_t> left;     // tokens that it may yet get
  View1<std::uint64_t> owners;  // the prompt's number + 2^32 the sample's
  View1<std::int32_t> counts;   // of what was drawn
  View2<std::int32_t> drawn;    // (count, most)

  // What `drawn` has in place of a token where the logit of token i is not finite: -1 -
  // i.
  static bool is_token(std::int32_t drawn) { return drawn >= 0; }
  static index_t bad_logit(std::int32_t drawn) { return -1 - index_t{drawn}; }
};

// Draws a token for every text that has not ended, and makes it the text's last one. A
// text ends with the token end_of_document (-1: there is none), when it has all it may
// get, when it has filled `capacity` positions or `drawn`, and where a logit is not
// finite.
template <class T>
void draw_tokens(const Exec& exec, const SamplingRule& rule, const TextLogits<T>& logits,
                 std::int32_t end_of_document, index_t capacity, const TextRows& texts);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_SAMPLING_HPP_
