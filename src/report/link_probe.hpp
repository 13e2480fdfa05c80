// report/link_probe.hpp — what messages along each axis of the grid can reach, measured
// before a run (run.probe): against it stands what they reach while it trains.
#ifndef TRIREME_REPORT_LINK_PROBE_HPP_
#define TRIREME_REPORT_LINK_PROBE_HPP_

#include <string>
#include <vector>

#include "base/exec.hpp"
#include "comm/process_groups.hpp"

namespace trireme::report {

// All groups of an axis send at the same time, as in a step. Seconds of a message of one
// number, and bytes per second of the payload of a large one, as Traffic counts it: of an
// all-reduce, or between neighbouring stages of a pipeline.
struct LinkSpeed {
  std::string axis;
  int ranks = 1;  // of a group
  double latency = 0.0;
  double bytes_per_second = 0.0;  // of the slowest group
  int slowest_rank = 0;           // the first of that
};

// Collective; axes of one rank are left out. Some tenths of a second.
std::vector<LinkSpeed> probe_links(const Exec& exec, const comm::ProcessGroups& groups);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_LINK_PROBE_HPP_
