// As restart.train.kill, over a hundred times.
#include "restart/killed_runs.hpp"

namespace trireme::test {
namespace {

class KillOften : public KilledRuns {};

TEST_F(KillOften, GoesOnByItself) {
  const std::vector<std::string> all = plans(90);
  ASSERT_GE(all.size(), 100u);
  expect_survives(all, "per_rank", 2);
}

TEST_F(KillOften, GoesOnWithASharedFile) {
  expect_survives(plans_of_a_shared_file(90), "1", 1);
}

}  // namespace
}  // namespace trireme::test
