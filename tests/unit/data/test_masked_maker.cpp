// BERT's samples: what they are of, how much is masked and by what, packed ones, and what
// is refused.
#include "data/masked_maker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "data/batch.hpp"
#include "io/hdf5.hpp"
#include "support/allocation_counter.hpp"
#include "unit/data/binomial.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using config::Pairs;
using ::testing::HasSubstr;
using TokenIds = std::vector<std::int32_t>;

std::shared_ptr<const MaskedVocabulary> uncased_vocabulary() {
  static const Tokenizer tokenizer = Tokenizer::load({test::fixture("uncased")});
  return std::make_shared<const MaskedVocabulary>(masked_vocabulary(
      tokenizer, tokenizer.vocabulary_size(), tokenizer.end_of_document()));
}

MaskedRules masked_rules_for(index_t sequence, Pairs pairs) {
  return {.sequence = sequence,
          .predictions = std::max<index_t>(1, sequence * 3 / 20),
          .pairs = pairs,
          .window = 40,
          .vocabulary = uncased_vocabulary()};
}

MaskedRules packed_rules(index_t sequence) {
  MaskedRules rules = masked_rules_for(sequence, Pairs::none);
  rules.pack = true;
  rules.reset_position_ids = true;
  return rules;
}

BatchSpec masked_spec(const MaskedRules& rules) {
  return {
      .streams = {{"text", rules.sequence}, {"predictions", rules.predictions, false}},
      .fields = {{.name = "tokens"},
                 {.name = "token_types", .holds = Holds::classes, .below = 2},
                 {.name = "positions", .holds = Holds::places},
                 {.name = "lengths", .per = Per::sample, .holds = Holds::lengths},
                 {.name = "document_begins", .holds = Holds::places},
                 {.name = "document_ends", .holds = Holds::places},
                 {.name = "masked_positions", .stream = 1, .holds = Holds::rows},
                 {.name = "masked_labels", .stream = 1},
                 {.name = "masked_weights", .stream = 1, .holds = Holds::weights},
                 {.name = "pair_labels",
                  .per = Per::sample,
                  .holds = Holds::classes,
                  .below = 2},
                 {.name = "pair_weights", .per = Per::sample, .holds = Holds::weights}}};
}

// A sample as a reader of its fields sees it.
struct SeenSample {
  TokenIds ids;  // with the labels in place of what masks them; without padding
  TokenIds shown, types, positions, begins, ends, masked;
  std::int32_t pair_label = 0;
  bool has_pair = false;
};

class MaskedMakerData : public ::testing::Test {
 protected:
  MaskedMakerData() {
    const std::string sample = io::read_file(test::fixture("sample.txt"));
    std::vector<std::string> documents = {"One alone.", " ", "Of two. Sentences."};
    for (std::size_t i = 0; i < 60; ++i) {
      documents.push_back(sample.substr(i * 90, 1 + i * i * 2 % 1500));
    }
    CorpusOptions options;
    options.sentences = Language::english;
    test::make_corpus(scratch_, "c.h5", documents,
                      Tokenizer::load({test::fixture("uncased")}), options);
    corpus_ = std::make_shared<const Corpus>(scratch_ / "c.h5");
  }
  Dataset dataset(const MaskedRules& rules, Tail tail = Tail::left_out) const {
    return {{{corpus_, {0, corpus_->token_count()}, 1.0}},
            sample_rules(rules, 77),
            Order::shuffled,
            "train",
            tail};
  }
  void append(TokenRange range, TokenIds& ids) const {
    for (index_t at = range.begin; at < range.end; ++at) {
      ids.push_back(static_cast<std::int32_t>(corpus_->token(at)));
    }
  }
  test::Scratch scratch_;
  std::shared_ptr<const Corpus> corpus_;
};

