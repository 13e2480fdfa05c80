// The slabs of all parameters: where each lies, what is allocated, and that initial
// weights are the same numbers, to the bit, whatever the shards.
#include "tensor/param_buffer.hpp"

#include <gmock/gmock.h>

#include <map>

#include "base/error.hpp"
#include "support/arrays.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr index_t kVocabulary = 13, kHidden = 8, kFfn = 24;

// Blocks of rows that end inside of those that ranks have, and inside of the split's.
Initializer by_rows() {
  return Initializer::normal({{0, 0.5}, {17, 2.0}, {kFfn + 1, 0.125}});
}

// A small transformer's parameters as rank `rank` of `parts` holds them: a padded split,
// splits in blocks, two by columns, replicated matrices and vectors.
ParamRegistry model(int parts, int rank, bool backwards = false) {
  std::vector<ParamSpec> specs = {
      {.name = "embedding/word/weight",
       .shard = split({kVocabulary, kHidden}, 0, parts, rank, 8),
       .init = Initializer::normal(0.02)},
      {.name = "embedding/position/weight",
       .shard = replicated({11, kHidden}),
       .init = Initializer::normal(0.02)},
      {.name = "qkv/weight",
       .shard = split_blocks({3 * kFfn, kHidden}, {kFfn, kFfn, kFfn}, parts, rank),
       .init = Initializer::normal(0.5)},
      {.name = "qkv/bias",
       .shard = split_blocks({3 * kFfn}, {kFfn, kFfn, kFfn}, parts, rank),
       .init = Initializer::constant(-0.25)},
      {.name = "projection/weight",
       .shard = split({kHidden, kFfn}, 1, parts, rank),
       .init = Initializer::normal(0.02)},
      {.name = "kv/weight",
       .shard = split_blocks({2 * kFfn, kHidden}, {kFfn, kFfn}, parts, rank),
       .init = by_rows()},
      {.name = "out/weight",
       .shard = split({2 * kFfn, kFfn}, 1, parts, rank),
       .init = by_rows()},
      {.name = "norm/scale",
       .shard = replicated({kHidden}),
       .init = Initializer::constant(1)},
  };
  if (backwards) std::reverse(specs.begin(), specs.end());
  ParamRegistry registry;
  for (ParamSpec& spec : specs) registry.add(std::move(spec));
  return registry;
}

template <class V>
std::vector<double> values_of(const V& view) {
  Kokkos::fence("test");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  std::vector<double> values(host.extent(0));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = test::to_double(host(i));
  return values;
}

// The global tensors put together from the ranks' parts, by name; NaN where nobody has an
// element.
template <class T>
std::map<std::string, std::vector<double>> assemble(int parts, std::uint64_t seed,
                                                    bool backwards = false) {
  std::map<std::string, std::vector<double>> tensors;
  for (int rank = 0; rank < parts; ++rank) {
    const ParamRegistry registry = model(parts, rank, backwards);
    ParamBuffer<T> params;
    params.allocate(registry, ParamBuffer<T>::Use::inference);
    params.initialize(Exec(), seed);
    for (std::size_t p = 0; p < registry.size(); ++p) {
      const ShardSpec& shard = registry.spec(p).shard;
      auto& global = tensors[registry.spec(p).name];
      if (global.empty()) global.assign(element_count(shard.global_shape), NAN);
      const auto local = values_of(params.slice(Slab::weight, p));
      const bool matrix = shard.global_shape.size() == 2;
      const index_t columns = matrix ? shard.global_shape[1] : 1;
      const index_t local_columns = matrix ? shard.local_shape[1] : 1;
      std::vector<Segment> segments = shard.segments;
      if (shard.is_replicated()) segments = {{0, 0, shard.global_shape[0]}};
      std::size_t placed = 0;
      for (const Segment& segment : segments) {
        const bool by_column = shard.dimension == 1;
        const index_t rows = by_column ? shard.global_shape[0] : segment.extent;
        const index_t width = by_column ? segment.extent : columns;
        for (index_t i = 0; i < rows; ++i) {
          for (index_t j = 0; j < width; ++j, ++placed) {
            const index_t row = by_column ? i : segment.global_begin + i;
            const index_t column = by_column ? segment.global_begin + j : j;
            const index_t at = by_column ? i * local_columns + segment.local_begin + j
                                         : (segment.local_begin + i) * local_columns + j;
            global[row * columns + column] = local[at];
          }
        }
      }
      EXPECT_EQ(placed, local.size()) << registry.spec(p).name;
    }
  }
  return tensors;
}

