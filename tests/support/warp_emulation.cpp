// tests/support/warp_emulation.cpp — see warp_emulation.hpp.
#undef _FORTIFY_SOURCE  // its longjmp() takes a change of stacks for an error
#include "support/warp_emulation.hpp"

#include <setjmp.h>
#include <ucontext.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "kernels/cuda/boxes.hpp"
#include "kernels/cuda/warp.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::test {
namespace {

using cuda::kWarpLanes;

// Where threads of a warp meet.
enum class Meeting { none, sync_warp, shuffle, any, matrices, transposed, bf16, fp16 };

// What a thread brings to a meeting, and what it takes from there.
struct Payload {
  float value = 0;
  int mask = 0;
  const void* row = nullptr;
  std::uint32_t* words = nullptr;  // four
  const std::uint32_t* a = nullptr;
  std::uint32_t b[2] = {};
  float* c = nullptr;
};

struct Copy {
  std::byte* to;
  std::size_t count;
  std::uint8_t bytes[16];
};

// A box on its way, and the matrix that it is of.
struct BoxCopy {
  std::byte* to;
  cuda::BoxMap map;
  int row, column;
};

// A barrier in shared memory that counts the bytes of copies.
struct CopyBarrier {
  int parity = 0;  // of the phase that goes on
  bool expects = false;
  int expected = 0;           // bytes
  bool is_waited_for = true;  // what was expected last, where that is any
  std::vector<BoxCopy> begun;

  // Ends the phase where all has come that was expected.
  void settle();
};

enum class State { runs, at_warp, at_block, at_counter, at_words, at_phase, done };

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

// A stack, which the address sanitizer is told of when threads change.
struct Stack {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* kept = nullptr;  // by the sanitizer

  // Leaves this one, for good or until arrive().
  void leave([[maybe_unused]] const Stack& to, [[maybe_unused]] bool for_good = false) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(for_good ? nullptr : &kept, to.bottom, to.bytes);
#endif
  }
  // Behind it; `from` learns where the stack lies that was left.
  void arrive([[maybe_unused]] Stack& from) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(kept, &from.bottom, &from.bytes);
#endif
  }
};

// Where a thread goes on. A thread is begun by setcontext() and then changed by
// longjmp(), which asks the kernel for nothing: swapcontext() asks twice, for signals
// that nobody blocks here. Sanitizers know of swapcontext() alone.
struct Context {
  ucontext_t first;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  void go_to(Context& other) {
    ::swapcontext(&first, &other.first);
  }
#else
  jmp_buf next;
  bool is_begun = false;

  void go_to(Context& other) {
    is_begun = true;
    if (_setjmp(next) != 0) return;
    if (other.is_begun) _longjmp(other.next, 1);
    ::setcontext(&other.first);
  }
#endif
};

// What was stored for other blocks, by address.
using Stores = std::map<cuda::FloatQuad*, cuda::FloatQuad>;

struct Thread {
  Context context;
  std::unique_ptr<char[]> stack;
  Stack own;
  State state = State::runs;
  Meeting meeting = Meeting::none;
  Payload payload;
  std::vector<Copy> begun;
  std::vector<std::vector<Copy>> groups;
  Stores stored;  // since the last barrier
  Stores passed;  // before it
  const std::int32_t* counter = nullptr;
  std::int32_t awaited = 0;
  const cuda::Quad* words = nullptr;  // that are to be others than
  cuda::Quad seen;
  CopyBarrier* barrier = nullptr;  // whose phase is to be another than
  int parity = 0;

  bool waits() const {
    return state == State::at_counter || state == State::at_words ||
           state == State::at_phase;
  }
  // What it waits for is there.
  bool has_waited() const {
    if (state == State::at_counter) return *counter == awaited;
    if (state == State::at_words) return std::memcmp(words, &seen, sizeof(seen)) != 0;
    barrier->settle();
    return barrier->parity != parity;
  }
};

