// Hugging Face GPT-2 directories: read exactly, written exactly, and refused clearly.
#include "ckpt/hugging_face.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "data/byte_level_bpe_files.hpp"
#include "support/safetensors.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::ckpt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

io::Path fixture(const char* name) {
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  return io::Path(source != nullptr ? source : ".") / "tests/parity/fixtures" / name;
}

// A model file in memory, to be spoilt and written.
struct Stored {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

class HuggingFaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "trireme_hf_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    const io::SafetensorsReader reader(fixture("gpt2_odd"));
    for (const auto& [name, tensor] : reader.tensors()) {
      stored_.push_back({name, tensor.shape, reader.read_float(name)});
    }
    config_ = Json::parse(io::read_file(fixture("gpt2_odd") / "config.json"));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  Stored& stored(const std::string& name) {
    for (Stored& tensor : stored_) {
      if (tensor.name == name) return tensor;
    }
    throw Error("no tensor " + name);
  }
  void erase(const std::string& name) {
    std::erase_if(stored_, [&](const Stored& tensor) { return tensor.name == name; });
  }
  void strip_prefix() {
    for (Stored& tensor : stored_) {
      tensor.name = tensor.name.substr(std::strlen("transformer."));
    }
  }

  // Writes config_ and stored_ (tensors i with i % parts == part in one file each).
  io::Path write(int parts = 1) {
    const io::Path directory = root_ / "model";
    io::create_directories(directory);
    io::write_file(directory / "config.json", config_.dump());
    Json index;
    for (int part = 0; part < parts; ++part) {
      const std::string file =
          parts == 1 ? "model.safetensors" : fmt::format("model-{}.safetensors", part);
      io::SafetensorsWriter writer;
      for (std::size_t i = part; i < stored_.size(); i += parts) {
        const Stored& tensor = stored_[i];
        writer.add(tensor.name, DType::float32, tensor.shape,
                   test::from_memory(tensor.values.data()));
        index["weight_map"][tensor.name] = file;
      }
      writer.write(directory / file);
    }
    if (parts > 1)
      io::write_file(directory / "model.safetensors.index.json", index.dump());
    return directory;
  }

  std::string error_of(const io::Path& directory) {
    Log log(false);
    try {
      const HuggingFaceModel model(directory, log);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }
  std::string error_of_config(const char* key, const Json& value) {
    config_[key] = value;
    return error_of(write());
  }

  // Equal, weight by weight, to the fixture.
  void expect_fixture(const HuggingFaceModel& model) {
    Log log(false);
    const HuggingFaceModel expected(fixture("gpt2_odd"), log);
    ASSERT_EQ(model.tensors().size(), expected.tensors().size());
    for (const ForeignTensor& tensor : expected.tensors()) {
      EXPECT_EQ(model.read(tensor), expected.read(tensor)) << tensor.name;
    }
  }

  io::Path root_;
  std::vector<Stored> stored_;
  Json config_;
  Log log_{false};
};

TEST_F(HuggingFaceTest, ConfigIsReadInTheDecksTerms) {
  const HuggingFaceModel model(fixture("gpt2_tiny"), log_);
  EXPECT_EQ(model.config().layers, 3);
  EXPECT_EQ(model.config().hidden, 48);
  EXPECT_EQ(model.config().heads, 4);
  EXPECT_EQ(model.config().ffn_hidden, 192);
  EXPECT_EQ(model.config().sequence, 32);
  EXPECT_EQ(model.config().vocab, 211);
  EXPECT_EQ(model.config().dropout, 0.0);
  EXPECT_EQ(model.config().end_of_text, 210);
  EXPECT_EQ(model.tensors().size(), 2 + 12 * 3 + 2u);
  EXPECT_TRUE(log_.warnings().empty());
}

TEST_F(HuggingFaceTest, MatricesAreTransposedAndNothingElse) {
  const HuggingFaceModel model(write(), log_);
  const auto read = [&](const std::string& name) {
    for (const ForeignTensor& tensor : model.tensors()) {
      if (tensor.name == name) return model.read(tensor);
    }
    throw Error("no " + name);
  };
  const auto& theirs = stored("transformer.h.1.attn.c_attn.weight").values;  // (30, 90)
  const auto ours = read("layers/1/attention/qkv/weight");                   // (90, 30)
  for (int out = 0; out < 90; ++out) {
    for (int in = 0; in < 30; ++in) ASSERT_EQ(ours[out * 30 + in], theirs[in * 90 + out]);
  }
  EXPECT_EQ(read("embedding/word/weight"), stored("transformer.wte.weight").values);
  EXPECT_EQ(read("embedding/position/weight"), stored("transformer.wpe.weight").values);
  EXPECT_EQ(read("layers/0/mlp_norm/bias"), stored("transformer.h.0.ln_2.bias").values);
  EXPECT_EQ(read("layers/0/input_norm/weight"),
            stored("transformer.h.0.ln_1.weight").values);
  EXPECT_EQ(read("final_norm/weight"), stored("transformer.ln_f.weight").values);
}

TEST_F(HuggingFaceTest, RoundTripIsExact) {
  for (const char* name : {"gpt2_tiny", "gpt2_odd"}) {
    const HuggingFaceModel model(fixture(name), log_);
    const io::Path out = root_ / name / "exported/";  // parents made, slash no matter
    write_hugging_face(out, model.dialect(), model.config(),
                       [&](const ForeignTensor& tensor, std::span<float> values) {
                         const std::vector<float> read = model.read(tensor);
                         ASSERT_EQ(read.size(), values.size());
                         std::copy(read.begin(), read.end(), values.begin());
                       },
                       {});
    const io::SafetensorsReader before(fixture(name)), after(out);
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const auto& [key, tensor] : before.tensors()) {
      EXPECT_EQ(after.at(key).shape, tensor.shape) << key;
      ASSERT_EQ(after.at(key).bytes, tensor.bytes) << key;
      EXPECT_EQ(std::memcmp(after.at(key).data, tensor.data, tensor.bytes), 0) << key;
    }
    // Every key of ours that transformers writes has the value transformers wrote.
    const Json config = Json::parse(io::read_file(out / "config.json"));
    const Json original = Json::parse(io::read_file(fixture(name) / "config.json"));
    for (const auto& [key, value] : config.items()) {
      if (original.contains(key)) {
        EXPECT_EQ(value, original[key]) << key;
      }
    }
    EXPECT_EQ(Json::parse(io::read_file(out / "generation_config.json"))["eos_token_id"],
              original["eos_token_id"]);
    // Only the one directory is left behind.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_ / name), {}), 1);
  }
}

