// SIGKILL of one rank or both in each phase of a save, and at instants nobody chose.
#include "restart/killed_runs.hpp"

namespace trireme::test {
namespace {

class KillRanks : public KilledRuns {};

TEST_F(KillRanks, GoOnByThemselves) {
  const std::vector<std::string> all = plans(6);
  ASSERT_GE(all.size(), 24u);
  expect_survives(all, "per_rank", 2);
}

TEST_F(KillRanks, GoOnWithAFileThatTheyShare) {
  expect_survives(plans_of_a_shared_file(0), "per_node", 1);
}

}  // namespace
}  // namespace trireme::test
