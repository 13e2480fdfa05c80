// What ZeRO leaves of the slabs on one rank: their sizes, that shares have the bits of
// whole slabs, and the memory that is lent for the rest.
#include <gmock/gmock.h>

#include <cstring>

#include "base/error.hpp"
#include "support/arrays.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Slab kSlabs[] = {Slab::weight, Slab::gradient, Slab::exp_avg, Slab::exp_avg_sq};
constexpr index_t kBucket = 300;  // elements, which make three buckets of the model

template <class T>
constexpr bool kHasCopy = !std::is_same_v<T, Accumulator<T>>;

// As tensor rank `rank` of `ranks` holds it: splits by rows, by columns, in blocks and of
// a padded vocabulary, and what is replicated.
ParamRegistry two_layers(int ranks, int rank) {
  const auto normal = Initializer::normal(0.5);
  ParamRegistry registry;
  const auto embedding = registry.begin_unit("embedding");
  registry.add({"word", split({13, 12}, 0, ranks, rank, 8), normal});
  registry.add({"position", replicated({11, 12}), normal});
  for (const char* layer : {"0", "1"}) {
    const std::string name = layer;
    registry.begin_unit(name);
    registry.add({name + "norm", replicated({12}), Initializer::constant(1)});
    registry.add(
        {name + "qkv", split_blocks({36, 12}, {12, 12, 12}, ranks, rank), normal});
    registry.add({name + "bias", split_blocks({36}, {12, 12, 12}, ranks, rank),
                  Initializer::constant(-0.25)});
    registry.add({name + "fc1", split({24, 12}, 0, ranks, rank), normal});
    registry.add({name + "fc2", split({12, 24}, 1, ranks, rank), normal});
  }
  registry.begin_unit("head", embedding);
  registry.add({"final", replicated({12}), Initializer::constant(1)});
  return registry;
}

// Called with every degree of ZeRO, number of parts and part.
template <class T, class Function>
void for_each_sharding(const Function& function) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const int parts : {1, 2, 3, 7}) {
      for (int part = 0; part < parts; ++part) {
        SCOPED_TRACE(fmt::format("ZeRO {}, part {} of {}", zero, part, parts));
        function(typename ParamBuffer<T>::Sharding{
            .zero = zero, .parts = parts, .part = part, .bucket_elements = kBucket});
      }
    }
  }
}

template <class V>
auto to_host(const V& view) {
  Kokkos::fence("test");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  using Value = typename V::non_const_value_type;
  return std::vector<Value>(host.data(), host.data() + host.extent(0));
}

template <class Value>
bool same_bits(const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Value)) == 0);
}

template <class Value>
std::vector<Value> part_of(const std::vector<Value>& values, const IndexRange& range) {
  return {values.begin() + range.begin, values.begin() + range.end};
}

template <class T>
class ParamBufferShardingOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, bf16>;
TYPED_TEST_SUITE(ParamBufferShardingOf, Types);

TYPED_TEST(ParamBufferShardingOf, StagesSayWhatIsWhole) {
  using T = TypeParam;
  const ParamRegistry registry = two_layers(1, 0);
  for (const int zero : {0, 1, 2, 3}) {
    ParamBuffer<T> params;
    params.plan(registry, {.zero = zero, .parts = 2, .part = 1});
    // The compute copy is what passes need; master weights are for the optimizer.
    EXPECT_EQ(params.is_whole(Slab::weight), zero < (kHasCopy<T> ? 1 : 3)) << zero;
    EXPECT_EQ(params.is_compute_whole(), zero < 3) << zero;
    EXPECT_EQ(params.is_whole(Slab::gradient), zero < 2) << zero;
    EXPECT_EQ(params.is_whole(Slab::exp_avg), zero < 1) << zero;
    EXPECT_EQ(params.is_whole(Slab::exp_avg_sq), zero < 1) << zero;
  }
}

