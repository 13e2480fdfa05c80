// base/queue.hpp — queues beside the one that computes: on a GPU a stream each, so that
// messages and copies run beside kernels.
#ifndef TRIREME_BASE_QUEUE_HPP_
#define TRIREME_BASE_QUEUE_HPP_

#include "base/exec.hpp"

namespace trireme {

// Where a GPU has work of both kinds ready, blocks of the high one are placed first.
enum class QueuePriority { normal, high };

// An Exec that waits for no other one, unless an Event holds it up. Its stream ends with
// the last copy of the Exec. On a host its launches run at once, as all do.
Exec make_queue(QueuePriority priority = QueuePriority::normal);
// The same for copies of what `compute` has made: late where that is (late_queue.hpp).
Exec make_copy_queue(const Exec& compute);

// Whether what is launched on the Exec may go on when the launch has returned: on a GPU,
// and on a late queue of a host.
bool is_asynchronous(const Exec& exec);

}  // namespace trireme

#endif  // TRIREME_BASE_QUEUE_HPP_