TEST_F(HuggingFaceTest, PrefixIsOptional) {
  strip_prefix();
  expect_fixture(HuggingFaceModel(write(), log_));
}

TEST_F(HuggingFaceTest, SeveralFilesMakeOneModel) {
  expect_fixture(HuggingFaceModel(write(3), log_));
}

TEST_F(HuggingFaceTest, MaskBuffersAndATiedHeadAreNoWeights) {
  strip_prefix();
  stored_.push_back({"h.0.attn.bias", {1, 1, 17, 17}, std::vector<float>(17 * 17, 1.0f)});
  stored_.push_back({"h.1.attn.masked_bias", {}, {-1e4f}});
  stored_.push_back({"lm_head.weight", {97, 30}, stored("wte.weight").values});
  expect_fixture(HuggingFaceModel(write(), log_));
}

TEST_F(HuggingFaceTest, UntiedHeadIsRefused) {
  Stored head = stored("transformer.wte.weight");
  head.name = "lm_head.weight";
  head.values[5] += 1e-6f;
  stored_.push_back(head);
  EXPECT_THAT(
      error_of(write()),
      AllOf(HasSubstr("not equal, while Trireme ties them and has one for both (1):"),
            HasSubstr("lm_head.weight (97, 30) and transformer.wte.weight (97, 30)")));
}

TEST_F(HuggingFaceTest, AllWrongTensorsAreNamedAtOnce) {
  erase("transformer.h.1.ln_2.bias");
  erase("transformer.wpe.weight");
  Stored& matrix = stored("transformer.h.0.mlp.c_fc.weight");
  std::swap(matrix.shape[0], matrix.shape[1]);
  stored_.push_back({"transformer.h.2.ln_1.bias", {30}, std::vector<float>(30)});
  stored_.push_back({"wte.weight", {97, 30}, stored("transformer.wte.weight").values});
  stored_.push_back({"score.weight", {2, 30}, std::vector<float>(60)});
  EXPECT_THAT(
      error_of(write()),
      AllOf(HasSubstr("missing (2):"), HasSubstr("transformer.h.1.ln_2.bias (30)"),
            HasSubstr("transformer.wpe.weight (17, 30)"), HasSubstr("wrong (1):"),
            HasSubstr(
                "transformer.h.0.mlp.c_fc.weight: expected (30, 120), found (120, 30)"),
            HasSubstr("not part of the model (3):"),
            HasSubstr("transformer.h.2.ln_1.bias (30)"),
            HasSubstr("score.weight (2, 30)"),
            HasSubstr("transformer.wte.weight: stored as wte.weight too"),
            HasSubstr("2 layers, hidden 30, 3 heads")));
}

