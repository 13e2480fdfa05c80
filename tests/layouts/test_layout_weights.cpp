// Initial weights in every layout are those of one rank, bit by bit: each rank's part,
// with ZeRO its share of that, and together all of the model. Master weights of a model
// that computes in 16 bits are the same. GPT's in every row that places them otherwise,
// those of BERT and T5 in rows in which every pair of values of such axes stands.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "ckpt/region.hpp"
#include "comm/rank_grid.hpp"
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

using Weights = std::map<std::string, std::vector<float>>;  // by parameter

Weights weights_of_one_rank(const MatrixSize& size) {
  const comm::RankGrid grid(comm::make_self_communicator("world"), {});
  step::ModelState<float> state(grid.groups(), matrix_blueprint(size), {},
                                matrix_maker(size));
  state.allocate(ParamBuffer<float>::Use::training);
  state.params.initialize(Exec(), kSeed);
  Weights weights;
  for (std::size_t p = 0; p < state.registry.size(); ++p) {
    weights[state.registry.spec(p).name] = values_of(state.params.slice(Slab::weight, p));
  }
  return weights;
}

template <class T>
void expect_same(const comm::RankGrid& grid, const Layout& layout, const Weights& whole) {
  SCOPED_TRACE(layout.name());
  step::ModelState<T> state(grid.groups(), matrix_blueprint(layout.size),
                            layout.sharing(), matrix_maker<T>(layout.size));
  state.allocate(ParamBuffer<T>::Use::training);
  state.params.initialize(Exec(), kSeed);
  // Elements that ranks have, each over the number of ranks that have it as well.
  std::map<std::string, double> held;
  for (const auto& [name, values] : whole) held[name] = 0.0;
  for (std::size_t p = 0; p < state.registry.size(); ++p) {
    const ParamSpec& spec = state.registry.spec(p);
    const std::vector<float>& all = whole.at(spec.name);
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
        const float* want = all.data() + (global.row + row) * columns + global.column;
        const auto bytes = static_cast<std::size_t>(global.columns) * sizeof(float);
        // No way out here: the other ranks would wait.
        is_same = is_same && std::memcmp(got, want, bytes) == 0;
      }
      held.at(spec.name) += static_cast<double>(global.elements());
    }
    EXPECT_TRUE(is_same) << spec.name;
    const int holders = (spec.shard.is_replicated() ? layout.tensor : 1) *
                        (state.params.is_whole(Slab::weight) ? layout.data : 1) *
                        (spec.tie != Tie::none ? state.groups.tied(spec.name).size() : 1);
    held.at(spec.name) /= holders;
  }
  std::vector<double> sums;
  for (const auto& [name, sum] : held) sums.push_back(sum);
  grid.groups().world->all_reduce(sums);
  std::size_t at = 0;
  for (const auto& [name, values] : whole) {
    EXPECT_NEAR(sums[at++], static_cast<double>(values.size()), 1e-6) << name;
  }
}

template <class T = float>
void expect_same_in_all(const std::vector<Layout>& layouts) {
  const auto world = layout_world();
  std::map<MatrixSize, Weights> whole;
  for (const Layout& layout : layouts) {
    if (!whole.contains(layout.size)) {
      whole[layout.size] = weights_of_one_rank(layout.size);
    }
  }
  const auto check = [&](const auto& ranks, const Layout& first) {
    const comm::RankGrid grid(ranks, first.grid());
    for (const Layout& layout : layouts) {
      if (!layout.is_on_grid_of(first)) continue;
      expect_same<T>(grid, layout, whole.at(layout.size));
    }
  };
  for_each_layout(*world, one_of_each_grid(layouts), check);
}

// What these axes change is not where weights lie.
bool repeats_a_placement(const Layout& layout) {
  return layout.microbatches > 1 || layout.recompute != 0 ||
         layout.schedule != config::PipelineSchedule::one_f_one_b;
}

constexpr Kind kOtherKinds[] = {Kind::bert, Kind::bert_post, Kind::t5, Kind::t5_own_head};

std::vector<Layout> all_layouts_of(Kind kind) {
  std::vector<Layout> layouts = of_kind(kind, all_layouts(8));
  std::erase_if(layouts, [](const Layout& layout) { return !layout.is_valid(8); });
  return layouts;
}

TEST(LayoutWeights, AreThoseOfOneRank) {
  std::vector<Layout> layouts = all_layouts(8);
  std::erase_if(layouts, repeats_a_placement);
  expect_same_in_all(layouts);
}

TEST(LayoutWeights, OfOtherKindsAreThoseOfOneRank) {
  std::vector<Layout> layouts;
  for (const Kind kind : kOtherKinds) {
    std::vector<Layout> of = all_layouts_of(kind);
    std::erase_if(of, repeats_a_placement);
    const std::vector<Layout> rows = covering(of, Meet::pairs);
    layouts.insert(layouts.end(), rows.begin(), rows.end());
  }
  expect_same_in_all(layouts);
}

TEST(LayoutWeights, OfBf16AreThoseOfOneRank) {
  std::vector<Layout> layouts = of_each_kind(all_layouts(8));
  for (const Kind kind : kOtherKinds) {
    const std::vector<Layout> rows = of_each_kind(all_layouts_of(kind));
    layouts.insert(layouts.end(), rows.begin(), rows.end());
  }
  expect_same_in_all<bf16>(layouts);
}

TEST(LayoutWeightsOfPipelines, AreThoseOfOneRank) {
  std::vector<Layout> layouts = all_pipelines(8);
  std::erase_if(layouts, [](const Layout& layout) {
    return repeats_a_placement(layout) || layout.sequence > 0;
  });
  expect_same_in_all(layouts);
}

// Rows of the kinds' own tables: both kinds of norm, both heads, with pairs and without.
TEST(LayoutWeightsOfPipelines, OfOtherKindsAreThoseOfOneRank) {
  std::vector<Layout> layouts;
  for (const model::ModelKind kind : {model::ModelKind::bert, model::ModelKind::t5}) {
    std::vector<Layout> all = all_rows_of(kind, 8);
    std::erase_if(all, repeats_a_placement);
    const std::vector<Layout> rows = covering(all, Meet::pairs);
    layouts.insert(layouts.end(), rows.begin(), rows.end());
  }
  expect_same_in_all(layouts);
}

}  // namespace
}  // namespace trireme::test
