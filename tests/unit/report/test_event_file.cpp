// Event files: CRCs against published values, messages and frames byte by byte against
// those of TensorBoard's own writer, and files as TensorBoard looks for them, where the
// clock does not go on, and on a disk that fills up. What TensorBoard makes of the files
// of a run is tested by regression.cli.train_tensorboard.
#include "report/event_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/format.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::report {
namespace {

using test::message_of;
using test::slurp;
using test::spill;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kTime = 1700000000.25;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// The names of all files there, in the order in which TensorBoard reads them.
std::set<std::string> names_in(const io::Path& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

EventFileName start(std::int64_t number, double time = kTime) {
  return {.time = time, .host = "node1", .start = number};
}

// The check value of the catalogues of CRCs, and appendix B.4 of RFC 3720.
TEST(EventFile, CrcsAreThePublishedOnes) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string bytes(32, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  EXPECT_EQ(crc32c(bytes), 0x46dd794eu);
  std::reverse(bytes.begin(), bytes.end());
  EXPECT_EQ(crc32c(bytes), 0x113fdb5cu);
}

// By RecordWriter and event_pb2 of the Python package tensorboard 2.20.0.
TEST(EventFile, RecordsAreThoseOfTensorBoard) {
  EXPECT_EQ(hexadecimal(framed_record(version_event(kTime))),
            "1800000000000000a37f4b22"
            "0900001040fc54d9411a0d627261696e2e4576656e743a32"
            "338d2fe9");
  EXPECT_EQ(hexadecimal(framed_record(start_event(kTime, 301))),
            "100000000000000095fbfe18"
            "0900001040fc54d94110ad023a020801"
            "cb79b93b");
  EXPECT_EQ(hexadecimal(framed_record(scalars_event(
                1700000001.5, 300,
                {{"train/loss", 2.5}, {"train/grad_norm", kNan}, {"a", -kInfinity}}))),
            "4300000000000000b18525a0"
            "0900006040fc54d94110ac022a35"
            "0a110a0a747261696e2f6c6f73731500002040"
            "0a160a0f747261696e2f677261645f6e6f726d150000c07f"
            "0a080a016115000080ff"
            "b0df3084");
}

// Readers of Protocol Buffers refuse a whole message for one text that is not UTF-8.
TEST(EventFile, TagsAreUtf8) {
  const std::string event = scalars_event(kTime, 1, {{"validation/a\xff/loss", 1.0}});
  EXPECT_THAT(event, HasSubstr("validation/a\xef\xbf\xbd/loss"));
}

TEST(EventFile, HoldsAStartAndWhatFollows) {
  const test::Scratch scratch;
  const io::Path directory = scratch / "tensorboard";
  EventFile file(directory, start(3), 301);
  EXPECT_EQ(file.path(), directory / "events.out.tfevents.1700000000.node1.3");
  std::string content = framed_record(version_event(kTime));
  content += framed_record(start_event(kTime, 301));
  EXPECT_EQ(slurp(file.path()), content);
  const std::vector<Scalar> scalars = {{"train/loss", 2.5}, {"train/lr", 1e-300}};
  file.write(kTime + 1.0, 310, scalars);  // and is there at once
  content += framed_record(scalars_event(kTime + 1.0, 310, scalars));
  EXPECT_EQ(slurp(file.path()), content);
  file.sync();
  file.close();
  file.close();
  EXPECT_THAT(message_of<Error>([&] { file.write(kTime, 311, scalars); }),
              HasSubstr("has been closed"));
  EXPECT_EQ(slurp(file.path()), content);
}

// In the same second, on another node, with a clock that was set back, and beside files
// of other programs.
TEST(EventFile, ComesBehindThoseOfEarlierStarts) {
  const test::Scratch scratch;
  spill(scratch / "events.out.tfevents.notes", "");
  spill(scratch / "notes.1900000000", "");
  EventFile(scratch.path(), start(1), 0);
  EventFile(scratch.path(), {.time = kTime, .host = "node0", .start = 2}, 1);
  EventFile(scratch.path(), start(3, 12.0), 1);
  EventFile(scratch.path(), start(4, kTime + 60.0), 1);
  EXPECT_THAT(names_in(scratch.path()),
              ElementsAre("events.out.tfevents.1700000000.node1.1",
                          "events.out.tfevents.1700000001.node0.2",
                          "events.out.tfevents.1700000002.node1.3",
                          "events.out.tfevents.1700000060.node1.4",
                          "events.out.tfevents.notes", "notes.1900000000"));
  // A clock that was never set: names have ten digits all the same.
  const test::Scratch other;
  EXPECT_THAT(EventFile(other.path(), start(1, 12.0), 0).path().filename().string(),
              StartsWith("events.out.tfevents.0000000012."));
}

TEST(EventFile, FullDiskIsAnErrorThatNamesTheFile) {
  test::on_full_disks(64 << 10, [](const test::FullDisk& disk) {
    EventFile file(disk.path(), start(1), 0);
    const std::vector<Scalar> scalars = {{"train/loss", 2.5}};
    std::size_t written = slurp(file.path()).size();
    const std::size_t record = framed_record(scalars_event(kTime, 1000, scalars)).size();
    const std::string message = message_of<Error>([&] {
      for (std::int64_t step = 1000; step < 12000; ++step) {
        file.write(kTime, step, scalars);
        written += record;
      }
    });
    EXPECT_THAT(message, AllOf(HasSubstr(file.path().string()), HasSubstr(disk.cause()),
                               HasSubstr(disk.advice())));
    EXPECT_EQ(slurp(file.path()).size(), written);  // nothing torn
  });
}

TEST(EventFile, SaysWhatIsInItsPlace) {
  const test::Scratch scratch;
  spill(scratch / "file", "");
  EXPECT_THAT(message_of<Error>([&] { EventFile(scratch / "file", start(1), 0); }),
              HasSubstr((scratch / "file").string()));
}

}  // namespace
}  // namespace trireme::report
