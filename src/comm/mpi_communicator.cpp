// comm/mpi_communicator.cpp — collectives as non-blocking MPI calls that are polled by
// our own waiting policy; messages of more elements than MPI counts can say are cut.
#include "comm/mpi_communicator.hpp"

#include <mpi.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "comm/narrow_reduce.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::comm {
namespace {

constexpr long kNapNanoseconds = 20000;
constexpr int kTag = 0;

std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

void check(int code, const char* call) {
  TRIREME_REQUIRE(code == MPI_SUCCESS, "{} failed: {}", call, mpi_text(code));
}

MPI_Datatype mpi_type(DType type) {
  switch (type) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::bfloat16:
    case DType::float16:
    case DType::uint16:
      return MPI_UINT16_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::uint32:
      return MPI_UINT32_T;
    case DType::uint64:
      return MPI_UINT64_T;
  }
  throw Error("mpi_type: not a DType");
}

template <class T, Op op>
void narrow_operation(void* in, void* inout, int* count, MPI_Datatype*) {
  narrow_reduce(op, static_cast<const T*>(in), static_cast<T*>(inout), *count);
}

// `count` elements as an MPI (type, count) pair, however many they are.
class Message {
 public:
  Message(DType dtype, index_t count, index_t max_count) : type_(mpi_type(dtype)) {
    if (count <= max_count) {
      count_ = static_cast<int>(count);
      return;
    }
    // One element of a type that holds them all: whole runs of max_count, then the rest.
    const auto runs = static_cast<int>(count / max_count);
    const auto rest = static_cast<int>(count % max_count);
    MPI_Datatype run = MPI_DATATYPE_NULL;
    MPI_Datatype whole = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(max_count), type_, &run),
          "MPI_Type_contiguous");
    const int lengths[2] = {runs, rest};
    const MPI_Aint places[2] = {0, static_cast<MPI_Aint>(runs) * max_count *
                                       static_cast<MPI_Aint>(size_of(dtype))};
    const MPI_Datatype types[2] = {run, type_};
    check(MPI_Type_create_struct(2, lengths, places, types, &whole),
          "MPI_Type_create_struct");
    check(MPI_Type_commit(&whole), "MPI_Type_commit");
    MPI_Type_free(&run);
    type_ = whole;
    count_ = 1;
    owned_ = true;
  }
  ~Message() {
    if (owned_) MPI_Type_free(&type_);  // pending calls keep what they need of it
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  MPI_Datatype type() const { return type_; }
  int count() const { return count_; }

 private:
  MPI_Datatype type_;
  int count_ = 0;
  bool owned_ = false;
};

// What all groups of one world share.
struct Shared {
  MpiOptions options;
  WaitPolicy wait = WaitPolicy::spin;
  double timeout = 0.0;
  MPI_Op narrow[2][3];  // bf16, fp16; sum, max, min

  explicit Shared(const MpiOptions& given) : options(given) {
    create<bf16>(narrow[0]);
    create<fp16>(narrow[1]);
  }
  ~Shared() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0) return;
    for (auto& type : narrow) {
      for (MPI_Op& op : type) MPI_Op_free(&op);
    }
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  MPI_Op mpi_op(DType type, Op op) const {
    const auto index = static_cast<std::size_t>(op);
    if (type == DType::bfloat16) return narrow[0][index];
    if (type == DType::float16) return narrow[1][index];
    const MPI_Op plain[] = {MPI_SUM, MPI_MAX, MPI_MIN};
    return plain[index];
  }

 private:
  template <class T>
  static void create(MPI_Op* ops) {
    check(MPI_Op_create(&narrow_operation<T, Op::sum>, 1, &ops[0]), "MPI_Op_create");
    check(MPI_Op_create(&narrow_operation<T, Op::max>, 1, &ops[1]), "MPI_Op_create");
    check(MPI_Op_create(&narrow_operation<T, Op::min>, 1, &ops[2]), "MPI_Op_create");
  }
};

// Host copies of device spans, one buffer per slot, grown and kept.
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

