// Token ids against those of Hugging Face's tokenizers (fixtures by
// tests/parity/make_tokenizer_fixtures.py), and files that are not a tokenizer.
#include "data/tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/utf8.hpp"
#include "data/sentence_piece_library.hpp"
#include "data/tokenizer_files.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;

const nlohmann::json& expected() {
  static const nlohmann::json ids =
      nlohmann::json::parse(io::read_file(test::fixture("ids.json")));
  return ids;
}

Ids expected_ids(const char* key) {
  return expected().at(key).get<Ids>();
}

TokenId id_of(const Tokenizer& tokenizer, std::string_view bytes) {
  TokenId id = 0;
  while (tokenizer.bytes_of(id) != bytes) ++id;
  return id;
}

TEST(TokenizerIds, OfATrainedTokenizerAreHuggingFaces) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  EXPECT_EQ(tokenizer.vocabulary_size(), 700u);
  EXPECT_EQ(tokenizer.end_of_document(), 0u);
  const std::string sample = io::read_file(test::fixture("sample.txt"));
  const Ids ids = tokenizer.encode(sample);
  EXPECT_EQ(ids, expected_ids("trained"));
  EXPECT_EQ(tokenizer.decode(ids), sample);
}

TEST(TokenizerIds, OfInvalidTextAreThoseOfItsRepair) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::string text = io::read_file(test::fixture("invalid.bin"));
  Encoder encoder(tokenizer);
  Ids ids;
  encoder.encode(text, ids);
  EXPECT_EQ(ids, expected_ids("trained_invalid"));
  EXPECT_GT(encoder.replaced_sequences(), 100u);
  std::string repaired;
  EXPECT_EQ(append_repaired(text, repaired), encoder.replaced_sequences());
  EXPECT_EQ(tokenizer.decode(ids), repaired);
}

TEST(TokenizerIds, WithASplitPatternAreHuggingFaces) {
  const Tokenizer tokenizer = Tokenizer::load({test::fixture("split.json")});
  EXPECT_FALSE(tokenizer.can_cut_before_space());  // of a pattern nothing is known
  const auto text = expected().at("plain").get<std::string>();
  EXPECT_EQ(tokenizer.encode(text), expected_ids("split_plain"));
}

class TokenizerGpt2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (directory_.empty()) GTEST_SKIP() << test::kNoGpt2;
  }
  const std::filesystem::path directory_ = test::gpt2_directory();
};

TEST_F(TokenizerGpt2, IdsAreGpt2s) {
  const Tokenizer tokenizer = Tokenizer::load({directory_});
  EXPECT_EQ(tokenizer.vocabulary_size(), 50257u);
  EXPECT_EQ(tokenizer.end_of_document(), 50256u);
  EXPECT_EQ(tokenizer.encode("Hello, world! It's<|endoftext|>"),
            (Ids{15496, 11, 995, 0, 632, 338, 50256}));
  EXPECT_EQ(tokenizer.encode(io::read_file(test::fixture("sample.txt"))),
            expected_ids("gpt2"));
  EXPECT_EQ(tokenizer.encode(io::read_file(test::fixture("invalid.bin"))),
            expected_ids("gpt2_invalid"));
}

TEST_F(TokenizerGpt2, IsItsFiles) {
  const Tokenizer tokenizer = Tokenizer::load({directory_});
  const Tokenizer again = Tokenizer::from_files(tokenizer.files());
  EXPECT_EQ(again.files(), tokenizer.files());
  EXPECT_EQ(again.encode("again, 2 naïve"), tokenizer.encode("again, 2 naïve"));
  EXPECT_NE(tokenizer.files(), test::trained_tokenizer().files());
}

TEST(TokenizerAddedTokens, AreTextWhenAsked) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  Ids recognised, as_text;
  Encoder special(tokenizer);
  special.encode("a<|endoftext|>b<|endoftext|", recognised);
  Encoder plain(tokenizer, AddedTokens::as_text);
  plain.encode("a<|endoftext|>b<|endoftext|", as_text);
  EXPECT_EQ(std::count(recognised.begin(), recognised.end(), 0u), 1);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), 0u), 0);
  EXPECT_EQ(special.added_tokens_found(), (std::map<TokenId, std::uint64_t>{{0, 1}}));
  EXPECT_TRUE(plain.added_tokens_found().empty());
  EXPECT_EQ(tokenizer.decode(recognised), tokenizer.decode(as_text));
}

