// comm/nccl_link_nccl.cpp — NCCL's own calls (2.14 or later), and nowhere else. See
// nccl_link.hpp.
//
// Communicators block (ncclConfig_t::blocking is 1). For one that does not, NCCL makes a
// thread for every call of a group, and each message is such a call (ncclGroupEnd in its
// src/group.cc, from 2.14 to today): tens of microseconds of the host for each. Nothing
// switches a communicator over when it has been made. What waits for other ranks is the
// making of a communicator, of its connections, and its end. These calls run on a thread
// of their own, which is left behind when the limit is over, so that a rank that died
// never keeps the others within a call of the library. Later messages find all
// connections there (NCCL_RUNTIME_CONNECT is 0, and each kind of message has been
// carried once), and their calls wait for nobody but this rank's own device.
//
// NCCL aborts a communicator safely while no thread is in a call with it (its manual,
// "Fault Tolerance"): a mutex sees to that, and abort() gives up where a call does not
// come back, as the job is then taken down. Communicators of an environment that says
// NCCL_COMM_BLOCKING=0 work as well: settle() asks until they have issued.
//
// nccl.h brings the types and calls of CUDA's runtime with it; no header of CUDA's is
// included here, as these belong to base.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "comm/nccl_link.hpp"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kNap{20};
// How long the end of a communicator may take before it is torn down instead.
constexpr double kEndSeconds = 30.0;
// How long abort() waits for a call of another thread to come back.
constexpr std::chrono::seconds kAbortPatience{1};

void require_runtime(cudaError_t status, const char* call) {
  TRIREME_REQUIRE(status == cudaSuccess, "{}: {}", call, cudaGetErrorString(status));
}

// As in base/cuda_status.hpp: asked of what is not there yet, the runtime keeps an error
// that a later launch would take for its own.
bool is_not_ready(cudaError_t status) {
  if (status != cudaErrorNotReady) return false;
  (void)cudaGetLastError();
  return true;
}

// What to do about the errors that users meet.
const char* advice_on(ncclResult_t result) {
  switch (result) {
    case ncclInvalidUsage:
      return " Two ranks on one GPU are the usual reason: start one rank per GPU "
             "(slurm/machines has how; without SLURM, ranks of a node take the GPUs that "
             "they see in turn). Where ranks must share a GPU, TRIREME_TRANSPORT=mpi "
             "carries their "
             "messages.";
    case ncclSystemError:
      return " NCCL_DEBUG=WARN says which call of the system failed: often the network "
             "interface (NCCL_SOCKET_IFNAME) or the size of /dev/shm.";
    case ncclUnhandledCudaError:
      return " NCCL_DEBUG=WARN says which call of CUDA failed: often memory, of which "
             "NCCL needs some beside the plan's.";
    case ncclRemoteError:
      return " Another rank has ended, or the network to it has failed.";
    default:
      return " NCCL_DEBUG=WARN says more.";
  }
}

std::string text_of(ncclResult_t result) {
  return fmt::format("{}.{}", ncclGetErrorString(result), advice_on(result));
}

// Runs what may wait for other ranks on a thread of its own, and waits for that for
// `limit` seconds (0: for ever); false where it has not come back by then, and is left
// behind. It throws what the call throws. What the call uses must live as long as it
// does.
bool is_done_within(double limit, std::function<void()> call) {
  std::packaged_task<void()> task(
      [device = device_of_thread(), call = std::move(call)]() mutable {
        const std::function<void()> mine = std::move(call);  // gone when it is done
        enter_nccl_thread(device);
        mine();
      });
  std::future<void> done = task.get_future();
  std::thread(std::move(task)).detach();
  if (limit > 0.0 &&
      done.wait_for(std::chrono::duration<double>(limit)) != std::future_status::ready) {
    return false;
  }
  done.get();
  return true;
}

void require_nccl(ncclResult_t result, const char* call, const char* group) {
  TRIREME_REQUIRE(result == ncclSuccess || result == ncclInProgress,
                  "{} in group '{}': {}", call, group, text_of(result));
}

// The stream of an Exec; the device's default one where a host runs the kernels, which
// only tests do.
template <class Space>
cudaStream_t stream_of(const Space& space) {
  if constexpr (requires { space.cuda_stream(); }) {
    return space.cuda_stream();
  } else {
    return nullptr;
  }
}

