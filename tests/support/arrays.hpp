// tests/support/arrays.hpp — device arrays filled from doubles and read back as doubles,
// so that one test body serves every element type and every device.
#ifndef TRIREME_TESTS_SUPPORT_ARRAYS_HPP_
#define TRIREME_TESTS_SUPPORT_ARRAYS_HPP_

#include <gtest/gtest.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "base/exec.hpp"

namespace trireme::test {

using RealTypes = ::testing::Types<float, double, bf16, fp16>;

// Half a unit in the last place of 1, relative: one rounding.
template <class T>
constexpr double rounding() {
  if constexpr (std::is_same_v<T, double>) return 0x1p-53;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  if constexpr (std::is_same_v<T, fp16>) return 0x1p-11;
  return 0x1p-8;  // bf16: 8 bits
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<Accumulator<T>>(value));
  }
}

template <class T>
double to_double(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<Accumulator<T>>(value));
  }
}

// An owned array on the device.
template <class T>
class Array {
 public:
  explicit Array(const std::vector<double>& values) : data_("array", values.size()) {
    set(values);
  }
  explicit Array(std::initializer_list<double> values)
      : Array(std::vector<double>(values)) {}
  explicit Array(std::size_t count, double value = 0.0) : data_("array", count) {
    auto host = Kokkos::create_mirror_view(data_);
    std::fill_n(host.data(), count, from_double<T>(value));
    Kokkos::deep_copy(data_, host);
  }

  void set(const std::vector<double>& values) {
    auto host = Kokkos::create_mirror_view(data_);
    for (std::size_t i = 0; i < values.size(); ++i) host(i) = from_double<T>(values[i]);
    Kokkos::deep_copy(data_, host);
  }

  View1<T> vector() const { return View1<T>(data_.data(), data_.extent(0)); }
  View1<const T> cvector() const { return vector(); }
  View2<T> matrix(index_t rows, index_t columns) const {
    EXPECT_EQ(rows * columns, static_cast<index_t>(data_.extent(0)));
    return View2<T>(data_.data(), rows, columns);
  }
  View2<const T> cmatrix(index_t rows, index_t columns) const {
    return matrix(rows, columns);
  }
  View0<T> scalar() const { return View0<T>(data_.data()); }

  // What the array holds; for inputs, the values after rounding to T.
  std::vector<double> values() const {
    Kokkos::fence("tests: read back");
    auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, data_);
    std::vector<double> result(host.extent(0));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = to_double(host(i));
    return result;
  }
  // The bits, for bitwise comparisons.
  std::vector<unsigned char> bytes() const {
    Kokkos::fence("tests: read back");
    auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, data_);
    std::vector<unsigned char> result(host.extent(0) * sizeof(T));
    if (!result.empty()) std::memcpy(result.data(), host.data(), result.size());
    return result;
  }

 private:
  DeviceArray<T> data_;
};

// Numbers in [low, high), the same in every run.
inline std::vector<double> uniform(std::size_t count, unsigned seed, double low = -2.0,
                                   double high = 2.0) {
  std::mt19937 engine(seed);
  std::vector<double> values(count);
  for (double& v : values) v = low + (high - low) * (engine() / 4294967296.0);
  return values;
}

// |got - want| <= relative * (|want| + scale) for every element.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                         double relative, double scale, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= relative * (std::abs(want[i]) + scale))) {
      ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", expected " << want[i]
                    << " within " << relative * (std::abs(want[i]) + scale);
      return;
    }
  }
}

// An Exec of one thread beside the default one of several; `exists` is false where that
// cannot be had (one core, or a GPU).
struct OneThread {
  Exec exec;
  bool exists = false;

#ifdef KOKKOS_ENABLE_OPENMP
  OneThread() {
    make<ExecSpace>();
  }

  // Templates, so that nothing of this is asked of a GPU's space.
  template <class Space>
  void make() {
    if constexpr (kHostExecution) {
      exec = Exec(Space(1));
      exists = threads_of<Space>(exec.space()) == 1 && threads_of<Space>(Space()) > 1;
    }
  }

  // Counted where it runs: concurrency() says what the machine has.
  template <class Space>
  static int threads_of(const Space& space) {
    int threads = 0;
    Kokkos::parallel_reduce(
        "trireme::test::threads_of", Kokkos::RangePolicy<Space>(space, 0, 64),
        [](int, int& most) { most = std::max(most, omp_get_num_threads()); },
        Kokkos::Max<int>(threads));
    return threads;
  }
#endif
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_ARRAYS_HPP_
