// Slabs to checkpoints and back: bitwise, on other layouts, and each element written once
// however many ranks hold it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ckpt/params.hpp"
#include "ckpt/save.hpp"
#include "comm/self_communicator.hpp"
#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using ckpt::Content;
using test::message_of;
using ::testing::HasSubstr;

ParamRegistry registry_of(int rank, int ranks) {
  ParamRegistry registry;
  registry.add(
      {"embeddings/word", split({7, 5}, 0, ranks, rank, 2), Initializer::normal(1)});
  registry.add({"qkv/weight", split_blocks({36, 5}, {12, 12, 12}, ranks, rank),
                Initializer::normal(1)});
  registry.add({"dense", split({4, 12}, 1, ranks, rank), Initializer::normal(1)});
  registry.add({"norm", replicated({5}), Initializer::constant(0.5)});
  registry.add({"big", replicated({300, 257}), Initializer::normal(1)});
  return registry;
}

template <class T>
std::vector<Accumulator<T>> host_copy(const ParamBuffer<T>& buffer, Slab slab) {
  std::vector<Accumulator<T>> values(static_cast<std::size_t>(buffer.slab_elements()));
  Kokkos::deep_copy(
      Kokkos::View<Accumulator<T>*, Kokkos::HostSpace,
                   Kokkos::MemoryTraits<Kokkos::Unmanaged>>(values.data(), values.size()),
      buffer.slab(slab));
  return values;
}

// Weights as drawn; the moments drawn with other seeds, so that they can be told apart.
template <class T>
void fill(ParamBuffer<T>& buffer, std::uint64_t seed) {
  const Exec exec;
  for (const Slab slab : {Slab::exp_avg, Slab::exp_avg_sq, Slab::weight}) {
    buffer.initialize(exec, seed + static_cast<std::uint64_t>(slab));
    exec.fence("fill");
    if (slab == Slab::weight) continue;
    auto values = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(),
                                                      buffer.slab(Slab::weight));
    for (std::size_t i = 0; i < values.size() && slab == Slab::exp_avg_sq; ++i) {
      values(i) = std::abs(values(i));  // as squares are
    }
    Kokkos::deep_copy(buffer.slab(slab), values);
  }
}

template <class T>
void expect_any_layout(const std::vector<int>& all_writers) {
  using Use = typename ParamBuffer<T>::Use;
  for (const int writers : all_writers) {
    const test::Scratch scratch;
    const ckpt::Staging staging = ckpt::begin_save(scratch.path(), test::sample_state(1));
    std::vector<ckpt::Manifest> shards;
    for (int rank = 0; rank < writers; ++rank) {
      const ParamRegistry registry = registry_of(rank, writers);
      ParamBuffer<T> buffer;
      buffer.allocate(registry, Use::training);
      fill(buffer, 42);
      const ckpt::Replicas replicas{.tensor_rank = rank, .tensor_size = writers};
      shards.push_back(test::write_shard(
          Exec(), staging, rank, ckpt::parts_of(buffer, Content::training, replicas)));
    }
    const auto saved =
        ckpt::publish(scratch.path(), staging, test::sample_state(1), shards);
    const ckpt::CheckpointReader reader(saved.path);
    EXPECT_EQ(reader.manifest().parameter_count(), 35 + 180 + 48 + 5 + 300 * 257);
    for (const int readers : {1, 2, 3}) {
      for (int rank = 0; rank < readers; ++rank) {
        const ParamRegistry registry = registry_of(rank, readers);
        ParamBuffer<T> expected, loaded;
        expected.allocate(registry, Use::training);
        loaded.allocate(registry, Use::training);
        fill(expected, 42);
        ckpt::load_params(reader, Exec(), loaded, Content::training);
        for (const Slab slab : {Slab::weight, Slab::exp_avg, Slab::exp_avg_sq}) {
          EXPECT_EQ(host_copy(loaded, slab), host_copy(expected, slab))
              << writers << " -> " << rank << "/" << readers;
        }
      }
    }
  }
}

TEST(Params, AnyLayoutFloat) {
  expect_any_layout<float>({1, 2, 3});
}
TEST(Params, AnyLayoutDouble) {
  expect_any_layout<double>({2});
}

TEST(Params, EachElementHasOneWriter) {
  for (const int tensor_size : {1, 2, 3}) {
    for (const int data_size : {1, 2, 5}) {
      for (std::size_t param = 0; param < 5; ++param) {
        std::set<std::pair<index_t, index_t>> seen;
        index_t count = 0;
        for (int t = 0; t < tensor_size; ++t) {
          const ShardSpec shard = registry_of(t, tensor_size).spec(param).shard;
          for (int d = 0; d < data_size; ++d) {
            for (const auto& region :
                 ckpt::owned_regions(shard, param, {t, tensor_size, d, data_size})) {
              for (index_t r = 0; r < region.global.rows; ++r) {
                for (index_t c = 0; c < region.global.columns; ++c) {
                  EXPECT_TRUE(
                      seen.emplace(region.global.row + r, region.global.column + c)
                          .second);
                  ++count;
                }
              }
            }
          }
        }
        EXPECT_EQ(count, element_count(registry_of(0, 1).spec(param).shard.global_shape));
      }
    }
  }
}

