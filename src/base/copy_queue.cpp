// base/copy_queue.cpp — see copy_queue.hpp.
#include "base/copy_queue.hpp"

#include "base/queue.hpp"
#include "base/timers.hpp"

namespace trireme {

void CopyQueue::prepare(const Exec& compute) {
  if (!queue_) queue_ = make_copy_queue(compute);
}

void CopyQueue::start(const Exec& compute, std::span<const RowCopy> copies) {
  prepare(compute);
  if (spans_ == nullptr) {
    spans_ = std::make_unique<QueueSpans>(*queue_, "copies");
    if (Timers* timers = compute.timers()) spans_->show_in(timers->trace_sources());
  }
  spans_->take([](const auto&, double) {});
  launched_.record(compute);
  launched_.hold_up(*queue_);
  const std::int64_t span = spans_->begin({.name = "copy"});
  copy_rows_to_host(*queue_, copies);
  spans_->end(span);
  done_.record(*queue_);
}

}  // namespace trireme