// Each id begins where the one before ends, as they spell the text.
TEST(TokenizerPlaces, AreWhereTheBytesOfIdsAre) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::string text = "<|endoftext|> x" + io::read_file(test::fixture("sample.txt"));
  Encoder encoder(tokenizer);
  Ids ids, same;
  std::vector<std::size_t> begins;
  encoder.encode("a b", same);
  encoder.encode("a b", ids, begins);  // appends
  encoder.encode(text, ids, begins);
  encoder.encode(text, same);
  EXPECT_EQ(ids, same);
  ASSERT_EQ(begins.size(), ids.size());
  const std::size_t first = tokenizer.encode("a b").size();
  std::size_t at = 0;
  for (std::size_t i = first; i < ids.size(); ++i) {
    ASSERT_EQ(begins[i], at);
    at += tokenizer.bytes_of(ids[i]).size();
  }
  EXPECT_EQ(at, text.size());
  EXPECT_THAT(test::message_of<Error>([&] { encoder.encode("ab\xff", ids, begins); }),
              HasSubstr("no UTF-8 at byte 2"));
}

TEST(TokenizerPlaces, DoNotCountASpaceInFront) {
  auto json = nlohmann::json::parse(io::read_file(test::fixture("trained.json")));
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const Tokenizer tokenizer = tokenizer_from_json("t.json", json.dump());
  EXPECT_FALSE(tokenizer.can_cut_before_space());
  Ids ids;
  std::vector<std::size_t> begins;
  Encoder(tokenizer).encode("the sky<|endoftext|>and", ids, begins);
  EXPECT_EQ(ids, tokenizer.encode(" the sky<|endoftext|> and"));
  const std::size_t end =
      static_cast<std::size_t>(std::ranges::find(ids, 0u) - ids.begin());
  ASSERT_LT(end + 1, ids.size());
  EXPECT_EQ(begins[0], 0u);
  EXPECT_EQ(begins[end], 7u);
  EXPECT_EQ(begins[end + 1], 20u);
}

TEST(TokenizerSpecials, AreAddedTokensByTheirText) {
  const Tokenizer plain = test::trained_tokenizer();
  EXPECT_EQ(plain.special(Special::end_of_document), 0u);
  EXPECT_FALSE(plain.find_special(Special::mask));
  EXPECT_THAT(test::message_of<InputError>([&] { plain.special(Special::mask); }),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("lacks a token that masks"),
                    HasSubstr("is [MASK] or <mask>"), HasSubstr("added_tokens")));
  auto json = nlohmann::json::parse(io::read_file(test::fixture("trained.json")));
  for (const char* text : {"<pad>", "[SEP]", "</s>", "[MASK]"}) {
    json["added_tokens"].push_back(
        {{"id", 700 + json["added_tokens"].size()}, {"content", text}});
  }
  const Tokenizer more = tokenizer_from_json("t.json", json.dump());
  EXPECT_EQ(more.special(Special::padding), 701u);
  EXPECT_EQ(more.special(Special::separate), 702u);
  EXPECT_EQ(more.special(Special::mask), 704u);
  EXPECT_EQ(more.end_of_document(), 0u);  // <|endoftext|> goes before the others
  json["added_tokens"].erase(0);
  EXPECT_EQ(tokenizer_from_json("t.json", json.dump()).end_of_document(), 703u);
  json["added_tokens"] = nlohmann::json::array();
  const Tokenizer none = tokenizer_from_json("t.json", json.dump());
  EXPECT_THAT(
      test::message_of<InputError>([&] { none.end_of_document(); }),
      AllOf(HasSubstr("lacks an end-of-document token"),
            HasSubstr("<|endoftext|>, <|end_of_text|>, </s>, <eos>, <|eot_id|> or "
                      "[SEP]")));
}

TEST(TokenizerStream, GivesWholeCharacters) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::string text = "x 😀é€ \xF0\x9F 漢 end\xE2\x82";
  Ids ids;  // byte by byte: the hardest case
  for (const char& byte : text) {
    ids.push_back(id_of(tokenizer, std::string_view(&byte, 1)));
  }
  StreamDecoder decoder(tokenizer);
  std::string joined;
  for (const TokenId id : ids) {
    const std::string part = decoder.next(id);
    EXPECT_EQ(valid_utf8_prefix(part), part.size());
    joined += part;
  }
  EXPECT_THAT(joined, ::testing::EndsWith(" end"));
  joined += decoder.finish();
  std::string expected_text;
  append_repaired(text, expected_text);
  EXPECT_EQ(joined, expected_text);
}

