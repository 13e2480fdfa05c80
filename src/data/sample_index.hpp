// data/sample_index.hpp — which tokens make the sample at a position of a run.
//
// All of it are pure functions of position and seed: nothing is stored, any rank computes
// any sample, and a restart continues by knowing how many samples were consumed.
//   Positions p = 0, 1, 2 ... count samples over the whole run. In a stream of S windows,
//   p is window permutation_epoch(p mod S) of epoch p div S. Window w begins w strides
//   into the range. A language model's are of s + 1 tokens, s apart: s inputs and their s
//   labels, so that neighbouring windows share one token. Tokens behind the last whole
//   window are not used, or make a last, shorter window (Tail).
// Example: the range [100, 115) has with s = 4 the windows 0 to 2, which begin at 100,
// 104 and 108; tokens 113 and 114 are left. Position 4 is the second of epoch 1. With
// seed 1 the windows of that epoch come in the order 1 0 2, so that it is tokens 100 to
// 104.
#ifndef TRIREME_DATA_SAMPLE_INDEX_HPP_
#define TRIREME_DATA_SAMPLE_INDEX_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace trireme::data {

struct TokenRange {
  index_t begin = 0;
  index_t end = 0;
  index_t size() const { return end - begin; }
};

// Contiguous parts of [0, tokens) in the given shares, which must be at least 0 and add
// up to 1 (InputError).
std::vector<TokenRange> split_tokens(index_t tokens, const std::vector<double>& shares);

// How a stream of tokens is cut. A window shares its last tokens - stride tokens with the
// next one.
struct Windows {
  index_t tokens = 1;
  index_t stride = 1;  // from one to the next; at most `tokens`

  index_t shared() const { return tokens - stride; }
};
// Those in which the next token is predicted, `sequence` times.
constexpr Windows next_token_windows(index_t sequence) {
  return {.tokens = sequence + 1, .stride = sequence};
}

// Which sample it is, of all that there are.
struct SampleId {
  int corpus = 0;  // in the blend
  index_t epoch = 0;
  index_t window = 0;  // in the corpus' order
};

enum class Order { shuffled, sequential };
// The tokens behind the last whole window.
enum class Tail { left_out, counted };

class SampleIndex {
 public:
  // `corpus` is its number in the blend, which tells apart corpora of one seed. `name` is
  // for messages. InputError when the range is too short for one sample.
  SampleIndex(TokenRange range, Windows windows, std::uint64_t seed, Order order,
              const std::string& name, int corpus = 0, Tail tail = Tail::left_out);

  index_t samples_per_epoch() const { return samples_; }
  const Windows& windows() const { return windows_; }
  // The window at a position.
  SampleId sample(index_t position) const;
  // Its tokens; fewer than others in the last window where the tail is counted.
  TokenRange tokens(index_t window) const;
  // Tokens that are in no window; at its end one that windows share is not counted.
  index_t left_out() const;

 private:
  TokenRange range_;
  Windows windows_;
  index_t samples_;
  std::uint64_t seed_;
  Order order_;
  int corpus_;
};

// Of weights above 0, with whichever sum: why not every corpus would be taken by them;
// empty where each would. By its share, which is kept to 32 bits, a corpus must get at
// least 2^-33 of what reaches it, and leave as much to those behind it.
std::string blend_problem(const std::vector<double>& weights);
// Weights of at least this part of their sum have no problem, in whichever order.
constexpr double kLeastPart = 2.4e-10;  // somewhat above 2^-32
// kLeastPart of the sum, to two digits.
double least_weight(const std::vector<double>& weights);
// The weights with those below least_weight() raised to it, so that they have no problem;
// all divided by the largest first where they have no finite sum.
std::vector<double> nearest_blend(std::vector<double> weights);

// Shares positions out to corpora in proportion to weights. Corpora are split off one
// after the other: of the first q positions that reach corpus k, floor(q s_k) with
// s_k = w_k / (w_k + w_k+1 + ...) are its own. What the ones before it have rounded down
// reaches it, e_k < E_k more than its due (E_1 = 0, E_k+1 = (1 - s_k) E_k + 1), so of the
// first p positions it has more than w_k p - 1 and at most w_k p + s_k E_k, with
// s_k E_k <= k - 1. (The shares s_k are kept to 2^-33, and the bounds with them.)
// Example: with the weights 3 and 1 the positions 0 to 7 go to the corpora 1 0 0 0 1 0 0
// 0, and position 5 is position 3 of corpus 0.
class Blend {
 public:
  // Weights above 0 that have no blend_problem() (InputError).
  explicit Blend(const std::vector<double>& weights);

  struct Place {
    int corpus = 0;
    index_t position = 0;  // in that corpus' own order
  };
  Place place(index_t position) const;
  // How many of the first `positions` belong to `corpus`.
  index_t count(int corpus, index_t positions) const;

 private:
  std::uint64_t own(std::size_t corpus, std::uint64_t reached) const;

  std::vector<std::uint64_t> share_;  // of what reaches it, in units of 2^-32
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_SAMPLE_INDEX_HPP_
