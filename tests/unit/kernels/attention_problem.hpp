// Problems of attention, their definition by dense matrices in double, and how near to it
// a kernel has to be.
#ifndef TRIREME_TESTS_UNIT_KERNELS_ATTENTION_PROBLEM_HPP_
#define TRIREME_TESTS_UNIT_KERNELS_ATTENTION_PROBLEM_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels::attention_test {

using test::Array;
using Values = std::vector<double>;

constexpr std::uint64_t kSeed = 77, kSampleBase = 1000;

struct Step {
  Kokkos::View<StepState, DeviceMemory> state{"state"};
  explicit Step(std::uint64_t sample_base = kSampleBase) {
    StepState values;
    values.seed = kSeed;
    values.sample_base = sample_base;
    Kokkos::deep_copy(state, values);
  }
  StepStateView view() const { return StepStateView(state.data()); }
};

// Between rows, where nothing aligns them.
inline constexpr index_t kOddGap = 3;

// An (s, b, heads * d) activation whose rows lie `gap` elements apart; NaN between them.
template <class T>
class Heads {
 public:
  Heads(index_t positions, index_t batch, index_t columns, const Values& values,
        index_t gap = kOddGap)
      : batch_(batch),
        columns_(columns),
        gap_(gap),
        data_(spread(positions * batch, values)) {}
  Heads(index_t positions, index_t batch, index_t columns, double value,
        index_t gap = kOddGap)
      : Heads(positions, batch, columns, Values(positions * batch * columns, value),
              gap) {}

  template <class U = T>
  HeadsView<U> view(index_t first_column = 0, index_t sample = 0) const {
    const index_t width = columns_ + gap_;
    return {data_.vector().data() + sample * width + first_column, batch_ * width, width};
  }
  Values values() const {
    const Values all = data_.values();
    Values inside;
    const index_t width = columns_ + gap_;
    for (index_t i = 0; i < static_cast<index_t>(all.size()); ++i) {
      if (i % width < columns_) {
        inside.push_back(all[i]);
      } else {
        EXPECT_TRUE(std::isnan(all[i])) << "gap at " << i;
      }
    }
    return inside;
  }
  Values values_of(index_t sample) const {
    const Values all = values();
    Values own;
    for (index_t i = 0; i < static_cast<index_t>(all.size()); ++i) {
      if (i / columns_ % batch_ == sample) own.push_back(all[i]);
    }
    return own;
  }
  std::vector<unsigned char> bytes() const { return data_.bytes(); }

 private:
  Values spread(index_t rows, const Values& values) const {
    const index_t width = columns_ + gap_;
    Values all(rows * width, NAN);
    for (index_t r = 0; r < rows; ++r) {
      for (index_t c = 0; c < columns_; ++c) {
        all[r * width + c] = values[r * columns_ + c];
      }
    }
    return all;
  }
  index_t batch_, columns_, gap_;
  Array<T> data_;
};

// Distances of queries and keys, for a bias of each head.
inline index_t distances_of(const AttentionDesc& d) {
  return d.q_length + d.kv_length - 1;
}
inline index_t bias_heads(const AttentionDesc& d) {
  return d.has_bias ? d.heads : 0;
}

template <class T>
struct Output {
  Heads<T> o, d_q, d_k, d_v;
  Array<Accumulator<T>> lse, d_bias;

