// base/team_threads.cpp — see team_threads.hpp.
#include "base/team_threads.hpp"

#include <Kokkos_Macros.hpp>

#ifdef KOKKOS_ENABLE_OPENMP
#include <omp.h>
#endif

namespace trireme {

#ifdef KOKKOS_ENABLE_OPENMP
void plan_team_threads(int threads) {
  omp_set_num_threads(threads);
}

int planned_team_threads() {
  return omp_get_max_threads();
}
#else
void plan_team_threads(int) {}

int planned_team_threads() {
  return 1;
}
#endif

}  // namespace trireme
