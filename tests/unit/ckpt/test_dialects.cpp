// Dialects in which tensors are several, stand twice, have names without a prefix or are
// missing: read exactly, written exactly, and refused clearly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "ckpt/convert.hpp"
#include "ckpt/dialects/gpt2.hpp"
#include "ckpt/hugging_face.hpp"
#include "ckpt/reader.hpp"
#include "tensor/param_buffer.hpp"
#include "unit/ckpt/stacked_dialect.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::ckpt {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<Dialect>& both_dialects() {
  static const std::vector<Dialect> both = {gpt2_dialect(), test::stacked_dialect()};
  return both;
}

const ForeignTensor& tensor_of(const HuggingFaceModel& model, const std::string& name) {
  for (const ForeignTensor& tensor : model.tensors()) {
    if (tensor.name == name) return tensor;
  }
  throw Error("no tensor " + name);
}

class Dialects : public ::testing::Test {
 protected:
  HuggingFaceModel model() {
    return HuggingFaceModel(files_.write(scratch_ / "theirs"), log_, both_dialects());
  }
  std::string error() {
    return message_of<InputError>([&] { model(); });
  }
  const std::vector<float>& stored(const std::string& name) const {
    return files_.tensors.at(name).values;
  }
  void strip_prefix() {
    std::map<std::string, test::StackedFiles::Stored> bare;
    for (const auto& [name, tensor] : files_.tensors) {
      if (name.starts_with("body.")) bare[name.substr(5)] = tensor;
    }
    files_.tensors = bare;
  }

  test::Scratch scratch_;
  test::StackedFiles files_;
  Log log_{false};
};

TEST_F(Dialects, StackedTensorsLieOneBehindTheOther) {
  const HuggingFaceModel model = this->model();
  const std::vector<float> qkv =
      model.read(tensor_of(model, "layers/1/attention/qkv/weight"));  // (18, 6)
  ASSERT_EQ(qkv.size(), 108u);
  std::size_t at = 0;
  for (const char* part : {"query", "key", "value"}) {
    for (const float value : stored(fmt::format("body.layer.1.{}.weight", part))) {
      ASSERT_EQ(qkv[at++], value) << part;
    }
  }
  // Each part (hidden, half of inner) is transposed by itself.
  const std::vector<float> fc1 =
      model.read(tensor_of(model, "layers/0/mlp/fc1/weight"));  // (10, 6)
  for (index_t row = 0; row < 10; ++row) {
    const auto& part = stored(fmt::format("body.layer.0.up_{}.weight", row / 5));
    for (index_t column = 0; column < 6; ++column) {
      ASSERT_EQ(fc1.at(row * 6 + column), part.at(column * 5 + row % 5)) << row;
    }
  }
  EXPECT_TRUE(log_.warnings().empty());
}

