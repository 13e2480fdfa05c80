// tests/support/allocation_counter.hpp — counts what allocates: operator new of the whole
// program, and Kokkos' allocations (Views, scratch) by the callbacks of Kokkos Tools. For
// the tests that say "nothing is allocated on the hot path".
//
// Linking it (trireme_allocation_counter) replaces operator new and delete. Outside of a
// counter's life that costs one relaxed load per call.
#ifndef TRIREME_TESTS_SUPPORT_ALLOCATION_COUNTER_HPP_
#define TRIREME_TESTS_SUPPORT_ALLOCATION_COUNTER_HPP_

#include <cstdint>
#include <string>

namespace trireme::test {

// Counts, on all threads, from construction to stop() or destruction. One at a time. A
// Kokkos allocation on the host counts twice where Kokkos uses operator new for it.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  void stop();
  std::int64_t host() const;    // calls of operator new, but for those of libraries below
  std::int64_t kokkos() const;  // allocations and deallocations of Kokkos
  std::int64_t total() const { return host() + kokkos(); }
  // What Trireme can help: in every launch on a GPU Kokkos itself calls operator new.
  std::int64_t of_trireme(bool is_on_host) const {
    return is_on_host ? total() : kokkos();
  }
  // Calls of operator new by oneDNN: its sgemm makes one of 192 bytes where the CPU has
  // no AVX-512, which no caller can help.
  std::int64_t vendor() const;
  // For the message of a failed test: labels of Kokkos' allocations, sizes and call
  // stacks of the first few of operator new (addr2line -Cfe BINARY ADDRESS names them).
  std::string report() const;

 private:
  bool is_counting_ = true;
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_ALLOCATION_COUNTER_HPP_
