// Safetensors against a file made by the reference implementation, round trips, sharded
// models, and every way a header can lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.hpp"
#include "support/safetensors.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// safetensors.torch.save of {a: [[1.5, -2], [0.25, 3]], b: bf16 [1, -0.5], c: fp16
// [65504, 6e-8], d: int64 [7, -9], e: float64 2.5, m: bool [True, False]}.
std::string reference_file() {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("d":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
      R"("e":{"dtype":"F64","shape":[],"data_offsets":[16,24]},)"
      R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[24,40]},)"
      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[40,44]},)"
      R"("c":{"dtype":"F16","shape":[2],"data_offsets":[44,48]},)"
      R"("m":{"dtype":"BOOL","shape":[2],"data_offsets":[48,50]}}    )";
  const char data[] =
      "\x07\x00\x00\x00\x00\x00\x00\x00\xf7\xff\xff\xff\xff\xff\xff\xff"
      "\x00\x00\x00\x00\x00\x00\x04\x40\x00\x00\xc0\x3f\x00\x00\x00\xc0"
      "\x00\x00\x80\x3e\x00\x00\x40\x40\x80\x3f\x00\xbf\xff\x7b\x01\x00\x01\x00";
  const std::string length("\x70\x01\x00\x00\x00\x00\x00\x00", 8);
  return length + header + std::string(data, sizeof data - 1);
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data_bytes, '\0');
}

std::string error_of(const std::string& content) {
  const test::Scratch scratch;
  test::spill(scratch / "x.safetensors", content);
  return message_of<InputError>(
      [&] { io::SafetensorsReader reader(scratch / "x.safetensors"); });
}

TEST(Safetensors, ReadsTheReference) {
  const test::Scratch scratch;
  test::spill(scratch / "model.safetensors", reference_file());
  const io::SafetensorsReader reader(scratch.path());  // a directory will do
  EXPECT_EQ(reader.tensors().size(), 6u);
  EXPECT_EQ(reader.at("a").shape, (Shape{2, 2}));
  EXPECT_THAT(reader.read_float("a"), ElementsAre(1.5f, -2.0f, 0.25f, 3.0f));
  EXPECT_THAT(reader.read_float("b"), ElementsAre(1.0f, -0.5f));
  EXPECT_THAT(reader.read_float("c"), ElementsAre(65504.0f, 5.9604644775390625e-8f));
  EXPECT_THAT(reader.read_float("e"), ElementsAre(2.5f));
  EXPECT_THAT(test::elements<std::int64_t>(reader.at("d")), ElementsAre(7, -9));
  EXPECT_FALSE(reader.at("m").dtype.has_value());
  EXPECT_THAT(message_of<InputError>([&] { reader.read_float("m"); }),
              HasSubstr("holds BOOL"));
  EXPECT_THAT(message_of<InputError>([&] { reader.read_float("d"); }),
              HasSubstr("holds I64; expected F32"));
}

TEST(Safetensors, RoundTrip) {
  const test::Scratch scratch;
  const std::vector<bf16> halves = {bf16(1.0f), bf16(-2.5f), bf16(3.0f)};
  const std::vector<float> wide = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
  io::SafetensorsWriter writer;
  writer.add("halves", DType::bfloat16, {3}, test::from_memory(halves.data()));
  writer.add("wide", DType::float32, {3, 2}, test::from_memory(wide.data()));
  writer.add("none", DType::float32, {0, 7}, test::from_memory(nullptr));
  writer.add("scalar", DType::float64, {}, [](std::span<std::byte> out) {
    const double value = 0.1;
    std::memcpy(out.data(), &value, sizeof value);
  });
  EXPECT_THROW(writer.add("wide", DType::float32, {1}, test::from_memory(wide.data())),
               Error);
  writer.write(scratch / "m.safetensors");
  const io::SafetensorsReader reader(scratch / "m.safetensors");
  EXPECT_EQ(reader.read_float("wide"), wide);
  EXPECT_THAT(reader.read_float("halves"), ElementsAre(1.0f, -2.5f, 3.0f));
  EXPECT_TRUE(reader.read_float("none").empty());
  EXPECT_EQ(test::elements<double>(reader.at("scalar")).front(), 0.1);
  for (const auto& [name, tensor] : reader.tensors()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(*tensor.dtype), 0u)
        << name;
  }
}

