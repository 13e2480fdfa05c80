// One rank's gradients are everybody's: nothing changes, nothing is sent.
#include "parallel/gradient_sync.hpp"

#include "comm/self_communicator.hpp"
#include "support/arrays.hpp"

namespace trireme::parallel {
namespace {

TEST(GradientSyncAlone, LeavesEverything) {
  const comm::RankGrid grid(comm::make_self_communicator("world"), comm::GridShape{});
  ParamRegistry registry;
  registry.add({.name = "word", .shard = replicated({5, 7}), .init = {}});
  registry.add({.name = "bias", .shard = replicated({3}), .init = {}});
  ParamBuffer<float> params;
  params.allocate(registry, ParamBuffer<float>::Use::training);
  const test::Array<float> values(
      test::uniform(static_cast<std::size_t>(params.slab_elements()), 1));
  for (const Slab slab : {Slab::weight, Slab::gradient, Slab::exp_avg}) {
    Kokkos::deep_copy(params.slab(slab), values.vector());
  }
  const Exec exec;
  synchronise_gradients(exec, grid.groups(), params, 0);
  exec.fence("test");
  for (const Slab slab : {Slab::weight, Slab::gradient, Slab::exp_avg}) {
    const auto host =
        Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, params.slab(slab));
    const auto want = values.values();
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(host(i), want[i]);
  }
  for (const auto& group :
       {grid.groups().data, grid.groups().embedding, grid.groups().tensor}) {
    EXPECT_EQ(group->traffic().calls, 0);
  }
}

}  // namespace
}  // namespace trireme::parallel
