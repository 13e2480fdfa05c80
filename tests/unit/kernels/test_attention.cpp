// Attention: every way to compute the tiles against dense matrices in double, written
// here from the definition; heads and samples computed apart have the same bits; large
// logits, cached keys, gaps between rows, masks.
#include "kernels/attention.hpp"

#include <gmock/gmock.h>

#include <string>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "kernels/attention_pool.hpp"
#include "kernels/impl/attention_fast.hpp"
#include "kernels/impl/attention_host.hpp"
#include "kernels/impl/attention_pool.hpp"
#include "kernels/impl/philox_lanes.hpp"
#include "support/arrays.hpp"
#include "unit/kernels/attention_problem.hpp"

namespace trireme::kernels {
namespace {

using namespace attention_test;

// Lengths around a tile's, head sizes around a vector's.
const std::vector<AttentionDesc>& cases() {
  using enum MaskKind;
  static const std::vector<AttentionDesc> all = {
      make(2, 1, 1, 2, 2, 5),
      make(1, 2, 2, 1, 1, 1, 0.1),
      make(3, 7, 7, 3, 3, 12, 0.3),
      make(1, 63, 63, 2, 2, 33),
      make(1, 64, 64, 2, 2, 16, 0.1),
      make(2, 65, 65, 2, 1, 20, 0.1),
      make(1, 129, 129, 2, 2, 31, 0.2),
      make(1, 129, 129, 1, 1, 64),
      make(1, 33, 33, 1, 1, 128, 0.5),
      make(2, 33, 70, 2, 2, 9, 0.1, none),   // cross attention
      make(1, 70, 33, 4, 2, 17, 0.0, none),  // more queries than keys
      make(3, 1, 130, 4, 2, 24),             // one new token after 129
      make(2, 5, 71, 2, 2, 13, 0.2),         // several new tokens
      make(1, 66, 200, 2, 1, 8, 0.1),
      make(1, 66, 192, 1, 1, 8, 0.1),  // one key of a tile is not seen by the first query
      make(1, 31, 31, 1, 1, 64, 0.1),
      make(1, 65, 65, 2, 1, 160, 0.1),  // heads up to the largest
      make(1, 70, 70, 1, 1, 256, 0.2),
      make(1, 33, 65, 2, 2, 256, 0.0, none),
      make(1, 257, 257, 2, 2, 64, 0.1),  // two halves of a tile, and one query more
      make(1, 600, 600, 1, 1, 40, 0.1),  // two chunks of keys
      make(3, 33, 33, 2, 1, 20, 0.1, padding),
      make(2, 70, 150, 1, 1, 64, 0.2, padding),
      make(3, 193, 193, 2, 2, 24, 0.1, document),
      make(2, 600, 600, 1, 1, 33, 0.0, document),
      make(2, 40, 97, 2, 1, 16, 0.0, document),
      make(3, 193, 193, 2, 2, 24, 0.1, segment),
      make(2, 600, 600, 1, 1, 33, 0.0, segment),
      make(2, 40, 97, 2, 1, 16, 0.1, segment),
      make(2, 5, 71, 2, 2, 13, 0.2, segment),
      padded(make(3, 129, 129, 2, 1, 20, 0.1, padding)),
      padded(make(3, 200, 200, 1, 1, 16, 0.1)),
      padded(make(2, 5, 71, 2, 2, 13, 0.2)),
      padded(make(3, 200, 512, 1, 1, 16, 0.0, none)),  // ends with a chunk
      padded(make(3, 193, 193, 2, 2, 24, 0.0, document)),
      padded(make(3, 600, 600, 1, 1, 24, 0.1, segment)),
      biased(make(2, 65, 65, 2, 1, 20, 0.1)),
      biased(make(1, 129, 129, 2, 2, 31, 0.2)),
      biased(make(2, 63, 63, 2, 2, 12, 0.0, none)),
      biased(make(2, 33, 70, 2, 2, 9, 0.1, none)),
      biased(make(1, 70, 33, 4, 2, 17, 0.0, none)),
      biased(make(3, 1, 130, 4, 2, 24)),
      biased(make(2, 5, 71, 2, 2, 13, 0.2)),
      biased(make(1, 257, 257, 2, 2, 64, 0.1, none)),
      biased(make(2, 600, 600, 1, 1, 24, 0.1)),
      biased(padded(make(3, 200, 200, 2, 1, 16, 0.1, padding))),
      biased(make(2, 600, 600, 1, 1, 16, 0.0, segment)),
  };
  return all;
}

// Between rows: even enough for sixteen bytes at a time where a head has as many.
index_t gap_of(const AttentionDesc& desc) {
  return desc.head_dim % 16 == 0 ? 8 : kOddGap;
}

// What typed tests are of: an element type in all ways but one, and bf16 on Intel's
// matrix tiles (AMX). Few CPUs have these, so that their tests have a label of their own,
// `amx`, and are never passed over in silence.
template <class T>
struct Usual {
  using Element = T;
  static constexpr bool is_on_tiles = false;
};
struct OnTiles {
  using Element = bf16;
  static constexpr bool is_on_tiles = true;
};
template <class... More>
using UsualAnd =
    ::testing::Types<Usual<float>, Usual<double>, Usual<bf16>, Usual<fp16>, More...>;
using TypesAndWays = std::conditional_t<kHostExecution, UsualAnd<OnTiles>, UsualAnd<>>;

// A way to compute a type's tiles, forced.
struct Way {
  impl::AttentionWay way;
  std::string name;
  Exec exec;
  bool rounds_terms = false;  // probabilities and their gradients, to 16 bits
};
template <class Of>
std::vector<Way> ways() {
  std::vector<Way> all;
  using impl::AttentionWay;
  for (const auto way : {AttentionWay::reference, AttentionWay::vectors,
                         AttentionWay::matrices, AttentionWay::tensor_cores}) {
    if (!impl::has_attention_way(dtype_of<typename Of::Element>, way)) continue;
    if ((way == AttentionWay::matrices) != Of::is_on_tiles) continue;
    const bool rounds =
        way == AttentionWay::matrices || way == AttentionWay::tensor_cores;
    all.push_back({way, std::string(impl::name_of(way)), Exec(), rounds});
    impl::set_attention_way(all.back().exec, way);
  }
  return all;
}

// Tensor cores take some head sizes and fall back silently for others: those that they
// have must not.
bool is_taken(const Way& way, DType type, const AttentionDesc& desc) {
  const auto cores = impl::AttentionWay::tensor_cores;
  if (way.name != impl::name_of(cores)) return true;
  if (!kHostExecution && desc.has_bias) return true;
  const index_t d = desc.head_dim;
  const bool has_fragments =
      kHostExecution ? d >= 64 && d % 16 == 0 : d == 64 || d == 80 || d == 96 || d == 128;
  return !has_fragments || impl::attention_way(way.exec, type, desc) == cores;
}

struct NamesOfTypes {
  template <class Of>
  static std::string GetName(int i) {
    return Of::is_on_tiles ? "Amx" : std::to_string(i);
  }
};
template <class Of>
class AttentionOf : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ways<Of>().empty()) GTEST_SKIP() << "this process has no matrix tiles (AMX)";
  }
};
TYPED_TEST_SUITE(AttentionOf, TypesAndWays, NamesOfTypes);