// What emulated_box_map() wrote.
struct BoxedMatrix {
  static constexpr std::uint64_t kMark = 0x7472697265'6d6521;
  std::uint64_t mark;
  const std::uint16_t* begin;
  std::int64_t rows, columns;
};

// As the device does: quads of a row by the bits of their addresses (swizzle of 128
// bytes), and zeros for what the matrix does not have.
void make_copy(const BoxCopy& copy) {
  BoxedMatrix matrix;
  std::memcpy(&matrix, copy.map.word, sizeof(matrix));
  for (int r = 0; r < cuda::kBoxRows; ++r) {
    for (int c = 0; c < cuda::kBoxColumns; ++c) {
      const std::int64_t row = copy.row + r, column = copy.column + c;
      const bool is_there =
          row >= 0 && row < matrix.rows && column >= 0 && column < matrix.columns;
      const std::uint16_t value =
          is_there ? matrix.begin[row * matrix.columns + column] : std::uint16_t{0};
      auto at = reinterpret_cast<std::uintptr_t>(copy.to) +
                sizeof(value) * static_cast<std::size_t>(r * cuda::kBoxColumns + c);
      at ^= (at >> 3) & 0x70;
      std::memcpy(reinterpret_cast<std::byte*>(at), &value, sizeof(value));
    }
  }
}

void CopyBarrier::settle() {
  const int come = static_cast<int>(begun.size()) * cuda::kBoxBytes;
  if (!expects || come < expected) return;
  TRIREME_REQUIRE(come == expected,
                  "a barrier expects {} bytes, and {} are copied: its phases are no "
                  "longer those of the copies",
                  expected, come);
  std::ranges::for_each(begun, make_copy);
  begun.clear();
  expects = false;
  parity ^= 1;
}

// How far a block could go.
enum class Progress { moved, waits, done };

class Block {
 public:
  Block(const EmulatedGrid& grid, const std::function<void()>& kernel)
      : grid_(grid),
        kernel_(kernel),
        threads_(static_cast<std::size_t>(grid.threads)),
        shared_((grid.shared_bytes + sizeof(cuda::Quad) - 1) / sizeof(cuda::Quad) + 1) {
    TRIREME_REQUIRE(grid.threads % kWarpLanes == 0, "a block has whole warps");
    for (Thread& thread : threads_) {
      thread.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    }
  }

  void begin(int index) {
    index_ = index;
    std::memset(shared(), 0xff, grid_.shared_bytes);
    barriers_.clear();
    maps_.clear();
    for (std::size_t i = 0; i < threads_.size(); ++i) begin_thread(i);
  }

  // Lets one warp go as far as it can.
  Progress step() {
    const int warps = grid_.threads / kWarpLanes;
    for (int w = 0; w < warps; ++w) {
      const int warp = grid_.order == WarpOrder::first_to_last ? w : warps - 1 - w;
      if (advance(static_cast<std::size_t>(warp))) return Progress::moved;
    }
    if (count(State::done) == threads_.size()) {
      pass_barrier();
      publish();
      TRIREME_REQUIRE(std::ranges::all_of(barriers_,
                                          [](const auto& barrier) {
                                            return barrier.second.is_waited_for;
                                          }),
                      "block {} ends while boxes are on their way", index_);
      return Progress::done;
    }
    if (std::ranges::any_of(threads_, &Thread::waits)) return Progress::waits;
    TRIREME_REQUIRE(count(State::at_block) == threads_.size(),
                    "block {}: some threads wait for others that are done, or wait "
                    "elsewhere",
                    index_);
    pass_barrier();
    for (Thread& thread : threads_) thread.state = State::runs;
    return Progress::moved;
  }

  // What threads stored before the last barrier is seen by all.
  void publish() {
    for (Thread& thread : threads_) {
      for (const auto& [to, value] : thread.passed) *to = value;
      thread.passed.clear();
    }
  }

  bool is_late() { return ++questions_ % 2 == 0; }

