// What samples of each kind of model are by deck and corpora, and what is missing where
// there can be none.
#include "data/deck_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "data/datasets.hpp"
#include "data/sample_maker.hpp"
#include "support/hdf5_edit.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

// The trained vocabulary of 700 and these added tokens, from id 700 on.
Tokenizer tokenizer_with(const std::vector<std::string>& added) {
  std::string json = io::read_file(test::fixture("trained.json"));
  const std::string list = "\"added_tokens\":[";
  std::string more;
  int id = 700;
  for (const std::string& text : added) {
    more += fmt::format("{{\"id\":{},\"content\":\"{}\"}},", id++, text);
  }
  json.insert(json.find(list) + list.size(), more);
  return Tokenizer::from_files({{"tokenizer.json", json}});
}

class DeckRules : public ::testing::Test {
 protected:
  Corpora corpora_of(const std::vector<std::string>& texts, const Tokenizer& tokenizer,
                     bool has_sentences) {
    CorpusOptions options;
    if (has_sentences) options.sentences = Language::english;
    const std::string name = fmt::format("c{}.h5", made_++);
    test::make_corpus(scratch_, name, texts, tokenizer, options);
    return {std::make_shared<const Corpus>(scratch_ / name)};
  }
  Corpora corpora(const Tokenizer& tokenizer, bool has_sentences) {
    return corpora_of({io::read_file(test::fixture("sample.txt")), "One. Two.", "Three."},
                      tokenizer, has_sentences);
  }
  Corpora wordpiece(bool has_sentences) {
    return corpora(Tokenizer::load({test::fixture("uncased")}), has_sentences);
  }
  static config::Deck deck_of(config::ModelKind kind) {
    config::Deck deck;
    deck.model.kind = kind;
    deck.model.sequence = 64;
    deck.model.max_predictions = 10;
    deck.model.decoder_sequence = 16;
    deck.data.pairs = config::Pairs::order;
    deck.data.seed = 5;
    deck.data.train = {{"c.h5", 1.0}};
    return deck;
  }
  static std::string error_of(const config::Deck& deck, const Corpora& corpora) {
    return test::message_of<InputError>([&] { rules_of(deck, corpora); });
  }
  test::Scratch scratch_;
  int made_ = 0;
};

TEST_F(DeckRules, OfGpt) {
  config::Deck deck = deck_of(config::ModelKind::gpt);
  deck.data.mask_eod_loss = true;
  const SampleRules rules = rules_of(deck, wordpiece(false));
  EXPECT_EQ(rules.windows.tokens, 65);
  EXPECT_EQ(rules.seed, 5u);
  EXPECT_TRUE(std::get<NextTokenRules>(rules.kind).mask_end_of_document);
}

TEST_F(DeckRules, OfBert) {
  config::Deck deck = deck_of(config::ModelKind::bert);
  deck.data.max_ngrams = 3;
  deck.data.short_seq_prob = 0.1;
  const Corpora corpora = wordpiece(true);
  const SampleRules rules = rules_of(deck, corpora);
  const auto& masked = std::get<MaskedRules>(rules.kind);
  EXPECT_EQ(masked.sequence, 64);
  EXPECT_EQ(masked.predictions, 10);
  EXPECT_EQ(masked.max_ngrams, 3);
  EXPECT_EQ(masked.pairs, config::Pairs::order);
  EXPECT_EQ(masked.short_seq_prob, 0.1);
  EXPECT_EQ(masked.vocabulary->mask, 4);
  EXPECT_EQ(rules.windows.tokens, 61);
  EXPECT_EQ(rules.windows_in(*corpora[0]).tokens, 61);
  // Of documents that are shorter than a sample on average, in each corpus its own.
  const Corpora brief = corpora_of({"One. Two.", "Three."},
                                   Tokenizer::load({test::fixture("uncased")}), true);
  deck.model.sequence = 4096;
  const SampleRules longer = rules_of(deck, Corpora{corpora[0], brief[0]});
  EXPECT_EQ(longer.windows.tokens, 4093);
  EXPECT_EQ(longer.windows_in(*corpora[0]).tokens, (corpora[0]->token_count() + 2) / 3);
  EXPECT_EQ(longer.windows_in(*brief[0]).tokens, 4);  // 4 tokens with an end, and 3
  EXPECT_EQ(longer.windows_in(*brief[0]).stride, 4);
}