ncclDataType_t type_of(DType type) {
  switch (type) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float16:
      return ncclFloat16;
    case DType::int32:
      return ncclInt32;
    case DType::int64:
      return ncclInt64;
    case DType::uint8:
      return ncclUint8;
    case DType::uint32:
      return ncclUint32;
    case DType::uint64:
      return ncclUint64;
    case DType::uint16:
      break;
  }
  throw Error(
      "NCCL does not add 16-bit integers, nor compare them: widen them, or let MPI "
      "carry the messages (TRIREME_TRANSPORT=mpi)");
}

ncclRedOp_t operation_of(Op op) {
  return op == Op::sum ? ncclSum : op == Op::max ? ncclMax : ncclMin;
}

// Elements that are only moved: NCCL has no 16-bit integers, but their bytes.
struct Moved {
  explicit Moved(DType dtype)
      : type(dtype == DType::uint16 ? ncclUint8 : type_of(dtype)),
        factor(dtype == DType::uint16 ? 2 : 1) {}
  std::size_t count(index_t elements) const {
    return factor * static_cast<std::size_t>(elements);
  }
  ncclDataType_t type;
  std::size_t factor;
};

cudaEvent_t event_of(void* event) {
  return static_cast<cudaEvent_t>(event);
}

// Throws where the communicator is still to be aborted.
void end_in_order(ncclComm_t communicator, const std::string& group) {
  require_nccl(ncclCommFinalize(communicator), "ncclCommFinalize", group.c_str());
  for (;;) {
    ncclResult_t state = ncclSuccess;
    require_nccl(ncclCommGetAsyncError(communicator, &state), "ncclCommGetAsyncError",
                 group.c_str());
    require_nccl(state, "ncclCommFinalize", group.c_str());
    if (state == ncclSuccess) break;
    std::this_thread::sleep_for(kNap);
  }
  ncclCommDestroy(communicator);
}

}  // namespace

bool has_nccl() {
  return true;
}

