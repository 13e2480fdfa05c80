// Initial weights in every layout are those of one rank, bit by bit: each rank's part,
// with ZeRO its share of that, and together all of the model.
#include <gtest/gtest.h>

#include <cstring>

#include "ckpt/region.hpp"
#include "comm/self_communicator.hpp"
#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

constexpr std::uint64_t kSeed = 4321;

std::vector<float> values_of(const View1<float>& view) {
  Kokkos::fence("test");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  return {host.data(), host.data() + host.extent(0)};
}

using Weights = std::vector<std::vector<float>>;  // by parameter

Weights weights_of_one_rank() {
  const comm::RankGrid grid(comm::make_self_communicator("world"), {});
  engine::ModelState<float> state(grid.groups(), matrix_model());
  state.allocate(ParamBuffer<float>::Use::training);
  state.params.initialize(Exec(), kSeed);
  Weights weights;
  for (std::size_t p = 0; p < state.registry.size(); ++p) {
    weights.push_back(values_of(state.params.slice(Slab::weight, p)));
  }
  return weights;
}

void expect_same(const comm::RankGrid& grid, const Layout& layout, const Weights& whole) {
  SCOPED_TRACE(layout.name());
  engine::ModelState<float> state(grid.groups(), matrix_model(), layout.sharing());
  state.allocate(ParamBuffer<float>::Use::training);
  state.params.initialize(Exec(), kSeed);
  ASSERT_EQ(state.registry.size(), whole.size());
  std::vector<double> copies(whole.size(), 0.0);  // of elements, on all ranks
  for (std::size_t p = 0; p < whole.size(); ++p) {
    const ParamSpec& spec = state.registry.spec(p);
    const auto share = state.params.share(Slab::weight, p);
    const std::vector<float> mine = values_of(share.values);
    const Shape& shape = spec.shard.global_shape;
    const index_t columns = shape.size() == 2 ? shape[1] : 1;
    bool is_same = true;
    for (const ckpt::Region& region :
         ckpt::regions_of(spec.shard, share.range.begin, share.range.end)) {
      const ckpt::Rectangle& global = region.global;
      for (index_t row = 0; row < global.rows; ++row) {
        const float* got = mine.data() + region.local_offset - share.range.begin +
                           row * region.local_stride;
        const float* want =
            whole[p].data() + (global.row + row) * columns + global.column;
        const auto bytes = static_cast<std::size_t>(global.columns) * sizeof(float);
        // No way out here: the other ranks would wait.
        is_same = is_same && std::memcmp(got, want, bytes) == 0;
      }
      copies[p] += static_cast<double>(global.elements());
    }
    EXPECT_TRUE(is_same) << spec.name;
  }
  grid.groups().world->all_reduce(copies);
  for (std::size_t p = 0; p < whole.size(); ++p) {
    const ParamSpec& spec = state.registry.spec(p);
    const int holders = (spec.shard.is_replicated() ? layout.tensor : 1) *
                        (state.params.is_whole(Slab::weight) ? layout.data : 1);
    EXPECT_EQ(copies[p],
              static_cast<double>(holders) * static_cast<double>(whole[p].size()))
        << spec.name;
  }
}

TEST(LayoutWeights, AreThoseOfOneRank) {
  const auto world = layout_world();
  const Weights whole = weights_of_one_rank();
  std::vector<Layout> layouts = all_layouts(8);
  std::erase_if(layouts, [](const Layout& layout) { return layout.microbatches > 1; });
  const auto check = [&](const auto& ranks, const Layout& first) {
    const comm::RankGrid grid(ranks, first.grid());
    for (const Layout& layout : layouts) {
      if (layout.is_on_grid_of(first)) expect_same(grid, layout, whole);
    }
  };
  for_each_layout(*world, one_of_each_grid(layouts), check);
}

}  // namespace
}  // namespace trireme::test
