// The counter that other tests rely on: it sees every kind of allocation, on any thread,
// and nothing where there is none.
#include "support/allocation_counter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/exec.hpp"

namespace trireme {
namespace {

using test::AllocationCounter;
using ::testing::HasSubstr;

struct alignas(256) Wide {
  char bytes[256];
};

TEST(AllocationCounter, SeesEveryFormOfNew) {
  std::int64_t seen[5];
  AllocationCounter counter;
  auto one = std::make_unique<int>(1);
  seen[0] = counter.host();
  auto many = std::make_unique<int[]>(100);
  seen[1] = counter.host();
  auto wide = std::make_unique<Wide>();
  seen[2] = counter.host();
  auto wides = std::make_unique<Wide[]>(3);
  seen[3] = counter.host();
  std::unique_ptr<int> nothrow(new (std::nothrow) int);
  seen[4] = counter.host();
  counter.stop();
  one = std::make_unique<int>(2);
  EXPECT_THAT(seen, ::testing::ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(counter.host(), 5);
  EXPECT_EQ(counter.kokkos(), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(wide.get()) % 256, 0u);
  EXPECT_THAT(counter.report(), HasSubstr("5 calls of operator new"));
  EXPECT_THAT(counter.report(), HasSubstr("new of 400 bytes:"));
}

TEST(AllocationCounter, SeesViewsByName) {
  AllocationCounter counter;
  {
    const DeviceArray<float> view("a view", 1000);
    EXPECT_GE(counter.kokkos(), 1);
  }
  EXPECT_GE(counter.kokkos(), 2);
  EXPECT_THAT(counter.report(), HasSubstr("allocation of 'a view' (4"));
  EXPECT_THAT(counter.report(), HasSubstr("deallocation of 'a view'"));
}

TEST(AllocationCounter, SeesOtherThreads) {
  AllocationCounter counter;
  std::thread([] { std::vector<int> vector(10); }).join();
  EXPECT_GE(counter.host(), 2);  // the thread's state, the vector
}

// A function of its own: nvcc wants no device lambda in a test's private body.
void launch_both(const Exec& exec, const View1<float>& view) {
  launch(
      exec, "trireme::test::fill", 1000,
      KOKKOS_LAMBDA(index_t i) { view(i) = static_cast<float>(i); });
  launch_teams(
      exec, "trireme::test::fill_by_teams", 10, 32,
      KOKKOS_LAMBDA(const TeamMember& member) { view(member.league_rank()) = 0.0f; },
      1024);
  exec.fence("trireme::test::fence");
}

void number(const Exec& exec, const View1<float>& view) {
  launch(
      exec, "trireme::test::number", static_cast<index_t>(view.size()),
      KOKKOS_LAMBDA(index_t i) { view(i) = static_cast<float>(i); });
}

TEST(AllocationCounter, LaunchesAllocateNothingTheSecondTime) {
  const Exec exec;
  const DeviceArray<float> array("values", 1000);
  const View1<float> view(array.data(), array.size());
  launch_both(exec, view);
  AllocationCounter counter;
  for (int step = 0; step < 5; ++step) launch_both(exec, view);
  EXPECT_EQ(counter.of_trireme(kHostExecution), 0) << counter.report();
}

TEST(AllocationCounter, CopiesAllocateNothing) {
  const Exec exec;
  for (const std::size_t count : {std::size_t{10}, std::size_t{100'003}}) {
    const DeviceArray<float> from("from", count), to("to", count);
    const View1<float> source(from.data(), count), target(to.data(), count);
    number(exec, source);
    copy(exec, target, source);
    AllocationCounter counter;
    copy(exec, target, source);
    EXPECT_EQ(counter.of_trireme(kHostExecution), 0) << counter.report();
    counter.stop();
    exec.fence("trireme::test::fence");
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, to);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(host(i), static_cast<float>(i));
    }
  }
}

TEST(AllocationCounter, OneAtATime) {
  AllocationCounter counter;
  EXPECT_THROW(AllocationCounter(), std::logic_error);
  EXPECT_GE(counter.host(), 1);
}

}  // namespace
}  // namespace trireme
