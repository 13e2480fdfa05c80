// Models in several files: what is written is read again bit by bit, and whoever dies at
// it leaves nothing that looks whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "ckpt/hugging_face.hpp"
#include "io/atomic_file.hpp"
#include "unit/ckpt/in_child.hpp"
#include "unit/ckpt/stacked_dialect.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::ckpt {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path gpt2_tiny() {
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  return fs::path(source != nullptr ? source : ".") / "tests/parity/fixtures/gpt2_tiny";
}

WeightSource weights_of(const HuggingFaceModel& model) {
  return [&model](const ForeignTensor& tensor, std::span<float> values) {
    std::ranges::copy(model.read(tensor), values.begin());
  };
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(Sharded, RoundTrip) {
  const test::Scratch scratch;
  Log log(false);
  const HuggingFaceModel model(gpt2_tiny(), log);
  constexpr std::uint64_t kMost = 64'000;
  const std::size_t files = write_hugging_face(
      scratch / "out", model.dialect(), model.config(), weights_of(model), {}, kMost);
  EXPECT_GE(files, 386'304 / kMost + 1);  // what the tensors take

  const Json index =
      Json::parse(test::slurp(scratch / "out/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 386'304);
  EXPECT_FALSE(fs::exists(scratch / "out/model.safetensors"));
  std::size_t tensors = 0;
  for (std::size_t i = 1; i <= files; ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i, files);
    const io::SafetensorsReader one(scratch / "out" / name);
    std::uint64_t bytes = 0;
    for (const auto& [key, tensor] : one.tensors()) {
      EXPECT_EQ(index["weight_map"][key], name);
      bytes += tensor.bytes;
    }
    EXPECT_LE(bytes, kMost) << name;
    EXPECT_GT(bytes, 0u) << name;
    tensors += one.tensors().size();
  }
  EXPECT_EQ(tensors, index["weight_map"].size());
  EXPECT_EQ(names_in(scratch / "out").size(), files + 3);  // both configs, the index

  const io::SafetensorsReader before(gpt2_tiny()), after(scratch / "out");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& [name, tensor] : before.tensors()) {
    ASSERT_EQ(after.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(std::memcmp(after.at(name).data, tensor.data, tensor.bytes), 0) << name;
  }
  const HuggingFaceModel again(scratch / "out", log);
  EXPECT_EQ(again.tensors().size(), model.tensors().size());
  EXPECT_TRUE(log.warnings().empty());
}

TEST(Sharded, OneFileWhereAllFits) {
  const test::Scratch scratch;
  Log log(false);
  const HuggingFaceModel model(gpt2_tiny(), log);
  const auto write = [&](const char* name, std::uint64_t most) {
    return write_hugging_face(scratch / name, model.dialect(), model.config(),
                              weights_of(model), {}, most);
  };
  EXPECT_EQ(write("default", kDefaultShardBytes), 1u);
  EXPECT_EQ(write("just", 386'304), 1u);
  EXPECT_EQ(write("two", 386'303), 2u);
  EXPECT_EQ(test::slurp(scratch / "default/model.safetensors"),
            test::slurp(scratch / "just/model.safetensors"));
  EXPECT_FALSE(fs::exists(scratch / "just/model.safetensors.index.json"));
  // However little: a tensor is not cut.
  EXPECT_EQ(write("each", 1), model.tensors().size());
}

// The parts of a stack follow one another, whatever files they are in: ours is read once.
TEST(Sharded, AStackIsReadOnce) {
  const test::Scratch scratch;
  const test::StackedFiles files;
  Log log(false);
  const std::vector<Dialect> stacked = {test::stacked_dialect()};
  const HuggingFaceModel model(files.write(scratch / "theirs"), log, stacked);
  std::map<std::string, int> reads;
  const std::size_t count = write_hugging_face(
      scratch / "out", model.dialect(), model.config(),
      [&](const ForeignTensor& tensor, std::span<float> values) {
        ++reads[tensor.name];
        std::ranges::copy(model.read(tensor), values.begin());
      },
      {}, 1);
  EXPECT_EQ(count, files.tensors.size());
  EXPECT_EQ(reads.size(), model.tensors().size());
  for (const auto& [name, times] : reads) EXPECT_EQ(times, 1) << name;
  const io::SafetensorsReader again(scratch / "out");
  for (const auto& [name, tensor] : files.tensors) {
    EXPECT_EQ(again.read_float(name), tensor.values) << name;
  }
}

TEST(Sharded, TheIndexIsWrittenLast) {
  const test::Scratch scratch;
  const std::vector<float> values(4);
  io::SafetensorsWriter writer;
  writer.add("a", DType::float32, {4}, test::from_memory(values.data()));
  writer.add("b", DType::float32, {4}, test::from_memory(values.data()));
  writer.add("c", DType::float32, {4}, [&](std::span<std::byte>) {
    EXPECT_THAT(names_in(scratch.path()),
                testing::Contains("model-00001-of-00003.safetensors"));
    EXPECT_THAT(names_in(scratch.path()),
                testing::Not(testing::Contains("model.safetensors.index.json")));
    throw Error("the disk is gone");
  });
  EXPECT_THROW(writer.write_model(scratch.path(), 16), Error);
  EXPECT_THAT(names_in(scratch.path()),
              testing::UnorderedElementsAre("model-00001-of-00003.safetensors",
                                            "model-00002-of-00003.safetensors"));
}

// Killed before each of the tensors: nothing has the name, and the next call is as if
// there had been none.
TEST(Sharded, KilledAtAnyTensor) {
  if constexpr (!kHostExecution) GTEST_SKIP() << test::kNoForks;
  const test::Scratch scratch;
  const test::StackedFiles files;
  Log log(false);
  const std::vector<Dialect> stacked = {test::stacked_dialect()};
  const HuggingFaceModel model(files.write(scratch / "theirs"), log, stacked);
  const fs::path out = scratch / "out";
  for (std::size_t deadly = 0; deadly < model.tensors().size(); ++deadly) {
    const int status = test::in_child([&] {
      std::size_t tensors = 0;
      write_hugging_face(
          out, model.dialect(), model.config(),
          [&](const ForeignTensor&, std::span<float>) {
            if (tensors++ == deadly) ::kill(::getpid(), SIGKILL);
          },
          {}, 100);
    });
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << deadly;
    ASSERT_FALSE(fs::exists(out)) << deadly;
    ASSERT_EQ(names_in(scratch.path()).size(), 2u) << deadly;
    EXPECT_EQ(io::remove_leftovers_of(out).size(), 1u) << deadly;
    ASSERT_EQ(names_in(scratch.path()).size(), 1u) << deadly;
  }
  write_hugging_face(out, model.dialect(), model.config(), weights_of(model), {}, 100);
  EXPECT_EQ(HuggingFaceModel(out, log, stacked).tensors().size(), model.tensors().size());
}

}  // namespace
}  // namespace trireme::ckpt