template <class T>
class ParamBufferOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, bf16>;
TYPED_TEST_SUITE(ParamBufferOf, Types);

TYPED_TEST(ParamBufferOf, EveryLayoutDrawsTheSameWeights) {
  const auto whole = assemble<TypeParam>(1, 1234);
  ASSERT_EQ(whole.size(), 8u);
  for (const auto& [name, values] : whole) {
    for (const double x : values) ASSERT_TRUE(std::isfinite(x)) << name;
  }
  for (const int parts : {2, 3, 4, 8}) {
    EXPECT_EQ(assemble<TypeParam>(parts, 1234), whole) << parts << " parts";
  }
  // Names, not places, say what is drawn.
  EXPECT_EQ(assemble<TypeParam>(2, 1234, /*backwards=*/true), whole);
}

TYPED_TEST(ParamBufferOf, SeedsAndNamesMakeADifference) {
  const auto one = assemble<TypeParam>(1, 1), two = assemble<TypeParam>(1, 2);
  for (const auto& [name, values] : one) {
    const bool is_drawn = name != "qkv/bias" && name != "norm/scale";
    EXPECT_EQ(values != two.at(name), is_drawn) << name;
  }
  const auto& word = one.at("embedding/word/weight");
  const auto& position = one.at("embedding/position/weight");
  EXPECT_NE(std::vector<double>(word.begin(), word.begin() + kHidden),
            std::vector<double>(position.begin(), position.begin() + kHidden));
  EXPECT_THAT(one.at("qkv/bias"), ::testing::Each(-0.25));
  EXPECT_THAT(one.at("norm/scale"), ::testing::Each(1.0));
  double square = 0;  // of N(0, 0.5^2)
  for (const double x : one.at("qkv/weight")) square += x * x;
  EXPECT_NEAR(square / (3 * kFfn * kHidden), 0.25, 0.25 * 5 * std::sqrt(2.0 / 576));
}

// The numbers of one deviation, times their own (powers of two here: to the bit).
TYPED_TEST(ParamBufferOf, BlocksOfRowsHaveDeviationsOfTheirOwn) {
  const auto drawn = assemble<TypeParam>(1, 3).at("kv/weight");
  ParamRegistry registry;
  registry.add({.name = "kv/weight",
                .shard = replicated({2 * kFfn, kHidden}),
                .init = Initializer::normal(1.0)});
  ParamBuffer<TypeParam> params;
  params.allocate(registry, ParamBuffer<TypeParam>::Use::inference);
  params.initialize(Exec(), 3);
  const auto plain = values_of(params.slice(Slab::weight, 0));
  ASSERT_EQ(drawn.size(), plain.size());
  for (index_t i = 0; i < std::ssize(drawn); ++i) {
    const index_t row = i / kHidden;
    const double std = row < 17 ? 0.5 : row < kFfn + 1 ? 2.0 : 0.125;
    EXPECT_EQ(drawn[i], std * plain[i]) << row;
  }
}

