// What a fault plan says, is what happens, where and when it says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/fault_plan.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;

const std::vector<FaultPhase> kPhases = {{.name = "step", .has_gradients = true},
                                         {"ckpt.begin", true},
                                         {"ckpt.write", true, true}};

TEST(FaultPlan, StrikesWhereItSays) {
  FaultPlan plan("enospc:phase=ckpt.write,rank=1,step=4,after=2", 1, 2, kPhases);
  EXPECT_EQ(plan.at("ckpt.write", 3), Fault::none);
  EXPECT_EQ(plan.at("ckpt.begin", 4), Fault::none);
  EXPECT_EQ(plan.at("ckpt.write", 4), Fault::none);  // the first time
  EXPECT_EQ(plan.at("ckpt.write", 4), Fault::no_space);
  EXPECT_EQ(plan.at("ckpt.write", 4), Fault::none);  // once
  FaultPlan other("enospc:phase=ckpt.write,rank=1,step=4,after=2", 0, 2, kPhases);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(other.at("ckpt.write", 4), Fault::none);
}

TEST(FaultPlan, RepeatsAsOftenAsItSays) {
  FaultPlan twice("eio:phase=ckpt.*,times=2", 0, 1, kPhases);
  EXPECT_EQ(twice.at("ckpt.begin"), Fault::io_error);
  EXPECT_EQ(twice.at("ckpt.write"), Fault::io_error);
  EXPECT_EQ(twice.at("ckpt.write"), Fault::none);
  FaultPlan always("bit_flip:phase=ckpt.*,times=0", 0, 1, kPhases);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(always.at("ckpt.write"), Fault::bit_flip);
    EXPECT_EQ(always.at("ckpt.begin"), Fault::none);  // writes no data
  }
}

TEST(FaultPlan, OverflowsWhereThereAreGradients) {
  FaultPlan plan("overflow:phase=step,step=3", 0, 1, kPhases);
  EXPECT_EQ(plan.at("step", 2), Fault::none);
  EXPECT_EQ(plan.at("step", 3), Fault::overflow);
  EXPECT_EQ(plan.at("step", 3), Fault::none);
  EXPECT_THROW(FaultPlan("overflow:phase=ckpt.write", 0, 1, kPhases), InputError);
}

// The same draws on every rank; other seeds draw others.
TEST(FaultPlan, DrawsBySeed) {
  std::set<std::pair<int, int>> drawn;
  for (int seed = 0; seed < 40; ++seed) {
    const std::string text =
        "eio:phase=ckpt.write,rank=0-3,after=1-5,seed=" + std::to_string(seed);
    int struck = 0;
    for (int rank = 0; rank < 4; ++rank) {
      FaultPlan plan(text, rank, 4, kPhases);
      for (int time = 1; time <= 5; ++time) {
        if (plan.at("ckpt.write") == Fault::none) continue;
        ++struck;
        drawn.emplace(rank, time);
      }
    }
    EXPECT_EQ(struck, 1) << text;
  }
  EXPECT_GT(drawn.size(), 10u);
}

TEST(FaultPlan, SaysOnceThatAllIsSlow) {
  const auto lines = [](const std::string& text) {
    FaultPlan plan(text, 0, 1, kPhases);
    ::testing::internal::CaptureStderr();
    for (int step = 1; step <= 4; ++step) plan.at("step", step);
    const std::string said = ::testing::internal::GetCapturedStderr();
    return std::count(said.begin(), said.end(), '\n');
  };
  EXPECT_EQ(lines("slow:phase=step,times=0,after=2,seconds=0"), 1);
  EXPECT_EQ(lines("slow:phase=step,times=0,after=0,seconds=0"), 1);
  EXPECT_EQ(lines("slow:phase=step,times=3,seconds=0"), 3);
  EXPECT_EQ(lines("slow:phase=step,times=0,seconds=0;slow:phase=*,times=0,seconds=0"), 2);
}

// Of a range its end, whatever the seed draws.
TEST(FaultPlan, RefusesRanksThatAreNot) {
  for (int seed = 0; seed < 20; ++seed) {
    const std::string text =
        "enospc:phase=ckpt.write,rank=0-7,seed=" + std::to_string(seed);
    EXPECT_THAT(test::message_of<InputError>([&] { FaultPlan(text, 0, 7, kPhases); }),
                HasSubstr("rank 0-7 of a run of 7"));
    EXPECT_NO_THROW(FaultPlan(text, 0, 8, kPhases));
  }
}

TEST(FaultPlan, SaysWhatIsWrong) {
  const auto message = [](const std::string& text) {
    return test::message_of<InputError>([&] { FaultPlan(text, 0, 2, kPhases); });
  };
  EXPECT_THAT(message("kill:phase=stepp"), HasSubstr("there are step, ckpt.begin"));
  EXPECT_THAT(message("short_write:phase=ckpt.begin"), HasSubstr("there are ckpt.write"));
  for (const char* text :
       {"kill:phase=step;", ";kill:phase=step", "kill:phase=step;;stop:phase=step"}) {
    EXPECT_THAT(message(text),
                HasSubstr(std::string(text) +
                          "': there is nothing before or after a ';', which separates"));
  }
  EXPECT_THAT(message("kill:phase=step,rank=1,rank=0"),
              HasSubstr("rank=0': 'rank' stands twice"));
  EXPECT_THAT(message("kill:phase=step,seed=1,seed=1"), HasSubstr("'seed' stands twice"));
  EXPECT_THAT(message("kill:phase=step,rank=3-1"), HasSubstr("neither a number"));
  EXPECT_THAT(message("kill:phase=step,at=1"), HasSubstr("either a phase or a time"));
  EXPECT_TRUE(FaultPlan("", 0, 1, kPhases).empty());
}

}  // namespace
}  // namespace trireme