// Makes the samples of a data set, one by one, and checks what holds for each.
class MaskedReader {
 public:
  MaskedReader(const Dataset& data, const MaskedRules& rules)
      : rules_(rules), maker_(make_sample_maker(data)), batch_(masked_spec(rules), 1) {}

  SeenSample at(index_t position) {
    batch_.fill(*maker_, position, 1);
    SeenSample sample;
    sample.shown = of_text("tokens", rules_.vocabulary->padding);
    sample.types = of_text("token_types", 0);
    sample.positions = column("positions");
    const auto length = static_cast<std::int32_t>(sample.shown.size());
    sample.begins = of_text("document_begins", length);
    sample.ends = of_text("document_ends", length);
    sample.ids = sample.shown;
    sample.pair_label = batch_.field<std::int32_t>("pair_labels")(0, 0);
    const float weight = batch_.field<float>("pair_weights")(0, 0);
    EXPECT_TRUE(weight == 0.0f || weight == 1.0f);
    sample.has_pair = weight == 1.0f;
    read_masked(sample);
    return sample;
  }

  // Tokens that are to be masked of a sample of this length.
  index_t wanted(index_t length) const {
    const double part = std::nearbyint(rules_.mask_prob * static_cast<double>(length));
    return std::min(rules_.predictions, std::max<index_t>(1, static_cast<index_t>(part)));
  }

 private:
  TokenIds column(const char* name) {
    const auto field = batch_.field<std::int32_t>(name);
    TokenIds values;
    for (std::size_t i = 0; i < field.extent(0); ++i) values.push_back(field(i, 0));
    return values;
  }
  // Behind the sample's length is nothing else than padding.
  TokenIds of_text(const char* name, std::int32_t padding) {
    TokenIds values = column(name);
    const auto length =
        static_cast<std::size_t>(batch_.field<std::int32_t>("lengths")(0, 0));
    EXPECT_EQ(std::ranges::count(std::span(values).subspan(length), padding),
              std::ssize(values) - static_cast<index_t>(length))
        << name;
    values.resize(length);
    return values;
  }
  void read_masked(SeenSample& sample) {
    const TokenIds positions = column("masked_positions");
    const TokenIds labels = column("masked_labels");
    const auto weights = batch_.field<float>("masked_weights");
    const auto count = std::ranges::find(positions, -1) - positions.begin();
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const bool is_real = std::cmp_less(i, count);
      EXPECT_EQ(weights(i, 0), is_real ? 1.0f : 0.0f);
      if (!is_real) {
        EXPECT_EQ(positions[i], -1);
        EXPECT_EQ(labels[i], rules_.vocabulary->padding);
        continue;
      }
      EXPECT_TRUE(i == 0 || positions[i - 1] < positions[i]);
      const auto label = static_cast<std::size_t>(labels[i]);
      EXPECT_EQ(rules_.vocabulary->is_structural.at(label), 0);
      sample.masked.push_back(positions[i]);
      sample.ids.at(static_cast<std::size_t>(positions[i])) = labels[i];
    }
    EXPECT_LE(count, wanted(std::ssize(sample.ids)));
  }

  MaskedRules rules_;
  std::unique_ptr<SampleMaker> maker_;
  Batch batch_;
};

