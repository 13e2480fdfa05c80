// The texts of BERT's samples: within documents and parts, whole sentences, pairs of
// either kind as often as they should be, and every token of the corpus sometime.
#include "data/segment_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "unit/data/binomial.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using config::Pairs;

MaskedRules segment_rules(index_t sequence, Pairs pairs, double short_seq_prob = 0.0) {
  const Tokenizer tokenizer = Tokenizer::load({test::fixture("uncased")});
  return {.sequence = sequence,
          .predictions = 1,
          .short_seq_prob = short_seq_prob,
          .pairs = pairs,
          .window = 40,
          .vocabulary = std::make_shared<const MaskedVocabulary>(masked_vocabulary(
              tokenizer, tokenizer.vocabulary_size(), tokenizer.end_of_document()))};
}

class SegmentChoice : public ::testing::Test {
 protected:
  SegmentChoice() {
    const std::string sample = io::read_file(test::fixture("sample.txt"));
    std::vector<std::string> documents = {"One alone.", " ", "Of two. Sentences."};
    for (std::size_t i = 0; i < 40; ++i) {
      documents.push_back(sample.substr(i * 90, 1 + i * i * 2 % 1500));
    }
    many_ = corpus("many.h5", documents, true);
    plain_ = corpus("plain.h5", documents, false);
    one_ = corpus("one.h5", {sample}, true);
  }
  std::shared_ptr<const Corpus> corpus(const std::string& name,
                                       const std::vector<std::string>& texts,
                                       bool sentences) const {
    CorpusOptions options;
    if (sentences) options.sentences = Language::english;
    test::make_corpus(scratch_, name, texts, Tokenizer::load({test::fixture("uncased")}),
                      options);
    return std::make_shared<const Corpus>(scratch_ / name);
  }
  static Dataset dataset(const std::shared_ptr<const Corpus>& corpus,
                         const MaskedRules& rules, TokenRange range) {
    return {{{corpus, range, 1.0}},
            sample_rules(rules, 11),
            Order::shuffled,
            "train",
            Tail::counted};
  }
  static TokenRange all_of(const std::shared_ptr<const Corpus>& corpus) {
    return {0, corpus->token_count()};
  }
  static bool begins_sentence(const Corpus& corpus, index_t token) {
    return corpus.sentence_begin(corpus.first_sentence_from(token)) == token;
  }

  test::Scratch scratch_;
  std::shared_ptr<const Corpus> many_, plain_, one_;
};

// Of one document, without its end, and of the part of the corpus.
void expect_inside(const Corpus& corpus, TokenRange part, TokenRange tokens) {
  ASSERT_LT(tokens.begin, tokens.end);
  ASSERT_GE(tokens.begin, part.begin);
  ASSERT_LE(tokens.end, part.end);
  const index_t document = corpus.document_of(tokens.begin);
  ASSERT_LT(tokens.end, corpus.document_begin(document + 1));
}

TEST_F(SegmentChoice, StayWithinDocumentAndPart) {
  for (const auto& corpus : {many_, one_}) {
    for (const Pairs pairs : {Pairs::none, Pairs::order, Pairs::next}) {
      for (const index_t sequence : {5, 20, 128, 512}) {
        const MaskedRules rules = segment_rules(sequence, pairs, 0.3);
        const TokenRange part{37, corpus->token_count() - 111};
        const Dataset data = dataset(corpus, rules, part);
        const SegmentChooser chooser(data, rules);
        for (index_t p = 0; p < 4 * data.windows(); ++p) {
          const Segments segments = chooser.choose(data.place(p));
          expect_inside(*corpus, part, segments.first);
          if (segments.has_pair()) expect_inside(*corpus, part, segments.second);
          ASSERT_LE(segments.first.size() + segments.second.size(), rules.text());
          ASSERT_TRUE(segments.has_pair() || !segments.is_other);
          ASSERT_FALSE(segments.has_pair() && pairs == Pairs::none);
        }
      }
    }
  }
}