  int index() const { return index_; }
  // Of tensor cores, in all blocks that this one has been.
  std::int64_t products() const { return products_; }
  int thread() const { return static_cast<int>(current_); }
  // At an odd multiple of 16 bytes.
  std::byte* shared() {
    const auto begin = reinterpret_cast<std::uintptr_t>(shared_.data());
    const bool is_even = begin / sizeof(cuda::Quad) % 2 == 0;
    return reinterpret_cast<std::byte*>(shared_.data() + (is_even ? 1 : 0));
  }
  Thread& self() { return threads_[current_]; }

  void check_shared(const void* address, std::size_t bytes) {
    const auto* at = static_cast<const std::byte*>(address);
    TRIREME_REQUIRE(at >= shared() && at + bytes <= shared() + grid_.shared_bytes,
                    "thread {} of block {}: {} bytes at {} of {} bytes of shared memory",
                    current_, index_, bytes, at - shared(), grid_.shared_bytes);
    TRIREME_REQUIRE(
        reinterpret_cast<std::uintptr_t>(at) % bytes == 0,
        "thread {} of block {}: byte {} of shared memory is no multiple of {}", current_,
        index_, at - shared(), bytes);
  }

  void begin_barrier(const std::uint64_t* at) {
    check_shared(at, sizeof(*at));
    barriers_[at] = {};
  }
  void take_map(const cuda::BoxMap* map) { maps_.insert(map); }
  // A barrier of the block's between the two is not asked for.
  void require_taken(const cuda::BoxMap* map) const {
    TRIREME_REQUIRE(
        maps_.contains(map),
        "thread {} of block {}: the matrix's map was not taken before a box is "
        "copied",
        current_, index_);
  }
  CopyBarrier& barrier(const std::uint64_t* at) {
    const auto found = barriers_.find(at);
    TRIREME_REQUIRE(found != barriers_.end(),
                    "thread {} of block {}: no barrier was begun at byte {} of shared "
                    "memory",
                    current_, index_, reinterpret_cast<const std::byte*>(at) - shared());
    return found->second;
  }

  void meet(Meeting meeting, const Payload& payload) {
    Thread& me = self();
    me.meeting = meeting;
    me.payload = payload;
    me.state = State::at_warp;
    pause();
  }
  void wait_for_block() {
    self().state = State::at_block;
    pause();
  }
  void wait_for_counter(const std::int32_t* counter, std::int32_t value) {
    self().counter = counter;
    self().awaited = value;
    self().state = State::at_counter;
    pause();
  }
  void wait_for_words(const cuda::Quad* words, const cuda::Quad& seen) {
    self().words = words;
    self().seen = seen;
    self().state = State::at_words;
    pause();
  }
  void wait_for_phase(CopyBarrier& barrier, int parity) {
    self().barrier = &barrier;
    self().parity = parity;
    self().state = State::at_phase;
    pause();
  }
  // The thread that waits longest, for messages.
  const Thread& waiting() const {
    return *std::find_if(threads_.begin(), threads_.end(),
                         [](const Thread& thread) { return thread.waits(); });
  }