TEST_F(DeckRules, WhatBertLacks) {
  config::Deck deck = deck_of(config::ModelKind::bert);
  const Corpora plain = wordpiece(false);
  EXPECT_THAT(
      error_of(deck, plain),
      HasSubstr(
          "c0.h5' has no sentences, and data.pairs: order makes pairs of "
          "segments of them: make it again with `trireme tokenize "
          "--sentences LANGUAGE` (a model that is trained with data.pairs: none and "
          "model.binary_head: false needs none)"));
  EXPECT_THAT(
      error_of(deck, corpora(tokenizer_with({"[CLS]", "[PAD]"}), true)),
      HasSubstr("c1.h5': its tokenizer (byte-level BPE) has no [SEP], no [MASK]"));
  deck.data.pairs = config::Pairs::none;
  EXPECT_NO_THROW(rules_of(deck, plain));
  deck.model.sequence = 2;
  EXPECT_THAT(error_of(deck, plain), HasSubstr("model.sequence is 2: [CLS] token [SEP]"));
}

// A validation corpus is to have them, too.
TEST_F(DeckRules, ValidationNeedsSentences) {
  config::Deck deck = deck_of(config::ModelKind::bert);
  const Corpora train = wordpiece(true), held_out = wordpiece(false);
  deck.data.validation = {{"book", held_out[0]->path().string()}};
  EXPECT_THAT(test::message_of<InputError>([&] { make_datasets(deck, train); }),
              HasSubstr("c1.h5' has no sentences"));
  deck.data.validation = {{"book", train[0]->path().string()}};
  const Datasets sets = make_datasets(deck, train);
  EXPECT_TRUE(
      std::holds_alternative<MaskedRules>(sets.validation.at(0).samples->rules().kind));
  EXPECT_NO_THROW(make_sample_maker(*sets.train));
}

std::vector<std::string> t5_tokens(int sentinels) {
  std::vector<std::string> tokens = {"<pad>"};
  for (int i = sentinels - 1; i >= 0; --i)
    tokens.push_back(fmt::format("<extra_id_{}>", i));
  return tokens;
}

TEST_F(DeckRules, OfT5) {
  config::Deck deck = deck_of(config::ModelKind::t5);
  deck.data.mean_noise_span_length = 2.5;
  deck.data.pack = true;
  const Corpora corpora = this->corpora(tokenizer_with(t5_tokens(20)), false);
  const SampleRules rules = rules_of(deck, corpora);
  const auto& spans = std::get<SpanRules>(rules.kind);
  EXPECT_EQ(spans.source, 64);
  EXPECT_EQ(spans.target, 16);
  EXPECT_EQ(spans.mean_length, 2.5);
  EXPECT_TRUE(spans.pack);
  EXPECT_EQ(spans.padding, 700);
  EXPECT_EQ(spans.first_sentinel, 720);
  EXPECT_EQ(spans.sentinels, 20);
  EXPECT_EQ(static_cast<TokenId>(spans.end), corpora[0]->end_of_document());
}

// Ids that a damaged file's tokenizer has beyond the corpus' own.
TEST_F(DeckRules, TokenizerLargerThanTheVocabulary) {
  const auto error_with = [&](config::ModelKind kind, const Corpora& whole) {
    const std::filesystem::path file = whole[0]->path();
    test::make_attribute(file, "vocabulary_size", whole[0]->vocabulary_size() - 1);
    return error_of(deck_of(kind), {std::make_shared<const Corpus>(file)});
  };
  const char* const damage = "and it one of";
  EXPECT_THAT(error_with(config::ModelKind::bert, wordpiece(true)), HasSubstr(damage));
  EXPECT_THAT(
      error_with(config::ModelKind::t5, corpora(tokenizer_with(t5_tokens(20)), false)),
      HasSubstr("has a vocabulary of 721, and it one of 720: the file is damaged"));
}