template <class T>
void expect_same(const Output<T>& got, const Values& o, const Values& lse,
                 const Values& d_q, const Values& d_k, const Values& d_v) {
  // Sums of a few hundred terms in the accumulator, then one rounding to T: neighbours of
  // T where the sums lie on either side of the middle between them.
  const double u = test::rounding<T>(), ua = test::rounding<Accumulator<T>>();
  const double r = 64 * ua + (sizeof(T) == 2 ? 2 * u : 0);
  const double scale = 64 * ua / r;
  test::expect_close(got.o.values(), o, r, scale, "o");
  test::expect_close(as_numbers(got.lse.values()), as_numbers(lse), 16 * ua, 1, "lse");
  test::expect_close(got.d_q.values(), d_q, r, scale, "d_q");
  test::expect_close(got.d_k.values(), d_k, r, 2 * scale, "d_k");
  test::expect_close(got.d_v.values(), d_v, r, 2 * scale, "d_v");
}

template <class Of>
void expect_right(const std::vector<AttentionDesc>& descs) {
  using T = typename Of::Element;
  for (const AttentionDesc& desc : descs) {
    const Problem<T> problem(desc, 2.0, gap_of(desc));
    for (const Way& way : ways<Of>()) {
      SCOPED_TRACE(name_of(desc) + " " + way.name);
      EXPECT_TRUE(is_taken(way, dtype_of<T>, desc));
      const auto got = problem.fast(way.exec);
      const Dense want(problem, sizeof(T) == 2 ? &got : nullptr);
      expect_bias_gradient(got, want);
      if (!way.rounds_terms) {
        expect_same(got, want.o, want.lse, want.d_q, want.d_k, want.d_v);
        continue;
      }
      expect_within_terms(got, want);
    }
  }
}