TEST_F(HuggingFaceTest, NarrowTypesAreWidenedExactlyAndIntegersRefused) {
  const io::Path directory = write();
  std::vector<bf16> narrow;
  for (const float value : stored("transformer.wte.weight").values) {
    narrow.push_back(bf16(value));
  }
  const std::vector<std::int32_t> integers(30);
  const auto rewrite = [&](bool with_integers) {
    io::SafetensorsWriter writer;
    for (const Stored& tensor : stored_) {
      if (tensor.name == "transformer.wte.weight") {
        writer.add(tensor.name, DType::bfloat16, tensor.shape,
                   test::from_memory(narrow.data()));
      } else if (with_integers && tensor.name == "transformer.ln_f.bias") {
        writer.add(tensor.name, DType::int32, tensor.shape,
                   test::from_memory(integers.data()));
      } else {
        writer.add(tensor.name, DType::float32, tensor.shape,
                   test::from_memory(tensor.values.data()));
      }
    }
    writer.write(directory / "model.safetensors");
  };
  rewrite(false);
  const HuggingFaceModel model(directory, log_);
  const std::vector<float> word = model.read(model.tensors().front());
  for (std::size_t i = 0; i < word.size(); ++i) {
    ASSERT_EQ(word[i], static_cast<float>(narrow[i]));
  }
  rewrite(true);
  EXPECT_THAT(
      error_of(directory),
      HasSubstr("transformer.ln_f.bias: expected F32, F64, F16 or BF16, found I32"));
}

TEST_F(HuggingFaceTest, UnsupportedConfigValuesAreSaidAllAtOnce) {
  config_["activation_function"] = "relu";
  config_["layer_norm_epsilon"] = 1e-6;
  config_["scale_attn_by_inverse_layer_idx"] = true;
  config_["scale_attn_weights"] = false;
  config_["resid_pdrop"] = 1.5;
  config_["n_head"] = 4;
  config_["n_layer"] = "two";
  config_.erase("vocab_size");
  EXPECT_THAT(
      error_of(write()),
      AllOf(HasSubstr("activation_function: \"relu\""),
            HasSubstr("layer_norm_epsilon: 1e-06 is not supported; expected 1e-05"),
            HasSubstr("scale_attn_by_inverse_layer_idx: true"),
            HasSubstr("scale_attn_weights: false"), HasSubstr("resid_pdrop"),
            HasSubstr("4 heads do not divide n_embd, 30"),
            HasSubstr("n_layer: expected a number of at least 1, found \"two\""),
            HasSubstr("vocab_size: missing")));
}

TEST_F(HuggingFaceTest, ForeignModelsAreRefused) {
  EXPECT_THAT(error_of_config("model_type", "llama"), HasSubstr("\"llama\""));
  EXPECT_THAT(error_of_config("model_type", 7), HasSubstr("model_type is 7"));
  io::write_file(root_ / "model/config.json",
                 "{\"n_layer\":\n" + test::nested_json(100000) + "}");
  EXPECT_THAT(error_of(root_ / "model"),
              HasSubstr("config.json:2:64: nested more than 64 levels deep"));
  io::write_file(root_ / "model/config.json", "{\"n_layer\":\n1e999}");
  EXPECT_THAT(error_of(root_ / "model"), HasSubstr("config.json:2:6: number overflow"));
  io::write_file(root_ / "model/config.json", "[1, 2]");
  EXPECT_THAT(error_of(root_ / "model"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of(root_ / "nowhere"), HasSubstr("config.json"));
  EXPECT_FALSE(is_hugging_face_directory(root_ / "nowhere"));
  EXPECT_TRUE(is_hugging_face_directory(root_ / "model"));
}

TEST_F(HuggingFaceTest, QuantisedAndCrossAttendingModelsAreRefused) {
  config_["add_cross_attention"] = true;
  EXPECT_THAT(error_of_config("quantization_config", {{"bits", 4}}),
              AllOf(HasSubstr("quantization_config"), HasSubstr("add_cross_attention")));
}

TEST_F(HuggingFaceTest, NInnerIsTheMlpsWidth) {
  EXPECT_THAT(
      error_of_config("n_inner", 64),
      HasSubstr("transformer.h.0.mlp.c_fc.weight: expected (30, 64), found (30, 120)"));
  config_["n_inner"] = 120;
  Log log(false);
  EXPECT_EQ(HuggingFaceModel(write(), log).config().ffn_hidden, 120);
}

TEST_F(HuggingFaceTest, EndOfTextOutsideTheVocabularyIsAWarning) {
  config_["eos_token_id"] = 50256;
  const HuggingFaceModel model(write(), log_);
  EXPECT_FALSE(model.config().end_of_text.has_value());
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(log_.warnings()[0],
              AllOf(HasSubstr("eos_token_id 50256"), HasSubstr("(0 to 96)")));
  // Said as null, so that transformers does not take 50256 for it again.
  EXPECT_TRUE(model.dialect().config_json(model.config())["eos_token_id"].is_null());
}

TEST_F(HuggingFaceTest, OddButHarmlessValuesAreWarnings) {
  config_["embd_pdrop"] = 0.25;
  config_["reorder_and_upcast_attn"] = true;
  const HuggingFaceModel model(write(), log_);
  ASSERT_EQ(log_.warnings().size(), 2u);
  EXPECT_THAT(log_.warnings()[0], HasSubstr("embd_pdrop is 0.25"));
  EXPECT_THAT(log_.warnings()[1], HasSubstr("reorder_and_upcast_attn"));
}

// All bytes in GPT-2's order, one merge, and the end of text: 258 tokens.
void write_vocabulary(const io::Path& directory) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back("ab");
  tokens.emplace_back("<|endoftext|>");
  const std::string json =
      data::tokenizer_json(tokens, {{'a', 'b'}}, {{"<|endoftext|>", 257}});
  io::write_file(directory / "vocab.json", Json::parse(json)["model"]["vocab"].dump());
}

