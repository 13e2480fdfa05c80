// The run that another is compared with: read from its directory or file, and refused
// where it says nothing of this one.
#include "report/reference_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::report {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ReferenceRunOfAFile : public testing::Test {
 protected:
  std::string put(const std::string& text) const {
    test::spill(scratch_ / "efficiency.json", text);
    return scratch_.path().string();
  }
  static void expect_refused(const std::string& path, const std::string& said) {
    EXPECT_THAT([&] { read_reference(path, 300.0); },
                ThrowsMessage<InputError>(HasSubstr(said)));
  }
  test::Scratch scratch_;
};

constexpr const char* kFile = R"({"samples": 4,
  "identity": {"quantities_flops": {"model_flops": 900, "executed_flops": 2000},
               "factors": [0, 1, 2, 3, 4, 5, {"lost": {"skipped_updates": 0.15}}]},
  "device_seconds": {"parts": {"passes": 7, "optimizer": 1}}})";

TEST_F(ReferenceRunOfAFile, IsReadFromItsDirectoryOrItself) {
  const std::string directory = put(kFile);
  for (const std::string& path : {directory, directory + "/efficiency.json"}) {
    const ReferenceRun run = read_reference(path, 300.0);
    EXPECT_EQ(run.path, directory + "/efficiency.json");
    EXPECT_EQ(run.kernel_seconds_of_sample, 2.0);
  }
}

TEST_F(ReferenceRunOfAFile, OfOtherWorkIsRefused) {
  const std::string path = put(kFile);
  EXPECT_THAT([&] { read_reference(path, 301.0); },
              ThrowsMessage<InputError>(HasSubstr("another model")));
}

TEST_F(ReferenceRunOfAFile, ThatIsNoneIsRefused) {
  expect_refused(scratch_.path().string(), "there is no");
  expect_refused(put("{\"samples\": 4}"), "no number at /identity");
  expect_refused(put("{\"samples\": \"four\"}"), "no number at /samples");
  expect_refused(put("[1, 2]"), "no number at /samples");
  expect_refused(put("{\"samples\": "), "is no efficiency.json");
  expect_refused(put(R"({"samples": 0,
    "identity": {"quantities_flops": {"model_flops": 0, "executed_flops": 0},
                 "factors": [0, 1, 2, 3, 4, 5, {"lost": {"skipped_updates": 0}}]},
    "device_seconds": {"parts": {"passes": 0, "optimizer": 0}}})"),
                 "has no steps");
}

}  // namespace
}  // namespace trireme::report
