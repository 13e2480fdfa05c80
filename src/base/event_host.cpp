// base/event_host.cpp — marks of queues whose work has ended when its launch returns, but
// for what late queues keep back (base/late_queue.hpp): whoever waits has that done.
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/event.hpp"
#include "base/late_queue.hpp"

namespace trireme {

struct Event::Mark {
  using Clock = std::chrono::steady_clock;
  bool has_time = false;
  bool is_recorded = false;
  Clock::time_point time;
  // Of a late queue: what it keeps back, and how much of that lies before the mark.
  std::shared_ptr<LateWork> late;
  std::uint64_t before = 0;
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
  mark_->late = late_work(exec);
  if (mark_->late) mark_->before = mark_->late->added();
}

bool Event::is_recorded() const {
  return mark_->is_recorded;
}
bool Event::is_past() const {
  return !mark_->late || mark_->late->is_done(mark_->before);
}
void Event::hold_up(const Exec& exec) const {
  if (!mark_->late || exec.is_shape_only()) return;
  const auto held_up = late_work(exec);
  if (held_up && held_up->kind() == LateWork::Kind::of_copies) {
    held_up->add([work = mark_->late, before = mark_->before] { work->run(before); });
  } else {  // kernels behind it run as soon as they are launched
    wait();
  }
}
void Event::wait() const {
  if (mark_->late) mark_->late->run(mark_->before);
}

double Event::seconds_since(const Event& begin) const {
  TRIREME_REQUIRE(
      mark_->has_time && begin.mark_->has_time && is_recorded() && begin.is_recorded(),
      "seconds are between two recorded events that keep their time");
  return std::chrono::duration<double>(mark_->time - begin.mark_->time).count();
}

}  // namespace trireme