TYPED_TEST(AttentionOf, MatchesTheDefinition) {
  expect_right<TypeParam>(cases());
}

// Each rank of a tensor group computes some of the heads: not one bit may differ from the
// rank that computes them all, nor for a sample in a smaller micro-batch.
TYPED_TEST(AttentionOf, HeadsAndSamplesApartHaveTheSameBits) {
  using T = typename TypeParam::Element;
  for (const Way& way : ways<TypeParam>()) {
    for (const index_t length : {7, 65, 129}) {
      const Problem<T> problem(make(3, length, length, 4, 2, 12, 0.2));
      const Output<T> whole = problem.fast(way.exec);
      Output<T> by_heads(problem.desc), by_samples(problem.desc);
      for (const index_t group : {1, 0}) {
        AttentionDesc half = problem.desc;
        half.heads = 2;
        half.kv_heads = 1;
        half.head_begin += 2 * group;
        problem.part(way.exec, half, Step(), 2 * group, group, 0, by_heads);
      }
      for (const index_t sample : {0, 1, 2}) {
        AttentionDesc one = problem.desc;
        one.batch = 1;
        const Step step(kSampleBase + static_cast<std::uint64_t>(sample));
        problem.part(way.exec, one, step, 0, 0, sample, by_samples);
      }
      EXPECT_EQ(by_heads.bytes(), whole.bytes()) << length << way.name;
      EXPECT_EQ(by_samples.bytes(), whole.bytes()) << length << way.name;
    }
  }
}

// The bias of a rank is that of its heads, and so is its gradient.
TYPED_TEST(AttentionOf, HeadsApartHaveTheSameBiasGradient) {
  using T = typename TypeParam::Element;
  for (const Way& way : ways<TypeParam>()) {
    const Problem<T> problem(biased(make(3, 129, 129, 4, 2, 12, 0.2)));
    const Output<T> whole = problem.fast(way.exec);
    Output<T> by_heads(problem.desc);
    for (const index_t group : {1, 0}) {
      AttentionDesc half = problem.desc;
      half.heads = 2;
      half.kv_heads = 1;
      half.head_begin += 2 * group;
      problem.part(way.exec, half, Step(), 2 * group, group, 0, by_heads);
    }
    EXPECT_EQ(by_heads.bytes(), whole.bytes()) << way.name;
  }
}

// Shapes that a GPU's tensor cores take, and take here.
TYPED_TEST(AttentionOf, WholeFragmentsMatchTheDefinition) {
  const std::vector<index_t> head_dims =
      kHostExecution ? std::vector<index_t>{80} : std::vector<index_t>{64, 80, 96, 128};
  for (const index_t head_dim : head_dims) {
    for (const double dropout : {0.0, 0.1}) {
      expect_right<TypeParam>(
          {make(2, 129, 129, 2, 1, head_dim, dropout),
           make(1, 300, 300, 2, 2, head_dim, dropout),
           make(2, 66, 192, 1, 1, head_dim, dropout),
           make(1, 70, 333, 2, 1, head_dim, dropout, MaskKind::none),
           make(2, 129, 129, 1, 1, head_dim, dropout, MaskKind::padding),
           make(3, 193, 193, 1, 1, head_dim, dropout, MaskKind::document)});
    }
  }
}

