// base/copy_queue.hpp — copies to the host beside kernels: a queue of its own for them.
#ifndef TRIREME_BASE_COPY_QUEUE_HPP_
#define TRIREME_BASE_COPY_QUEUE_HPP_

#include <memory>
#include <optional>
#include <span>

#include "base/event.hpp"
#include "base/exec.hpp"
#include "base/pinned.hpp"
#include "base/queue_spans.hpp"

namespace trireme {

// Its stream is made by prepare(), else by the first copy. Where kernels run on the host,
// copies are done at once, with all threads. Traces of the timers that `compute` has then
// show the copies.
class CopyQueue {
 public:
  // Takes now what the device has for a queue, and may wait for all that runs there.
  void prepare(const Exec& compute);
  bool is_prepared() const { return queue_.has_value(); }
  // Copies what is there once all that was launched on `compute` so far has ended. What
  // is launched on `compute` from now on does not wait for that: who is going to write
  // what is copied calls done().hold_up(compute) before.
  void start(const Exec& compute, std::span<const RowCopy> copies);
  // Behind the last copy.
  const Event& done() const { return done_; }

 private:
  std::optional<Exec> queue_;
  Event launched_, done_;
  std::unique_ptr<QueueSpans> spans_;
};

}  // namespace trireme

#endif  // TRIREME_BASE_COPY_QUEUE_HPP_
