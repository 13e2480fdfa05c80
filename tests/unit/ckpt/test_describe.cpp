// Descriptions for `inspect`: right for whole things, and told as damage for every
// flipped bit, cut or foreign file, without a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ckpt/describe.hpp"
#include "io/hdf5.hpp"
#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ckpt::Depth;
using nlohmann::json;
using test::message_of;
using ::testing::HasSubstr;

json described(const fs::path& path, Depth depth = Depth::checksums) {
  return json::parse(ckpt::describe(path, depth));
}

TEST(Describe, Checkpoint) {
  const test::Scratch scratch;
  const fs::path step = test::save_as(2, scratch.path(), 1000).path;
  const json shown = described(scratch / "latest");
  EXPECT_EQ(shown["kind"], "checkpoint");
  EXPECT_EQ(shown["step"], 1000);
  EXPECT_EQ(shown["contents"], "training");
  EXPECT_EQ(shown["parameters"], 35 + 180 + 36 + 48 + 5);
  EXPECT_EQ(shown["state"]["seed"], 0xfedcba9876543210ull);
  EXPECT_EQ(shown["state"]["samples"], 32000);
  EXPECT_EQ(shown["grid"]["pipeline"], 2);
  EXPECT_EQ(shown["tokenizer"]["merges.txt"], 5);
  EXPECT_EQ(shown["files"].size(), 3u);
  EXPECT_EQ(shown["tensors"][0]["name"], "model/qkv/weight");  // in a model's order
  EXPECT_EQ(shown["tensors"][0]["shape"], json({36, 5}));
  EXPECT_EQ(shown["tensors"][0]["blocks"], 6);
  EXPECT_EQ(shown["checked"], "checksums");
  EXPECT_TRUE(shown["problems"].empty());
}

TEST(Describe, Run) {
  const test::Scratch scratch;
  for (const std::int64_t step : {1, 2}) test::save_as(1, scratch / "checkpoints", step);
  fs::resize_file(scratch / "checkpoints/step_00000002/index.h5", 7);
  const json shown = described(scratch.path(), Depth::sizes);
  EXPECT_EQ(shown["kind"], "run");
  ASSERT_EQ(shown["checkpoints"].size(), 2u);
  EXPECT_EQ(shown["checkpoints"][0]["name"], "step_00000002");
  EXPECT_TRUE(shown["checkpoints"][0]["latest"].get<bool>());
  EXPECT_FALSE(shown["checkpoints"][0]["problems"].empty());
  EXPECT_EQ(shown["newest"]["step"], 1);
  EXPECT_THAT(shown["problems"][0].get<std::string>(), HasSubstr("truncated"));
}

TEST(Describe, DamagedCheckpoint) {
  const test::Scratch scratch;
  const fs::path step = test::save_as(1, scratch.path(), 1).path;
  const std::string index = test::slurp(step / "index.h5");
  for (std::size_t at = 0; at < index.size(); at += 997) {
    std::string bad = index;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    test::spill(step / "index.h5", bad);
    const json shown = described(step, Depth::sizes);
    EXPECT_EQ(shown["step"], 1);
    EXPECT_FALSE(shown.contains("state")) << "not opened: its checksum does not hold";
    EXPECT_EQ(described(step)["problems"].size(), 1u);
  }
  test::spill(step / "manifest.json", "{}");
  EXPECT_THAT(described(step)["problems"][0].get<std::string>(),
              HasSubstr("manifest.json"));
}

TEST(Describe, SingleFiles) {
  const test::Scratch scratch;
  const fs::path step = test::save_as(1, scratch.path(), 1).path;
  const json shard = described(step / "shard_00000.h5");
  EXPECT_EQ(shard["kind"], "hdf5");
  EXPECT_EQ(shard["attributes"]["writer"], "0");
  EXPECT_EQ(shard["datasets"].size(), 11u);  // QKV: three blocks each; the stamp
  const json index = described(step / "index.h5");
  EXPECT_EQ(index["attributes"]["step"], "1");
  EXPECT_TRUE(index["problems"].empty());

  const std::string good = test::slurp(step / "shard_00000.h5");
  test::spill(scratch / "cut.h5", good.substr(0, good.size() / 2));
  EXPECT_THAT(described(scratch / "cut.h5")["problems"][0].get<std::string>(),
              HasSubstr("truncated"));
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); at += 61) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    test::spill(scratch / "bad.h5", bad);
    try {
      refused += described(scratch / "bad.h5")["problems"].empty() ? 0 : 1;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5);
}

TEST(Describe, NothingOfOurs) {
  const test::Scratch scratch;
  EXPECT_THAT(message_of<InputError>([&] { described(scratch / "none"); }),
              HasSubstr("does not exist: expected a corpus"));
  EXPECT_THAT(message_of<InputError>([&] { described(scratch.path()); }),
              HasSubstr("holds no step_*"));
  test::spill(scratch / "text", "to be");
  EXPECT_THAT(message_of<InputError>([&] { described(scratch / "text"); }),
              HasSubstr("is not an HDF5 file"));
}

}  // namespace
}  // namespace trireme
