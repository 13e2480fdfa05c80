// data/vocabulary_trainer.cpp — see vocabulary_trainer.hpp.
//
// A WordPiece vocabulary is learned as one of BPE (as Hugging Face's trainer does): the
// library's pieces with the space mark in front begin a word, the others go on with one.
// Example: of "playing" and "plays" come the merges "▁p" "▁pl" ... "▁play" and "in"
// "ing", which are spelt "pl" ... "play", "##in", "##ing". Of the first, "▁p", there is
// "p" already: every character is a token of its own.
#include "data/vocabulary_trainer.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"
#include "base/utf8.hpp"
#include "comm/on_ranks.hpp"
#include "data/sentence_piece_files.hpp"
#include "data/sentence_piece_library.hpp"
#include "data/sentence_piece_model.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

// Sums of a step are made per thread: another number would give other sums.
constexpr const char* kTrainingThreads = "4";
// The library leaves out sentences that are longer than 4192 bytes.
constexpr std::size_t kLongestTrainedWord = 4000;
constexpr std::size_t kMostCharacters = 1000;
constexpr std::size_t kLongestPiece = 100;  // characters
constexpr std::string_view kBertSpecials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                              "[MASK]"};
constexpr TokenId kT5Specials = 3;
constexpr const char* kNoWords =
    "nothing to train on: the {} of input have no words in them";

