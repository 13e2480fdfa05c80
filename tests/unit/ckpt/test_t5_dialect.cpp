// T5s of Hugging Face, v1.0 and v1.1: read exactly, whatever names their tied tensors
// stand under, written exactly, and refused clearly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "ckpt/dialects/t5.hpp"
#include "unit/ckpt/foreign_directory.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::ckpt {
namespace {

using test::ForeignDirectory;
using test::message_of;
using test::parity_directory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class T5Dialect : public test::ForeignDirectoryTest {
 protected:
  ForeignDirectory first_{"t5_odd"};       // v1.0
  ForeignDirectory second_{"t5_v11_odd"};  // v1.1
};

TEST_F(T5Dialect, ConfigIsReadInTheDecksTerms) {
  const ForeignConfig first =
      HuggingFaceModel(parity_directory("t5_tiny"), log_).config();
  EXPECT_EQ(first.kind, config::ModelKind::t5);
  EXPECT_EQ(first.layers, 2);
  EXPECT_EQ(first.decoder_layers, 3);
  EXPECT_EQ(first.hidden, 24);
  EXPECT_EQ(first.heads, 4);
  EXPECT_EQ(first.head_size, 8);
  EXPECT_EQ(first.ffn_hidden, 48);
  EXPECT_EQ(first.sequence, 512);  // what T5 was trained with: the file says nothing
  EXPECT_EQ(first.vocab, 101);
  EXPECT_EQ(first.norm, config::Norm::rmsnorm);
  EXPECT_EQ(first.norm_epsilon, 1e-6);
  EXPECT_EQ(first.position, config::Position::relative);
  EXPECT_EQ(first.activation, config::Activation::relu);
  EXPECT_EQ(first.relative_attention_num_buckets, 32);
  EXPECT_EQ(first.relative_attention_max_distance, 128);
  EXPECT_FALSE(first.bias);
  EXPECT_TRUE(first.tie_embeddings);
  EXPECT_EQ(first.end_of_text, 1);
  EXPECT_EQ(first.padding, 0);
  const ForeignConfig second =
      HuggingFaceModel(parity_directory("t5_v11_odd"), log_).config();
  EXPECT_EQ(second.activation, config::Activation::geglu_tanh);
  EXPECT_EQ(second.relative_attention_num_buckets, 8);
  EXPECT_EQ(second.relative_attention_max_distance, 20);
  EXPECT_FALSE(second.tie_embeddings);
  EXPECT_TRUE(log_.warnings().empty());
}

TEST_F(T5Dialect, TensorsAreTheOracles) {
  for (const char* name : {"t5_tiny", "t5_odd", "t5_v11_odd"}) {
    test::expect_names_of_oracle(name);
  }
}

TEST_F(T5Dialect, WhatIsOneMatrixHere) {
  const HuggingFaceModel model = model_of(second_);
  const auto expect_stack = [&](const char* ours, const std::string& theirs,
                                std::initializer_list<const char*> parts) {
    const std::vector<float> values = test::read_ours(model, ours);
    std::size_t at = 0;
    for (const char* part : parts) {
      for (const float value : second_.tensors.at(theirs + part + ".weight").values) {
        ASSERT_EQ(values.at(at++), value) << ours << " " << part;
      }
    }
    EXPECT_EQ(at, values.size()) << ours;
  };
  expect_stack("encoder/layers/1/attention/qkv/weight",
               "encoder.block.1.layer.0.SelfAttention.", {"q", "k", "v"});
  expect_stack("decoder/layers/0/cross/kv/weight",
               "decoder.block.0.layer.1.EncDecAttention.", {"k", "v"});
  expect_stack("decoder/layers/1/mlp/fc1/weight",
               "decoder.block.1.layer.2.DenseReluDense.", {"wi_0", "wi_1"});
  expect_stack("decoder/layers/1/cross_norm/weight", "decoder.block.1.layer.1.",
               {"layer_norm"});
  expect_stack("decoder/relative_bias/weight", "decoder.block.0.layer.0.SelfAttention.",
               {"relative_attention_bias"});
  expect_stack("final_norm/weight", "decoder.", {"final_layer_norm"});
  expect_stack("head/word/weight", "", {"lm_head"});
}

TEST_F(T5Dialect, RoundTripIsExact) {
  for (const char* name : {"t5_tiny", "t5_odd", "t5_v11_odd"}) {
    test::expect_round_trip(parity_directory(name), scratch_ / name);
    const auto generation = [](const io::Path& directory) {
      return Json::parse(io::read_file(directory / "generation_config.json"));
    };
    Json before = generation(parity_directory(name));
    before.erase("transformers_version");
    EXPECT_EQ(generation(scratch_ / name / "again"), before);
  }
}

TEST_F(T5Dialect, TheCheckpointsDeckIsTheModels) {
  import_hugging_face(parity_directory("t5_v11_odd"), scratch_ / "ours", log_);
  const config::ModelConfig model = model_of_checkpoint();
  EXPECT_EQ(model.kind, config::ModelKind::t5);
  EXPECT_EQ(model.head_size, 6);
  EXPECT_EQ(model.decoder_layers, 2);
  EXPECT_EQ(model.decoder_sequence, 114);
  EXPECT_EQ(model.norm, config::Norm::rmsnorm);
  EXPECT_EQ(model.activation, config::Activation::geglu_tanh);
  EXPECT_FALSE(model.tie_embeddings);
}

// Keys as they are published with the models.
Json published(index_t hidden, index_t ffn, index_t head_size, index_t heads,
               index_t layers) {
  return {{"architectures", {"T5ForConditionalGeneration"}},
          {"d_ff", ffn},
          {"d_kv", head_size},
          {"d_model", hidden},
          {"decoder_start_token_id", 0},
          {"dropout_rate", 0.1},
          {"eos_token_id", 1},
          {"initializer_factor", 1.0},
          {"is_encoder_decoder", true},
          {"layer_norm_epsilon", 1e-06},
          {"model_type", "t5"},
          {"num_heads", heads},
          {"num_layers", layers},
          {"output_past", true},
          {"pad_token_id", 0},
          {"relative_attention_num_buckets", 32},
          {"vocab_size", 32128}};
}

TEST_F(T5Dialect, PublishedModels) {
  const auto first = [](index_t hidden, index_t ffn, index_t head_size, index_t heads,
                        index_t layers) {
    Json config = published(hidden, ffn, head_size, heads, layers);
    config["n_positions"] = 512;
    return test::parameters_of(config);
  };
  EXPECT_EQ(first(512, 2048, 64, 8, 6), 60506624);           // small
  EXPECT_EQ(first(768, 3072, 64, 12, 12), 222903552);        // base
  EXPECT_EQ(first(1024, 4096, 64, 16, 24), 737668096);       // large
  EXPECT_EQ(first(1024, 16384, 128, 32, 24), 2851598336);    // 3B
  EXPECT_EQ(first(1024, 65536, 128, 128, 24), 11307321344);  // 11B
  const auto second = [](index_t hidden, index_t ffn, index_t heads, index_t layers) {
    Json config = published(hidden, ffn, 64, heads, layers);
    config["feed_forward_proj"] = "gated-gelu";
    config["num_decoder_layers"] = layers;
    config["tie_word_embeddings"] = false;
    return test::parameters_of(config);
  };
  EXPECT_EQ(second(512, 1024, 6, 8), 76961152);         // small
  EXPECT_EQ(second(768, 2048, 12, 12), 247577856);      // base
  EXPECT_EQ(second(1024, 2816, 16, 24), 783150080);     // large
  EXPECT_EQ(second(2048, 5120, 32, 24), 2849757184);    // XL
  EXPECT_EQ(second(4096, 10240, 64, 24), 11135332352);  // XXL
}

TEST_F(T5Dialect, TheWordEmbeddingStandsUnderFourNames) {
  const ForeignDirectory::Stored words = first_.tensors.at("shared.weight");
  ForeignDirectory files = first_;
  for (const char* name :
       {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}) {
    files.tensors[name] = words;
  }
  EXPECT_EQ(test::read_ours(model_of(files), "embedding/word/weight"), words.values);
  for (const char* name :
       {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}) {
    ForeignDirectory other = files;
    other.tensors[name].values[7] += 1.0f;
    EXPECT_THAT(error_of(other), AllOf(HasSubstr("not equal, while Trireme ties them"),
                                       HasSubstr(fmt::format("{} (97, 30) and ", name))))
        << name;
    // One of them is enough.
    ForeignDirectory single = first_;
    single.tensors.erase("shared.weight");
    single.tensors[name] = words;
    EXPECT_EQ(test::read_ours(model_of(single), "embedding/word/weight"), words.values);
  }
  // A head of its own is no name of it.
  ForeignDirectory own = second_;
  own.tensors["decoder.embed_tokens.weight"] = own.tensors.at("shared.weight");
  const HuggingFaceModel model = model_of(own);
  EXPECT_EQ(test::read_ours(model, "head/word/weight"),
            own.tensors.at("lm_head.weight").values);
  EXPECT_EQ(test::read_ours(model, "embedding/word/weight"),
            own.tensors.at("shared.weight").values);
}

// transformers 5 says of every head that it is tied, and has a key for the scale.
TEST_F(T5Dialect, WhetherTheHeadIsScaled) {
  ForeignDirectory newer = second_;
  newer.config["tie_word_embeddings"] = true;
  newer.config["scale_decoder_outputs"] = false;
  const HuggingFaceModel model = model_of(newer);
  EXPECT_FALSE(model.config().tie_embeddings);
  EXPECT_EQ(test::read_ours(model, "head/word/weight"),
            second_.tensors.at("lm_head.weight").values);
  newer.tensors.erase("lm_head.weight");
  EXPECT_THAT(
      error_of(newer),
      HasSubstr("no lm_head.weight, and what the head reads is not to be scaled"));
  newer.config["scale_decoder_outputs"] = true;
  EXPECT_TRUE(model_of(newer).config().tie_embeddings);
  EXPECT_THAT(error_of_config(second_, "scale_decoder_outputs", true),
              HasSubstr("scale_decoder_outputs: true is not supported with "
                        "tie_word_embeddings false"));
  // Said to be tied, and not.
  EXPECT_THAT(error_of_config(second_, "tie_word_embeddings", true),
              HasSubstr("lm_head.weight (97, 30) and shared.weight (97, 30)"));
}

TEST_F(T5Dialect, AnUnreadTableOfOldFilesIsNoWeight) {
  ForeignDirectory files = first_;
  const std::string name = "layer.1.EncDecAttention.relative_attention_bias.weight";
  files.tensors["decoder.block.0." + name] = {{8, 3}, std::vector<float>(24)};
  EXPECT_EQ(model_of(files).tensors().size(),
            HuggingFaceModel(parity_directory("t5_odd"), log_).tensors().size());
  files.tensors["decoder.block.1." + name] = {{8, 3}, std::vector<float>(24)};
  EXPECT_THAT(error_of(files), HasSubstr("not part of the model (1):"));
}

TEST_F(T5Dialect, ActivationsAreSaidInSeveralWays) {
  const auto activation = [&](const char* projection) {
    Json config = second_.config;
    config.erase("dense_act_fn");
    config["feed_forward_proj"] = projection;
    return t5_dialect().read_config(config, "x", log_).activation;
  };
  using config::Activation;
  EXPECT_EQ(activation("gated-gelu"), Activation::geglu_tanh);
  EXPECT_EQ(activation("gated-gelu_new"), Activation::geglu_tanh);
  EXPECT_EQ(activation("gated-gelu_pytorch_tanh"), Activation::geglu_tanh);
  EXPECT_EQ(activation("gated-gelu_python"), Activation::geglu);
  ForeignConfig config = t5_dialect().read_config(second_.config, "x", log_);
  EXPECT_EQ(t5_dialect().config_json(config)["feed_forward_proj"], "gated-gelu");
  config.activation = Activation::geglu;
  EXPECT_EQ(t5_dialect().config_json(config)["feed_forward_proj"], "gated-gelu_python");
  EXPECT_THAT(error_of_config(second_, "feed_forward_proj", "gated-silu"),
              HasSubstr("feed_forward_proj: \"gated-silu\" is not supported; expected "
                        "one of relu, gated-gelu, "));
  // transformers would compute with what it says here.
  EXPECT_THAT(
      error_of_config(second_, "dense_act_fn", "gelu"),
      HasSubstr("dense_act_fn: \"gelu\", and feed_forward_proj is \"gated-gelu\", "
                "which means \"gelu_new\""));
  EXPECT_THAT(error_of_config(first_, "is_gated_act", true),
              HasSubstr("is_gated_act: true, and feed_forward_proj is "));
}

TEST_F(T5Dialect, WhatIsNotSupportedIsSaidAllAtOnce) {
  first_.config["is_encoder_decoder"] = false;
  first_.config["decoder_start_token_id"] = 5;
  first_.config["relative_attention_num_buckets"] = 7;
  first_.config["layer_norm_epsilon"] = -1.0;
  first_.config["tie_word_embeddings"] = "yes";
  first_.config["d_kv"] = 0;
  first_.config.erase("num_heads");
  EXPECT_THAT(
      error_of(first_),
      AllOf(HasSubstr("is_encoder_decoder: false"),
            HasSubstr("decoder_start_token_id: 5 is not supported (decoders begin with "
                      "the token for padding); expected pad_token_id, 0"),
            HasSubstr("relative_attention_num_buckets: 7"),
            HasSubstr("layer_norm_epsilon: expected a number above 0, found -1"),
            HasSubstr("tie_word_embeddings: expected true or false, found \"yes\""),
            HasSubstr("d_kv: expected a number of at least 1"),
            HasSubstr("num_heads: missing")));
}

TEST_F(T5Dialect, OtherModelsAreRefused) {
  ForeignDirectory files = first_;
  files.erase_all("decoder.");  // as T5EncoderModel saves it
  EXPECT_THAT(error_of(files),
              AllOf(HasSubstr("missing"), HasSubstr("(T5 with 2 + 2 layers, hidden 30"),
                    HasSubstr("decoder.final_layer_norm.weight (30)")));
  EXPECT_THAT(error_of_config(first_, "num_layers", 100000),
              HasSubstr("config.json says 100,002 layers"));
}

TEST_F(T5Dialect, TokensOutsideTheVocabularyAreNone) {
  first_.config["eos_token_id"] = 97;
  const ForeignConfig config = model_of(first_).config();
  EXPECT_FALSE(config.end_of_text.has_value());
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(log_.warnings()[0], HasSubstr("eos_token_id 97 is no id"));
  // Nor is a default that is outside.
  Json small = second_.config;
  small.erase("eos_token_id");
  small["vocab_size"] = 1;
  EXPECT_FALSE(t5_dialect().read_config(small, "x", log_).end_of_text.has_value());
  // Said as null, so that transformers does not take 1 for it again.
  EXPECT_TRUE(t5_dialect().config_json(config)["eos_token_id"].is_null());
}

TEST_F(T5Dialect, OneDropoutIsKept) {
  config::ModelConfig model = t5_dialect().read_config(first_.config, "x", log_);
  EXPECT_TRUE(t5_dialect().left_out(model).empty());
  model.attention_dropout = 0.25;
  ASSERT_EQ(t5_dialect().left_out(model).size(), 1u);
  EXPECT_THAT(t5_dialect().left_out(model)[0],
              HasSubstr("model.attention_dropout (0.25) is not kept"));
  model.activation = config::Activation::swiglu;
  EXPECT_THAT(
      message_of<InputError>([&] { dialect_of_model(model, "x", known_dialects()); }),
      HasSubstr("transformers' T5 can express:\n  model.activation: only relu, "
                "geglu_tanh or geglu"));
}

}  // namespace
}  // namespace trireme::ckpt
