// Times as SLURM writes them: its manual's formats, and what is none of them.
#include "job/slurm_time.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace trireme::job {
namespace {

TEST(SlurmTime, EveryFormat) {
  const std::map<std::string, double> times = {
      {"90", 5400.0},         {"0:07", 7.0},
      {"59:30", 3570.0},      {"2:03:04", 7384.0},
      {"48:00:00", 172800.0}, {"1-2", 93600.0},
      {"1-02:03", 93780.0},   {"1-02:03:04", 93784.0},
      {"0-0", 0.0},           {"365-00:00:00", 365.0 * 86400.0}};
  for (const auto& [text, seconds] : times) {
    EXPECT_EQ(parse_slurm_time(text), seconds) << text;
  }
}

TEST(SlurmTime, AnythingElse) {
  for (const char* text :
       {"", "-", "1-", "-1:00", "1:-1", "1:2:3:4", "1-2:3:4:5", "1-2-3", "1:2-3", " 1:00",
        "1:00 ", "1:00x", "1.5:00", ":30", "30:", "+1", "99999999999:00", "2h"}) {
    EXPECT_EQ(parse_slurm_time(text), std::nullopt) << text;
  }
}

TEST(SlurmTime, ThereAndBack) {
  EXPECT_EQ(slurm_time_text(93784.0), "1-02:03:04");
  EXPECT_EQ(slurm_time_text(59.2), "0-00:01:00");
  for (const double seconds : {0.0, 59.0, 3600.0, 86399.0, 1e7}) {
    EXPECT_EQ(parse_slurm_time(slurm_time_text(seconds)), seconds);
  }
}

}  // namespace
}  // namespace trireme::job
