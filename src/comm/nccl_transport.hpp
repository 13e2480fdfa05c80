// comm/nccl_transport.hpp — device messages over NCCL: one communicator and one stream
// for the collectives of a group, and one of each for every channel between two ranks.
//
// start() lets the stream of the messages wait for the Exec's, issues, and marks the end;
// wait() lets the Exec's stream wait for that mark. The host waits for nothing, but where
// communicators are made. All times are the device's.
//
// Order of reductions. For one communicator NCCL gives the same call the same bits as
// long as algorithm, protocol and channels are the same, which follow from size and
// topology; nccl_environment.hpp excludes what does not keep to that.
#ifndef TRIREME_COMM_NCCL_TRANSPORT_HPP_
#define TRIREME_COMM_NCCL_TRANSPORT_HPP_

#include <functional>
#include <memory>

#include "comm/communicator.hpp"
#include "comm/device_watch.hpp"
#include "comm/operation_board.hpp"
#include "comm/transport.hpp"

namespace trireme::comm {

struct NcclTransportOptions {
  // Messages that the next kernels wait for: their blocks are placed before others'.
  bool has_high_priority = false;
  // How long a step that takes all ranks may last, seconds; 0: for ever.
  std::function<double()> timeout;
  // Looks after what is under way; it outlives the transport.
  DeviceWatch* watch = nullptr;
  int world_rank = 0;
  // Where all groups of the world note what they do.
  std::function<std::shared_ptr<OperationBoard>()> board;
};

// Collective over the group, which outlives it. Each communicator is made and has carried
// a message when this, or open(), returns: NCCL has its connections and buffers then, and
// the device has loaded its kernels, which it could not do beside a message that waits.
std::unique_ptr<Transport> make_nccl_transport(Communicator& group,
                                               const NcclTransportOptions& options);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_NCCL_TRANSPORT_HPP_
