// base/queue_spans.cpp — see queue_spans.hpp.
#include "base/queue_spans.hpp"

#include <utility>

#include "base/queue.hpp"

namespace trireme {

QueueSpans::QueueSpans(const Exec& exec, const char* row) : exec_(exec), row_(row) {}

QueueSpans::~QueueSpans() {
  show_in(nullptr);
}

void QueueSpans::show_in(std::shared_ptr<TraceSources> sources) {
  if (sources_ != nullptr) sources_->remove(*this);
  sources_ = std::move(sources);
  if (sources_ != nullptr && is_asynchronous(exec_)) sources_->add(*this);
}

std::int64_t QueueSpans::begin(const Label& label) {
  if (exec_.is_shape_only()) return kNone;
  Span span{.label = label, .marks = {}};
  if (free_.empty()) {
    span.marks = std::make_unique<Marks>();
  } else {
    span.marks = std::move(free_.back());
    free_.pop_back();
  }
  span.is_traced = zero_.has_value() && *label.name != '\0';
  span.marks->begin.record(exec_);
  open_.push_back(std::move(span));
  return first_ + static_cast<std::int64_t>(open_.size()) - 1;
}

void QueueSpans::end(std::int64_t number) {
  if (number == kNone) return;
  Span& span = open_[static_cast<std::size_t>(number - first_)];
  span.marks->end.record(exec_);
  span.has_ended = true;
}

bool QueueSpans::is_over(const Span& span) {
  return span.has_ended && span.marks->end.is_past();
}

double QueueSpans::seconds_of(const Span& span) {
  return span.marks->end.seconds_since(span.marks->begin);
}

void QueueSpans::keep(Span& span) {
  note_times(span);
  free_.push_back(std::move(span.marks));
}

void QueueSpans::note_times(Span& span) {
  if (!std::exchange(span.is_traced, false)) return;
  known_.push_back({span.label, span.marks->begin.seconds_since(*zero_),
                    span.marks->end.seconds_since(*zero_)});
}

void QueueSpans::wait_for_ended() {
  for (const Span& span : open_) {
    if (span.has_ended) span.marks->end.wait();
  }
}

double QueueSpans::read_clock() {
  Event now(Event::Time::kept);
  now.record(exec_);
  now.wait();
  return now.seconds_since(*zero_);
}

void QueueSpans::begin_trace() {
  known_.clear();
  zero_.emplace(Event::Time::kept);
  zero_->record(exec_);
  zero_->wait();  // the queue is idle from here
  clock_.begin([this] { return read_clock(); });
}

// Spans that whoever takes them has not taken yet are there afterwards, too.
void QueueSpans::end_trace(Trace& trace) {
  wait_for_ended();
  for (Span& span : open_) {
    if (span.has_ended) note_times(span);
  }
  clock_.end([this] { return read_clock(); });
  for (const Known& span : known_) {
    trace.add({.name = span.label.name,
               .group = row_,
               .begin = clock_.host_time(span.begin),
               .end = clock_.host_time(span.end),
               .microbatch = span.label.microbatch,
               .chunk = span.label.chunk});
  }
  known_.clear();
  for (Span& span : open_) span.is_traced = false;
  zero_.reset();
}

}  // namespace trireme
