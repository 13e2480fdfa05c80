// The check of a deck and the start of its run are of one mind on whether each part of
// each corpus has room for a sample: windows of BERT's samples are as long as the
// corpus' own documents are on average. What cannot be looked at is named.
#include "check/deck_check.hpp"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "ckpt/convert.hpp"
#include "ckpt/reader.hpp"
#include "config/key_table.hpp"
#include "config/load.hpp"
#include "data/datasets.hpp"
#include "data/sample_index.hpp"
#include "unit/ckpt/foreign_directory.hpp"
#include "unit/data/fixtures.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::check {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DeckCheckOfBlends : public ::testing::Test {
 protected:
  // A corpus of so many documents, each of so many tokens and its end; its path.
  std::string corpus(const std::string& name, int documents, int words,
                     const data::CorpusOptions& options = {}) const {
    std::string text;
    for (int word = 0; word < words; ++word) text += word % 10 == 9 ? ". " : "The ";
    static const auto tokenizer = data::Tokenizer::load({test::fixture("uncased")});
    test::make_corpus(scratch_, name,
                      std::vector(static_cast<std::size_t>(documents), text), tokenizer,
                      options);
    return scratch_ / name;
  }
  // The deck of a BERT of 128 positions on these corpora, with more of its section data.
  DeckCheckOptions deck_of(const std::vector<std::string>& train, const std::string& more,
                           Purpose purpose = Purpose::train,
                           const std::string& head = "false") const {
    const std::string path = scratch_ / "deck.yaml";
    test::spill(path, fmt::format("model: {{kind: bert, layers: 1, hidden: 32, heads: 2, "
                                  "sequence: 128, binary_head: {}}}\n"
                                  "data: {{train: [{}], {}}}\n",
                                  head, fmt::join(train, ", "), more));
    return {.deck = path, .purpose = purpose};
  }
  static std::string error_of(const DeckCheckOptions& options) {
    return test::message_of<config::DeckErrors>([&] { check_deck(options); });
  }
  // What the run's start says.
  static std::string start_of(const DeckCheckOptions& options) {
    const config::Deck deck = config::load(options.deck, {});
    return test::message_of<InputError>(
        [&] { data::make_datasets(deck, data::open_corpora(deck)); });
  }
  static constexpr const char* kNothing = "(nothing thrown)";

  test::Scratch scratch_;
};

// By its own documents the second one has windows of 126 tokens, and 62 of it are for
// validation; what others are in the blend is of no account.
TEST_F(DeckCheckOfBlends, LongDocumentsTakeRoom) {
  const std::string many = corpus("short.h5", 150, 9), few = corpus("long.h5", 2, 774);
  EXPECT_EQ(error_of(deck_of({many}, "split: [0.96, 0.04, 0]")), kNothing);
  EXPECT_EQ(start_of(deck_of({many}, "split: [0.96, 0.04, 0]")), kNothing);
  for (const std::vector<std::string>& train :
       {std::vector{few}, std::vector{many, few}}) {
    const DeckCheckOptions deck = deck_of(train, "split: [0.96, 0.04, 0]");
    EXPECT_THAT(error_of(deck),
                AllOf(HasSubstr("1 error"), HasSubstr("'validation' of corpus"),
                      HasSubstr("long.h5"), Not(HasSubstr("short.h5")),
                      HasSubstr("one sample takes 126")));
    EXPECT_THAT(start_of(deck), AllOf(HasSubstr("'validation'"), HasSubstr("long.h5"),
                                      HasSubstr("one sample takes 126")));
  }
}

// And 20 tokens are enough for documents of 10, beside longer ones too, and for what
// validates longer ones.
TEST_F(DeckCheckOfBlends, ShortDocumentsHaveIt) {
  const std::string few = corpus("long.h5", 60, 499), many = corpus("short.h5", 20, 9);
  const auto expect_room = [&](const DeckCheckOptions& deck) {
    EXPECT_EQ(error_of(deck), kNothing);
    EXPECT_EQ(start_of(deck), kNothing);
  };
  expect_room(deck_of({few, many}, "split: [0.9, 0.1, 0]"));
  expect_room(
      deck_of({few}, fmt::format("validation: {{book: {}}}", corpus("book.h5", 3, 9))));
  // Packed windows are as long as a sample, whatever the documents are.
  EXPECT_THAT(error_of(deck_of({few, many}, "split: [0.9, 0.1, 0], pack: true")),
              HasSubstr("short.h5"));
  EXPECT_THAT(error_of(deck_of({many}, "split: [0.9, 0.1, 0], pack: true")),
              HasSubstr("short.h5"));
}