 private:
  static void enter(unsigned high, unsigned low) {
    const auto address = (static_cast<std::uint64_t>(high) << 32) | low;
    reinterpret_cast<Block*>(address)->be_thread();
  }
  void be_thread() {
    self().own.arrive(scheduler_stack_);
    try {
      kernel_();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    self().state = State::done;
    pause(true);
  }
  void begin_thread(std::size_t i) {
    Thread& thread = threads_[i];
    thread.state = State::runs;
    thread.begun.clear();
    thread.groups.clear();
    thread.stored.clear();
    thread.passed.clear();
    thread.context = {};
    ucontext_t& context = thread.context.first;
    ::getcontext(&context);
    context.uc_stack.ss_sp = thread.stack.get();
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    thread.own = {thread.stack.get(), kStackBytes, nullptr};
    const auto address = reinterpret_cast<std::uint64_t>(this);
    ::makecontext(&context, reinterpret_cast<void (*)()>(&Block::enter), 2,
                  static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  }
  void pause(bool for_good = false) {
    Stack& mine = self().own;
    mine.leave(scheduler_stack_, for_good);
    self().context.go_to(scheduler_);
    mine.arrive(scheduler_stack_);
  }

  void pass_barrier() {
    for (Thread& thread : threads_) {
      for (const auto& [to, value] : thread.stored) thread.passed[to] = value;
      thread.stored.clear();
    }
  }
  std::size_t count(State state) const {
    return static_cast<std::size_t>(
        std::count_if(threads_.begin(), threads_.end(),
                      [=](const Thread& thread) { return thread.state == state; }));
  }

  bool advance(std::size_t warp) {
    bool has_moved = false;
    for (;;) {
      bool moves = false;
      for (int lane = 0; lane < kWarpLanes; ++lane) {
        const std::size_t i = warp * kWarpLanes + static_cast<std::size_t>(lane);
        Thread& thread = threads_[i];
        if (thread.waits() && thread.has_waited()) thread.state = State::runs;
        if (thread.state != State::runs) continue;
        current_ = i;
        Stack mine;
        mine.leave(thread.own);
        scheduler_.go_to(thread.context);
        mine.arrive(thread.own);
        if (failure_) std::rethrow_exception(failure_);
        moves = true;
      }
      Thread* const lanes = &threads_[warp * kWarpLanes];
      const auto has_any = [&](auto holds) {
        return std::any_of(lanes, lanes + kWarpLanes, holds);
      };
      // Lanes that wait for other blocks are waited for.
      if (has_any([](const Thread& lane) { return lane.state == State::at_warp; }) &&
          !has_any([](const Thread& lane) { return lane.waits(); })) {
        hold_meeting(lanes);
        moves = true;
      }
      if (!moves) return has_moved;
      has_moved = true;
    }
  }

  void hold_meeting(Thread* lanes) {
    const Meeting meeting = lanes[0].meeting;
    for (int l = 0; l < kWarpLanes; ++l) {
      TRIREME_REQUIRE(lanes[l].state == State::at_warp && lanes[l].meeting == meeting,
                      "block {}: lane {} of a warp has come to another instruction than "
                      "lane 0",
                      index_, l);
    }
    switch (meeting) {
      case Meeting::shuffle:
        shuffle(lanes);
        break;
      case Meeting::any:
        any(lanes);
        break;
      case Meeting::matrices:
      case Meeting::transposed:
        load(lanes, meeting == Meeting::transposed);
        break;
      case Meeting::bf16:
        multiply<bf16>(lanes);
        break;
      case Meeting::fp16:
        multiply<fp16>(lanes);
        break;
      case Meeting::sync_warp:
      case Meeting::none:
        break;
    }
    for (int l = 0; l < kWarpLanes; ++l) lanes[l].state = State::runs;
  }

  static void shuffle(Thread* lanes) {
    float values[kWarpLanes];
    for (int l = 0; l < kWarpLanes; ++l) values[l] = lanes[l].payload.value;
    for (int l = 0; l < kWarpLanes; ++l) {
      lanes[l].payload.value = values[l ^ lanes[l].payload.mask];
    }
  }
  static void any(Thread* lanes) {
    const bool holds = std::any_of(lanes, lanes + kWarpLanes, [](const Thread& lane) {
      return lane.payload.value != 0;
    });
    for (int l = 0; l < kWarpLanes; ++l) lanes[l].payload.value = holds ? 1 : 0;
  }
  static void load(Thread* lanes, bool transposed) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t x[8][8];
      for (int row = 0; row < 8; ++row) {
        std::memcpy(x[row], lanes[8 * matrix + row].payload.row, sizeof(x[row]));
      }
      for (int l = 0; l < kWarpLanes; ++l) {
        const int g = l / 4, t = 2 * (l % 4);
        const std::uint32_t low = transposed ? x[t][g] : x[g][t];
        const std::uint32_t high = transposed ? x[t + 1][g] : x[g][t + 1];
        lanes[l].payload.words[matrix] = low | high << 16;
      }
    }
  }
  template <class T>
  static float half_of(std::uint32_t word, int half) {
    T x;
    x.bits = static_cast<std::uint16_t>(word >> (16 * half));
    return static_cast<float>(x);
  }
  template <class T>
  void multiply(Thread* lanes) {
    ++products_;
    float a[16][16], b[16][8];
    for (int l = 0; l < kWarpLanes; ++l) {
      const int g = l / 4, t = l % 4;
      for (int i = 0; i < 2; ++i) {
        for (int r = 0; r < 4; ++r) {
          a[g + r % 2 * 8][2 * t + i + r / 2 * 8] = half_of<T>(lanes[l].payload.a[r], i);
        }
        for (int r = 0; r < 2; ++r) {
          b[2 * t + i + 8 * r][g] = half_of<T>(lanes[l].payload.b[r], i);
        }
      }
    }
    for (int l = 0; l < kWarpLanes; ++l) {
      float* const c = lanes[l].payload.c;
      for (int i = 0; i < 4; ++i) {
        const int row = l / 4 + i / 2 * 8, column = 2 * (l % 4) + i % 2;
        for (int k = 0; k < 16; ++k) c[i] += a[row][k] * b[k][column];
      }
    }
  }