std::string nccl_version() {
  int code = 0;
  if (ncclGetVersion(&code) != ncclSuccess) return {};
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string make_nccl_id() {
  ncclUniqueId id;
  require_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", "");
  return {id.internal, sizeof(id.internal)};
}

int device_of_thread() {
  int device = 0;
  require_runtime(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

void enter_nccl_thread(int device) {
  // A thread begins with device 0, on which its first call would make a context that
  // takes half a gigabyte, for every rank of the node.
  require_runtime(cudaSetDevice(device), "cudaSetDevice");
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  require_runtime(cudaThreadExchangeStreamCaptureMode(&mode),
                  "cudaThreadExchangeStreamCaptureMode");
}

void begin_nccl_group() {
  require_nccl(ncclGroupStart(), "ncclGroupStart", "");
}

void end_nccl_group() {
  require_nccl(ncclGroupEnd(), "ncclGroupEnd", "");
}

NcclMark::NcclMark() {
  cudaEvent_t event = nullptr;
  require_runtime(cudaEventCreateWithFlags(&event, cudaEventDefault),
                  "cudaEventCreateWithFlags");
  event_ = event;
}

NcclMark::~NcclMark() {
  cudaEventDestroy(event_of(event_));
}

void NcclMark::record(const Exec& exec) {
  require_runtime(cudaEventRecord(event_of(event_), stream_of(exec.space())),
                  "cudaEventRecord");
}

bool NcclMark::is_past() const {
  const cudaError_t status = cudaEventQuery(event_of(event_));
  if (is_not_ready(status)) return false;
  require_runtime(status, "work on the device failed, as cudaEventQuery reports");
  return true;
}

void NcclMark::hold_up(const Exec& exec) const {
  require_runtime(cudaStreamWaitEvent(stream_of(exec.space()), event_of(event_), 0),
                  "cudaStreamWaitEvent");
}

double NcclMark::seconds_since(const NcclMark& begin) const {
  float milliseconds = 0.0f;
  require_runtime(
      cudaEventElapsedTime(&milliseconds, event_of(begin.event_), event_of(event_)),
      "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

struct NcclLink::State {
  explicit State(const Options& options_) : options(options_) {}
  ~State() { end(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void check(ncclResult_t result, const char* call) const {
    require_nccl(result, call, options.group.c_str());
  }
  void require_whole() const {
    TRIREME_REQUIRE(communicator != nullptr,
                    "group '{}': its messages were ended by an error before",
                    options.group);
  }
  // What the library is at; throws what has gone wrong.
  ncclResult_t ask(const char* call);
  // Asks until the library is done; false where the limit is over before.
  bool is_settled(double limit, const char* call);
  void all_to_all(const Transfer& transfer);
  bool has_come_to_rest();
  void end() noexcept;

  void make(const ncclUniqueId& id);
  [[noreturn]] void refuse_to_wait(double limit) const;
  void start(const Transfer& transfer, int peer);

  const Options options;
  // Held during calls with the communicator, against the thread that aborts it.
  mutable std::timed_mutex mutex;
  // A call has not come back in time; where it does later, its thread ends this.
  bool is_left_behind = false;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
};

ncclResult_t NcclLink::State::ask(const char* call) {
  const std::lock_guard<std::timed_mutex> lock(mutex);
  require_whole();
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(communicator, &state), "ncclCommGetAsyncError");
  check(state, call);
  return state;
}

bool NcclLink::State::is_settled(double limit, const char* call) {
  const auto begin = Clock::now();
  while (ask(call) == ncclInProgress) {
    const std::chrono::duration<double> passed = Clock::now() - begin;
    if (limit > 0.0 && passed.count() > limit) return false;
    std::this_thread::sleep_for(kNap);
  }
  return true;
}

NcclLink::NcclLink(const Options& options) : state_(std::make_shared<State>(options)) {
  int least = 0;
  int greatest = 0;
  require_runtime(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                  "cudaDeviceGetStreamPriorityRange");
  require_runtime(
      cudaStreamCreateWithPriority(&state_->stream, cudaStreamNonBlocking,
                                   options.has_high_priority ? greatest : least),
      "cudaStreamCreateWithPriority");
  ncclUniqueId id;
  TRIREME_REQUIRE(options.id.size() == sizeof(id.internal),
                  "an identity of NCCL's has a size of {}, not of {}",
                  sizeof(id.internal), options.id.size());
  std::memcpy(id.internal, options.id.data(), sizeof(id.internal));
  wait_for_others(options.limit, [state = state_, id] { state->make(id); });
}

void NcclLink::State::make(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  const std::lock_guard<std::timed_mutex> lock(mutex);
  check(ncclCommInitRankConfig(&communicator, options.size, id, options.rank, &config),
        "ncclCommInitRankConfig");
}

void NcclLink::wait_for_others(double limit, std::function<void()> call) {
  if (is_done_within(limit, std::move(call))) return;
  state_->is_left_behind = true;
  state_->refuse_to_wait(limit);
}

NcclLink::~NcclLink() = default;

// Whether all messages have ended before the limit.
bool NcclLink::State::has_come_to_rest() {
  const auto begin = Clock::now();
  for (;;) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (!is_not_ready(status)) return status == cudaSuccess;
    if (Clock::now() - begin > std::chrono::duration<double>(kEndSeconds)) return false;
    ask("the end of a communicator");
    std::this_thread::sleep_for(kNap);
  }
}

// In order where all is well; by force where an error ends it, or a call came back too
// late; not at all where the end does not come back.
void NcclLink::State::end() noexcept {
  bool is_free = true;
  if (communicator != nullptr) {
    bool is_clean = !is_left_behind && std::uncaught_exceptions() == 0;
    try {
      is_clean = is_clean && has_come_to_rest();
      if (is_clean) {
        is_free = is_done_within(kEndSeconds, [own = communicator, name = options.group] {
          end_in_order(own, name);
        });
      }
    } catch (const std::exception&) {  // a destructor has nobody to tell
      is_clean = false;
    }
    if (!is_clean && communicator != nullptr) ncclCommAbort(communicator);
    communicator = nullptr;
  }
  if (is_free && stream != nullptr) cudaStreamDestroy(stream);
  stream = nullptr;
}

void NcclLink::hold_up(const NcclMark& mark) {
  require_runtime(cudaStreamWaitEvent(state_->stream, event_of(mark.event_), 0),
                  "cudaStreamWaitEvent");
}

void NcclLink::record(NcclMark& mark) {
  require_runtime(cudaEventRecord(event_of(mark.event_), state_->stream),
                  "cudaEventRecord");
}

// Block by block to and from every rank, its own among them.
void NcclLink::State::all_to_all(const Transfer& transfer) {
  const Moved moved(transfer.in.dtype);
  const index_t block = transfer.in.count / options.size;
  const std::size_t bytes = static_cast<std::size_t>(block) * size_of(transfer.in.dtype);
  begin_nccl_group();
  for (int rank = 0; rank < options.size; ++rank) {
    const auto offset = bytes * static_cast<std::size_t>(rank);
    check(ncclSend(static_cast<const std::byte*>(transfer.in.data) + offset,
                   moved.count(block), moved.type, rank, communicator, stream),
          "ncclSend");
    check(ncclRecv(static_cast<std::byte*>(transfer.out.data) + offset,
                   moved.count(block), moved.type, rank, communicator, stream),
          "ncclRecv");
  }
  end_nccl_group();
}

void NcclLink::start(const Transfer& transfer, int peer) {
  const std::lock_guard<std::timed_mutex> lock(state_->mutex);
  state_->start(transfer, peer);
}

void NcclLink::start_first(const std::vector<Transfer>& transfers, int peer,
                           double limit) {
  wait_for_others(limit, [state = state_, transfers, peer] {
    const std::lock_guard<std::timed_mutex> lock(state->mutex);
    begin_nccl_group();
    for (const Transfer& transfer : transfers) state->start(transfer, peer);
    end_nccl_group();
  });
}

std::unique_lock<std::timed_mutex> NcclLink::hold() const {
  std::unique_lock<std::timed_mutex> lock(state_->mutex);
  state_->require_whole();
  return lock;
}

// The mutex is held.
void NcclLink::State::start(const Transfer& transfer, int peer) {
  require_whole();
  const ConstSpan in = transfer.in;
  const Span out = transfer.out;
  const Moved moved(transfer.whole().dtype);
  using Kind = Transfer::Kind;
  switch (transfer.kind) {
    case Kind::all_reduce:
      return check(ncclAllReduce(in.data, out.data, static_cast<std::size_t>(in.count),
                                 type_of(in.dtype), operation_of(transfer.op),
                                 communicator, stream),
                   "ncclAllReduce");
    case Kind::reduce_scatter:
      return check(
          ncclReduceScatter(in.data, out.data, static_cast<std::size_t>(out.count),
                            type_of(in.dtype), operation_of(transfer.op), communicator,
                            stream),
          "ncclReduceScatter");
    case Kind::all_gather:
      return check(ncclAllGather(in.data, out.data, moved.count(in.count), moved.type,
                                 communicator, stream),
                   "ncclAllGather");
    case Kind::all_to_all:
      return all_to_all(transfer);
    case Kind::broadcast:
      return check(ncclBroadcast(in.data, out.data, moved.count(out.count), moved.type,
                                 peer, communicator, stream),
                   "ncclBroadcast");
    case Kind::send:
      return check(ncclSend(in.data, moved.count(in.count), moved.type, peer,
                            communicator, stream),
                   "ncclSend");
    case Kind::recv:
      return check(ncclRecv(out.data, moved.count(out.count), moved.type, peer,
                            communicator, stream),
                   "ncclRecv");
  }
}

void NcclLink::settle(double limit) {
  if (!state_->is_settled(limit, "a step that takes other ranks")) {
    state_->refuse_to_wait(limit);
  }
}

void NcclLink::State::refuse_to_wait(double limit) const {
  throw Error(fmt::format(
      "group '{}': rank {} of {} waited {:.1f} s for NCCL, which makes a communicator or "
      "a connection together with the other ranks. One of them has stopped, hangs or "
      "does "
      "something else; the limit is run.hang_timeout",
      options.group, options.rank, options.size, limit));
}

std::string NcclLink::asynchronous_error() const {
  // A call that is under way says itself what goes wrong.
  const std::unique_lock<std::timed_mutex> lock(state_->mutex, std::try_to_lock);
  if (!lock.owns_lock() || state_->communicator == nullptr) return {};
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(state_->communicator, &state);
  if (asked != ncclSuccess) return text_of(asked);
  return state == ncclSuccess || state == ncclInProgress ? std::string() : text_of(state);
}

void NcclLink::abort() noexcept {
  const std::unique_lock<std::timed_mutex> lock(state_->mutex, kAbortPatience);
  if (!lock.owns_lock() || state_->communicator == nullptr) return;
  ncclCommAbort(state_->communicator);
  state_->communicator = nullptr;
}

}  // namespace trireme::comm