TEST(TokenizerDecode, RefusesIdsOutside) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  EXPECT_THAT(test::message_of<InputError>([&] {
                tokenizer.decode({1, 700});
              }),
              HasSubstr("token id 700 is outside the tokenizer's vocabulary of 700"));
}

// A small tokenizer.json with one thing changed.
std::string error_with(const std::string& pointer, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(io::read_file(test::fixture("trained.json")));
  json[nlohmann::json::json_pointer(pointer)] = value;
  return test::message_of<InputError>(
      [&] { tokenizer_from_json("my.json", json.dump()); });
}

TEST(TokenizerFiles, SayWhatIsNotSupported) {
  EXPECT_THAT(
      error_with("/model/type", "WordLevel"),
      HasSubstr("'my.json': the model is of type 'WordLevel', which is not supported"));
  EXPECT_THAT(error_with("/model", {{"vocab", {{"a", 0}}}}), HasSubstr("no merges"));
  EXPECT_THAT(error_with("/model/dropout", 0.1), HasSubstr("BPE dropout"));
  EXPECT_THAT(error_with("/model/byte_fallback", true), HasSubstr("byte_fallback"));
  EXPECT_THAT(error_with("/normalizer", {{"type", "NFC"}}), HasSubstr("normalizer"));
  EXPECT_THAT(error_with("/pre_tokenizer", {{"type", "Metaspace"}}),
              HasSubstr("a BPE without fuse_unk and byte_fallback"));
  EXPECT_THAT(error_with("/added_tokens/0/lstrip", true), HasSubstr("lstrip"));
  EXPECT_THAT(
      error_with("/model/merges/5", "onlyone"),
      HasSubstr("merge 6 is 'onlyone', expected two tokens with a space between"));
  EXPECT_THAT(error_with("/model/merges/5", {"a", "zz"}),
              HasSubstr("needs the token 'zz'"));
  EXPECT_THAT(error_with("/model/vocab/new", 5), HasSubstr("two tokens have the id 5"));
  EXPECT_THAT(error_with("/model/vocab/new", -5),
              HasSubstr("the id of token 'new' is -5"));
  EXPECT_THAT(error_with("/model/vocab", nullptr), HasSubstr("found null"));
  EXPECT_THAT(error_with("/model/type", 7), HasSubstr("'type' is 7; expected a string"));
  EXPECT_THAT(error_with("/model/ignore_merges", "yes"), HasSubstr("my.json"));
}

TEST(TokenizerFiles, ThatAreMissingOrBroken) {
  const test::Scratch scratch;
  const auto error = [&](std::vector<std::filesystem::path> paths) {
    return test::message_of<InputError>([&] { Tokenizer::load(paths); });
  };
  EXPECT_THAT(error({scratch / "none.json"}), HasSubstr("none.json"));
  EXPECT_THAT(error({scratch.path()}),
              HasSubstr("has no tokenizer: expected tokenizer.json"));
  test::spill(scratch / "vocab.json", "{\"a\": 0");
  test::spill(scratch / "merges.txt", "#version: 0.2\na b\n");
  EXPECT_THAT(error({scratch / "vocab.json", scratch / "merges.txt"}),
              HasSubstr("tokenizer file vocab.json:1:7: not valid JSON: syntax error"));
  for (const std::string name : {"vocab.json", "tokenizer.json"}) {
    test::spill(scratch / name, "{\"a\": " + test::nested_json(100000) + "}");
    EXPECT_THAT(error({scratch.path()}),
                HasSubstr(name + ":1:70: nested more than 64 levels deep"));
    test::spill(scratch / name, "{\"a\": 0,\n\"b\": 1e999}");
    EXPECT_THAT(error({scratch.path()}), HasSubstr(name + ":2:11: number overflow"));
    std::filesystem::remove(scratch / "tokenizer.json");
  }
  test::spill(scratch / "vocab.json", "{\"a\": 0}");
  EXPECT_THAT(error({scratch.path()}), HasSubstr("needs the token 'b'"));
  EXPECT_THAT(error({scratch / "vocab.json"}), HasSubstr("no model with a vocab"));
  EXPECT_THAT(error({scratch / "merges.txt"}),
              HasSubstr("no tokenizer in these files: merges.txt"));
}

