// comm/mpi_communicator.cpp — collectives as non-blocking MPI calls that are polled by
// our own waiting policy; messages of more elements than MPI counts can say are cut.
#include "comm/mpi_communicator.hpp"
#include "base/plural.hpp"
#include "comm/adaptive_wait.hpp"

#include <mpi.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/host_cores.hpp"
#include "comm/narrow_reduce.hpp"
#include "comm/operation_board.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::comm {
namespace {

constexpr long kNapNanoseconds = 20000;

// Linux lets a timer of a thread end 50 microseconds late, to gather wake-ups of idle
// machines: naps would last 70 in place of 20.
void end_naps_on_time() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
}

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

class MpiCommunicator;

// What all groups of one world share.
struct Shared {
  MpiOptions options;
  WaitPolicy wait = WaitPolicy::spin;
  AdaptiveWait adaptive;
  double timeout = 0.0;
  struct UnderWay {
    MPI_Request* request;
    MPI_Status* status;
    MpiCommunicator* owner;
    int operation;
  };
  std::vector<UnderWay> under_way;                   // of all groups, oldest first
  std::vector<MpiCommunicator*> groups_in_progress;  // for progress(); kept
  MPI_Op narrow[2][3];                               // bf16, fp16; sum, max, min
  bool checks_calls = false;
  bool gave_up = false;
  std::shared_ptr<Recorders> recorders = std::make_shared<Recorders>();

  explicit Shared(const MpiOptions& given) : options(given) {
    under_way.reserve(64);
    groups_in_progress.reserve(8);
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

// A comparison that only some make would itself be a different call: one that wants it
// is enough for all. Collective over MPI_COMM_WORLD.
bool agree_on_checks(std::optional<bool> given) {
  int checks = given.value_or(false) ? 1 : 0;
  if (!given) {
    checks = choose_call_checks(std::getenv("TRIREME_CHECK_MESSAGES")) ? 1 : 0;
  }
  check(MPI_Allreduce(MPI_IN_PLACE, &checks, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD),
        "MPI_Allreduce");
  return checks != 0;
}

class MpiCommunicator final : public Communicator {
 public:
  // Takes the communicator over and frees it.
  MpiCommunicator(MPI_Comm comm, int rank, int size, std::string name,
                  std::shared_ptr<Shared> shared)
      : Communicator(rank, size, std::move(name), shared->recorders),
        comm_(comm),
        shared_(std::move(shared)) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Comm_set_name(comm_, this->name().c_str());
  }
  ~MpiCommunicator() override {
    for (const auto& operation : operations_) {  // abandoned by an error
      for (MPI_Request& request : operation->requests) forget(request);
    }
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm_);
  }

  void set_timeout(double seconds) override { shared_->timeout = seconds; }
  const void* native_handle() const override { return &comm_; }

 private:
  bool checks_calls() const override { return shared_->checks_calls; }

  // From its start to its wait; kept for the next one.
  struct Operation {
    const char* call = "";
    Site site = "";
    // One MPI call each for messages of more elements than MPI can count.
    std::vector<MPI_Request> requests;
    std::vector<int> counts, places;  // of v-calls: MPI reads them until the end
    Staging staging;
    Exec exec;
    Span copy_up;              // where staging slot 1 goes at the end; none: null
    bool copy_plain = false;   // by memcpy: both are host memory
    std::size_t expected = 0;  // bytes of a message that is received
    MPI_Status status = {};    // of that
    bool busy = false;
    int open = 0;  // requests that are not known to be complete
    index_t elements = 0;
    std::int64_t sequence = 0;
    Clock::time_point begun{};  // where it is traced
  };

  // ---- device memory ----