TEST_F(HuggingFaceTest, TokenizerFilesTravelAlong) {
  // A model with a row for every token.
  config_["vocab_size"] = 258;
  config_["eos_token_id"] = 257;
  Stored& word = stored("transformer.wte.weight");
  word.shape[0] = 258;
  word.values.resize(258 * 30);
  const io::Path directory = write();
  write_vocabulary(directory);
  EXPECT_TRUE(HuggingFaceModel(directory, log_).tokenizer_files().empty());  // no merges
  io::write_file(directory / "merges.txt", "#version: 0.2\na b\n");
  const HuggingFaceModel model(directory, log_);
  EXPECT_EQ(model.tokenizer_files().size(), 2u);
  EXPECT_TRUE(log_.warnings().empty());
  const auto zeros = [](const ForeignTensor&, std::span<float> values) {
    std::fill(values.begin(), values.end(), 0.0f);
  };
  write_hugging_face(root_ / "out", model.dialect(), model.config(), zeros,
                     model.tokenizer_files());
  EXPECT_EQ(HuggingFaceModel(root_ / "out", log_).tokenizer_files(),
            model.tokenizer_files());
  EXPECT_EQ(Json::parse(io::read_file(root_ / "out/tokenizer_config.json"))["eos_token"],
            "<|endoftext|>");
  // GPT-2's own names become those that transformers looks for.
  const data::TokenizerFiles originals = {
      {"encoder.json", model.tokenizer_files().at("vocab.json")},
      {"vocab.bpe", model.tokenizer_files().at("merges.txt")}};
  write_hugging_face(root_ / "renamed", model.dialect(), model.config(), zeros,
                     originals);
  EXPECT_EQ(HuggingFaceModel(root_ / "renamed", log_).tokenizer_files(),
            model.tokenizer_files());
}

TEST_F(HuggingFaceTest, ATokenizerThatCannotBeUsedIsRefused) {
  const io::Path directory = write();
  io::write_file(directory / "tokenizer.json", R"({"model":{"type":"WordPiece"}})");
  EXPECT_THAT(test::message_of<InputError>([&] { HuggingFaceModel(directory, log_); }),
              HasSubstr("take its files away to convert the weights alone"));
}

TEST_F(HuggingFaceTest, ATokenizerOfAnotherModelIsRefused) {
  const io::Path directory = write();
  write_vocabulary(directory);
  io::write_file(directory / "merges.txt", "#version: 0.2\na b\n");
  EXPECT_THAT(error_of(directory),
              HasSubstr("the tokenizer (byte-level BPE) has 258 tokens, and the model's "
                        "table of words 97 rows"));
}

TEST_F(HuggingFaceTest, NothingIsOverwrittenAndNothingLeftHalfDone) {
  const HuggingFaceModel model(fixture("gpt2_odd"), log_);
  const auto failing = [](const ForeignTensor& tensor, std::span<float> values) {
    if (tensor.name == "layers/1/mlp/fc2/weight") throw Error("the disk is gone");
    std::fill(values.begin(), values.end(), 0.0f);
  };
  EXPECT_THROW(
      write_hugging_face(root_ / "new", model.dialect(), model.config(), failing, {}),
      Error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_), {}), 0);
  io::create_directories(root_ / "old");
  EXPECT_THROW(
      write_hugging_face(root_ / "old", model.dialect(), model.config(), failing, {}),
      InputError);
  std::filesystem::create_symlink(root_ / "gone", root_ / "dangling");
  EXPECT_THROW(write_hugging_face(root_ / "dangling", model.dialect(), model.config(),
                                  failing, {}),
               InputError);
}

}  // namespace
}  // namespace trireme::ckpt
