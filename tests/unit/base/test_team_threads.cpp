// The threads that a plan counts are those that Kokkos has.
#include "base/team_threads.hpp"

#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>

namespace trireme {
namespace {

TEST(TeamThreads, AreThoseThatKokkosHas) {
  EXPECT_EQ(planned_team_threads(), Kokkos::DefaultHostExecutionSpace().concurrency());
}

#ifdef KOKKOS_ENABLE_OPENMP
TEST(TeamThreads, AreAsManyAsArePlanned) {
  const int before = planned_team_threads();
  plan_team_threads(3);
  EXPECT_EQ(planned_team_threads(), 3);
  plan_team_threads(before);
  EXPECT_EQ(planned_team_threads(), before);
}
#endif

}  // namespace
}  // namespace trireme
