// base/closures_cuda.cpp — device.hpp: whether kernels read their closures as the host
// wrote them.
//
// From CUDA 12.9 on nvcc lays a class whose members are [[no_unique_address]] out in one
// way for the host and in another for the device, if there is something behind it. The
// Views of Kokkos 4.6 and 4.7.0 are such classes, and closures have Views in them: a
// kernel then takes what lies behind a View from eight bytes before it.
#include <cuda_runtime.h>

#include <Kokkos_Core.hpp>

#include "base/device.hpp"
#include "base/error.hpp"
#include "base/exec.hpp"

#define TRIREME_TEXT(...) #__VA_ARGS__
#define TRIREME_TEXT_OF(...) TRIREME_TEXT(__VA_ARGS__)
#ifdef KOKKOS_IMPL_NO_UNIQUE_ADDRESS
static_assert(CUDART_VERSION < 12090 ||
                  sizeof(TRIREME_TEXT_OF(KOKKOS_IMPL_NO_UNIQUE_ADDRESS)) == 1,
              "nvcc of CUDA 12.9 and later compiles this Kokkos' Views wrongly: take "
              "Kokkos 4.7.1 or later");
#endif
#undef TRIREME_TEXT_OF
#undef TRIREME_TEXT

namespace trireme {

namespace {

constexpr int kMarks = 4;

// Views of all ranks that closures have, and behind each a mark. What is read goes to a
// plain pointer in front of all of them.
struct Marked {
  int* read;
  View0<const int> view0;
  int mark0;
  View1<const int> view1;
  int mark1;
  View2<const int> view2;
  int mark2;
  View3<const int> view3;
  int mark3;

  KOKKOS_FUNCTION void operator()(index_t) const {
    read[0] = mark0;
    read[1] = mark1;
    read[2] = mark2;
    read[3] = mark3;
  }
};

}  // namespace

void check_closures() {
  const Exec exec;
  const Kokkos::View<int*, DeviceMemory> read("marks", kMarks);
  const Marked marked{.read = read.data(),
                      .view0 = {},
                      .mark0 = 1000,
                      .view1 = {},
                      .mark1 = 1001,
                      .view2 = {},
                      .mark2 = 1002,
                      .view3 = {},
                      .mark3 = 1003};
  launch(exec, "trireme::base::check_closures", 1, marked);
  const auto host = Kokkos::create_mirror_view(read);
  Kokkos::deep_copy(exec.space(), host, read);
  exec.fence("check_closures");
  for (int i = 0; i < kMarks; ++i) {
    TRIREME_REQUIRE(host(i) == 1000 + i,
                    "kernels of this program read their arguments wrongly: of the mark "
                    "{} behind a View of rank {} they read {}. nvcc {}.{} and this "
                    "Kokkos {}.{}.{} do not agree: see docs/developer/cuda.md for those "
                    "that do",
                    1000 + i, i, host(i), CUDART_VERSION / 1000,
                    CUDART_VERSION % 1000 / 10, KOKKOS_VERSION / 10000,
                    KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100);
  }
}

}  // namespace trireme