TEST_F(DeckRules, WhatT5Lacks) {
  config::Deck deck = deck_of(config::ModelKind::t5);
  const auto error_with = [&](const std::vector<std::string>& added) {
    return error_of(deck, corpora(tokenizer_with(added), false));
  };
  EXPECT_THAT(error_with({"<pad>"}), HasSubstr("has no sentinels, which the samples of a "
                                               "t5 model are made with"));
  EXPECT_THAT(error_with({"<extra_id_0>"}), HasSubstr("lacks a token for padding"));
  EXPECT_THAT(error_with({"<pad>", "<extra_id_0>", "<extra_id_1>"}),
              HasSubstr("<extra_id_1> has the id 702, and <extra_id_0> 701: those of "
                        "sentinels go down by one"));
  EXPECT_THAT(
      error_with(t5_tokens(2)),
      HasSubstr("a source of 64 (model.sequence) has 3 spans, and the tokenizer 2 "
                "sentinels"));
}

// --- what counts in a part

// What there is in a part, token by token.
struct InPart {
  std::set<index_t> texts;  // documents with text
  bool has_pair = false;    // a sentence behind another one of its document
  bool has_two = false;     // a token of text behind another one
};

InPart seen_in(const Corpus& corpus, const TokenRange& part) {
  InPart seen;
  index_t before = -1;  // the document of a text's token before
  for (index_t at = part.begin; at < part.end; ++at) {
    const index_t document = corpus.document_of(at);
    const bool is_text = at + 1 < corpus.document_begin(document + 1);
    const index_t sentence =
        corpus.has_sentences() ? corpus.first_sentence_from(at) : index_t{0};
    const bool begins = corpus.has_sentences() && sentence < corpus.sentence_count() &&
                        corpus.sentence_begin(sentence) == at;
    if (is_text && before == document) {
      seen.has_two = true;
      seen.has_pair = seen.has_pair || begins;
    }
    if (is_text) seen.texts.insert(document);
    before = is_text ? document : -1;
  }
  return seen;
}

// Calls each(part, seen) for all parts of the corpus but itself.
template <class Each>
void for_each_part(const Corpus& corpus, const Each& each) {
  const index_t tokens = corpus.token_count();
  for (index_t begin = 0; begin < tokens; ++begin) {
    for (index_t end = begin + 1; end <= tokens; ++end) {
      if (end - begin == tokens) continue;
      const TokenRange part{begin, end};
      SCOPED_TRACE(fmt::format("[{}, {})", begin, end));
      each(part, seen_in(corpus, part));
    }
  }
}

bool counts_in(const config::Deck& deck, const Corpus& corpus, const TokenRange& part) {
  try {
    require_counted(deck, corpus, part, "train");
    require_pairs(deck, corpus, part, "train");
  } catch (const InputError&) {
    return false;
  }
  return true;
}

// Documents without text are among them, and of one sentence, by which a part with as
// many sentences as documents may have a pair or none.
TEST_F(DeckRules, EachPartNeedsWhatIsPaired) {
  const Tokenizer words = Tokenizer::load({test::fixture("uncased")});
  const Corpora corpora = corpora_of(
      {" ", "One.", " ", "One. Two.", "Three.", "One. Two. Three.", " "}, words, true);
  const Corpus& corpus = *corpora[0];
  ASSERT_EQ(corpus.document_count(), 7);
  ASSERT_EQ(corpus.sentence_count(), 7);
  config::Deck order = deck_of(config::ModelKind::bert), next = order, none = order;
  next.data.pairs = config::Pairs::next;
  none.data.pairs = config::Pairs::none;
  index_t pairs = 0, of_one = 0, without = 0;
  for_each_part(corpus, [&](const TokenRange& part, const InPart& seen) {
    EXPECT_EQ(counts_in(order, corpus, part), seen.has_pair);
    EXPECT_EQ(counts_in(next, corpus, part), seen.has_pair && seen.texts.size() > 1);
    EXPECT_EQ(counts_in(none, corpus, part), !seen.texts.empty());
    // What is asked of validation, too, has nothing to do with pairs.
    const std::string said = test::message_of<InputError>(
        [&] { require_counted(next, corpus, part, "validation"); });
    EXPECT_EQ(said == "(nothing thrown)", !seen.texts.empty());
    ++(!seen.has_pair ? without : seen.texts.size() > 1 ? pairs : of_one);
  });
  EXPECT_GT(std::min({pairs, of_one, without}), 10);
}