// [CLS] first [SEP] second [SEP], of the segments that were chosen.
TEST_F(MaskedMakerData, SamplesAreOfTheirSegments) {
  const auto vocabulary = uncased_vocabulary();
  for (const Pairs pairs : {Pairs::none, Pairs::order, Pairs::next}) {
    for (const index_t sequence : {5, 31, 128}) {
      MaskedRules rules = masked_rules_for(sequence, pairs);
      rules.short_seq_prob = 0.2;
      rules.max_ngrams = 3;
      const Dataset data = dataset(rules);
      const SegmentChooser chooser(data, rules);
      MaskedReader reader(data, rules);
      for (index_t p = 0; p < 5 * data.windows(); ++p) {
        const Segments segments = chooser.choose(data.place(p));
        const SeenSample sample = reader.at(p);
        TokenIds expected = {vocabulary->classify};
        append(segments.first, expected);
        expected.push_back(vocabulary->separate);
        TokenIds types(expected.size(), 0);
        if (segments.has_pair()) {
          append(segments.second, expected);
          expected.push_back(vocabulary->separate);
          types.resize(expected.size(), 1);
        }
        ASSERT_EQ(sample.ids, expected);
        ASSERT_EQ(sample.types, types);
        ASSERT_EQ(sample.has_pair, segments.has_pair());
        ASSERT_EQ(sample.pair_label, segments.is_other ? 1 : 0);
        for (std::size_t i = 0; i < sample.positions.size(); ++i) {
          ASSERT_EQ(sample.positions[i], static_cast<std::int32_t>(i));
        }
        ASSERT_EQ(std::ranges::count(sample.begins, 0), std::ssize(sample.ids));
        ASSERT_EQ(std::ranges::count(sample.ends, std::ssize(sample.ids)),
                  std::ssize(sample.ids));
      }
    }
  }
}

// Over 10^6 tokens: how many are masked, and by what; words are masked whole.
TEST_F(MaskedMakerData, MasksAsMuchAsItShould) {
  const auto vocabulary = uncased_vocabulary();
  MaskedRules rules = masked_rules_for(128, Pairs::order);
  const Dataset data = dataset(rules);
  MaskedReader reader(data, rules);
  index_t tokens = 0, masked = 0, wanted = 0, masks = 0, same = 0, ordinary = 0;
  for (index_t p = 0; tokens < 1'000'000; ++p) {
    const SeenSample sample = reader.at(p);
    tokens += std::ssize(sample.ids);
    wanted += reader.wanted(std::ssize(sample.ids));
    std::vector<bool> is_masked(sample.ids.size() + 1);
    for (const std::int32_t at : sample.masked) {
      const auto i = static_cast<std::size_t>(at);
      is_masked[i] = true;
      ++masked;
      masks += sample.shown[i] == vocabulary->mask ? 1 : 0;
      same += sample.shown[i] == sample.ids[i] ? 1 : 0;
      ordinary +=
          std::ranges::binary_search(vocabulary->ordinary, sample.shown[i]) ? 1 : 0;
    }
    for (std::size_t i = 0; i < sample.ids.size(); ++i) {
      ASSERT_TRUE(is_masked[i] || sample.shown[i] == sample.ids[i]);
      const auto next = static_cast<std::size_t>(
          i + 1 < sample.ids.size() ? sample.ids[i + 1] : vocabulary->separate);
      const bool goes_on = vocabulary->begins_word[next] == 0 &&
                           sample.ids[i] != vocabulary->classify &&
                           sample.ids[i] != vocabulary->separate;
      ASSERT_TRUE(!goes_on || is_masked[i] == is_masked[i + 1]) << p << " " << i;
    }
  }
  // A word that is longer than what is left to mask is passed over for another one.
  EXPECT_LE(masked, wanted);
  EXPECT_GT(static_cast<double>(masked), 0.999 * static_cast<double>(wanted));
  // Each sample's part is rounded, a full one's from 19.2 to 19: of all tokens it is
  // still within what a coin for each would give.
  test::expect_binomial(masked, tokens, rules.mask_prob, "masked");
  const double one = 1.0 / static_cast<double>(vocabulary->ordinary.size());
  test::expect_binomial(masks, masked, 0.8, "[MASK]");
  test::expect_binomial(same, masked, 0.1 + 0.1 * one, "the token itself");
  EXPECT_GT(ordinary, masked / 6);
}

