// docs/samples.py, which knows nothing of the program, finds the same samples of BERT and
// T5: texts, pairs of segments, masked words and what stands there, hidden spans.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/batch.hpp"
#include "data/dataset.hpp"
#include "data/masked_vocabulary.hpp"
#include "data/sample_maker.hpp"
#include "layouts/documented.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::test {
namespace {

using config::Pairs;
using nlohmann::json;
using Ids = std::vector<std::int32_t>;

constexpr std::uint64_t kSamplesSeed = (std::uint64_t{1} << 41) + 77;

class DocumentedSamples : public ::testing::Test {
 protected:
  // Documents of all lengths, some of one sentence and one without text.
  DocumentedSamples() : tokenizer_(data::Tokenizer::load({fixture("uncased")})) {
    const std::string sample = io::read_file(fixture("sample.txt"));
    std::vector<std::string> documents = {"One alone.", " ", "Of two. Sentences."};
    for (std::size_t i = 0; i < 60; ++i) {
      documents.push_back(sample.substr(i * 90, 1 + i * i * 2 % 1500));
    }
    data::CorpusOptions options;
    options.sentences = data::Language::english;
    make_corpus(scratch_, "with.h5", documents, tokenizer_, options);
    make_corpus(scratch_, "without.h5", documents, tokenizer_);
    make_corpus(scratch_, "empty.h5",
                {" ", sample.substr(0, 700), " ", " ", " ", sample.substr(900, 400), " "},
                tokenizer_, options);
  }

  // Two parts of one corpus, which begin and end within documents.
  struct Case {
    std::shared_ptr<const data::Corpus> corpus;
    std::vector<data::TokenRange> parts;
  };
  Case case_of(const std::string& name) const {
    const auto corpus = std::make_shared<const data::Corpus>(scratch_ / name);
    const index_t tokens = corpus->token_count();
    return {corpus, {{0, tokens / 2 + 3}, {tokens / 3, tokens - 11}}};
  }
  static data::Dataset dataset(const Case& of, const data::SampleRules& rules) {
    return {{{of.corpus, of.parts[0], 3.0}, {of.corpus, of.parts[1], 1.0}},
            rules,
            data::Order::shuffled,
            "train"};
  }
  // A file of what the script is told of the corpus, and more.
  std::string told(const data::Corpus& corpus, json more) const {
    for (index_t i = 0; i < corpus.token_count(); ++i) {
      more["tokens"].push_back(corpus.token(i));
    }
    for (index_t i = 0; i <= corpus.document_count(); ++i) {
      more["documents"].push_back(corpus.document_begin(i));
    }
    more["sentences"] = json::array();
    for (index_t i = 0; i < corpus.sentence_count(); ++i) {
      more["sentences"].push_back(corpus.sentence_begin(i));
    }
    more["end"] = corpus.end_of_document();
    spill(scratch_ / "told.json", more.dump());
    return scratch_ / "told.json";
  }
  // What the script makes of the first samples.
  json samples_of(const std::string& kind, const Case& of, const std::string& its,
                  const std::string& rules, index_t samples) const {
    std::string parts;
    for (const data::TokenRange& part : of.parts) {
      parts += fmt::format("({}, {}),", part.begin, part.end);
    }
    return computed(fmt::format(
        "(lambda its, parts: [samples.{}({}, *place, parts[place[0]], its, {}) for place "
        "in (blend(p, 3.0, 1.0) for p in range({}))])(json.load(open('{}')), [{}])",
        kind, kSamplesSeed, rules, samples, its, parts));
  }
  static Ids column(const data::Batch& batch, const char* name, std::size_t count) {
    const auto field = batch.field<std::int32_t>(name);
    Ids values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(field(i, 0));
    return values;
  }
  static std::size_t length(const data::Batch& batch, const char* name) {
    return static_cast<std::size_t>(batch.field<std::int32_t>(name)(0, 0));
  }

  Scratch scratch_;
  data::Tokenizer tokenizer_;
};

data::MaskedRules masked(index_t sequence, Pairs pairs) {
  return {.sequence = sequence,
          .predictions = sequence / 4,
          .mask_prob = 0.3,
          .short_seq_prob = 0.3,
          .pairs = pairs,
          .window = 40,
          .vocabulary = nullptr};
}

class DocumentedSamplesOfBert : public DocumentedSamples {
 protected:
  void expect_same(const std::string& corpus, data::MaskedRules rules) const {
    SCOPED_TRACE(fmt::format("{}, pairs {}, sequence {}, pack {}, n-grams {}", corpus,
                             static_cast<int>(rules.pairs), rules.sequence, rules.pack,
                             rules.max_ngrams));
    constexpr index_t kSamples = 150;
    const Case of = case_of(corpus);
    rules.vocabulary =
        std::make_shared<const data::MaskedVocabulary>(data::masked_vocabulary(
            tokenizer_, of.corpus->vocabulary_size(), of.corpus->end_of_document()));
    const data::Dataset data = dataset(of, data::sample_rules(rules, kSamplesSeed));
    EXPECT_EQ(
        samples_of(
            "of_bert", of, told(*of.corpus, vocabulary(*rules.vocabulary, rules.window)),
            fmt::format("dict(sequence={}, predictions={}, mask_prob={}, "
                        "short_seq_prob={}, whole_words={}, max_ngrams={}, "
                        "pairs='{}', pack={})",
                        rules.sequence, rules.predictions, rules.mask_prob,
                        rules.short_seq_prob, rules.whole_words ? 1 : 0, rules.max_ngrams,
                        name_of(rules.pairs), rules.pack ? 1 : 0),
            kSamples),
        made(data, rules, kSamples));
  }