TEST(Params, WeightsOnly) {
  const test::Scratch scratch;
  const auto comm = comm::make_self_communicator("world");
  const ParamRegistry registry = registry_of(0, 1);
  ParamBuffer<float> buffer;
  buffer.allocate(registry, ParamBuffer<float>::Use::inference);
  buffer.initialize(Exec(), 1);
  const auto saved =
      ckpt::save_checkpoint(Exec(), *comm, scratch.path(), test::sample_state(1),
                            ckpt::parts_of(buffer, Content::weights));
  const ckpt::CheckpointReader reader(saved.path);
  EXPECT_FALSE(reader.manifest().has_optimizer_state());
  ParamBuffer<float> loaded;
  loaded.allocate(registry, ParamBuffer<float>::Use::training);
  EXPECT_THAT(
      message_of<InputError>(
          [&] { ckpt::load_params(reader, Exec(), loaded, Content::training); }),
      ::testing::AllOf(HasSubstr("holds weights only"), HasSubstr("--init-from")));
  ckpt::load_params(reader, Exec(), loaded, Content::weights);
  EXPECT_EQ(host_copy(loaded, Slab::weight), host_copy(buffer, Slab::weight));
  // A double buffer takes them when asked to convert, and not otherwise.
  ParamBuffer<double> wide;
  wide.allocate(registry, ParamBuffer<double>::Use::inference);
  EXPECT_THROW(ckpt::load_params(reader, Exec(), wide, Content::weights), InputError);
  ckpt::load_params(reader, Exec(), wide, Content::weights, ckpt::Conversion::floating);
  EXPECT_EQ(host_copy(wide, Slab::weight)[3],
            static_cast<double>(host_copy(buffer, Slab::weight)[3]));
}

// All that is missing or of another shape, before anything is read.
TEST(Params, OfAnotherModel) {
  const test::Scratch scratch;
  const auto comm = comm::make_self_communicator("world");
  const ParamRegistry registry = registry_of(0, 1);
  ParamBuffer<float> buffer;
  buffer.allocate(registry, ParamBuffer<float>::Use::inference);
  const auto saved =
      ckpt::save_checkpoint(Exec(), *comm, scratch.path(), test::sample_state(1),
                            ckpt::parts_of(buffer, Content::weights));
  const ckpt::CheckpointReader reader(saved.path);
  EXPECT_NO_THROW(ckpt::require_params(reader, registry, Content::weights));
  EXPECT_THAT(message_of<InputError>(
                  [&] { ckpt::require_params(reader, registry, Content::training); }),
              HasSubstr("holds weights only"));
  ParamRegistry other;
  other.add({"norm", replicated({6}), Initializer::constant(0.5)});
  other.add({"dense", split({4, 12}, 1, 2, 1), Initializer::normal(1)});  // half of it
  other.add({"head", replicated({2, 3}), Initializer::normal(1)});
  const std::string message = message_of<InputError>(
      [&] { ckpt::require_params(reader, other, Content::weights); });
  EXPECT_THAT(message,
              HasSubstr("model/norm: the deck makes it (6), the checkpoint has (5)"));
  EXPECT_THAT(message, HasSubstr("model/head (2, 3): missing"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("dense")));
}

// Mixed precision: the master weights are what is kept, and the compute copy follows.
TEST(Params, MixedPrecision) {
  const test::Scratch scratch;
  const auto comm = comm::make_self_communicator("world");
  const ParamRegistry registry = registry_of(0, 1);
  ParamBuffer<bf16> buffer, loaded;
  buffer.allocate(registry, ParamBuffer<bf16>::Use::inference);
  loaded.allocate(registry, ParamBuffer<bf16>::Use::inference);
  buffer.initialize(Exec(), 1);
  const auto saved =
      ckpt::save_checkpoint(Exec(), *comm, scratch.path(), test::sample_state(1),
                            ckpt::parts_of(buffer, Content::weights));
  ckpt::load_params(ckpt::CheckpointReader(saved.path), Exec(), loaded, Content::weights);
  EXPECT_EQ(host_copy(loaded, Slab::weight), host_copy(buffer, Slab::weight));
  const auto copy =
      Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), loaded.compute_slice(1));
  EXPECT_EQ(static_cast<float>(copy(3)),
            static_cast<float>(bf16(host_copy(
                buffer, Slab::weight)[static_cast<std::size_t>(buffer.offset(1) + 3)])));
}

}  // namespace
}  // namespace trireme
