// comm/transport.hpp — the interface behind which device messages are carried: MPI on the
// host, NCCL on GPUs, and a host transport for tests that enforces NCCL's rules.
//
// A Transport belongs to one group of ranks and knows device memory only. Host values,
// splits and waiting for one another are the Communicator's (control); checks of
// arguments, accounts and the trace are the Group's (group.hpp), which stands in front of
// every transport. What is begun is ordered on the Exec as kernels are: it sees what was
// launched before. docs/developer/adding_a_transport.md follows one from nothing.
#ifndef TRIREME_COMM_TRANSPORT_HPP_
#define TRIREME_COMM_TRANSPORT_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/types.hpp"

namespace trireme::comm {

enum class Op { sum, max, min };

// Contiguous elements in device memory.
struct Span {
  void* data = nullptr;
  index_t count = 0;
  DType dtype = DType::float32;
  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
};
struct ConstSpan {
  const void* data = nullptr;
  index_t count = 0;
  DType dtype = DType::float32;
  ConstSpan() = default;
  ConstSpan(const void* data_, index_t count_, DType dtype_)
      : data(data_), count(count_), dtype(dtype_) {}
  ConstSpan(const Span& span) : data(span.data), count(span.count), dtype(span.dtype) {}
  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
};

// All elements of a contiguous View: Span, or ConstSpan where they are const.
template <class ViewType>
auto span_of(const ViewType& view) {
  using T = typename ViewType::value_type;
  constexpr DType type = dtype_of<std::remove_const_t<T>>;
  TRIREME_REQUIRE(view.span_is_contiguous(),
                  "messages are made of contiguous memory; view '{}' has gaps",
                  view.label());
  // View::size() would be 0 for a View without memory (a shape-only pass).
  index_t count = 1;
  for (std::size_t r = 0; r < ViewType::rank(); ++r) {
    count *= static_cast<index_t>(view.extent(r));
  }
  if constexpr (std::is_const_v<T>) {
    return ConstSpan(view.data(), count, type);
  } else {
    return Span{view.data(), count, type};
  }
}

// Names the line of the program that sends, for accounts and messages: a literal, e.g.
// "column-parallel input gradient".
using Site = const char*;

// A queue of messages between two ranks. Each pair of ranks has one of each kind. At
// either end the messages of a queue are carried in the order in which they were begun,
// each after the one before it is complete, so that two ranks that both send first on one
// channel wait for each other for ever, unless they begin the send and the receive within
// one group call. Channels do not wait for one another: neighbours in a pipeline have a
// channel for activations and another for the gradients that come the opposite way, and
// two more where a message goes round from the last stage to the first.
enum class Channel { main, forward, backward, forward_round, backward_round };
const char* name_of(Channel channel);

// One end of a channel: who has the other, and which of the channels between the two.
struct ChannelEnd {
  int peer = 0;
  Channel channel = Channel::main;
  bool operator==(const ChannelEnd&) const = default;
};

// One operation of this rank: what it reads and writes in device memory.
struct Transfer {
  enum class Kind {
    all_reduce,      // in place: in is out
    reduce_scatter,  // equal blocks; out may be block `rank` of in
    all_gather,      // equal blocks; in may be block `rank` of out
    all_to_all,
    broadcast,  // in place; peer is the root
    send,       // in goes to peer
    recv        // out comes from peer
  };
  Kind kind = Kind::all_reduce;
  ConstSpan in = {};
  Span out = {};
  Op op = Op::sum;
  int peer = 0;
  Site site = "";
  Channel channel = Channel::main;  // of send and recv

  bool is_between_two() const { return kind == Kind::send || kind == Kind::recv; }
  // The larger side, which is the payload of a collective.
  ConstSpan whole() const { return in.count > out.count ? in : ConstSpan(out); }
};
const char* name_of(Transfer::Kind kind);

// Seconds that the messages of a group have taken so far: how long at least one was under
// way, and what moving them on took meanwhile. By the host's clock; where the device
// carries them by the device's, as far as its marks are past. What the host takes for its
// calls says nothing then, and held_up is how long Execs stood still for a result.
struct TransportSeconds {
  double under_way = 0.0;
  double progress = 0.0;
  std::optional<double> held_up = {};
};

// When the device was at an operation, by the host's clock: at its messages, and where an
// Exec came to need their result.
struct OperationTimes {
  using Time = std::chrono::steady_clock::time_point;
  Time begin, needed, end;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Begins an operation, whose arguments have been checked and are not empty. Until
  // wait() its input must not be written and its output is not defined. Returns a number
  // for wait(), or kComplete where nothing is left to wait for.
  static constexpr int kComplete = -1;
  virtual int start(const Exec& exec, const Transfer& transfer) = 0;
  // What is launched on this Exec from now on sees the result. A transport of the host
  // blocks until it is there; one on streams lets the Exec's stream wait for an event.
  virtual void wait(const Exec& exec, int operation) = 0;

  // Makes what these channels need, none of which is open yet. Collective; for each of
  // them the other rank names its end, too. A communicator of two ranks takes both to be
  // made, and the first message would be too late: a stage that waits for the one
  // neighbour there keeps the other one waiting.
  virtual void open(const std::vector<ChannelEnd>& channels) = 0;

  // What is begun between the two is issued together: none of it waits for another, and
  // wait() comes after the end. Calls may be nested; the outermost counts.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;

  // Whether operations run on streams of the device, where wait() holds up the kernels
  // that come after it and never the host. Then nothing is waited for before its result
  // is needed, and what is reduced in place takes no memory while it is under way.
  virtual bool is_on_stream() const { return false; }
  // Nothing where nobody knows when messages have gone: accounts then have no seconds.
  virtual std::optional<TransportSeconds> seconds() const { return {}; }
  // Between the two, operations that were begun may be named by a number, and the second
  // calls use(number, times) for each of them, once they are over: it waits for the
  // device. A transport of the host does nothing: its calls say when its operations were.
  virtual void begin_timing() {}
  virtual void time_as(int /*operation*/, std::int64_t /*number*/) {}
  virtual void end_timing(
      const std::function<void(std::int64_t number,
                               const OperationTimes& times)>& /*use*/) {}
  // Memory that operations keep for themselves: copies of what is sent and received, on
  // the host, and on the device those that a result takes its way through.
  virtual std::size_t staging_bytes() const { return 0; }
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_TRANSPORT_HPP_
