// base/exec.hpp — where kernels run: Exec (one Kokkos execution-space instance, one CUDA
// stream), the View aliases, and the launches every kernel goes through.
//
// Launches are asynchronous with respect to the host and ordered within one Exec; nothing
// fences implicitly. An Exec may be *shape-only*: launches are then skipped, so that the
// code of a training step, run on Views without memory, tells how much workspace it
// needs; and counted, where it has a Tally, so that it tells what it would compute and
// send. It has no instance of an execution space: plans are made where Kokkos has not
// begun, and where there is no GPU. Where its timers have a profile, each launch that
// runs is recorded there.
#ifndef TRIREME_BASE_EXEC_HPP_
#define TRIREME_BASE_EXEC_HPP_

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/tally.hpp"
#include "base/timers.hpp"
#include "base/types.hpp"

namespace trireme {

using ExecSpace = Kokkos::DefaultExecutionSpace;
using DeviceMemory = ExecSpace::memory_space;

// Views that do not own what they show: slices of a slab, of an arena, of a host array.
template <class Data>
using DeviceView = Kokkos::View<Data, Kokkos::LayoutRight, DeviceMemory,
                                Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class T>
using View0 = DeviceView<T>;
template <class T>
using View1 = DeviceView<T*>;
template <class T>
using View2 = DeviceView<T**>;
template <class T>
using View3 = DeviceView<T***>;

// An allocation: only slabs, arenas and set-up code own memory.
template <class T>
using DeviceArray = Kokkos::View<T*, Kokkos::LayoutRight, DeviceMemory>;
template <class T>
using HostArray = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace>;

// Bytes of all elements of these Views: by their extents, as size() is 0 for a View
// without memory.
template <class... Views>
index_t bytes_of(const Views&... views) {
  const auto bytes = [](const auto& view) {
    auto product = static_cast<index_t>(sizeof(*view.data()));
    for (int r = 0, rank = static_cast<int>(view.rank()); r < rank; ++r) {
      product *= static_cast<index_t>(view.extent(r));
    }
    return product;
  };
  return (bytes(views) + ...);
}

// What a vendor library keeps per queue (a cuBLASLt handle, plans, its workspace).
class LibraryState {
 public:
  virtual ~LibraryState() = default;
};

// What is done between launches while other things are under way (messages that nobody
// else moves). Quick; called often, by the thread that launches.
class IdleWork {
 public:
  virtual ~IdleWork() = default;
  virtual void run() = 0;
};

namespace detail {
// An instance of the host's space that has the calling thread alone; where there is no
// such thing, what it is given. A template, so that nothing of it is asked of a GPU.
template <class Space>
Space one_thread_of(const Space& space) {
#ifdef KOKKOS_ENABLE_OPENMP
  if constexpr (std::is_same_v<Space, Kokkos::OpenMP>) return Space(1);
#endif
  return space;
}
}  // namespace detail

class Exec {
 public:
  Exec() : space_(std::in_place) {}
  explicit Exec(ExecSpace space) : space_(space) {}

  // An Exec on which launches do nothing, but are counted where there is a tally, which
  // must live as long as the Exec and its copies.
  static Exec shape_only() { return Exec(std::nullopt, nullptr); }
  static Exec shape_only(Tally& tally) { return Exec(std::nullopt, &tally); }

  // For work in small pieces, as generation has it, where waking the other threads for a
  // launch takes longer than the launch: copies of this Exec whose small launches, or all
  // of them, are left to the calling thread. On a GPU they change nothing.
  Exec with_small_launches_alone() const {
    Exec exec = *this;
    if (space_) exec.alone_ = detail::one_thread_of(*space_);
    return exec;
  }
  Exec on_one_thread() const {
    Exec exec = *this;
    if (space_) exec.space_ = detail::one_thread_of(*space_);
    return exec;
  }