// Whichever was taken, ids would be those of the wrong one every other time.
TEST(TokenizerFiles, OfTwoTokenizers) {
  const test::Scratch scratch;
  const auto put = [&](const char* name, const char* from) {
    std::filesystem::copy_file(test::fixture(from), scratch / name,
                               std::filesystem::copy_options::overwrite_existing);
  };
  const auto error = [&](std::vector<std::filesystem::path> paths) {
    return test::message_of<InputError>([&] { Tokenizer::load(paths); });
  };
  const auto two = [&](const char* one, const char* other) {
    return fmt::format(
        "'{}' and '{}' are of two tokenizers, and nothing says which one is meant: give "
        "the file of one alone, by its name",
        (scratch / one).string(), (scratch / other).string());
  };
  put("vocab.txt", "uncased/vocab.txt");
  put("tokenizer.model", "unigram.model");
  EXPECT_EQ(error({scratch.path()}), two("vocab.txt", "tokenizer.model"));
  EXPECT_EQ(error({scratch / "vocab.txt", scratch / "tokenizer.model"}),
            two("vocab.txt", "tokenizer.model"));
  EXPECT_EQ(error({scratch / "vocab.txt"}), "(nothing thrown)");
  test::spill(scratch / "vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}");
  EXPECT_EQ(error({scratch.path()}), two("vocab.txt", "tokenizer.model"));
  test::spill(scratch / "merges.txt", "#version: 0.2\na b\n");
  EXPECT_EQ(error({scratch.path()}), two("vocab.json", "vocab.txt"));
  std::filesystem::remove(scratch / "vocab.txt");
  EXPECT_EQ(error({scratch.path()}), two("vocab.json", "tokenizer.model"));
  std::filesystem::remove(scratch / "merges.txt");
  put("spiece.model", "bpe.model");
  EXPECT_EQ(error({scratch.path()}), two("spiece.model", "tokenizer.model"));
  // A tokenizer.json says more than any of them.
  put("tokenizer.json", "trained.json");
  EXPECT_EQ(error({scratch.path()}), "(nothing thrown)");
  EXPECT_EQ(Tokenizer::load({scratch.path()}).files(),
            Tokenizer::load({scratch / "tokenizer.json"}).files());
  std::filesystem::remove(scratch / "tokenizer.json");
  if (!has_sentence_piece()) GTEST_SKIP() << "NO SENTENCEPIECE: other kinds were tried";
  // One model under two names is one.
  put("spiece.model", "unigram.model");
  EXPECT_EQ(error({scratch.path()}), "(nothing thrown)");
  EXPECT_EQ(error({scratch / "tokenizer.model"}), "(nothing thrown)");
}

// A model is found by what its name ends with.
TEST(TokenizerFiles, OfOneModelUnderAnyName) {
  if (!has_sentence_piece()) GTEST_SKIP() << "NO SENTENCEPIECE: other kinds were tried";
  const test::Scratch scratch;
  const auto put = [&](const char* name, const char* from) {
    std::filesystem::copy_file(test::fixture(from), scratch / name);
  };
  const auto error = [&] {
    return test::message_of<InputError>([&] { Tokenizer::load({scratch.path()}); });
  };
  std::filesystem::create_directory(scratch / "deep.model");
  EXPECT_THAT(error(), HasSubstr("has no tokenizer: expected tokenizer.json"));
  put("b.model", "unigram.model");
  const TokenizerFiles files = Tokenizer::load({scratch / "b.model"}).files();
  EXPECT_EQ(Tokenizer::load({scratch.path()}).files(), files);
  put("spiece.model", "unigram.model");  // equal models are one
  EXPECT_EQ(Tokenizer::load({scratch.path()}).files(), files);
  std::filesystem::remove(scratch / "spiece.model");
  put("a.model", "bpe.model");
  EXPECT_EQ(error(),
            fmt::format("'{}' and '{}' are of two tokenizers, and nothing says "
                        "which one is meant: give the file of one alone, by "
                        "its name",
                        (scratch / "a.model").string(), (scratch / "b.model").string()));
  put("tokenizer.json", "trained.json");
  EXPECT_EQ(Tokenizer::load({scratch.path()}).files(),
            Tokenizer::load({scratch / "tokenizer.json"}).files());
}

}  // namespace
}  // namespace trireme::data
