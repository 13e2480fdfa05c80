// Links are probed along every axis with messages, those of tied parameters among them,
// whatever stages take no part there.
#include "report/link_probe.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "comm/mpi_communicator.hpp"

namespace trireme::report {
namespace {

TEST(LinkProbeTogether, HasEveryAxisWithMessages) {
  const auto world = comm::make_mpi_world();
  const int p = world->size();
  comm::ProcessGroups groups = comm::make_process_groups(world, {.pipeline = p});
  if (p > 1) groups.share({{"word", {0, p - 1}}, {"position", {0, p - 1}}});
  std::map<std::string, int> ranks;
  for (const LinkSpeed& link : probe_links(Exec(), groups)) {
    ranks[link.axis] = link.ranks;
    EXPECT_GT(link.latency, 0.0) << link.axis;
    EXPECT_GT(link.bytes_per_second, 0.0) << link.axis;
    EXPECT_TRUE(link.slowest_rank >= 0 && link.slowest_rank < p) << link.axis;
    if (link.axis == "tied") {
      EXPECT_TRUE(link.slowest_rank == 0 || link.slowest_rank == p - 1);
    }
  }
  std::map<std::string, int> expected;
  if (p > 1) expected = {{"pipeline", p}, {"model", p}, {"tied", 2}};
  EXPECT_EQ(ranks, expected);
}

}  // namespace
}  // namespace trireme::report