  const EmulatedGrid grid_;
  const std::function<void()>& kernel_;
  std::vector<Thread> threads_;
  std::vector<cuda::Quad> shared_;
  std::map<const std::uint64_t*, CopyBarrier> barriers_;
  std::set<const cuda::BoxMap*> maps_;  // that were taken
  Context scheduler_;
  Stack scheduler_stack_;
  std::size_t current_ = 0;
  int index_ = 0;
  std::int64_t products_ = 0;
  int questions_ = 0;
  std::exception_ptr failure_;
};

// The block whose threads run.
thread_local Block* block = nullptr;

}  // namespace

std::int64_t run_emulated(const EmulatedGrid& grid, const std::function<void()>& kernel) {
  std::vector<std::unique_ptr<Block>> under_way, resting;
  int begun = 0;
  std::minstd_rand engine;
  const auto begin_one = [&] {
    if (resting.empty()) resting.push_back(std::make_unique<Block>(grid, kernel));
    under_way.push_back(std::move(resting.back()));
    resting.pop_back();
    const bool forwards = grid.order == WarpOrder::first_to_last;
    under_way.back()->begin(forwards ? begun : grid.blocks - 1 - begun);
    ++begun;
  };
  for (;;) {
    while (begun < grid.blocks &&
           under_way.size() < static_cast<std::size_t>(grid.blocks_under_way)) {
      begin_one();
    }
    if (under_way.empty()) {
      return std::accumulate(resting.begin(), resting.end(), std::int64_t{0},
                             [](std::int64_t sum, const std::unique_ptr<Block>& of) {
                               return sum + of->products();
                             });
    }
    bool has_moved = false;
    std::shuffle(under_way.begin(), under_way.end(), engine);
    for (std::size_t i = 0; i < under_way.size() && !has_moved; ++i) {
      block = under_way[i].get();
      const Progress progress = block->step();
      has_moved = progress != Progress::waits;
      if (progress == Progress::done) {
        resting.push_back(std::move(under_way[i]));
        under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (has_moved) continue;
    const Thread& thread = under_way.front()->waiting();
    TRIREME_REQUIRE(thread.state != State::at_phase,
                    "block {} waits for copies that nobody began, and so do all that are "
                    "under way",
                    under_way.front()->index());
    TRIREME_REQUIRE(thread.state == State::at_counter,
                    "block {} waits for words that nobody stores, and so do all that are "
                    "under way",
                    under_way.front()->index());
    TRIREME_REQUIRE(
        has_moved,
        "block {} waits for {} where {} was published, and so do all that are "
        "under way",
        under_way.front()->index(), thread.awaited, *thread.counter);
  }
}

cuda::BoxMap emulated_box_map(const std::uint16_t* begin, int rows, int columns) {
  // As the driver wants it.
  TRIREME_REQUIRE(
      reinterpret_cast<std::uintptr_t>(begin) % 16 == 0 && columns % 8 == 0,
      "a matrix whose boxes are copied has rows from multiples of 16 bytes on");
  const BoxedMatrix matrix{BoxedMatrix::kMark, begin, rows, columns};
  cuda::BoxMap map = {};
  std::memcpy(map.word, &matrix, sizeof(matrix));
  return map;
}

}  // namespace trireme::test

namespace trireme::cuda {

using test::block;
using test::Copy;
using test::Meeting;
using test::Payload;

int thread_index() {
  return block->thread();
}
int block_index() {
  return block->index();
}
void sync_block() {
  block->wait_for_block();
}
void sync_warp() {
  block->meet(Meeting::sync_warp, {});
}
std::byte* shared_memory() {
  return block->shared();
}
std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(shared));
}
float shuffle_xor(float x, int mask) {
  block->meet(Meeting::shuffle, {.value = x, .mask = mask});
  return block->self().payload.value;
}
float shuffle(float x, int from) {
  return shuffle_xor(x, lane_index() ^ from);
}
bool any_of_warp(bool holds) {
  block->meet(Meeting::any, {.value = holds ? 1.0f : 0.0f});
  return block->self().payload.value != 0;
}

