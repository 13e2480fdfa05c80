// report/message_waits.hpp — of the waits for messages of one step, what was for ranks
// that came late, and what for the transfer: enter, last arrival, leave.
//
// A rank that waits for an operation from w to e, which the last rank of the group began
// at a, waits for that rank up to a and for the transfer from there on. A message between
// two is begun by its sender.
#ifndef TRIREME_REPORT_MESSAGE_WAITS_HPP_
#define TRIREME_REPORT_MESSAGE_WAITS_HPP_

#include "comm/group.hpp"
#include "comm/message_times.hpp"
#include "report/rank_clock.hpp"

namespace trireme::report {

// Seconds of one rank.
struct MessageWaits {
  double skew = 0.0;      // for ranks that began later
  double transfer = 0.0;  // once all had begun
  double bytes = 0.0;     // that this rank sent

  MessageWaits& operator+=(const MessageWaits& other) {
    skew += other.skew;
    transfer += other.transfer;
    bytes += other.bytes;
    return *this;
  }
};

// Collective over the group, which all its ranks recorded for the same step, with this
// rank's clock readings before and after it.
MessageWaits split_waits(comm::Communicator& group, const comm::MessageTimes& times,
                         const ClockReading& before, const ClockReading& after);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_MESSAGE_WAITS_HPP_
