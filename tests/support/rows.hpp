// tests/support/rows.hpp — matrices whose rows are apart, read back row by row.
#ifndef TRIREME_TESTS_SUPPORT_ROWS_HPP_
#define TRIREME_TESTS_SUPPORT_ROWS_HPP_

#include <vector>

#include "base/exec.hpp"

namespace trireme::test {

// All elements but what lies between the rows.
template <class T>
std::vector<double> rows_of(const View2<T>& matrix) {
  Kokkos::fence("tests: read back");
  const Kokkos::View<double**, Kokkos::LayoutRight, DeviceMemory> packed(
      "rows", matrix.extent(0), matrix.extent(1));
  Kokkos::parallel_for(
      "tests::rows_of",
      Kokkos::RangePolicy<ExecSpace>(0, static_cast<index_t>(packed.size())),
      KOKKOS_LAMBDA(const index_t i) {
        const auto columns = static_cast<index_t>(packed.extent(1));
        packed(i / columns, i % columns) = static_cast<double>(
            static_cast<Accumulator<T>>(matrix(i / columns, i % columns)));
      });
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, packed);
  return {host.data(), host.data() + host.size()};
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_ROWS_HPP_