  int do_start(const Exec& exec, const Transfer& transfer) override {
    const int number = free_operation();
    Operation& operation = *operations_[static_cast<std::size_t>(number)];
    operation.call = name_of(transfer.kind);
    operation.site = transfer.site;
    operation.exec = exec;
    operation.copy_up = {};
    operation.copy_plain = false;
    operation.expected = 0;
    operation.requests.clear();
    operation.elements = std::max(transfer.in.count, transfer.out.count);
    operation.sequence = sequence();
    operation.begun = trace() == nullptr ? Clock::time_point{} : Clock::now();
    switch (transfer.kind) {
      case Kind::all_reduce:
        start_all_reduce(operation, transfer);
        break;
      case Kind::reduce_scatter:
        start_reduce_scatter(operation, transfer);
        break;
      case Kind::all_gather:
        start_all_gather(operation, transfer);
        break;
      case Kind::all_to_all:
        start_all_to_all(operation, transfer);
        break;
      case Kind::broadcast:
        start_broadcast(operation, transfer);
        break;
      case Kind::send:
        start_send(operation, transfer);
        break;
      case Kind::recv:
        start_recv(operation, transfer);
        break;
    }
    operation.busy = true;
    operation.open = static_cast<int>(operation.requests.size());
    for (MPI_Request& request : operation.requests) {
      shared_->under_way.push_back({&request, &operation.status, this, number});
    }
    return number;
  }

  void do_wait(int number) override {
    Operation& operation = *operations_.at(static_cast<std::size_t>(number));
    for (MPI_Request& request : operation.requests) {
      const bool seen = forget(request) == 0;  // in progress()
      if (seen) continue;
      wait(request, operation.call, operation.sequence, operation.site,
           &operation.status);
      close(number, Clock::now());
    }
    operation.busy = false;
    if (operation.expected > 0) require_whole(operation);
    copy_result(operation);
  }

  // One of the operation's requests is complete.
  void close(int number, Clock::time_point now) {
    Operation& operation = *operations_[static_cast<std::size_t>(number)];
    if (--operation.open > 0) return;
    note_completed(now);
    if (trace() == nullptr || operation.begun == Clock::time_point{}) return;
    trace()->add({.name = operation.call,
                  .detail = operation.site,
                  .group = name().c_str(),
                  .begin = operation.begun,
                  .end = now,
                  .elements = operation.elements});
  }

  void copy_result(Operation& operation) {
    const Span to = operation.copy_up;
    if (to.data == nullptr) return;
    if (operation.copy_plain) {
      std::memcpy(to.data, operation.staging.buffer(1, to.bytes()), to.bytes());
    } else {
      operation.staging.copy_up(operation.exec, to, 1);
    }
  }

  void progress() override {
    // A rank that computes lives, too.
    constexpr std::uint64_t kSignEvery = 16;
    if (board() != nullptr && ++progress_calls_ % kSignEvery == 0) {
      board()->give_sign(Clock::now());
    }
    if (shared_->under_way.empty()) return;
    std::optional<Region> region;
    if (timers() != nullptr) {
      region.emplace(*timers(), Section::communication, RegionLabel{.name = ""});
    }
    const auto begin = Clock::now();
    std::vector<MpiCommunicator*>& groups = shared_->groups_in_progress;
    groups.clear();
    for (const Shared::UnderWay& one : shared_->under_way) {
      if (std::find(groups.begin(), groups.end(), one.owner) == groups.end()) {
        groups.push_back(one.owner);
      }
    }
    std::erase_if(shared_->under_way, [&](const Shared::UnderWay& one) {
      int done = 0;  // one that is complete becomes MPI_REQUEST_NULL
      started(MPI_Test(one.request, &done, one.status), "progress");
      if (done != 0) one.owner->close(one.operation, Clock::now());
      return done != 0;
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    for (MpiCommunicator* group : groups) group->note_progress(seconds);
  }
  bool is_under_way() const override {
    return !shared_->under_way.empty() || shared_->gave_up;
  }
  bool has_given_up() const override { return shared_->gave_up; }
  std::size_t forget(const MPI_Request& request) {
    return std::erase_if(shared_->under_way, [&](const Shared::UnderWay& one) {
      return one.request == &request;
    });
  }

  std::size_t staging_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& operation : operations_) bytes += operation->staging.bytes();
    return bytes;
  }