// Windows of the corpus with [SEP] where documents end; bounds and positions of each.
TEST_F(MaskedMakerData, PackedSamplesAreWindows) {
  const auto vocabulary = uncased_vocabulary();
  for (const index_t sequence : {3, 4, 33, 128}) {
    const MaskedRules rules = packed_rules(sequence);
    const Dataset data = dataset(rules, Tail::counted);
    MaskedReader reader(data, rules);
    for (index_t p = 0; p < 2 * data.windows(); ++p) {
      const SeenSample sample = reader.at(p);
      TokenIds expected = {vocabulary->classify};
      append(data.place(p).tokens, expected);
      expected.push_back(vocabulary->separate);
      ASSERT_EQ(sample.ids, expected);
      ASSERT_EQ(std::ranges::count(sample.types, 0), std::ssize(expected));
      ASSERT_FALSE(sample.has_pair);
      const auto length = static_cast<std::int32_t>(expected.size());
      std::int32_t begin = 0;
      for (std::int32_t i = 0; i < length; ++i) {
        const auto at = static_cast<std::size_t>(i);
        ASSERT_EQ(sample.begins[at], begin);
        ASSERT_EQ(sample.positions[at], i - begin);
        const bool is_last = expected[at] == vocabulary->separate && i + 2 < length;
        ASSERT_EQ(sample.ends[at] == i + 1, is_last || i + 1 == length);
        if (is_last) begin = i + 1;
      }
    }
  }
}

// Without resets positions go on through the window.
TEST_F(MaskedMakerData, PositionsGoOnWithoutResets) {
  MaskedRules rules = packed_rules(64);
  rules.reset_position_ids = false;
  const Dataset data = dataset(rules);
  MaskedReader reader(data, rules);
  for (index_t p = 0; p < data.windows(); ++p) {
    const SeenSample sample = reader.at(p);
    for (std::size_t i = 0; i < sample.positions.size(); ++i) {
      ASSERT_EQ(sample.positions[i], static_cast<std::int32_t>(i));
    }
  }
}

TEST_F(MaskedMakerData, AllocatesNothingAfterTheFirstSample) {
  std::vector<MaskedRules> all = {packed_rules(128)};
  for (const Pairs pairs : {Pairs::none, Pairs::order, Pairs::next}) {
    all.push_back(masked_rules_for(128, pairs));
    all.back().max_ngrams = 3;
    all.back().short_seq_prob = 0.1;
  }
  for (const MaskedRules& rules : all) {
    const Dataset data = dataset(rules);
    const auto maker = make_sample_maker(data);
    Batch batch(masked_spec(rules), 2);
    batch.fill(*maker, 0, 2);
    test::AllocationCounter counter;
    for (index_t p = 1; p < 500; ++p) batch.fill(*maker, p, 2);
    counter.stop();
    EXPECT_EQ(counter.total(), 0) << counter.report();
  }
}

// Opening does not look at all sentences.
TEST_F(MaskedMakerData, DamagedSentencesAreFound) {
  const std::uint64_t place =
      io::H5File::open(corpus_->path()).dataset("sentences").offset().value();
  const std::vector<std::uint64_t> zeros(
      static_cast<std::size_t>(corpus_->sentence_count() - 2), 0);
  io::FileWriter writer(corpus_->path(), io::FileWriter::Mode::existing);
  writer.write_at(place + sizeof(zeros[0]), zeros.data(),
                  zeros.size() * sizeof(zeros[0]));
  writer.close();
  corpus_ = std::make_shared<const Corpus>(scratch_ / "c.h5");
  const MaskedRules rules = masked_rules_for(128, Pairs::order);
  const Dataset data = dataset(rules);
  MaskedReader reader(data, rules);
  EXPECT_THAT(test::message_of<InputError>([&] {
                for (index_t p = 0; p < data.windows(); ++p) reader.at(p);
              }),
              HasSubstr("/sentences does not ascend, or leaves out"));
}

