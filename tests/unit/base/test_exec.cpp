// What an Exec keeps for libraries, and what it counts where nothing runs.
#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

#include "base/error.hpp"
#include "base/exec.hpp"

namespace trireme {
namespace {

struct Products : LibraryState {
  int plans = 0;
};
struct Convolutions : LibraryState {
  double workspace = 0.5;
};

TEST(Exec, KeepsOneStateOfEachLibrary) {
  const Exec exec;
  int made = 0;
  const auto products = [&] {
    made += 1;
    return std::make_unique<Products>();
  };
  const auto convolutions = [&] {
    made += 1;
    return std::make_unique<Convolutions>();
  };
  exec.library<Products>(products).plans = 7;
  exec.library<Convolutions>(convolutions).workspace = 2.5;
  const Exec copy = exec;
  EXPECT_EQ(copy.library<Products>(products).plans, 7);
  EXPECT_EQ(copy.library<Convolutions>(convolutions).workspace, 2.5);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(Exec().library<Products>(products).plans, 0) << "another queue";
}

TEST(Exec, MakingOneStateMayAskForAnother) {
  const Exec exec;
  const auto convolutions = [] { return std::make_unique<Convolutions>(); };
  exec.library<Products>([&] {
    exec.library<Convolutions>(convolutions).workspace = 1.5;
    return std::make_unique<Products>();
  });
  EXPECT_EQ(exec.library<Convolutions>(convolutions).workspace, 1.5);
}

// A functor, as nvcc knows no device lambdas in the body of a test.
struct Mark {
  View1<float> ran;
  KOKKOS_FUNCTION void operator()(index_t) const { ran(0) = 1.0f; }
};

TEST(Exec, CountsWhatItDoesNotRun) {
  const DeviceArray<float> ran("ran", 1);
  Tally tally;
  const Exec exec = Exec::shape_only(tally);
  const Exec copy_of_it = exec;
  const Mark body{ran};
  const Kernel kernel{"test::kernel", {.flops = 6, .bytes = 20}};
  launch(exec, kernel, 3, body);
  launch(copy_of_it, kernel, 5, body);
  launch(exec, kernel, 0, body);  // nothing to do: no call
  launch(exec, "test::free", 1, body);
  const View2<float> matrix(nullptr, 3, 5);
  copy(exec, matrix, matrix);
  launch(Exec::shape_only(), kernel, 3, body);

  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), ran);
  EXPECT_EQ(host(0), 0.0f);
  ASSERT_EQ(tally.kernels().size(), 3u);
  EXPECT_EQ(tally.kernel("test::kernel").calls, 2);
  EXPECT_EQ(tally.kernel("test::kernel").cost.flops, 12);
  EXPECT_EQ(tally.kernel("test::kernel").cost.bytes, 40);
  EXPECT_EQ(tally.kernel("test::free").calls, 1);
  EXPECT_EQ(tally.kernel("trireme::copy").cost.bytes, 2 * 3 * 5 * 4);
  EXPECT_EQ(Exec().tally(), nullptr);
}

// So that there may be no Kokkos, and no GPU, where only shapes are gone through.
TEST(Exec, OnShapesAloneHasNowhereToRun) {
  const Exec shapes = Exec::shape_only();
  for (const Exec& exec :
       {shapes, shapes.with_small_launches_alone(), shapes.on_one_thread()}) {
    EXPECT_TRUE(exec.is_shape_only());
    EXPECT_THROW((void)exec.space(), Error);
    EXPECT_THROW((void)exec.space_for({.flops = 1, .bytes = 1}), Error);
    exec.fence("test");  // nothing to wait for
  }
  const Exec real;
  for (const Exec& exec :
       {real, real.with_small_launches_alone(), real.on_one_thread()}) {
    EXPECT_FALSE(exec.is_shape_only());
    EXPECT_NO_THROW((void)exec.space());
  }
}

TEST(Exec, BytesAreThoseOfTheExtents) {
  EXPECT_EQ(bytes_of(View1<double>(nullptr, 7), View2<const bf16>(nullptr, 3, 5),
                     View0<float>(nullptr)),
            7 * 8 + 3 * 5 * 2 + 4);
}

#ifdef KOKKOS_ENABLE_OPENMP
// How many threads share a launch of this cost. A template, so that nothing of it is
// asked of a GPU.
template <class Space>
int threads_of_launch(const Exec& exec, const Cost& cost) {
  int threads = 0;
  if constexpr (std::is_same_v<Space, Kokkos::OpenMP>) {
    const DeviceArray<int> most("most", 1);
    int* const data = most.data();
    launch(exec, {"trireme::test::threads_of_launch", cost}, 64,
           [=](index_t) { Kokkos::atomic_max(data, omp_get_num_threads()); });
    exec.fence("test");
    threads = *data;
  }
  return threads;
}

TEST(ExecThreads, SmallLaunchesAreLeftToTheCallingThreadWhereThatIsAskedFor) {
  const Cost small{.bytes = 1000}, large{.bytes = 1 << 20}, unknown{},
      many_flops{.flops = 1e9, .bytes = 1000};
  const auto threads = [](const Exec& exec, const Cost& cost) {
    return threads_of_launch<ExecSpace>(exec, cost);
  };
  const int all = threads(Exec(), small);
  if (all < 2) GTEST_SKIP() << "there is one thread only";
  const Exec thrifty = Exec().with_small_launches_alone();
  EXPECT_EQ(threads(thrifty, small), 1);
  EXPECT_EQ(threads(thrifty, large), all);
  EXPECT_EQ(threads(thrifty, unknown), all);
  EXPECT_EQ(threads(thrifty, many_flops), all);
  EXPECT_EQ(threads(thrifty.on_one_thread(), large), 1);
  EXPECT_EQ(threads(Exec(), large), all);
}
#endif

}  // namespace
}  // namespace trireme