bool ends_word(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// Counts the pieces of GPT-2's pre-tokenizer.
class BytePieces : public DocumentSink {
 public:
  void begin_document() override {}
  void text(std::string_view bytes) override { counter.add(bytes); }
  void end_document() override {}
  WordCounter counter;
};

// Counts what stands between white space.
class SpacedWords : public DocumentSink {
 public:
  void begin_document() override {}
  void text(std::string_view bytes) override {
    const std::string_view text = valid_utf8(bytes, repaired_, replaced_);
    for (std::size_t at = 0; at < text.size();) {
      while (at < text.size() && ends_word(text[at])) ++at;
      std::size_t end = at;
      while (end < text.size() && !ends_word(text[end])) ++end;
      add(text.substr(at, end - at));
      at = end;
    }
  }
  void end_document() override {}
  WordCounter counter;

 private:
  void add(std::string_view word) {
    while (word.size() > kLongestTrainedWord) {
      std::size_t end = kLongestTrainedWord;
      while ((static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) --end;
      counter.add_count(word.substr(0, end), 1);
      word.remove_prefix(end);
    }
    if (!word.empty()) counter.add_count(word, 1);
  }
  std::string repaired_;
  std::uint64_t replaced_ = 0;
};

// Counts words of the basic tokenizer.
class BasicWords : public DocumentSink {
 public:
  explicit BasicWords(const BasicTokenizerOptions& options)
      : basic_(options), scanner_(basic_) {}
  void begin_document() override {}
  void text(std::string_view bytes) override {
    scanner_.start(valid_utf8(bytes, repaired_, replaced_));
    for (Word word; scanner_.next(word);) counter.add_count(word.text, 1);
  }
  void end_document() override {}
  WordCounter counter;

 private:
  BasicTokenizer basic_;
  BasicTokenizer::Scanner scanner_;
  std::string repaired_;
  std::uint64_t replaced_ = 0;
};

using CountedWordList = std::vector<std::pair<std::string, std::uint64_t>>;

// Before the counting, which may take hours.
void require_library() {
  TRIREME_REQUIRE_INPUT(has_sentence_piece(),
                        "training this vocabulary needs the SentencePiece library, which "
                        "this build of trireme does not have: install "
                        "libsentencepiece-dev (Debian; tools/bootstrap does), and "
                        "configure and build again");
}

// What rank 0 makes of all words, on every rank.
struct TrainedFile {
  std::string content;
  bool ran_out = false;
  std::uint64_t words = 0;
};

// Rank 0 adds up what the others counted, and trains for all. `nothing`: the error where
// the input has no words, of its size.
template <class Sink, class Train>
TrainedFile train_on_counts(const DocumentSource& source, Sink& sink,
                            comm::Communicator& comm, const TrainingProgress& progress,
                            const char* nothing, const Train& train) {
  comm::on_every_rank(comm,
                      [&] { source.read(comm.rank(), comm.size(), sink, progress); });
  for (int rank = 1; rank < comm.size(); ++rank) {
    std::string packed;
    if (comm.rank() == rank) packed = sink.counter.packed();
    comm.broadcast(packed, rank);
    if (comm.rank() == 0) sink.counter.add_packed(packed);
  }
  auto words = static_cast<std::int64_t>(sink.counter.counts().size());
  comm.broadcast(words);
  if (words == 0) {
    throw InputError(fmt::format(fmt::runtime(nothing), human_bytes(source.bytes())));
  }
  TrainedFile trained;
  std::int64_t ran_out = 0;
  comm::on_every_rank(comm, [&] {
    if (comm.rank() != 0) return;
    trained.content = train(sink.counter.counts(), trained.ran_out);
    ran_out = trained.ran_out ? 1 : 0;
  });
  comm.broadcast(trained.content);
  comm.broadcast(ran_out);
  trained.ran_out = ran_out != 0;
  trained.words = static_cast<std::uint64_t>(words);
  return trained;
}

// How many pieces the library wants at least, where its message is that of too few for
// the characters: "... smaller than required_chars. 260 vs 347. Increase ...". It alone
// knows, as it counts the characters that its normaliser makes.
std::optional<std::int64_t> wanted_pieces(std::string_view message) {
  constexpr std::string_view kMark = "required_chars. ", kVersus = " vs ";
  const std::size_t mark = message.find(kMark);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::size_t versus = message.find(kVersus, mark);
  if (versus == std::string_view::npos) return std::nullopt;
  message.remove_prefix(versus + kVersus.size());
  std::int64_t wanted = 0;
  const auto read =
      std::from_chars(message.data(), message.data() + message.size(), wanted);
  return read.ec == std::errc() ? std::optional(wanted) : std::nullopt;
}

[[noreturn]] void refuse_size(std::int64_t pieces, std::int64_t wanted,
                              std::int64_t sentinels) {
  throw InputError(fmt::format(
      "a unigram vocabulary of {} is too small for this text: its characters, the bytes "
      "and {} make {}: make it {} at least{}",
      format_plural(pieces + sentinels, "token"),
      format_plural(kT5Specials, "special token"), wanted, wanted + sentinels,
      sentinels > 0
          ? fmt::format(" ({} among them)", format_plural(sentinels, "sentinel"))
          : ""));
}

std::string trained_unigram_model(const WordCounter::Counts& counts, TokenId pieces,
                                  std::int64_t sentinels, bool& ran_out) try {
  CountedWordList words(counts.begin(), counts.end());
  std::ranges::sort(words);
  const std::string model = train_sentence_piece({{"model_type", "unigram"},
                                                  {"vocab_size", std::to_string(pieces)},
                                                  {"hard_vocab_limit", "false"},
                                                  {"byte_fallback", "true"},
                                                  {"pad_id", "0"},
                                                  {"eos_id", "1"},
                                                  {"unk_id", "2"},
                                                  {"bos_id", "-1"},
                                                  {"num_threads", kTrainingThreads}},
                                                 words);
  ran_out = SentencePieceModel::parse("trained", model).pieces.size() < pieces;
  return model;
} catch (const InputError& error) {
  const std::optional<std::int64_t> wanted = wanted_pieces(error.what());
  if (!wanted) throw;
  refuse_size(pieces, *wanted, sentinels);
}

std::vector<std::string_view> characters_of(std::string_view word) {
  std::vector<std::string_view> characters;
  for (std::size_t at = 0; at < word.size();) {
    const auto length = static_cast<std::size_t>(code_point_at(word, at).length);
    characters.push_back(word.substr(at, length));
    at += length;
  }
  return characters;
}

// The words that only have characters of the most frequent ones; others would be unknown
// as a whole, and so would be very long ones. U+2581 is a mark of the library's.
CountedWordList known_words(const WordCounter::Counts& counts) {
  std::map<std::string_view, std::uint64_t> frequency;
  for (const auto& [word, count] : counts) {
    for (const std::string_view character : characters_of(word))
      frequency[character] += count;
  }
  frequency.erase(kSpaceMark);
  std::vector<std::pair<std::string_view, std::uint64_t>> order(frequency.begin(),
                                                                frequency.end());
  std::ranges::stable_sort(
      order, [](const auto& a, const auto& b) { return a.second > b.second; });
  if (order.size() > kMostCharacters) order.resize(kMostCharacters);
  std::unordered_set<std::string_view> kept;
  for (const auto& [character, count] : order) kept.insert(character);
  CountedWordList words;
  for (const auto& [word, count] : counts) {
    const std::vector<std::string_view> characters = characters_of(word);
    const auto is_kept = [&](std::string_view c) { return kept.contains(c); };
    if (characters.size() <= kLongestPiece && std::ranges::all_of(characters, is_kept)) {
      words.emplace_back(word, count);
    }
  }
  std::ranges::sort(words);
  return words;
}

// Tokens in their order, each once.
class WordList {
 public:
  void add(const std::string& token) {
    if (known_.insert(token).second) tokens_.push_back(token);
  }
  std::size_t size() const { return tokens_.size(); }
  std::string text() const {
    std::string lines;
    for (const std::string& token : tokens_) lines += token + "\n";
    return lines;
  }

 private:
  std::unordered_set<std::string> known_;
  std::vector<std::string> tokens_;
};

// A merge as WordPiece spells it; empty where the piece is none: single characters are
// tokens already, where they are found.
std::string word_piece_of_merge(const SentencePieceModel::Piece& piece) {
  const bool begins = piece.text.starts_with(kSpaceMark);
  const std::string text = piece.text.substr(begins ? kSpaceMark.size() : 0);
  if (piece.kind != SentencePieceModel::Kind::normal || characters_of(text).size() < 2) {
    return {};
  }
  return begins ? text : "##" + text;
}

}  // namespace

std::string trained_word_list(const WordCounter::Counts& counts, TokenId size,
                              bool& ran_out) {
  const CountedWordList words = known_words(counts);
  std::set<std::string> begins, goes_on, all;
  for (const auto& [word, count] : words) {
    const std::vector<std::string_view> characters = characters_of(word);
    begins.emplace(characters.front());
    for (std::size_t i = 1; i < characters.size(); ++i) goes_on.emplace(characters[i]);
    all.insert(characters.begin(), characters.end());
  }
  WordList list;
  for (const std::string_view special : kBertSpecials) list.add(std::string(special));
  for (const std::string& character : begins) list.add(character);
  for (const std::string& character : goes_on) list.add("##" + character);
  TRIREME_REQUIRE_INPUT(
      list.size() <= size,
      "a WordPiece vocabulary of {} is too small for this text: its characters and {} "
      "make {} at least",
      format_plural(size, "token"),
      format_plural(std::size(kBertSpecials), "special token"), list.size());
  // With every character, the space mark, the unknown piece, and the first merge of each
  // beginning, which is that character again.
  const std::size_t pieces = size - list.size() + begins.size() + all.size() + 2;
  const std::string model =
      train_sentence_piece({{"model_type", "bpe"},
                            {"vocab_size", std::to_string(pieces)},
                            {"hard_vocab_limit", "false"},
                            {"normalization_rule_name", "identity"},
                            {"remove_extra_whitespaces", "false"},
                            {"split_by_unicode_script", "false"},
                            {"split_by_number", "false"},
                            {"character_coverage", "1"},
                            {"max_sentencepiece_length", std::to_string(kLongestPiece)},
                            {"bos_id", "-1"},
                            {"eos_id", "-1"},
                            {"num_threads", kTrainingThreads}},
                           words);
  for (const auto& piece : SentencePieceModel::parse("trained", model).pieces) {
    const std::string token = word_piece_of_merge(piece);
    if (!token.empty() && list.size() < size) list.add(token);
  }
  ran_out = list.size() < size;
  return list.text();
}

TrainedTokenizer train_byte_level_bpe(const DocumentSource& source, TokenId size,
                                      comm::Communicator& comm,
                                      const TrainingProgress& progress) {
  BytePieces sink;
  const TrainedFile trained =
      train_on_counts(source, sink, comm, progress,
                      "nothing to tokenize: the {} of input have no document with text",
                      [&](const WordCounter::Counts& counts, bool& ran_out) {
                        const TrainedBpe bpe = train_bpe(counts, size);
                        ran_out = bpe.ran_out_of_pairs;
                        return bpe.json();
                      });
  return {Tokenizer::from_files({{"tokenizer.json", trained.content}}), trained.ran_out,
          trained.words};
}

TrainedTokenizer train_unigram(const DocumentSource& source, TokenId size,
                               std::int64_t sentinels, comm::Communicator& comm,
                               const TrainingProgress& progress) {
  constexpr std::int64_t kBytes = 256;
  TRIREME_REQUIRE_INPUT(
      std::int64_t{size} > sentinels + kBytes + kT5Specials,
      "a unigram vocabulary of {} is too small: {}, {} for bytes and {} special tokens "
      "make {}, and pieces of text come on top",
      format_plural(size, "token"), format_plural(sentinels, "sentinel"), kBytes,
      kT5Specials, sentinels + kBytes + kT5Specials);
  const auto pieces = static_cast<TokenId>(size - sentinels);
  require_library();
  SpacedWords sink;
  const TrainedFile trained =
      train_on_counts(source, sink, comm, progress, kNoWords,
                      [&](const WordCounter::Counts& counts, bool& ran_out) {
                        return trained_unigram_model(counts, pieces, sentinels, ran_out);
                      });
  nlohmann::ordered_json config;
  config["tokenizer_class"] = "T5Tokenizer";
  config["extra_ids"] = sentinels;
  config["pad_token"] = "<pad>";
  config["eos_token"] = "</s>";
  config["unk_token"] = "<unk>";
  return {
      Tokenizer::from_files({{kSentencePieceFile, trained.content},
                             {"tokenizer_config.json", io::json_text(config, 2) + "\n"}}),
      trained.ran_out, trained.words};
}

TrainedTokenizer train_word_piece(const DocumentSource& source, TokenId size,
                                  const BasicTokenizerOptions& basic,
                                  comm::Communicator& comm,
                                  const TrainingProgress& progress) {
  require_library();
  BasicWords sink(basic);
  const TrainedFile trained =
      train_on_counts(source, sink, comm, progress, kNoWords,
                      [&](const WordCounter::Counts& counts, bool& ran_out) {
                        return trained_word_list(counts, size, ran_out);
                      });
  nlohmann::ordered_json config;
  config["tokenizer_class"] = "BertTokenizer";
  config["do_lower_case"] = basic.lowercase;
  return {
      Tokenizer::from_files({{"vocab.txt", trained.content},
                             {"tokenizer_config.json", io::json_text(config, 2) + "\n"}}),
      trained.ran_out, trained.words};
}

}  // namespace trireme::data
