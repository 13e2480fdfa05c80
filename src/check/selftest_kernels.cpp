// check/selftest_kernels.cpp — the checks of kernels: on sizes that fill no tile, against
// plain loops in double.
//
// The plain loops are written here a second time, from the formulae and not from the
// kernels. Sizes fill no tile and no vector, since that code goes wrong at the ends of
// rows before anywhere else. What may differ is rounding in float, and the bounds allow
// no more.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "check/selftest.hpp"
#include "kernels/attention.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/initialize.hpp"
#include "kernels/norm.hpp"

namespace trireme::check::checks {

namespace {

using kernels::Accumulate;
using kernels::Transpose;

// N(0, 1), different for every name.
template <class T>
class Numbers {
 public:
  Numbers(const Exec& exec, std::string_view name, index_t rows, index_t columns)
      : rows_(rows), columns_(columns), data_("selftest", extent(rows * columns)) {
    const random::Generator generator{.owner = random::owner_of(name),
                                      .stream = random::Stream::evaluation};
    kernels::fill_normal<T>(exec, generator, 1.0,
                            {0, 0, columns, 0, 0, columns, rows, columns},
                            View1<T>(data_));
  }

  View2<T> matrix() const { return {data_.data(), extent(rows_), extent(columns_)}; }
  View2<const T> in() const { return matrix(); }
  View1<T> vector() const { return {data_.data(), data_.extent(0)}; }
  View1<const T> vector_in() const { return vector(); }
  kernels::HeadsView<T> heads(index_t batch) const {
    return {data_.data(), batch * columns_, columns_};
  }
  kernels::HeadsView<const T> heads_in(index_t batch) const {
    return {data_.data(), batch * columns_, columns_};
  }
  std::vector<double> values() const {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), data_);
    return {host.data(), host.data() + host.extent(0)};
  }

 private:
  index_t rows_, columns_;
  DeviceArray<T> data_;
};

// ||a - b|| / ||b||.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

// Keeps the worst and refuses what is above the bound (or not a number).
class Worst {
 public:
  explicit Worst(double bound) : bound_(bound) {}
  void add(const std::string& what, double error) {
    TRIREME_REQUIRE(
        error <= bound_,
        "{}: relative error {:.2e}, expected at most {:.0e}: does this CPU (or "
        "GPU) suit the build (TRIREME_ARCH)?",
        what, error, bound_);
    worst_ = std::max(worst_, error);
  }
  std::string text() const { return fmt::format("error {:.1e}", worst_); }

 private:
  double bound_;
  double worst_ = 0.0;
};

template <class T>
double gemm_error(const Exec& exec, Transpose ta, Transpose tb, Accumulate accumulate) {
  constexpr index_t m = 67, n = 131, k = 257;
  const bool at = ta == Transpose::yes;
  const bool bt = tb == Transpose::yes;
  const Numbers<T> a(exec, "a", at ? k : m, at ? m : k);
  const Numbers<T> b(exec, "b", bt ? n : k, bt ? k : n);
  const Numbers<T> c(exec, "c", m, n), reference(exec, "c", m, n);
  kernels::gemm<T, T>(exec, ta, tb, accumulate, a.in(), b.in(), c.matrix());
  kernels::gemm_reference<T, T>(exec, ta, tb, accumulate, a.in(), b.in(),
                                reference.matrix());
  return distance(c.values(), reference.values());
}

using Values = std::vector<double>;

// Attention and its gradients, row by row from the definition.
struct PlainAttention {
  Values o, lse, d_q, d_k, d_v;

  PlainAttention(const kernels::AttentionDesc& desc, const Values& q, const Values& k,
                 const Values& v, const Values& d_o)
      : o(q.size()),
        lse(extent(desc.batch * desc.heads * desc.q_length)),
        d_q(q.size()),
        d_k(k.size()),
        d_v(v.size()) {
    for (index_t sample = 0; sample < desc.batch; ++sample) {
      for (index_t head = 0; head < desc.heads; ++head) {
        for (index_t i = 0; i < desc.q_length; ++i) {
          add_row(desc, sample, head, i, q, k, v, d_o);
        }
      }
    }
  }

