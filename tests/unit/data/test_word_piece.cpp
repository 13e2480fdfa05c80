// WordPiece: ids, places and decoded texts against those of Hugging Face's tokenizers
// (fixtures by tests/parity/make_word_piece_fixtures.py), and files that are none.
#include "data/word_piece.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/utf8.hpp"
#include "data/tokenizer_files.hpp"
#include "unit/data/fixtures.hpp"
#include "unit/data/mixed_text.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;
using Json = nlohmann::json;

Tokenizer uncased() {
  return Tokenizer::load({test::fixture("uncased")});
}
Tokenizer cased() {
  return Tokenizer::load({test::fixture("cased.json")});
}
Json cased_json() {
  return Json::parse(io::read_file(test::fixture("cased.json")));
}

// The tokens of a vocab.txt, and the ids of a text.
constexpr const char* kSmall =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\n##in\nplays\n.\n##g\n##s\nun\na\n";
Tokenizer small(const std::string& list = kSmall) {
  return Tokenizer::from_files({{"vocab.txt", list}});
}
std::vector<std::string> pieces_of(std::string_view text) {
  const Tokenizer tokenizer = small();
  std::vector<std::string> pieces;
  for (const TokenId id : tokenizer.encode(text)) {
    pieces.emplace_back(tokenizer.bytes_of(id));
  }
  return pieces;
}

TEST(WordPiece, TakesTheLongestPieces) {
  EXPECT_THAT(pieces_of("playing plays"), ElementsAre(" play", "ing", " plays"));
  EXPECT_THAT(pieces_of("Playin."), ElementsAre(" play", "in", "."));
  EXPECT_THAT(pieces_of("playsing"), ElementsAre(" plays", "ing"));
  // A word is known as a whole or not at all.
  EXPECT_THAT(pieces_of("playx play"), ElementsAre(" [UNK]", " play"));
  EXPECT_THAT(pieces_of("ing"), ElementsAre(" [UNK]"));
  EXPECT_THAT(pieces_of("a" + std::string(99, 's')).size(), 100u);
  EXPECT_THAT(pieces_of("a" + std::string(100, 's')), ElementsAre(" [UNK]"));
  EXPECT_THAT(pieces_of(""), ElementsAre());
  EXPECT_THAT(pieces_of("[MASK]a[mask]"),
              ElementsAre(" [MASK]", " a", " [UNK]", " [UNK]", " [UNK]"));
}

TEST(WordPiece, KnowsItsSpecialTokens) {
  for (const Tokenizer& tokenizer : {uncased(), cased(), small()}) {
    EXPECT_EQ(tokenizer.special(Special::padding), 0u);
    EXPECT_EQ(tokenizer.special(Special::unknown), 1u);
    EXPECT_EQ(tokenizer.special(Special::classify), 2u);
    EXPECT_EQ(tokenizer.special(Special::separate), 3u);
    EXPECT_EQ(tokenizer.special(Special::mask), 4u);
    EXPECT_EQ(tokenizer.end_of_document(), 3u);
    EXPECT_EQ(tokenizer.added_tokens().size(), 5u);
  }
}

TEST(WordPiece, SaysWhichPiecesBeginWords) {
  std::string begins;
  const Tokenizer tokenizer = small();
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    begins += tokenizer.model().begins_word(id) ? '1' : '0';
  }
  EXPECT_EQ(begins, "11111100110011");
}

TEST(WordPiece, SaysWhatItIs) {
  EXPECT_EQ(uncased().model().description(), "WordPiece, uncased");
  EXPECT_EQ(cased().model().description(), "WordPiece, cased");
  EXPECT_THAT(small().model().description(), HasSubstr("no piece has a capital"));
  EXPECT_THAT(small(std::string(kSmall) + "A\n").model().description(),
              AllOf(HasSubstr("WordPiece, cased"), HasSubstr("pieces have capitals")));
}

TEST(WordPiece, IsItsFiles) {
  for (const Tokenizer& tokenizer : {uncased(), cased()}) {
    const Tokenizer again = Tokenizer::from_files(tokenizer.files());
    EXPECT_EQ(again.files(), tokenizer.files());
    EXPECT_EQ(again.encode("Again, 2 naïve"), tokenizer.encode("Again, 2 naïve"));
  }
  EXPECT_EQ(uncased().files().size(), 2u);
  // The file that says more of a vocab.txt is read from beside it.
  EXPECT_EQ(Tokenizer::load({test::fixture("uncased") / "vocab.txt"}).files(),
            uncased().files());
}

