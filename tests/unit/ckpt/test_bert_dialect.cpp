// BERTs of Hugging Face, norms behind and before: read exactly, with their heads or
// without, written exactly, and refused clearly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "ckpt/dialects/bert.hpp"
#include "ckpt/reader.hpp"
#include "data/tokenizer.hpp"
#include "unit/ckpt/foreign_directory.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::ckpt {
namespace {

using test::ForeignDirectory;
using test::message_of;
using test::parity_directory;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kWords = "bert.embeddings.word_embeddings.weight";

class BertDialect : public test::ForeignDirectoryTest {
 protected:
  HuggingFaceModel model() { return model_of(files_); }
  std::string error() { return error_of(files_); }

  ForeignDirectory files_{"bert_odd"};
};

TEST_F(BertDialect, ConfigIsReadInTheDecksTerms) {
  const ForeignConfig post =
      HuggingFaceModel(parity_directory("bert_odd"), log_).config();
  EXPECT_EQ(post.kind, config::ModelKind::bert);
  EXPECT_EQ(post.layers, 2);
  EXPECT_EQ(post.hidden, 30);
  EXPECT_EQ(post.heads, 3);
  EXPECT_EQ(post.head_size, 10);
  EXPECT_EQ(post.ffn_hidden, 120);
  EXPECT_EQ(post.sequence, 17);
  EXPECT_EQ(post.vocab, 97);
  EXPECT_EQ(post.type_vocab_size, 2);
  EXPECT_EQ(post.norm_epsilon, 1e-12);
  EXPECT_EQ(post.activation, config::Activation::gelu);
  EXPECT_EQ(post.norm_placement, config::NormPlacement::post);
  EXPECT_TRUE(post.binary_head);
  EXPECT_EQ(post.padding, 0);
  EXPECT_FALSE(post.end_of_text.has_value());
  const ForeignConfig pre =
      HuggingFaceModel(parity_directory("bert_pre_odd"), log_).config();
  EXPECT_EQ(pre.norm_placement, config::NormPlacement::pre);
  EXPECT_EQ(pre.norm_epsilon, 1e-5);
  EXPECT_TRUE(log_.warnings().empty());
}

TEST_F(BertDialect, TensorsAreTheOracles) {
  for (const char* name : {"bert_odd", "bert_tiny", "bert_pre_odd", "bert_pre_tiny"}) {
    test::expect_names_of_oracle(name);
  }
}

TEST_F(BertDialect, QueriesKeysAndValuesAreOneMatrix) {
  const HuggingFaceModel model = this->model();
  const std::vector<float> bias = test::read_ours(model, "layers/1/attention/qkv/bias");
  const std::vector<float> weight =
      test::read_ours(model, "layers/1/attention/qkv/weight");
  std::size_t at = 0, at_bias = 0;
  for (const char* part : {"query", "key", "value"}) {
    const std::string theirs =
        fmt::format("bert.encoder.layer.1.attention.self.{}.", part);
    for (const float value : files_.tensors.at(theirs + "weight").values) {
      ASSERT_EQ(weight.at(at++), value) << part;
    }
    for (const float value : files_.tensors.at(theirs + "bias").values) {
      ASSERT_EQ(bias.at(at_bias++), value) << part;
    }
  }
  EXPECT_EQ(
      test::read_ours(model, "layers/0/attention_norm/weight"),
      files_.tensors.at("bert.encoder.layer.0.attention.output.LayerNorm.weight").values);
  EXPECT_EQ(test::read_ours(model, "layers/0/mlp_norm/weight"),
            files_.tensors.at("bert.encoder.layer.0.output.LayerNorm.weight").values);
  const HuggingFaceModel pre(parity_directory("bert_pre_odd"), log_);
  const io::SafetensorsReader stored(parity_directory("bert_pre_odd"));
  EXPECT_EQ(test::read_ours(pre, "layers/1/input_norm/bias"),
            stored.read_float("bert.encoder.layer.1.attention.ln.bias"));
  EXPECT_EQ(test::read_ours(pre, "layers/1/mlp_norm/bias"),
            stored.read_float("bert.encoder.layer.1.ln.bias"));
  EXPECT_EQ(test::read_ours(pre, "final_norm/weight"),
            stored.read_float("bert.encoder.ln.weight"));
}

TEST_F(BertDialect, RoundTripIsExact) {
  for (const char* name : {"bert_odd", "bert_pre_odd"}) {
    test::expect_round_trip(parity_directory(name), scratch_ / name);
    EXPECT_FALSE(
        std::filesystem::exists(scratch_ / name / "again/generation_config.json"));
  }
}

TEST_F(BertDialect, TheCheckpointsDeckIsTheModels) {
  import_hugging_face(files_.write(theirs()), scratch_ / "ours", log_);
  const config::ModelConfig model = model_of_checkpoint();
  EXPECT_EQ(model.kind, config::ModelKind::bert);
  EXPECT_EQ(model.norm_placement, config::NormPlacement::post);
  EXPECT_EQ(model.norm_epsilon, 1e-12);
  EXPECT_EQ(model.activation, config::Activation::gelu);
  EXPECT_EQ(model.max_predictions, 3);  // 0.15 of 17 tokens
}

// What the head was trained to judge, no file says: the dialect does.
TEST_F(BertDialect, TheDecksPairsAreThoseOfTheHead) {
  const auto pairs_of = [&](const ForeignDirectory& files) {
    std::filesystem::remove_all(scratch_ / "ours");
    import_hugging_face(files.write(theirs()), scratch_ / "ours", log_);
    return deck_of_checkpoint().data.pairs;
  };
  EXPECT_EQ(pairs_of(files_), config::Pairs::next);
  EXPECT_EQ(pairs_of(ForeignDirectory("bert_pre_odd")), config::Pairs::order);
  files_.erase_all("bert.pooler");
  files_.erase_all("cls.seq_relationship");
  EXPECT_EQ(pairs_of(files_), config::Pairs::none);
}

// A head that was trained on other pairs than an import would say.
TEST_F(BertDialect, OtherPairsAreSaidWhenExporting) {
  Dialect other = bert_dialect();
  other.pairs = config::Pairs::order;
  import_hugging_face(files_.write(theirs()), scratch_ / "ours", log_, {&other, 1});
  EXPECT_EQ(deck_of_checkpoint().data.pairs, config::Pairs::order);
  EXPECT_TRUE(log_.warnings().empty());
  export_hugging_face(scratch_ / "ours", scratch_ / "again", log_);
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(
      log_.warnings()[0],
      AllOf(HasSubstr("data.pairs: order is not kept: config.json has no word for "
                      "what the head of pairs judges"),
            HasSubstr("transformers' BERT is taken to judge next")));
}

// Keys as they are published with the models.
TEST_F(BertDialect, PublishedModels) {
  Json config = {{"architectures", {"BertForMaskedLM"}},
                 {"attention_probs_dropout_prob", 0.1},
                 {"gradient_checkpointing", false},
                 {"hidden_act", "gelu"},
                 {"hidden_dropout_prob", 0.1},
                 {"hidden_size", 768},
                 {"initializer_range", 0.02},
                 {"intermediate_size", 3072},
                 {"layer_norm_eps", 1e-12},
                 {"max_position_embeddings", 512},
                 {"model_type", "bert"},
                 {"num_attention_heads", 12},
                 {"num_hidden_layers", 12},
                 {"pad_token_id", 0},
                 {"position_embedding_type", "absolute"},
                 {"type_vocab_size", 2},
                 {"use_cache", true},
                 {"vocab_size", 30522}};
  EXPECT_EQ(test::parameters_of(config), 109514298);
  config["architectures"] = {"BertForPreTraining"};
  EXPECT_EQ(test::parameters_of(config), 110106428);
  config["hidden_size"] = 1024;
  config["intermediate_size"] = 4096;
  config["num_attention_heads"] = 16;
  config["num_hidden_layers"] = 24;
  EXPECT_EQ(test::parameters_of(config), 336226108);
  config["model_type"] = "megatron-bert";
  config["architectures"] = {"MegatronBertForPreTraining"};
  EXPECT_EQ(test::parameters_of(config), 336226108);
  config["vocab_size"] = 29056;  // Megatron's own
  EXPECT_EQ(test::parameters_of(config), 334723458);
}

TEST_F(BertDialect, AModelWithoutHeadsGetsNewOnes) {
  files_.strip_prefix("bert.");  // as BertModel saves it
  files_.config["architectures"] = {"BertModel"};
  files_.tensors["embeddings.position_ids"] = {{1, 17}, std::vector<float>(17)};
  import_hugging_face(files_.write(theirs()), scratch_ / "ours", log_);
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(log_.warnings()[0],
              AllOf(HasSubstr("drawn anew (7):\n    pair_head/classifier/weight\n    "
                              "pair_head/classifier/bias\n    masked_head/dense/weight"),
                    HasSubstr("masked_head/norm/bias\n    masked_head/bias"),
                    Not(HasSubstr("pooler"))));
  const CheckpointReader reader(scratch_ / "ours" / "latest");
  EXPECT_EQ(reader.read_whole("model/pair_head/pooler/weight"),
            files_.tensors.at("pooler.dense.weight").values);
  EXPECT_EQ(reader.read_whole("model/masked_head/norm/weight"),
            std::vector<float>(30, 1.0f));
  EXPECT_EQ(reader.read_whole("model/masked_head/bias"), std::vector<float>(97, 0.0f));
  double squares = 0.0;
  for (const float value : reader.read_whole("model/masked_head/dense/weight")) {
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(std::sqrt(squares / 900), 0.02, 0.002);
  EXPECT_TRUE(model_of_checkpoint().binary_head);
}

TEST_F(BertDialect, WithoutTheHeadOfPairsThereIsNone) {
  files_.erase_all("bert.pooler");
  files_.erase_all("cls.seq_relationship");
  EXPECT_FALSE(model().config().binary_head);
  ASSERT_EQ(log_.warnings().size(), 1u);
  EXPECT_THAT(log_.warnings()[0],
              AllOf(HasSubstr("no head that judges pairs (bert.pooler.dense, "
                              "cls.seq_relationship)"),
                    HasSubstr("model.binary_head is false")));
  // Where config.json says so, too, nothing is odd.
  files_.config["architectures"] = {"BertForMaskedLM"};
  test::expect_round_trip(files_.write(theirs()), scratch_ / "masked");
  const Json written = Json::parse(io::read_file(scratch_ / "masked/again/config.json"));
  EXPECT_EQ(written["architectures"][0], "BertForMaskedLM");
  // bert-base-uncased names that class, and has the head.
  ForeignDirectory whole("bert_odd");
  whole.config["architectures"] = {"BertForMaskedLM"};
  EXPECT_TRUE(HuggingFaceModel(whole.write(theirs()), log_).config().binary_head);
  EXPECT_EQ(log_.warnings().size(), 1u);
}

TEST_F(BertDialect, TiedWeightsMayStandTwice) {
  files_.tensors["cls.predictions.decoder.weight"] = files_.tensors.at(kWords);
  files_.tensors["cls.predictions.decoder.bias"] =
      files_.tensors.at("cls.predictions.bias");
  EXPECT_EQ(test::read_ours(model(), "masked_head/bias"),
            files_.tensors.at("cls.predictions.bias").values);
  files_.tensors["cls.predictions.decoder.weight"].values[3] += 1.0f;
  files_.tensors["cls.predictions.decoder.bias"].values[3] += 1.0f;
  EXPECT_THAT(
      error(),
      AllOf(HasSubstr("not equal, while Trireme ties them and has one for both (2):"),
            HasSubstr("cls.predictions.decoder.weight (97, 30) and "),
            HasSubstr("cls.predictions.decoder.bias (97) and cls.predictions.bias")));
}

TEST_F(BertDialect, NormsOfTensorFlowsNames) {
  files_.rename_ends("LayerNorm.weight", "LayerNorm.gamma");
  files_.rename_ends("LayerNorm.bias", "LayerNorm.beta");
  const HuggingFaceModel renamed = model(), plain(parity_directory("bert_odd"), log_);
  for (const char* name : {"embedding/norm/weight", "layers/1/mlp_norm/bias"}) {
    EXPECT_EQ(test::read_ours(renamed, name), test::read_ours(plain, name)) << name;
  }
}

TEST_F(BertDialect, WhatIsNotSupportedIsSaidAllAtOnce) {
  files_.config["position_embedding_type"] = "relative_key";
  files_.config["is_decoder"] = true;
  files_.config["add_cross_attention"] = true;
  files_.config["tie_word_embeddings"] = false;
  files_.config["hidden_act"] = "silu";
  files_.config["pruned_heads"] = {{"0", {1}}};
  files_.config["layer_norm_eps"] = 0;
  files_.config["num_attention_heads"] = 4;
  files_.config.erase("type_vocab_size");
  EXPECT_THAT(
      error(),
      AllOf(HasSubstr("position_embedding_type: \"relative_key\" is not supported; "
                      "expected one of absolute"),
            HasSubstr("is_decoder: true"), HasSubstr("add_cross_attention: true"),
            HasSubstr("tie_word_embeddings: false"),
            HasSubstr("hidden_act: \"silu\" is not supported; expected one of gelu, "),
            HasSubstr("pruned_heads: {\"0\":[1]}"),
            HasSubstr("layer_norm_eps: expected a number above 0, found 0"),
            HasSubstr("4 heads do not divide hidden_size, 30"),
            HasSubstr("type_vocab_size: missing")));
}

TEST_F(BertDialect, OtherModelsAreRefused) {
  EXPECT_THAT(error_of_config(files_, "type_vocab_size", 1),
              HasSubstr("type_vocab_size is 1, and the weights have a head that judges "
                        "pairs (bert.pooler.dense)"));
  EXPECT_THAT(error_of_config(files_, "model_type", "megatron-bert"),
              AllOf(HasSubstr("bert.encoder.ln.weight"), HasSubstr("not part of the")));
  files_.tensors["classifier.weight"] = {{3, 30}, std::vector<float>(90)};
  EXPECT_THAT(error(), HasSubstr("not part of the model (1):\n    classifier.weight"));
}

TEST_F(BertDialect, NormsChooseTheDialect) {
  config::ModelConfig model = bert_dialect().read_config(files_.config, "x", log_);
  EXPECT_EQ(dialect_of_model(model, "x", known_dialects()).name, "BERT");
  model.norm_placement = config::NormPlacement::pre;
  EXPECT_EQ(dialect_of_model(model, "x", known_dialects()).name, "MegatronBert");
  model.type_vocab_size = 0;
  EXPECT_THAT(
      message_of<InputError>([&] { dialect_of_model(model, "x", known_dialects()); }),
      AllOf(HasSubstr("transformers' BERT can express:\n  model.norm_placement: only "
                      "post can be exported\n  model.type_vocab_size: only 1 or more"),
            HasSubstr("MegatronBert can express:\n  model.type_vocab_size")));
}

// The five special tokens and letters.
data::TokenizerFiles word_list(const char* letters) {
  std::string list = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (const char* letter = letters; *letter != '\0'; ++letter) {
    list += std::string(1, *letter) + "\n##" + std::string(1, *letter) + "\n";
  }
  return {{"vocab.txt", list}};
}

// With these a token for each of the fixture's 97 rows.
constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST";

TEST_F(BertDialect, TheTokenizerTravelsAlong) {
  files_.write(theirs());
  io::write_file(theirs() / "vocab.txt", word_list(kLetters).at("vocab.txt"));
  import_hugging_face(theirs(), scratch_ / "ours", log_);
  export_hugging_face(scratch_ / "ours", scratch_ / "again", log_);
  EXPECT_TRUE(log_.warnings().empty());
  EXPECT_EQ(io::read_file(scratch_ / "again/vocab.txt"),
            word_list(kLetters).at("vocab.txt"));
  const Json config =
      Json::parse(io::read_file(scratch_ / "again/tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "BertTokenizer");
  // transformers takes lower case where it is not told.
  EXPECT_EQ(config["do_lower_case"], false);
  EXPECT_EQ(config["cls_token"], "[CLS]");
  EXPECT_EQ(config["mask_token"], "[MASK]");
  EXPECT_EQ(config["model_max_length"], 17);
  EXPECT_FALSE(config.contains("eos_token"));
  // What came with its configuration keeps it.
  const std::string said =
      R"({"do_lower_case": true, "tokenizer_class": "BertTokenizer"})";
  io::write_file(theirs() / "tokenizer_config.json", said);
  import_hugging_face(theirs(), scratch_ / "ours2", log_);
  export_hugging_face(scratch_ / "ours2", scratch_ / "again2", log_);
  EXPECT_EQ(io::read_file(scratch_ / "again2/tokenizer_config.json"), said);
}

// Cut at the end of a line it is a list like another, but for the rows without a word.
TEST_F(BertDialect, AWordListWithoutItsLastLineIsRefused) {
  files_.write(theirs());
  const std::string list = word_list(kLetters).at("vocab.txt");
  const auto read = [&](const std::string& content) {
    io::write_file(theirs() / "vocab.txt", content);
    return HuggingFaceModel(theirs(), log_).tokenizer_files();
  };
  EXPECT_FALSE(read(list).empty());
  EXPECT_TRUE(log_.warnings().empty());
  EXPECT_THAT(
      test::message_of<InputError>([&] { read(list.substr(0, list.rfind("##T"))); }),
      AllOf(HasSubstr("theirs': the tokenizer (WordPiece"),
            HasSubstr("has 96 tokens, and the model's table of words 97 rows, "
                      "more than padding explains"),
            HasSubstr("cut short, or another model's"),
            HasSubstr("Put the model's own there")));
}

}  // namespace
}  // namespace trireme::ckpt