 private:
  void add_row(const kernels::AttentionDesc& desc, index_t sample, index_t head,
               index_t i, const Values& q, const Values& k, const Values& v,
               const Values& d_o) {
    const std::size_t d = extent(desc.head_dim);
    const auto dot = [&](const Values& x, std::size_t at, const Values& y,
                         std::size_t from) {
      return std::inner_product(&x[at], &x[at] + d, &y[from], 0.0);
    };
    const std::size_t row = extent((i * desc.batch + sample) * desc.heads + head) * d;
    const index_t kv_head = head * desc.kv_heads / desc.heads;
    const auto key = [&](index_t j) {
      return extent((j * desc.batch + sample) * desc.kv_heads + kv_head) * d;
    };
    const random::Generator mask{.owner = static_cast<std::uint64_t>(sample),
                                 .site = random::Site::attention_probabilities,
                                 .stream = random::Stream::dropout};
    using random::DropoutWords;
    const std::uint32_t threshold = DropoutWords::threshold(desc.dropout);
    const std::uint64_t first =
        static_cast<std::uint64_t>(head * desc.mask_queries + i) *
        DropoutWords::calls_per_key_row(static_cast<std::uint64_t>(desc.mask_keys));
    Values p, kept;
    for (index_t j = 0; j <= i; ++j) {  // causal
      const auto call = static_cast<std::uint64_t>(j / 32 * 4 + j % 8 / 2);
      const auto words = DropoutWords::call(mask, first + call);
      p.push_back(std::exp(desc.scale * dot(q, row, k, key(j))));
      kept.push_back(
          DropoutWords::half(words.word[j % 32 / 8], static_cast<int>(j % 2)) >= threshold
              ? DropoutWords::keep_scale(threshold)
              : 0.0);
    }
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    lse[extent((sample * desc.heads + head) * desc.q_length + i)] = std::log(sum);
    for (index_t j = 0; j <= i; ++j) {
      p[extent(j)] /= sum;
      for (std::size_t c = 0; c < d; ++c) {
        o[row + c] += p[extent(j)] * kept[extent(j)] * v[key(j) + c];
      }
    }
    const double mean = dot(d_o, row, o, row);
    for (index_t j = 0; j <= i; ++j) {
      const double z = p[extent(j)] * kept[extent(j)];
      const double d_s =
          desc.scale * (z * dot(d_o, row, v, key(j)) - p[extent(j)] * mean);
      for (std::size_t c = 0; c < d; ++c) {
        d_q[row + c] += d_s * k[key(j) + c];
        d_k[key(j) + c] += d_s * q[row + c];
        d_v[key(j) + c] += z * d_o[row + c];
      }
    }
  }
};

}  // namespace

std::string random_numbers(const Exec& exec) {
  // Known answers of Philox-4x32-10 (Salmon et al.; Random123's kat_vectors): counter and
  // key all zeros, and all ones.
  constexpr std::uint64_t kOnes48 = 0xffffffffffffull;
  const random::Generator zeros{.stream = random::Stream::initialisation};
  const random::Generator ones{.seed = ~std::uint64_t{0},
                               .owner = kOnes48,
                               .layer = 0xffff,
                               .site = static_cast<random::Site>(0xff),
                               .stream = static_cast<random::Stream>(0xff)};
  const DeviceArray<std::uint32_t> words("selftest", 8);
  launch(
      exec, "trireme::check::selftest_philox", 1, KOKKOS_LAMBDA(const index_t) {
        const random::Words a = zeros.block(0);
        const random::Words b = ones.block(kOnes48);
        for (int w = 0; w < 4; ++w) {
          words(static_cast<std::size_t>(w)) = a.word[w];
          words(static_cast<std::size_t>(w + 4)) = b.word[w];
        }
      });
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), words);
  constexpr std::uint32_t known[8] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u,
                                      0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
  for (std::size_t i = 0; i < 8; ++i) {
    TRIREME_REQUIRE(host(i) == known[i], "Philox word {} is {:08x}, published is {:08x}",
                    i, host(i), known[i]);
  }
  return "Philox-4x32-10, published values";
}

std::string matrix_products(const Exec& exec) {
  Worst single(1e-6), twice(1e-14);
  for (const auto& [ta, tb] : {std::pair{Transpose::no, Transpose::yes},
                               {Transpose::no, Transpose::no},
                               {Transpose::yes, Transpose::no}}) {
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
      single.add("float32 product", gemm_error<float>(exec, ta, tb, accumulate));
      twice.add("float64 product", gemm_error<double>(exec, ta, tb, accumulate));
    }
  }
  return fmt::format("float32 {}, float64 {}", single.text(), twice.text());
}

std::string attention(const Exec& exec) {
  constexpr index_t s = 75, b = 2, heads = 4, kv_heads = 2, d = 24;
  const kernels::AttentionDesc desc{.batch = b,
                                    .q_length = s,
                                    .kv_length = s,
                                    .heads = heads,
                                    .kv_heads = kv_heads,
                                    .head_dim = d,
                                    .scale = 1.0 / std::sqrt(static_cast<double>(d)),
                                    .dropout = 0.1,
                                    .mask_queries = s,
                                    .mask_keys = s};
  const DeviceArray<kernels::StepState> state("selftest", 1);
  const kernels::StepStateView step(state.data());
  const Numbers<float> q(exec, "q", s * b, heads * d), k(exec, "k", s * b, kv_heads * d),
      v(exec, "v", s * b, kv_heads * d), d_o(exec, "d_o", s * b, heads * d);
  const Numbers<float> o(exec, "", s * b, heads * d), lse(exec, "", b * heads, s),
      d_q(exec, "", s * b, heads * d), d_k(exec, "", s * b, kv_heads * d),
      d_v(exec, "", s * b, kv_heads * d),
      scratch(exec, "", 1, kernels::attention_backward_scratch_elements<float>(desc));
  kernels::attention_forward<float>(exec, desc, step, q.heads_in(b), k.heads_in(b),
                                    v.heads_in(b), o.heads(b), lse.vector());
  kernels::attention_backward<float>(exec, desc, step, q.heads_in(b), k.heads_in(b),
                                     v.heads_in(b), o.heads_in(b), lse.vector_in(),
                                     d_o.heads_in(b), scratch.vector(), d_q.heads(b),
                                     d_k.heads(b), d_v.heads(b));
  const PlainAttention plain(desc, q.values(), k.values(), v.values(), d_o.values());
  Worst worst(3e-6);
  worst.add("output", distance(o.values(), plain.o));
  worst.add("log-sum-exp", distance(lse.values(), plain.lse));
  worst.add("gradient of q", distance(d_q.values(), plain.d_q));
  worst.add("gradient of k", distance(d_k.values(), plain.d_k));
  worst.add("gradient of v", distance(d_v.values(), plain.d_v));
  return worst.text() + ", causal, grouped heads, dropout, forward and backward";
}

