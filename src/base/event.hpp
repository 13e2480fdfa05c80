// base/event.hpp — a mark in the queue of an Exec: what comes before it can be asked
// after, waited for by other queues or by the host, and timed, without a fence.
#ifndef TRIREME_BASE_EVENT_HPP_
#define TRIREME_BASE_EVENT_HPP_

#include <memory>

#include "base/exec.hpp"

namespace trireme {

// On a device a CUDA event. On a host a launch has ended when it returns, so that a mark
// is past as soon as it is recorded; its time is the host's clock. An event that was
// never recorded, or on a shape-only Exec only, counts as past: there is nothing to wait
// for. What the device reports of work that failed is thrown by whoever asks.
class Event {
 public:
  // Only events with a time can be asked for seconds; those without cost a device less.
  enum class Time { none, kept };
  explicit Event(Time time = Time::none);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  // After all that was launched on this Exec so far. Recording again moves the mark; who
  // waits already waits for where it was.
  void record(const Exec& exec);
  bool is_recorded() const;
  // Never waits.
  bool is_past() const;
  // What is launched on this Exec from now on waits for the mark; the host does not.
  void hold_up(const Exec& exec) const;
  // The host waits for the mark.
  void wait() const;
  // From `begin` to this mark. Both were recorded, keep their time, and are past.
  double seconds_since(const Event& begin) const;

 private:
  struct Mark;
  std::unique_ptr<Mark> mark_;
};

}  // namespace trireme

#endif  // TRIREME_BASE_EVENT_HPP_