  int free_operation() {
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (!operations_[i]->busy) return static_cast<int>(i);
    }
    operations_.push_back(std::make_unique<Operation>());
    return static_cast<int>(operations_.size()) - 1;
  }

  // Pieces of at most max_count elements: all of one call that MPI can count.
  template <class Start>
  void in_pieces(Operation& operation, index_t count, const Start& start_piece) {
    const index_t pieces = (count + max_count() - 1) / max_count();
    operation.requests.reserve(static_cast<std::size_t>(pieces));
    for (index_t begin = 0; begin < count; begin += max_count()) {
      operation.requests.push_back(MPI_REQUEST_NULL);
      start_piece(begin, std::min(max_count(), count - begin),
                  &operation.requests.back());
    }
  }

  // What each rank's block has in [begin, begin + count), as MPI's vectors of counts and
  // places; kept until the operation ends, a pair of vectors after the other.
  struct BlockCounts {
    const int* counts;
    const int* places;
  };
  BlockCounts block_counts(Operation& operation, const Transfer& transfer, index_t begin,
                           index_t count) const {
    const auto ranks = static_cast<std::size_t>(size());
    const std::size_t at = ranks * (operation.requests.size() - 1);
    const index_t block = std::min(transfer.in.count, transfer.out.count);
    const index_t end = begin + count;
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto rank = static_cast<index_t>(r);
      const Cuts cuts = transfer.cuts;
      const index_t first = std::max(begin, cuts == nullptr ? block * rank : cuts[r]);
      const index_t last =
          std::min(end, cuts == nullptr ? block * (rank + 1) : cuts[r + 1]);
      operation.counts[at + r] = static_cast<int>(std::max<index_t>(0, last - first));
      operation.places[at + r] = static_cast<int>(std::max<index_t>(0, first - begin));
    }
    return {operation.counts.data() + at, operation.places.data() + at};
  }
  void reserve_blocks(Operation& operation, index_t count) const {
    const index_t pieces = (count + max_count() - 1) / max_count();
    const auto numbers =
        static_cast<std::size_t>(pieces) * static_cast<std::size_t>(size());
    operation.counts.resize(numbers);
    operation.places.resize(numbers);
  }
  // Elements of this rank's block that lie before `begin`.
  index_t before(const Transfer& transfer, index_t begin) const {
    const index_t block = std::min(transfer.in.count, transfer.out.count);
    const index_t first =
        transfer.cuts == nullptr ? block * rank() : transfer.cuts[rank()];
    return std::clamp<index_t>(begin - first, 0, block);
  }

  void start_all_reduce(Operation& operation, const Transfer& transfer) {
    const Span data = transfer.out;
    auto* host = const_cast<std::byte*>(read(operation, data));
    const MPI_Op mpi_op = shared_->mpi_op(data.dtype, transfer.op);
    in_pieces(operation, data.count,
              [&](index_t begin, index_t count, MPI_Request* request) {
                started(MPI_Iallreduce(MPI_IN_PLACE, at(host, begin, data.dtype),
                                       static_cast<int>(count), mpi_type(data.dtype),
                                       mpi_op, comm_, request),
                        "all_reduce", operation.site);
              });
    if (staged()) operation.copy_up = data;
  }

  void start_reduce_scatter(Operation& operation, const Transfer& transfer) {
    const ConstSpan in = transfer.in;
    const Span out = transfer.out;
    const std::byte* from = read(operation, in, 0);
    // The output may be a block of the input, which MPI does not allow.
    const auto* first = static_cast<const std::byte*>(in.data);
    const auto* result = static_cast<const std::byte*>(out.data);
    const bool in_place = !staged() && result >= first && result < first + in.bytes();
    std::byte* to =
        in_place ? operation.staging.buffer(1, out.bytes()) : target(operation, out);
    reserve_blocks(operation, in.count);
    in_pieces(
        operation, in.count, [&](index_t begin, index_t count, MPI_Request* request) {
          const BlockCounts blocks = block_counts(operation, transfer, begin, count);
          started(
              MPI_Ireduce_scatter(at(from, begin, in.dtype),
                                  at(to, before(transfer, begin), out.dtype),
                                  blocks.counts, mpi_type(in.dtype),
                                  shared_->mpi_op(in.dtype, transfer.op), comm_, request),
              "reduce_scatter", operation.site);
        });
    if (staged() || in_place) operation.copy_up = out;
    operation.copy_plain = in_place;
  }

  void start_all_gather(Operation& operation, const Transfer& transfer) {
    const ConstSpan in = transfer.in;
    const Span out = transfer.out;
    const std::byte* from = read(operation, in, 0);
    std::byte* to = target(operation, out);
    const index_t place =
        transfer.cuts == nullptr ? in.count * rank() : transfer.cuts[rank()];
    const bool in_place = from == at(to, place, in.dtype);
    reserve_blocks(operation, out.count);
    in_pieces(
        operation, out.count, [&](index_t begin, index_t count, MPI_Request* request) {
          const BlockCounts blocks = block_counts(operation, transfer, begin, count);
          const MPI_Datatype type = mpi_type(in.dtype);
          started(MPI_Iallgatherv(in_place ? MPI_IN_PLACE
                                           : at(from, before(transfer, begin), in.dtype),
                                  blocks.counts[rank()], type, at(to, begin, in.dtype),
                                  blocks.counts, blocks.places, type, comm_, request),
                  "all_gather", operation.site);
        });
    if (staged()) operation.copy_up = out;
  }

  void start_all_to_all(Operation& operation, const Transfer& transfer) {
    const ConstSpan in = transfer.in;
    const std::byte* from = read(operation, in, 0);
    std::byte* to = target(operation, transfer.out);
    const Message block(in.dtype, in.count / size(), max_count());
    operation.requests.push_back(MPI_REQUEST_NULL);
    started(MPI_Ialltoall(from, block.count(), block.type(), to, block.count(),
                          block.type(), comm_, &operation.requests.back()),
            "all_to_all", operation.site);
    if (staged()) operation.copy_up = transfer.out;
  }

  void start_broadcast(Operation& operation, const Transfer& transfer) {
    const Span data = transfer.out;
    const bool is_root = rank() == transfer.peer;
    auto* host = const_cast<std::byte*>(is_root ? read(operation, data)
                                                : target_after_launches(operation, data));
    const Message message(data.dtype, data.count, max_count());
    operation.requests.push_back(MPI_REQUEST_NULL);
    started(MPI_Ibcast(host, message.count(), message.type(), transfer.peer, comm_,
                       &operation.requests.back()),
            "broadcast", operation.site);
    if (staged() && !is_root) operation.copy_up = data;
  }

  void start_send(Operation& operation, const Transfer& transfer) {
    const std::byte* from = read(operation, transfer.in);
    const Message message(transfer.in.dtype, transfer.in.count, max_count());
    operation.requests.push_back(MPI_REQUEST_NULL);
    started(MPI_Isend(from, message.count(), message.type(), transfer.peer, transfer.tag,
                      comm_, &operation.requests.back()),
            "send", operation.site);
  }

  void start_recv(Operation& operation, const Transfer& transfer) {
    std::byte* to = target_after_launches(operation, transfer.out);
    const Message message(transfer.out.dtype, transfer.out.count, max_count());
    operation.requests.push_back(MPI_REQUEST_NULL);
    started(MPI_Irecv(to, message.count(), message.type(), transfer.peer, transfer.tag,
                      comm_, &operation.requests.back()),
            "recv", operation.site);
    operation.expected = transfer.out.bytes();
    if (staged()) operation.copy_up = transfer.out;
  }

  // A shorter message than expected is no error of MPI's.
  void require_whole(const Operation& operation) const {
    MPI_Count bytes = 0;
    MPI_Get_elements_x(&operation.status, MPI_BYTE, &bytes);
    TRIREME_REQUIRE(bytes == static_cast<MPI_Count>(operation.expected),
                    "recv in group '{}'{}: rank {} sent {}, rank {} expects {}", name(),
                    of_site(operation.site), operation.status.MPI_SOURCE,
                    format_plural(bytes, "byte"), rank(), operation.expected);
  }

  // ---- host memory ----

  void do_barrier() override {
    MPI_Request request;
    started(MPI_Ibarrier(comm_, &request), "barrier");
    wait(request, "barrier", sequence());
  }

  void host_all_gather(const void* in, void* out, std::size_t bytes, const char* call,
                       Site site) override {
    const Message block(DType::uint8, static_cast<index_t>(bytes), max_count());
    MPI_Request request;
    started(MPI_Iallgather(in, block.count(), block.type(), out, block.count(),
                           block.type(), comm_, &request),
            call, site);
    wait(request, call, sequence(), site);
  }

  void host_gather(const void* in, void* out, std::size_t bytes,
                   const char* call) override {
    const Message block(DType::uint8, static_cast<index_t>(bytes), max_count());
    MPI_Request request;
    started(MPI_Igather(in, block.count(), block.type(), out, block.count(), block.type(),
                        0, comm_, &request),
            call);
    wait(request, call, sequence());
  }

  void host_broadcast(void* data, std::size_t bytes, int root) override {
    const Message message(DType::uint8, static_cast<index_t>(bytes), max_count());
    MPI_Request request;
    started(MPI_Ibcast(data, message.count(), message.type(), root, comm_, &request),
            "broadcast of a host value");
    wait(request, "broadcast of a host value", sequence());
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

  // Host memory that holds the span, with everything launched before in it. In place: in
  // slot 1, where results go.
  const std::byte* read(Operation& operation, ConstSpan span, std::size_t slot = 1) {
    if (staged()) return operation.staging.copy_down(operation.exec, span, slot);
    operation.exec.fence("comm");
    return static_cast<const std::byte*>(span.data);
  }
  // Host memory for a result, which goes into the span at the end; read() was called
  // before.
  std::byte* target(Operation& operation, Span span) {
    return staged() ? operation.staging.buffer(1, span.bytes())
                    : static_cast<std::byte*>(span.data);
  }
  // The same where nothing was read: kernels may still be using the memory.
  std::byte* target_after_launches(Operation& operation, Span span) {
    if (!staged()) operation.exec.fence("comm");
    return target(operation, span);
  }

  void started(int code, const char* call, Site site = "") const {
    TRIREME_REQUIRE(code == MPI_SUCCESS,
                    "{} in group '{}'{} failed on its rank {} of {}: {}", call, name(),
                    of_site(site), rank(), size(), mpi_text(code));
  }
  static std::string of_site(Site site) {
    return *site == '\0' ? std::string() : fmt::format(" ({})", site);
  }

  // Polls until the request is done.
  void wait(MPI_Request& request, const char* call, std::int64_t number, Site site = "",
            MPI_Status* status = MPI_STATUS_IGNORE) {
    AdaptiveWait* const adaptive =
        shared_->wait == WaitPolicy::adaptive ? &shared_->adaptive : nullptr;
    if (adaptive != nullptr) adaptive->begin();
    Clock::time_point start{};
    for (std::uint64_t polls = 1;; ++polls) {
      int done = 0;
      started(MPI_Test(&request, &done, status), call, site);
      if (done != 0) {
        if (adaptive != nullptr) adaptive->end();
        return;
      }
      const bool naps = adaptive != nullptr ? adaptive->next() == AdaptiveWait::Next::nap
                                            : shared_->wait == WaitPolicy::yield;
      if (naps) {
        const timespec nap{0, kNapNanoseconds};
        nanosleep(&nap, nullptr);
      }
      if (polls % 256 != 0 || (shared_->timeout <= 0.0 && board() == nullptr)) continue;
      const auto now = Clock::now();
      if (start == Clock::time_point{}) start = now;
      if (board() != nullptr) board()->give_sign(now);
      const double waited = std::chrono::duration<double>(now - start).count();
      if (shared_->timeout <= 0.0 || waited < shared_->timeout) continue;
      if (board() != nullptr) board()->report_hang(waited);
      shared_->gave_up = true;
      throw Error(fmt::format(
          "{} in group '{}'{} (call {} of this group): rank {} of {} waited {:.1f} "
          "s for the others. One of them has stopped, hangs or makes other "
          "calls; the limit is run.hang_timeout",
          call, name(), of_site(site), number, rank(), size(), waited));
    }
  }

  MPI_Comm comm_;
  std::shared_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::uint64_t progress_calls_ = 0;
};

}  // namespace