// One vocabulary in both forms.
TEST(WordPiece, OfAListIsThatOfATokenizerJson) {
  const Json vocabulary = cased_json()["model"]["vocab"];
  std::vector<std::string> lines(vocabulary.size());
  for (const auto& [text, id] : vocabulary.items()) lines[id.get<std::size_t>()] = text;
  std::string list, with_returns;
  for (const std::string& line : lines) {
    list += line + "\n";
    with_returns += line + "\r\n";
  }
  const Tokenizer expected = cased();
  const std::string text = io::read_file(test::fixture("sample.txt"));
  for (const std::string& form : {list, with_returns}) {
    const Tokenizer tokenizer = small(form);  // cased: there are capitals
    EXPECT_EQ(tokenizer.encode(text), expected.encode(text));
    EXPECT_EQ(tokenizer.vocabulary_size(), expected.vocabulary_size());
  }
  const Tokenizer told = Tokenizer::from_files(
      {{"vocab.txt", list},
       {"tokenizer_config.json",
        R"({"do_lower_case": true, "strip_accents": false, "unk_token": "[UNK]",
            "tokenizer_class": "BertTokenizerFast", "mask_token": {"content": "[MASK]"}})"}});
  EXPECT_EQ(told.model().description(), "WordPiece, uncased, accents kept");
  EXPECT_EQ(told.encode("THE É"), expected.encode("the é"));
}

TEST(WordPiece, OfEqualLinesTheLastCounts) {
  EXPECT_EQ(small(std::string(kSmall) + "a\n\na\n").encode("a [SEP]"), (Ids{16, 3}));
  EXPECT_EQ(small(std::string(kSmall) + "[SEP]\n").end_of_document(), 14u);
}

TEST(WordPieceText, StreamsAsItIsDecoded) {
  const Tokenizer tokenizer = uncased();
  const Ids ids = tokenizer.encode("And God said, Let there be light: naïve!");
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const TokenId id : ids) streamed += decoder.next(id);
  streamed += decoder.finish();
  EXPECT_EQ(streamed, " " + tokenizer.decode(ids));
  EXPECT_EQ(tokenizer.decode(ids), "and god said, let there be light : naive!");
}

const Json& published() {
  static const Json records =
      Json::parse(io::read_file(test::fixture("word_piece.json")));
  return records;
}

void expect_texts(const Tokenizer& tokenizer, const char* name) {
  for (const Json& record : published().at(name).at("texts")) {
    const auto text = record.at("text").get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), record.at("ids").get<Ids>()) << text;
    EXPECT_EQ(tokenizer.decode(record.at("ids").get<Ids>()),
              record.at("decoded").get<std::string>());
  }
}

TEST(WordPieceFixture, HasTheIdsAndTheTextOfIds) {
  expect_texts(uncased(), "uncased");
  expect_texts(cased(), "cased");
}

// FNV-1a with 32-bit words in the place of bytes, as of the other fixtures.
class Fnv {
 public:
  void add(std::size_t word) { value_ = (value_ ^ word) * 0x100000001B3ull; }
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325ull;
};

constexpr std::size_t kBlockBytes = std::size_t{1} << 16;

