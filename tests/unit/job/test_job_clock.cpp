// When the job ends: what squeue prints, and asking it without waiting for it. In place
// of squeue a script of each test's own.
#include "job/job_clock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <iterator>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/wall_time.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::job {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(JobClock, ReadsWhatSqueuePrints) {
  EXPECT_EQ(parse_time_left("59:30"), 3570.0);
  EXPECT_EQ(parse_time_left("1-02:03:04"), 93784.0);
  EXPECT_EQ(parse_time_left("INVALID"), 0.0);
  EXPECT_EQ(parse_time_left("UNLIMITED"), std::numeric_limits<double>::infinity());
  for (const char* text : {"", "NOT_SET", "N/A", "1:00 ", "slurm_load_jobs error"}) {
    EXPECT_EQ(parse_time_left(text), std::nullopt) << text;
  }
}

class JobClockAsks : public ::testing::Test {
 protected:
  // A squeue that does this, in the scratch directory.
  JobClock::Options asking(const std::string& script) {
    const auto squeue = scratch_ / "squeue";
    test::spill(squeue, "#!/bin/sh\ncd '" + scratch_.path().string() + "'\n" + script);
    std::filesystem::permissions(squeue, std::filesystem::perms::owner_all);
    variables_["SLURM_JOB_ID"] = "4711";
    return {.variable =
                [this](const char* name) {
                  const auto found = variables_.find(name);
                  return found == variables_.end() ? nullptr : found->second.c_str();
                },
            .squeue = squeue.string(),
            .interval = 0.05};
  }
  // Asks until the clock says something new.
  static std::string next_note(JobClock& clock) {
    for (int tries = 0; tries < 3000; ++tries) {
      clock.poll();
      const std::string note = clock.take_note();
      if (!note.empty()) return note;
      std::this_thread::sleep_for(10ms);
    }
    return "(none)";
  }

  test::Scratch scratch_;
  std::map<std::string, std::string> variables_;
};

TEST_F(JobClockAsks, ForTheTimeLeft) {
  JobClock clock(asking("echo \"$@\" > asked; echo a warning >&2; echo ' 1:00:00'"));
  EXPECT_EQ(clock.seconds_left(), std::nullopt);
  EXPECT_EQ(next_note(clock), "SLURM ends job 4711 in 1h00m");
  EXPECT_NEAR(clock.seconds_left().value(), 3600.0, 30.0);
  EXPECT_EQ(test::slurp(scratch_ / "asked"), "-h -o %L -j 4711\n");
}

TEST_F(JobClockAsks, AgainAsLimitsChange) {
  test::spill(scratch_ / "left", "1:00:00");
  JobClock clock(asking("cat left"));
  next_note(clock);
  test::spill(scratch_ / "left", "2:00:00");
  EXPECT_EQ(next_note(clock), "SLURM's limit for job 4711 has changed: 2h00m left");
  test::spill(scratch_ / "left", "UNLIMITED");
  EXPECT_EQ(next_note(clock), "SLURM's limit for job 4711 is gone");
  EXPECT_EQ(clock.seconds_left(), std::nullopt);
  test::spill(scratch_ / "left", "INVALID");  // over its limit
  EXPECT_THAT(next_note(clock), HasSubstr("has changed"));
  EXPECT_LE(clock.seconds_left().value(), 0.0);
}

TEST_F(JobClockAsks, AtMostOnceAnInterval) {
  JobClock::Options options = asking("echo x >> asked; echo 1:00:00");
  options.interval = 1000.0;
  JobClock clock(options);
  next_note(clock);
  for (int i = 0; i < 100; ++i) clock.poll();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(test::slurp(scratch_ / "asked"), "x\n");
}

TEST_F(JobClockAsks, ForAJobOfAnArrayByItsPlace) {
  JobClock::Options options = asking("echo \"$5\" > asked; echo 1:00:00");
  variables_["SLURM_ARRAY_JOB_ID"] = "4711";
  variables_["SLURM_ARRAY_TASK_ID"] = "3";
  JobClock clock(options);
  next_note(clock);
  EXPECT_EQ(test::slurp(scratch_ / "asked"), "4711_3\n");
}