std::string_view name_of(WaitPolicy policy) {
  switch (policy) {
    case WaitPolicy::spin:
      return "spin";
    case WaitPolicy::yield:
      return "yield";
    case WaitPolicy::adaptive:
      return "adaptive";
  }
  throw Error("not a way to wait");
}

WaitPolicy choose_wait_policy(const NodeInfo& node, const char* override_value) {
  const std::string_view given = override_value != nullptr ? override_value : "";
  for (const WaitPolicy policy :
       {WaitPolicy::spin, WaitPolicy::yield, WaitPolicy::adaptive}) {
    if (given == name_of(policy)) return policy;
  }
  TRIREME_REQUIRE_INPUT(
      given.empty(),
      "TRIREME_WAIT is '{}'; it may be spin (poll without a pause), yield (nap between "
      "polls) or adaptive (nap while others use the core)",
      given);
  return node.ranks * node.threads > node.cores ? WaitPolicy::yield
                                                : WaitPolicy::adaptive;
}

NodeInfo find_node_info() {
  MPI_Comm node = MPI_COMM_NULL;
  check(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
      "MPI_Comm_split_type");
  NodeInfo info;
  MPI_Comm_rank(node, &info.rank);
  MPI_Comm_size(node, &info.ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &info.first);
  check(MPI_Allreduce(MPI_IN_PLACE, &info.first, 1, MPI_INT, MPI_MIN, node),
        "MPI_Allreduce");
  // A rank alone waits for nobody; unsaid, ranks share the cores.
  for (const char* name : {"OMP_NUM_THREADS", "KOKKOS_NUM_THREADS"}) {
    const char* said = info.ranks > 1 ? std::getenv(name) : nullptr;
    if (said != nullptr) info.threads = std::clamp(std::atoi(said), 1, 1 << 16);
  }
  check(MPI_Allreduce(MPI_IN_PLACE, &info.threads, 1, MPI_INT, MPI_MAX, node),
        "MPI_Allreduce");
  // The cores any of them may run on: pinned ranks have a few each, others share all.
  const std::vector<int> allowed = allowed_cores();
  const unsigned char unknown = allowed.empty() ? 1 : 0;  // taken for enough
  std::vector<unsigned char> may_run(kMostHostCores, unknown);
  for (const int core : allowed) may_run[static_cast<std::size_t>(core)] = 1;
  check(MPI_Allreduce(MPI_IN_PLACE, may_run.data(), kMostHostCores, MPI_UNSIGNED_CHAR,
                      MPI_BOR, node),
        "MPI_Allreduce");
  MPI_Comm_free(&node);
  info.cores = static_cast<int>(std::count(may_run.begin(), may_run.end(), 1));
  return info;
}