// On a GPU more blocks than run at once, whose sums of d_q wait for each other, and heads
// enough for blocks that take all keys of theirs. Twice, and with the last sample alone.
TYPED_TEST(AttentionOf, SameBitsInAnyGrid) {
  using T = typename TypeParam::Element;
  const std::vector<AttentionDesc> descs =
      kHostExecution ? std::vector<AttentionDesc>{make(3, 300, 300, 4, 2, 64, 0.1)}
                     : std::vector<AttentionDesc>{make(2, 1024, 1024, 16, 16, 64, 0.1),
                                                  make(1, 2000, 2000, 12, 4, 128, 0.1),
                                                  make(24, 130, 130, 16, 16, 64, 0.1)};
  for (const AttentionDesc& desc : descs) {
    const Problem<T> problem(desc, 2.0, gap_of(desc));
    for (const Way& way : ways<TypeParam>()) {
      SCOPED_TRACE(name_of(desc) + " " + way.name);
      const auto whole = problem.fast(way.exec);
      EXPECT_EQ(problem.fast(way.exec).bytes(), whole.bytes());
      const index_t last = desc.batch - 1;
      AttentionDesc one = problem.desc;
      one.batch = 1;
      Output<T> alone(desc, gap_of(desc));
      problem.part(way.exec, one, Step(kSampleBase + static_cast<std::uint64_t>(last)), 0,
                   0, last, alone);
      for (const auto part :
           {&Output<T>::o, &Output<T>::d_q, &Output<T>::d_k, &Output<T>::d_v}) {
        EXPECT_EQ((alone.*part).values_of(last), (whole.*part).values_of(last));
      }
    }
  }
}

TYPED_TEST(AttentionOf, SameBitsTwiceAndOnOneThread) {
  using T = typename TypeParam::Element;
  const AttentionDesc desc = make(2, 129, 129, 3, 3, 20, 0.1);
  for (const AttentionDesc& d : {desc, biased(desc), padded(biased(desc))}) {
    const Problem<T> problem(d);
    for (const Way& way : ways<TypeParam>()) {
      const auto first = problem.fast(way.exec).bytes();
      EXPECT_EQ(problem.fast(way.exec).bytes(), first) << way.name;
      const test::OneThread one;
      if (!one.exists) continue;
      impl::set_attention_way(one.exec, way.way);
      EXPECT_EQ(problem.fast(one.exec).bytes(), first) << way.name;
    }
  }
}

// However the backward pass is cut into launches: 600 keys are two chunks.
TYPED_TEST(AttentionOf, SameBitsInOneLaunchAndInTwo) {
  using T = typename TypeParam::Element;
  if constexpr (kHostExecution) {
    const auto one_sample = [](MaskKind mask) {
      return make(1, 600, 600, 4, 2, 20, 0.1, mask);
    };
    for (const AttentionDesc& desc :
         {one_sample(MaskKind::causal), one_sample(MaskKind::document),
          one_sample(MaskKind::segment),
          padded(make(3, 600, 600, 2, 1, 20, 0.1, MaskKind::segment)),
          padded(make(3, 200, 1024, 2, 2, 20, 0.0, MaskKind::none)),
          biased(one_sample(MaskKind::none)), biased(one_sample(MaskKind::causal)),
          biased(padded(make(3, 200, 1024, 2, 2, 20, 0.0, MaskKind::none)))}) {
      const Problem<T> problem(desc);
      for (const Way& way : ways<TypeParam>()) {
        impl::set_backward_launches(way.exec, impl::BackwardLaunches::one);
        const auto one = problem.fast(way.exec).bytes();
        impl::set_backward_launches(way.exec, impl::BackwardLaunches::two);
        EXPECT_EQ(problem.fast(way.exec).bytes(), one) << way.name;
      }
    }
  }
}

// A sample without keys: no output, no gradient, and nothing that is not a number.
TYPED_TEST(AttentionOf, PaddingOfAllKeys) {
  using T = typename TypeParam::Element;
  const index_t length = 70, heads = 2, d = 12;
  for (const Way& way : ways<TypeParam>()) {
    const Problem<T> problem(
        make(2, length, length, heads, heads, d, 0.1, MaskKind::padding));
    Array<std::int32_t> lengths({0.0, 3.0});
    Problem<T> with = problem;
    with.desc.key_lengths = lengths.vector().data();
    SCOPED_TRACE(way.name);
    expect_nothing_of_first_sample(with.fast(way.exec), with.desc);
  }
}

