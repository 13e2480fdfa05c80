// `trireme selftest`: passes here, alone and on ranks, within seconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_binary.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SelftestRun, EveryCheckPasses) {
  const Scratch scratch;
  const RunResult result = trireme({"selftest", "--json", scratch / "result.json"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("13 of 13 checks passed"));
  EXPECT_THAT(result.out, Not(HasSubstr("FAILED")));
  const auto json = nlohmann::json::parse(slurp(scratch / "result.json"));
  EXPECT_TRUE(json["passed"]);
  EXPECT_EQ(json["checks"].size(), 13u);
  double seconds = 0;
  for (const auto& check : json["checks"]) seconds += check["seconds"].get<double>();
  EXPECT_LT(seconds, 60) << "meant for 5 s on a machine that is not busy";
}

TEST(SelftestRun, UnderMpiexec) {
  for (const int ranks : {2, 3}) {
    const RunResult result = trireme_on_ranks(ranks, {"selftest"});
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("13 of 13 checks passed"));
    EXPECT_THAT(result.out, HasSubstr(std::to_string(ranks) + " ranks; all-reduce"));
  }
}

TEST(SelftestRun, SaysWhatFailed) {
  // HDF5 files cannot be written where there is no such directory.
  const RunResult result =
      trireme({"selftest"}, {.environment = {{"TMPDIR", "/proc/nowhere"}}});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("FAILED  HDF5 files"));
  EXPECT_THAT(result.out, HasSubstr("/proc/nowhere"));
  EXPECT_THAT(result.out, HasSubstr("12 of 13 checks passed"));
}

}  // namespace
}  // namespace trireme::test
