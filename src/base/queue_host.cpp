// base/queue_host.cpp — a host has one queue: its cores run what is launched at once.
#include "base/queue.hpp"

namespace trireme {

Exec make_queue(QueuePriority) {
  return Exec();
}

}  // namespace trireme