// 16 MiB, block by block; one encoder for all, so that its cache fills and starts anew.
TEST(WordPieceFixture, HasTheIdsOfMixedText) {
  test::MixedText texts(io::read_file(test::fixture("sample.txt")),
                        io::read_file(test::fixture("invalid.bin")));
  const Json& small_letters = published().at("uncased").at("mixed");
  const Json& both = published().at("cased").at("mixed");
  ASSERT_GE(both.size() * kBlockBytes, std::size_t{16} << 20);
  ASSERT_EQ(small_letters.size(), both.size());
  const Tokenizer tokenizers[] = {uncased(), cased()};
  Encoder lower(tokenizers[0]), as_is(tokenizers[1]);
  for (std::size_t number = 0; number < both.size(); ++number) {
    SCOPED_TRACE(fmt::format("block {}", number));
    const std::string block = texts.document(number, kBlockBytes);
    Ids ids;
    lower.encode(block, ids);
    Fnv sum;
    for (const TokenId id : ids) sum.add(id);
    EXPECT_EQ(sum.text(), small_letters[number].get<std::string>());

    ids.clear();
    as_is.encode(block, ids);
    sum = {};
    for (const TokenId id : ids) sum.add(id);
    EXPECT_EQ(sum.text(), both[number].get<std::string>());

    std::string repaired;
    append_repaired(block, repaired);
    Ids again;
    std::vector<std::size_t> begins;
    as_is.encode(repaired, again, begins);
    EXPECT_EQ(again, ids);
    ASSERT_EQ(begins.size(), ids.size());
    sum = {};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      sum.add(ids[i]);
      sum.add(begins[i]);
    }
    EXPECT_EQ(sum.text(),
              published().at("cased").at("begins")[number].get<std::string>());
  }
}

// What corpora of many ranks rest on.
TEST(WordPiece, MayBeCutBeforeSpace) {
  test::MixedText texts(io::read_file(test::fixture("sample.txt")),
                        io::read_file(test::fixture("invalid.bin")));
  std::string text;
  append_repaired(texts.document(7, 20000), text);
  for (const Tokenizer& tokenizer : {uncased(), cased()}) {
    ASSERT_TRUE(tokenizer.can_cut_before_space());
    const Ids whole = tokenizer.encode(text);
    Encoder encoder(tokenizer);
    for (std::size_t at = 1; at < text.size(); at += 1 + at % 5) {
      const bool is_space = text[at] == ' ' || text[at] == '\n' || text[at] == '\r';
      if (!is_space || text[at - 1] <= ' ') continue;
      Ids parts;
      encoder.encode(std::string_view(text).substr(0, at), parts);
      encoder.encode(std::string_view(text).substr(at), parts);
      ASSERT_EQ(parts, whole) << at;
    }
  }
}

// Against the plain rule, of vocabularies of a few letters that hit each other.
TEST(WordPieceTrie, FindsWhatTheLongestPieceIs) {
  std::mt19937_64 draw(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> pieces(1 + draw() % 60);
    const auto letter = [&] {
      return static_cast<char>(
          "\x00\x01"
          "az\x7f\xfe\xff"[draw() % 7]);
    };
    for (std::string& piece : pieces) {
      for (std::uint64_t n = draw() % 6; n > 0; --n) piece += letter();
    }
    const PieceTrie trie(pieces);
    for (int i = 0; i < 200; ++i) {
      std::string front, text;
      for (std::uint64_t n = draw() % 3; n > 0; --n) front += letter();
      for (std::uint64_t n = draw() % 9; n > 0; --n) text += letter();
      PieceTrie::Match best;
      for (TokenId id = 0; id < pieces.size(); ++id) {
        const std::string& piece = pieces[id];
        if (piece.size() <= front.size() || !piece.starts_with(front)) continue;
        const std::string_view rest = std::string_view(piece).substr(front.size());
        if (text.starts_with(rest) && rest.size() >= best.length)
          best = {id, rest.size()};
      }
      const PieceTrie::Match found = trie.longest(trie.state_behind(front), text);
      ASSERT_EQ(found.length, best.length);
      if (found.length > 0) {
        ASSERT_EQ(found.id, best.id);
      }
    }
  }
}

TEST(WordPieceTrie, TakesLongPieces) {
  const std::string piece(300000, 'x');
  const PieceTrie trie({piece, "x", ""});
  EXPECT_EQ(trie.longest(PieceTrie::kRoot, piece + "x").length, piece.size());
  EXPECT_EQ(trie.longest(PieceTrie::kRoot, piece.substr(1)).length, 1u);
  EXPECT_EQ(PieceTrie({}).longest(PieceTrie::kRoot, "x").length, 0u);
}

// --- files that are none

std::string error_of_list(const std::string& list) {
  return test::message_of<InputError>([&] { small(list); });
}

