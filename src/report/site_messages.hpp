// report/site_messages.hpp — what a run sends by site: the place in the step that asks
// for a message, as the Tally of each group of ranks counts it.
#ifndef TRIREME_REPORT_SITE_MESSAGES_HPP_
#define TRIREME_REPORT_SITE_MESSAGES_HPP_

#include <string>
#include <vector>

#include "comm/process_groups.hpp"

namespace trireme::report {

struct SiteMessages {
  std::string axis, site, operation;  // MessageTally's
  int ranks = 0;                      // that send there
  double calls = 0.0, bytes = 0.0;    // of all of them, since Group::reset_traffic()
};

// Collective: ordered by axis, then by bytes, most first; of rank 0, nothing elsewhere.
std::vector<SiteMessages> messages_by_site(const comm::ProcessGroups& groups);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_SITE_MESSAGES_HPP_
