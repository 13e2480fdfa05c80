// report/shared_cores.hpp — says when a run did not have its cores to itself: CPU time
// far below wall time, which else looks like slow kernels or slow messages.
#ifndef TRIREME_REPORT_SHARED_CORES_HPP_
#define TRIREME_REPORT_SHARED_CORES_HPP_

#include <string>

#include "base/core_time.hpp"
#include "comm/communicator.hpp"

namespace trireme::report {

// Collective. `time`: of this rank, over what is reported. Empty on every rank where all
// of them had nearly all of their cores' time; else sentences for people, the same on
// all.
std::string shared_cores_note(comm::Communicator& world, const CoreTime& time);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_SHARED_CORES_HPP_
