// base/mapping_guard.cpp — see mapping_guard.hpp.
#include "base/mapping_guard.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace trireme {

namespace {

// All that the handler has to go by. It may come in any thread, and allocates and locks
// nothing.
struct GuardedPlace {
  std::atomic<bool> is_taken{false};
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<bool> is_cut{false};
};
constexpr std::size_t kPlaces = 1024;  // a blend has a corpus for each of its parts
std::array<GuardedPlace, kPlaces> guarded_places;
std::uintptr_t page_bytes = 0;
struct sigaction handler_before = {};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);

bool put_page_at(std::uintptr_t address) {
  for (GuardedPlace& place : guarded_places) {
    if (address < place.begin || address >= place.end) continue;
    void* const page = reinterpret_cast<void*>(address - address % page_bytes);
    if (::mmap(page, page_bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
      return false;
    }
    place.is_cut = true;
    return true;
  }
  return false;
}

extern "C" void trireme_mend_mapping(int number, siginfo_t* info, void*) {
  const int error = errno;
  const bool is_of_the_kernel = info->si_code > 0;  // else there is no address
  if (!is_of_the_kernel ||
      !put_page_at(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    // The access that failed is done again when this returns, and meets the handler from
    // before; a signal that somebody sent has to be sent again.
    ::sigaction(SIGBUS, &handler_before, nullptr);
    if (!is_of_the_kernel) ::raise(number);
  }
  errno = error;
}

void listen_to_bus_errors() {
  page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = trireme_mend_mapping;
  ::sigfillset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &handler_before);
}

}  // namespace

MappingGuard::MappingGuard(const void* data, std::size_t bytes) {
  static std::once_flag listens;
  std::call_once(listens, listen_to_bus_errors);
  for (std::size_t i = 0; i < kPlaces; ++i) {
    GuardedPlace& place = guarded_places[i];
    if (place.is_taken || place.is_taken.exchange(true)) continue;
    place.is_cut = false;
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    place.begin = begin;
    place.end = begin + bytes;
    place_ = static_cast<int>(i);
    return;
  }
}

MappingGuard::~MappingGuard() {
  if (place_ < 0) return;
  GuardedPlace& place = guarded_places[static_cast<std::size_t>(place_)];
  place.end = 0;
  place.begin = 0;
  place.is_taken = false;
}

bool MappingGuard::is_cut() const noexcept {
  return place_ >= 0 && guarded_places[static_cast<std::size_t>(place_)].is_cut;
}

}  // namespace trireme