// Not one bit of what real queries have depends on what padding holds, tiles of it and
// the end of one.
TYPED_TEST(AttentionOf, WhatPaddingHoldsDoesNotMatter) {
  using T = typename TypeParam::Element;
  const index_t length = 200, width = 2 * 16, batch = 3;
  for (const MaskKind mask : {MaskKind::causal, MaskKind::padding, MaskKind::segment}) {
    const Problem<T> problem(padded(make(batch, length, length, 2, 2, 16, 0.1, mask)));
    Problem<T> other = problem;
    Values q = problem.q.values(), d_o = problem.d_o.values();
    for (index_t i = 0; i < length * batch * width; ++i) {
      if (i / width / batch < query_length(problem.desc, i / width % batch)) continue;
      q[i] = 1e3, d_o[i] = -1e3;
    }
    other.q = Heads<T>(length, batch, width, q);
    other.d_o = Heads<T>(length, batch, width, d_o);
    for (const Way& way : ways<TypeParam>()) {
      EXPECT_EQ(other.fast(way.exec).bytes(), problem.fast(way.exec).bytes()) << way.name;
    }
  }
}

// Words of several rows at once, past 2^32 calls too.
TEST(AttentionDropout, RowsOfWordsEqualSingleBlocks) {
  const random::Generator g{
      .seed = 0x123456789abcdefull, .owner = 0xfedcba987654ull, .layer = 77};
  constexpr int kRows = 32, kCalls = 5;
  for (const bool carries : {true, false}) {
    std::uint64_t first[kRows];
    for (int r = 0; r < kRows; ++r) {
      first[r] = (1ull << 32) - (carries ? 300 : 90000) + 40 * (31 - r);
    }
    PhiloxRows<7, kRows> rows;
    rows.set(g, first, 3 + kCalls);
    std::uint32_t words[4 * kCalls * kRows];
    for (int call = 0; call < kCalls; ++call) {
      for (int row = 0; row < kRows; row += kPhiloxRowStep) {
        rows.draw(row, 3 + static_cast<std::uint64_t>(call),
                  words + 4 * call * kRows + row, kRows);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < 4 * kCalls; ++i) {
        const auto one = g.block<7>(first[r] + 3 + static_cast<std::uint64_t>(i / 4));
        ASSERT_EQ(words[i * kRows + r], one.word[i % 4]) << r << " " << i;
      }
    }
  }
}

// An element whose word is the threshold itself is kept, in both passes.
TYPED_TEST(AttentionOf, TheThresholdItselfIsKept) {
  using T = typename TypeParam::Element;
  AttentionDesc desc = make(1, 64, 64, 1, 1, 16, 0.5);
  const index_t q = 60, key = 32 + 8 * 2 + 2 * 3;
  const random::Generator generator{.seed = kSeed,
                                    .owner = kSampleBase,
                                    .layer = desc.layer,
                                    .site = desc.site,
                                    .stream = random::Stream::dropout};
  const auto row = static_cast<std::uint64_t>(desc.head_begin * desc.mask_queries +
                                              desc.query_begin + q);
  const auto calls =
      random::DropoutWords::calls_per_key_row(static_cast<std::uint64_t>(desc.mask_keys));
  const auto call = random::DropoutWords::call(generator, row * calls + 4 + 3);
  desc.dropout = static_cast<double>(random::DropoutWords::half(call.word[2], 0)) / 65536;
  // The only key that the query looks at.
  Problem<T> problem(desc);
  Values k = problem.k.values(), d_o = problem.d_o.values();
  std::fill(k.begin(), k.end(), 0.0);
  for (index_t c = 0; c < 16; ++c) {
    k[key * 16 + c] = 8 * problem.q.values()[q * 16 + c];
    d_o[q * 16 + c] = 1.0;
  }
  problem.k = Heads<T>(64, 1, 16, k);
  problem.d_o = Heads<T>(64, 1, 16, d_o);
  const Dense want(problem);
  for (const Way& way : ways<TypeParam>()) {
    const auto got = problem.fast(way.exec);
    const Values o = got.o.values(), d_v = got.d_v.values();
    for (index_t c = 0; c < 16; ++c) {
      const index_t at = q * 16 + c, kv_at = key * 16 + c;
      EXPECT_NEAR(o[at], want.o[at], 0.02 * std::abs(want.o[at])) << way.name;
      EXPECT_NEAR(d_v[kv_at], want.d_v[kv_at], 0.02 * want.d_v_terms[kv_at]) << way.name;
    }
  }
}