namespace {
void copy_async(void* shared, const void* global, std::size_t bytes, bool is_there) {
  block->check_shared(shared, bytes);
  TRIREME_REQUIRE(reinterpret_cast<std::uintptr_t>(global) % bytes == 0,
                  "thread {}: {} bytes are read from no multiple of {}", block->thread(),
                  bytes, bytes);
  Copy copy{static_cast<std::byte*>(shared), bytes, {}};
  if (is_there) std::memcpy(copy.bytes, global, bytes);
  std::memset(shared, 0xff, bytes);
  block->self().begun.push_back(copy);
}
}  // namespace
void copy_quad_async(void* shared, const void* global, bool is_there) {
  copy_async(shared, global, 16, is_there);
}
void copy_word_async(void* shared, const void* global, bool is_there) {
  copy_async(shared, global, 4, is_there);
}
void commit_copies() {
  auto& self = block->self();
  self.groups.push_back(std::exchange(self.begun, {}));
}
void wait_for_copies_but(int left) {
  auto& groups = block->self().groups;
  while (groups.size() > static_cast<std::size_t>(left)) {
    for (const Copy& copy : groups.front()) {
      std::memcpy(copy.to, copy.bytes, copy.count);
    }
    groups.erase(groups.begin());
  }
}

void begin_barrier(std::uint64_t* barrier) {
  block->begin_barrier(barrier);
}
void take_map(const BoxMap* map) {
  block->take_map(map);
}
void expect_bytes(std::uint64_t* barrier, int bytes) {
  test::CopyBarrier& of = block->barrier(barrier);
  of.settle();
  TRIREME_REQUIRE(!of.expects && of.is_waited_for,
                  "thread {}: nobody has waited for the copies before", block->thread());
  of.expects = true;
  of.expected = bytes;
  of.is_waited_for = bytes == 0;
}
void copy_box_async(void* shared, const BoxMap* map, int row, int column,
                    std::uint64_t* barrier) {
  block->check_shared(shared, kBoxBytes);
  block->require_taken(map);
  test::BoxedMatrix matrix;
  std::memcpy(&matrix, map->word, sizeof(matrix));
  TRIREME_REQUIRE(matrix.mark == test::BoxedMatrix::kMark,
                  "thread {}: no map of a matrix", block->thread());
  std::memset(shared, 0xff, kBoxBytes);
  block->barrier(barrier).begun.push_back(
      {static_cast<std::byte*>(shared), *map, row, column});
}
void wait_for_phase(std::uint64_t* barrier, int parity) {
  test::CopyBarrier& of = block->barrier(barrier);
  of.settle();
  of.is_waited_for = true;
  if (of.parity == parity) block->wait_for_phase(of, parity);
}

