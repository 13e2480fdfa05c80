// kernels/decode_attention.hpp — attention of generation: one new query of each text over
// the keys and values of the text's earlier positions, which a cache holds.
//
//   o = softmax(scale q K^T + bias) V,  per text and head.
// The cache has places for texts, each with room for `capacity` positions: the key of
// position p of the text in place i is row i * capacity + p of k, (places * capacity,
// g_tp d), and so of v. Texts may be of unlike length, and in any places. A text's output
// has the same bits whatever other texts are there, and for every number of threads: keys
// are taken in tiles that begin at position 0, and the tiles are combined in order.
//
// A text of length 0 is passed over: nothing comes to the cache, and its output is zero.
#ifndef TRIREME_KERNELS_DECODE_ATTENTION_HPP_
#define TRIREME_KERNELS_DECODE_ATTENTION_HPP_

#include "base/exec.hpp"

namespace trireme::kernels {

// Where the texts of a call stand. Without the two arrays they are in places first_place,
// first_place + 1, ..., and all have `longest` positions.
struct CachedTexts {
  index_t count = 1;
  index_t capacity = 1;
  View1<const std::int32_t> places = {};   // (count)
  View1<const std::int32_t> lengths = {};  // (count): positions, those of this call too
  index_t first_place = 0;
  // Positions of the longest of them. Where lengths are there it may be more, as what the
  // longest will have later: results are the same bits.
  index_t longest = 1;

  KOKKOS_INLINE_FUNCTION index_t length(index_t text) const {
    return lengths.data() == nullptr ? longest : static_cast<index_t>(lengths(text));
  }
  // The row of k and v that holds position 0.
  KOKKOS_INLINE_FUNCTION index_t first_row(index_t text) const {
    return capacity * (places.data() == nullptr ? first_place + text
                                                : static_cast<index_t>(places(text)));
  }
};

// The last `news` positions of each text come to the cache: their keys are the columns of
// qkv (news * count, .) from k_column on, their values those behind them. Row r of qkv is
// the new position r / count of text r % count.
template <class T>
void append_to_cache(const Exec& exec, const CachedTexts& texts, View2<const T> qkv,
                     index_t k_column, View2<T> k, View2<T> v);

struct CachedHeads {
  index_t heads = 1;     // a_tp, of queries
  index_t kv_heads = 1;  // g_tp; heads % kv_heads == 0
  index_t head_dim = 1;  // d
  double scale = 1.0;
};

// Numbers of scratch that each function below wants.
index_t decode_attention_scratch_elements(const CachedTexts& texts,
                                          const CachedHeads& heads);

// Queries are the first a_tp d columns of qkv (count, .); o (count, a_tp d). bias (a_tp,
// longest or more), where there is one: key p of a text of n positions adds
// bias[head, n - 1 - p] to its score (kernels/relative_bias.hpp).
template <class T>
void decode_attention(const Exec& exec, const CachedTexts& texts,
                      const CachedHeads& heads, View2<const T> qkv, View2<const T> k,
                      View2<const T> v, View1<Accumulator<T>> scratch, View2<T> o,
                      View2<const Accumulator<T>> bias = {});

// The first half of it, by teams: what each tile of keys makes is left in scratch, from
// which decode_linear() (decode_linear.hpp) combines o for the product that takes it. In
// a Graph it may start before the kernel ahead has ended, and reads places and lengths
// then.
template <class T>
void decode_attention_tiles(const Exec& exec, const CachedTexts& texts,
                            const CachedHeads& heads, View2<const T> qkv,
                            View2<const T> k, View2<const T> v,
                            View1<Accumulator<T>> scratch);

// The definition, without tiles: what the tests compare with.
template <class T>
void decode_attention_reference(const Exec& exec, const CachedTexts& texts,
                                const CachedHeads& heads, View2<const T> qkv,
                                View2<const T> k, View2<const T> v,
                                View1<Accumulator<T>> scratch, View2<T> o,
                                View2<const Accumulator<T>> bias = {});

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_DECODE_ATTENTION_HPP_