  // Error on a shape-only Exec.
  const ExecSpace& space() const {
    if (!space_) refuse_space();
    return *space_;
  }
  // Where a launch of this cost runs.
  const ExecSpace& space_for(const Cost& cost) const {
    constexpr index_t kSmallBytes = 384 << 10;
    constexpr double kSmallFlops = 2e6;
    const bool is_small =
        cost.bytes > 0 && cost.bytes <= kSmallBytes && cost.flops <= kSmallFlops;
    return alone_ && is_small ? *alone_ : space();
  }
  bool is_shape_only() const { return !space_; }
  // Where messages are counted that are not sent; null: nowhere.
  Tally* tally() const { return tally_; }
  // True where this kernel is not to run, but counts as one call of it.
  bool only_counts(const Kernel& kernel) const {
    if (!is_shape_only()) return false;
    if (tally_ != nullptr) tally_->add(kernel);
    return true;
  }
  // What a library keeps for this queue: one for each type of State, made by `make` on
  // first use and shared by copies of this Exec.
  template <class State, class Make>
  State& library(Make&& make) const {
    static_assert(std::is_base_of_v<LibraryState, State>);
    const std::type_index type = typeid(State);
    for (const auto& [known, state] : queue_->libraries) {
      if (known == type) return static_cast<State&>(*state);
    }
    std::unique_ptr<State> made = make();
    State& state = *made;
    queue_->libraries.emplace_back(type, std::move(made));
    return state;
  }
  // For all copies of this Exec; null: none.
  void set_idle_work(IdleWork* work) const { queue_->idle_work = work; }
  // The regions that launches lie in, for all copies of this Exec; null: nobody's.
  void set_timers(Timers* timers) const { queue_->timers = timers; }
  Timers* timers() const { return queue_->timers; }
  // Called after every launch.
  void idle() const {
    if (queue_->idle_work != nullptr) queue_->idle_work->run();
  }
  // Before launches of teams on a GPU: while its pool of their scratch memory is empty,
  // Kokkos asks CUDA for no bytes at each of them, which takes time and cannot be
  // captured in a graph. The first call of a queue fills it.
  void keep_team_scratch() const;
  // Waits for everything launched on this Exec.
  void fence(const char* label) const {
    if (is_shape_only()) return;
    static thread_local std::string text;  // Kokkos wants one; kept, to allocate it once
    text = label;
    space_->fence(text);
  }

 private:
  Exec(std::nullopt_t, Tally* tally) : tally_(tally) {}
  [[noreturn]] static void refuse_space();

  std::optional<ExecSpace> space_;  // none: shape-only
  // For small launches, where these have one of their own.
  std::optional<ExecSpace> alone_;
  Tally* tally_ = nullptr;
  // What copies of an Exec share.
  struct Queue {
    std::vector<std::pair<std::type_index, std::unique_ptr<LibraryState>>> libraries;
    IdleWork* idle_work = nullptr;
    Timers* timers = nullptr;
    bool has_team_scratch = false;
  };
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

// One kernel from its launch to its end, for the profile that the Exec's timers have.
class KernelCall {
 public:
  KernelCall(const Exec& exec, const Kernel& kernel) : timers_(exec.timers()) {
    if (timers_ == nullptr || timers_->profile() == nullptr) {
      timers_ = nullptr;
      return;
    }
    begin(kernel);
  }
  ~KernelCall() {
    if (timers_ != nullptr) end();
  }
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

 private:
  void begin(const Kernel& kernel) const;
  void end() const;
  Timers* timers_;
};

// A kernel that a library runs, or code that is no Kokkos loop. Kokkos Tools do not see
// it by itself: it is a region to them, of the kernel's label.
//
//   LibraryCall call(exec, {"trireme::kernels::gemm", cost});
//   ... the library's call ...
//   call.finish();
class LibraryCall {
 public:
  LibraryCall(const Exec& exec, const Kernel& kernel);
  // The kernel's end, where it is not left by an error; then idle work runs.
  void finish();
  ~LibraryCall() { end(); }
  LibraryCall(const LibraryCall&) = delete;
  LibraryCall& operator=(const LibraryCall&) = delete;

