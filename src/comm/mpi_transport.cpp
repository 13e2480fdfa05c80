// comm/mpi_transport.cpp — device messages as non-blocking MPI calls that are polled by
// our own waiting policy; messages of more elements than MPI counts can say are cut.
//
// An operation keeps, from its start to its wait, the MPI requests of its pieces, copies
// on the host where MPI cannot read the device's memory, and where its result goes. MPI
// matches by tag, which here is the channel, and buffers as it likes: a group call is
// therefore nothing. Example of a cut: if MPI could count to 4 only, a reduce-scatter of
// blocks of 3 over 2 ranks would be elements [0, 4), 3 of them for rank 0 and 1 for rank
// 1, and then [4, 6), both for rank 1.
#include <algorithm>
#include <utility>

#include "base/plural.hpp"
#include "base/trace.hpp"
#include "comm/mpi_group.hpp"

namespace trireme::comm {
namespace {

using Kind = Transfer::Kind;

// Copies on the host of what lies on the device. Each number has a buffer, which grows
// and is kept.
class Staging {
 public:
  std::byte* buffer(std::size_t slot, std::size_t bytes) {
    if (slot >= buffers_.size()) buffers_.resize(slot + 1);
    HostBytes& buffer = buffers_[slot];
    if (buffer.extent(0) < bytes) {
      buffer = HostBytes(
          Kokkos::view_alloc(Kokkos::WithoutInitializing, "trireme::comm::staging"),
          bytes);
    }
    return buffer.data();
  }
  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const HostBytes& buffer : buffers_) bytes += buffer.extent(0);
    return bytes;
  }
  std::byte* copy_down(const Exec& exec, ConstSpan span, std::size_t slot) {
    std::byte* host = buffer(slot, span.bytes());
    copy(exec, Host(host, span.bytes()),
         DeviceView<const std::byte*>(static_cast<const std::byte*>(span.data),
                                      span.bytes()));
    exec.fence("comm");
    return host;
  }
  void copy_up(const Exec& exec, Span span, std::size_t slot) {
    copy(exec, DeviceView<std::byte*>(static_cast<std::byte*>(span.data), span.bytes()),
         ConstHost(buffers_[slot].data(), span.bytes()));
    exec.fence("comm");  // the buffer is used again
  }

 private:
  using HostSpace = Kokkos::SharedHostPinnedSpace;
  using HostBytes = Kokkos::View<std::byte*, HostSpace>;
  using Host =
      Kokkos::View<std::byte*, HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  using ConstHost =
      Kokkos::View<const std::byte*, HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  std::vector<HostBytes> buffers_;
};

using DeviceBytes = DeviceArray<std::byte>;

std::byte* at(std::byte* base, index_t element, DType type) {
  return base + element * static_cast<index_t>(size_of(type));
}
const std::byte* at(const std::byte* base, index_t element, DType type) {
  return base + element * static_cast<index_t>(size_of(type));
}

class MpiTransport final : public Transport, private MpiOwner {
 public:
  MpiTransport(std::shared_ptr<MpiGroup> group, const Communicator& control)
      : group_(std::move(group)), control_(control) {}
  ~MpiTransport() override {
    for (const auto& operation : operations_) {  // abandoned by an error
      for (MPI_Request& request : operation->requests) world().forget(request);
    }
  }