class MpiCommunicator final : public Communicator {
 public:
  // Takes the communicator over and frees it.
  MpiCommunicator(MPI_Comm comm, int rank, int size, std::string name,
                  std::shared_ptr<Shared> shared)
      : Communicator(rank, size, std::move(name)),
        comm_(comm),
        shared_(std::move(shared)) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Comm_set_name(comm_, this->name().c_str());
    pending_.reserve(16);
  }
  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm_);
  }

  void set_timeout(double seconds) override { shared_->timeout = seconds; }
  const void* native_handle() const override { return &comm_; }

 private:
  struct Pending {
    MPI_Request request;
    bool is_recv;
    Span data;  // of a receive
    std::size_t slot;
    int peer;
  };

  // ---- device memory ----

  void do_all_reduce(const Exec& exec, Span data, Op op) override {
    auto* host = const_cast<std::byte*>(read(exec, data, 0));
    const MPI_Op mpi_op = shared_->mpi_op(data.dtype, op);
    for (index_t begin = 0; begin < data.count; begin += max_count()) {
      const auto count = static_cast<int>(std::min(max_count(), data.count - begin));
      MPI_Request request;
      started(MPI_Iallreduce(MPI_IN_PLACE, at(host, begin, data.dtype), count,
                             mpi_type(data.dtype), mpi_op, comm_, &request),
              "all_reduce");
      wait(request, "all_reduce");
    }
    write(exec, data, 0);
  }

  void do_reduce_scatter(const Exec& exec, ConstSpan in, Span out, Op op) override {
    const std::byte* from = read(exec, in, 0);
    std::byte* to = target(out, 1);
    // The output may be a block of the input, which MPI does not allow.
    const bool in_place =
        out.data == at(in.data, out.count * rank(), in.dtype) && !staged();
    if (in_place) to = staging_.buffer(1, out.bytes());
    const index_t limit = std::max<index_t>(1, max_count() / size());
    for (index_t begin = 0; begin < out.count; begin += limit) {
      const index_t count = std::min(limit, out.count - begin);
      const std::byte* piece = from;
      if (count < out.count) {  // the same piece of every block, side by side
        const std::size_t bytes = static_cast<std::size_t>(count) * size_of(in.dtype);
        std::byte* packed = staging_.buffer(2, bytes * static_cast<std::size_t>(size()));
        for (int r = 0; r < size(); ++r) {
          std::memcpy(packed + bytes * r, at(from, out.count * r + begin, in.dtype),
                      bytes);
        }
        piece = packed;
      }
      MPI_Request request;
      started(MPI_Ireduce_scatter_block(piece, at(to, begin, out.dtype),
                                        static_cast<int>(count), mpi_type(in.dtype),
                                        shared_->mpi_op(in.dtype, op), comm_, &request),
              "reduce_scatter");
      wait(request, "reduce_scatter");
    }
    if (in_place) {
      std::memcpy(out.data, to, out.bytes());
    } else {
      write(exec, out, 1);
    }
  }

  void do_all_gather(const Exec& exec, ConstSpan in, Span out) override {
    const std::byte* from = read(exec, in, 0);
    std::byte* to = target(out, 1);
    const Message block(in.dtype, in.count, max_count());
    const bool in_place = from == at(to, in.count * rank(), in.dtype);
    MPI_Request request;
    started(MPI_Iallgather(in_place ? MPI_IN_PLACE : from, block.count(), block.type(),
                           to, block.count(), block.type(), comm_, &request),
            "all_gather");
    wait(request, "all_gather");
    write(exec, out, 1);
  }

  void do_all_to_all(const Exec& exec, ConstSpan in, Span out) override {
    const std::byte* from = read(exec, in, 0);
    std::byte* to = target(out, 1);
    const Message block(in.dtype, in.count / size(), max_count());
    MPI_Request request;
    started(MPI_Ialltoall(from, block.count(), block.type(), to, block.count(),
                          block.type(), comm_, &request),
            "all_to_all");
    wait(request, "all_to_all");
    write(exec, out, 1);
  }

  void do_broadcast(const Exec& exec, Span data, int root) override {
    std::byte* host = rank() == root ? const_cast<std::byte*>(read(exec, data, 0))
                                     : target_after_launches(exec, data, 0);
    const Message message(data.dtype, data.count, max_count());
    MPI_Request request;
    started(MPI_Ibcast(host, message.count(), message.type(), root, comm_, &request),
            "broadcast");
    wait(request, "broadcast");
    if (rank() != root) write(exec, data, 0);
  }

  void do_send(const Exec& exec, ConstSpan data, int to) override {
    const std::size_t slot = pending_.size();
    const std::byte* host = read(exec, data, slot);
    const Message message(data.dtype, data.count, max_count());
    MPI_Request request;
    started(MPI_Isend(host, message.count(), message.type(), to, kTag, comm_, &request),
            "send");
    finish_or_keep(exec, {request, false, {}, slot, to});
  }

  void do_recv(const Exec& exec, Span data, int from) override {
    const std::size_t slot = pending_.size();
    std::byte* host = target_after_launches(exec, data, slot);
    const Message message(data.dtype, data.count, max_count());
    MPI_Request request;
    started(MPI_Irecv(host, message.count(), message.type(), from, kTag, comm_, &request),
            "recv");
    finish_or_keep(exec, {request, true, data, slot, from});
  }

  void do_group_begin() override {}
  void do_group_end(const Exec& exec) override {
    for (const Pending& pending : pending_) finish(exec, pending);
    pending_.clear();
  }

  // ---- host memory ----

  void do_barrier() override {
    MPI_Request request;
    started(MPI_Ibarrier(comm_, &request), "barrier");
    wait(request, "barrier");
  }

  void host_all_gather(const void* in, void* out, std::size_t bytes) override {
    const Message block(DType::uint8, static_cast<index_t>(bytes), max_count());
    MPI_Request request;
    started(MPI_Iallgather(in, block.count(), block.type(), out, block.count(),
                           block.type(), comm_, &request),
            "gather of host values");
    wait(request, "gather of host values");
  }

  void host_broadcast(void* data, std::size_t bytes, int root) override {
    const Message message(DType::uint8, static_cast<index_t>(bytes), max_count());
    MPI_Request request;
    started(MPI_Ibcast(data, message.count(), message.type(), root, comm_, &request),
            "broadcast of a host value");
    wait(request, "broadcast of a host value");
  }

  // ---- groups ----

  std::shared_ptr<Communicator> do_split(int colour, int key,
                                         const std::string& name) override {
    MPI_Comm part = MPI_COMM_NULL;
    started(MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, key, &part),
            "split");
    return part == MPI_COMM_NULL ? nullptr : adopt(part, name);
  }

  std::vector<std::shared_ptr<Communicator>> do_cartesian(
      const std::vector<int>& extents, const std::vector<SubGrid>& grids) override {
    const std::vector<int> open_ends(extents.size(), 0);
    MPI_Comm cart = MPI_COMM_NULL;
    started(MPI_Cart_create(comm_, static_cast<int>(extents.size()), extents.data(),
                            open_ends.data(), /*reorder=*/0, &cart),
            "cartesian");
    std::vector<std::shared_ptr<Communicator>> groups;
    for (const SubGrid& grid : grids) {
      std::vector<int> keep(grid.keep.begin(), grid.keep.end());
      int ranks = 1;
      for (std::size_t d = 0; d < extents.size(); ++d) ranks *= keep[d] ? extents[d] : 1;
      if (ranks == 1) {
        groups.push_back(make_self_communicator(grid.name));
        continue;
      }
      MPI_Comm part = MPI_COMM_NULL;
      started(MPI_Cart_sub(cart, keep.data(), &part), "cartesian");
      groups.push_back(adopt(part, grid.name));
    }
    MPI_Comm_free(&cart);
    return groups;
  }

  std::shared_ptr<Communicator> adopt(MPI_Comm part, const std::string& name) {
    int part_rank = 0;
    int part_size = 0;
    check(MPI_Comm_rank(part, &part_rank), "MPI_Comm_rank");
    check(MPI_Comm_size(part, &part_size), "MPI_Comm_size");
    if (part_size == 1) {
      MPI_Comm_free(&part);
      return make_self_communicator(name);
    }
    return std::make_shared<MpiCommunicator>(part, part_rank, part_size, name, shared_);
  }

  // ---- helpers ----

  index_t max_count() const { return shared_->options.max_count; }
  bool staged() const { return shared_->options.stage_through_host; }

  static std::byte* at(std::byte* base, index_t element, DType type) {
    return base + element * static_cast<index_t>(size_of(type));
  }
  static const std::byte* at(const void* base, index_t element, DType type) {
    return static_cast<const std::byte*>(base) +
           element * static_cast<index_t>(size_of(type));
  }

  // Host memory that holds the span, with everything launched before in it.
  const std::byte* read(const Exec& exec, ConstSpan span, std::size_t slot) {
    if (staged()) return staging_.copy_down(exec, span, slot);
    exec.fence("comm");
    return static_cast<const std::byte*>(span.data);
  }
  // Host memory for a result, to be moved into the span by write(); read() was called
  // before.
  std::byte* target(Span span, std::size_t slot) {
    return staged() ? staging_.buffer(slot, span.bytes())
                    : static_cast<std::byte*>(span.data);
  }
  // The same where nothing was read: kernels may still be using the memory.
  std::byte* target_after_launches(const Exec& exec, Span span, std::size_t slot) {
    if (!staged()) exec.fence("comm");
    return target(span, slot);
  }
  void write(const Exec& exec, Span span, std::size_t slot) {
    if (staged()) staging_.copy_up(exec, span, slot);
  }

  void finish_or_keep(const Exec& exec, const Pending& pending) {
    if (group_depth() > 0) {
      pending_.push_back(pending);
    } else {
      finish(exec, pending);
    }
  }

  void finish(const Exec& exec, const Pending& pending) {
    MPI_Status status;
    wait(pending.request, pending.is_recv ? "recv" : "send", &status);
    if (!pending.is_recv) return;
    MPI_Count bytes = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    TRIREME_REQUIRE(bytes == static_cast<MPI_Count>(pending.data.bytes()),
                    "recv in group '{}': rank {} sent {} bytes, rank {} expects {}",
                    name(), pending.peer, bytes, rank(), pending.data.bytes());
    write(exec, pending.data, pending.slot);
  }

  void started(int code, const char* call) const {
    TRIREME_REQUIRE(code == MPI_SUCCESS,
                    "{} in group '{}' failed on its rank {} of {}: {}", call, name(),
                    rank(), size(), mpi_text(code));
  }

  // Polls until the request is done.
  void wait(MPI_Request request, const char* call,
            MPI_Status* status = MPI_STATUS_IGNORE) {
    using Clock = std::chrono::steady_clock;
    const bool naps = shared_->wait == WaitPolicy::yield;
    Clock::time_point start{};
    for (std::uint64_t polls = 1;; ++polls) {
      int done = 0;
      started(MPI_Test(&request, &done, status), call);
      if (done != 0) return;
      if (naps) {
        const timespec nap{0, kNapNanoseconds};
        nanosleep(&nap, nullptr);
      }
      if (shared_->timeout > 0.0 && polls % 256 == 0) {
        if (start == Clock::time_point{}) start = Clock::now();
        const double waited = std::chrono::duration<double>(Clock::now() - start).count();
        TRIREME_REQUIRE(
            waited < shared_->timeout,
            "{} in group '{}' (call {} of this group): rank {} of {} waited {:.1f} "
            "s for the others. One of them has stopped, hangs or makes other "
            "calls; the limit is run.hang_timeout",
            call, name(), traffic().calls, rank(), size(), waited);
      }
    }
  }

  MPI_Comm comm_;
  std::shared_ptr<Shared> shared_;
  Staging staging_;
  std::vector<Pending> pending_;
};

}  // namespace

