// SIGKILL of one rank or both in each phase of a save, and at instants nobody chose.
#include "restart/killed_runs.hpp"

namespace trireme::test {
namespace {

class KillRanks : public KilledRuns {};

TEST_F(KillRanks, GoOnByThemselves) {
  const std::vector<std::string> all = plans(12);
  ASSERT_GE(all.size(), 30u);
  expect_survives(all);
}

}  // namespace
}  // namespace trireme::test