TEST_F(Dialects, RoundTripIsExact) {
  const HuggingFaceModel model = this->model();
  write_hugging_face(scratch_ / "again", model.dialect(), model.config(),
                     [&](const ForeignTensor& tensor, std::span<float> values) {
                       std::ranges::copy(model.read(tensor), values.begin());
                     },
                     {});
  const io::SafetensorsReader again(scratch_ / "again");
  EXPECT_EQ(again.tensors().size(), files_.tensors.size());
  for (const auto& [name, tensor] : files_.tensors) {
    EXPECT_EQ(again.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(again.read_float(name), tensor.values) << name;
  }
}

// Checkpoints are the way between: theirs, ours, theirs.
TEST_F(Dialects, ByTheWayOfACheckpoint) {
  files_.write(scratch_ / "theirs");
  const Converted made =
      import_hugging_face(scratch_ / "theirs", scratch_ / "ours", log_, both_dialects());
  EXPECT_EQ(made.tensors, 2 + 2 * 12 + 2u);
  // GPT-2 can say this model too, and comes first.
  export_hugging_face(scratch_ / "ours", scratch_ / "as_gpt2", log_, kDefaultShardBytes,
                      both_dialects());
  const HuggingFaceModel as_gpt2(scratch_ / "as_gpt2", log_);
  const HuggingFaceModel model = this->model();
  for (const ForeignTensor& tensor : model.tensors()) {
    EXPECT_EQ(as_gpt2.read(tensor_of(as_gpt2, tensor.name)), model.read(tensor))
        << tensor.name;
  }
  const std::vector<Dialect> stacked = {test::stacked_dialect()};
  const Converted exported =
      export_hugging_face(scratch_ / "ours", scratch_ / "again", log_, 1000, stacked);
  EXPECT_GT(exported.files, 3u);
  const HuggingFaceModel again(scratch_ / "again", log_, stacked);
  for (const ForeignTensor& tensor : model.tensors()) {
    EXPECT_EQ(again.read(tensor), model.read(tensor)) << tensor.name;
  }
  EXPECT_TRUE(log_.warnings().empty());
}

TEST_F(Dialects, ATensorThatStandsTwiceIsEqual) {
  files_.tensors["top.words.weight"] = files_.tensors["body.words.weight"];
  files_.tensors["words_again.weight"] = files_.tensors["body.words.weight"];
  EXPECT_EQ(model().tensors().size(), 2 + 2 * 12 + 2u);

  files_.tensors["top.words.weight"].values[65] += 1.0f;
  auto& again = files_.tensors["words_again.weight"];
  std::swap(again.shape[0], again.shape[1]);
  EXPECT_THAT(
      error(),
      AllOf(HasSubstr("(Stacked with 2 layers, hidden 6"),
            HasSubstr("not equal, while Trireme ties them and has one for both (2):"),
            HasSubstr("top.words.weight (11, 6) and body.words.weight (11, 6)"),
            HasSubstr("words_again.weight (6, 11) and body.words.weight (11, 6)"),
            Not(HasSubstr("not part of the model"))));
}

TEST_F(Dialects, ATensorMayHaveAnotherName) {
  const std::vector<float> words = stored("body.words.weight");
  files_.tensors["top.words.weight"] = files_.tensors["body.words.weight"];
  files_.tensors.erase("body.words.weight");
  EXPECT_EQ(model().read(model().tensors().front()), words);
  files_.tensors["words_again.weight"] = files_.tensors["top.words.weight"];
  EXPECT_EQ(model().read(model().tensors().front()), words);
  files_.tensors["words_again.weight"].values[3] = 0.0f;
  EXPECT_THAT(error(),
              HasSubstr("words_again.weight (11, 6) and top.words.weight (11, 6)"));
  files_.tensors.erase("words_again.weight");
  files_.tensors.erase("top.words.weight");
  EXPECT_THAT(error(), AllOf(HasSubstr("missing (1):\n    body.words.weight (11, 6)"),
                             Not(HasSubstr("not part of the model"))));
}

TEST_F(Dialects, BuffersAreIgnoredByName) {
  files_.tensors["body.place_ids"] = {{1, 7}, std::vector<float>(7)};
  files_.tensors["other_ids"] = {{2}, {1.0f, 2.0f}};
  EXPECT_TRUE(model().has(model().tensors().front()));
  files_.tensors["body.place_numbers"] = {{1, 7}, std::vector<float>(7)};
  EXPECT_THAT(error(), AllOf(HasSubstr("not part of the model (1):\n"
                                       "    body.place_numbers (1, 7)"),
                             Not(HasSubstr("_ids"))));
}

TEST_F(Dialects, AllPartsOfAStackMustBeThere) {
  files_.tensors.erase("body.layer.1.key.weight");
  files_.tensors["body.layer.0.value.bias"].shape = {2, 3};
  files_.tensors["layer.0.up_1.weight"] = files_.tensors["body.layer.0.up_1.weight"];
  EXPECT_THAT(
      error(),
      AllOf(HasSubstr("missing (1):\n    body.layer.1.key.weight (6, 6)"),
            HasSubstr(
                "wrong (1):\n    body.layer.0.value.bias: expected (6), found (2, 3)"),
            HasSubstr("not part of the model (1):\n    body.layer.0.up_1.weight: stored "
                      "as layer.0.up_1.weight too"),
            HasSubstr("one save_pretrained()")));
}

// As of a model that was saved without its heads: its names have no prefix.
TEST_F(Dialects, WhatMayBeMissingIsANewModels) {
  strip_prefix();
  const io::Path theirs = files_.write(scratch_ / "theirs");
  import_hugging_face(theirs, scratch_ / "ours", log_, both_dialects());
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(log_.warnings()[0],
              AllOf(HasSubstr("theirs' has not all weights of the model"),
                    HasSubstr("drawn anew (3):\n    embedding/position/weight\n    "
                              "final_norm/weight\n    final_norm/bias")));
  const CheckpointReader reader(scratch_ / "ours" / "latest");
  EXPECT_EQ(reader.read_whole("model/embedding/word/weight"), stored("words.weight"));
  EXPECT_EQ(reader.read_whole("model/final_norm/weight"), std::vector<float>(6, 1.0f));
  EXPECT_EQ(reader.read_whole("model/final_norm/bias"), std::vector<float>(6, 0.0f));

  // The bits that a run with the deck's seed would begin with.
  ParamRegistry registry;
  registry.add({.name = "embedding/position/weight",
                .shard = replicated({7, 6}),
                .init = Initializer::normal(0.02)});
  ParamBuffer<float> fresh;
  fresh.allocate(registry, ParamBuffer<float>::Use::inference);
  fresh.initialize(Exec(), reader.state().seed);
  const auto drawn = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(),
                                                         fresh.slice(Slab::weight, 0));
  const std::vector<float> read = reader.read_whole("model/embedding/position/weight");
  ASSERT_EQ(read.size(), drawn.extent(0));
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], drawn(i)) << i;
}

