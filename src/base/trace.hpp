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
  // The group that a message goes through, with its channel where the device carries it
  // ("checkpoint" for what a thread writes beside the steps, "kernels" and "copies" for
  // what the device was at); "" for what the rank itself is busy with, one event inside
  // the other.
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

// Who learns late when something began and ended, as a device did it: tells so when the
// trace is over.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  // Both may wait for the device, whose clock is read then.
  virtual void begin_trace() = 0;
  virtual void end_trace(Trace& trace) = 0;
};

// They share it with whoever records, and may outlive that.
class TraceSources {
 public:
  void add(TraceSource& source) {
    sources_.push_back(&source);
    if (is_recording_) source.begin_trace();
  }
  void remove(TraceSource& source) { std::erase(sources_, &source); }

  void begin() {
    is_recording_ = true;
    for (TraceSource* source : sources_) source->begin_trace();
  }
  void end(Trace& trace) {
    is_recording_ = false;
    for (TraceSource* source : sources_) source->end_trace(trace);
  }

 private:
  std::vector<TraceSource*> sources_;
  bool is_recording_ = false;
};

}  // namespace trireme

#endif  // TRIREME_BASE_TRACE_HPP_