// What was not cut is what was chosen: whole sentences, side by side.
TEST_F(SegmentChoice, OrderIsToldAsItIs) {
  const MaskedRules rules = segment_rules(512, Pairs::order);
  const Dataset data = dataset(many_, rules, all_of(many_));
  const SegmentChooser chooser(data, rules);
  index_t pairs = 0, swapped = 0, whole = 0;
  for (index_t p = 0; p < 400 * data.windows(); ++p) {
    const Segments segments = chooser.choose(data.place(p));
    if (!segments.has_pair()) {
      // Of a document with one sentence.
      const index_t document = many_->document_of(segments.first.begin);
      ASSERT_EQ(segments.first.begin, many_->document_begin(document));
      ASSERT_EQ(segments.first.end, many_->document_begin(document + 1) - 1);
      continue;
    }
    ++pairs;
    swapped += segments.is_other ? 1 : 0;
    const TokenRange front = segments.is_other ? segments.second : segments.first;
    const TokenRange back = segments.is_other ? segments.first : segments.second;
    ASSERT_LE(front.end, back.begin);
    ASSERT_EQ(many_->document_of(front.begin), many_->document_of(back.begin));
    if (front.size() + back.size() == rules.text()) continue;
    ++whole;
    ASSERT_EQ(front.end, back.begin);
    ASSERT_TRUE(begins_sentence(*many_, front.begin));
    ASSERT_TRUE(begins_sentence(*many_, back.begin));
  }
  EXPECT_GT(whole, pairs / 4);
  test::expect_binomial(swapped, pairs, 0.5, "swapped");
}

TEST_F(SegmentChoice, NextIsOfAnotherDocumentAsTold) {
  const MaskedRules rules = segment_rules(64, Pairs::next);
  const Dataset data = dataset(many_, rules, all_of(many_));
  const SegmentChooser chooser(data, rules);
  index_t pairs = 0, others = 0;
  std::set<index_t> second_documents;
  for (index_t p = 0; p < 400 * data.windows(); ++p) {
    const Segments segments = chooser.choose(data.place(p));
    if (!segments.has_pair()) continue;
    ++pairs;
    const index_t first = many_->document_of(segments.first.begin);
    const index_t second = many_->document_of(segments.second.begin);
    ASSERT_EQ(segments.is_other, first != second);
    if (segments.is_other) {
      ++others;
      second_documents.insert(second);
    } else {
      ASSERT_LE(segments.first.end, segments.second.begin);
    }
  }
  test::expect_binomial(others, pairs, 0.5, "of another document");
  // All but the empty one.
  EXPECT_EQ(std::ssize(second_documents), many_->document_count() - 1);
  // Where there is no other one, none is made up.
  const Dataset alone = dataset(one_, rules, all_of(one_));
  const SegmentChooser of_one(alone, rules);
  index_t pairs_of_one = 0;
  for (index_t p = 0; p < alone.windows(); ++p) {
    const Segments segments = of_one.choose(alone.place(p));
    pairs_of_one += segments.has_pair() ? 1 : 0;
    ASSERT_FALSE(segments.is_other);
  }
  EXPECT_GT(pairs_of_one, alone.windows() / 4);  // it has sentences that are longer
}

// A document that is longer than a sample always fills it, and what is cut off comes from
// front and back alike. A share of the samples is of a length drawn evenly.
TEST_F(SegmentChoice, LengthsAreAsDrawn) {
  constexpr double kShort = 0.4;
  const MaskedRules rules = segment_rules(33, Pairs::order, kShort);  // 30 of text
  const Dataset data = dataset(one_, rules, all_of(one_));
  const SegmentChooser chooser(data, rules);
  const index_t samples = 40'000;
  std::vector<index_t> count(31);
  for (index_t p = 0; p < samples; ++p) {
    const Segments segments = chooser.choose(data.place(p));
    ++count.at(static_cast<std::size_t>(segments.first.size() + segments.second.size()));
  }
  for (std::size_t length = 2; length <= 30; ++length) {
    const double full = length == 30 ? 1.0 - kShort : 0.0;
    test::expect_binomial(count[length], samples, kShort / 29 + full,
                          "length " + std::to_string(length));
  }
}

