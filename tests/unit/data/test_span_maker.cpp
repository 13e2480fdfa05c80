// T5's samples: how much is hidden and where, that nothing is lost, and what is refused.
#include "data/span_maker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "config/span_lengths.hpp"
#include "data/batch.hpp"
#include "support/allocation_counter.hpp"
#include "unit/data/binomial.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

constexpr std::int32_t kFirstSentinel = 1999, kPadding = 990, kEnd = 991;

SpanRules rules_for(index_t source, index_t target, bool pack = true) {
  return {.source = source,
          .target = target,
          .pack = pack,
          .padding = kPadding,
          .end = kEnd,
          .first_sentinel = kFirstSentinel,
          .sentinels = 300};
}

BatchSpec spec_for(const SpanRules& rules) {
  return {
      .streams = {{"source", rules.source}, {"target", rules.target}},
      .fields = {{.name = "source"},
                 {.name = "source_lengths", .per = Per::sample, .holds = Holds::lengths},
                 {.name = "target", .stream = 1},
                 {.name = "target_lengths",
                  .per = Per::sample,
                  .stream = 1,
                  .holds = Holds::lengths},
                 {.name = "labels", .stream = 1},
                 {.name = "loss_mask", .stream = 1, .holds = Holds::weights}}};
}

// A sample as a reader of its fields sees it.
struct ReadSample {
  std::vector<std::int32_t> text;
  std::vector<bool> is_hidden;  // of the text's tokens
  std::vector<index_t> spans;   // their lengths
};

// Puts the hidden spans back into the source. Fails where the two do not fit each other.
ReadSample read(const std::vector<std::int32_t>& source,
                const std::vector<std::int32_t>& labels) {
  ReadSample sample;
  auto label = labels.begin();
  std::int32_t sentinel = kFirstSentinel;
  for (const std::int32_t id : source) {
    if (id != sentinel) {
      sample.text.push_back(id);
      sample.is_hidden.push_back(false);
      continue;
    }
    EXPECT_EQ(*label++, sentinel--);
    sample.spans.push_back(0);
    for (; *label != sentinel && *label != kEnd; ++label) {
      sample.text.push_back(*label);
      sample.is_hidden.push_back(true);
      ++sample.spans.back();
    }
  }
  EXPECT_EQ(*label, kEnd);
  EXPECT_EQ(label + 1, labels.end());
  EXPECT_EQ(sample.text.back(), kEnd);  // that of the source
  sample.text.pop_back();
  sample.is_hidden.pop_back();
  return sample;
}

class SpanMakerData : public ::testing::Test {
 protected:
  SpanMakerData() {
    std::vector<std::string> texts;
    const std::string sample = io::read_file(test::fixture("sample.txt"));
    for (std::size_t i = 0; i < 60; ++i) {
      texts.push_back(sample.substr(i * 100, 1 + i * 13 % 300));
    }
    test::make_corpus(scratch_, "c.h5", texts, test::trained_tokenizer());
    corpus_ = std::make_shared<const Corpus>(scratch_ / "c.h5");
  }
  Dataset dataset(const SpanRules& rules, Order order = Order::shuffled,
                  Tail tail = Tail::left_out) const {
    return {{{corpus_, {0, corpus_->token_count()}, 1.0}},
            sample_rules(rules, 1234),
            order,
            "train",
            tail};
  }
  std::vector<std::int32_t> tokens(const TokenRange& range) const {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(range.size()));
    corpus_->copy(range.begin, range.size(), tokens.data());
    return tokens;
  }
  test::Scratch scratch_;
  std::shared_ptr<const Corpus> corpus_;
};

// Makes the samples of a data set, one by one, and checks what holds for each.
class SpanReader {
 public:
  SpanReader(const Dataset& data, const SpanRules& rules)
      : rules_(rules), maker_(make_sample_maker(data)), batch_(spec_for(rules), 1) {}

  ReadSample at(index_t position) {
    batch_.fill(*maker_, position, 1);
    const auto source = column("source", "source_lengths", rules_.source);
    const auto labels = column("labels", "target_lengths", rules_.target);
    const auto target = column("target", "target_lengths", rules_.target);
    EXPECT_EQ(target.front(), kPadding);
    EXPECT_TRUE(std::equal(target.begin() + 1, target.end(), labels.begin()));
    const bool counts = labels.size() > 1;
    EXPECT_EQ(batch_.sum("loss_mask"), counts ? static_cast<double>(labels.size()) : 0.0);
    EXPECT_EQ(batch_.field<float>("loss_mask")(0, 0), counts ? 1.0f : 0.0f);
    return read(source, labels);
  }

