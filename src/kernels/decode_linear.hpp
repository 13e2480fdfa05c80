// kernels/decode_linear.hpp — the linear layers of a step of generation, with what comes
// before a product and what follows it in the same launch: a GPU takes longer to begin
// small kernels than to read their weights.
//
//   y (m, out) = activation(x W^T + bias) + residual,   m: texts, one row each.
// x (m, in) are rows as they are, or the norm of rows, or attention's output, which is
// combined from what its tiles left. Columns behind those of y are keys, then values, and
// go to their places in the cache. Sums are of Accumulator<T>, and so is what follows the
// product: y is rounded once. A row has the same bits whatever m is, and whichever other
// rows are there.
#ifndef TRIREME_KERNELS_DECODE_LINEAR_HPP_
#define TRIREME_KERNELS_DECODE_LINEAR_HPP_

#include "base/exec.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/gemm.hpp"

namespace trireme::kernels {

// Texts that decode_linear() takes at most.
inline constexpr index_t kDecodeRows = 16;

// What x is made of: `rows`, or `tiles` where that has elements.
template <class T>
struct DecodeInput {
  View2<const T> rows{};           // (m, in)
  View1<const T> gamma{}, beta{};  // (in): of a layer norm; none where gamma is empty
  double epsilon = 0;
  // The scratch memory of decode_attention_tiles(), of these texts and heads.
  View1<const Accumulator<T>> tiles{};
  CachedTexts texts = {};
  CachedHeads heads = {};
};

// What is done with x W^T. Views without elements are left out.
template <class T>
struct DecodeOutput {
  View2<T> y;                 // (m, out), less the columns that go to the cache; not x
  View1<const T> bias{};      // (out)
  View2<const T> residual{};  // (m, out); may be y itself
  Activation activation = Activation::none;
  // (places * capacity, columns) each, where x is not made of tiles: row r goes to the
  // last position of text r of `texts`; nothing does where its length is 0.
  View2<T> k{}, v{};
  CachedTexts texts = {};
};

// Whether the build has a step's products done this way, and rows of so many elements,
// whose norm or attention is made, fit its memory: a GPU's build, where m is at most
// kDecodeRows. On a host, passes by themselves are the faster.
template <class T>
bool has_decode_linear(index_t rows, index_t in);

// Error where shapes do not fit each other, there are more rows, or they are too long. In
// a Graph it may start before the kernel ahead has ended (base/early_start.hpp): weights,
// bias, gamma, beta, and the places and lengths of texts are then read, so that no kernel
// ahead of it in the Graph may write them.
template <class T>
void decode_linear(const Exec& exec, const DecodeInput<T>& input,
                   const WeightOperand<T>& weight, const DecodeOutput<T>& output);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_DECODE_LINEAR_HPP_
