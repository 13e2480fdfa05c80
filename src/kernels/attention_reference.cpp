// kernels/attention_reference.cpp — see attention_reference.hpp. With P = softmax(S), Z =
// dropout(P):  dZ = dO V^T, dP = dropout'(dZ), dS = P (dP - sum_k dP P).
//
// Each output element is computed by one thread from its definition, in double, with
// nothing shared between threads. This is slow and easy to believe: the tiled kernels are
// tested against it. Index of a row of lse: (sample * heads + head) * q_length + q; with
// 2 heads and 3 queries, query 1 of head 1 of sample 0 is row 4.
#include "kernels/attention_reference.hpp"

#include "base/types.hpp"
#include "kernels/impl/attention_mask.hpp"

namespace trireme::kernels {

namespace {

template <class T>
KOKKOS_INLINE_FUNCTION double dot(const T* a, const T* b, index_t n) {
  double sum = 0;
  for (index_t i = 0; i < n; ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Index of (sample, head, query) for a flat launch.
struct Row {
  index_t sample, head, q;
  KOKKOS_INLINE_FUNCTION Row(const AttentionDesc& desc, index_t index)
      : sample(index / (desc.heads * desc.q_length)),
        head(index / desc.q_length % desc.heads),
        q(index % desc.q_length) {}
};

// Computes d_q with a thread for each query, which looks at all keys that it sees.
template <class T>
void backward_queries(const Exec& exec, const AttentionDesc& desc, StepStateView step,
                      HeadsView<const T> q, HeadsView<const T> k, HeadsView<const T> v,
                      HeadsView<const T> o, View1<const Accumulator<T>> lse,
                      HeadsView<const T> d_o, HeadsView<T> d_q) {
  const std::uint32_t threshold = random::drop_threshold(desc.dropout);
  const double keep_scale = threshold != 0 ? 1.0 / (1.0 - desc.dropout) : 1.0;
  launch(
      exec, "trireme::kernels::attention_backward_reference[q]",
      desc.batch * desc.heads * desc.q_length, KOKKOS_LAMBDA(const index_t index) {
        const Row row(desc, index);
        const index_t d = desc.head_dim;
        const index_t kv_head = row.head / (desc.heads / desc.kv_heads);
        const index_t keys = impl::visible_keys(desc, row.q);
        const T* query = q.row(row.q, row.sample, row.head, d);
        const T* d_out = d_o.row(row.q, row.sample, row.head, d);
        const auto mask =
            impl::dropout_row(desc, step(), threshold, row.sample, row.head, row.q);
        const double delta = dot(d_out, o.row(row.q, row.sample, row.head, d), d);
        for (index_t c = 0; c < d; ++c) {
          double value = 0;
          for (index_t j = 0; j < keys; ++j) {
            const T* key = k.row(j, row.sample, kv_head, d);
            const double p = Kokkos::exp(desc.scale * dot(query, key, d) -
                                         static_cast<double>(lse(index)));
            const double d_z = dot(d_out, v.row(j, row.sample, kv_head, d), d);
            const double d_p = mask.keeps(j) ? d_z * keep_scale : 0.0;
            value += desc.scale * p * (d_p - delta) * static_cast<double>(key[c]);
          }
          d_q.row(row.q, row.sample, row.head, d)[c] =
              static_cast<T>(static_cast<Accumulator<T>>(value));
        }
      });
}

// Computes d_k and d_v with a thread for each key, which looks at all queries that see
// it.
template <class T>
void backward_keys(const Exec& exec, const AttentionDesc& desc, StepStateView step,
                   HeadsView<const T> q, HeadsView<const T> k, HeadsView<const T> v,
                   HeadsView<const T> o, View1<const Accumulator<T>> lse,
                   HeadsView<const T> d_o, HeadsView<T> d_k, HeadsView<T> d_v) {
  const std::uint32_t threshold = random::drop_threshold(desc.dropout);
  const double keep_scale = threshold != 0 ? 1.0 / (1.0 - desc.dropout) : 1.0;
  launch(
      exec, "trireme::kernels::attention_backward_reference[kv]",
      desc.batch * desc.kv_heads * desc.kv_length, KOKKOS_LAMBDA(const index_t index) {
        const index_t d = desc.head_dim;
        const index_t group = desc.heads / desc.kv_heads;
        const index_t sample = index / (desc.kv_heads * desc.kv_length);
        const index_t kv_head = index / desc.kv_length % desc.kv_heads;
        const index_t j = index % desc.kv_length;
        const T* key = k.row(j, sample, kv_head, d);
        const T* value = v.row(j, sample, kv_head, d);
        for (index_t c = 0; c < d; ++c) {
          double sum_k = 0;
          double sum_v = 0;
          for (index_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
            for (index_t i = 0; i < desc.q_length; ++i) {
              if (j >= impl::visible_keys(desc, i)) continue;
              const T* query = q.row(i, sample, head, d);
              const T* d_out = d_o.row(i, sample, head, d);
              const index_t row = (sample * desc.heads + head) * desc.q_length + i;
              const double p = Kokkos::exp(desc.scale * dot(query, key, d) -
                                           static_cast<double>(lse(row)));
              const bool kept =
                  impl::dropout_row(desc, step(), threshold, sample, head, i).keeps(j);
              const double delta = dot(d_out, o.row(i, sample, head, d), d);
              const double d_p = kept ? dot(d_out, value, d) * keep_scale : 0.0;
              sum_k += desc.scale * p * (d_p - delta) * static_cast<double>(query[c]);
              if (kept) sum_v += p * keep_scale * static_cast<double>(d_out[c]);
            }
          }
          d_k.row(j, sample, kv_head, d)[c] =
              static_cast<T>(static_cast<Accumulator<T>>(sum_k));
          d_v.row(j, sample, kv_head, d)[c] =
              static_cast<T>(static_cast<Accumulator<T>>(sum_v));
        }
      });
}

}  // namespace

template <class T>
void attention_forward_reference(const Exec& exec, const AttentionDesc& desc,
                                 StepStateView step, HeadsView<const T> q,
                                 HeadsView<const T> k, HeadsView<const T> v,
                                 HeadsView<T> o, View1<Accumulator<T>> lse) {
  const std::uint32_t threshold = random::drop_threshold(desc.dropout);
  const double keep_scale = 1.0 / (1.0 - desc.dropout);
  launch(
      exec, "trireme::kernels::attention_forward_reference",
      desc.batch * desc.heads * desc.q_length, KOKKOS_LAMBDA(const index_t index) {
        const Row row(desc, index);
        const index_t d = desc.head_dim;
        const index_t kv_head = row.head / (desc.heads / desc.kv_heads);
        const index_t keys = impl::visible_keys(desc, row.q);
        const T* query = q.row(row.q, row.sample, row.head, d);
        const auto mask =
            impl::dropout_row(desc, step(), threshold, row.sample, row.head, row.q);
        double max = -1e300;
        for (index_t j = 0; j < keys; ++j) {
          const double s = desc.scale * dot(query, k.row(j, row.sample, kv_head, d), d);
          max = s > max ? s : max;
        }
        double sum = 0;
        for (index_t j = 0; j < keys; ++j) {
          const double s = desc.scale * dot(query, k.row(j, row.sample, kv_head, d), d);
          sum += Kokkos::exp(s - max);
        }
        lse(index) = static_cast<Accumulator<T>>(max + Kokkos::log(sum));
        for (index_t c = 0; c < d; ++c) {
          double value = 0;
          for (index_t j = 0; j < keys; ++j) {
            if (!mask.keeps(j)) continue;
            const double s = desc.scale * dot(query, k.row(j, row.sample, kv_head, d), d);
            value += Kokkos::exp(s - max) / sum *
                     static_cast<double>(v.row(j, row.sample, kv_head, d)[c]);
          }
          o.row(row.q, row.sample, row.head, d)[c] = static_cast<T>(
              static_cast<Accumulator<T>>(threshold != 0 ? value * keep_scale : value));
        }
      });
}

template <class T>
void attention_backward_reference(const Exec& exec, const AttentionDesc& desc,
                                  StepStateView step, HeadsView<const T> q,
                                  HeadsView<const T> k, HeadsView<const T> v,
                                  HeadsView<const T> o, View1<const Accumulator<T>> lse,
                                  HeadsView<const T> d_o, HeadsView<T> d_q,
                                  HeadsView<T> d_k, HeadsView<T> d_v) {
  backward_queries<T>(exec, desc, step, q, k, v, o, lse, d_o, d_q);
  backward_keys<T>(exec, desc, step, q, k, v, o, lse, d_o, d_k, d_v);
}

#define TRIREME_INSTANTIATE(T)                                                      \
  template decltype(attention_forward_reference<T>) attention_forward_reference<T>; \
  template decltype(attention_backward_reference<T>) attention_backward_reference<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