// What was known stays known; an end that is not known is said to be so, once.
TEST_F(JobClockAsks, WithoutAnAnswer) {
  {
    JobClock clock(asking("echo 'slurm_load_jobs error: no controller' >&2; exit 1"));
    EXPECT_EQ(
        next_note(clock),
        "squeue does not tell when job 4711 ends (status 1, 'slurm_load_jobs error: "
        "no controller'): run.time_limit and signals alone stop the run in time");
    for (int i = 0; i < 20; ++i) {
      clock.poll();
      std::this_thread::sleep_for(10ms);
      EXPECT_EQ(clock.take_note(), "");
    }
    EXPECT_EQ(clock.seconds_left(), std::nullopt);
  }
  JobClock::Options options = asking("echo 1:00:00");
  options.squeue = "no-such-squeue";
  JobClock none(options);
  EXPECT_THAT(next_note(none), HasSubstr("No such file or directory"));

  test::spill(scratch_ / "left", "1:00:00");
  JobClock clock(asking("echo x >> asked; cat left"));
  next_note(clock);
  test::spill(scratch_ / "left", "");
  const std::string before = test::slurp(scratch_ / "asked");
  while (test::slurp(scratch_ / "asked").size() < before.size() + 6) {
    clock.poll();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(clock.take_note(), "");
  EXPECT_NEAR(clock.seconds_left().value(), 3600.0, 30.0);
}

TEST_F(JobClockAsks, WhoDoesNotAnswerIsNotWaitedFor) {
  JobClock::Options options = asking("exec sleep 300");
  options.patience = 0.3;
  JobClock clock(options);
  const auto start = std::chrono::steady_clock::now();
  clock.poll();
  clock.poll();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  EXPECT_THAT(next_note(clock), HasSubstr("no answer within 300ms"));
}

// However often: each that is given up is gone before the next is asked, and fetched.
TEST_F(JobClockAsks, WhoDoesNotAnswerIsGoneBeforeTheNext) {
  JobClock::Options options = asking("echo $$ >> asked; exec sleep 300");
  options.interval = options.patience = 0.2;
  const auto asked = [&] {
    std::istringstream text(test::slurp(scratch_ / "asked"));
    return std::vector<pid_t>{std::istream_iterator<pid_t>(text), {}};
  };
  {
    JobClock clock(options);
    for (int tries = 0; tries < 3000 && asked().size() < 4; ++tries) {
      clock.poll();
      std::this_thread::sleep_for(10ms);
    }
  }
  const std::vector<pid_t> processes = asked();
  ASSERT_GE(processes.size(), 4u);
  for (const pid_t process : processes) {
    EXPECT_EQ(::kill(process, 0), -1) << "as a zombie, at least";
  }
}

TEST_F(JobClockAsks, NobodyWhereTheEndIsKnownOrOthersAsk) {
  JobClock::Options options = asking("echo x >> asked; echo 1:00:00");
  options.asks = false;
  JobClock other(options);
  options.asks = true;
  variables_["SLURM_JOB_END_TIME"] =
      std::to_string(static_cast<long>(wall_seconds()) + 50);
  JobClock known(options);
  EXPECT_NEAR(known.seconds_left().value(), 50.0, 2.0);
  variables_.clear();  // no job at all
  JobClock none(options);
  for (int i = 0; i < 20; ++i) {
    for (JobClock* clock : {&other, &known, &none}) clock->poll();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "asked"));
  EXPECT_EQ(other.seconds_left(), std::nullopt);
  EXPECT_EQ(none.seconds_left(), std::nullopt);
}

// A shell that was kept from a job that has ended passes its variables on.
TEST_F(JobClockAsks, SqueueAboutAnEndThatHasPassed) {
  const auto stale = std::to_string(static_cast<long>(wall_seconds()) - 1000);
  {
    const JobClock::Options options = asking("echo 1:00:00");
    variables_["SLURM_JOB_END_TIME"] = stale;
    JobClock clock(options);
    EXPECT_EQ(clock.seconds_left(), std::nullopt);
    EXPECT_THAT(clock.take_warning(),
                AllOf(HasSubstr("SLURM_JOB_END_TIME is '" + stale + "', which was 16m4"),
                      HasSubstr("squeue's word counts")));
    EXPECT_EQ(next_note(clock), "SLURM ends job 4711 in 1h00m");
    EXPECT_NEAR(clock.seconds_left().value(), 3600.0, 30.0);
  }
  {
    JobClock clock(asking("echo INVALID"));  // it is past its limit
    next_note(clock);
    EXPECT_LE(clock.seconds_left().value(), 0.0);
  }
  {
    JobClock clock(asking("echo 'error: Invalid job id specified' >&2; exit 1"));
    EXPECT_THAT(next_note(clock), HasSubstr("squeue does not tell"));
    EXPECT_EQ(clock.seconds_left(), std::nullopt);
  }
  variables_.erase("SLURM_JOB_ID");
  JobClock::Options alone = {.variable = [&](const char* name) -> const char* {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : found->second.c_str();
  }};
  JobClock clock(alone);
  EXPECT_THAT(clock.take_warning(), HasSubstr("It is ignored"));
  EXPECT_EQ(clock.take_warning(), "");
  alone.asks = false;
  EXPECT_EQ(JobClock(alone).take_warning(), "");
}

TEST_F(JobClockAsks, NobodyAboutWhatNoJobIsCalled) {
  for (const char* garbage : {"nan", "0x1p70", "12;34", "inf", "1e9 s", "\xff"}) {
    const JobClock::Options options = asking("echo 1:00:00");
    variables_["SLURM_JOB_END_TIME"] = garbage;
    JobClock clock(options);
    EXPECT_THAT(clock.take_warning(), HasSubstr("no end of this job")) << garbage;
    EXPECT_EQ(clock.seconds_left(), std::nullopt) << garbage;
  }
  variables_.erase("SLURM_JOB_END_TIME");
  for (const char* garbage : {"\xff", "-h", "4711,4712", "a job"}) {
    JobClock::Options options = asking("echo x >> asked; echo 1:00:00");
    variables_["SLURM_JOB_ID"] = garbage;
    EXPECT_EQ(slurm_job(options.variable), "");
    JobClock clock(options);
    EXPECT_THAT(clock.take_warning(), HasSubstr("no name of a job"));
    for (int i = 0; i < 3; ++i) clock.poll();
    EXPECT_EQ(clock.take_note(), "");
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "asked"));
  variables_["SLURM_JOB_ID"] = "4711";
  EXPECT_EQ(slurm_job([&](const char*) { return "4711"; }), "4711");
  EXPECT_EQ(slurm_job([](const char*) -> const char* { return nullptr; }), "");
}

}  // namespace
}  // namespace trireme::job