 private:
  void end();
  const Exec& exec_;
  std::optional<KernelCall> call_;
};

// True where kernels run on the host's cores (and host pointers are device pointers).
inline constexpr bool kHostExecution =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, DeviceMemory>::accessible;

using RangePolicy = Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<index_t>>;
// Teams are handed out one by one: causal attention gives them unequal work.
using TeamPolicy = Kokkos::TeamPolicy<ExecSpace, Kokkos::IndexType<index_t>,
                                      Kokkos::Schedule<Kokkos::Dynamic>>;
using TeamMember = TeamPolicy::member_type;

namespace detail {
// Kokkos sends closures that are not smaller through constant memory on CUDA, which
// serialises launches and cannot be captured in a graph.
inline constexpr std::size_t kMaxClosureBytes = 512;

// Of a functor and what Kokkos keeps beside it. Its own count where it is CUDA's; on a
// host at least that of Kokkos 4.6 and 4.7, so that a functor that is too large shows in
// every build.
template <class Functor, class Policy>
constexpr std::size_t closure_bytes() {
  if constexpr (kHostExecution) {
    constexpr std::size_t kBesideTeams = 152, kBesideRange = 64;
    constexpr bool is_range = std::is_base_of_v<RangePolicy, Policy>;
    return sizeof(Functor) + (is_range ? kBesideRange : kBesideTeams);
  } else {
    return sizeof(Kokkos::Impl::ParallelFor<Functor, Policy, ExecSpace>);
  }
}

// Kokkos takes labels as std::string; building one per launch would allocate. Every call
// site has a functor type of its own, so each gets one string for the life of the
// program.
template <class Functor>
const std::string& label_of(const char* label) {
  static const std::string text(label);
  return text;
}

// Some hundreds of chunks, each a power of two (where chunks are used at all: g++ and
// CUDA cut a range as they like).
inline Kokkos::ChunkSize chunk_size(index_t count) {
  const auto chunk = std::bit_floor(static_cast<std::uint64_t>(count) / 256 + 1);
  return Kokkos::ChunkSize(static_cast<int>(std::min<std::uint64_t>(chunk, 1 << 30)));
}
}  // namespace detail

// functor(i) for i in [0, count). `kernel` is a label, or {label, cost}.
template <class Functor>
void launch(const Exec& exec, const Kernel& kernel, index_t count,
            const Functor& functor) {
  static_assert(detail::closure_bytes<Functor, RangePolicy>() < detail::kMaxClosureBytes);
  if (count == 0 || exec.only_counts(kernel)) return;
  {
    const KernelCall call(exec, kernel);
    // Without a chunk size Kokkos asks how many threads there are, and allocates for it.
    Kokkos::parallel_for(
        detail::label_of<Functor>(kernel.label),
        RangePolicy(exec.space_for(kernel.cost), 0, count, detail::chunk_size(count)),
        functor);
  }
  exec.idle();
}

// Where so much scratch memory of a team lies: level 0 is shared memory of a GPU's block,
// of which Kokkos has 48 KiB and needs a little itself; level 1 is a pool in memory, also
// the host's.
KOKKOS_INLINE_FUNCTION constexpr int scratch_level(std::size_t bytes) {
  return kHostExecution || bytes > std::size_t{46} << 10 ? 1 : 0;
}

// functor(member) for each of `teams` teams. On a GPU a team is `device_threads` threads;
// on the host one, or `host_threads` where there are as many. The Bounds are on threads
// and teams of a multiprocessor: nvcc takes no more registers than let them run together.
template <class Bounds = Kokkos::LaunchBounds<>, class Functor>
void launch_teams(const Exec& exec, const Kernel& kernel, index_t teams,
                  int device_threads, const Functor& functor,
                  std::size_t scratch_bytes = 0, int host_threads = 1) {
  using Policy = Kokkos::TeamPolicy<ExecSpace, Kokkos::IndexType<index_t>,
                                    Kokkos::Schedule<Kokkos::Dynamic>, Bounds>;
  static_assert(detail::closure_bytes<Functor, Policy>() < detail::kMaxClosureBytes);
  if (teams == 0 || exec.only_counts(kernel)) return;
  if constexpr (!kHostExecution) exec.keep_team_scratch();
  const auto space = exec.space_for(kernel.cost);
  int threads = device_threads;
  if constexpr (kHostExecution) {
    threads = 1;
    if (host_threads > 1) {
      const Policy alone(space, teams, 1, 1);
      threads =
          std::min(host_threads, alone.team_size_max(functor, Kokkos::ParallelForTag()));
    }
  }
  Policy policy(space, teams, threads, 1);
  if (scratch_bytes > 0) {  // kept by Kokkos from launch to launch, grown when needed
    policy.set_scratch_size(scratch_level(scratch_bytes),
                            Kokkos::PerTeam(static_cast<int>(scratch_bytes)));
  }
  {
    const KernelCall call(exec, kernel);
    Kokkos::parallel_for(detail::label_of<Functor>(kernel.label), policy, functor);
  }
  exec.idle();
}

// destination = source, on the Exec's queue.
template <class To, class From>
void copy(const Exec& exec, const To& destination, const From& source) {
  const Kernel kernel("trireme::copy", {.bytes = bytes_of(destination, source)});
  if (exec.only_counts(kernel)) return;
  if constexpr (kHostExecution && std::is_same_v<typename To::non_const_value_type,
                                                 typename From::non_const_value_type>) {
    // From 80 KiB on Kokkos makes an execution space for each copy, and so allocates.
    constexpr std::size_t kPiece = std::size_t{64} << 10;
    const std::size_t bytes = destination.span() * sizeof(typename To::value_type);
    if (bytes > kPiece && destination.span() == source.span() &&
        destination.span_is_contiguous() && source.span_is_contiguous()) {
      auto* const to = reinterpret_cast<std::byte*>(destination.data());
      const auto* const from = reinterpret_cast<const std::byte*>(source.data());
      launch(exec, kernel, static_cast<index_t>((bytes + kPiece - 1) / kPiece),
             [=](index_t i) {
               const std::size_t begin = kPiece * static_cast<std::size_t>(i);
               std::memcpy(to + begin, from + begin, std::min(kPiece, bytes - begin));
             });
      return;
    }
  }
  const KernelCall call(exec, kernel);
  Kokkos::deep_copy(exec.space(), destination, source);
}

}  // namespace trireme

#endif  // TRIREME_BASE_EXEC_HPP_