 private:
  // Of its length; behind it is padding.
  std::vector<std::int32_t> column(const char* name, const char* lengths, index_t rows) {
    const auto field = batch_.field<std::int32_t>(name);
    const index_t length = batch_.field<std::int32_t>(lengths)(0, 0);
    std::vector<std::int32_t> ids;
    for (index_t i = 0; i < rows; ++i) {
      if (i < length) {
        ids.push_back(field(i, 0));
      } else {
        EXPECT_EQ(field(i, 0), kPadding) << name << " " << i;
      }
    }
    return ids;
  }

  SpanRules rules_;
  std::unique_ptr<SampleMaker> maker_;
  Batch batch_;
};

TEST(SpanMakerRules, AreRefusedWhereTheyDoNotFit) {
  const auto message = [](const SpanRules& rules) {
    return test::message_of<InputError>([&] { sample_rules(rules, 1); });
  };
  EXPECT_EQ(sample_rules(rules_for(512, 114), 1).windows.tokens, 568);
  EXPECT_EQ(sample_rules(rules_for(512, 114), 1).windows.stride, 568);
  EXPECT_THAT(
      message(rules_for(512, 113)),
      HasSubstr("model.decoder_sequence is 113: what is hidden of a source of 512 "
                "takes 114"));
  SpanRules rules = rules_for(4096, 4096);
  rules.sentinels = 100;
  EXPECT_THAT(message(rules),
              HasSubstr("a source of 4096 (model.sequence) has 227 spans, and the "
                        "tokenizer 100 sentinels"));
  EXPECT_THAT(message(rules_for(2, 114)), HasSubstr("model.sequence is 2"));
  rules = rules_for(512, 114);
  for (const double density : {0.0, 1.0, -0.5, std::nan("")}) {
    rules.density = density;
    EXPECT_THAT(message(rules), HasSubstr("data.mask_prob is"));
  }
  rules = rules_for(512, 114);
  rules.mean_length = 0.5;
  EXPECT_THAT(message(rules), HasSubstr("data.mean_noise_span_length is 0.5"));
}

// Packed, source and labels give the window back, across documents.
TEST_F(SpanMakerData, LosesNoToken) {
  for (const index_t source : {3, 7, 64, 200}) {
    const SpanRules rules = rules_for(source, source);
    const Dataset data = dataset(rules, Order::shuffled, Tail::counted);
    SpanReader reader(data, rules);
    for (index_t p = 0; p < 3 * data.windows(); ++p) {
      const TokenRange window = data.place(p).tokens;
      const ReadSample sample = reader.at(p);
      ASSERT_EQ(sample.text, tokens(window)) << source << " " << p;
      if (window.size() < 2) continue;
      EXPECT_FALSE(sample.is_hidden.front());
      EXPECT_TRUE(sample.is_hidden.back());
    }
  }
}

// Not packed, a text is of one document, without its end; all documents are read, those
// too that begin and end within a window.
TEST_F(SpanMakerData, KeepsDocumentsApart) {
  const SpanRules rules = rules_for(200, 60, false);
  const Dataset data = dataset(rules, Order::shuffled, Tail::counted);
  SpanReader reader(data, rules);
  std::set<index_t> read_from;
  std::set<std::size_t> lengths;
  for (index_t p = 0; p < 200 * data.windows(); ++p) {
    const TokenRange window = data.place(p).tokens;
    const ReadSample sample = reader.at(p);
    lengths.insert(sample.text.size());
    if (sample.text.empty()) continue;
    bool is_found = false;
    index_t document = corpus_->document_of(window.begin);
    for (; !is_found && document <= corpus_->document_of(window.end - 1); ++document) {
      const TokenRange part{std::max(window.begin, corpus_->document_begin(document)),
                            std::min(window.end, corpus_->document_begin(document + 1))};
      const std::vector<std::int32_t> all = tokens(part);
      const std::size_t end =
          static_cast<TokenId>(all.back()) == corpus_->end_of_document();
      is_found =
          sample.text == std::vector(all.begin(), all.end() - static_cast<long>(end));
      if (is_found) read_from.insert(document);
    }
    ASSERT_TRUE(is_found) << p;
  }
  EXPECT_EQ(std::ssize(read_from), corpus_->document_count());
  EXPECT_GT(lengths.size(), 50u);
}

