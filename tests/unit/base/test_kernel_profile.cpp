// What is recorded of launches: under which region, with which cost, and whose time.
#include "base/kernel_profile.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/exec.hpp"

namespace trireme {
namespace {

// Each look at this clock is a second later than the one before.
class TickingClock : public KernelClock {
 public:
  void begin(std::size_t stretch) override {
    if (stretch >= ticks_.size()) ticks_.resize(stretch + 1);
    ticks_[stretch] = now_++;
  }
  void end(std::size_t stretch) override { ticks_[stretch] = now_++ - ticks_[stretch]; }
  double seconds(std::size_t stretch) override {
    return static_cast<double>(ticks_.at(stretch));
  }

 private:
  std::vector<int> ticks_;
  int now_ = 0;
};

struct Nothing {
  KOKKOS_FUNCTION void operator()(index_t) const {}
};
struct NothingByTeams {
  KOKKOS_FUNCTION void operator()(const TeamMember&) const {}
};

class KernelProfileOfExec : public testing::Test {
 protected:
  KernelProfileOfExec() {
    exec_.set_timers(&timers_);
    timers_.profile_to(&profile_);
  }
  const KernelRecord& record(const std::string& label, Section section,
                             Component component) {
    profile_.resolve();
    for (const KernelRecord& one : profile_.records()) {
      if (one.label == label && one.section == section && one.component == component) {
        return one;
      }
    }
    static const KernelRecord none;
    return none;
  }