TEST(MaskedMakerRules, AreRefusedWhereTheyDoNotFit) {
  const auto message = [](auto change) {
    MaskedRules rules = masked_rules_for(128, Pairs::order);
    change(rules);
    return test::message_of<InputError>([&] { sample_rules(rules, 1); });
  };
  EXPECT_EQ(sample_rules(masked_rules_for(128, Pairs::order), 1).windows.tokens, 40);
  EXPECT_EQ(sample_rules(packed_rules(128), 1).windows.stride, 126);
  EXPECT_THAT(message([](MaskedRules& rules) { rules.sequence = 4; }),
              HasSubstr("model.sequence is 4: [CLS] token [SEP] token [SEP] takes 5"));
  EXPECT_THAT(message([](MaskedRules& rules) { rules.predictions = 126; }),
              HasSubstr("model.max_predictions is 126: expected 1 to 125"));
  EXPECT_THAT(message([](MaskedRules& rules) { rules.mask_prob = 0.0; }),
              HasSubstr("data.mask_prob is 0"));
  EXPECT_THAT(message([](MaskedRules& rules) { rules.short_seq_prob = std::nan(""); }),
              HasSubstr("data.short_seq_prob is nan"));
  EXPECT_THAT(message([](MaskedRules& rules) { rules.max_ngrams = 17; }),
              HasSubstr("data.max_ngrams is 17: expected 1 to 16"));
  EXPECT_THAT(message([](MaskedRules& rules) { rules.pack = true; }),
              HasSubstr("set data.pairs: none and model.binary_head: false"));
}

TEST(MaskedMakerVocabulary, HasWordsAndWhatIsNoText) {
  const Tokenizer tokenizer = Tokenizer::load({test::fixture("uncased")});
  const auto vocabulary = uncased_vocabulary();
  for (const char* text : {"[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"}) {
    const TokenId id = tokenizer.encode(text).at(0);
    EXPECT_EQ(vocabulary->is_structural[id], text == std::string("[UNK]") ? 0 : 1);
    EXPECT_FALSE(
        std::ranges::binary_search(vocabulary->ordinary, static_cast<std::int32_t>(id)));
  }
  EXPECT_EQ(std::ssize(vocabulary->ordinary) + 5, tokenizer.vocabulary_size());
  index_t pieces = 0;
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    pieces += vocabulary->begins_word[id] == 0 ? 1 : 0;
    EXPECT_EQ(vocabulary->begins_word[id] != 0, tokenizer.model().begins_word(id));
  }
  EXPECT_GT(pieces, 100);
}

// Byte-level BPE with BERT's tokens: words begin with a space.
TEST(MaskedMakerVocabulary, ByteLevelBpe) {
  std::string json = io::read_file(test::fixture("trained.json"));
  const std::string list = "\"added_tokens\":[";
  json.insert(json.find(list) + list.size(),
              "{\"id\":700,\"content\":\"[CLS]\"},{\"id\":701,\"content\":\"[SEP]\"},"
              "{\"id\":702,\"content\":\"[MASK]\"},{\"id\":703,\"content\":\"[PAD]\"},");
  const Tokenizer tokenizer = Tokenizer::from_files({{"tokenizer.json", json}});
  const MaskedVocabulary vocabulary =
      masked_vocabulary(tokenizer, 704, tokenizer.end_of_document());
  EXPECT_EQ(vocabulary.ordinary.size(), 699u);  // 700 but for <|endoftext|>
  EXPECT_EQ(vocabulary.mask, 702);
  EXPECT_EQ(vocabulary.is_structural[tokenizer.end_of_document()], 1);
  for (const TokenId id : tokenizer.encode(" the beginning")) {
    EXPECT_EQ(vocabulary.begins_word[id] != 0, tokenizer.bytes_of(id)[0] == ' ');
  }
  EXPECT_THAT(
      test::message_of<InputError>(
          [] { masked_vocabulary(test::trained_tokenizer(), 700, 0); }),
      HasSubstr("has no [PAD], no [CLS], no [SEP], no [MASK], which the samples of "
                "a bert model are made with: make the corpus with"));
}

}  // namespace
}  // namespace trireme::data
