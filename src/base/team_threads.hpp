// base/team_threads.hpp — how many threads of the host a launch has, also where Kokkos
// has not begun and no launch is to come: a plan counts what each thread keeps.
#ifndef TRIREME_BASE_TEAM_THREADS_HPP_
#define TRIREME_BASE_TEAM_THREADS_HPP_

namespace trireme {

// For a process in which Kokkos does not begin: as many as it would be told to have.
// Where there is an OpenMP runtime that is told so, as Kokkos tells it.
void plan_team_threads(int threads);
// What was planned; without a plan what the environment says, or a thread on each core. 1
// in a build whose launches have one thread on the host.
int planned_team_threads();

}  // namespace trireme

#endif  // TRIREME_BASE_TEAM_THREADS_HPP_