  Exec exec_;
  Timers timers_;
  KernelProfile profile_{std::make_unique<TickingClock>()};
};

TEST_F(KernelProfileOfExec, RecordsWhatIsLaunchedWithItsRegion) {
  const Kernel kernel{"test::kernel", {.flops = 6, .bytes = 20}};
  launch(exec_, kernel, 3, Nothing());
  {
    const Region forward(timers_, Section::forward);
    const ComponentRegion mlp(exec_.timers(), Component::mlp);
    launch(exec_, kernel, 3, Nothing());
    launch_teams(Exec(exec_), kernel, 2, 1, NothingByTeams());  // of a copy, too
    launch(exec_, kernel, 0, Nothing());                        // nothing to do: no call
    {
      const Region wait(timers_, Section::communication);
      launch(exec_, "test::free", 1, Nothing());
    }
    const ComponentRegion inner(exec_.timers(), Component::attention);
    launch(exec_, kernel, 3, Nothing());
  }
  EXPECT_EQ(record("test::kernel", Section::other, Component::none).calls, 1);
  const KernelRecord& mlp = record("test::kernel", Section::forward, Component::mlp);
  EXPECT_EQ(mlp.calls, 2);
  EXPECT_EQ(mlp.seconds, 2.0);
  EXPECT_EQ(mlp.cost.bytes, 20);
  EXPECT_EQ(record("test::free", Section::communication, Component::mlp).calls, 1);
  EXPECT_EQ(record("test::kernel", Section::forward, Component::attention).calls, 1);
  EXPECT_EQ(profile_.records().size(), 4u);
  EXPECT_EQ(profile_.visits(Section::forward, Component::mlp), 1);
  EXPECT_EQ(profile_.visits(Section::backward, Component::mlp), 0);
}

// A kernel that launches others has what they leave of its time.
TEST_F(KernelProfileOfExec, ChargesTheInnermost) {
  {
    const KernelCall outer(exec_, {"test::outer"});     // ticks 0 to 5
    launch(exec_, "test::inner", 1, Nothing());         // 1 to 2
    launch(exec_, "test::inner[again]", 1, Nothing());  // 3 to 4
  }
  EXPECT_EQ(record("test::outer", Section::other, Component::none).seconds, 3.0);
  EXPECT_EQ(record("test::inner", Section::other, Component::none).seconds, 1.0);
  EXPECT_EQ(record("test::inner[again]", Section::other, Component::none).seconds, 1.0);
}

// The tiles of a matrix product are no kernels beside it.
TEST_F(KernelProfileOfExec, LaunchesWithoutACostArePartsOfWhatHasOne) {
  {
    const KernelCall product(exec_, {"test::product", {.flops = 8}});  // ticks 0 to 3
    {
      const KernelCall tiles(exec_, {"test::tiles"});
      launch(exec_, {"test::of_tiles", {.flops = 4}}, 1, Nothing());
    }
    launch(exec_, "test::tiles", 1, Nothing());
    launch(exec_, {"test::with_cost", {.bytes = 4}}, 1, Nothing());  // 1 to 2
  }
  launch(exec_, "test::tiles", 1, Nothing());
  EXPECT_EQ(record("test::product", Section::other, Component::none).seconds, 2.0);
  EXPECT_EQ(record("test::of_tiles", Section::other, Component::none).calls, 0);
  EXPECT_EQ(record("test::with_cost", Section::other, Component::none).seconds, 1.0);
  EXPECT_EQ(record("test::tiles", Section::other, Component::none).calls, 1);
}

TEST_F(KernelProfileOfExec, KeepsCallsOfUnlikeCostApart) {
  launch(exec_, {"test::kernel", {.flops = 6, .bytes = 20}}, 1, Nothing());
  launch(exec_, {"test::kernel", {.flops = 6, .bytes = 21}}, 1, Nothing());
  launch(exec_, {"test::kernel", {.flops = 7, .bytes = 20}}, 1, Nothing());
  launch(exec_, {"test::kernel", {.flops = 6, .masked_flops = 2, .bytes = 20}}, 1,
         Nothing());
  launch(exec_, {"test::kernel", {.flops = 6, .bytes = 20}}, 1, Nothing());
  profile_.resolve();
  ASSERT_EQ(profile_.records().size(), 4u);
  EXPECT_EQ(profile_.records()[0].calls, 2);
  EXPECT_EQ(profile_.records()[1].cost.bytes, 21);
  EXPECT_EQ(profile_.records()[2].cost.flops, 7);
}

TEST_F(KernelProfileOfExec, RecordsLibrariesAndCopies) {
  struct Idle : IdleWork {
    void run() override { ++runs; }
    int runs = 0;
  } idle;
  exec_.set_idle_work(&idle);
  {
    LibraryCall call(exec_, {"test::library", {.flops = 2}});
    call.finish();
    EXPECT_EQ(idle.runs, 1);
  }
  { const LibraryCall left_by_an_error(exec_, {"test::library", {.flops = 2}}); }
  EXPECT_EQ(idle.runs, 1);
  EXPECT_EQ(record("test::library", Section::other, Component::none).calls, 2);
  const DeviceArray<float> from("from", 100000), to("to", 100000);
  copy(exec_, View1<float>(to), View1<const float>(from));
  copy(exec_, View1<float>(to.data(), 5), View1<const float>(from.data(), 5));
  profile_.resolve();
  ASSERT_EQ(profile_.records().size(), 3u);
  EXPECT_EQ(profile_.records()[1].label, std::string("trireme::copy"));
  EXPECT_EQ(profile_.records()[1].cost.bytes, 800000);
  EXPECT_EQ(profile_.records()[2].cost.bytes, 40);
}

TEST_F(KernelProfileOfExec, OnlyWhereItIsInUse) {
  timers_.profile_to(nullptr);
  launch(exec_, "test::kernel", 1, Nothing());
  timers_.profile_to(&profile_);
  launch(Exec(), "test::kernel", 1, Nothing());
  Tally tally;
  const Exec shapes = Exec::shape_only(tally);
  shapes.set_timers(&timers_);
  launch(shapes, "test::kernel", 1, Nothing());
  EXPECT_TRUE(profile_.records().empty());
  EXPECT_EQ(tally.kernel("test::kernel").calls, 1);
}

// More launches than there is room for times that are not taken over.
TEST_F(KernelProfileOfExec, ManyLaunchesWithinOne) {
  constexpr int kMany = 40000;
  {
    const KernelCall outer(exec_, {"test::outer"});
    for (int i = 0; i < kMany; ++i) launch(exec_, "test::inner", 1, Nothing());
  }
  EXPECT_EQ(record("test::inner", Section::other, Component::none).seconds, kMany);
  EXPECT_EQ(record("test::outer", Section::other, Component::none).seconds, kMany + 1);
}

TEST_F(KernelProfileOfExec, ManyLaunchesOneAfterTheOther) {
  for (int i = 0; i < 40000; ++i) launch(exec_, "test::kernel", 1, Nothing());
  const KernelRecord& all = record("test::kernel", Section::other, Component::none);
  EXPECT_EQ(all.calls, 40000);
  EXPECT_EQ(all.seconds, 40000.0);
}

TEST(KernelProfile, HostClockMeasuresSeconds) {
  const auto clock = make_host_clock();
  clock->begin(3);
  clock->begin(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  clock->end(0);
  clock->end(3);
  EXPECT_GE(clock->seconds(0), 0.005);
  EXPECT_LT(clock->seconds(0), 5.0);
  EXPECT_GE(clock->seconds(3), clock->seconds(0));
}

// A trace has components, between the passes that they are part of.
TEST(KernelProfile, ComponentsAreInATrace) {
  Timers timers;
  Trace trace(4);
  timers.trace_to(&trace);
  {
    const Region forward(timers, Section::forward);
    const ComponentRegion head(&timers, Component::head);
    EXPECT_EQ(timers.component(), Component::head);
    EXPECT_EQ(timers.section(), Section::forward);
  }
  { const ComponentRegion nobodys(nullptr, Component::head); }
  timers.trace_to(nullptr);
  EXPECT_EQ(timers.component(), Component::none);
  if (!kHostExecution) return;
  ASSERT_EQ(trace.events().size(), 2u);
  EXPECT_STREQ(trace.events()[0].name, "head");
  EXPECT_STREQ(trace.events()[1].name, "forward");
}

}  // namespace
}  // namespace trireme
