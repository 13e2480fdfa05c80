// starts.jsonl: what of the time served the run, over starts that ended well, were
// killed, or did again what was lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/wall_time.hpp"
#include "report/run_history.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::report {
namespace {

StartRecord start_of(double began, double ended, std::int64_t first, std::int64_t saved,
                     double step_seconds) {
  StartRecord start;
  start.began = began;
  start.ended = ended;
  start.first_step = first;
  start.saved_step = saved;
  start.step_seconds = step_seconds;
  return start;
}

TEST(RunHistory, EffectiveTimeCountsWhatWasKept) {
  const EffectiveTime one = effective_time({start_of(0, 100, 0, 50, 80)});
  EXPECT_EQ(one.starts, 1);
  EXPECT_DOUBLE_EQ(one.share(), 0.8);
  // The second goes on from step 40 of 50; the third, from 60, saves nothing.
  const EffectiveTime three =
      effective_time({start_of(0, 100, 0, 50, 80), start_of(110, 160, 40, 60, 30),
                      start_of(170, 180, 60, -1, 0)});
  EXPECT_DOUBLE_EQ(three.counted, 80 * 0.8 + 30);
  EXPECT_DOUBLE_EQ(three.running, 160);
  EXPECT_DOUBLE_EQ(three.waiting, 20);
  EXPECT_THAT(three.text(), ::testing::HasSubstr("58.8% of 2m40s in 3 starts"));
}

TEST(RunHistory, IdleStartsAreThoseWithoutANewStep) {
  EXPECT_EQ(idle_starts({}, 0), 0);
  EXPECT_EQ(idle_starts({start_of(0, 1, 0, -1, 0), start_of(0, 1, 0, -1, 0)}, 0), 2);
  EXPECT_EQ(idle_starts({start_of(0, 1, 0, -1, 0), start_of(0, 1, 0, 5, 1),
                         start_of(0, 1, 5, 5, 0), start_of(0, 1, 5, -1, 0)},
                        5),
            2);
  // Killed between publication and the record of it: the next went on from there.
  EXPECT_EQ(idle_starts({start_of(0, 1, 0, -1, 0), start_of(0, 1, 5, -1, 0)}, 5), 1);
  EXPECT_EQ(idle_starts({start_of(0, 1, 0, -1, 0), start_of(0, 1, 5, -1, 0)}, 9), 0);
}

TEST(RunHistory, IsReadBack) {
  const test::Scratch scratch;
  {
    RunHistory history(scratch.path());
    EXPECT_TRUE(history.starts().empty());
    EXPECT_EQ(history.begin(1.0, 0, "17"), "");
    EXPECT_EQ(history.note_restart({.launch = 0.5, .set_up = 1.0}), "");
    EXPECT_EQ(expected_save(history.starts()), 0.0);
    EXPECT_EQ(history.note_saved(5, 1.5, 0.75), "");
    EXPECT_EQ(history.note_saved(10, 3.5, 0.25), "");
    EXPECT_EQ(history.end(75), "");
  }
  {
    RunHistory history(scratch.path());
    ASSERT_EQ(history.starts().size(), 1u);
    const StartRecord& first = history.starts().front();
    EXPECT_EQ(first.number, 1);
    EXPECT_EQ(first.job, "17");
    EXPECT_TRUE(first.is_clean);
    EXPECT_EQ(first.status, 75);
    EXPECT_EQ(first.saved_step, 10);
    EXPECT_EQ(first.step_seconds, 3.5);
    EXPECT_EQ(first.longest_save, 0.75);
    EXPECT_NEAR(first.ended, wall_seconds(), 60.0);
    history.begin(0.0, 10, "18");
    history.note_first_step(5);
  }
  // Damaged, killed in the middle of a line, and refused once.
  test::spill(scratch / "starts.jsonl", test::slurp(scratch / "starts.jsonl") +
                                            test::nested_json(200000) +
                                            "\n{\"start\":3,\"event\":\"saved\",\"time\":"
                                            "1e999}\n{\"start\":2,\"event\":\"sav");
  {
    RunHistory history(scratch.path());
    ASSERT_EQ(history.starts().size(), 2u);
    EXPECT_FALSE(history.starts().back().is_clean);
    EXPECT_EQ(history.starts().back().first_step, 5);
    EXPECT_EQ(idle_starts(history.starts(), 0), 1);
    EXPECT_EQ(expected_save(history.starts()), 0.75) << "the last start saved nothing";
    EXPECT_EQ(history.note_refusal(), "");
  }
  const RunHistory history(scratch.path());
  EXPECT_EQ(idle_starts(history.starts(), 0), 0);
  EXPECT_EQ(effective_time(history.starts()).starts, 2);
}

// Device time is that of all starts from one on: on as many devices as each had.
TEST(RunHistory, DeviceTimeIsOfEachStartsDevices) {
  const test::Scratch scratch;
  {
    RunHistory history(scratch.path());
    history.begin(2.0, 0, "");
    history.note_devices(4, 10.0);
    history.note_restart({.launch = 0.25, .set_up = 0.5});
    history.end(0, Ending::as_asked, 0.125);
  }
  {
    RunHistory history(scratch.path());
    history.begin(1.0, 5, "");  // killed before it knew its devices
    history.note_saved(6, 0.5, 0.1);
  }
  RunHistory history(scratch.path());
  history.begin(1.0, 5, "");
  history.note_devices(2, 20.0);
  history.note_saved(7, 0.5, 0.1);
  const std::vector<StartRecord>& starts = history.starts();
  EXPECT_EQ(starts[0].ranks, 4);
  EXPECT_EQ(starts[0].ready, 0.75);
  EXPECT_EQ(starts[0].ending_seconds, 0.125);
  const auto seconds = [&](std::size_t i) { return starts[i].ended - starts[i].began; };
  const DeviceTime all = device_time(starts, starts[0].began, 20.0);
  EXPECT_EQ(all.starts, 3);
  EXPECT_NEAR(all.seconds, 4 * seconds(0) + 2 * (seconds(1) + seconds(2)), 1e-9);
  EXPECT_NEAR(all.flops, 40 * seconds(0) + 40 * (seconds(1) + seconds(2)), 1e-9);
  EXPECT_NEAR(all.ready, 3.0, 1e-12);
  EXPECT_NEAR(all.ending, 0.5, 1e-12);
  EXPECT_EQ(device_time(starts, starts[1].began, 20.0).starts, 2);
  // The peak of the last start is known better than when it began.
  EXPECT_NEAR(device_time(starts, starts[0].began, 25.0).flops - all.flops,
              10 * (seconds(1) + seconds(2)), 1e-9);
}

// The end of a start that was killed is known from the next one on, and stays.
TEST(RunHistory, AKilledStartsEndIsKept) {
  const test::Scratch scratch;
  {
    RunHistory history(scratch.path());
    history.begin(100.0, 0, "");
  }
  test::spill(scratch / "train.jsonl", "{}\n");
  double ended = 0.0;
  {
    RunHistory history(scratch.path());
    ended = history.starts().front().ended;
    history.begin(0.0, 0, "");
  }
  const RunHistory history(scratch.path());
  EXPECT_NEAR(history.starts().front().ended, ended, 1e-6);
  EXPECT_GT(ended - history.starts().front().began, 90.0);
}

// run.stop_after: neither idle, whatever the record of its save says, nor a failure.
TEST(RunHistory, StopsThatWereAskedForAreAKindOfTheirOwn) {
  const test::Scratch scratch;
  for (int i = 0; i < 3; ++i) {
    RunHistory history(scratch.path());
    history.begin(0.0, 5, "");
    history.end(0, i == 1 ? Ending::as_asked : Ending::of_status);
  }
  const RunHistory history(scratch.path());
  ASSERT_EQ(history.starts().size(), 3u);
  EXPECT_EQ(history.starts()[0].ending, Ending::of_status);
  EXPECT_EQ(history.starts()[1].ending, Ending::as_asked);
  EXPECT_EQ(history.starts()[1].status, 0);
  EXPECT_EQ(idle_starts(history.starts(), 5), 1);
  EXPECT_THAT(test::slurp(scratch / kStartsName),
              ::testing::HasSubstr("\"status\":0,\"by\":\"stop_after\"}"));
}

TEST(RunHistory, WhatCannotBeWrittenIsSaid) {
  RunHistory history("/proc/none");
  EXPECT_THAT(history.begin(1.0, 0, ""), ::testing::HasSubstr("cannot write"));
}

// A chain of jobs that make a step each: it crawls where that takes little of their time.
TEST(RunHistory, StartsOfOneShortStepAreIdle) {
  const auto one_step = [](std::int64_t first, double step_seconds) {
    StartRecord start = start_of(0, 100, first, first + 1, step_seconds);
    start.ending = Ending::of_time;
    return start;
  };
  EXPECT_EQ(idle_starts({one_step(0, 5), one_step(1, 5), one_step(2, 5)}, 3), 3);
  EXPECT_EQ(idle_starts({one_step(0, 60), one_step(1, 60), one_step(2, 60)}, 3), 0);
  EXPECT_EQ(idle_starts({one_step(0, 5), one_step(1, 60), one_step(2, 5)}, 3), 1);
  StartRecord other = one_step(0, 5);
  other.ending = Ending::of_status;  // by a signal: a person's, or the batch system's
  EXPECT_EQ(idle_starts({other}, 1), 0);
  other = one_step(0, 5);
  other.saved_step = 2;
  EXPECT_EQ(idle_starts({other}, 2), 0);
}

TEST(RunHistory, KnowsStartsThatTheirTimeEnded) {
  const test::Scratch scratch;
  {
    RunHistory history(scratch.path());
    history.begin(100.0, 5, "");
    EXPECT_LT(history.seconds_down(), 0.0);
    history.note_saved(6, 0.5, 0.1);
    history.end(75, Ending::of_time);
  }
  RunHistory history(scratch.path());
  EXPECT_EQ(history.starts().back().ending, Ending::of_time);
  EXPECT_EQ(idle_starts(history.starts(), 6), 1);
  history.begin(0.0, 6, "");
  EXPECT_GE(history.seconds_down(), 0.0);
  EXPECT_LT(history.seconds_down(), 60.0);
}

TEST(RunHistory, KnowsTheAgeOfTheProcess) {
  const double age = process_age();
  EXPECT_GE(age, 0.0);
  EXPECT_LT(age, 3600.0);
  EXPECT_GE(process_age(), age);
}

// Ages are parts of a start's time: what passes between two is their difference, however
// short, so each lies where clocks read around it say.
TEST(RunHistory, AgesOfTheProcessAddUp) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  constexpr double kRounding = 1e-6;
  const Clock::time_point first = Clock::now();
  const double age = process_age();
  const Clock::time_point second = Clock::now();
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Clock::time_point third = Clock::now();
    const double passed = process_age() - age;
    EXPECT_GE(passed, seconds(third - second) - kRounding);
    EXPECT_LE(passed, seconds(Clock::now() - first) + kRounding);
  }
}

}  // namespace
}  // namespace trireme::report