std::string_view name_of(WaitPolicy policy) {
  return policy == WaitPolicy::spin ? "spin" : "yield";
}

WaitPolicy choose_wait_policy(const NodeInfo& node, const char* override_value) {
  const std::string_view given = override_value != nullptr ? override_value : "";
  if (given == "spin") return WaitPolicy::spin;
  if (given == "yield") return WaitPolicy::yield;
  TRIREME_REQUIRE_INPUT(
      given.empty(),
      "TRIREME_WAIT is '{}'; it may be spin (poll without a pause) or yield "
      "(nap between polls)",
      given);
  return node.ranks > node.cores ? WaitPolicy::yield : WaitPolicy::spin;
}

NodeInfo find_node_info() {
  MPI_Comm node = MPI_COMM_NULL;
  check(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
      "MPI_Comm_split_type");
  NodeInfo info;
  MPI_Comm_rank(node, &info.rank);
  MPI_Comm_size(node, &info.ranks);
  // The cores any of them may run on: pinned ranks have a few each, others share all.
  constexpr int kWords = 128;  // 8192 cores
  unsigned long mask[kWords] = {};
  if (sched_getaffinity(0, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask)) != 0) {
    std::fill(mask, mask + kWords, ~0ul);  // not known: taken for enough
  }
  check(MPI_Allreduce(MPI_IN_PLACE, mask, kWords, MPI_UNSIGNED_LONG, MPI_BOR, node),
        "MPI_Allreduce");
  MPI_Comm_free(&node);
  info.cores = 0;
  for (const unsigned long word : mask) info.cores += __builtin_popcountl(word);
  return info;
}

std::shared_ptr<Communicator> make_mpi_world(const MpiOptions& options) {
  TRIREME_REQUIRE(options.max_count >= 1 && options.max_count <= 0x7fffffff,
                  "MpiOptions::max_count is {}; MPI counts are positive 32-bit integers",
                  options.max_count);
  auto shared = std::make_shared<Shared>(options);
  shared->wait = options.wait
                     ? *options.wait
                     : choose_wait_policy(find_node_info(), std::getenv("TRIREME_WAIT"));
  // A failed MPI_Test asks the error handler of the world, not of the group it was for.
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
        "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN),
        "MPI_Comm_set_errhandler");
  MPI_Comm world = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  check(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(world, &size), "MPI_Comm_size");
  return std::make_shared<MpiCommunicator>(world, rank, size, "world", std::move(shared));
}

}  // namespace trireme::comm