TEST_F(SpanMakerData, DocumentsAreFoundByTheirTokens) {
  for (index_t document = 0; document < corpus_->document_count(); ++document) {
    EXPECT_EQ(corpus_->document_of(corpus_->document_begin(document)), document);
    EXPECT_EQ(corpus_->document_of(corpus_->document_begin(document + 1) - 1), document);
  }
  EXPECT_THROW(corpus_->document_of(-1), Error);
  EXPECT_THROW(corpus_->document_of(corpus_->token_count()), Error);
}

double choices(index_t of, index_t chosen) {
  if (chosen < 0 || chosen > of) return 0.0;
  return std::exp(std::lgamma(static_cast<double>(of + 1)) -
                  std::lgamma(static_cast<double>(chosen + 1)) -
                  std::lgamma(static_cast<double>(of - chosen + 1)));
}

// How likely a span of a random cut of so many hidden tokens has `length` of them.
double length_probability(index_t hidden, index_t spans, index_t length) {
  if (spans == 1) return length == hidden ? 1.0 : 0.0;
  return choices(hidden - 1 - length, spans - 2) / choices(hidden - 1, spans - 1);
}

// Over 10^6 tokens: counts exact in each sample, lengths of spans as of a random cut of
// 85 tokens into 28 parts. Of C(84, 27) cuts C(84 - m, 26) have a part of m tokens first.
TEST_F(SpanMakerData, SpansHaveTheLengthsOfARandomCut) {
  const SpanRules rules = rules_for(512, 114);
  const Dataset data = dataset(rules);
  SpanReader reader(data, rules);
  constexpr index_t kSamples = 1761, kHidden = 85, kSpans = 28;
  std::vector<index_t> count(kHidden + 1);
  for (index_t p = 0; p < kSamples; ++p) {
    const ReadSample sample = reader.at(p);
    ASSERT_EQ(sample.text.size(), 568u);
    ASSERT_EQ(std::ssize(sample.spans), kSpans);
    ASSERT_EQ(std::ranges::count(sample.is_hidden, true), kHidden);
    for (const index_t length : sample.spans) ++count[static_cast<std::size_t>(length)];
  }
  double sum = 0.0;
  for (index_t length = 1; length <= kHidden; ++length) {
    const double probability = length_probability(kHidden, kSpans, length);
    sum += probability;
    if (kSamples * kSpans * probability < 10) continue;
    test::expect_binomial(count[static_cast<std::size_t>(length)], kSamples * kSpans,
                          probability, "length " + std::to_string(length));
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
}

// How often something came that was likely by another measure each time.
class Counted {
 public:
  void add(index_t came, index_t of, double probability) {
    const auto tries = static_cast<double>(of);
    count_ += static_cast<double>(came);
    mean_ += tries * probability;
    variance_ += tries * probability * (1.0 - probability);
  }
  // Within five standard deviations, where it is often enough for them to say something.
  void expect_likely(const std::string& what) const {
    if (variance_ < 10.0) return;
    EXPECT_NEAR(count_, mean_, 5.0 * std::sqrt(variance_)) << what;
  }

 private:
  double count_ = 0.0, mean_ = 0.0, variance_ = 0.0;
};

// The same of texts that are not packed, each of the length that its document has there:
// a document of the window is taken as often as it has tokens of it.
TEST_F(SpanMakerData, UnpackedTextsAreCutAndChosenByTheirTokens) {
  const SpanRules rules = rules_for(200, 60, false);
  const Dataset data = dataset(rules);
  SpanReader reader(data, rules);
  std::vector<Counted> lengths(61);
  Counted first;
  index_t read = 0;
  for (index_t p = 0; read < 1'000'000; ++p) {
    const TokenRange window = data.place(p).tokens;
    const ReadSample sample = reader.at(p);
    const index_t tokens = std::ssize(sample.text);
    read += tokens;
    const index_t document = corpus_->document_of(window.begin);
    const index_t share =
        std::min(window.end, corpus_->document_begin(document + 1)) - window.begin;
    if (share < window.size()) {
      std::vector<std::int32_t> text = this->tokens({window.begin, window.begin + share});
      if (static_cast<TokenId>(text.back()) == corpus_->end_of_document())
        text.pop_back();
      first.add(sample.text == text ? 1 : 0, 1,
                static_cast<double>(share) / static_cast<double>(window.size()));
    }
    if (tokens < 2) continue;
    const config::SpanLengths of =
        config::span_lengths(tokens, rules.density, rules.mean_length);
    ASSERT_EQ(std::ssize(sample.spans), of.spans);
    ASSERT_EQ(std::ranges::count(sample.is_hidden, true), of.noise);
    for (index_t length = 1; length < std::ssize(lengths); ++length) {
      lengths[static_cast<std::size_t>(length)].add(
          std::ranges::count(sample.spans, length), of.spans,
          length_probability(of.noise, of.spans, length));
    }
  }
  first.expect_likely("the first document of a window");
  for (std::size_t length = 1; length < lengths.size(); ++length) {
    lengths[length].expect_likely("length " + std::to_string(length));
  }
}

// How likely the sum of the first `part` of `parts` parts of a random cut of `items` is
// at most `most`.
double cut_by(index_t items, index_t parts, index_t part, index_t most) {
  if (part == 0) return most >= 0 ? 1.0 : 0.0;
  if (part == parts) return most >= items ? 1.0 : 0.0;
  double sum = 0.0;
  for (index_t first = 1; first <= std::min(most, items - 1); ++first) {
    sum += choices(first - 1, part - 1) * choices(items - first - 1, parts - part - 1);
  }
  return sum / choices(items - 1, parts - 1);
}

// How likely `part` parts of the kept tokens and `others` of the hidden ones end at
// position `most` at the latest.
double both_by(index_t kept, index_t hidden, index_t spans, index_t part, index_t others,
               index_t most) {
  double sum = 0.0;
  for (index_t first = 0; first <= kept; ++first) {
    const double here =
        cut_by(kept, spans, part, first) - cut_by(kept, spans, part, first - 1);
    sum += here * cut_by(hidden, spans, others, most - first);
  }
  return sum;
}

// Over 10^6 tokens: how often each position of the text is hidden.
TEST_F(SpanMakerData, PositionsAreHiddenAsByRandomCuts) {
  const SpanRules rules = rules_for(64, 15);
  const Dataset data = dataset(rules);
  SpanReader reader(data, rules);
  const index_t tokens = data.rules().windows.tokens, samples = 1'000'000 / tokens;
  const config::SpanLengths lengths =
      config::span_lengths(tokens, rules.density, rules.mean_length);
  std::vector<index_t> count(static_cast<std::size_t>(tokens));
  for (index_t p = 0; p < samples; ++p) {
    const ReadSample sample = reader.at(p);
    for (std::size_t i = 0; i < count.size(); ++i)
      count[i] += sample.is_hidden[i] ? 1 : 0;
  }
  double sum = 0.0;
  for (index_t i = 0; i < tokens; ++i) {
    double probability = 0.0;
    for (index_t span = 1; span <= lengths.spans; ++span) {
      const index_t kept = tokens - lengths.noise;
      probability += both_by(kept, lengths.noise, lengths.spans, span, span - 1, i) -
                     both_by(kept, lengths.noise, lengths.spans, span, span, i);
    }
    sum += probability;
    test::expect_binomial(count[static_cast<std::size_t>(i)], samples,
                          std::clamp(probability, 0.0, 1.0),
                          "position " + std::to_string(i));
  }
  EXPECT_NEAR(sum, static_cast<double>(lengths.noise), 1e-6);
}

TEST_F(SpanMakerData, AllocatesNothingAfterTheFirstSample) {
  for (const bool pack : {true, false}) {
    const SpanRules rules = rules_for(200, 60, pack);
    const Dataset data = dataset(rules);
    const auto maker = make_sample_maker(data);
    Batch batch(spec_for(rules), 2);
    batch.fill(*maker, 0, 2);
    test::AllocationCounter counter;
    for (index_t p = 1; p < 500; ++p) batch.fill(*maker, p, 2);
    counter.stop();
    EXPECT_EQ(counter.total(), 0) << counter.report();
  }
}

TEST_F(SpanMakerData, MakesNoOtherField) {
  const SpanRules rules = rules_for(64, 15);
  const Dataset data = dataset(rules);
  BatchSpec spec = spec_for(rules);
  spec.fields[0].name = "tokens";
  Batch batch(spec, 1);
  const auto maker = make_sample_maker(data);
  EXPECT_THAT(test::message_of<Error>([&] { batch.fill(*maker, 0, 1); }),
              HasSubstr("no field 'tokens' can be made of these samples"));
}

}  // namespace
}  // namespace trireme::data