// What a corpus lacks by itself is said of each.
TEST_F(DeckCheckOfBlends, EachCorpusIsNamedForWhatItLacks) {
  data::CorpusOptions sentences;
  sentences.sentences = data::Language::english;
  const std::string one = corpus("one.h5", 9, 40), two = corpus("two.h5", 9, 40),
                    right = corpus("right.h5", 20, 40, sentences);
  EXPECT_THAT(error_of(deck_of({one, right, two}, "split: [0.9, 0.1, 0]", Purpose::train,
                               "true")),
              AllOf(HasSubstr("2 errors"), HasSubstr("one.h5' has no sentences"),
                    HasSubstr("two.h5' has no sentences"), Not(HasSubstr("right.h5"))));
}

// A corpus that is not there yet keeps nothing from being said of the others.
TEST_F(DeckCheckOfBlends, OfOneThatIsMissingNothingIsSaid) {
  const std::string few = corpus("long.h5", 2, 774), none = scratch_ / "none.h5";
  EXPECT_THAT(
      error_of(deck_of({few, none}, "split: [0.96, 0.04, 0]", Purpose::job)),
      AllOf(HasSubstr("1 error"), HasSubstr("long.h5"), HasSubstr("one sample takes")));
  const CheckedDeck checked =
      check_deck(deck_of({few, none}, "split: [0.8, 0.2, 0]", Purpose::job));
  ASSERT_EQ(checked.not_checked.size(), 1u);
  EXPECT_THAT(checked.not_checked[0].text(), HasSubstr("none.h5"));
}

// A copy of another name is the same text; the parts that data.split makes are not.
TEST_F(DeckCheckOfBlends, TextThatIsThereTwiceIsWarnedOf) {
  const std::string one = corpus("one.h5", 150, 9), copy = corpus("copy.h5", 150, 9),
                    two = corpus("two.h5", 140, 9);
  const auto warnings = [&](const std::vector<std::string>& train,
                            const std::string& more) {
    return check_deck(deck_of(train, more)).warnings;
  };
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  EXPECT_THAT(warnings({one, two}, "split: [0.9, 0.1, 0]"), IsEmpty());
  EXPECT_THAT(warnings({one}, fmt::format("validation: {{held: {}}}", two)), IsEmpty());
  EXPECT_THAT(warnings({one}, fmt::format("validation: {{a: {0}, b: {0}}}", two)),
              IsEmpty());
  EXPECT_THAT(
      warnings({one, two, copy}, "split: [0.9, 0.1, 0]"),
      ElementsAre(AllOf(HasSubstr("copy.h5' has the tokens of"), HasSubstr("one.h5'"))));
  EXPECT_THAT(warnings({two, one}, fmt::format("validation: {{held: {}}}", copy)),
              ElementsAre(AllOf(HasSubstr("data.validation.held is trained on"),
                                HasSubstr("one.h5' in data.train"))));
}