  int start(const Exec& exec, const Transfer& transfer) override;
  void wait(const Exec& exec, int operation) override;
  void open(const std::vector<ChannelEnd>&) override {}  // they are tags
  void begin_group() override {}
  void end_group() override {}
  std::optional<TransportSeconds> seconds() const override { return seconds_; }
  std::size_t staging_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& operation : operations_) {
      bytes += operation->staging.bytes() + operation->beside.extent(0);
    }
    return bytes;
  }

 private:
  // An operation from its start to its wait; its memory is kept for the next one.
  struct Operation {
    const char* call = "";
    Site site = "";
    // There are several where a message has more elements than one MPI call can count.
    std::vector<MPI_Request> requests;
    std::vector<int> counts;  // of reduce_scatter: MPI reads them until the end
    bool staged = false;      // MPI sees copies on the host
    Staging staging;
    Span copy_up;              // where staging slot 1 goes at the end; none: null
    DeviceBytes beside;        // a result that MPI may not put in its place; grown once
    Span copy_over;            // where that goes at the end; none: null
    std::size_t expected = 0;  // bytes of a message that is received
    MPI_Status status = {};    // of that
    bool busy = false;
    int open = 0;  // requests that are not known to be complete
    index_t elements = 0;
    std::int64_t sequence = 0;
    Clock::time_point begun{};  // where it is traced
  };

  void begin_requests(const Exec& exec, Operation& operation, const Transfer& transfer);
  void close(int number, Clock::time_point now) override;
  void note_progress(double seconds) override { seconds_.progress += seconds; }
  void copy_result(const Exec& exec, Operation& operation);
  int free_operation();

  // Starts an operation by one MPI call, and one in pieces of at most max_count elements,
  // which one MPI call can count.
  template <class Start>
  void at_once(Operation& operation, const Start& start);
  template <class Start>
  void in_pieces(Operation& operation, index_t count, const Start& start_piece);
  // How many elements of each rank's block lie in [begin, begin + count), as MPI takes
  // it: kept until the operation ends, one piece's behind the other's.
  const int* block_counts(Operation& operation, const Transfer& transfer, index_t begin,
                          index_t count) const;
  index_t before(const Transfer& transfer, index_t begin) const;

  void all_reduce(const Exec& exec, Operation& operation, const Transfer& transfer);
  void reduce_scatter(const Exec& exec, Operation& operation, const Transfer& transfer);
  void all_gather(const Exec& exec, Operation& operation, const Transfer& transfer);
  void all_to_all(const Exec& exec, Operation& operation, const Transfer& transfer);
  void broadcast(const Exec& exec, Operation& operation, const Transfer& transfer);
  void send(const Exec& exec, Operation& operation, const Transfer& transfer);
  void recv(const Exec& exec, Operation& operation, const Transfer& transfer);
  void require_whole(const Operation& operation) const;

  // Host memory that holds the span, with everything launched before in it. In place: in
  // slot 1, where results go.
  static const std::byte* read(const Exec& exec, Operation& operation, ConstSpan span,
                               std::size_t slot = 1) {
    if (operation.staged) return operation.staging.copy_down(exec, span, slot);
    exec.fence("comm");
    return static_cast<const std::byte*>(span.data);
  }
  // Host memory for a result, which goes into the span at the end; read() was called
  // before.
  static std::byte* target(Operation& operation, Span span) {
    if (!operation.staged) return static_cast<std::byte*>(span.data);
    operation.copy_up = span;
    return operation.staging.buffer(1, span.bytes());
  }
  // The same for an operation that has read nothing: kernels that were launched before
  // may still be using the memory, and are waited for.
  static std::byte* target_after_launches(const Exec& exec, Operation& operation,
                                          Span span) {
    if (!operation.staged) exec.fence("comm");
    return target(operation, span);
  }
  // Device memory beside the span, whose content goes there at the end.
  static std::byte* target_beside(Operation& operation, Span span) {
    if (operation.beside.extent(0) < span.bytes()) {
      operation.beside = DeviceBytes(
          Kokkos::view_alloc(Kokkos::WithoutInitializing, "trireme::comm::beside"),
          span.bytes());
    }
    operation.copy_over = span;
    return operation.beside.data();
  }

  MpiWorld& world() const { return *group_->world; }
  MPI_Comm comm() const { return group_->comm; }
  int rank() const { return group_->rank; }
  int size() const { return group_->size; }
  index_t max_count() const { return group_->max_count(); }

  std::shared_ptr<MpiGroup> group_;
  const Communicator& control_;
  std::vector<std::unique_ptr<Operation>> operations_;
  int under_way_ = 0;  // operations, as far as this rank has seen
  Clock::time_point under_way_since_;
  TransportSeconds seconds_;
};

int MpiTransport::start(const Exec& exec, const Transfer& transfer) {
  const int number = free_operation();
  Operation& operation = *operations_[static_cast<std::size_t>(number)];
  const auto now = Clock::now();
  // MPI has no types of two bytes: functions of ours combine them, which run on the host.
  const bool combines =
      transfer.kind == Kind::all_reduce || transfer.kind == Kind::reduce_scatter;
  const DType type = transfer.whole().dtype;
  const bool is_narrow = type == DType::bfloat16 || type == DType::float16;
  const MpiOptions& options = world().options;
  operation.staged =
      options.stage_through_host || (!options.host_reads_device && combines && is_narrow);
  operation.call = name_of(transfer.kind);
  operation.site = transfer.site;
  operation.copy_up = {};
  operation.copy_over = {};
  operation.expected = 0;
  operation.requests.clear();
  operation.elements = transfer.whole().count;
  operation.sequence = control_.calls();
  operation.begun = control_.trace() == nullptr ? Clock::time_point{} : now;
  begin_requests(exec, operation, transfer);
  operation.busy = true;
  operation.open = static_cast<int>(operation.requests.size());
  for (MPI_Request& request : operation.requests) {
    world().under_way.push_back({&request, &operation.status, this, number});
  }
  if (size() > 1 && under_way_++ == 0) under_way_since_ = now;
  return number;
}

