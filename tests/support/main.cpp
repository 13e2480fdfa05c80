// tests/support/main.cpp — main() of every test executable: MPI and Kokkos up, tests run,
// and a failure on any rank is a failure of the test. A filter that matches nothing
// fails. A test that skips itself makes the whole entry "skipped" (status 77), so that
// ctest shows it: ./runtests takes that for a failure.
#include <gtest/gtest.h>
#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  MPI_Init(&argc, &argv);
  enum Outcome : int { passed, skipped, failed };
  int outcome = passed;
  {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    const auto& tests = *::testing::UnitTest::GetInstance();
    if (RUN_ALL_TESTS() != 0) {
      outcome = failed;
    } else if (tests.test_to_run_count() == 0) {
      std::fprintf(stderr, "no test matches this filter: %s\n",
                   ::testing::GTEST_FLAG(filter).c_str());
      outcome = failed;
    } else if (tests.skipped_test_count() > 0) {
      outcome = skipped;
    }
  }
  int worst = 0;
  MPI_Allreduce(&outcome, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return worst == failed ? 1 : worst == skipped ? 77 : 0;
}