// What the cache gives for the last tokens is what the whole sequence gives.
TEST(AttentionCache, LastRowsOfTheWhole) {
  const index_t length = 70, heads = 2, d = 12;
  const Problem<double> whole(make(1, length, length, heads, heads, d, 0.25));
  const Values want = whole.fast().o.values();
  for (const index_t news : {1, 3, 66}) {
    AttentionDesc desc = whole.desc;
    desc.q_length = news;
    desc.query_begin = length - news;
    Heads<double> o(news, 1, heads * d, 7.0);
    Array<double> lse(static_cast<std::size_t>(heads * news));
    auto q = whole.q.view<const double>();
    q.data += (length - news) * q.sequence_stride;
    attention_forward<double>(Exec(), desc, Step().view(), q,
                              whole.k.view<const double>(), whole.v.view<const double>(),
                              o.view(), lse.vector());
    const Values tail(want.end() - news * heads * d, want.end());
    test::expect_close(o.values(), tail, 32 * test::rounding<double>(), 1, "o");
  }
}

// No key after the query has any say, however large its score, nor in the gradient of
// the query.
TYPED_TEST(AttentionOf, TheFutureDoesNotMatter) {
  using T = typename TypeParam::Element;
  const index_t length = 70, d = 8;
  const double huge = dtype_of<T> == DType::float16 ? 6e4 : 1e30;
  const Problem<T> problem(make(1, length, length, 1, 1, d));
  Problem<T> poisoned = problem;
  Values k = problem.k.values(), v = problem.v.values();
  for (index_t i = 66 * d; i < length * d; ++i) k[i] = huge, v[i] = -huge;
  poisoned.k = Heads<T>(length, 1, d, k);
  poisoned.v = Heads<T>(length, 1, d, v);
  for (const Way& way : ways<TypeParam>()) {
    const auto before = problem.fast(way.exec), after = poisoned.fast(way.exec);
    for (const auto part : {&Output<T>::o, &Output<T>::d_q}) {
      const Values old = (before.*part).values(), poison = (after.*part).values();
      for (index_t i = 0; i < 66 * d; ++i) ASSERT_EQ(poison[i], old[i]) << way.name << i;
      EXPECT_NE(poison[67 * d], old[67 * d]) << way.name;
    }
  }
}

// Scores of some ten thousand: exp() of them overflows, the softmax does not. Of 200 keys
// the largest score is often not in the first tile, and what was summed is rescaled.
TYPED_TEST(AttentionOf, LargeLogits) {
  using T = typename TypeParam::Element;
  for (const index_t length : {70, 200}) {
    const Problem<T> problem(make(1, length, length, 2, 2, 16), 3e3);
    const Dense want(problem);
    for (const Way& way : ways<TypeParam>()) {
      SCOPED_TRACE(way.name);
      const auto got = problem.fast(way.exec);
      // A score of 1e4 is known to 1e4 * u: so is what the exponential multiplies with.
      const double r = 4e4 * test::rounding<Accumulator<T>>() + 2 * test::rounding<T>();
      test::expect_close(got.o.values(), want.o, r, 1, "o");
      test::expect_close(got.lse.values(), want.lse, r, 1, "lse");
      for (const auto* gradient : {&got.d_q, &got.d_k, &got.d_v}) {
        for (const double x : gradient->values()) ASSERT_TRUE(std::isfinite(x));
      }
    }
  }
}

// A score that is not a number shows in its row, and in no row that does not see it.
TYPED_TEST(AttentionOf, NotANumberIsPassedOn) {
  using T = typename TypeParam::Element;
  const index_t length = 70, d = 8;
  for (const Way& way : ways<TypeParam>()) {
    Problem<T> problem(make(1, length, length, 1, 1, d));
    Values k = problem.k.values();
    k[66 * d + 1] = NAN;
    problem.k = Heads<T>(length, 1, d, k);
    const auto got = problem.fast(way.exec);
    const Values o = got.o.values(), d_q = got.d_q.values();
    for (index_t i = 0; i < length * d; ++i) {
      ASSERT_EQ(std::isnan(o[i]), i >= 66 * d) << way.name << " " << i;
    }
    EXPECT_TRUE(std::isnan(d_q[66 * d])) << way.name;
  }
}

