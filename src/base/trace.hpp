// base/trace.hpp — what a rank did when, for a timeline of all ranks.
#ifndef TRIREME_BASE_TRACE_HPP_
#define TRIREME_BASE_TRACE_HPP_

#include <chrono>
#include <cstddef>
#include <vector>

#include "base/types.hpp"

namespace trireme {

// Texts are literals, or live as long as the trace.
struct TraceEvent {
  using Clock = std::chrono::steady_clock;

  const char* name = "";
  const char* detail = "";  // a message's site
  // The group that a message goes through ("checkpoint" for what a thread writes beside
  // the steps); "" for what the rank itself is busy with, one event inside the other.
  const char* group = "";
  Clock::time_point begin, end;
  int microbatch = -1, chunk = -1;
  index_t elements = -1;
};

// Takes no memory while it records.
class Trace {
 public:
  explicit Trace(std::size_t capacity) { events_.reserve(capacity); }

  void add(const TraceEvent& event) {
    if (events_.size() == events_.capacity()) {
      ++lost_;
      return;
    }
    events_.push_back(event);
  }
  const std::vector<TraceEvent>& events() const { return events_; }
  std::size_t lost() const { return lost_; }  // for which there was no room

 private:
  std::vector<TraceEvent> events_;
  std::size_t lost_ = 0;
};

}  // namespace trireme

#endif  // TRIREME_BASE_TRACE_HPP_
