// Damage: no flipped bit, cut or missing file gives wrong numbers; reading gives the
// right ones or an InputError that names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::vector<std::vector<float>> read_all(const fs::path& step) {
  test::RankMemory memory(0, 1, false);
  memory.read(ckpt::CheckpointReader(step));
  return memory.arrays();
}

// A prime, so that all of a file's structures are met; every byte would take minutes.
constexpr std::size_t kStride = 23;

TEST(Damage, FlippedBits) {
  const test::Scratch scratch;
  const fs::path step = test::save_as(2, scratch.path(), 5).path;
  const auto truth = test::RankMemory(0, 1, true).arrays();
  int harmless = 0;
  int found = 0;
  for (const char* name :
       {"manifest.json", "index.h5", "shard_00000.h5", "shard_00001.h5"}) {
    const std::string good = test::slurp(step / name);
    for (std::size_t at = 0; at < good.size(); at += kStride) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      test::spill(step / name, bad);
      ASSERT_FALSE(ckpt::problems_of(step, ckpt::Depth::checksums).empty())
          << name << " " << at;
      try {
        // Bytes of a shard between its blocks do not matter to this reader.
        ASSERT_EQ(read_all(step), truth) << name << " byte " << at;
        EXPECT_TRUE(std::string(name).starts_with("shard")) << name << " byte " << at;
        ++harmless;
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(name));
        ++found;
      }
    }
    test::spill(step / name, good);
  }
  EXPECT_EQ(read_all(step), truth);
  EXPECT_GT(found, 500);
  EXPECT_GT(harmless, 10);
  EXPECT_GE(found + harmless, 1000);
}

TEST(Damage, EveryByteOfTheDataMatters) {
  const test::Scratch scratch;
  const fs::path step = test::save_as(1, scratch.path(), 5).path;
  const ckpt::Manifest manifest = ckpt::read_manifest(step);
  const std::string good = test::slurp(step / "shard_00000.h5");
  for (const ckpt::BlockEntry& block : manifest.blocks) {
    for (std::uint64_t byte = 0;
         byte < static_cast<std::uint64_t>(block.place.elements()) * 4; byte += 5) {
      std::string bad = good;
      bad[block.offset + byte] ^= 0x10;
      test::spill(step / "shard_00000.h5", bad);
      const std::string message = test::message_of<InputError>([&] { read_all(step); });
      EXPECT_THAT(message,
                  ::testing::AllOf(::testing::HasSubstr("shard_00000.h5' is damaged"),
                                   ::testing::HasSubstr("expected XXH3")));
    }
  }
}

TEST(Damage, CutAndLongerAndMissing) {
  const test::Scratch scratch;
  const fs::path step = test::save_as(2, scratch.path(), 5).path;
  for (const char* name :
       {"manifest.json", "index.h5", "shard_00000.h5", "shard_00001.h5"}) {
    const std::string good = test::slurp(step / name);
    std::vector<std::string> contents = {good.substr(0, good.size() - 1),
                                         good.substr(0, 512), "", good + "x"};
    for (const std::string& content : contents) {
      test::spill(step / name, content);
      EXPECT_THAT(test::message_of<InputError>([&] { read_all(step); }),
                  ::testing::HasSubstr(name));
      EXPECT_FALSE(ckpt::problems_of(step, ckpt::Depth::sizes).empty()) << name;
    }
    fs::remove(step / name);
    EXPECT_THAT(test::message_of<InputError>([&] { read_all(step); }),
                ::testing::AllOf(::testing::HasSubstr(name),
                                 ::testing::HasSubstr("does not exist")));
    fs::create_directory(step / name);
    EXPECT_THAT(test::message_of<InputError>([&] { read_all(step); }),
                ::testing::HasSubstr("is a directory"));
    fs::remove(step / name);
    test::spill(step / name, good);
  }
  EXPECT_NO_THROW(read_all(step));
}

TEST(Damage, FilesOfAnotherCheckpointAreNoticed) {
  const test::Scratch scratch;
  const fs::path a = test::save_as(1, scratch.path(), 5).path;
  const fs::path b = test::save_as(1, scratch.path(), 6).path;
  fs::copy_file(a / "index.h5", b / "index.h5", fs::copy_options::overwrite_existing);
  EXPECT_THROW(ckpt::CheckpointReader{b}, InputError);
}

}  // namespace
}  // namespace trireme