TYPED_TEST(ParamBufferShardingOf, BytesAreKnownBefore) {
  using T = TypeParam;
  using Use = typename ParamBuffer<T>::Use;
  const ParamRegistry registry = two_layers(1, 0);
  for_each_sharding<T>([&](const auto& sharding) {
    ParamBuffer<T> planned, training, inference;
    planned.plan(registry, sharding);
    EXPECT_FALSE(planned.is_allocated());
    EXPECT_EQ(planned.bytes(), 0u);
    training.allocate(registry, Use::training, sharding);
    inference.allocate(registry, Use::inference, sharding);
    const auto whole = static_cast<std::size_t>(planned.slab_elements());
    const auto shard = static_cast<std::size_t>(planned.partition().shard_elements());
    const std::size_t copy =
        kHasCopy<T> ? sizeof(T) * (sharding.zero < 3 ? whole : shard) : 0;
    EXPECT_EQ(planned.compute_bytes(), copy);
    std::size_t sum = copy;
    for (const Slab slab : kSlabs) {
      const std::size_t bytes =
          sizeof(Accumulator<T>) * (planned.is_whole(slab) ? whole : shard);
      EXPECT_EQ(planned.slab_bytes(slab), bytes);
      EXPECT_EQ(training.slab(slab).span() * sizeof(Accumulator<T>), bytes);
      sum += bytes;
    }
    EXPECT_EQ(training.bytes(), sum);
    EXPECT_EQ(inference.bytes(), planned.slab_bytes(Slab::weight) + copy);
  });
}

// Parts together have what one rank had alone; and little is lost to alignment.
TYPED_TEST(ParamBufferShardingOf, PartsOfASlabAreTheSlab) {
  using T = TypeParam;
  const ParamRegistry registry = two_layers(1, 0);
  for (const int parts : {1, 2, 3, 7}) {
    std::size_t bytes = 0, buckets = 0;
    for (int part = 0; part < parts; ++part) {
      ParamBuffer<T> params;
      params.plan(registry, {3, parts, part, kBucket});
      bytes += params.slab_bytes(Slab::exp_avg);
      buckets = params.partition().buckets().size();
    }
    ParamBuffer<T> alone;
    alone.plan(registry, {});
    const std::size_t whole = alone.slab_bytes(Slab::exp_avg);
    EXPECT_GE(bytes, whole);
    EXPECT_LT(bytes, whole + buckets * static_cast<std::size_t>(parts) * 64 *
                                 sizeof(Accumulator<T>));
  }
}

TYPED_TEST(ParamBufferShardingOf, InitialWeightsAreThoseOfTheWhole) {
  using T = TypeParam;
  using Use = typename ParamBuffer<T>::Use;
  for (const auto& [ranks, rank] :
       {std::pair{1, 0}, {2, 0}, {2, 1}, {3, 2}, {4, 3}}) {  // of the tensor group
    SCOPED_TRACE(fmt::format("tensor rank {} of {}", rank, ranks));
    const ParamRegistry registry = two_layers(ranks, rank);
    ParamBuffer<T> whole;
    whole.allocate(registry, Use::training);
    whole.initialize(Exec(), 99);
    std::vector<index_t> seen(registry.size(), 0);  // elements in shares so far
    for_each_sharding<T>([&](const auto& sharding) {
      ParamBuffer<T> params;
      params.allocate(registry, Use::training, sharding);
      params.initialize(Exec(), 99);
      index_t elements = 0;
      for (std::size_t p = 0; p < registry.size(); ++p) {
        const auto share = params.share(Slab::weight, p);
        const auto values = to_host(share.values);
        ASSERT_EQ(share.range.size(), static_cast<index_t>(values.size()));
        const auto all = to_host(whole.slice(Slab::weight, p));
        ASSERT_TRUE(same_bits(values, part_of(all, share.range)))
            << registry.spec(p).name;
        elements += share.range.size();
        // Nobody has the same: all of them are a tiling.
        if (params.is_whole(Slab::weight)) continue;
        if (sharding.part == 0) seen[p] = 0;
        if (share.range.size() > 0) {
          ASSERT_EQ(share.range.begin, seen[p]);
        }
        seen[p] += share.range.size();
        if (sharding.part == sharding.parts - 1) {
          ASSERT_EQ(seen[p], static_cast<index_t>(all.size()));
        }
      }
      // Zero everywhere else: in all padding, and in the other slabs.
      index_t zeros = 0;
      for (const double x : to_host(params.slab(Slab::weight))) zeros += x == 0 ? 1 : 0;
      ASSERT_EQ(zeros,
                static_cast<index_t>(params.slab(Slab::weight).extent(0)) - elements);
      for (const Slab slab : {Slab::gradient, Slab::exp_avg, Slab::exp_avg_sq}) {
        ASSERT_THAT(to_host(params.slab(slab)), ::testing::Each(Accumulator<T>(0)));
      }
      // The compute copy follows, as far as this rank can tell.
      for (std::size_t b = 0; b < params.partition().buckets().size(); ++b) {
        const Bucket& bucket = params.partition().buckets()[b];
        const IndexRange mine = bucket.part(params.sharding().part);
        // As the whole one has them, whose parameters lie elsewhere; padding is zero.
        std::vector<T> rounded(static_cast<std::size_t>(bucket.part_size), T(0));
        for (std::size_t p = 0; p < registry.size(); ++p) {
          if (params.partition().bucket_of_param(p) != b) continue;
          const IndexRange share = params.updated(p);
          const auto all = to_host(whole.slice(Slab::weight, p));
          for (index_t i = share.begin; i < share.end; ++i) {
            const index_t at = params.offset(p) + i - mine.begin;
            rounded[static_cast<std::size_t>(at)] =
                static_cast<T>(all[static_cast<std::size_t>(i)]);
          }
        }
        ASSERT_TRUE(same_bits(to_host(params.compute_shard(b)), rounded)) << b;
      }
    });
  }
}

