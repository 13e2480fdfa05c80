// A training state that ranks of any layout write, tensor x data and every degree of
// ZeRO, is read by every other layout to the bit; and every element of it is written
// once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "ckpt/params.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ckpt::Content;

constexpr Slab kSaved[] = {Slab::weight, Slab::exp_avg, Slab::exp_avg_sq};

struct Layout {
  int tensor = 1, data = 1, zero = 0;
  int ranks() const { return tensor * data; }
};

std::string to_string(const Layout& of) {
  return fmt::format("tensor {} x data {}, ZeRO {}", of.tensor, of.data, of.zero);
}

// All that fit so many ranks; of narrow types, where only the compute copy differs, those
// of one and of all. Stages matter where there are several data ranks.
template <class T>
std::vector<Layout> layouts_of(int ranks) {
  std::vector<Layout> layouts;
  for (const int tensor : {1, 2}) {
    for (int data = 1; tensor * data <= ranks; ++data) {
      for (int zero = 0; zero <= (data > 1 ? 3 : 0); ++zero) {
        const Layout layout{tensor, data, zero};
        const bool is_end = layout.ranks() == 1 || layout.ranks() == ranks;
        if (is_end || sizeof(T) == sizeof(float)) layouts.push_back(layout);
      }
    }
  }
  return layouts;
}

// A padded vocabulary, blocks, a split by columns, vectors, and two tensors that are so
// large that ranks divide them.
ParamRegistry registry_of(int tensor_rank, int tensor_size) {
  const int r = tensor_rank, n = tensor_size;
  ParamRegistry registry;
  const auto embedding = registry.begin_unit("embedding");
  registry.add({"word", split({7, 5}, 0, n, r, 2), {}});
  registry.add({"position", replicated({300, 257}), {}});
  for (const std::string layer : {"0/", "1/"}) {
    registry.begin_unit(layer);
    registry.add({layer + "norm", replicated({5}), {}});
    registry.add({layer + "qkv", split_blocks({36, 5}, {12, 12, 12}, n, r), {}});
    registry.add({layer + "bias", split_blocks({36}, {12, 12, 12}, n, r), {}});
    registry.add({layer + "dense", split({4, 12}, 1, n, r), {}});
  }
  registry.begin_unit("wide");
  registry.add({"wide/fc1", split({300, 446}, 0, n, r), {}});  // of 2 ranks, too
  registry.begin_unit("head", embedding);
  registry.add({"final", replicated({130}), {}});
  return registry;
}

// The element of the global tensor that a local one is; none for padding.
std::optional<index_t> global_of(const ShardSpec& shard, index_t local) {
  const bool is_matrix = shard.global_shape.size() == 2;
  const index_t columns = is_matrix ? shard.global_shape[1] : 1;
  const index_t local_columns = is_matrix ? shard.local_shape[1] : 1;
  index_t at[] = {local / local_columns, local % local_columns};
  if (shard.is_replicated()) return at[0] * columns + at[1];
  for (const Segment& segment : shard.segments) {
    const index_t inside = at[shard.dimension] - segment.local_begin;
    if (inside < 0 || inside >= segment.extent) continue;
    at[shard.dimension] = segment.global_begin + inside;
    return at[0] * columns + at[1];
  }
  return std::nullopt;
}

// No two of a slab are the same; all are exact.
double value_of(Slab slab, std::size_t param, index_t global) {
  return static_cast<double>(global + 400'000 * static_cast<index_t>(param % 4)) +
         0.25 * static_cast<int>(slab);
}

template <class V>
bool same_bits(const V& a, const V& b) {
  Kokkos::fence("test");
  const auto x = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, a);
  const auto y = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, b);
  const std::size_t bytes = x.size() * sizeof(typename V::value_type);
  return x.size() == y.size() &&
         (bytes == 0 || std::memcmp(x.data(), y.data(), bytes) == 0);
}

// One rank of a layout, and its slabs.
template <class T>
class Rank {
 public:
  using Master = Accumulator<T>;

  Rank(const std::shared_ptr<comm::Communicator>& world, const Layout& layout)
      : Rank(std::make_shared<const comm::RankGrid>(
                 world, comm::GridShape{.tensor = layout.tensor, .data = layout.data}),
             layout) {}
  // On a grid that there is: to make its groups takes longer than to read a checkpoint.
  Rank(std::shared_ptr<const comm::RankGrid> grid, const Layout& layout)
      : grid_(std::move(grid)),
        registry_(registry_of(grid_->coordinates().tensor, layout.tensor)) {
    params_.allocate(registry_, ParamBuffer<T>::Use::training,
                     {.zero = layout.zero,
                      .parts = layout.data,
                      .part = grid_->coordinates().data,
                      .bucket_elements = layout.zero >= 2 ? 1 : 1000});
  }

