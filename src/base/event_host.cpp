// base/event_host.cpp — marks of queues whose work has ended when its launch returns.
#include <chrono>

#include "base/error.hpp"
#include "base/event.hpp"

namespace trireme {

struct Event::Mark {
  using Clock = std::chrono::steady_clock;
  bool has_time = false;
  bool is_recorded = false;
  Clock::time_point time;
};

Event::Event(Time time) : mark_(std::make_unique<Mark>()) {
  mark_->has_time = time == Time::kept;
}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(const Exec& exec) {
  if (exec.is_shape_only()) return;
  mark_->is_recorded = true;
  if (mark_->has_time) mark_->time = Mark::Clock::now();
}

bool Event::is_recorded() const {
  return mark_->is_recorded;
}
bool Event::is_past() const {
  return true;
}
void Event::hold_up(const Exec&) const {}
void Event::wait() const {}

double Event::seconds_since(const Event& begin) const {
  TRIREME_REQUIRE(
      mark_->has_time && begin.mark_->has_time && is_recorded() && begin.is_recorded(),
      "seconds are between two recorded events that keep their time");
  return std::chrono::duration<double>(mark_->time - begin.mark_->time).count();
}

}  // namespace trireme
