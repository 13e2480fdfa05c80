// tests/support/fake_nccl.cpp — see fake_nccl.hpp. The functions have the names and types
// of nccl.h and of CUDA's runtime.
//
// All operations are made of one primitive: a call has bytes to push to other ranks and
// bytes to pull from them, through a ring of bytes for each ordered pair of ranks, and
// goes on with all of them until each is done. Every collective pushes a header to each
// rank, and so does a message to its receiver; ranks compare the headers that they pull
// with what they do themselves. An all-reduce pushes the whole input to all, and each
// rank adds the inputs of all in the order of the ranks.
#include "support/fake_nccl.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "base/types.hpp"

namespace trireme::test {

static_assert(kInvalidUsage == ncclInvalidUsage && kRemoteError == ncclRemoteError);

FakeNccl& fake_nccl() {
  static FakeNccl state;
  return state;
}

void FakeNccl::note(const std::string& violation) {
  if (!expects_violations) ADD_FAILURE() << "NCCL: " << violation;
  const std::lock_guard<std::mutex> lock(mutex_);
  violations_.push_back(violation);
}

std::vector<std::string> FakeNccl::take_violations() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(violations_, {});
}

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr std::byte kPoison{0xFF};
constexpr std::chrono::microseconds kNap{30};

// ---- CUDA's runtime: streams and events ----

// Guards events and what communicators are asked from several threads.
std::mutex& state_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::condition_variable& state_changed() {
  static std::condition_variable changed;
  return changed;
}

struct FakeEvent {
  std::int64_t recorded = 0, past = 0;  // how often
  Clock::time_point time;
};

class FakeStream {
 public:
  FakeStream() : thread_([this] { run(); }) {}
  ~FakeStream() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(std::function<void()> task) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  bool is_idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return tasks_.empty() && !is_busy_;
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_ended_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      is_busy_ = true;
      lock.unlock();
      task();
      lock.lock();
      is_busy_ = false;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_busy_ = false, is_ended_ = false;
  std::thread thread_;
};

FakeEvent& own(cudaEvent_t event) {
  return *reinterpret_cast<FakeEvent*>(event);
}
FakeStream& own(cudaStream_t stream) {
  return *reinterpret_cast<FakeStream*>(stream);
}

void pass(FakeEvent& event, std::int64_t number) {
  const std::lock_guard<std::mutex> lock(state_mutex());
  event.past = number;
  event.time = Clock::now();
  state_changed().notify_all();
}

void wait_for(FakeEvent& event, std::int64_t number) {
  std::unique_lock<std::mutex> lock(state_mutex());
  state_changed().wait(lock, [&] { return event.past >= number; });
}

// ---- What ranks share ----

struct Ring {
  static constexpr std::uint64_t kBytes = std::uint64_t{32} << 10;
  std::atomic<std::uint64_t> written, read;
  std::byte data[kBytes];
};

// Rings come behind it, whose numbers are of eight bytes.
struct alignas(64) SharedHeader {
  std::atomic<int> arrived;
  std::atomic<int> has[64];  // by rank
};

// What a rank says of a call to another one.
struct CallHeader {
  char name[16] = {};
  std::uint64_t count = 0;
  int type = 0, operation = 0, root = 0;
  bool operator==(const CallHeader& other) const {
    return std::strcmp(name, other.name) == 0 && count == other.count &&
           type == other.type && operation == other.operation && root == other.root;
  }
};

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <class T>
void combine(std::byte* sums, const std::byte* others, std::size_t count,
             ncclRedOp_t operation) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, sums + i * sizeof(T), sizeof(T));
    std::memcpy(&b, others + i * sizeof(T), sizeof(T));
    if constexpr (sizeof(T) == 2) {
      const auto wide_a = static_cast<float>(a);
      const auto wide_b = static_cast<float>(b);
      a = T(operation == ncclSum   ? wide_a + wide_b
            : operation == ncclMax ? std::max(wide_a, wide_b)
                                   : std::min(wide_a, wide_b));
    } else {
      a = operation == ncclSum   ? static_cast<T>(a + b)
          : operation == ncclMax ? std::max(a, b)
                                 : std::min(a, b);
    }
    std::memcpy(sums + i * sizeof(T), &a, sizeof(T));
  }
}

