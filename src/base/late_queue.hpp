// base/late_queue.hpp — queues of a host whose copies come as late as those of a GPU may:
// for tests of who waits for them.
//
// On a host a launch has ended when it returns, so that a wait that is missing shows on
// GPUs alone. A late queue keeps its copies back until somebody waits for an Event behind
// them, or is held up by it; whoever does not wait sees what was there before, and
// whoever writes too early is found out. Kernels run at once all the same.
#ifndef TRIREME_BASE_LATE_QUEUE_HPP_
#define TRIREME_BASE_LATE_QUEUE_HPP_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "base/exec.hpp"

namespace trireme {

// What a late queue has yet to do, in order. Any thread may wait for it.
class LateWork {
 public:
  enum class Kind {
    // Kernels run on this queue, and have run: what a copy reads is as they left it.
    of_kernels,
    // Copies alone: what they read is as it is when somebody waits.
    of_copies
  };
  explicit LateWork(Kind kind) : kind_(kind) {}

  Kind kind() const { return kind_; }
  void add(std::function<void()> work);
  // How many pieces of work were added so far.
  std::uint64_t added() const;
  bool is_done(std::uint64_t count) const;
  // Does the first `count` pieces that were added, but for those that are done. Throws
  // what they throw.
  void run(std::uint64_t count);

 private:
  Kind kind_;
  mutable std::recursive_mutex mutex_;
  std::deque<std::function<void()>> work_;
  std::uint64_t done_ = 0;
};

// Makes the queue of this Exec, and of its copies, a late one. Those of a GPU are late as
// they are: there it changes nothing.
void make_late(const Exec& exec, LateWork::Kind kind = LateWork::Kind::of_kernels);
// Of a host's queue; null where it is not late.
std::shared_ptr<LateWork> late_work(const Exec& exec);

}  // namespace trireme

#endif  // TRIREME_BASE_LATE_QUEUE_HPP_