bool choose_call_checks(const char* override_value) {
  const std::string_view given = override_value != nullptr ? override_value : "";
  TRIREME_REQUIRE_INPUT(given.empty() || given == "0" || given == "1",
                        "TRIREME_CHECK_MESSAGES is '{}'; it may be 1 (ranks compare "
                        "what they call, before each call) or 0",
                        given);
#ifdef NDEBUG
  return given == "1";
#else
  return given != "0";
#endif
}

std::shared_ptr<Communicator> make_mpi_world(const MpiOptions& options) {
  TRIREME_REQUIRE(options.max_count >= 1 && options.max_count <= 0x7fffffff,
                  "MpiOptions::max_count is {}; MPI counts are positive 32-bit integers",
                  options.max_count);
  auto shared = std::make_shared<Shared>(options);
  shared->wait = options.wait
                     ? *options.wait
                     : choose_wait_policy(find_node_info(), std::getenv("TRIREME_WAIT"));
  end_naps_on_time();
  // A failed MPI_Test asks the error handler of the world, not of the group it was for.
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
        "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN),
        "MPI_Comm_set_errhandler");
  shared->checks_calls = agree_on_checks(options.check_calls);
  MPI_Comm world = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  check(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(world, &size), "MPI_Comm_size");
  return std::make_shared<MpiCommunicator>(world, rank, size, "world", std::move(shared));
}

}  // namespace trireme::comm
