// See allocation_counter.hpp.
#include "support/allocation_counter.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

namespace {

constexpr int kStacks = 4;
constexpr int kDepth = 12;
constexpr int kLabels = 8;
constexpr std::size_t kLabelBytes = 64;

struct Stack {
  std::size_t bytes = 0;
  int depth = 0;
  std::array<void*, kDepth> frames{};
};

// Written by operator new itself: nothing in here may allocate.
struct Counts {
  std::atomic<bool> counting{false};
  std::atomic<std::int64_t> host{0};
  std::atomic<std::int64_t> vendor{0};
  std::atomic<std::int64_t> kokkos{0};
  std::array<Stack, kStacks> stacks;
  std::array<std::array<char, kLabelBytes>, kLabels> labels;
  Kokkos::Tools::Experimental::EventSet tools;  // what a profiler had installed
};
Counts counts;

// Is oneDNN the caller of operator new? Its own frames are a few at most.
bool is_vendor(const Stack& stack) {
  constexpr int kNear = 5;
  for (int i = 0; i < std::min(stack.depth, kNear); ++i) {
    Dl_info info;
    if (::dladdr(stack.frames[static_cast<std::size_t>(i)], &info) != 0 &&
        info.dli_fname != nullptr && std::strstr(info.dli_fname, "libdnnl") != nullptr) {
      return true;
    }
  }
  return false;
}

void note_new(std::size_t bytes) {
  if (!counts.counting.load(std::memory_order_relaxed)) return;
  Stack stack;
  stack.bytes = bytes;
  stack.depth = ::backtrace(stack.frames.data(), kDepth);
  if (is_vendor(stack)) {
    counts.vendor.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::int64_t index = counts.host.fetch_add(1, std::memory_order_relaxed);
  if (index < kStacks) counts.stacks[static_cast<std::size_t>(index)] = stack;
}

void note_kokkos(const char* what, const char* label, std::uint64_t bytes) {
  if (!counts.counting.load(std::memory_order_relaxed)) return;
  const std::int64_t index = counts.kokkos.fetch_add(1, std::memory_order_relaxed);
  if (index >= kLabels) return;
  std::snprintf(counts.labels[static_cast<std::size_t>(index)].data(), kLabelBytes,
                "%s '%s' (%llu bytes)", what, label,
                static_cast<unsigned long long>(bytes));
}

void* allocate_or_null(std::size_t bytes) {
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* allocate_or_null(std::size_t bytes, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  const std::size_t steps = bytes == 0 ? 1 : (bytes + step - 1) / step;
  return std::aligned_alloc(step, steps * step);
}

template <class... Alignment>
void* allocate(std::size_t bytes, Alignment... alignment) {
  note_new(bytes);
  void* pointer = allocate_or_null(bytes, alignment...);
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}

void on_allocate(Kokkos::Tools::SpaceHandle, const char* label, const void*,
                 std::uint64_t bytes) {
  note_kokkos("allocation of", label, bytes);
}

void on_deallocate(Kokkos::Tools::SpaceHandle, const char* label, const void*,
                   std::uint64_t bytes) {
  note_kokkos("deallocation of", label, bytes);
}

}  // namespace

// Every form, and not only those that the standard library builds the others on: a
// sanitizer has others of its own.
void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, alignment);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  note_new(bytes);
  return allocate_or_null(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  note_new(bytes);
  return allocate_or_null(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  note_new(bytes);
  return allocate_or_null(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  note_new(bytes);
  return allocate_or_null(bytes, alignment);
}
void operator delete(void* pointer) noexcept {
  std::free(pointer);
}
void operator delete(void* pointer, std::size_t) noexcept {
  std::free(pointer);
}
void operator delete(void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
  std::free(pointer);
}
void operator delete(void* pointer, const std::nothrow_t&) noexcept {
  std::free(pointer);
}
void operator delete(void* pointer, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(pointer);
}
void operator delete[](void* pointer) noexcept {
  std::free(pointer);
}
void operator delete[](void* pointer, std::size_t) noexcept {
  std::free(pointer);
}
void operator delete[](void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
void operator delete[](void* pointer, std::size_t, std::align_val_t) noexcept {
  std::free(pointer);
}
void operator delete[](void* pointer, const std::nothrow_t&) noexcept {
  std::free(pointer);
}
void operator delete[](void* pointer, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(pointer);
}

namespace trireme::test {

AllocationCounter::AllocationCounter() {
  if (counts.counting) throw std::logic_error("two AllocationCounters at a time");
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // loads what it needs, now
  counts.tools = Kokkos::Tools::Experimental::get_callbacks();
  Kokkos::Tools::Experimental::set_allocate_data_callback(on_allocate);
  Kokkos::Tools::Experimental::set_deallocate_data_callback(on_deallocate);
  counts.host = 0;
  counts.vendor = 0;
  counts.kokkos = 0;
  counts.counting = true;
}

AllocationCounter::~AllocationCounter() {
  stop();
}

void AllocationCounter::stop() {
  if (!is_counting_) return;
  counts.counting = false;
  is_counting_ = false;
  Kokkos::Tools::Experimental::set_callbacks(counts.tools);
}

std::int64_t AllocationCounter::host() const {
  return counts.host;
}

std::int64_t AllocationCounter::vendor() const {
  return counts.vendor;
}

std::int64_t AllocationCounter::kokkos() const {
  return counts.kokkos;
}

std::string AllocationCounter::report() const {
  const bool was_counting = counts.counting.exchange(false);
  std::string text = std::to_string(host()) + " calls of operator new, " +
                     std::to_string(kokkos()) + " of Kokkos' allocation\n";
  for (std::int64_t i = 0; i < std::min<std::int64_t>(kokkos(), kLabels); ++i) {
    text +=
        "  Kokkos: " + std::string(counts.labels[static_cast<std::size_t>(i)].data()) +
        "\n";
  }
  for (std::int64_t i = 0; i < std::min<std::int64_t>(host(), kStacks); ++i) {
    const Stack& stack = counts.stacks[static_cast<std::size_t>(i)];
    text += "  new of " + std::to_string(stack.bytes) + " bytes:\n";
    char** symbols = ::backtrace_symbols(stack.frames.data(), stack.depth);
    for (int frame = 2; symbols != nullptr && frame < stack.depth; ++frame) {
      text += "    " + std::string(symbols[frame]) + "\n";
    }
    std::free(symbols);
  }
  counts.counting = was_counting;
  return text;
}

}  // namespace trireme::test