void load_matrices(const void* row, std::uint32_t (&to)[4]) {
  block->check_shared(row, 16);
  block->meet(Meeting::matrices, {.row = row, .words = to});
}
void load_transposed(const void* row, std::uint32_t (&to)[4]) {
  block->check_shared(row, 16);
  block->meet(Meeting::transposed, {.row = row, .words = to});
}

template <Element kElement>
void multiply_add(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  float (&c)[4]) {
  block->meet(kElement == Element::bf16 ? Meeting::bf16 : Meeting::fp16,
              {.a = a, .b = {b0, b1}, .c = c});
}
template void multiply_add<Element::bf16>(const std::uint32_t (&)[4], std::uint32_t,
                                          std::uint32_t, float (&)[4]);
template void multiply_add<Element::fp16>(const std::uint32_t (&)[4], std::uint32_t,
                                          std::uint32_t, float (&)[4]);

namespace {
template <Element kElement>
using Number = std::conditional_t<kElement == Element::bf16, bf16, fp16>;
}  // namespace

template <Element kElement>
std::uint32_t pack(float low, float high) {
  return Number<kElement>(low).bits |
         static_cast<std::uint32_t>(Number<kElement>(high).bits) << 16;
}
template <Element kElement>
float low_of(std::uint32_t both) {
  Number<kElement> x;
  x.bits = static_cast<std::uint16_t>(both);
  return static_cast<float>(x);
}
template <Element kElement>
float high_of(std::uint32_t both) {
  return low_of<kElement>(both >> 16);
}
template std::uint32_t pack<Element::bf16>(float, float);
template std::uint32_t pack<Element::fp16>(float, float);
template float low_of<Element::bf16>(std::uint32_t);
template float low_of<Element::fp16>(std::uint32_t);
template float high_of<Element::bf16>(std::uint32_t);
template float high_of<Element::fp16>(std::uint32_t);

float power_of_2(float x) {
  return std::exp2(x);
}
float logarithm(float x) {
  return std::log(x);
}
float exponential(float x) {
  return kernels::vector_exp(x);
}
float quotient(float a, float b) {
  return a / b;
}
float square_root(float x) {
  return std::sqrt(x);
}
float multiply_add(float a, float b, float c) {
  return kernels::multiply_add(a, b, c);
}
std::uint32_t word_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
float float_of(std::uint32_t word) {
  return std::bit_cast<float>(word);
}
void store_word(std::uint32_t word, std::uint32_t* to) {
  *to = word;
}
void store_pair(std::uint32_t first, std::uint32_t second, std::uint32_t* to) {
  to[0] = first;
  to[1] = second;
}
Quad peek(const Quad* from) {
  return *from;
}
Quad peek_again(const Quad* from, const Quad& seen) {
  if (std::memcmp(from, &seen, sizeof(seen)) == 0) block->wait_for_words(from, seen);
  return *from;
}
FloatQuad load_from_others(const FloatQuad* from) {
  // A thread sees what it stored itself.
  const auto& self = block->self();
  for (const auto* stores : {&self.stored, &self.passed}) {
    const auto found = stores->find(const_cast<FloatQuad*>(from));
    if (found != stores->end()) return found->second;
  }
  return *from;
}
void store_for_others(const FloatQuad& x, FloatQuad* to) {
  block->self().stored[to] = x;
}
// Who asks early is told every other time that it is not there yet.
bool is_published(const std::int32_t* counter, std::int32_t value) {
  return block->is_late() && *counter == value;
}
void wait_for(const std::int32_t* counter, std::int32_t value) {
  if (*counter != value) block->wait_for_counter(counter, value);
}
void publish(std::int32_t* counter, std::int32_t value) {
  block->publish();
  *counter = value;
}
std::int32_t take_ticket(std::int32_t* counter) {
  return (*counter)++;
}

}  // namespace trireme::cuda