void MpiTransport::begin_requests(const Exec& exec, Operation& operation,
                                  const Transfer& transfer) {
  switch (transfer.kind) {
    case Kind::all_reduce:
      return all_reduce(exec, operation, transfer);
    case Kind::reduce_scatter:
      return reduce_scatter(exec, operation, transfer);
    case Kind::all_gather:
      return all_gather(exec, operation, transfer);
    case Kind::all_to_all:
      return all_to_all(exec, operation, transfer);
    case Kind::broadcast:
      return broadcast(exec, operation, transfer);
    case Kind::send:
      return send(exec, operation, transfer);
    case Kind::recv:
      return recv(exec, operation, transfer);
  }
}

void MpiTransport::wait(const Exec& exec, int number) {
  Operation& operation = *operations_.at(static_cast<std::size_t>(number));
  for (MPI_Request& request : operation.requests) {
    const bool seen = !world().forget(request);  // in progress()
    if (seen) continue;
    group_->wait(request, operation.call, operation.sequence, operation.site,
                 &operation.status);
    close(number, Clock::now());
  }
  operation.busy = false;
  if (operation.expected > 0) require_whole(operation);
  copy_result(exec, operation);
}

// One of the operation's requests is complete.
void MpiTransport::close(int number, Clock::time_point now) {
  Operation& operation = *operations_[static_cast<std::size_t>(number)];
  if (--operation.open > 0) return;
  if (under_way_ > 0 && --under_way_ == 0) {
    seconds_.under_way += std::chrono::duration<double>(now - under_way_since_).count();
  }
  Trace* const trace = control_.trace();
  if (trace == nullptr || operation.begun == Clock::time_point{}) return;
  trace->add({.name = operation.call,
              .detail = operation.site,
              .group = group_->name.c_str(),
              .begin = operation.begun,
              .end = now,
              .elements = operation.elements});
}

void MpiTransport::copy_result(const Exec& exec, Operation& operation) {
  if (operation.copy_up.data != nullptr) {
    operation.staging.copy_up(exec, operation.copy_up, 1);
  }
  const Span to = operation.copy_over;
  if (to.data == nullptr) return;
  copy(exec, DeviceView<std::byte*>(static_cast<std::byte*>(to.data), to.bytes()),
       DeviceView<const std::byte*>(operation.beside.data(), to.bytes()));
  exec.fence("comm");  // the memory beside it is used again
}

int MpiTransport::free_operation() {
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    if (!operations_[i]->busy) return static_cast<int>(i);
  }
  operations_.push_back(std::make_unique<Operation>());
  return static_cast<int>(operations_.size()) - 1;
}

template <class Start>
void MpiTransport::at_once(Operation& operation, const Start& start) {
  operation.requests.push_back(MPI_REQUEST_NULL);
  group_->started(start(&operation.requests.back()), operation.call, operation.site);
}

template <class Start>
void MpiTransport::in_pieces(Operation& operation, index_t count,
                             const Start& start_piece) {
  const index_t pieces = (count + max_count() - 1) / max_count();
  operation.requests.reserve(extent(pieces));
  operation.counts.resize(extent(pieces * size()));
  for (index_t begin = 0; begin < count; begin += max_count()) {
    at_once(operation, [&](MPI_Request* request) {
      return start_piece(begin, std::min(max_count(), count - begin), request);
    });
  }
}

const int* MpiTransport::block_counts(Operation& operation, const Transfer& transfer,
                                      index_t begin, index_t count) const {
  int* const counts =
      operation.counts.data() + extent(size()) * (operation.requests.size() - 1);
  const index_t block = transfer.out.count;
  for (index_t rank = 0; rank < size(); ++rank) {
    const index_t first = std::max(begin, block * rank);
    const index_t last = std::min(begin + count, block * (rank + 1));
    counts[rank] = static_cast<int>(std::max<index_t>(0, last - first));
  }
  return counts;
}

// How many elements of this rank's block lie before `begin`.
index_t MpiTransport::before(const Transfer& transfer, index_t begin) const {
  const index_t block = transfer.out.count;
  return std::clamp<index_t>(begin - block * rank(), 0, block);
}

void MpiTransport::all_reduce(const Exec& exec, Operation& operation,
                              const Transfer& transfer) {
  const Span data = transfer.out;
  auto* host = const_cast<std::byte*>(read(exec, operation, data));
  const MPI_Op mpi_op = world().mpi_op(data.dtype, transfer.op);
  in_pieces(operation, data.count,
            [&](index_t begin, index_t count, MPI_Request* request) {
              return MPI_Iallreduce(MPI_IN_PLACE, at(host, begin, data.dtype),
                                    static_cast<int>(count), mpi_type(data.dtype), mpi_op,
                                    comm(), request);
            });
  if (operation.staged) operation.copy_up = data;
}