std::string layer_norm(const Exec& exec) {
  constexpr index_t rows = 33, h = 257;
  constexpr double epsilon = 1e-5;
  const Numbers<float> x(exec, "x", rows, h), gamma(exec, "gamma", 1, h),
      beta(exec, "beta", 1, h), y(exec, "", rows, h), mean(exec, "", 1, rows),
      rstd(exec, "", 1, rows);
  kernels::norm_forward<float>(exec, kernels::NormKind::layernorm, x.in(),
                               gamma.vector_in(), beta.vector_in(), epsilon, y.matrix(),
                               mean.vector(), rstd.vector());
  const auto xs = x.values(), gs = gamma.values(), bs = beta.values();
  std::vector<double> expected(xs.size());
  for (std::size_t r = 0; r < rows; ++r) {
    const double* row = xs.data() + r * h;
    double average = 0, variance = 0;
    for (std::size_t j = 0; j < h; ++j) average += row[j] / h;
    for (std::size_t j = 0; j < h; ++j) {
      variance += (row[j] - average) * (row[j] - average) / h;
    }
    for (std::size_t j = 0; j < h; ++j) {
      expected[r * h + j] =
          (row[j] - average) / std::sqrt(variance + epsilon) * gs[j] + bs[j];
    }
  }
  Worst worst(1e-6);
  worst.add("layer norm", distance(y.values(), expected));
  return worst.text();
}

std::string gelu(const Exec& exec) {
  constexpr index_t rows = 31, f = 129;
  const Numbers<float> x(exec, "x", rows, f), bias(exec, "bias", 1, f),
      y(exec, "", rows, f);
  kernels::apply_epilogue<float>(
      exec, x.in(),
      {.bias = bias.vector_in(), .activation = kernels::Activation::gelu_tanh},
      y.matrix());
  const auto xs = x.values(), bs = bias.values();
  std::vector<double> expected(xs.size());
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const double z = xs[i] + bs[i % f];
    const double inner = std::sqrt(2.0 / M_PI) * (z + 0.044715 * z * z * z);
    expected[i] = 0.5 * z * (1.0 + std::tanh(inner));
  }
  Worst worst(1e-6);
  worst.add("GeLU", distance(y.values(), expected));
  return worst.text();
}

std::string cross_entropy(const Exec& exec) {
  constexpr index_t rows = 29, v = 1003, padded = 1024;
  const Numbers<float> logits(exec, "logits", rows, padded), row_max(exec, "", 1, rows),
      sums(exec, "", rows, 2), loss(exec, "", 1, rows);
  const DeviceArray<std::int32_t> labels("selftest", rows);
  const DeviceArray<float> mask("selftest", rows);
  const DeviceArray<double> totals("selftest", 2);
  launch(
      exec, "trireme::check::selftest_labels", rows, KOKKOS_LAMBDA(const index_t i) {
        labels(i) = static_cast<std::int32_t>(i * 35);
        mask(i) = i % 5 == 0 ? 0.0f : 1.0f;
      });
  const kernels::VocabRange range{0, v};
  const View1<const std::int32_t> label_view(labels);
  kernels::cross_entropy_row_max_and_sums<float>(exec, range, logits.in(), label_view,
                                                 row_max.vector(), sums.matrix());
  kernels::cross_entropy_loss<float>(exec, row_max.vector_in(), sums.in(),
                                     View1<const float>(mask), loss.vector(),
                                     View1<double>(totals));
  const auto ls = logits.values();
  double sum = 0, count = 0;
  std::vector<double> expected;
  for (std::size_t r = 0; r < rows; ++r) {
    double total = 0;
    for (std::size_t j = 0; j < v; ++j) total += std::exp(ls[r * padded + j]);
    expected.push_back(std::log(total) - ls[r * padded + r * 35]);
    if (r % 5 == 0) continue;
    sum += expected.back();
    count += 1;
  }
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), totals);
  Worst worst(1e-6);
  worst.add("loss of each row", distance(loss.values(), expected));
  worst.add("sum of the losses", distance({host(0), host(1)}, {sum, count}));
  return worst.text();
}

}  // namespace trireme::check::checks
