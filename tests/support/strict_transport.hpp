// support/strict_transport.hpp — a transport for tests: messages go through another
// transport of the host, but only programs that would work over NCCL work.
//
// Its rules, beyond those that every Group checks (equal blocks, NCCL's places of
// operations in place):
//   - the messages of a channel between two ranks are carried one after the other, and
//     ranks that both send first are refused on both, unless they begin send and receive
//     together(): what buffers would hide waits for ever over NCCL. A channel between two
//     ranks is a communicator with a stream of its own (docs/developer), so that messages
//     with one rank never wait for those with another, and rings are no crossing;
//   - an output is not defined from start to wait: it is filled with NaN;
//   - an input is not written between the two, or the wait throws;
//   - what is begun together() is waited for after that;
//   - there are no 16-bit integers.
// It says of itself that it is on a stream, so that nobody waits early for the sake of
// the host. Given to MpiOptions::wrap_transport (docs/developer/tests.md).
#ifndef TRIREME_SUPPORT_STRICT_TRANSPORT_HPP_
#define TRIREME_SUPPORT_STRICT_TRANSPORT_HPP_

#include <memory>

#include "comm/communicator.hpp"

namespace trireme::comm {

// `carrier` takes the messages; `group` outlives it.
std::unique_ptr<Transport> make_strict_transport(std::unique_ptr<Transport> carrier,
                                                 const Communicator& group);

}  // namespace trireme::comm

#endif  // TRIREME_SUPPORT_STRICT_TRANSPORT_HPP_
