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
//   - the ranks of a group begin the same collectives in the same order: they compare
//     each before it begins, as MPI may exchange garbage where NCCL would hang;
//   - there are no 16-bit integers.
// It says of itself that it is on a stream, so that nobody waits early for the sake of
// the host. What is refused is named by group, operation, site and number: of a
// collective, that of the call in its group; of a message, that of its channel.
#ifndef TRIREME_SUPPORT_STRICT_TRANSPORT_HPP_
#define TRIREME_SUPPORT_STRICT_TRANSPORT_HPP_

#include <memory>

#include "comm/communicator.hpp"
#include "comm/mpi_communicator.hpp"

namespace trireme::comm {

// `carrier` takes the messages; `group` outlives it, and compares calls.
std::unique_ptr<Transport> make_strict_transport(std::unique_ptr<Transport> carrier,
                                                 const Communicator& group);
// Of a world in which all messages go that way.
MpiOptions strict_options();

}  // namespace trireme::comm

#endif  // TRIREME_SUPPORT_STRICT_TRANSPORT_HPP_