  explicit Output(const AttentionDesc& d, index_t gap = kOddGap)
      : o(d.q_length, d.batch, d.heads * d.head_dim, 7.0, gap),
        d_q(d.q_length, d.batch, d.heads * d.head_dim, 7.0, gap),
        d_k(d.kv_length, d.batch, d.kv_heads * d.head_dim, 7.0, gap),
        d_v(d.kv_length, d.batch, d.kv_heads * d.head_dim, 7.0, gap),
        lse(static_cast<std::size_t>(d.batch * d.heads * d.q_length), 7.0),
        d_bias(static_cast<std::size_t>(bias_heads(d) * distances_of(d)), 7.0) {}
  std::vector<unsigned char> bytes() const {
    std::vector<unsigned char> all;
    for (const auto& part : {o.bytes(), d_q.bytes(), d_k.bytes(), d_v.bytes(),
                             lse.bytes(), d_bias.bytes()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
};

// The same problem with padding among the queries, whose lengths Problem makes.
inline AttentionDesc padded(AttentionDesc desc) {
  static const std::int32_t some_length = 0;
  desc.query_lengths = &some_length;
  return desc;
}
// The same problem with a bias by distance.
inline AttentionDesc biased(AttentionDesc desc) {
  desc.has_bias = true;
  return desc;
}
// Queries of a sample: nearly all, half of them, and none.
inline index_t query_length(const AttentionDesc& d, index_t sample) {
  if (d.query_lengths == nullptr) return d.q_length;
  return sample % 3 == 0   ? std::max<index_t>(1, d.q_length - 2)
         : sample % 3 == 1 ? (d.q_length + 1) / 2
                           : 0;
}

// Keys that query q of a sample sees, by the masks that Problem makes.
struct Seen {
  index_t begin, end;
};
inline Seen seen_keys_of_mask(const AttentionDesc& d, index_t sample, index_t q) {
  const index_t position = q + d.kv_length - d.q_length;
  switch (d.mask) {
    case MaskKind::causal:
      return {0, position + 1};
    case MaskKind::padding:
      return {0, std::max<index_t>(1, d.kv_length - 9 * sample - 2)};
    case MaskKind::document:
    case MaskKind::segment: {
      // One begins at the second key of a tile; of the third sample it has all queries
      // of the tile after that.
      const index_t length = 11 + 60 * sample, first = 65 % length;
      const index_t end = (position + length - first) / length * length + first;
      return {std::max<index_t>(0, end - length),
              d.mask == MaskKind::document ? position + 1 : std::min(end, d.kv_length)};
    }
    default:
      return {0, d.kv_length};
  }
}
inline Seen seen_keys(const AttentionDesc& d, index_t sample, index_t q) {
  if (q >= query_length(d, sample)) return {0, 0};
  return seen_keys_of_mask(d, sample, q);
}

template <class T>
struct Problem {
  AttentionDesc desc;
  index_t gap;
  Array<std::int32_t> lengths, query_lengths, begins, ends;
  Heads<T> q, k, v, d_o;
  Array<Accumulator<T>> bias;

  explicit Problem(const AttentionDesc& d, double largest = 2.0, index_t gap_ = kOddGap)
      : desc(d),
        gap(gap_),
        lengths(static_cast<std::size_t>(d.batch)),
        query_lengths(static_cast<std::size_t>(d.batch)),
        begins(static_cast<std::size_t>(d.batch * d.q_length)),
        ends(static_cast<std::size_t>(d.batch * d.q_length)),
        q(d.q_length, d.batch, d.heads * d.head_dim, random(d.q_length, d.heads, 1), gap),
        k(d.kv_length, d.batch, d.kv_heads * d.head_dim,
          random(d.kv_length, d.kv_heads, 2, largest), gap),
        v(d.kv_length, d.batch, d.kv_heads * d.head_dim,
          random(d.kv_length, d.kv_heads, 3), gap),
        d_o(d.q_length, d.batch, d.heads * d.head_dim, random(d.q_length, d.heads, 4),
            gap),
        bias(
            test::uniform(static_cast<std::size_t>(bias_heads(d) * distances_of(d)), 5)) {
    Values length, queries, begin, end;
    for (index_t b = 0; b < d.batch; ++b) {
      length.push_back(static_cast<double>(seen_keys_of_mask(d, b, 0).end));
      queries.push_back(static_cast<double>(query_length(d, b)));
    }
    for (index_t i = 0; i < d.q_length * d.batch; ++i) {
      // What a field says of padding is of no account.
      const bool is_padding = i / d.batch >= query_length(d, i % d.batch);
      const Seen seen = seen_keys_of_mask(d, i % d.batch, i / d.batch);
      begin.push_back(is_padding ? -7.0 : static_cast<double>(seen.begin));
      end.push_back(is_padding ? 1e9 : static_cast<double>(seen.end));
    }
    lengths.set(length);
    query_lengths.set(queries);
    begins.set(begin);
    ends.set(end);
    const bool is_segment = d.mask == MaskKind::segment;
    if (d.mask == MaskKind::padding) desc.key_lengths = lengths.vector().data();
    if (d.query_lengths != nullptr) desc.query_lengths = query_lengths.vector().data();
    if (d.mask == MaskKind::document || is_segment) {
      desc.document_begins = begins.vector().data();
    }
    if (is_segment) desc.document_ends = ends.vector().data();
  }

  Output<T> fast(const Exec& exec = Exec()) const {
    Output<T> out(desc, gap);
    part(exec, desc, Step(), 0, 0, 0, out);
    return out;
  }
  // The heads from `head` on of the samples from `sample` on, as `d` says.
  void part(const Exec& exec, const AttentionDesc& d, const Step& step, index_t head,
            index_t kv_head, index_t sample, Output<T>& out) const {
    using C = const T;
    using A = Accumulator<T>;
    const index_t at = head * d.head_dim, kv_at = kv_head * d.head_dim;
    const auto of_heads = [&](const Array<A>& whole) {
      const index_t distances = distances_of(d);
      return d.has_bias
                 ? View2<A>(whole.vector().data() + head * distances, d.heads, distances)
                 : View2<A>();
    };
    const Array<A> lse(static_cast<std::size_t>(d.batch * d.heads * d.q_length), NAN);
    attention_forward<T>(exec, d, step.view(), q.template view<C>(at, sample),
                         k.template view<C>(kv_at, sample),
                         v.template view<C>(kv_at, sample), out.o.view(at, sample),
                         lse.vector(), of_heads(bias));
    const Array<A> scratch(
        static_cast<std::size_t>(attention_backward_scratch_elements<T>(d)), NAN);
    attention_backward<T>(
        exec, d, step.view(), q.template view<C>(at, sample),
        k.template view<C>(kv_at, sample), v.template view<C>(kv_at, sample),
        out.o.template view<C>(at, sample), lse.cvector(),
        d_o.template view<C>(at, sample), scratch.vector(), out.d_q.view(at, sample),
        out.d_k.view(kv_at, sample), out.d_v.view(kv_at, sample), of_heads(bias),
        of_heads(out.d_bias));
    // lse is (b, a, s_q): rows of one sample's part lie together in the whole.
    exec.fence("test");
    for (index_t b = 0; b < d.batch; ++b) {
      const auto from =
          std::pair(b * d.heads * d.q_length, (b + 1) * d.heads * d.q_length);
      const index_t to = ((sample + b) * desc.heads + head) * d.q_length;
      Kokkos::deep_copy(
          Kokkos::subview(out.lse.vector(), std::pair(to, to + d.heads * d.q_length)),
          Kokkos::subview(lse.vector(), from));
    }
  }

 private:
  Values random(index_t positions, index_t heads, unsigned seed, double largest = 2.0) {
    return test::uniform(
        static_cast<std::size_t>(positions * desc.batch * heads * desc.head_dim), seed,
        -largest, largest);
  }
};

// softmax(scale Q K^T + mask), dropout and all gradients by dense matrices, from the
// definition alone. Gradients are those at the o and lse that a kernel saved, if given:
// their rounding to 16 bits is no error of the backward pass.
class Dense {
 public:
  Values o, lse, d_q, d_k, d_v, d_bias;
  // The same sums of absolute terms: what errors of the terms are relative to.
  Values o_terms, d_q_terms, d_k_terms, d_v_terms, d_bias_terms;

  template <class T>
  explicit Dense(const Problem<T>& problem, const Output<T>* forward = nullptr)
      : d(problem.desc),
        q(problem.q.values()),
        k(problem.k.values()),
        v(problem.v.values()),
        d_o(problem.d_o.values()),
        bias(problem.bias.values()) {
    d_bias.resize(bias.size()), d_bias_terms.resize(bias.size());
    o.resize(q.size()), d_q.resize(q.size()), d_k.resize(k.size()), d_v.resize(v.size());
    lse.resize(d.batch * d.heads * d.q_length);
    o_terms = o, d_q_terms = d_q, d_k_terms = d_k, d_v_terms = d_v;
    if (forward != nullptr) {
      saved_o = forward->o.values();
      saved_lse = forward->lse.values();
    }
    for (index_t b = 0; b < d.batch; ++b) {
      for (index_t head = 0; head < d.heads; ++head) {
        for (index_t i = 0; i < d.q_length; ++i) row(b, head, i);
      }
    }
  }

 private:
  // A query's element 0, and a key's.
  index_t q_at(index_t b, index_t head, index_t i) const {
    return ((i * d.batch + b) * d.heads + head) * d.head_dim;
  }
  index_t k_at(index_t b, index_t head, index_t j) const {
    return ((j * d.batch + b) * d.kv_heads + head * d.kv_heads / d.heads) * d.head_dim;
  }
  index_t bias_at(index_t head, index_t i, index_t j) const {
    return head * distances_of(d) + i - j + d.kv_length - 1;
  }
  double dot(const Values& x, index_t i, const Values& y, index_t j) const {
    double sum = 0;
    for (index_t c = 0; c < d.head_dim; ++c) sum += x[i + c] * y[j + c];
    return sum;
  }
  // What dropout multiplies the keys [0, count) of a query with.
  Values factors(index_t b, index_t head, index_t i, index_t count) const {
    Values factor(count, 1.0);
    if (d.dropout == 0) return factor;
    const double threshold = std::round(d.dropout * 65536);
    const random::Generator words{.seed = kSeed,
                                  .owner = kSampleBase + static_cast<std::uint64_t>(b),
                                  .layer = d.layer,
                                  .site = d.site,
                                  .stream = random::Stream::dropout};
    const auto at = static_cast<std::uint64_t>((d.head_begin + head) * d.mask_queries +
                                               d.query_begin + i);
    const auto calls = static_cast<std::uint64_t>(4 * ((d.mask_keys + 31) / 32));
    for (index_t j = 0; j < count; ++j) {  // key 32 g + 8 n + 2 t + e
      const index_t g = j / 32, n = j % 32 / 8, t = j % 8 / 2, e = j % 2;
      const auto call = random::DropoutWords::call(
          words, at * calls + static_cast<std::uint64_t>(4 * g + t));
      const std::uint32_t word = call.word[n] >> (16 * e) & 0xffffu;
      factor[j] = word >= threshold ? 65536 / (65536 - threshold) : 0.0;
    }
    return factor;
  }
  void row(index_t b, index_t head, index_t i) {
    const Seen seen = seen_keys(d, b, i);
    const index_t keys = seen.end, at = q_at(b, head, i);
    const index_t lse_at = (b * d.heads + head) * d.q_length + i;
    if (seen.begin == seen.end) {
      lse[lse_at] = -INFINITY;
      return;
    }
    Values p(keys, -INFINITY), d_p(keys);
    double largest = -INFINITY, sum = 0, mean = 0;
    for (index_t j = seen.begin; j < keys; ++j) {
      p[j] = d.scale * dot(q, at, k, k_at(b, head, j));
      if (d.has_bias) p[j] += bias[bias_at(head, i, j)];
      largest = std::max(largest, p[j]);
    }
    for (double& x : p) sum += x = std::exp(x - largest);
    lse[lse_at] = largest + std::log(sum);
    const Values keep = factors(b, head, i, keys);
    for (index_t j = 0; j < keys; ++j) {
      p[j] /= sum;
      d_p[j] = keep[j] * dot(d_o, at, v, k_at(b, head, j));
      mean += p[j] * d_p[j];
      for (index_t c = 0; c < d.head_dim; ++c) {
        add(p[j] * keep[j] * v[k_at(b, head, j) + c], o[at + c], o_terms[at + c]);
      }
    }
    if (!saved_o.empty()) {
      mean = dot(d_o, at, saved_o, at);
      for (double& x : p) x *= std::exp(lse[lse_at] - saved_lse[lse_at]);
    }
    for (index_t j = 0; j < keys; ++j) {
      if (d.has_bias) {
        const index_t to = bias_at(head, i, j);
        d_bias[to] += p[j] * (d_p[j] - mean);
        d_bias_terms[to] += p[j] * (std::abs(d_p[j]) + std::abs(mean));
      }
      const double d_s = d.scale * p[j] * (d_p[j] - mean);
      for (index_t c = 0; c < d.head_dim; ++c) {
        const index_t of_q = at + c, of_k = k_at(b, head, j) + c;
        add(d_s * k[of_k], d_q[of_q], d_q_terms[of_q]);
        add(d_s * q[of_q], d_k[of_k], d_k_terms[of_k]);
        add(p[j] * keep[j] * d_o[of_q], d_v[of_k], d_v_terms[of_k]);
      }
    }
  }
  static void add(double term, double& to, double& terms) {
    to += term;
    terms += std::abs(term);
  }

  AttentionDesc d;
  Values q, k, v, d_o, bias, saved_o, saved_lse;
};

inline AttentionDesc make(index_t batch, index_t q_length, index_t kv_length,
                          index_t heads, index_t kv_heads, index_t head_dim,
                          double dropout = 0.0, MaskKind mask = MaskKind::causal) {
  AttentionDesc desc;
  desc.batch = batch;
  desc.q_length = q_length;
  desc.kv_length = kv_length;
  desc.heads = heads;
  desc.kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.mask = mask;
  desc.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  desc.dropout = dropout;
  desc.head_begin = 3;
  // The model's samples are longer than this batch's; of cross attention, the queries'
  // and the keys' lengths have nothing to do with each other.
  desc.mask_keys = kv_length + 5;
  const bool is_cross = mask == MaskKind::none || mask == MaskKind::padding;
  desc.query_begin = is_cross ? 2 : kv_length - q_length;
  desc.mask_queries = desc.query_begin + q_length + 3;
  if (is_cross) desc.site = random::Site::cross_attention_probabilities;
  desc.layer = 11;
  return desc;
}

inline std::string name_of(const AttentionDesc& d) {
  constexpr const char* kMasks[] = {"none", "causal", "padding", "document", "segment"};
  return fmt::format("b {} queries {} keys {} heads {}/{} d {} dropout {} {}{}{}",
                     d.batch, d.q_length, d.kv_length, d.heads, d.kv_heads, d.head_dim,
                     d.dropout, kMasks[static_cast<int>(d.mask)],
                     d.query_lengths != nullptr ? " padded" : "",
                     d.has_bias ? " biased" : "");
}

// That of a query without keys is minus infinity: as a number, to compare with.
inline Values as_numbers(Values lse) {
  for (double& x : lse) x = x == -INFINITY ? -1e30 : x;
  return lse;
}

// What is summed was rounded to T before: each term is off by `rounding` of itself.
inline void expect_within_terms(const Values& got, const Values& want,
                                const Values& terms, double rounding, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = 1.05 * rounding * (terms[i] + std::abs(want[i])) + 1e-4;
    ASSERT_LE(std::abs(got[i] - want[i]), allowed) << what << " " << i;
  }
}

// Sums of floats, or doubles, whatever T is, of terms whose parts were not rounded to T.
template <class T>
void expect_bias_gradient(const Output<T>& got, const Dense& want) {
  const Values sums = got.d_bias.values();
  ASSERT_EQ(sums.size(), want.d_bias.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double allowed =
        128 * test::rounding<Accumulator<T>>() * (want.d_bias_terms[i] + 0.1);
    ASSERT_LE(std::abs(sums[i] - want.d_bias[i]), allowed) << "d_bias " << i;
  }
}

template <class T>
void expect_within_terms(const Output<T>& got, const Dense& want) {
  const double u = test::rounding<T>();
  test::expect_close(as_numbers(got.lse.values()), as_numbers(want.lse), 1e-5, 1, "lse");
  expect_within_terms(got.o.values(), want.o, want.o_terms, u, "o");
  expect_within_terms(got.d_q.values(), want.d_q, want.d_q_terms, u, "d_q");
  expect_within_terms(got.d_k.values(), want.d_k, want.d_k_terms, u, "d_k");
  expect_within_terms(got.d_v.values(), want.d_v, want.d_v_terms, u, "d_v");
}

// Of two samples the first has no keys: no output of it, no gradient, and nothing at all
// that is not a number. `desc` has as many key heads as heads.
template <class T>
void expect_nothing_of_first_sample(const Output<T>& got, const AttentionDesc& desc) {
  const index_t rows = desc.heads * desc.q_length, width = desc.heads * desc.head_dim;
  const Values lse = got.lse.values();
  for (index_t i = 0; i < rows; ++i) {
    ASSERT_EQ(lse[i], -INFINITY);
    ASSERT_TRUE(std::isfinite(lse[rows + i]));
  }
  for (const auto* values : {&got.o, &got.d_q, &got.d_k, &got.d_v}) {
    const Values all = values->values();
    for (index_t i = 0; i < static_cast<index_t>(all.size()); ++i) {
      const bool is_first = i / width % 2 == 0;
      ASSERT_TRUE(is_first ? all[i] == 0 : std::isfinite(all[i])) << i;
    }
  }
}

}  // namespace trireme::kernels::attention_test

#endif  // TRIREME_TESTS_UNIT_KERNELS_ATTENTION_PROBLEM_HPP_
