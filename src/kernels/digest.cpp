// kernels/digest.cpp — see digest.hpp. Words are mixed with their places and added as
// integers, whose sum has no order.
#include "kernels/digest.hpp"

#include <algorithm>

namespace trireme::kernels {

namespace {

// The end of SplitMix64 (Steele, Lea and Flood 2014): each bit changes about half of the
// result's.
KOKKOS_INLINE_FUNCTION std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t digest_of(const Exec& exec, View1<const std::uint32_t> words) {
  const DeviceArray<std::uint64_t> memory("trireme::digest", 1);
  std::uint64_t* const sum = memory.data();
  const std::uint32_t* const data = words.data();
  const auto count = static_cast<index_t>(words.extent(0));
  // Neighbouring threads read neighbouring words.
  const index_t threads = std::min<index_t>(count, index_t{1} << 16);
  launch(
      exec, {"trireme::kernels::digest", {.bytes = bytes_of(words)}}, threads,
      KOKKOS_LAMBDA(const index_t thread) {
        std::uint64_t mine = 0;
        for (index_t i = thread; i < count; i += threads) {
          mine += mixed((static_cast<std::uint64_t>(i) << 32 | data[i]) +
                        0x9e3779b97f4a7c15u);
        }
        Kokkos::atomic_add(sum, mine);
      });
  const auto host = Kokkos::create_mirror_view(memory);
  Kokkos::deep_copy(exec.space(), host, memory);
  exec.fence("trireme::kernels::digest");
  return host(0);
}

}  // namespace trireme::kernels