// The longer segment is cut until both fit.
TEST_F(SegmentChoice, TheLongerSegmentIsCut) {
  const MaskedRules rules = segment_rules(23, Pairs::order);
  const Dataset data = dataset(one_, rules, all_of(one_));
  const SegmentChooser chooser(data, rules);
  index_t cut_at_front = 0, cut_at_back = 0, level = 0;
  for (index_t p = 0; p < 3000; ++p) {
    const Segments segments = chooser.choose(data.place(p));
    const TokenRange front = segments.is_other ? segments.second : segments.first;
    const TokenRange back = segments.is_other ? segments.first : segments.second;
    ASSERT_EQ(front.size() + back.size(), 20);
    if (!segments.has_pair()) continue;
    level += front.size() == back.size() ? 1 : 0;
    // The cut between the two is where a sentence begins: of `back` if that is whole.
    cut_at_front += begins_sentence(*one_, back.begin) ? 0 : 1;
    cut_at_back += front.end == back.begin ? 0 : 1;
  }
  EXPECT_GT(level, 500);
  EXPECT_GT(cut_at_front, 500);
  EXPECT_GT(cut_at_back, 500);
}

// Over enough epochs all tokens of text are read: fronts and backs of documents, and
// what is in the middle of a sentence that is longer than a sample.
TEST_F(SegmentChoice, EveryTokenIsReadSometime) {
  const auto read_all = [&](const std::shared_ptr<const Corpus>& corpus, Pairs pairs,
                            index_t sequence) {
    const MaskedRules rules = segment_rules(sequence, pairs);
    const Dataset data = dataset(corpus, rules, all_of(corpus));
    const SegmentChooser chooser(data, rules);
    std::vector<bool> is_read(static_cast<std::size_t>(corpus->token_count()));
    for (index_t p = 0; p < 400 * data.windows(); ++p) {
      const Segments segments = chooser.choose(data.place(p));
      for (const TokenRange& tokens : {segments.first, segments.second}) {
        for (index_t at = tokens.begin; at < tokens.end; ++at) {
          is_read[static_cast<std::size_t>(at)] = true;
        }
      }
    }
    // But for the ends of documents.
    EXPECT_EQ(std::ranges::count(is_read, false), corpus->document_count())
        << name_of(pairs) << " " << sequence;
  };
  for (const Pairs pairs : {Pairs::none, Pairs::order, Pairs::next}) {
    for (const index_t sequence : {16, 128}) read_all(many_, pairs, sequence);
  }
  read_all(one_, Pairs::none, 64);
  read_all(one_, Pairs::order, 64);
  read_all(plain_, Pairs::none, 64);
  std::string endless;
  for (int i = 0; i < 400; ++i) endless += " and on";
  const auto one_sentence = corpus("endless.h5", {endless, "Short. It is."}, true);
  for (const Pairs pairs : {Pairs::none, Pairs::order}) read_all(one_sentence, pairs, 32);
}

// Without sentences a text begins anywhere; a document that is shorter than a sample is
// read whole.
TEST_F(SegmentChoice, DoWithoutSentences) {
  const MaskedRules rules = segment_rules(64, Pairs::none);
  const Dataset data = dataset(plain_, rules, all_of(plain_));
  const SegmentChooser chooser(data, rules);
  for (index_t p = 0; p < 20 * data.windows(); ++p) {
    const Segments segments = chooser.choose(data.place(p));
    const index_t document = plain_->document_of(segments.first.begin);
    const index_t begin = plain_->document_begin(document);
    const index_t text = plain_->document_begin(document + 1) - 1 - begin;
    ASSERT_EQ(segments.first.size(), std::min(text, rules.text()));
    ASSERT_FALSE(segments.has_pair());
  }
}

// No text in the part: an empty sample, and no endless search.
TEST_F(SegmentChoice, WhereThereIsNoText) {
  const auto empty = corpus("empty.h5", {" ", " ", " ", " "}, false);
  ASSERT_EQ(empty->token_count(), 4);
  const MaskedRules rules = segment_rules(64, Pairs::none);
  MaskedRules small = rules;
  small.window = 1;
  const Dataset data = dataset(empty, small, all_of(empty));
  const Segments segments = SegmentChooser(data, small).choose(data.place(0));
  EXPECT_EQ(segments.first.size() + segments.second.size(), 0);
}

}  // namespace
}  // namespace trireme::data