TEST(WordPieceFiles, ThatAreCutShortOrNotBerts) {
  const std::string list = io::read_file(test::fixture("uncased") / "vocab.txt");
  EXPECT_THAT(error_of_list(list.substr(0, 2000)),
              AllOf(HasSubstr("'vocab.txt': its last line, "), HasSubstr("cut short"),
                    HasSubstr("Copy it again")));
  EXPECT_THAT(error_of_list("[PAD]\n[UNK]\n[CLS]\n"),
              AllOf(HasSubstr("'vocab.txt': its 3 lines lack [SEP], [MASK]."),
                    HasSubstr("Take the whole vocab.txt")));
  EXPECT_THAT(error_of_list(""), HasSubstr("lack [PAD], [UNK]"));
  EXPECT_THAT(error_of_list("a\n\xff\n"), HasSubstr("line 2 is not UTF-8"));
  EXPECT_THAT(error_of_list(io::read_file(test::fixture("trained.json"))),
              HasSubstr("lack [PAD]"));
}

std::string error_of_config(const std::string& config) {
  return test::message_of<InputError>([&] {
    Tokenizer::from_files({{"vocab.txt", kSmall}, {"tokenizer_config.json", config}});
  });
}

TEST(WordPieceFiles, WithAConfigThatAsksForMore) {
  EXPECT_THAT(error_of_config("{"), HasSubstr("tokenizer_config.json:1:"));
  EXPECT_THAT(error_of_config("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of_config(R"({"do_lower_case": 1})"),
              HasSubstr("'do_lower_case' is 1"));
  EXPECT_THAT(error_of_config(R"({"tokenizer_class": "BertJapaneseTokenizer"})"),
              AllOf(HasSubstr("'BertJapaneseTokenizer'"), HasSubstr("not supported")));
  EXPECT_THAT(error_of_config(R"({"do_basic_tokenize": false})"),
              HasSubstr("do_basic_tokenize"));
  EXPECT_THAT(error_of_config(R"({"never_split": ["a"]})"), HasSubstr("never_split"));
  EXPECT_THAT(error_of_config(R"({"mask_token": "<mask>"})"),
              HasSubstr("the mask_token '<mask>', which is not supported with vocab.txt: "
                        "[MASK] is"));
}

std::string error_of_json(const std::string& pointer, const Json& value) {
  Json json = cased_json();
  json[Json::json_pointer(pointer)] = value;
  return test::message_of<InputError>(
      [&] { tokenizer_from_json("my.json", json.dump()); });
}

TEST(WordPieceFiles, OfJsonSayWhatIsNotSupported) {
  EXPECT_THAT(error_of_json("/normalizer", {{"type", "NFC"}}),
              AllOf(HasSubstr("'my.json'"), HasSubstr("BertNormalizer is")));
  EXPECT_THAT(error_of_json("/pre_tokenizer", {{"type", "Whitespace"}}),
              HasSubstr("BertPreTokenizer is"));
  EXPECT_THAT(error_of_json("/pre_tokenizer", nullptr), HasSubstr("BertPreTokenizer is"));
  EXPECT_THAT(error_of_json("/decoder", {{"type", "ByteLevel"}}),
              HasSubstr("a decoder that is not supported"));
  EXPECT_THAT(error_of_json("/model/unk_token", "<none>"),
              HasSubstr("lacks the token '<none>'"));
  EXPECT_THAT(error_of_json("/model/max_input_chars_per_word", -1),
              HasSubstr("max_input_chars_per_word"));
  EXPECT_THAT(error_of_json("/model/vocab", {"a", "b"}), HasSubstr("found array"));
  EXPECT_THAT(error_of_json("/added_tokens/2/normalized", true),
              AllOf(HasSubstr("'[CLS]'"), HasSubstr("\"normalized\" to false")));
  EXPECT_THAT(error_of_json("/model/type", "BPE"), HasSubstr("no merges"));
  // Of another kind, and BERT's with nothing but pieces.
  EXPECT_THAT(error_of_json("/model/type", "Unigram"), HasSubstr("the normalizer"));
  EXPECT_THAT(error_of_json("/model/type", "Words"), HasSubstr("of type 'Words'"));
  EXPECT_EQ(error_of_json("/normalizer", nullptr), "(nothing thrown)");
  EXPECT_EQ(error_of_json("/decoder", nullptr), "(nothing thrown)");
}

}  // namespace
}  // namespace trireme::data