TEST(Safetensors, ShardedModel) {
  const test::Scratch scratch;
  const std::vector<float> values = {1.0f, 2.0f};
  io::SafetensorsWriter one, two;
  one.add("x", DType::float32, {2}, test::from_memory(values.data()));
  two.add("y", DType::float32, {1}, test::from_memory(values.data()));
  one.write(scratch / "model-00001-of-00002.safetensors");
  two.write(scratch / "model-00002-of-00002.safetensors");
  const std::string index = R"({"metadata": {}, "weight_map": {
      "x": "model-00001-of-00002.safetensors",
      "y": "model-00002-of-00002.safetensors"}})";
  test::spill(scratch / "model.safetensors.index.json", index);
  const io::SafetensorsReader reader(scratch.path());
  EXPECT_EQ(reader.read_float("x"), values);
  EXPECT_THAT(reader.read_float("y"), ElementsAre(1.0f));
  EXPECT_TRUE(io::SafetensorsReader(scratch / "model.safetensors.index.json").has("y"));
}

// A model of two files, x in a and y in b, with whatever index.
class SafetensorsIndex : public ::testing::Test {
 protected:
  SafetensorsIndex() {
    write("a", "x");
    write("b", "y");
  }
  void write(const char* file, const char* tensor) {
    io::SafetensorsWriter writer;
    writer.add(tensor, DType::float32, {2}, test::from_memory(values_.data()));
    writer.write(scratch_ / file);
  }
  std::string error_of_index(const std::string& index) {
    test::spill(scratch_ / "model.safetensors.index.json", index);
    return message_of<InputError>([&] { io::SafetensorsReader(scratch_.path()); });
  }
  std::string error_of_map(const std::string& map) {
    return error_of_index(R"({"weight_map": {)" + map + "}}");
  }
  std::vector<std::string> warnings_of_size(const std::string& size) {
    test::spill(scratch_ / "model.safetensors.index.json",
                R"({"metadata": {"total_size": )" + size +
                    R"(}, "weight_map": {"x": "a", "y": "b"}})");
    return io::SafetensorsReader(scratch_.path()).warnings();
  }

  test::Scratch scratch_;
  std::vector<float> values_ = {1.0f, 2.0f};
};

TEST_F(SafetensorsIndex, NamesWhereTensorsAre) {
  EXPECT_EQ(error_of_map(R"("x": "a", "y": "b")"), "(nothing thrown)");
  EXPECT_THAT(error_of_map(R"("z": "a", "y": "b")"),
              AllOf(HasSubstr("places tensor 'z' in 'a', which does not hold it. Take"),
                    HasSubstr("as one program wrote them")));
  EXPECT_THAT(error_of_map(R"("x": "b", "y": "a", "z": "a")"),
              HasSubstr("places tensor 'x' in 'b', which does not hold it (and so with 2 "
                        "other tensors)"));
}

TEST_F(SafetensorsIndex, AllMissingFilesAreNamed) {
  EXPECT_THAT(error_of_map(R"("x": "a", "y": "none")"),
              HasSubstr("names 2 files of which one does not exist there: 'none'"));
  EXPECT_THAT(error_of_map(R"("x": "a", "y": "none", "z": "nor")"),
              AllOf(HasSubstr("3 files of which 2 do not exist there: 'none', 'nor'."),
                    HasSubstr("Download or copy the whole model")));
  EXPECT_THAT(error_of_map("\"x\": \"" + std::string(1000, 'a') + "\""),
              HasSubstr("File name too long"));
  std::filesystem::create_symlink(scratch_ / "gone", scratch_ / "link");
  EXPECT_THAT(error_of_map(R"("x": "link")"), HasSubstr("'link'"));
}

// No name leads out of the directory.
TEST_F(SafetensorsIndex, FilesAreInItsDirectory) {
  std::filesystem::create_directories(scratch_ / "sub");
  std::filesystem::copy_file(scratch_ / "a", scratch_ / "sub/a");
  const std::string absolute = (scratch_ / "a").string();
  for (const std::string& name :
       {std::string("../../etc/passwd"), std::string(".."), std::string("."),
        std::string("sub/a"), std::string("./a"), std::string("a/"), absolute,
        std::string()}) {
    EXPECT_THAT(error_of_map(R"("y": "b", "x": ")" + name + R"(")"),
                AllOf(HasSubstr("tensor 'x' is in '" + name + "'"),
                      HasSubstr("not a file name in the same directory")));
  }
  EXPECT_THAT(error_of_map(R"("x": 7)"), HasSubstr("tensor 'x' names no file"));
}

TEST_F(SafetensorsIndex, ATensorIsInOneFile) {
  EXPECT_THAT(
      error_of_map(R"("x": "a", "x": "b")"),
      AllOf(HasSubstr("index.json:1:"), HasSubstr("a second key \"x\" in one object")));
  write("b", "x");
  EXPECT_THAT(error_of_map(R"("x": "a", "y": "b")"),
              AllOf(HasSubstr("/b': tensor 'x' is in 'a' too")));
}

