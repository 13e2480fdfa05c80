// base/fault.hpp — what a write to a file, or a step, can be made to suffer on purpose,
// by tests and by --fault.
#ifndef TRIREME_BASE_FAULT_HPP_
#define TRIREME_BASE_FAULT_HPP_

namespace trireme {

enum class Fault {
  none,
  no_space,     // it fails: the disk is full
  io_error,     // it fails: the device does
  short_write,  // the second half is lost, and nothing tells
  bit_flip,     // one bit arrives changed, and nothing tells
  overflow      // of a step: one of this rank's gradients is infinite
};

}  // namespace trireme

#endif  // TRIREME_BASE_FAULT_HPP_
