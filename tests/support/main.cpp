// tests/support/main.cpp — main() of every test executable: MPI and Kokkos up, tests run,
// and a failure on any rank is a failure of the test. A filter that matches nothing
// fails.
#include <gtest/gtest.h>
#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  MPI_Init(&argc, &argv);
  int failed = 0;
  {
    const Kokkos::ScopeGuard kokkos(argc, argv);
    failed = RUN_ALL_TESTS();
    if (::testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
      std::fprintf(stderr, "no test matches this filter: %s\n",
                   ::testing::GTEST_FLAG(filter).c_str());
      failed = 1;
    }
  }
  int any_failed = 0;
  MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any_failed;
}