TYPED_TEST(ParamBufferOf, ParametersLieAlignedAndApart) {
  using T = TypeParam;
  using A = Accumulator<T>;
  constexpr index_t alignment = ParamBuffer<T>::kAlignment;
  const ParamRegistry registry = model(3, 2);
  ParamBuffer<T> params;
  EXPECT_FALSE(params.is_allocated());
  params.allocate(registry, ParamBuffer<T>::Use::training);
  EXPECT_TRUE(params.is_allocated());
  EXPECT_EQ(&params.registry(), &registry);
  index_t end = 0;
  for (std::size_t p = 0; p < registry.size(); ++p) {
    EXPECT_EQ(params.offset(p) % alignment, 0);
    EXPECT_GE(params.offset(p), end);
    EXPECT_LT(params.offset(p), end + alignment);  // no more is lost
    end = params.offset(p) + element_count(registry.spec(p).shard.local_shape);
  }
  EXPECT_GE(params.slab_elements(), end);
  EXPECT_LT(params.slab_elements(), end + alignment);
  EXPECT_EQ(params.slab_elements() % alignment, 0);

  // Slices show the slabs' own memory; slabs are apart.
  for (const Slab slab :
       {Slab::weight, Slab::gradient, Slab::exp_avg, Slab::exp_avg_sq}) {
    ASSERT_TRUE(params.has(slab));
    EXPECT_EQ(params.slab(slab).extent(0),
              static_cast<std::size_t>(params.slab_elements()));
    EXPECT_THAT(values_of(params.slab(slab)), ::testing::Each(0.0));
    for (std::size_t p = 0; p < registry.size(); ++p) {
      const View1<A> slice = params.slice(slab, p);
      EXPECT_EQ(slice.data(), params.slab(slab).data() + params.offset(p));
      EXPECT_EQ(slice.extent(0),
                static_cast<std::size_t>(registry.spec(p).shard.real_elements()));
    }
    Kokkos::deep_copy(params.slab(slab), static_cast<A>(static_cast<int>(slab) + 1));
  }
  for (const Slab slab :
       {Slab::weight, Slab::gradient, Slab::exp_avg, Slab::exp_avg_sq}) {
    EXPECT_THAT(values_of(params.slab(slab)),
                ::testing::Each(static_cast<int>(slab) + 1.0));
  }
}

// Between parameters, and in the last rows of the vocabulary.
TYPED_TEST(ParamBufferOf, PaddingStaysZero) {
  using T = TypeParam;
  const ParamRegistry registry = model(3, 2);
  ParamBuffer<T> params;
  params.allocate(registry, ParamBuffer<T>::Use::training);
  params.initialize(Exec(), 5);
  std::vector<double> slab = values_of(params.slab(Slab::weight));
  double inside = 0, outside = 0;
  for (std::size_t p = 0; p < registry.size(); ++p) {
    const index_t count = registry.spec(p).shard.real_elements();
    for (index_t i = params.offset(p); i < params.offset(p) + count; ++i) {
      inside += std::abs(slab[i]);
      slab[i] = 0;
    }
  }
  for (const double x : slab) outside += std::abs(x);
  EXPECT_GT(inside, 1.0);
  EXPECT_EQ(outside, 0.0);
  // Initializing touches nothing but weights.
  EXPECT_THAT(values_of(params.slab(Slab::gradient)), ::testing::Each(0.0));
}

TYPED_TEST(ParamBufferOf, ComputeCopyIsTheRoundedMaster) {
  using T = TypeParam;
  const ParamRegistry registry = model(1, 0);
  ParamBuffer<T> params;
  params.allocate(registry, ParamBuffer<T>::Use::training);
  params.initialize(Exec(), 5);
  const auto rounded = [&](std::size_t p) {
    return test::Array<T>(values_of(params.slice(Slab::weight, p))).values();
  };
  for (std::size_t p = 0; p < registry.size(); ++p) {
    EXPECT_EQ(values_of(params.compute_slice(p)), rounded(p));
  }
  Kokkos::deep_copy(params.slice(Slab::weight, 2), Accumulator<T>(1.0) / 3);
  params.refresh_compute(Exec());
  EXPECT_EQ(values_of(params.compute_slice(2)), rounded(2));
  EXPECT_NEAR(values_of(params.compute_slice(2))[0], 1.0 / 3, test::rounding<T>());
}

TYPED_TEST(ParamBufferOf, BytesAreWhatIsAllocated) {
  using T = TypeParam;
  const ParamRegistry registry = model(2, 1);
  ParamBuffer<T> training, inference;
  EXPECT_EQ(training.bytes(), 0u);
  training.allocate(registry, ParamBuffer<T>::Use::training);
  inference.allocate(registry, ParamBuffer<T>::Use::inference);
  const auto n = static_cast<std::size_t>(training.slab_elements());
  const std::size_t master = sizeof(Accumulator<T>);
  const std::size_t copy = sizeof(T) == 2 ? sizeof(T) : 0;
  EXPECT_EQ(training.bytes(), n * (4 * master + copy));
  EXPECT_EQ(inference.bytes(), n * (master + copy));
}