// Equal scores: the mean of the values seen. One score far above: that value alone.
TEST(AttentionKnown, MeanAndChoice) {
  const index_t length = 67, d = 3;
  AttentionDesc desc = make(1, length, length, 1, 1, d);
  desc.scale = 1.0;
  Problem<float> problem(desc);
  const Values v = problem.v.values();
  problem.k = Heads<float>(length, 1, d, 0.0);
  const Values mean = problem.fast().o.values();
  Values q(length * d), k(length * d), sum(d);
  for (index_t i = 0; i < length; ++i) {
    for (index_t c = 0; c < d; ++c) {
      sum[c] += v[i * d + c];
      ASSERT_NEAR(mean[i * d + c], sum[c] / static_cast<double>(i + 1), 1e-6);
    }
    q[i * d] = 100;
  }
  k[5 * d] = 100;
  problem.q = Heads<float>(length, 1, d, q);
  problem.k = Heads<float>(length, 1, d, k);
  const Values chosen = problem.fast().o.values();
  for (index_t i = 5; i < length; ++i) {
    for (index_t c = 0; c < d; ++c) ASSERT_EQ(chosen[i * d + c], v[5 * d + c]);
  }
}

// A share p of the probabilities is dropped, the rest scaled so that means stay.
TEST(AttentionDropout, ShareAndScale) {
  const index_t length = 128, heads = 8, d = 1;
  AttentionDesc desc = make(1, length, length, heads, heads, d, 0.25, MaskKind::none);
  Problem<double> problem(desc);
  problem.k = Heads<double>(length, 1, heads * d, 0.0);  // every probability 1 / length
  problem.v = Heads<double>(length, 1, heads * d, 1.0);
  const Values o = problem.fast().o.values();
  double mean = 0, square = 0;
  for (const double x : o) mean += x, square += x * x;
  const auto n = static_cast<double>(o.size());
  mean /= n;
  // kept / length / 0.75 with kept binomial(length, 0.75).
  const double variance = 0.25 / 0.75 / static_cast<double>(length);
  EXPECT_NEAR(mean, 1.0, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(square / n - mean * mean, variance, 5 * variance * std::sqrt(2 / n));
}

TEST(AttentionShapeOnly, WritesNothing) {
  const Problem<float> problem(make(1, 5, 5, 2, 2, 4));
  const Step step;
  const Output<float> out(problem.desc);
  const auto before = out.bytes();
  const Array<float> scratch(
      static_cast<std::size_t>(attention_backward_scratch_elements<float>(problem.desc)));
  attention_forward<float>(Exec::shape_only(), problem.desc, step.view(),
                           problem.q.view<const float>(), problem.k.view<const float>(),
                           problem.v.view<const float>(), out.o.view(), out.lse.vector());
  attention_backward<float>(
      Exec::shape_only(), problem.desc, step.view(), problem.q.view<const float>(),
      problem.k.view<const float>(), problem.v.view<const float>(),
      out.o.view<const float>(), out.lse.cvector(), problem.d_o.view<const float>(),
      scratch.vector(), out.d_q.view(), out.d_k.view(), out.d_v.view());
  EXPECT_EQ(out.bytes(), before);
}

// A bias that the descriptor does not have is not left out in silence.
TEST(AttentionErrors, ABiasIsAskedForAndGiven) {
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  const View2<const float> bias(nullptr, 4, 7);
  const AttentionDesc plain = make(1, 4, 4, 4, 2, 8), desc = biased(plain);
  EXPECT_THAT(
      [&] {
        attention_forward<float>(Exec::shape_only(), plain, {}, {}, {}, {}, {}, {}, bias);
      },
      ThrowsMessage<Error>(HasSubstr("bias is (4, 7), expected (0, 0)")));
  EXPECT_NO_THROW(
      attention_forward<float>(Exec::shape_only(), desc, {}, {}, {}, {}, {}, {}, bias));
  EXPECT_THAT(
      [&] { attention_forward<float>(Exec(), desc, {}, {}, {}, {}, {}, {}, bias); },
      ThrowsMessage<Error>(HasSubstr("bias has no memory")));
  const Array<float> scratch(
      static_cast<std::size_t>(attention_backward_scratch_elements<float>(desc)));
  EXPECT_THAT(
      [&] {
        attention_backward<float>(Exec::shape_only(), desc, {}, {}, {}, {}, {}, {}, {},
                                  scratch.vector(), {}, {}, {}, bias, {});
      },
      ThrowsMessage<Error>(HasSubstr("d_bias is (0, 0), expected (4, 7)")));
}

TEST(AttentionErrors, WhatCannotBeIsNamed) {
  const auto call = [](const AttentionDesc& desc) {
    attention_forward<float>(Exec::shape_only(), desc, {}, {}, {}, {}, {}, {});
  };
  const auto backward = [](const AttentionDesc& desc) {
    const Array<float> scratch(1);
    attention_backward<float>(Exec::shape_only(), desc, {}, {}, {}, {}, {}, {}, {},
                              scratch.vector(), {}, {}, {});
  };
  const auto expect = [&](const AttentionDesc& desc, const char* message) {
    using ::testing::HasSubstr;
    using ::testing::ThrowsMessage;
    EXPECT_THAT([&] { call(desc); }, ThrowsMessage<Error>(HasSubstr(message)));
    EXPECT_THAT([&] { backward(desc); }, ThrowsMessage<Error>(HasSubstr(message)));
  };
  EXPECT_NO_THROW(call(make(1, 4, 4, 4, 2, 8)));
  expect(make(1, 4, 4, 3, 2, 8), "3 query heads share 2 key heads");
  expect(make(1, 4, 4, 3, 0, 8), "3 query heads share 0 key heads");
  expect(make(1, 5, 4, 2, 2, 8), "5 queries over 4 keys");
  expect(make(1, 4, 4, 2, 2, 8, 1.0), "attention dropout 1 is not in [0, 1)");
  expect(make(1, 4, 4, 2, 2, 8, -0.1), "attention dropout -0.1 is not in [0, 1)");
  AttentionDesc desc = make(1, 4, 40, 2, 2, 8, 0.1);
  desc.mask_keys = 39;
  expect(desc, "queries 36 to 40 of 43, 40 keys of 39");
  desc.mask_keys = 40;
  desc.mask_queries = 39;
  expect(desc, "queries 36 to 40 of 39, 40 keys of 40");
  expect(biased(make(1, 4, 4, 4, 2, 8)), "bias is (0, 0), expected (4, 7)");
  for (const MaskKind mask : {MaskKind::padding, MaskKind::document, MaskKind::segment}) {
    const AttentionDesc without = make(1, 4, 4, 2, 2, 8, 0.0, mask);
    EXPECT_NO_THROW(call(without));  // a plan has no memory
    EXPECT_THAT(
        [&] { attention_forward<float>(Exec(), without, {}, {}, {}, {}, {}, {}); },
        ::testing::ThrowsMessage<Error>(::testing::HasSubstr("are missing")));
  }
}

// What launches of teams take on a GPU, by hand: 128 threads each, of 2048 that run on
// one of 132 multiprocessors, with eight tiles of (32, d) and two of (32, 32).
TEST(AttentionPool, HasTheTilesOfAllTeamsThatRun) {
  EXPECT_EQ(impl::pool_bytes<float>(36, 132), 0u);  // within 46 KiB of shared memory
  EXPECT_EQ(impl::pool_bytes<float>(64, 132),
            std::size_t{132 * 16} * (4 * (32 * 8 * 64 + 2 * 32 * 32) + 64));
  EXPECT_EQ(impl::pool_bytes<double>(64, 132),
            std::size_t{132 * 16} * (8 * (32 * 8 * 64 + 2 * 32 * 32) + 64));
  EXPECT_EQ(impl::pool_bytes<float>(256, 108),
            std::size_t{108 * 16} * (4 * (32 * 8 * 256 + 2 * 32 * 32) + 64));
  // No other team's tiles are larger, so that the pool has room for each of them.
  for (const index_t d : {1, 8, 40, 64, 128, 256}) {
    const index_t most = impl::keys_team_elements(d, 32);
    EXPECT_GE(most, impl::queries_team_elements(d, 32));
    EXPECT_GE(most + 3 * 32, impl::forward_team_elements(d, 32));
  }
  if constexpr (kHostExecution) {
    EXPECT_EQ(attention_pool_bytes(DType::float32, 256), 0u);
  }
}

}  // namespace
}  // namespace trireme::kernels