void combine(std::byte* sums, const std::byte* others, std::size_t count,
             ncclDataType_t type, ncclRedOp_t operation) {
  switch (type) {
    case ncclFloat32:
      return combine<float>(sums, others, count, operation);
    case ncclFloat64:
      return combine<double>(sums, others, count, operation);
    case ncclFloat16:
      return combine<fp16>(sums, others, count, operation);
    case ncclBfloat16:
      return combine<bf16>(sums, others, count, operation);
    case ncclInt32:
      return combine<std::int32_t>(sums, others, count, operation);
    case ncclInt64:
      return combine<std::int64_t>(sums, others, count, operation);
    case ncclUint32:
      return combine<std::uint32_t>(sums, others, count, operation);
    case ncclUint64:
      return combine<std::uint64_t>(sums, others, count, operation);
    default:
      return combine<std::uint8_t>(sums, others, count, operation);
  }
}

// One operation as it was called.
struct Operation {
  CallHeader header;
  int peer = -1;  // of a message
  bool sends = false;
  std::uintptr_t stream = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t in_bytes = 0, out_bytes = 0;
  Bytes in, out;  // copy of the input; result
  std::string text() const {
    return fmt::format("{} of {} elements", header.name, header.count);
  }
};

// Bytes on their way from or to one rank.
struct Piece {
  int rank;
  bool pushes;
  std::byte* data;
  std::size_t bytes, done = 0;
  CallHeader* expected = nullptr;  // of a pulled header
};

}  // namespace
}  // namespace trireme::test

using namespace trireme::test;

struct ncclComm {
  int rank = 0, size = 1;
  std::string path;
  SharedHeader* shared = nullptr;
  Ring* rings = nullptr;
  std::size_t mapped = 0;
  std::atomic<bool> is_aborted{false};
  bool is_made = false, blocks = true;
  std::vector<bool> is_connected;  // for messages, by rank
  int answers = 0;                 // "in progress" that are still to be given
  std::vector<std::shared_ptr<Operation>> pending;  // not issued yet
  std::uintptr_t stream = 0;

  Ring& ring(int from, int to) { return rings[from * size + to]; }
  bool move(Piece& piece);
  bool carry(std::vector<Piece>& pieces);
  void run(const std::vector<std::shared_ptr<Operation>>& call);
  void find_touched_memory(const Operation& operation) const;
  void finish(Operation& operation) const;
  void reduce(Operation& operation, const std::vector<Bytes>& inputs) const;
  void issue();
};

// Moves what there is room or bytes for; true where something moved.
bool ncclComm::move(Piece& piece) {
  Ring& ring = piece.pushes ? this->ring(rank, piece.rank) : this->ring(piece.rank, rank);
  const std::uint64_t written = ring.written.load(std::memory_order_acquire);
  const std::uint64_t read = ring.read.load(std::memory_order_acquire);
  const std::uint64_t there =
      piece.pushes ? Ring::kBytes - (written - read) : written - read;
  const std::uint64_t count = std::min<std::uint64_t>(there, piece.bytes - piece.done);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t place = ((piece.pushes ? written : read) + i) % Ring::kBytes;
    std::byte& mine = piece.data[piece.done + i];
    if (piece.pushes) {
      ring.data[place] = mine;
    } else {
      mine = ring.data[place];
    }
  }
  piece.done += count;
  if (piece.pushes) {
    ring.written.store(written + count, std::memory_order_release);
  } else {
    ring.read.store(read + count, std::memory_order_release);
  }
  return count > 0;
}

// Until all is done; false where the communicator was aborted, or what the others do does
// not match, which waits for ever.
bool ncclComm::carry(std::vector<Piece>& pieces) {
  bool matches = true;
  for (;;) {
    if (is_aborted) return false;
    bool moved = false;
    bool is_done = true;
    // Of one ring the pieces go in order.
    std::vector<bool> blocked_push(static_cast<std::size_t>(size)),
        blocked_pull(static_cast<std::size_t>(size));
    for (Piece& piece : pieces) {
      const auto peer = static_cast<std::size_t>(piece.rank);
      auto& blocked = piece.pushes ? blocked_push : blocked_pull;
      if (piece.done == piece.bytes) continue;
      if (blocked[peer] || !matches) {
        is_done = false;
        continue;
      }
      moved = move(piece) || moved;
      if (piece.done < piece.bytes) {
        blocked[peer] = true;
        is_done = false;
      } else if (piece.expected != nullptr) {
        CallHeader theirs;
        std::memcpy(&theirs, piece.data, sizeof(theirs));
        if (theirs == *piece.expected) continue;
        matches = false;
        is_done = false;
        fake_nccl().note(
            fmt::format("rank {} is in {} of {} elements, rank {} in {} of {}", rank,
                        piece.expected->name, piece.expected->count, piece.rank,
                        theirs.name, theirs.count));
      }
    }
    if (is_done) return true;
    if (!moved) std::this_thread::sleep_for(kNap);
  }
}

