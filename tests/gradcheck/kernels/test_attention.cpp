// Attention: q, k and v together, each kind of mask, grouped heads, dropout, cached keys.
#include "kernels/attention.hpp"

#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

struct Case {
  const char* name;
  AttentionDesc desc;
};

AttentionDesc make(index_t q_length, index_t kv_length, index_t heads, index_t kv_heads,
                   MaskKind mask, double dropout) {
  AttentionDesc desc;
  desc.batch = 2;
  desc.q_length = q_length;
  desc.kv_length = kv_length;
  desc.heads = heads;
  desc.kv_heads = kv_heads;
  desc.head_dim = 4;
  desc.mask = mask;
  desc.scale = 0.5;
  desc.dropout = dropout;
  desc.head_begin = 3;
  desc.query_begin = kv_length - q_length;
  desc.mask_queries = desc.mask_keys = 128;
  desc.layer = 1;
  return desc;
}

// The second sample has half of the queries. Problem sets the lengths.
AttentionDesc padded(AttentionDesc desc) {
  static const std::int32_t some_length = 0;
  desc.query_lengths = &some_length;
  return desc;
}

AttentionDesc biased(AttentionDesc desc) {
  desc.has_bias = true;
  return desc;
}

// One array holds q, k and v, each (positions, batch, heads * head_dim), and a bias.
class Problem {
 public:
  explicit Problem(const AttentionDesc& desc)
      : d(desc),
        q_size(d.q_length * d.batch * d.heads * d.head_dim),
        kv_size(d.kv_length * d.batch * d.kv_heads * d.head_dim),
        distances(d.has_bias ? d.q_length + d.kv_length - 1 : 0),
        d_o(test::uniform(q_size, 9)),
        o(q_size),
        lse(d.batch * d.heads * d.q_length),
        lengths(d.batch, 5),
        begins(d.batch * d.q_length),
        ends(d.batch * d.q_length),
        query_lengths({static_cast<double>(d.q_length), d.q_length / 2.0}),
        step("step") {
    d.key_lengths = lengths.vector().data();
    // Documents of four tokens.
    Point begin, end;
    for (index_t i = 0; i < d.batch * d.q_length; ++i) {
      begin.push_back(static_cast<double>(i / d.batch / 4 * 4));
      end.push_back(std::min(begin.back() + 4, static_cast<double>(d.kv_length)));
    }
    begins.set(begin);
    ends.set(end);
    d.document_begins = begins.vector().data();
    d.document_ends = ends.vector().data();
    if (d.query_lengths != nullptr) d.query_lengths = query_lengths.vector().data();
  }

  index_t size() const { return q_size + 2 * kv_size + d.heads * distances; }

  double loss(const Point& point) {
    const Array<double> qkv(point);
    forward(qkv);
    const Point out = o.values(), weight = d_o.values();
    double sum = 0;
    for (index_t i = 0; i < q_size; ++i) sum += weight[i] * out[i];
    return sum;
  }

  Point gradient(const Point& point) {
    const Array<double> qkv(point), d_qkv(size());
    forward(qkv);
    const Array<double> scratch(attention_backward_scratch_elements<double>(d));
    attention_backward<double>(
        Exec(), d, StepStateView(step.data()), q<const double>(qkv), k<const double>(qkv),
        v<const double>(qkv), q<const double>(o), lse.cvector(), q<const double>(d_o),
        scratch.vector(), q<double>(d_qkv), k<double>(d_qkv), v<double>(d_qkv), bias(qkv),
        bias(d_qkv));
    return d_qkv.values();
  }

 private:
  template <class T>
  HeadsView<T> q(const Array<double>& array) const {
    return {array.vector().data(), d.batch * d.heads * d.head_dim, d.heads * d.head_dim};
  }
  template <class T>
  HeadsView<T> k(const Array<double>& array) const {
    return {array.vector().data() + q_size, d.batch * d.kv_heads * d.head_dim,
            d.kv_heads * d.head_dim};
  }
  template <class T>
  HeadsView<T> v(const Array<double>& array) const {
    HeadsView<T> view = k<T>(array);
    view.data += kv_size;
    return view;
  }
  View2<double> bias(const Array<double>& array) const {
    if (!d.has_bias) return {};
    return {array.vector().data() + q_size + 2 * kv_size, d.heads, distances};
  }
  void forward(const Array<double>& qkv) {
    attention_forward<double>(Exec(), d, StepStateView(step.data()), q<const double>(qkv),
                              k<const double>(qkv), v<const double>(qkv), q<double>(o),
                              lse.vector(), bias(qkv));
  }

  AttentionDesc d;
  index_t q_size, kv_size, distances;
  Array<double> d_o, o, lse;
  Array<std::int32_t> lengths, begins, ends, query_lengths;
  Kokkos::View<StepState, DeviceMemory> step;
};

class AttentionGradient : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionGradient, OfQueriesKeysValuesAndBias) {
  Problem problem(GetParam().desc);
  const Point at = test::uniform(static_cast<std::size_t>(problem.size()), 1);
  EXPECT_TRUE(test::check_gradient([&](const Point& p) { return problem.loss(p); }, at,
                                   problem.gradient(at)));
}

INSTANTIATE_TEST_SUITE_P(
    Attention, AttentionGradient,
    ::testing::Values(
        Case{"causal", make(9, 9, 2, 2, MaskKind::causal, 0)},
        Case{"dropout", make(9, 9, 2, 2, MaskKind::causal, 0.3)},
        Case{"grouped", make(7, 7, 4, 2, MaskKind::causal, 0.1)},
        Case{"cross", make(5, 11, 2, 2, MaskKind::none, 0)},
        Case{"padding", make(5, 11, 2, 2, MaskKind::padding, 0.1)},
        Case{"document", make(9, 9, 2, 1, MaskKind::document, 0.1)},
        Case{"segment", make(9, 9, 2, 1, MaskKind::segment, 0.1)},
        Case{"padded", padded(make(9, 9, 2, 1, MaskKind::padding, 0.1))},
        Case{"padded_tiles", padded(make(140, 140, 1, 1, MaskKind::causal, 0))},
        Case{"bias", biased(make(9, 9, 4, 2, MaskKind::none, 0.1))},
        Case{"bias_causal", biased(make(9, 9, 2, 2, MaskKind::causal, 0))},
        Case{"bias_cross", biased(padded(make(5, 11, 2, 2, MaskKind::padding, 0)))},
        Case{"bias_tiles", biased(make(70, 128, 1, 1, MaskKind::none, 0.1))},
        Case{"cached", make(3, 9, 2, 1, MaskKind::causal, 0)},
        Case{"tiles", make(70, 70, 1, 1, MaskKind::causal, 0.1)}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::kernels