TYPED_TEST(ParamBufferShardingOf, ShardsLieWhereThePartitionSays) {
  using T = TypeParam;
  const ParamRegistry registry = two_layers(1, 0);
  for_each_sharding<T>([&](const auto& sharding) {
    ParamBuffer<T> params;
    params.allocate(registry, ParamBuffer<T>::Use::training, sharding);
    const Partition& partition = params.partition();
    ASSERT_EQ(partition.buckets().size(), 3u);
    const int part = params.sharding().part;
    EXPECT_EQ(partition.parts(), sharding.zero == 0 ? 1 : sharding.parts);
    for (std::size_t b = 0; b < partition.buckets().size(); ++b) {
      const Bucket& bucket = partition.buckets()[b];
      const index_t in_whole = bucket.part(part).begin;
      const index_t in_shard = partition.shard_offset(b);
      const auto size = static_cast<std::size_t>(bucket.part_size);
      for (const Slab slab : kSlabs) {
        const auto shard = params.shard(slab, b);
        EXPECT_EQ(shard.data() - params.slab(slab).data(),
                  params.is_whole(slab) ? in_whole : in_shard);
        EXPECT_EQ(shard.extent(0), size);
        EXPECT_LE(shard.data() + size,
                  params.slab(slab).data() + params.slab(slab).extent(0));
      }
      const auto compute = params.compute_shard(b);
      EXPECT_EQ(compute.extent(0), size);
      if constexpr (!kHasCopy<T>) {
        EXPECT_EQ(compute.data(), params.shard(Slab::weight, b).data());
      }
      if (params.is_compute_whole()) {  // it is part of what others see
        const auto all = params.compute_bucket(b);
        EXPECT_EQ(all.extent(0), static_cast<std::size_t>(bucket.range.size()));
        EXPECT_EQ(compute.data() - all.data(), in_whole - bucket.range.begin);
        EXPECT_EQ(all.data() - params.compute_bucket(0).data(), bucket.range.begin);
      } else {
        EXPECT_EQ(compute.data() - params.compute_shard(0).data(), in_shard);
      }
    }
    // Shares: all of what is whole; else in the shard, in order and apart.
    for (const Slab slab : kSlabs) {
      std::vector<index_t> end(partition.buckets().size(), 0);
      for (std::size_t p = 0; p < registry.size(); ++p) {
        const auto share = params.share(slab, p);
        const index_t count = registry.spec(p).shard.real_elements();
        if (params.is_whole(slab)) {
          EXPECT_EQ(share.range, (IndexRange{0, count}));
          EXPECT_EQ(share.values.data(), params.slice(slab, p).data());
          continue;
        }
        EXPECT_EQ(share.range, params.updated(p));
        EXPECT_EQ(share.range, partition.share(p, part));
        if (share.range.size() == 0) continue;
        const std::size_t b = partition.bucket_of_param(p);
        const auto shard = params.shard(slab, b);
        const index_t at = share.values.data() - shard.data();
        EXPECT_EQ(at, std::max<index_t>(
                          0, params.offset(p) - partition.buckets()[b].part(part).begin));
        EXPECT_GE(at, end[b]);
        end[b] = at + share.range.size();
        EXPECT_LE(end[b], static_cast<index_t>(shard.extent(0)));
      }
    }
  });
}

// A layer's handles on a matrix and a vector of the second of two units.
template <class T>
struct Layer {
  explicit Layer(int zero) {
    params.allocate(registry, ParamBuffer<T>::Use::training,
                    {.zero = zero, .parts = 2, .part = 1, .bucket_elements = 1});
  }
  std::size_t bucket() const { return params.partition().bucket_of_param(2); }