TEST_F(DeckRules, EachPartNeedsTextThatCounts) {
  const Tokenizer words = Tokenizer::load({test::fixture("uncased")});
  const Tokenizer spans = tokenizer_with(t5_tokens(20));
  const std::vector<std::string> texts = {" ", "one", " ", "a", "one two three",
                                          " ", "b"};
  config::Deck gpt = deck_of(config::ModelKind::gpt), masked = gpt;
  masked.data.mask_eod_loss = true;
  const Corpora worded = corpora_of(texts, words, false);
  const Corpus& of_words = *worded[0];
  index_t without = 0;
  for_each_part(of_words, [&](const TokenRange& part, const InPart& seen) {
    EXPECT_TRUE(counts_in(gpt, of_words, part));
    EXPECT_EQ(counts_in(masked, of_words, part), !seen.texts.empty());
    without += seen.texts.empty() ? 1 : 0;
  });
  EXPECT_GT(without, 3);
  config::Deck packed = deck_of(config::ModelKind::t5), t5 = packed;
  packed.data.pack = true;
  t5.data.pack = false;
  const Corpora spanned = corpora_of(texts, spans, false);
  const Corpus& of_spans = *spanned[0];
  without = 0;
  for_each_part(of_spans, [&](const TokenRange& part, const InPart& seen) {
    EXPECT_TRUE(counts_in(packed, of_spans, part));
    EXPECT_EQ(counts_in(t5, of_spans, part), seen.has_two);
    without += seen.has_two ? 0 : 1;
  });
  EXPECT_GT(without, 3);
}

TEST_F(DeckRules, WhatAPartLacksIsSaid) {
  const Tokenizer words = Tokenizer::load({test::fixture("uncased")});
  const Corpora corpora = corpora_of({"One. Two.", " ", "Three."}, words, true);
  const Corpus& corpus = *corpora[0];
  config::Deck deck = deck_of(config::ModelKind::bert);
  const auto error_in = [&](const TokenRange& part) {
    return test::message_of<InputError>([&] {
      require_counted(deck, corpus, part, "validation");
      require_pairs(deck, corpus, part, "validation");
    });
  };
  const index_t tokens = corpus.token_count();
  EXPECT_THAT(
      error_in({6, tokens}),
      testing::AllOf(
          HasSubstr("'validation' of corpus '"),
          HasSubstr(
              "c0.h5' has no document of two sentences, and data.pairs: order makes "
              "pairs of a document's: take another share of it (data.split), name "
              "a corpus for validation (data.validation), or make the corpus again "
              "with `trireme tokenize --documents blank-line`")));
  EXPECT_THAT(error_in({5, 6}), HasSubstr("has no document with a token of text"));
  deck.data.pairs = config::Pairs::next;
  EXPECT_THAT(
      error_in({0, 6}),
      testing::AllOf(HasSubstr("'validation' of corpus '"),
                     HasSubstr("has one document with text, and data.pairs: next"),
                     HasSubstr("data.split"), HasSubstr("data.validation"),
                     HasSubstr("data.pairs: order")));
  // No other share of a whole corpus has more; documents without text give no segment.
  const Corpora alone = corpora_of({"One. Two.", " "}, words, true);
  EXPECT_THAT(error_of(deck, alone),
              testing::AllOf(testing::StartsWith("corpus '"),
                             HasSubstr("c1.h5' has one document with text"),
                             testing::Not(HasSubstr("data.split"))));
}

// --- blends

// Of each corpus its windows in the order of the run: epoch, number, and tokens.
using Windows3 = std::vector<std::vector<std::array<index_t, 4>>>;

