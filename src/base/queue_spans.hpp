// base/queue_spans.hpp — how long stretches of a queue's work took and when they were, by
// the queue's own clock: nobody waits for them.
#ifndef TRIREME_BASE_QUEUE_SPANS_HPP_
#define TRIREME_BASE_QUEUE_SPANS_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/device_clock.hpp"
#include "base/event.hpp"
#include "base/exec.hpp"
#include "base/trace.hpp"

namespace trireme {

// A span has an event at its begin and one at its end, which are used again. Spans may
// lie one inside the other. Where launches go on beside the host a trace shows them, on a
// row of their own; those of a host it has by the regions they lie in.
class QueueSpans final : private TraceSource {
 public:
  // Of a span. `kind` and `is_counted` are for whoever takes it.
  struct Label {
    const char* name = "";  // in a trace; "": not there
    int microbatch = -1, chunk = -1;
    int kind = 0;
    bool is_counted = false;
  };
  // All spans are of this Exec. `row`: what a trace calls the queue, a literal.
  QueueSpans(const Exec& exec, const char* row);
  ~QueueSpans() override;
  QueueSpans(const QueueSpans&) = delete;
  QueueSpans& operator=(const QueueSpans&) = delete;

  // From now on traces of these sources show the spans; null: no more.
  void show_in(std::shared_ptr<TraceSources> sources);

  // What is launched between the two is the span. begin() returns a number for end().
  std::int64_t begin(const Label& label);
  void end(std::int64_t number);

  // Hands over, as use(label, seconds), the spans that are past, oldest first; take()
  // never waits, settle() waits for all that have ended for the host.
  template <class Use>
  void take(const Use& use) {
    std::size_t past = 0;
    for (; past < open_.size() && is_over(open_[past]); ++past) {
      use(open_[past].label, seconds_of(open_[past]));
      keep(open_[past]);
    }
    open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(past));
    first_ += static_cast<std::int64_t>(past);
  }
  template <class Use>
  void settle(const Use& use) {
    wait_for_ended();
    take(use);
  }

 private:
  struct Marks {
    Event begin{Event::Time::kept}, end{Event::Time::kept};
  };
  struct Span {
    Label label;
    std::unique_ptr<Marks> marks;
    bool has_ended = false;  // for the host
    bool is_traced = false;
  };
  struct Known {  // when a traced span was, in seconds of the queue's clock
    Label label;
    double begin = 0.0, end = 0.0;
  };

  static constexpr std::int64_t kNone = -1;  // of a pass on shapes, which makes no events

  static bool is_over(const Span& span);
  static double seconds_of(const Span& span);
  void keep(Span& span);
  void note_times(Span& span);
  void wait_for_ended();
  double read_clock();
  void begin_trace() override;
  void end_trace(Trace& trace) override;

  const Exec exec_;
  const char* row_;
  std::shared_ptr<TraceSources> sources_;
  std::vector<Span> open_;  // from the number first_ on
  std::int64_t first_ = 0;
  std::vector<std::unique_ptr<Marks>> free_;
  // While a trace is recorded.
  std::optional<Event> zero_;
  DeviceClock clock_;
  std::vector<Known> known_;
};

}  // namespace trireme

#endif  // TRIREME_BASE_QUEUE_SPANS_HPP_
