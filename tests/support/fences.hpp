// support/fences.hpp — who waits for kernels while this lives: the labels of Kokkos'
// fences, of one queue and of all that a device does.
//
// Over NCCL a receive that has begun occupies the device until its message comes. Whoever
// waits for the whole device then waits for another rank, and two that do so may wait for
// each other for ever.
#ifndef TRIREME_SUPPORT_FENCES_HPP_
#define TRIREME_SUPPORT_FENCES_HPP_

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <set>
#include <string>

namespace trireme::test {

class Fences {
 public:
  Fences() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    of_queues_.clear();
    of_devices_.clear();
    Kokkos::Tools::Experimental::set_begin_fence_callback(
        [](const char* label, std::uint32_t device, std::uint64_t*) {
          const auto id = Kokkos::Tools::Experimental::identifier_from_devid(device);
          (id.instance_id == kWholeDevice ? of_devices_ : of_queues_).insert(label);
        });
  }
  ~Fences() { Kokkos::Tools::Experimental::set_callbacks(before_); }
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  static const std::set<std::string>& of_queues() { return of_queues_; }
  static const std::set<std::string>& of_devices() { return of_devices_; }

 private:
  // What Kokkos gives for Kokkos::fence(), and for copies that name no queue.
  static constexpr std::uint32_t kWholeDevice = 0;
  static inline std::set<std::string> of_queues_, of_devices_;
  Kokkos::Tools::Experimental::EventSet before_;
};

}  // namespace trireme::test

#endif  // TRIREME_SUPPORT_FENCES_HPP_
