// The check of a deck and the start of its run are of one mind on whether each part of
// each corpus has room for a sample: windows of BERT's samples are as long as the
// documents of all training corpora are on average.
#include "check/deck_check.hpp"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/load.hpp"
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

// By its own documents the second one would have windows of 126 tokens, and 62 of it are
// for validation. With those of the first they have 21.
TEST_F(DeckCheckOfBlends, ShortDocumentsMakeRoom) {
  const std::string many = corpus("short.h5", 150, 9), few = corpus("long.h5", 2, 774);
  const DeckCheckOptions both = deck_of({many, few}, "split: [0.96, 0.04, 0]");
  EXPECT_EQ(error_of(both), kNothing);
  EXPECT_EQ(start_of(both), kNothing);
  const DeckCheckOptions alone = deck_of({few}, "split: [0.96, 0.04, 0]");
  EXPECT_THAT(error_of(alone), AllOf(HasSubstr("long.h5"), HasSubstr("one sample")));
  EXPECT_THAT(start_of(alone), AllOf(HasSubstr("long.h5"), HasSubstr("one sample")));
}

// And the other way around: 20 tokens are enough by its own documents of 10.
TEST_F(DeckCheckOfBlends, LongDocumentsTakeIt) {
  const std::string few = corpus("long.h5", 60, 499), many = corpus("short.h5", 20, 9);
  const DeckCheckOptions both = deck_of({few, many}, "split: [0.9, 0.1, 0]");
  EXPECT_THAT(error_of(both),
              AllOf(HasSubstr("1 error"), HasSubstr("'validation' of corpus"),
                    HasSubstr("short.h5"), Not(HasSubstr("long.h5")),
                    HasSubstr("one sample takes 126")));
  EXPECT_THAT(start_of(both), AllOf(HasSubstr("'validation'"), HasSubstr("short.h5"),
                                    HasSubstr("one sample takes 126")));
  EXPECT_EQ(error_of(deck_of({many}, "split: [0.9, 0.1, 0]")), kNothing);
  // A validation corpus is cut as those of training are.
  const DeckCheckOptions named =
      deck_of({few}, fmt::format("validation: {{book: {}}}", corpus("book.h5", 3, 9)));
  EXPECT_THAT(error_of(named), AllOf(HasSubstr("data.validation.book"),
                                     HasSubstr("one sample takes 126")));
  EXPECT_THAT(start_of(named), HasSubstr("one sample takes 126"));
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
                    right = corpus("right.h5", 9, 40, sentences);
  EXPECT_THAT(error_of(deck_of({one, right, two}, "split: [0.9, 0.1, 0]", Purpose::train,
                               "true")),
              AllOf(HasSubstr("2 errors"), HasSubstr("one.h5' has no sentences"),
                    HasSubstr("two.h5' has no sentences"), Not(HasSubstr("right.h5"))));
}

// A corpus that is not there yet may have documents of any length.
TEST_F(DeckCheckOfBlends, NothingIsSaidOfRoomWhereOneIsMissing) {
  const std::string few = corpus("long.h5", 2, 774);
  const CheckedDeck checked = check_deck(
      deck_of({few, scratch_ / "none.h5"}, "split: [0.96, 0.04, 0]", Purpose::job));
  ASSERT_EQ(checked.not_checked.size(), 2u);
  EXPECT_THAT(checked.not_checked[0].text(), HasSubstr("none.h5"));
  EXPECT_EQ(checked.not_checked[1].text(),
            "not checked, as the documents of all training corpora say how long windows "
            "are: data: room for one sample in each part");
}

}  // namespace
}  // namespace trireme::check