TEST_F(SafetensorsIndex, SizesAreCompared) {
  EXPECT_THAT(warnings_of_size("16"), testing::IsEmpty());
  EXPECT_THAT(warnings_of_size("16.0"), testing::IsEmpty());
  for (const char* size : {"17", "-1", "\"16\"", "null", "1e30"}) {
    EXPECT_THAT(warnings_of_size(size),
                ElementsAre(AllOf(HasSubstr("total_size is "),
                                  HasSubstr("and the tensors take 16"))));
  }
  // What a file lacks is an error.
  std::filesystem::resize_file(scratch_ / "b",
                               std::filesystem::file_size(scratch_ / "b") - 1);
  EXPECT_THAT(error_of_map(R"("x": "a", "y": "b")"),
              AllOf(HasSubstr("/b': tensor 'y' ends at byte 8"), HasSubstr("truncated")));
}

TEST_F(SafetensorsIndex, WhatIsNone) {
  for (const char* text : {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": 1})"}) {
    EXPECT_THAT(error_of_index(text), HasSubstr("no \"weight_map\""));
  }
  EXPECT_THAT(error_of_index("{"), HasSubstr("index.json:1:"));
  EXPECT_EQ(error_of_map(""), "(nothing thrown)");  // no tensors at all
}

TEST(Safetensors, MissingTensorNamesNearest) {
  const test::Scratch scratch;
  test::spill(
      scratch / "x.safetensors",
      file_of(R"({"h.0.attn.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
              R"("wte.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
              1));
  const io::SafetensorsReader reader(scratch / "x.safetensors");
  EXPECT_THAT(message_of<InputError>([&] { reader.at("h.0.attn.weights"); }),
              AllOf(HasSubstr("no tensor 'h.0.attn.weights'"), HasSubstr("2 tensors"),
                    HasSubstr("nearest is 'h.0.attn.weight'")));
}

TEST(Safetensors, DamageIsNamed) {
  EXPECT_THAT(error_of(""), HasSubstr("truncated"));
  EXPECT_THAT(error_of("1234567"),
              HasSubstr("the header's length takes 8 bytes from byte 0"));
  EXPECT_THAT(error_of(std::string(64, '\xff')), HasSubstr("header is said to have"));
  EXPECT_THAT(error_of(file_of("not json", 0)),
              HasSubstr("its header: line 1, column 2: not valid JSON"));
  EXPECT_THAT(error_of(file_of("[1]", 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                               R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                               2)),
              HasSubstr("column 56: a second key \"a\" in one object"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4)),
              HasSubstr("'a': 'dtype' is missing"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4)),
              HasSubstr("'shape' is missing"));
  EXPECT_THAT(
      error_of(file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4)),
      HasSubstr("impossible shape [-1]"));
  EXPECT_THAT(
      error_of(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4)),
      HasSubstr("expected [begin, end]"));
  EXPECT_THAT(
      error_of(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4)),
      HasSubstr("take 8 bytes, its data_offsets span 4"));
  EXPECT_THAT(
      error_of(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7)),
      AllOf(HasSubstr("ends at byte 8"), HasSubstr("holds 7 bytes"),
            HasSubstr("truncated")));
  EXPECT_THAT(
      error_of(file_of(
          R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
          0)),
      HasSubstr("impossible shape"));
  const test::Scratch scratch;
  EXPECT_THAT(
      message_of<InputError>([&] { io::SafetensorsReader reader(scratch.path()); }),
      HasSubstr("holds neither model.safetensors nor"));
  test::spill(scratch / "pytorch_model.bin", "");
  EXPECT_THAT(
      message_of<InputError>([&] { io::SafetensorsReader reader(scratch.path()); }),
      HasSubstr("safe_serialization=True"));
}

// No flipped bit in the length or header may do worse than throw an InputError.
TEST(Safetensors, FlippedBits) {
  const test::Scratch scratch;
  const std::string good = reference_file();
  int refused = 0;
  for (std::size_t bit = 0; bit < (8 + 368) * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    test::spill(scratch / "x.safetensors", bad);
    try {
      const io::SafetensorsReader reader(scratch / "x.safetensors");
      for (const auto& [name, tensor] : reader.tensors()) {
        EXPECT_LE(tensor.bytes, good.size()) << name;
      }
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Safetensors, CutUnderItsReaders) {
  const test::Scratch scratch;
  test::spill(scratch / "model.safetensors", reference_file());
  const io::SafetensorsReader reader(scratch.path());
  std::filesystem::resize_file(scratch / "model.safetensors", 0);
  const char* what = "model.safetensors' was cut short while it was read";
  EXPECT_THAT(message_of<InputError>([&] { reader.read_float("a"); }), HasSubstr(what));
}

}  // namespace
}  // namespace trireme