void ncclComm::reduce(Operation& operation, const std::vector<Bytes>& inputs) const {
  Bytes sums;
  for (int r = 0; r < size; ++r) {
    const Bytes& one = r == rank ? operation.in : inputs[static_cast<std::size_t>(r)];
    if (r == 0) {
      sums = one;
    } else {
      const auto type = static_cast<ncclDataType_t>(operation.header.type);
      combine(sums.data(), one.data(), sums.size() / bytes_of(type), type,
              static_cast<ncclRedOp_t>(operation.header.operation));
    }
  }
  const bool is_part = operation.out_bytes < sums.size();  // reduce-scatter
  const std::size_t offset =
      is_part ? operation.out_bytes * static_cast<std::size_t>(rank) : 0;
  operation.out.assign(
      sums.begin() + static_cast<std::ptrdiff_t>(offset),
      sums.begin() + static_cast<std::ptrdiff_t>(offset + operation.out_bytes));
}

// What a program did with the memory of an operation while that was under way.
void ncclComm::find_touched_memory(const Operation& operation) const {
  if (!std::all_of(operation.output, operation.output + operation.out_bytes,
                   [](std::byte byte) { return byte == kPoison; })) {
    fake_nccl().note("the output of " + operation.text() +
                     " was written while it was under way");
  }
  for (std::size_t i = 0; i < operation.in_bytes; ++i) {
    const std::byte* const at = operation.input + i;
    const bool is_output =
        operation.output <= at && at < operation.output + operation.out_bytes;
    if (is_output || *at == operation.in[i]) continue;
    fake_nccl().note("the input of " + operation.text() +
                     " was written while it was under way");
    return;
  }
}

void ncclComm::finish(Operation& operation) const {
  find_touched_memory(operation);
  if (operation.out_bytes > 0) {
    std::memcpy(operation.output, operation.out.data(), operation.out_bytes);
  }
}

// One collective, or messages that were begun together.
void ncclComm::run(const std::vector<std::shared_ptr<Operation>>& call) {
  static thread_local std::minstd_rand random(
      static_cast<unsigned>(std::hash<std::thread::id>()(std::this_thread::get_id())));
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 150));
  std::vector<Piece> pieces;
  std::vector<Bytes> headers;  // that are pulled
  std::vector<Bytes> inputs(static_cast<std::size_t>(size));
  headers.reserve(call.size() * static_cast<std::size_t>(size));
  const auto header = [&](Operation& operation, int peer, bool pushes) {
    auto* own_header = reinterpret_cast<std::byte*>(&operation.header);
    if (pushes) {
      pieces.push_back({peer, true, own_header, sizeof(CallHeader)});
      return;
    }
    headers.emplace_back(sizeof(CallHeader));
    pieces.push_back(
        {peer, false, headers.back().data(), sizeof(CallHeader), 0, &operation.header});
  };
  for (const auto& each : call) {
    Operation& operation = *each;
    const std::string name = operation.header.name;
    operation.out.resize(operation.out_bytes);
    if (operation.peer == rank) {  // a message to itself, within a group
      const auto other = std::ranges::find_if(call, [&](const auto& one) {
        return one->peer == rank && one->sends != operation.sends &&
               one->header.count == operation.header.count;
      });
      if (operation.sends) continue;
      if (other == call.end()) {
        fake_nccl().note("a message of a rank to itself without its other half");
      } else {
        operation.out = (*other)->in;
      }
      continue;
    }
    if (operation.peer >= 0) {
      header(operation, operation.peer, operation.sends);
      auto& bytes = operation.sends ? operation.in : operation.out;
      pieces.push_back({operation.peer, operation.sends, bytes.data(), bytes.size()});
      continue;
    }
    const bool is_root = name == "Broadcast" && operation.header.root == rank;
    const bool gathers = name == "AllGather";
    for (int r = 0; r < size; ++r) {
      const auto offset = operation.in_bytes * static_cast<std::size_t>(r);
      if (r == rank) {
        if (gathers)
          std::ranges::copy(operation.in,
                            operation.out.begin() + static_cast<std::ptrdiff_t>(offset));
        continue;
      }
      header(operation, r, true);
      header(operation, r, false);
      if (name != "Broadcast" || is_root) {
        pieces.push_back({r, true, operation.in.data(), operation.in.size()});
      }
      if (gathers) {
        pieces.push_back({r, false, operation.out.data() + offset, operation.in_bytes});
      } else if (name == "Broadcast") {
        if (operation.header.root == r) {
          pieces.push_back({r, false, operation.out.data(), operation.out.size()});
        }
      } else {
        Bytes& theirs = inputs[static_cast<std::size_t>(r)];
        theirs.resize(operation.in_bytes);
        pieces.push_back({r, false, theirs.data(), theirs.size()});
      }
    }
    if (is_root) operation.out = operation.in;
  }
  if (!carry(pieces)) {
    while (!is_aborted) std::this_thread::sleep_for(kNap);
    return;
  }
  for (const auto& each : call) {
    const std::string name = each->header.name;
    if (name == "AllReduce" || name == "ReduceScatter") reduce(*each, inputs);
    finish(*each);
  }
}