  // Shares element by element, from where each lies in its global tensor.
  void fill() {
    Kokkos::fence("test");
    for (const Slab slab : kSaved) {
      for (std::size_t p = 0; p < registry_.size(); ++p) {
        const auto share = params_.share(slab, p);
        const auto host =
            Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, share.values);
        for (index_t i = 0; i < share.range.size(); ++i) {
          const auto global = global_of(registry_.spec(p).shard, share.range.begin + i);
          if (!global) continue;  // padding stays zero
          host(static_cast<std::size_t>(i)) =
              static_cast<Master>(value_of(slab, p, *global));
        }
        Kokkos::deep_copy(share.values, host);
      }
    }
    params_.refresh_compute(Exec());
  }
  void load(const ckpt::Path& path) {
    ckpt::load_params(ckpt::CheckpointReader(*grid_->groups().world, path), Exec(),
                      params_, Content::training);
  }
  // All that is here, padding included, and what passes compute with.
  void expect_same(const Rank& other) const {
    for (const Slab slab : kSaved) {
      EXPECT_TRUE(same_bits(params_.slab(slab), other.params_.slab(slab)))
          << "slab " << static_cast<int>(slab);
    }
    for (std::size_t b = 0; b < params_.partition().buckets().size(); ++b) {
      EXPECT_TRUE(same_bits(params_.compute_shard(b), other.params_.compute_shard(b)))
          << "compute copy of bucket " << b;
    }
  }
  std::vector<ckpt::TensorPart> parts() const {
    const comm::Coordinates at = grid_->coordinates();
    const comm::GridShape& shape = grid_->shape();
    return ckpt::parts_of(params_, Content::training,
                          {at.tensor, shape.tensor, at.data, shape.data});
  }
  const std::shared_ptr<const comm::RankGrid>& grid() const { return grid_; }

 private:
  std::shared_ptr<const comm::RankGrid> grid_;
  ParamRegistry registry_;
  ParamBuffer<T> params_;
};

template <class T>
class ShardedCheckpointOf : public ::testing::Test {
 protected:
  ShardedCheckpointOf() {
    std::string name;
    if (world_->rank() == 0) {
      scratch_ = std::make_unique<test::Scratch>();
      name = scratch_->path().string();
    }
    world_->broadcast(name);
    directory_ = name;
  }
  ~ShardedCheckpointOf() override { world_->barrier(); }

  // function(world of the layout's ranks), on those; the others wait.
  template <class Function>
  void on_ranks_of(const Layout& layout, const Function& function) {
    SCOPED_TRACE(to_string(layout));
    const int colour = world_->rank() < layout.ranks() ? 0 : -1;
    const auto some = world_->split(colour, world_->rank(), "ranks of a layout");
    if (some != nullptr) function(some);
    world_->barrier();
  }

  std::shared_ptr<comm::Communicator> world_ =
      comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
  std::unique_ptr<test::Scratch> scratch_;
  fs::path directory_;
};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(ShardedCheckpointOf, Types);

TYPED_TEST(ShardedCheckpointOf, EveryLayoutReadsEveryOther) {
  const std::vector<Layout> layouts = layouts_of<TypeParam>(this->world_->size());
  for (std::size_t l = 0; l < layouts.size(); ++l) {
    this->on_ranks_of(layouts[l], [&](const auto& world) {
      Rank<TypeParam> rank(world, layouts[l]);
      rank.fill();
      const auto saved =
          ckpt::save_checkpoint(Exec(), *world, this->directory_ / std::to_string(l),
                                test::sample_state(1), rank.parts());
      // Nothing is written twice, and little beside the data.
      const std::int64_t elements =
          35 + 300 * 257 + 2 * (5 + 180 + 36 + 48) + 300 * 446 + 130;
      const ckpt::CheckpointReader reader(saved.path);
      EXPECT_EQ(reader.manifest().parameter_count(), elements);
      EXPECT_GE(saved.bytes, 12u * elements);
      EXPECT_LE(saved.bytes, 12u * elements + (1u << 19));
    });
  }
  for (const Layout& layout : layouts) {
    this->on_ranks_of(layout, [&](const auto& world) {
      Rank<TypeParam> expected(world, layout);
      expected.fill();
      for (std::size_t l = 0; l < layouts.size(); ++l) {
        SCOPED_TRACE("written by " + to_string(layouts[l]));
        Rank<TypeParam> rank(expected.grid(), layout);
        rank.load(ckpt::require_newest(this->directory_ / std::to_string(l)));
        rank.expect_same(expected);
      }
    });
  }
}

TYPED_TEST(ShardedCheckpointOf, EachElementIsWrittenOnce) {
  for (const Layout& layout : layouts_of<TypeParam>(this->world_->size())) {
    this->on_ranks_of(layout, [&](const auto& world) {
      const Rank<TypeParam> rank(world, layout);
      std::map<std::string, std::vector<double>> writers;
      for (const ckpt::TensorPart& part : rank.parts()) {
        const index_t columns = part.global_shape.size() == 2 ? part.global_shape[1] : 1;
        auto [at, is_new] = writers.try_emplace(
            part.name, static_cast<std::size_t>(element_count(part.global_shape)), 0.0);
        EXPECT_TRUE(is_new) << part.name;
        for (const ckpt::Region& region : part.regions) {
          const ckpt::Rectangle& box = region.global;
          EXPECT_GT(box.elements(), 0) << part.name;
          for (index_t r = box.row; r < box.row + box.rows; ++r) {
            for (index_t c = box.column; c < box.column + box.columns; ++c) {
              at->second.at(static_cast<std::size_t>(r * columns + c)) += 1;
            }
          }
        }
      }
      EXPECT_EQ(writers.size(), 3u * registry_of(0, 1).size());
      for (auto& [name, count] : writers) {
        world->all_reduce(count);
        EXPECT_EQ(std::count(count.begin(), count.end(), 1.0), std::ssize(count)) << name;
      }
    });
  }
}

}  // namespace
}  // namespace trireme
