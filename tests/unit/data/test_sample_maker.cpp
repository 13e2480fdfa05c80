// Makers of samples: the same sample whatever was made before, from any thread, and in
// memory that does not grow with the corpus.
#include "data/sample_maker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "data/batch_loader.hpp"
#include "io/checksum.hpp"
#include "unit/data/fixtures.hpp"
#include "unit/data/huge_corpus.hpp"

namespace trireme::data {
namespace {

constexpr index_t kSequence = 64, kTarget = 24;

// A kind of samples and the batches of them.
struct Kind {
  SampleRules rules;
  BatchSpec spec;
  const char* weights = "loss_mask";
};

Kind next_token_kind() {
  return {sample_rules(NextTokenRules{kSequence, true}, 7),
          {.streams = {{"text", kSequence}},
           .fields = {{.name = "tokens"},
                      {.name = "positions", .holds = Holds::places},
                      {.name = "labels"},
                      {.name = "loss_mask", .holds = Holds::weights}}}};
}

Kind span_kind(bool pack) {
  return {
      sample_rules(SpanRules{.source = kSequence,
                             .target = kTarget,
                             .pack = pack,
                             .first_sentinel = 1999,
                             .sentinels = 100},
                   7),
      {.streams = {{"source", kSequence}, {"target", kTarget}},
       .fields = {{.name = "source"},
                  {.name = "source_lengths", .per = Per::sample, .holds = Holds::lengths},
                  {.name = "target", .stream = 1},
                  {.name = "target_lengths",
                   .per = Per::sample,
                   .stream = 1,
                   .holds = Holds::lengths},
                  {.name = "labels", .stream = 1},
                  {.name = "loss_mask", .stream = 1, .holds = Holds::weights}}}};
}

// With made-up special tokens: id 0 ends documents.
Kind masked_kind(bool pack, config::Pairs pairs = config::Pairs::none,
                 index_t window = 50) {
  constexpr std::size_t kVocabulary = 1000;
  MaskedVocabulary vocabulary{.padding = 995,
                              .classify = 996,
                              .separate = 997,
                              .mask = 998,
                              .end_of_document = 0,
                              .begins_word = std::vector<std::uint8_t>(kVocabulary, 1),
                              .is_structural = std::vector<std::uint8_t>(kVocabulary, 0),
                              .ordinary = {5, 6, 7}};
  vocabulary.is_structural[0] = 1;
  const MaskedRules rules{
      .sequence = kSequence,
      .predictions = 10,
      .short_seq_prob = pack ? 0.0 : 0.2,
      .max_ngrams = 3,
      .pairs = pairs,
      .pack = pack,
      .window = window,
      .vocabulary = std::make_shared<const MaskedVocabulary>(vocabulary)};
  return {
      sample_rules(rules, 7),
      {.streams = {{"text", kSequence}, {"predictions", rules.predictions, false}},
       .fields = {{.name = "tokens"},
                  {.name = "token_types", .holds = Holds::classes, .below = 2},
                  {.name = "document_ends", .holds = Holds::places},
                  {.name = "lengths", .per = Per::sample, .holds = Holds::lengths},
                  {.name = "masked_positions", .stream = 1, .holds = Holds::rows},
                  {.name = "masked_labels", .stream = 1},
                  {.name = "masked_weights", .stream = 1, .holds = Holds::weights},
                  {.name = "pair_labels", .per = Per::sample},
                  {.name = "pair_weights", .per = Per::sample, .holds = Holds::weights}}},
      "masked_weights"};
}

// Those of pairs want a corpus with sentences.
std::vector<Kind> all_kinds() {
  return {next_token_kind(),
          span_kind(true),
          span_kind(false),
          masked_kind(true),
          masked_kind(false),
          masked_kind(false, config::Pairs::order),
          masked_kind(false, config::Pairs::next),
          masked_kind(false, config::Pairs::order, 0)};
}

// All bytes of the samples [first, first + batch.columns()).
std::string bytes_of(const BatchSpec& spec, const Batch& batch) {
  std::string bytes;
  const HostBatch view = batch.view();
  for (std::size_t field = 0; field < spec.fields.size(); ++field) {
    bytes.append(
        static_cast<const char*>(view.fields[field]),
        static_cast<std::size_t>(spec.elements(spec.fields[field], batch.columns()) * 4));
  }
  return bytes;
}

class SampleMakerData : public ::testing::Test {
 protected:
  SampleMakerData() {
    std::vector<std::string> texts;
    const std::string sample = io::read_file(test::fixture("sample.txt"));
    for (std::size_t i = 0; i < 60; ++i) {
      texts.push_back(sample.substr(i * 100, 20 + i * 7));
    }
    CorpusOptions options;
    options.sentences = Language::english;
    test::make_corpus(scratch_, "a.h5", texts, test::trained_tokenizer(), options);
    std::ranges::reverse(texts);
    test::make_corpus(scratch_, "b.h5", texts, test::trained_tokenizer(), options);
    for (const char* name : {"a.h5", "b.h5"}) {
      corpora_.push_back(std::make_shared<const Corpus>(scratch_ / name));
    }
  }
  Dataset dataset(const Kind& kind) const {
    return {{{corpora_[0], {3, corpora_[0]->token_count()}, 3.0},
             {corpora_[1], {0, corpora_[1]->token_count()}, 1.0}},
            kind.rules,
            Order::shuffled,
            "train"};
  }
  test::Scratch scratch_;
  std::vector<std::shared_ptr<const Corpus>> corpora_;
};

// Over several epochs, sample by sample: one maker in order, one backwards, and one for
// each of four threads that take turns.
TEST_F(SampleMakerData, MakesTheSameInAnyOrder) {
  constexpr index_t kSamples = 900;
  for (const Kind& kind : all_kinds()) {
    const Dataset data = dataset(kind);
    ASSERT_GT(kSamples, 3 * data.windows());
    const auto make = [&](Batch& batch, SampleMaker& maker, index_t position) {
      batch.fill(maker, position, 1);
      return bytes_of(kind.spec, batch);
    };
    const auto maker = make_sample_maker(data);
    Batch batch(kind.spec, 1);
    std::vector<std::string> samples;
    for (index_t p = 0; p < kSamples; ++p) samples.push_back(make(batch, *maker, p));
    for (index_t p = kSamples - 1; p >= 0; --p) {
      ASSERT_EQ(make(batch, *maker, p), samples[static_cast<std::size_t>(p)]) << p;
    }
    std::vector<std::string> by_threads(kSamples);
    std::vector<std::thread> threads;
    for (index_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        const auto own = make_sample_maker(data);
        Batch own_batch(kind.spec, 1);
        for (index_t p = thread; p < kSamples; p += 4) {
          by_threads[static_cast<std::size_t>(p)] = make(own_batch, *own, p);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(by_threads, samples);
  }
}

// The samples of a step, dealt to 1, 2 and 4 loaders.
TEST_F(SampleMakerData, DoesNotDependOnTheNumberOfLoaders) {
  constexpr index_t kSteps = 5, kStep = 24, kMicro = 3;
  for (const Kind& kind : all_kinds()) {
    const Dataset data = dataset(kind);
    const auto maker = make_sample_maker(data);
    Batch expected(kind.spec, kMicro);
    for (const index_t loaders : {1, 2, 4}) {
      const index_t per_step = kStep / loaders / kMicro;
      for (index_t rank = 0; rank < loaders; ++rank) {
        const auto plan = [=](index_t n) {
          return ColumnRange{
              n / per_step * kStep + rank * (kStep / loaders) + n % per_step * kMicro,
              kMicro};
        };
        BatchLoader::Options options{
            .spec = kind.spec, .fields = {}, .max_columns = kMicro};
        for (std::size_t field = 0; field < kind.spec.fields.size(); ++field) {
          options.fields.push_back(field);
        }
        options.summed = {kind.spec.field(kind.weights)};
        options.most_summed = per_step;
        BatchLoader loader(data, plan, options);
        for (index_t n = 0; n < kSteps * per_step; ++n) {
          const double ahead = loader.sum_ahead(1, kind.weights);
          const Batch& batch = loader.next();
          expected.fill(*maker, plan(n).first_sample, kMicro);
          ASSERT_EQ(bytes_of(kind.spec, batch), bytes_of(kind.spec, expected)) << n;
          ASSERT_EQ(batch.sum(kind.weights), ahead);
        }
      }
    }
  }
}

// A run that goes on with another version of the program sees the samples that it would
// have seen, or is told so: whoever changes what is recorded here raises the kind's
// version, and says in run/definitions.cpp what it was by the one before.
TEST_F(SampleMakerData, AreAsRecordedWithTheirVersion) {
  std::vector<std::string> found;
  for (const Kind& kind : all_kinds()) {
    const Dataset data = dataset(kind);
    const auto maker = make_sample_maker(data);
    Batch batch(kind.spec, 7);
    io::Checksum sum;
    for (index_t n = 0; n < 100; ++n) {
      batch.fill(*maker, 7 * n, 7);
      const std::string bytes = bytes_of(kind.spec, batch);
      sum.update(bytes.data(), bytes.size());
    }
    found.push_back(fmt::format("{}: {}", kind.rules.version(), io::to_hex(sum.value())));
  }
  EXPECT_THAT(found,
              ::testing::ElementsAre("1: 6c9e03b9beb02f4d", "1: 7bbf6208bc46cbc4",
                                     "1: 5ce0333c1ccd1616", "2: c90c5f5d3e7917d8",
                                     "2: 3778ecfd35d36f63", "2: b47e8268af33d6ed",
                                     "2: 7a2d1856f54c6b65", "2: ff5d51bc9be12473"));
}

// All samples of each corpus of the blend in their order, of so many positions.
std::vector<std::vector<std::string>> samples_by_corpus(const Dataset& data,
                                                        const BatchSpec& spec,
                                                        index_t positions) {
  std::vector<std::vector<std::string>> samples(data.parts().size());
  const auto maker = make_sample_maker(data);
  Batch batch(spec, 1);
  for (index_t p = 0; p < positions; ++p) {
    batch.fill(*maker, p, 1);
    const int corpus = data.place(p).sample.corpus;
    samples[static_cast<std::size_t>(corpus)].push_back(bytes_of(spec, batch));
  }
  return samples;
}

// What was masked, hidden and paired in them, too.
TEST_F(SampleMakerData, OneMoreCorpusLeavesTheOthersSamples) {
  CorpusOptions options;
  options.sentences = Language::english;
  test::make_corpus(scratch_, "c.h5", std::vector<std::string>(30, "One. Two. Three."),
                    test::trained_tokenizer(), options);
  const auto third = std::make_shared<const Corpus>(scratch_ / "c.h5");
  for (const Kind& kind : all_kinds()) {
    const Dataset two = dataset(kind);
    std::vector<Dataset::Part> parts = two.parts();
    parts.push_back({third, {0, third->token_count()}, 2.0});
    const Dataset three(parts, kind.rules, Order::shuffled, "train");
    const auto before = samples_by_corpus(two, kind.spec, 1200);
    const auto after = samples_by_corpus(three, kind.spec, 1800);
    ASSERT_EQ(after.size(), 3u);
    EXPECT_NEAR(static_cast<double>(after[2].size()), 600.0, 2.0);
    for (std::size_t k = 0; k < before.size(); ++k) {
      ASSERT_GT(two.epochs(1200)[k], 1.1);
      const std::size_t common = std::min(before[k].size(), after[k].size());
      EXPECT_LE(std::max(before[k].size(), after[k].size()) - common, 3u);
      for (std::size_t i = 0; i < common; ++i) {
        ASSERT_EQ(before[k][i], after[k][i]) << "corpus " << k << ", sample " << i;
      }
    }
  }
}

// What this process has in memory and in no file. What was freed is given back first, so
// that nothing hides there.
double resident_bytes() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0.0;
    if (word == "RssAnon:" && status >> kilobytes) return kilobytes * 1024.0;
  }
  return 0.0;
}

bool has_pairs(const Kind& kind) {
  const auto* rules = std::get_if<MaskedRules>(&kind.rules.kind);
  return rules != nullptr && rules->pairs != config::Pairs::none;
}

// Sanitizers keep what is freed, and note what is read.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsThePrograms = false;
#else
constexpr bool kMemoryIsThePrograms = true;
#endif

// Of 10^12 tokens in a blend with some short documents of theirs, in which every text has
// a pair. Less than three bytes for each document, from before the corpus is opened on.
constexpr double kMostResident = 2e6;
static_assert(kMostResident < 3 * test::kHugeDocuments);

TEST_F(SampleMakerData, HoldsNothingOfTheCorpusSize) {
  const auto path = scratch_ / "huge.h5";
  if (!test::write_huge_corpus(path)) GTEST_SKIP() << "no file of 2 TB here";
  const double before = resident_bytes();
  const auto huge = test::open_huge_corpus(path);
  if (huge == nullptr) GTEST_SKIP() << "no mapping of 2 TB here";
  ASSERT_EQ(huge->token_count(), test::kHugeTokens);
  ASSERT_EQ(huge->sentence_count(), 2 * test::kHugeDocuments);
  for (const Kind& kind : all_kinds()) {
    const Dataset data(
        {{huge, {0, huge->token_count()}, 4.0}, {huge, test::kShortDocuments, 1.0}},
        kind.rules, Order::shuffled, "train");
    EXPECT_GT(data.windows(), test::kHugeTokens / 80);
    const auto maker = make_sample_maker(data);
    Batch batch(kind.spec, 1);
    index_t farthest = 0;
    double pairs = 0.0;
    for (index_t n = 0; n < 20000; ++n) {
      const index_t position = n * 9'876'543'211;  // through epochs of either
      const Dataset::Place place = data.place(position);
      if (place.sample.corpus == 0) farthest = std::max(farthest, place.tokens.end);
      batch.fill(*maker, position, 1);
      if (has_pairs(kind)) pairs += batch.sum("pair_weights");
    }
    if (kMemoryIsThePrograms) {
      EXPECT_LT(resident_bytes() - before, kMostResident);
    }
    EXPECT_GT(farthest, test::kHugeTokens - test::kHugeTokens / 1000);
    EXPECT_GT(data.epochs(20000 * 9'876'543'211)[1], 1e6);
    EXPECT_EQ(pairs > 3000.0, has_pairs(kind)) << pairs;  // of 4000 short documents
  }
}

}  // namespace
}  // namespace trireme::data
