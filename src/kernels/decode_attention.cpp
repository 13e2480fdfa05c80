// kernels/decode_attention.cpp — see decode_attention.hpp; the way of a host is in
// decode_attention_host.cpp, that of a GPU in decode_attention_teams.cpp.
//
// The reference keeps the scores of all keys, because a sum over tiles that grow with the
// text would round otherwise than the definition does. What a caller got wrong is refused
// here for both ways, since a text that is too long would be written behind the scratch.
#include "kernels/decode_attention.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/impl/decode_attention.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {

namespace {

template <class T>
void check_decode(const char* kernel, const CachedTexts& texts, const CachedHeads& heads,
                  const View2<const T>& qkv, const View2<const T>& k,
                  const View2<const T>& v, const View1<Accumulator<T>>& scratch) {
  TRIREME_REQUIRE(
      heads.kv_heads > 0 && heads.heads % heads.kv_heads == 0 && heads.head_dim > 0,
      "kernels::{}: {} query heads share {} key heads, of size {}", kernel, heads.heads,
      heads.kv_heads, heads.head_dim);
  TRIREME_REQUIRE(texts.longest >= 1 && texts.longest <= texts.capacity,
                  "kernels::{}: texts of up to {} in a cache for {}", kernel,
                  format_plural(texts.longest, "position"), texts.capacity);
  TRIREME_REQUIRE(static_cast<index_t>(qkv.extent(1)) >= heads.heads * heads.head_dim,
                  "kernels::{}: qkv has {}, {} of {} want more", kernel,
                  format_plural(qkv.extent(1), "column"),
                  format_plural(heads.heads, "head"), heads.head_dim);
  require_extents(kernel, "qkv", qkv, texts.count, static_cast<index_t>(qkv.extent(1)));
  const auto rows = static_cast<index_t>(k.extent(0));
  require_extents(kernel, "k", k, rows, heads.kv_heads * heads.head_dim);
  require_extents(kernel, "v", v, rows, heads.kv_heads * heads.head_dim);
  const index_t least = decode_attention_scratch_elements(texts, heads);
  TRIREME_REQUIRE(static_cast<index_t>(scratch.extent(0)) >= least,
                  "kernels::{}: scratch of {}, {} are needed", kernel,
                  format_plural(scratch.extent(0), "element"), least);
}
template <class T>
void check_output(const char* kernel, const CachedTexts& texts, const CachedHeads& heads,
                  const View2<T>& o, const View2<const Accumulator<T>>& bias) {
  require_extents(kernel, "o", o, texts.count, heads.heads * heads.head_dim);
  const auto distances = static_cast<index_t>(bias.extent(1));
  if (distances == 0) return;
  require_extents(kernel, "bias", bias, heads.heads, distances);
  TRIREME_REQUIRE(distances >= texts.longest,
                  "kernels::{}: a bias of {} for texts of up to {}", kernel,
                  format_plural(distances, "distance"),
                  format_plural(texts.longest, "position"));
}

}  // namespace

template <class T>
void append_to_cache(const Exec& exec, const CachedTexts& texts, View2<const T> qkv,
                     index_t k_column, View2<T> k, View2<T> v) {
  const auto rows = static_cast<index_t>(qkv.extent(0));
  const auto width = static_cast<index_t>(qkv.extent(1));
  const auto columns = static_cast<index_t>(k.extent(1));
  const index_t news = rows / texts.count;
  TRIREME_REQUIRE(rows == news * texts.count && k_column + 2 * columns <= width,
                  "kernels::append_to_cache: ({}, {}) for {} and {}", rows, width,
                  format_plural(texts.count, "text"), format_plural(columns, "column"));
  const T* const from = qkv.data();
  T* const keys = k.data();
  T* const values = v.data();
  const index_t bytes = 4 * rows * columns * static_cast<index_t>(sizeof(T));
  launch_rows(
      exec, {"trireme::kernels::append_to_cache", {.bytes = bytes}}, rows,
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const index_t text = row % texts.count;
        const index_t length = texts.length(text);
        if (length == 0) return;
        const index_t position = length - news + row / texts.count;
        const index_t to = (texts.first_row(text) + position) * columns;
        const T* const key = from + row * width + k_column;
        for_each_column(team, columns, [=](index_t j) {
          keys[to + j] = key[j];
          values[to + j] = key[columns + j];
        });
      });
}