  ParamRegistry registry = [] {
    ParamRegistry first;
    first.begin_unit("before");
    first.add({"before", replicated({9, 8}), {}});
    first.begin_unit("layer");
    return first;
  }();
  ParamBuffer<T> params;
  ParamRef<T> weight{registry, params, ParamSpec{"weight", replicated({10, 7}), {}}};
  ParamRef<T> bias{registry, params, ParamSpec{"bias", replicated({10}), {}}};
};

TYPED_TEST(ParamBufferShardingOf, WeightsAppearWhereTheyAreLent) {
  using T = TypeParam;
  Layer<T> layer(3);
  const DeviceArray<T> memory("lent", 512);
  const auto absent =
      ThrowsMessage<Error>(HasSubstr("weights are asked for that were "
                                     "not gathered"));
  EXPECT_THAT([&] { layer.weight.matrix(); }, absent);
  layer.params.lend_compute(layer.bucket() - 1, memory.data());  // of another unit
  EXPECT_THAT([&] { layer.weight.matrix(); }, absent);
  EXPECT_EQ(layer.params.compute_slice(0).data(), memory.data());
  layer.params.lend_compute(layer.bucket(), memory.data() + 128);
  EXPECT_EQ(layer.weight.matrix().data(), memory.data() + 128);
  EXPECT_EQ(layer.weight.matrix().extent(0), 10u);
  EXPECT_EQ(layer.weight.matrix().extent(1), 7u);
  EXPECT_EQ(layer.bias.vector().data(), memory.data() + 128 + 128);  // 70, aligned
  EXPECT_EQ(layer.params.compute_bucket(layer.bucket()).data(), memory.data() + 128);
  EXPECT_EQ(layer.params.compute_bucket(layer.bucket()).extent(0), 2 * 128u);
  layer.params.lend_compute(layer.bucket(), nullptr);
  EXPECT_THAT([&] { layer.bias.vector(); }, absent);
  EXPECT_THAT([&] { layer.params.compute_bucket(layer.bucket()); }, absent);
}

TYPED_TEST(ParamBufferShardingOf, GradientsGoWhereMemoryIsLent) {
  using T = TypeParam;
  for (const int zero : {2, 3}) {
    Layer<T> layer(zero);
    const DeviceArray<Accumulator<T>> memory("lent", 512);
    const auto absent =
        ThrowsMessage<Error>(HasSubstr("gradients are asked for that have no memory"));
    EXPECT_THAT([&] { layer.weight.matrix_gradient(); }, absent);
    layer.params.lend_gradient(layer.bucket() - 1, memory.data());
    EXPECT_THAT([&] { layer.bias.vector_gradient(); }, absent);
    layer.params.lend_gradient(layer.bucket(), memory.data() + 64);
    EXPECT_EQ(layer.weight.matrix_gradient().data(), memory.data() + 64);
    EXPECT_EQ(layer.weight.matrix_gradient().extent(1), 7u);
    EXPECT_EQ(layer.bias.vector_gradient().data(), memory.data() + 64 + 128);
    EXPECT_EQ(layer.params.gradient_slice(2).extent(0), 10u);
    layer.params.lend_gradient(layer.bucket(), nullptr);
    EXPECT_THAT([&] { layer.weight.matrix_gradient(); }, absent);
  }
}

// Lent memory has what another bucket left there: all that is no parameter's is zeroed,
// and nothing else.
TYPED_TEST(ParamBufferShardingOf, PaddingOfLentGradientsIsZeroed) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const int ranks : {1, 2}) {  // the last tensor rank has rows of padding
    const ParamRegistry registry = two_layers(ranks, ranks - 1);
    ParamBuffer<T> params;
    params.allocate(registry, ParamBuffer<T>::Use::training, {2, 3, 1, 1 << 20});
    for (std::size_t b = 0; b < params.partition().buckets().size(); ++b) {
      const IndexRange range = params.partition().buckets()[b].range;
      const test::Array<A> memory(extent(range.size()), 5.0);
      std::vector<double> want(extent(range.size()));
      for (std::size_t p = 0; p < registry.size(); ++p) {
        if (params.partition().bucket_of_param(p) != b) continue;
        std::fill_n(want.begin() + params.offset(p) - range.begin,
                    registry.spec(p).shard.real_elements(), 5.0);
      }
      params.lend_gradient(b, memory.vector().data());
      params.zero_gradient_padding(Exec(), b);
      EXPECT_EQ(memory.values(), want) << ranks << ", bucket " << b;
    }
  }
}