TEST_F(Dialects, ConfigAndModelSayWhichOne) {
  const io::Path theirs = files_.write(scratch_ / "theirs");
  EXPECT_THAT(message_of<InputError>([&] { HuggingFaceModel(theirs, log_); }),
              HasSubstr("model_type is \"stacked\"; Trireme can convert \"gpt2\""));
  EXPECT_THAT(message_of<InputError>([&] {
                dialect_of_config({{"model_type", "llama"}}, "x", both_dialects());
              }),
              HasSubstr("Trireme can convert \"gpt2\", \"stacked\""));

  config::ModelConfig model = files_.config;
  EXPECT_EQ(dialect_of_model(model, "x", both_dialects()).name, "GPT-2");
  model.kv_heads = 1;
  EXPECT_EQ(dialect_of_model(model, "x", both_dialects()).name, "Stacked");
  model.bias = false;
  EXPECT_THAT(
      message_of<InputError>([&] { dialect_of_model(model, "x", both_dialects()); }),
      AllOf(HasSubstr("'x' is not a model that transformers' GPT-2 can express:\n  "
                      "model.kv_heads: only as many as heads can be exported\n  "
                      "model.bias: only true can be exported\n'x' is not"),
            HasSubstr("transformers' Stacked can express:\n  model.bias: only true")));
  model.kind = config::ModelKind::bert;
  EXPECT_THAT(
      message_of<InputError>([&] { dialect_of_model(model, "x", both_dialects()); }),
      HasSubstr("'x' is a model of kind bert; a Hugging Face directory can be made of "
                "gpt"));
}

TEST_F(Dialects, NumbersThatAreNoneAreNamedAsTheirs) {
  files_.tensors["body.layer.0.key.weight"].values[7] = std::nanf("");
  const HuggingFaceModel model = this->model();
  EXPECT_THAT(message_of<InputError>(
                  [&] { model.read(tensor_of(model, "layers/0/attention/qkv/weight")); }),
              HasSubstr("1 number of 'body.layer.0.key.weight' is not finite"));
}

}  // namespace
}  // namespace trireme::ckpt