// Weights by which a corpus would never be taken are refused before the run's start would
// do it, in every use of a deck, also where the corpora are not there yet.
TEST_F(DeckCheckOfBlends, WeightsTooFarApart) {
  const std::string one = corpus("one.h5", 9, 40), two = corpus("two.h5", 9, 40);
  const auto blend = [](const std::string& path, const char* weight) {
    return fmt::format("{{path: {}, weight: {}}}", path, weight);
  };
  const auto deck = [&](const char* first, const char* second, Purpose purpose,
                        const std::string& other) {
    return deck_of({blend(one, first), blend(other, second)}, "split: [1, 0, 0]",
                   purpose);
  };
  const std::string fix =
      fmt::format("[{}, {}]", blend(one, "10000000000"), blend(two, "2.4"));
  for (const Purpose purpose : {Purpose::train, Purpose::job, Purpose::plan}) {
    EXPECT_THAT(
        error_of(deck("1e10", "1", purpose, two)),
        AllOf(HasSubstr("1 error"), HasSubstr("\n  data.train: ["),
              HasSubstr("deck.yaml:2)"), HasSubstr("has weights from 1 to 1"),
              HasSubstr("not all corpora would be taken"),
              HasSubstr("allowed: weights of at least 2.4e-10 of their sum (2.4)"),
              HasSubstr("nearest: data.train: " + fix)));
    EXPECT_EQ(error_of(deck("1e9", "1", purpose, two)), kNothing);
  }
  EXPECT_THAT(error_of(deck("1", "1e10", Purpose::job, scratch_ / "none.h5")),
              AllOf(HasSubstr("1 error"), HasSubstr("has weights from 1 to 1")));
  EXPECT_THAT(start_of(deck("1e10", "1", Purpose::train, two)),
              HasSubstr("data.train has weights from 1 to 1"));
  DeckCheckOptions mended = deck("1e10", "1", Purpose::train, two);
  mended.overrides = {"data.train=" + fix};
  EXPECT_EQ(error_of(mended), kNothing);
  EXPECT_EQ(start_of(deck("1e10", "2.4", Purpose::train, two)), kNothing);
  EXPECT_EQ(start_of(deck("1e9", "1", Purpose::train, two)), kNothing);
  // Without a finite sum; and paths that only a job knows are not written down.
  EXPECT_THAT(error_of(deck("1e308", "1e308", Purpose::plan, two)),
              AllOf(HasSubstr("without a finite sum"), HasSubstr("of their sum\n"),
                    HasSubstr(blend(two, "1"))));
  EXPECT_THAT(error_of(deck("1e10", "1", Purpose::job, "$SLURM_TRIREME_NONE/a.h5")),
              AllOf(HasSubstr("too far apart"), Not(HasSubstr("nearest"))));
  // The page of keys says what is right in every order.
  EXPECT_THAT(config::find_key("data.train")->info.allowed,
              HasSubstr(fmt::format("at least {} of their sum", data::kLeastPart)));
}

// --- weights to begin with

// The five special tokens and letters: as many as bert_odd has rows.
data::TokenizerFiles letters_of(char first_small, char first_capital) {
  std::string list = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 0; i < 46; ++i) {
    const int small = first_small + i, capital = first_capital + i - 26;
    list += fmt::format("{0}\n##{0}\n", static_cast<char>(i < 26 ? small : capital));
  }
  return {{"vocab.txt", list}};
}

// Weights that are converted with a tokenizer of another order of letters, with that of
// the corpus, and with none, of which nothing can be said.
TEST(DeckCheckOfWeights, WithoutATokenizerAreNamed) {
  const test::Scratch scratch;
  const auto tokenizer = data::Tokenizer::from_files(letters_of('a', 'A'));
  data::CorpusOptions sentences;
  sentences.sentences = data::Language::english;
  test::make_corpus(scratch, "c.h5",
                    std::vector<std::string>(60, "The day was long. It was so."),
                    tokenizer, sentences);
  const auto check = [&](const std::string& name, const data::TokenizerFiles& files) {
    const io::Path theirs =
        test::ForeignDirectory("bert_odd").write(scratch / (name + ".theirs"));
    for (const auto& [file, content] : files) test::spill(theirs / file, content);
    Log log(false);
    ckpt::import_hugging_face(theirs, scratch / name, log);
    const ckpt::CheckpointReader reader(scratch / name / "latest");
    test::spill(scratch / "deck.yaml", reader.state().deck);
    return check_deck({.deck = scratch / "deck.yaml",
                       .overrides = {"data.train=" + (scratch / "c.h5").string()},
                       .run_dir = scratch / "run",
                       .init_from = scratch / name});
  };
  EXPECT_TRUE(check("same", tokenizer.files()).not_checked.empty());
  const CheckedDeck checked = check("none", {});
  ASSERT_EQ(checked.not_checked.size(), 1u);
  EXPECT_THAT(checked.not_checked[0].text(),
              AllOf(HasSubstr("not checked, as '"), HasSubstr("none"),
                    HasSubstr("' names no tokenizer: whether the "
                              "tokens of data.train are those of the weights")));
  EXPECT_THAT(
      test::message_of<config::DeckErrors>([&] { check("other", letters_of('A', 'a')); }),
      AllOf(HasSubstr("--init-from"), HasSubstr("another tokenizer")));
}

}  // namespace
}  // namespace trireme::check
