// base/copy_queue.cpp — see copy_queue.hpp.
#include "base/copy_queue.hpp"

#include "base/queue.hpp"

namespace trireme {

void CopyQueue::start(const Exec& compute, std::span<const RowCopy> copies) {
  if (!queue_) queue_ = make_copy_queue(compute);
  launched_.record(compute);
  launched_.hold_up(*queue_);
  copy_rows_to_host(*queue_, copies);
  done_.record(*queue_);
}

}  // namespace trireme