// Where the optimizer writes the copy is where passes, or the other ranks, read it.
TYPED_TEST(ParamBufferShardingOf, TheCopyIsUpdatedWhereItsShardIs) {
  using T = TypeParam;
  const ParamRegistry registry = two_layers(2, 1);
  for_each_sharding<T>([&](const auto& sharding) {
    ParamBuffer<T> params;
    params.allocate(registry, ParamBuffer<T>::Use::training, sharding);
    for (std::size_t p = 0; p < registry.size(); ++p) {
      const IndexRange range = params.updated(p);
      const View1<T> there = params.updated_compute(p);
      ASSERT_EQ(there.extent(0), extent(range.size()));
      if (range.size() == 0) continue;
      const std::size_t b = params.partition().bucket_of_param(p);
      const index_t in_part =
          params.offset(p) + range.begin -
          params.partition().buckets()[b].part(params.sharding().part).begin;
      EXPECT_EQ(there.data(), params.compute_shard(b).data() + in_part);
      if (params.is_compute_whole()) {
        EXPECT_EQ(there.data(), params.compute_slice(p).data() + range.begin);
      }
    }
  });
}

// ZeRO 0 and 1 ask nobody for memory.
TYPED_TEST(ParamBufferShardingOf, WholeSlabsNeedNoLoan) {
  using T = TypeParam;
  for (const int zero : {0, 1, 2}) {
    Layer<T> layer(zero);
    const auto first = layer.params.compute_bucket(0).data();
    EXPECT_EQ(layer.weight.matrix().data(), first + 128);
    EXPECT_EQ(layer.bias.vector().data(), first + 256);
    if (zero == 2) continue;
    const auto gradients = layer.params.slab(Slab::gradient).data();
    EXPECT_EQ(layer.weight.matrix_gradient().data(), gradients + 128);
    EXPECT_EQ(layer.params.gradient_bucket(layer.bucket()).data(), gradients + 128);
  }
}

TYPED_TEST(ParamBufferShardingOf, ASliceOfAShardIsRefused) {
  using T = TypeParam;
  const Layer<T> layer(2);
  EXPECT_THAT([&] { layer.params.slice(Slab::exp_avg, 1); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("'weight'"), HasSubstr("share"), HasSubstr("ZeRO 2"))));
}

TYPED_TEST(ParamBufferShardingOf, InferenceHasNoGradients) {
  using T = TypeParam;
  const ParamRegistry registry = two_layers(1, 0);
  ParamBuffer<T> params;
  params.allocate(registry, ParamBuffer<T>::Use::inference, {3, 2, 0, kBucket});
  const auto absent = ThrowsMessage<Error>(HasSubstr("inference keeps weights only"));
  EXPECT_THAT([&] { params.gradient_slice(0); }, absent);
  EXPECT_THAT([&] { params.shard(Slab::exp_avg, 0); }, absent);
  EXPECT_NO_THROW(params.shard(Slab::weight, 0));
}

TEST(ParamBufferShardingErrors, StagesThatZeroLacks) {
  const ParamRegistry registry = two_layers(1, 0);
  for (const int zero : {-1, 4}) {
    ParamBuffer<float> params;
    EXPECT_THAT([&] { params.plan(registry, {.zero = zero}); },
                ThrowsMessage<Error>(HasSubstr(fmt::format("no ZeRO {}", zero))));
    EXPECT_THROW(
        params.allocate(registry, ParamBuffer<float>::Use::training, {.zero = zero}),
        Error);
  }
}

// More ranks than elements: a part that is nothing but padding.
TEST(ParamBufferShardingErrors, APartOfPadding) {
  ParamRegistry registry;
  registry.add({"word", replicated({3, 100}), Initializer::normal(1)});
  ParamBuffer<float> params;
  params.allocate(registry, ParamBuffer<float>::Use::training, {3, 8, 7, 1});
  ASSERT_EQ(params.slab_bytes(Slab::weight), 64 * sizeof(float));
  EXPECT_TRUE(params.is_allocated());
  EXPECT_TRUE(params.has(Slab::exp_avg));
  EXPECT_NO_THROW(params.initialize(Exec(), 1));
  EXPECT_EQ(params.share(Slab::exp_avg, 0).range.size(), 0);
  EXPECT_THAT(to_host(params.slab(Slab::weight)), ::testing::Each(0.0f));
}

}  // namespace
}  // namespace trireme