// Gradients of bf16 halve their slab, and nothing else; who asks for another type is
// told.
TEST(ParamBufferNarrow, GradientsAreAsAskedFor) {
  const ParamRegistry registry = model(2, 1);
  ParamBuffer<bf16> wide, narrow;
  wide.allocate(registry, ParamBuffer<bf16>::Use::training);
  narrow.allocate(registry, ParamBuffer<bf16>::Use::training, {.narrow_gradients = true});
  const auto n = static_cast<std::size_t>(narrow.slab_elements());
  EXPECT_EQ(narrow.slab_bytes(Slab::gradient), 2 * n);
  EXPECT_EQ(narrow.bytes(), wide.bytes() - 2 * n);
  EXPECT_EQ(narrow.type_of(Slab::gradient), DType::bfloat16);
  EXPECT_EQ(wide.type_of(Slab::gradient), DType::float32);
  EXPECT_EQ(narrow.type_of(Slab::exp_avg), DType::float32);
  EXPECT_EQ(narrow.slab<bf16>(Slab::gradient).extent(0), n);
  EXPECT_EQ(narrow.slice<bf16>(Slab::gradient, 1).data(),
            narrow.slab<bf16>(Slab::gradient).data() + narrow.offset(1));
  EXPECT_EQ(narrow.gradient_slice<bf16>(1).data(),
            narrow.slice<bf16>(Slab::gradient, 1).data());
  EXPECT_THAT([&] { narrow.slab(Slab::gradient); },
              ThrowsMessage<Error>(
                  HasSubstr("a slab of bfloat16 is asked for as one of float32")));
  EXPECT_THAT([&] { wide.gradient_slice<bf16>(0); },
              ThrowsMessage<Error>(
                  HasSubstr("a slab of float32 is asked for as one of bfloat16")));
  EXPECT_THAT([&] { narrow.slab<bf16>(Slab::weight); },
              ThrowsMessage<Error>(HasSubstr("a slab of float32")));
  ParamBuffer<bf16> inference;
  inference.allocate(registry, ParamBuffer<bf16>::Use::inference,
                     {.narrow_gradients = true});
  EXPECT_FALSE(inference.has(Slab::gradient));
  EXPECT_EQ(inference.bytes(), n * (4 + 2));
}

// Only where passes compute in bf16.
TEST(ParamBufferNarrow, OtherTypesHaveNone) {
  const ParamRegistry registry = model(1, 0);
  const auto plan = [&]<class T>(std::type_identity<T>) {
    ParamBuffer<T>().plan(registry, {.narrow_gradients = true});
  };
  EXPECT_THAT([&] { plan(std::type_identity<float>()); },
              ThrowsMessage<Error>(HasSubstr("of a model in float32 are kept in")));
  EXPECT_THAT([&] { plan(std::type_identity<fp16>()); },
              ThrowsMessage<Error>(HasSubstr("of a model in float16 are kept in")));
}

TYPED_TEST(ParamBufferOf, InferenceHasWeightsOnly) {
  using T = TypeParam;
  const ParamRegistry registry = model(1, 0);
  ParamBuffer<T> params;
  params.allocate(registry, ParamBuffer<T>::Use::inference);
  EXPECT_TRUE(params.has(Slab::weight));
  for (const Slab slab : {Slab::gradient, Slab::exp_avg, Slab::exp_avg_sq}) {
    EXPECT_FALSE(params.has(slab));
    EXPECT_THAT([&] { params.slice(slab, 0); },
                ThrowsMessage<Error>(HasSubstr("inference keeps weights only")));
  }
}

TEST(ParamBufferErrors, VectorsAreNotDrawn) {
  ParamRegistry registry;
  registry.add({.name = "strange/bias",
                .shard = replicated({4}),
                .init = Initializer::normal(0.1)});
  ParamBuffer<float> params;
  params.allocate(registry, ParamBuffer<float>::Use::inference);
  EXPECT_THAT([&] { params.initialize(Exec(), 1); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("'strange/bias' (4)"), HasSubstr("only matrices"))));
}

}  // namespace
}  // namespace trireme