 private:
  static json vocabulary(const data::MaskedVocabulary& of, index_t window) {
    json told = {{"cls", of.classify},
                 {"sep", of.separate},
                 {"mask", of.mask},
                 {"ordinary", of.ordinary},
                 {"structural", json::array()},
                 {"going_on", json::array()},
                 {"mean_document", window}};
    for (std::size_t id = 0; id < of.begins_word.size(); ++id) {
      if (of.is_structural[id] != 0) told["structural"].push_back(id);
      if (of.begins_word[id] == 0) told["going_on"].push_back(id);
    }
    return told;
  }
  // By the program: ids before and after they are masked, which, and the pair.
  static json made(const data::Dataset& data, const data::MaskedRules& rules,
                   index_t samples) {
    const auto maker = data::make_sample_maker(data);
    data::Batch batch(
        {.streams = {{"text", rules.sequence}, {"predictions", rules.predictions, false}},
         .fields = {{.name = "tokens"},
                    {.name = "token_types", .holds = Holds::classes, .below = 2},
                    {.name = "lengths", .per = Per::sample, .holds = Holds::lengths},
                    {.name = "masked_positions", .stream = 1, .holds = Holds::rows},
                    {.name = "masked_labels", .stream = 1},
                    {.name = "pair_labels",
                     .per = Per::sample,
                     .holds = Holds::classes}}},
        1);
    json all = json::array();
    for (index_t position = 0; position < samples; ++position) {
      batch.fill(*maker, position, 1);
      const std::size_t text = length(batch, "lengths");
      const Ids shown = column(batch, "tokens", text);
      const Ids types = column(batch, "token_types", text);
      Ids places = column(batch, "masked_positions", extent(rules.predictions));
      places.erase(std::ranges::find(places, -1), places.end());
      const Ids labels = column(batch, "masked_labels", places.size());
      Ids ids = shown;
      for (std::size_t i = 0; i < places.size(); ++i) {
        ids.at(static_cast<std::size_t>(places[i])) = labels[i];
      }
      all.push_back({ids, shown, places, length(batch, "pair_labels") == 1,
                     std::ranges::find(types, 1) - types.begin()});
    }
    return all;
  }
};

TEST_F(DocumentedSamplesOfBert, OfPairs) {
  for (const Pairs pairs : {Pairs::none, Pairs::order, Pairs::next}) {
    for (const index_t sequence : {12, 33, 200}) {
      data::MaskedRules rules = masked(sequence, pairs);
      rules.max_ngrams = sequence == 33 ? 1 : 3;
      rules.whole_words = sequence != 33;
      expect_same("with.h5", rules);
    }
  }
}

// Most that are drawn have no text.
TEST_F(DocumentedSamplesOfBert, OfEmptyDocuments) {
  data::MaskedRules rules = masked(12, Pairs::next);
  rules.window = 2;
  expect_same("empty.h5", rules);
}

TEST_F(DocumentedSamplesOfBert, OfTextWithoutSentences) {
  data::MaskedRules rules = masked(40, Pairs::none);
  expect_same("without.h5", rules);
  rules.short_seq_prob = 0.0;
  rules.pack = true;
  rules.max_ngrams = 16;
  expect_same("without.h5", rules);
}

TEST_F(DocumentedSamples, OfT5) {
  constexpr index_t kSamples = 150;
  constexpr std::int32_t kSentinel = 5000;
  const Case of = case_of("without.h5");
  const std::string its = told(*of.corpus, {{"sentinel", kSentinel}});
  for (const bool pack : {true, false}) {
    for (const index_t source : {3, 48, 130}) {
      SCOPED_TRACE(fmt::format("pack {}, source {}", pack, source));
      const data::SpanRules rules{
          .source = source,
          .target = 3 * source,
          .density = source == 48 ? 0.5 : 0.15,
          .mean_length = source == 48 ? 2.5 : 3.0,
          .pack = pack,
          .end = static_cast<std::int32_t>(of.corpus->end_of_document()),
          .first_sentinel = kSentinel,
          .sentinels = 100};
      const data::Dataset data = dataset(of, data::sample_rules(rules, kSamplesSeed));
      const auto maker = data::make_sample_maker(data);
      data::Batch batch(
          {.streams = {{"source", rules.source}, {"target", rules.target}},
           .fields = {{.name = "source"},
                      {.name = "source_lengths", .per = Per::sample},
                      {.name = "labels", .stream = 1},
                      {.name = "target_lengths", .per = Per::sample, .stream = 1}}},
          1);
      json expected = json::array();
      for (index_t position = 0; position < kSamples; ++position) {
        batch.fill(*maker, position, 1);
        expected.push_back({column(batch, "source", length(batch, "source_lengths")),
                            column(batch, "labels", length(batch, "target_lengths"))});
      }
      EXPECT_EQ(
          samples_of(
              "of_t5", of, its,
              fmt::format("dict(sequence={}, mask_prob={}, mean_length={}, pack={})",
                          rules.source, rules.density, rules.mean_length, pack ? 1 : 0),
              kSamples),
          expected);
    }
  }
}

// As its first lines say: the examples of docs/math/masking.md and span_corruption.md.
TEST(DocumentedSamplesScript, IsCalledAsItSays) {
  EXPECT_EQ(printed({"masked", "1234", "0", "0", "5", "1", "1", "1", "2", "1", "-"},
                    "samples.py"),
            "[4]\n");
  EXPECT_EQ(printed({"noise", "568", "0.15", "3"}, "samples.py"), "(85, 28)\n");
}

}  // namespace
}  // namespace trireme::test
