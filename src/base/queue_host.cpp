// base/queue_host.cpp — a host has one queue: its cores run what is launched at once.
#include "base/queue.hpp"

#include "base/late_queue.hpp"

namespace trireme {

Exec make_queue(QueuePriority) {
  return Exec();
}

Exec make_copy_queue(const Exec& compute) {
  Exec queue = make_queue();
  if (is_asynchronous(compute)) make_late(queue, LateWork::Kind::of_copies);
  return queue;
}

bool is_asynchronous(const Exec& exec) {
  return !exec.is_shape_only() && late_work(exec) != nullptr;
}

}  // namespace trireme