Windows3 windows_of_run(config::Deck deck, const Corpora& corpora, index_t positions) {
  constexpr double kWeights[] = {3.0, 1.0, 2.0};
  deck.data.train.clear();
  for (std::size_t k = 0; k < corpora.size(); ++k) {
    deck.data.train.push_back({corpora[k]->path().string(), kWeights[k]});
  }
  const auto set = make_training_set(deck, corpora);
  Windows3 windows(corpora.size());
  for (index_t p = 0; p < positions; ++p) {
    const Dataset::Place place = set->place(p);
    windows[static_cast<std::size_t>(place.sample.corpus)].push_back(
        {place.sample.epoch, place.sample.window, place.tokens.begin, place.tokens.end});
  }
  return windows;
}

// Whether one more corpus at the end of the list leaves the order of samples within the
// others as it is, for some epochs of each.
bool keeps_order(const config::Deck& deck, Corpora corpora, const Corpora& more) {
  const Windows3 before = windows_of_run(deck, corpora, 4000);
  corpora.push_back(more.front());
  const Windows3 after = windows_of_run(deck, corpora, 6000);
  bool is_same = true;
  for (std::size_t k = 0; k < before.size(); ++k) {
    const auto common = std::min(before[k].size(), after[k].size());
    EXPECT_GE(common, 997u);
    EXPECT_GT(before[k][common - 1][0], 1);  // in the third epoch at least
    is_same =
        is_same && std::equal(before[k].begin(),
                              before[k].begin() + static_cast<std::ptrdiff_t>(common),
                              after[k].begin());
  }
  return is_same;
}

TEST_F(DeckRules, OneMoreCorpusKeepsTheOrderOfTheOthers) {
  const std::vector<std::string> short_ones(200, "One. Two.");
  const Tokenizer words = Tokenizer::load({test::fixture("uncased")});
  const Tokenizer spans = tokenizer_with(t5_tokens(20));
  const Corpora two = {wordpiece(true)[0], wordpiece(true)[0]};
  const Corpora more = corpora_of(short_ones, words, true);
  EXPECT_TRUE(keeps_order(deck_of(config::ModelKind::gpt), two, more));
  const Corpora two_of_spans = {corpora(spans, false)[0], corpora(spans, false)[0]};
  const Corpora more_of_spans = corpora_of(short_ones, spans, false);
  config::Deck bert = deck_of(config::ModelKind::bert);
  bert.data.pairs = config::Pairs::none;
  for (const bool pack : {true, false}) {
    config::Deck t5 = deck_of(config::ModelKind::t5);
    t5.data.pack = pack;
    EXPECT_TRUE(keeps_order(t5, two_of_spans, more_of_spans)) << pack;
    // Of documents that are shorter than a sample on average.
    bert.data.pack = pack;
    EXPECT_TRUE(keeps_order(bert, two, more));
  }
  bert.data.pack = false;
  for (const config::Pairs pairs : {config::Pairs::order, config::Pairs::next}) {
    bert.data.pairs = pairs;
    EXPECT_TRUE(keeps_order(bert, two, more));
  }
}

// What is told of a blend counts each corpus by its own windows.
TEST_F(DeckRules, ABlendOfUnlikeWindowsIsCounted) {
  config::Deck deck = deck_of(config::ModelKind::bert);
  deck.model.sequence = 4096;
  const Corpora two = {wordpiece(true)[0],
                       corpora_of(std::vector<std::string>(200, "One. Two."),
                                  Tokenizer::load({test::fixture("uncased")}), true)[0]};
  deck.data.train = {{two[0]->path().string(), 1.0}, {two[1]->path().string(), 1.0}};
  const auto set = make_training_set(deck, two);
  const index_t length = set->rules().windows_in(*two[0]).tokens;
  const index_t first = set->parts()[0].range.size() / length,
                second = set->parts()[1].range.size() / 5;
  ASSERT_GT(length, 100);
  ASSERT_GE(first, 2);
  EXPECT_EQ(set->windows(), first + second);
  EXPECT_EQ(set->tokens(), first * length + second * 5);
  EXPECT_EQ(set->tokens_of(100), 50 * length + 50 * 5);
  EXPECT_THAT(set->epochs(100), testing::ElementsAre(50.0 / static_cast<double>(first),
                                                     50.0 / static_cast<double>(second)));
}

}  // namespace
}  // namespace trireme::data