index_t decode_attention_scratch_elements(const CachedTexts& texts,
                                          const CachedHeads& heads) {
  // Of each text and head a score for each key, or for each tile its maximum, its sum
  // and its part of the output.
  const index_t tiles = tiles_of(texts.longest, impl::kDecodeTile);
  return texts.count * heads.heads *
         std::max(texts.longest, tiles * (2 + heads.head_dim));
}

template <class T>
void decode_attention_reference(const Exec& exec, const CachedTexts& texts,
                                const CachedHeads& heads, View2<const T> qkv,
                                View2<const T> k, View2<const T> v,
                                View1<Accumulator<T>> scratch, View2<T> o,
                                View2<const Accumulator<T>> bias) {
  using A = Accumulator<T>;
  constexpr const char* kName = "decode_attention_reference";
  check_decode<T>(kName, texts, heads, qkv, k, v, scratch);
  check_output(kName, texts, heads, o, bias);
  const auto width = static_cast<index_t>(qkv.extent(1));
  const auto columns = static_cast<index_t>(k.extent(1));
  const T* const queries = qkv.data();
  const T* const keys = k.data();
  const T* const values = v.data();
  A* const scores = scratch.data();
  T* const out = o.data();
  const impl::DistanceBias<A> by_distance(bias);
  launch_rows(
      exec,
      {"trireme::kernels::decode_attention_reference",
       impl::decode_attention_cost<T>(texts, heads, bias)},
      texts.count * heads.heads, KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t text = item / heads.heads, head = item % heads.heads;
        const index_t d = heads.head_dim, length = texts.length(text);
        T* const to = out + item * d;
        if (length == 0) {
          for_each_column(team, d, [=](index_t c) { to[c] = T(A{0}); });
          return;
        }
        const index_t kv_head = head / (heads.heads / heads.kv_heads);
        const index_t begin = texts.first_row(text) * columns + kv_head * d;
        const T* const query = queries + text * width + head * d;
        const T* const key = keys + begin;
        const T* const value = values + begin;
        A* const p = scores + item * texts.longest;
        const A scale = static_cast<A>(heads.scale);
        for_each_column(team, length, [=](index_t j) {
          A sum{0};
          for (index_t c = 0; c < d; ++c) {
            sum += static_cast<A>(query[c]) * static_cast<A>(key[j * columns + c]);
          }
          p[j] = scale * sum;
          if (by_distance.is_there()) p[j] += by_distance.of(head, length - 1 - j);
        });
        team_barrier(team);
        const A largest = max_columns<A>(team, length, [=](index_t j) { return p[j]; });
        for_each_column(team, length,
                        [=](index_t j) { p[j] = vector_exp(p[j] - largest); });
        team_barrier(team);
        const A total = sum_columns<A>(team, length, [=](index_t j) { return p[j]; });
        for_each_column(team, d, [=](index_t c) {
          A sum{0};
          for (index_t j = 0; j < length; ++j) {
            sum += p[j] * static_cast<A>(value[j * columns + c]);
          }
          to[c] = static_cast<T>(sum / total);
        });
      });
}

template <class T>
void decode_attention(const Exec& exec, const CachedTexts& texts,
                      const CachedHeads& heads, View2<const T> qkv, View2<const T> k,
                      View2<const T> v, View1<Accumulator<T>> scratch, View2<T> o,
                      View2<const Accumulator<T>> bias) {
  constexpr const char* kName = "decode_attention";
  check_decode<T>(kName, texts, heads, qkv, k, v, scratch);
  check_output(kName, texts, heads, o, bias);
  impl::decode_attention_here<T>(exec, texts, heads, qkv, k, v, scratch, o, bias);
}

template <class T>
void decode_attention_tiles(const Exec& exec, const CachedTexts& texts,
                            const CachedHeads& heads, View2<const T> qkv,
                            View2<const T> k, View2<const T> v,
                            View1<Accumulator<T>> scratch) {
  check_decode<T>("decode_attention_tiles", texts, heads, qkv, k, v, scratch);
  impl::decode_tiles_by_teams<T>(exec, texts, heads, qkv, k, v, scratch);
}

#define TRIREME_INSTANTIATE(T)                                            \
  template decltype(append_to_cache<T>) append_to_cache<T>;               \
  template decltype(decode_attention<T>) decode_attention<T>;             \
  template decltype(decode_attention_tiles<T>) decode_attention_tiles<T>; \
  template decltype(decode_attention_reference<T>) decode_attention_reference<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
