// What is said, recorded: from the beginning, warnings as they are printed, and nothing
// of a rank that does not speak.
#include "base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Log, RecordsWhatItHasSaidAndSays) {
  std::vector<std::string> recorded;
  Log log;
  log.info("before {}", 1);
  log.warning("odd");
  log.record("a bar");
  log.record_to([&](const std::string& text) { recorded.push_back(text); });
  EXPECT_THAT(recorded, ElementsAre("before 1", "warning: odd", "a bar"));
  log.info("after\nit");
  log.record("for the record alone");
  EXPECT_THAT(recorded, ElementsAre("before 1", "warning: odd", "a bar", "after\nit",
                                    "for the record alone"));
  EXPECT_THAT(log.warnings(), ElementsAre("odd"));
}

TEST(Log, OthersKeepTheirWarningsOnly) {
  std::vector<std::string> recorded;
  Log log(false);
  log.info("said by the first rank");
  log.record_to([&](const std::string& text) { recorded.push_back(text); });
  log.warning("odd");
  log.record("a bar");
  EXPECT_THAT(recorded, IsEmpty());
  EXPECT_THAT(log.warnings(), ElementsAre("odd"));
}

}  // namespace
}  // namespace trireme
