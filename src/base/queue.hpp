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

}  // namespace trireme

#endif  // TRIREME_BASE_QUEUE_HPP_
