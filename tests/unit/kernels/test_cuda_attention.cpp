// Attention on tensor cores, run on a host: the kernels that a GPU runs, by the fibers of
// support/warp_emulation.hpp, against dense matrices in double.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "kernels/cuda/attention_backward.hpp"
#include "kernels/cuda/attention_forward.hpp"
#include "kernels/impl/attention_mask.hpp"
#include "kernels/impl/attention_task.hpp"
#include "support/warp_emulation.hpp"
#include "unit/kernels/attention_problem.hpp"

namespace trireme::kernels {
namespace {

using namespace attention_test;
using test::WarpOrder;

// Pairs of a tile of queries and one of keys in which some query sees some key: from the
// first key that they see to the last one there are no gaps.
std::int64_t pairs_of_tiles(const AttentionDesc& desc, index_t queries, index_t keys) {
  std::int64_t pairs = 0;
  for (index_t sample = 0; sample < desc.batch; ++sample) {
    for (index_t first = 0; first < desc.q_length; first += queries) {
      const index_t last = std::min(first + queries, desc.q_length) - 1;
      const impl::KeyRange seen = impl::visible_keys(desc, sample, first, last);
      if (seen.is_empty()) continue;
      pairs += desc.heads * ((seen.end - 1) / keys - seen.begin / keys + 1);
    }
  }
  return pairs;
}
// Padding, other documents and the future cost nothing beyond the tile that they begin
// in: results do not tell, so that what tensor cores were asked for is counted.
template <class Kernel>
void expect_visits_alone(const AttentionDesc& desc, std::int64_t products,
                         std::int64_t of_pair) {
  constexpr std::int64_t kOfProduct = 16 * 16 * 8;
  const std::int64_t of_tiles =
      of_pair * Kernel::kQueries * Kernel::kKeys * desc.head_dim / kOfProduct;
  EXPECT_EQ(products, of_tiles * pairs_of_tiles(desc, Kernel::kQueries, Kernel::kKeys));
}

constexpr index_t kGap = 8;  // rows begin at multiples of 16 bytes

// How a problem is run.
struct Run {
  WarpOrder order = WarpOrder::first_to_last;
  cuda::KeyTiles key_tiles = cuda::KeyTiles::one;  // of a block
  int blocks_under_way = 3;                        // of the backward pass
};

template <class T, int kHeadDim, bool kDrops, bool kHasBias = false>
Output<T> emulate(const Problem<T>& problem, const Run& run) {
  constexpr cuda::Element kElement = impl::element_of<T>;
  using Forward = cuda::AttentionForward<kElement, kHeadDim, kDrops, kHasBias>;
  using Delta = cuda::AttentionDelta<kElement, kHeadDim>;
  using Backward = cuda::AttentionBackward<kElement, kHeadDim, kDrops, kHasBias>;
  const AttentionDesc& desc = problem.desc;
  EXPECT_TRUE(impl::has_tensor_core_kernel(desc));
  Output<T> out(desc, kGap);
  const Step step;
  const cuda::AttentionShape shape = impl::shape_of(desc);
  const auto q = problem.q.template view<const T>();
  const auto k = problem.k.template view<const T>();
  const auto v = problem.v.template view<const T>();
  const float* const bias = kHasBias ? problem.bias.vector().data() : nullptr;
  const cuda::AttentionForwardTask forward = impl::task_of(impl::ForwardArguments<T>{
      desc, step.view(), q, k, v, out.o.view(), out.lse.vector().data(), bias});
  const std::int64_t forwards = test::run_emulated({.blocks = Forward::blocks(shape),
                                                    .threads = Forward::kThreads,
                                                    .shared_bytes = Forward::kSharedBytes,
                                                    .order = run.order},
                                                   [&] { Forward::block(forward); });
  expect_visits_alone<Forward>(desc, forwards, 2);  // q k^T and p v

  // Nothing may depend on what was there.
  const Array<float> delta(extent(desc.batch * desc.heads * desc.q_length), NAN);
  const Array<float> scratch(extent(impl::tensor_core_scratch_elements(shape)), NAN);
  const cuda::AttentionBackwardTask backward = impl::task_of(impl::BackwardArguments<T>{
      desc, step.view(), q, k, v, out.o.template view<const T>(),
      problem.d_o.template view<const T>(), out.lse.vector().data(),
      delta.vector().data(), scratch.vector().data(), out.d_q.view(), out.d_k.view(),
      out.d_v.view(), bias});
  test::run_emulated(
      {.blocks = Delta::blocks(shape), .threads = Delta::kThreads, .order = run.order},
      [&] { Delta::block(backward); });
  const std::int64_t backwards =
      test::run_emulated({.blocks = Backward::blocks(shape, run.key_tiles),
                          .threads = Backward::kThreads,
                          .shared_bytes = Backward::kSharedBytes,
                          .order = run.order,
                          .blocks_under_way = run.blocks_under_way},
                         [&] { Backward::block(backward, run.key_tiles); });
  // q k^T, d_o v^T, and the sums of d_v, d_k and d_q.
  expect_visits_alone<Backward>(desc, backwards, 5);
  impl::sum_bias_windows<float>(Exec(), desc, impl::bias_sums(shape), backward.bias_sums,
                                out.d_bias.vector().data());
  return out;
}

template <class T, bool kDrops>
Output<T> emulate(const Problem<T>& problem, const Run& run) {
  if (problem.desc.has_bias) {
    return problem.desc.head_dim == 64 ? emulate<T, 64, kDrops, true>(problem, run)
                                       : emulate<T, 128, kDrops, true>(problem, run);
  }
  switch (problem.desc.head_dim) {
    case 64:
      return emulate<T, 64, kDrops>(problem, run);
    case 80:
      return emulate<T, 80, kDrops>(problem, run);
    case 96:
      return emulate<T, 96, kDrops>(problem, run);
    default:
      return emulate<T, 128, kDrops>(problem, run);
  }
}
template <class T>
Output<T> emulate(const Problem<T>& problem, const Run& run = {}) {
  return problem.desc.dropout > 0 ? emulate<T, true>(problem, run)
                                  : emulate<T, false>(problem, run);
}

template <class T>
void expect_right(const AttentionDesc& desc, const Run& run) {
  SCOPED_TRACE(attention_test::name_of(desc));
  const Problem<T> problem(desc, 2.0, kGap);
  const Output<T> got = emulate(problem, run);
  const Dense want(problem, &got);
  expect_within_terms(got, want);
  expect_bias_gradient(got, want);
}

// Lengths around the tiles' (64 and 128), one sample and several, key heads shared.
struct Lengths {
  index_t batch, queries, keys, heads, kv_heads;
};
constexpr Lengths kSelf[] = {{1, 1, 1, 1, 1},    {2, 7, 7, 2, 1},     {1, 31, 31, 1, 1},
                             {1, 33, 33, 1, 1},  {1, 64, 64, 1, 1},   {1, 65, 65, 2, 2},
                             {1, 97, 97, 1, 1},  {1, 128, 128, 1, 1}, {1, 129, 129, 1, 1},
                             {1, 200, 200, 2, 1}};
constexpr Lengths kCross[] = {
    {1, 5, 71, 2, 2}, {2, 33, 70, 1, 1}, {1, 66, 192, 2, 1}, {1, 1, 130, 2, 2}};
constexpr Lengths kFewerKeys[] = {{1, 70, 33, 2, 1}, {2, 130, 1, 1, 1}};

std::vector<AttentionDesc> shapes(index_t head_dim) {
  std::vector<AttentionDesc> all;
  for (const double dropout : {0.0, 0.1}) {
    const auto add = [&](const Lengths& l, MaskKind mask) {
      all.push_back(
          make(l.batch, l.queries, l.keys, l.heads, l.kv_heads, head_dim, dropout, mask));
    };
    for (const Lengths& l : kSelf) add(l, MaskKind::causal);
    for (const Lengths& l : kCross) {
      for (const MaskKind mask :
           {MaskKind::causal, MaskKind::none, MaskKind::padding, MaskKind::document}) {
        add(l, mask);
      }
    }
    for (const Lengths& l : kFewerKeys) add(l, MaskKind::none);
    add({3, 193, 193, 1, 1}, MaskKind::document);
    add({2, 129, 129, 1, 1}, MaskKind::padding);
    add({3, 193, 193, 1, 1}, MaskKind::segment);
    // Padding among queries, and of all of a sample's: of BERT, and of T5's encoder,
    // decoder and cross attention.
    const auto add_padded = [&](const Lengths& l, MaskKind mask) {
      all.push_back(padded(make(l.batch, l.queries, l.keys, l.heads, l.kv_heads, head_dim,
                                dropout, mask)));
    };
    for (const MaskKind mask : {MaskKind::causal, MaskKind::padding, MaskKind::segment}) {
      add_padded({3, 200, 200, 1, 1}, mask);
    }
    add_padded({2, 128, 128, 1, 1}, MaskKind::padding);
    add_padded({2, 70, 192, 1, 1}, MaskKind::none);
    add_padded({3, 70, 192, 2, 2}, MaskKind::padding);
  }
  return all;
}

// Of T5: both ways and up to the query, with padding on both sides, of one tile of keys
// and several, more keys than queries and fewer, heads that share keys, and documents,
// which T5 has none of.
std::vector<AttentionDesc> shapes_with_bias(index_t head_dim) {
  std::vector<AttentionDesc> all;
  for (const double dropout : {0.0, 0.1}) {
    const auto add = [&](const Lengths& l, MaskKind mask) {
      all.push_back(biased(make(l.batch, l.queries, l.keys, l.heads, l.kv_heads, head_dim,
                                dropout, mask)));
    };
    for (const Lengths& l : {Lengths{1, 1, 1, 1, 1}, Lengths{2, 33, 33, 2, 2},
                             Lengths{1, 129, 129, 2, 1}, Lengths{1, 200, 200, 1, 1}}) {
      add(l, MaskKind::causal);
    }
    for (const Lengths& l : {Lengths{2, 70, 192, 2, 2}, Lengths{1, 193, 70, 1, 1},
                             Lengths{1, 150, 300, 1, 1}}) {
      add(l, MaskKind::none);
    }
    for (const MaskKind mask : {MaskKind::causal, MaskKind::padding, MaskKind::segment}) {
      add({3, 200, 200, 2, 2}, mask);
      all.back() = padded(all.back());
    }
    all.push_back(all.back());
    all.back().scale = 1.0;  // as T5 has it
  }
  return all;
}

template <class HeadDim>
class CudaAttentionOf : public ::testing::Test {};
using HeadDims = ::testing::Types<
    std::integral_constant<index_t, 64>, std::integral_constant<index_t, 80>,
    std::integral_constant<index_t, 96>, std::integral_constant<index_t, 128>>;
TYPED_TEST_SUITE(CudaAttentionOf, HeadDims);

// The address sanitizer makes fibers six times as slow.
#ifdef __SANITIZE_ADDRESS__
constexpr int kEvery = 7;
#else
constexpr int kEvery = 1;
#endif

// The orders of warps, and either way to share out keys, have the shapes in turn.
void expect_all_right(const std::vector<AttentionDesc>& shapes) {
  int number = 0;
  for (const AttentionDesc& desc : shapes) {
    if (number++ % kEvery != 0) continue;
    const bool is_odd = number % 2 != 0;
    expect_right<bf16>(desc,
                       {.order = number / 2 % 2 == 0 ? WarpOrder::first_to_last
                                                     : WarpOrder::last_to_first,
                        .key_tiles = is_odd ? cuda::KeyTiles::all : cuda::KeyTiles::one});
  }
}

TYPED_TEST(CudaAttentionOf, MatchesTheDefinition) {
  expect_all_right(shapes(TypeParam::value));
}

TYPED_TEST(CudaAttentionOf, HasABiasForT5sHeads) {
  const AttentionDesc desc =
      biased(make(1, 65, 65, 1, 1, TypeParam::value, 0.1, MaskKind::padding));
  if (TypeParam::value == 80 || TypeParam::value == 96) {
    EXPECT_FALSE(impl::has_tensor_core_kernel(desc));
    return;
  }
  expect_right<fp16>(desc, {});
  expect_all_right(shapes_with_bias(TypeParam::value));
}

TYPED_TEST(CudaAttentionOf, MatchesTheDefinitionInFp16) {
  for (const double dropout : {0.0, 0.25}) {
    expect_right<fp16>(make(1, 70, 70, 2, 1, TypeParam::value, dropout), {});
    expect_right<fp16>(
        make(2, 40, 97, 1, 1, TypeParam::value, dropout, MaskKind::document), {});
  }
}

// Neither the order in which warps run nor how keys are shared out among blocks changes a
// bit.
void expect_same_bits(const Problem<bf16>& problem) {
  const auto first = emulate(problem).bytes();
  EXPECT_EQ(emulate(problem, {.order = WarpOrder::last_to_first}).bytes(), first);
  EXPECT_EQ(emulate(problem, {.key_tiles = cuda::KeyTiles::all}).bytes(), first);
}

TYPED_TEST(CudaAttentionOf, SameBitsHoweverItRuns) {
  for (const MaskKind mask : {MaskKind::causal, MaskKind::padding, MaskKind::segment}) {
    const AttentionDesc desc = make(1, 150, 150, 2, 1, TypeParam::value, 0.1, mask);
    const Problem<bf16> problem(mask == MaskKind::segment ? padded(desc) : desc, 2.0,
                                kGap);
    expect_same_bits(problem);
  }
  if (cuda::is_head_dim_with_bias(TypeParam::value)) {
    expect_same_bits(
        Problem<bf16>(biased(make(2, 150, 150, 2, 1, TypeParam::value, 0.1)), 2.0, kGap));
  }
}

TEST(CudaAttentionViews, BeginAtWholeQuadsAtDistancesOf32Bits) {
  constexpr index_t kMost = std::numeric_limits<std::int32_t>::max();
  alignas(16) bf16 data[16];
  const HeadsView<const bf16> view{data, kMost / 8 * 8, kMost / 8 * 8};
  EXPECT_TRUE(impl::suit_tensor_cores(view, view));
  for (const HeadsView<const bf16>& other :
       {HeadsView<const bf16>{data + 1, 8, 8}, HeadsView<const bf16>{data, 4, 8},
        HeadsView<const bf16>{data, 8, 4}, HeadsView<const bf16>{data, kMost + 1, 8},
        HeadsView<const bf16>{data, 8, kMost + 1}}) {
    EXPECT_FALSE(impl::suit_tensor_cores(view, other));
  }
}

// A sample without keys: no output, no gradient.
TEST(CudaAttentionMasks, PaddingOfAllKeys) {
  Problem<bf16> problem(make(2, 70, 70, 2, 2, 64, 0.1, MaskKind::padding), 2.0, kGap);
  problem.lengths.set({0.0, 3.0});
  expect_nothing_of_first_sample(emulate(problem), problem.desc);
}

// Scores of some thousand: exponentials of them overflow, the softmax does not.
TEST(CudaAttentionMasks, LargeLogits) {
  const Problem<bf16> problem(make(1, 200, 200, 1, 1, 64), 300, kGap);
  const auto got = emulate(problem);
  const Dense want(problem);
  test::expect_close(got.o.values(), want.o, 0.03, 1, "o");
  for (const auto* gradient : {&got.d_q, &got.d_k, &got.d_v}) {
    for (const double x : gradient->values()) ASSERT_TRUE(std::isfinite(x));
  }
}

// The largest score comes first, and many tiles after it: sums that are not rescaled stay
// as they are, to the last bit.
TEST(CudaAttentionMasks, ManyTilesBehindTheLargestScore) {
  const index_t keys = 8000, d = 64;
  Problem<bf16> problem(make(1, 16, keys, 1, 1, d, 0.0, MaskKind::none), 2.0, kGap);
  Values q(16 * d), k(keys * d), v(keys * d);
  for (index_t i = 0; i < 16; ++i) q[i * d] = 61;
  for (index_t j = 0; j < keys; ++j) {
    k[j * d] = j < 10 ? 201 : 200;  // scores of 1533 and 1525
    v[j * d] = j < 10 ? 1 : -1;
  }
  problem.q = Heads<bf16>(16, 1, d, q, kGap);
  problem.k = Heads<bf16>(keys, 1, d, k, kGap);
  problem.v = Heads<bf16>(keys, 1, d, v, kGap);
  const auto got = emulate(problem);
  const Dense want(problem);
  // A score of 1500 is known to 1e-4, and so is what its exponential multiplies with; a
  // hundred-thousandth in each of the 125 tiles would show.
  test::expect_close(got.o.values(), want.o, 5e-3, 0.1, "o");
  test::expect_close(got.lse.values(), want.lse, 2.5e-7, 1, "lse");
}

TEST(CudaAttentionMasks, NotANumberIsPassedOn) {
  Problem<bf16> problem(make(1, 70, 70, 1, 1, 64), 2.0, kGap);
  Values k = problem.k.values();
  k[66 * 64 + 1] = NAN;
  problem.k = Heads<bf16>(70, 1, 64, k, kGap);
  const auto got = emulate(problem);
  const Values o = got.o.values();
  for (index_t i = 0; i < 70 * 64; ++i) ASSERT_EQ(std::isnan(o[i]), i >= 66 * 64) << i;
  EXPECT_TRUE(std::isnan(got.d_q.values()[66 * 64]));
}

}  // namespace
}  // namespace trireme::kernels
