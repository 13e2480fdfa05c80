// Where ranks are: bindings in words, and what is warned of, on made-up clusters.
#include "job/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/process_groups.hpp"

namespace trireme::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<int> cores_from(int first, int count) {
  std::vector<int> cores;
  for (int core = 0; core < count; ++core) cores.push_back(first + core);
  return cores;
}

// Nodes of `per_node` ranks with four cores each, in blocks.
std::vector<Place> cluster(int nodes, int per_node) {
  std::vector<Place> places;
  for (int rank = 0; rank < nodes * per_node; ++rank) {
    const int node = rank / per_node;
    places.push_back({.node = node * per_node,
                      .host = fmt::format("n{}", node),
                      .processor = "EPYC",
                      .cores = cores_from(rank % per_node * 4, 4),
                      .threads = 4,
                      .node_cores = 4 * per_node,
                      .umask = 022});
  }
  return places;
}

TEST(Placement, CoresInWords) {
  EXPECT_EQ(core_list({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(core_list({5}), "5");
  EXPECT_EQ(core_list({0, 1, 64, 65, 70}), "0-1+64-65+70");
  EXPECT_EQ(core_list({}), "");
}

TEST(Placement, BindingsOfNodesThatAreAlikeStandOnce) {
  EXPECT_THAT(Placement(cluster(1, 1)).bindings(),
              ElementsAre("1 rank of 4 threads: cores 0-3"));
  EXPECT_THAT(Placement(cluster(3, 2)).bindings(),
              ElementsAre("3 nodes of 2 ranks of 4 threads: cores 0-3, 4-7"));
  auto places = cluster(3, 2);
  places[3].cores = {4};
  places[3].threads = 1;
  EXPECT_THAT(Placement(places).bindings(),
              ElementsAre("2 nodes of 2 ranks of 4 threads: cores 0-3, 4-7",
                          "1 node of 2 ranks: cores 0-3 (4 threads), 4 (1 thread)"));
  places = cluster(1, 2);
  places[1].cores = places[0].cores;
  EXPECT_THAT(Placement(places).bindings(),
              ElementsAre("2 ranks of 4 threads: all on cores 0-3"));
}

// As a node of Perlmutter has them: rank r beside GPU 3 - r.
std::vector<Place> with_devices(std::vector<Place> places, int per_node) {
  const char* const addresses[] = {"0000:c1:00.0", "0000:81:00.0", "0000:41:00.0",
                                   "0000:03:00.0"};
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    places[rank].device = addresses[static_cast<int>(rank) % per_node];
    places[rank].near = places[rank].cores;
  }
  return places;
}

TEST(Placement, DevicesOfNodesThatAreAlikeStandOnce) {
  EXPECT_THAT(Placement(cluster(2, 4)).devices(), IsEmpty());
  EXPECT_THAT(Placement(with_devices(cluster(1, 1), 1)).devices(),
              ElementsAre("1 rank: GPU c1:00.0"));
  auto places = with_devices(cluster(3, 2), 2);
  EXPECT_THAT(Placement(places).devices(),
              ElementsAre("3 nodes of 2 ranks: GPUs c1:00.0, 81:00.0"));
  places[5].device = "0001:01:00.0";
  EXPECT_THAT(Placement(places).devices(),
              ElementsAre("2 nodes of 2 ranks: GPUs c1:00.0, 81:00.0",
                          "1 node of 2 ranks: GPUs c1:00.0, 0001:01:00.0"));
}

TEST(Placement, ARankFarFromItsDeviceIsAWarning) {
  auto places = with_devices(cluster(2, 4), 4);
  const comm::GridShape grid{.tensor = 4, .data = 2};
  EXPECT_THAT(Placement(places).warnings(grid), IsEmpty());
  places[1].near = cores_from(12, 4);
  places[2].near = cores_from(11, 2);  // one of its own among them
  const auto warnings = Placement(places).warnings(grid);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings.front(),
              HasSubstr("rank 1 runs far from its GPU (rank 1 on n0: cores 4-7, and its "
                        "GPU 0000:81:00.0 is nearest to 12-15)"));
  for (Place& place : places) place.near.clear();  // not known
  EXPECT_THAT(Placement(places).warnings(grid), IsEmpty());
}

TEST(Placement, NothingIsSaidOfAGoodOne) {
  EXPECT_THAT(Placement(cluster(2, 4)).warnings({.tensor = 4, .data = 2}), IsEmpty());
  EXPECT_THAT(Placement(cluster(2, 4)).warnings({.tensor = 2, .data = 4}), IsEmpty());
  EXPECT_THAT(Placement(cluster(1, 1)).warnings({}), IsEmpty());
  EXPECT_EQ(Placement(cluster(3, 2)).nodes(), 3);
}

std::string only_warning(const std::vector<Place>& places, const comm::GridShape& grid) {
  const auto warnings = Placement(places).warnings(grid);
  EXPECT_EQ(warnings.size(), 1u);
  return warnings.empty() ? "" : warnings.front();
}

TEST(Placement, ATensorGroupThatCrossesNodesIsAWarningWithAdvice) {
  // More than a node has.
  EXPECT_EQ(only_warning(cluster(2, 4), {.tensor = 8}),
            "1 of 1 tensor groups is on more than one node (ranks 0-7: on n0, n1), so "
            "that messages of every layer go over the network. Set parallel.tensor to 4 "
            "or less (a node has 4 ranks), or start more ranks on each node.");
  // Data first in the order.
  EXPECT_THAT(
      only_warning(cluster(2, 4), {.tensor = 2,
                                   .data = 4,
                                   .order = {comm::Axis::data, comm::Axis::tensor,
                                             comm::Axis::context, comm::Axis::pipeline}}),
      HasSubstr("4 of 4 tensor groups are on more than one node (ranks 0, 4: on "
                "n0, n1), so that messages of every layer go over the network. "
                "Put tensor first in parallel.order."));
  // Ranks dealt out like cards.
  auto places = cluster(2, 4);
  for (int rank = 0; rank < 8; ++rank) {
    places[static_cast<std::size_t>(rank)].node = rank % 2;
    places[static_cast<std::size_t>(rank)].cores = cores_from(rank / 2 * 4, 4);
  }
  EXPECT_THAT(only_warning(places, {.tensor = 2, .data = 4}),
              HasSubstr("--distribution=block"));
  // Groups that do not fit a node's ranks evenly.
  EXPECT_THAT(only_warning(cluster(2, 3), {.tensor = 2, .data = 3}),
              HasSubstr("Start a multiple of 2 ranks on each node"));
}

TEST(Placement, ThreadsThatShareCoresAreAWarningWithAdvice) {
  auto places = cluster(2, 2);
  places[3].cores = places[2].cores;  // bound to the same ones
  EXPECT_EQ(only_warning(places, {.data = 4}),
            "on n1 8 threads of 2 ranks share 4 cores (0-3): they take turns. The node "
            "has 8 cores: give each rank its own (srun --cpus-per-task=4 "
            "--cpu-bind=cores, mpiexec -bind-to core:4; is OMP_PROC_BIND set without "
            "that?).");
  for (Place& place : places) place.node_cores = 4;
  EXPECT_THAT(only_warning(places, {.data = 4}), HasSubstr("OMP_NUM_THREADS lower"));
}

TEST(Placement, RanksThatDifferAreAWarning) {
  auto places = cluster(2, 2);
  places[2].processor = places[3].processor = "Xeon";
  places[1].threads = 2;
  places[3].umask = 077;
  const std::string warning = only_warning(places, {.data = 4});
  EXPECT_THAT(warning, HasSubstr("(the slowest sets the pace): ranks 0-1 (on n0): EPYC; "
                                 "ranks 2-3 (on n1): Xeon"));
  EXPECT_THAT(warning, HasSubstr("ranks 0, 2-3 (on n0, n1): 4 threads; rank 1 (on n0): 2 "
                                 "threads"));
  EXPECT_THAT(warning, HasSubstr("(umask): ranks 0-2 (on n0, n1): 022; rank 3 (on n1): "
                                 "077"));
}

}  // namespace
}  // namespace trireme::job