void MpiTransport::reduce_scatter(const Exec& exec, Operation& operation,
                                  const Transfer& transfer) {
  const ConstSpan in = transfer.in;
  const Span out = transfer.out;
  const std::byte* from = read(exec, operation, in, 0);
  // The output may be a block of the input, which MPI does not allow.
  const auto* first = static_cast<const std::byte*>(in.data);
  const auto* result = static_cast<const std::byte*>(out.data);
  const bool in_place =
      !operation.staged && result >= first && result < first + in.bytes();
  std::byte* to = in_place ? target_beside(operation, out) : target(operation, out);
  const MPI_Op mpi_op = world().mpi_op(in.dtype, transfer.op);
  in_pieces(operation, in.count, [&](index_t begin, index_t count, MPI_Request* request) {
    return MPI_Ireduce_scatter(at(from, begin, in.dtype),
                               at(to, before(transfer, begin), out.dtype),
                               block_counts(operation, transfer, begin, count),
                               mpi_type(in.dtype), mpi_op, comm(), request);
  });
}

void MpiTransport::all_gather(const Exec& exec, Operation& operation,
                              const Transfer& transfer) {
  const ConstSpan in = transfer.in;
  const Span out = transfer.out;
  const std::byte* from = read(exec, operation, in, 0);
  std::byte* to = target(operation, out);
  const bool in_place = from == at(to, in.count * rank(), in.dtype);
  const MpiMessage block(in.dtype, in.count, max_count());
  at_once(operation, [&](MPI_Request* request) {
    return MPI_Iallgather(in_place ? MPI_IN_PLACE : from, block.count(), block.type(), to,
                          block.count(), block.type(), comm(), request);
  });
}

void MpiTransport::all_to_all(const Exec& exec, Operation& operation,
                              const Transfer& transfer) {
  const ConstSpan in = transfer.in;
  const std::byte* from = read(exec, operation, in, 0);
  std::byte* to = target(operation, transfer.out);
  const MpiMessage block(in.dtype, in.count / size(), max_count());
  at_once(operation, [&](MPI_Request* request) {
    return MPI_Ialltoall(from, block.count(), block.type(), to, block.count(),
                         block.type(), comm(), request);
  });
}

void MpiTransport::broadcast(const Exec& exec, Operation& operation,
                             const Transfer& transfer) {
  const Span data = transfer.out;
  const bool is_root = rank() == transfer.peer;
  auto* host =
      const_cast<std::byte*>(is_root ? read(exec, operation, data)
                                     : target_after_launches(exec, operation, data));
  const MpiMessage message(data.dtype, data.count, max_count());
  at_once(operation, [&](MPI_Request* request) {
    return MPI_Ibcast(host, message.count(), message.type(), transfer.peer, comm(),
                      request);
  });
}

void MpiTransport::send(const Exec& exec, Operation& operation,
                        const Transfer& transfer) {
  const std::byte* from = read(exec, operation, transfer.in);
  const MpiMessage message(transfer.in.dtype, transfer.in.count, max_count());
  at_once(operation, [&](MPI_Request* request) {
    return MPI_Isend(from, message.count(), message.type(), transfer.peer,
                     static_cast<int>(transfer.channel), comm(), request);
  });
}

void MpiTransport::recv(const Exec& exec, Operation& operation,
                        const Transfer& transfer) {
  std::byte* to = target_after_launches(exec, operation, transfer.out);
  const MpiMessage message(transfer.out.dtype, transfer.out.count, max_count());
  at_once(operation, [&](MPI_Request* request) {
    return MPI_Irecv(to, message.count(), message.type(), transfer.peer,
                     static_cast<int>(transfer.channel), comm(), request);
  });
  operation.expected = transfer.out.bytes();
}

// A shorter message than expected is no error of MPI's.
void MpiTransport::require_whole(const Operation& operation) const {
  MPI_Count bytes = 0;
  MPI_Get_elements_x(&operation.status, MPI_BYTE, &bytes);
  TRIREME_REQUIRE(bytes == static_cast<MPI_Count>(operation.expected),
                  "recv in group '{}'{}: rank {} sent {}, rank {} expects {}",
                  group_->name, of_site(operation.site), operation.status.MPI_SOURCE,
                  format_plural(bytes, "byte"), rank(), operation.expected);
}

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiGroup> group,
                                              const Communicator& control) {
  return std::make_unique<MpiTransport>(std::move(group), control);
}

}  // namespace trireme::comm