// What was called goes to the stream. Messages begun together are one call.
void ncclComm::issue() {
  std::vector<std::shared_ptr<Operation>> call;
  const auto add = [&] {
    if (call.empty()) return;
    auto& to = *reinterpret_cast<FakeStream*>(call.front()->stream);
    to.add([this, call] { run(call); });
    call.clear();
  };
  for (const auto& operation : std::exchange(pending, {})) {
    if (operation->peer < 0) add();
    call.push_back(operation);
    if (operation->peer < 0) add();
  }
  add();
}

namespace {

// Group calls of the thread that makes them.
struct Group {
  int depth = 0;
  std::vector<ncclComm*> communicators;
  std::vector<std::pair<ncclComm*, std::shared_ptr<Operation>>> operations;
};
Group& group() {
  static thread_local Group own_group;
  return own_group;
}

ncclResult_t refuse(const std::string& why) {
  fake_nccl().note(why);
  return ncclInvalidArgument;
}

// The program's own thread must not be where the library waits for other ranks.
const std::thread::id kMainThread = std::this_thread::get_id();

void wait_as_a_blocking_call(const std::string& what) {
  if (std::this_thread::get_id() != kMainThread) return;
  fake_nccl().note("the main thread waits for other ranks within a call of NCCL's: " +
                   what);
}

void connect(ncclComm* comm, const Operation& operation) {
  if (operation.peer < 0 || operation.peer == comm->rank) return;
  if (comm->is_connected[static_cast<std::size_t>(operation.peer)]) return;
  comm->is_connected[static_cast<std::size_t>(operation.peer)] = true;
  if (comm->blocks) wait_as_a_blocking_call("the first message to or from a rank");
}

void hand_over(ncclComm* comm,
               const std::vector<std::shared_ptr<Operation>>& operations) {
  for (const auto& operation : operations) connect(comm, *operation);
  const std::lock_guard<std::mutex> lock(state_mutex());
  comm->pending.insert(comm->pending.end(), operations.begin(), operations.end());
  comm->answers = comm->blocks ? 0 : fake_nccl().busy_answers.load();
  if (!comm->blocks) ++fake_nccl().threads;
  if (comm->answers == 0) comm->issue();
}

ncclResult_t call(ncclComm* comm, Operation operation, cudaStream_t stream) {
  const std::string text = operation.text();
  if (comm == nullptr || comm->is_aborted) return refuse(text + " after abort");
  if (stream == nullptr) return refuse(text + " on the stream of kernels");
  if (operation.peer >= comm->size) return refuse(text + ": no such rank");
  if (operation.header.type == ncclUint8 + 100) return refuse(text + ": no such type");
  operation.stream = reinterpret_cast<std::uintptr_t>(stream);
  if (comm->stream != 0 && comm->stream != operation.stream) {
    return refuse(text + " on another stream than before");
  }
  comm->stream = operation.stream;
  operation.in.assign(operation.input, operation.input + operation.in_bytes);
  if (operation.out_bytes > 0) {
    std::memset(operation.output, std::to_integer<int>(kPoison), operation.out_bytes);
  }
  auto shared = std::make_shared<Operation>(std::move(operation));
  if (group().depth > 0) {
    group().operations.emplace_back(comm, std::move(shared));
    return ncclSuccess;
  }
  hand_over(comm, {std::move(shared)});
  return comm->answers > 0 ? ncclInProgress : ncclSuccess;
}

Operation make(const char* name, const void* in, std::size_t in_count, void* out,
               std::size_t out_count, std::size_t count, ncclDataType_t type) {
  Operation operation;
  std::strncpy(operation.header.name, name, sizeof(operation.header.name) - 1);
  operation.header.count = count;
  operation.header.type = type;
  operation.input = static_cast<const std::byte*>(in);
  operation.output = static_cast<std::byte*>(out);
  operation.in_bytes = in_count * bytes_of(type);
  operation.out_bytes = out_count * bytes_of(type);
  return operation;
}

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b,
             std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

// ---- CUDA's runtime ----

namespace {

thread_local cudaError_t last_error_of_thread = cudaSuccess;

// As the runtime does, keeps what is no success until it is asked for.
cudaError_t answer(bool is_ready) {
  if (is_ready) return cudaSuccess;
  ++fake_nccl().not_ready;
  return last_error_of_thread = cudaErrorNotReady;
}

}  // namespace

int trireme::test::FakeNccl::last_error() {
  return last_error_of_thread;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error_of_thread, cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNotReady ? "device not ready" : "an error of the fake runtime";
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  *mode = cudaStreamCaptureModeGlobal;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  ++fake_nccl().streams;
  if (priority < 0) ++fake_nccl().high_streams;
  *stream = reinterpret_cast<cudaStream_t>(new FakeStream());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  --fake_nccl().streams;
  delete &own(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return answer(own(stream).is_idle());
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  ++fake_nccl().events;
  *event = reinterpret_cast<cudaEvent_t>(new FakeEvent());
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {  // one that is under way may be destroyed
  --fake_nccl().events;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FakeEvent& mine = own(event);
  std::int64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(state_mutex());
    number = ++mine.recorded;
  }
  if (stream == nullptr) {
    pass(mine, number);
  } else {
    own(stream).add([&mine, number] { pass(mine, number); });
  }
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FakeEvent& theirs = own(event);
  std::int64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(state_mutex());
    number = theirs.recorded;
  }
  if (stream == nullptr) {
    wait_for(theirs, number);  // kernels of a host run when they are launched
  } else {
    own(stream).add([&theirs, number] { wait_for(theirs, number); });
  }
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard<std::mutex> lock(state_mutex());
  return answer(own(event).past == own(event).recorded);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                 cudaEvent_t end) {
  const std::lock_guard<std::mutex> lock(state_mutex());
  for (const FakeEvent* event : {&own(begin), &own(end)}) {
    if (event->recorded == 0) return cudaErrorInvalidResourceHandle;
    if (event->past != event->recorded) return cudaErrorNotReady;
  }
  const std::chrono::duration<float, std::milli> passed = own(end).time - own(begin).time;
  *milliseconds = passed.count();
  return cudaSuccess;
}

// ---- NCCL ----

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return kTexts[result];
}
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  std::memset(id->internal, 0, sizeof(id->internal));
  const char* directory = std::getenv("TMPDIR");
  fmt::format_to_n(
      id->internal, sizeof(id->internal) - 1, "{}/fake_nccl.{}.{:08x}{:08x}",
      directory != nullptr && std::strlen(directory) < 80 ? directory : "/tmp",
      ::getpid(), random(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const auto failing = static_cast<ncclResult_t>(fake_nccl().failing_start.load());
  if (failing != ncclSuccess) return failing;
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  const bool blocks =
      blocking != nullptr ? std::strcmp(blocking, "0") != 0 : config->blocking != 0;
  if (size < 1 || size > 64 || rank < 0 || rank >= size)
    return refuse("ranks of a start");
  auto* const made = new ncclComm();
  made->rank = rank;
  made->size = size;
  made->blocks = blocks;
  made->is_connected.resize(static_cast<std::size_t>(size));
  made->path = id.internal;
  made->mapped = sizeof(SharedHeader) + sizeof(Ring) * static_cast<std::size_t>(size) *
                                            static_cast<std::size_t>(size);
  const int file = ::open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(made->mapped)) != 0) {
    return ncclSystemError;
  }
  void* memory =
      ::mmap(nullptr, made->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return ncclSystemError;
  made->shared = static_cast<SharedHeader*>(memory);
  made->rings =
      reinterpret_cast<Ring*>(static_cast<std::byte*>(memory) + sizeof(SharedHeader));
  if (made->shared->has[rank].exchange(1) != 0) {
    return refuse("two ranks of one number in a communicator");
  }
  ++made->shared->arrived;
  ++fake_nccl().communicators;
  *comm = made;
  if (!blocks) return ncclInProgress;
  wait_as_a_blocking_call("a communicator is made");
  while (made->shared->arrived < size) std::this_thread::sleep_for(kNap);
  ::unlink(made->path.c_str());
  made->is_made = true;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr) return refuse("ncclCommGetAsyncError of nothing");
  *error = static_cast<ncclResult_t>(fake_nccl().asynchronous_error.load());
  if (*error != ncclSuccess) return ncclSuccess;
  const std::lock_guard<std::mutex> lock(state_mutex());
  if (!comm->is_made) {
    comm->is_made = comm->shared->arrived == comm->size;
    if (comm->is_made) ::unlink(comm->path.c_str());
  } else if (comm->answers > 0 && --comm->answers == 0) {
    comm->issue();
  }
  if (!comm->is_made || comm->answers > 0) *error = ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm->blocks) wait_as_a_blocking_call("the end of a communicator");
  return comm->is_aborted ? refuse("ncclCommFinalize after abort") : ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->is_aborted) return refuse("ncclCommDestroy after abort");
  --fake_nccl().communicators;
  ::munmap(comm->shared, comm->mapped);
  delete comm;
  return ncclSuccess;
}
// Nobody frees what a thread may still be looking at; calls that come later are found.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm->is_aborted.exchange(true)) return refuse("ncclCommAbort twice");
  ::unlink(comm->path.c_str());
  --fake_nccl().communicators;
  ++fake_nccl().aborted;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group().depth == 0) return refuse("ncclGroupEnd without ncclGroupStart");
  if (--group().depth > 0) return ncclSuccess;
  auto operations = std::exchange(group().operations, {});
  ncclResult_t result = ncclSuccess;
  while (!operations.empty()) {
    ncclComm* const comm = operations.front().first;
    std::vector<std::shared_ptr<Operation>> mine;
    std::erase_if(operations, [&](auto& each) {
      if (each.first != comm) return false;
      mine.push_back(each.second);
      return true;
    });
    hand_over(comm, mine);
    if (comm->answers > 0) result = ncclInProgress;
  }
  return result;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count,
                           ncclDataType_t type, ncclRedOp_t operation, ncclComm_t comm,
                           cudaStream_t stream) {
  Operation made = make("AllReduce", in, count, out, count, count, type);
  made.header.operation = operation;
  if (in != out && overlap(made.input, made.in_bytes, made.output, made.out_bytes)) {
    return refuse("AllReduce: input and output overlap and are not the same");
  }
  return call(comm, std::move(made), stream);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  const auto ranks = static_cast<std::size_t>(comm->size);
  Operation made = make("ReduceScatter", in, count * ranks, out, count, count, type);
  made.header.operation = operation;
  const std::byte* const block =
      made.input + made.out_bytes * static_cast<std::size_t>(comm->rank);
  if (made.output != block &&
      overlap(made.input, made.in_bytes, made.output, made.out_bytes)) {
    return refuse("ReduceScatter: the output lies in the input and is not its block");
  }
  return call(comm, std::move(made), stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  const auto ranks = static_cast<std::size_t>(comm->size);
  Operation made = make("AllGather", in, count, out, count * ranks, count, type);
  const std::byte* const block =
      made.output + made.in_bytes * static_cast<std::size_t>(comm->rank);
  if (made.input != block &&
      overlap(made.input, made.in_bytes, made.output, made.out_bytes)) {
    return refuse("AllGather: the input lies in the output and is not its block");
  }
  return call(comm, std::move(made), stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const bool is_root = comm->rank == root;
  Operation made = make("Broadcast", in, is_root ? count : 0, out, count, count, type);
  made.header.root = root;
  return call(comm, std::move(made), stream);
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  Operation made = make("message", in, count, nullptr, 0, count, type);
  made.peer = peer;
  made.sends = true;
  return call(comm, std::move(made), stream);
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  Operation made = make("message", nullptr, 0, out, count, count, type);
  made.peer = peer;
  return call(comm, std::move(made), stream);
}
