// Batches by hand, the ring of prefetched ones, and what happens when something fails.
#include "data/batch_loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <iterator>
#include <set>
#include <thread>

#include "io/checksum.hpp"
#include "io/hdf5.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

// What a language model reads of windows of so many tokens.
BatchSpec spec_of(index_t sequence) {
  return {.streams = {{"text", sequence}},
          .fields = {{"tokens"},
                     {.name = "positions", .holds = Holds::places},
                     {"labels"},
                     {.name = "loss_mask", .holds = Holds::weights}}};
}
BatchLoader::Options options(index_t sequence, index_t columns = 1, int depth = 4) {
  return {.spec = spec_of(sequence),
          .fields = {0, 1, 2, 3},
          .max_columns = columns,
          .depth = depth};
}

class BatchLoaderData : public ::testing::Test {
 protected:
  BatchLoaderData() {
    std::vector<std::string> texts;
    const std::string sample = io::read_file(test::fixture("sample.txt"));
    for (std::size_t i = 0; i < 40; ++i) texts.push_back(sample.substr(i * 70, 70));
    test::make_corpus(scratch_, "c.h5", texts, test::trained_tokenizer());
    corpus_ = std::make_shared<const Corpus>(scratch_ / "c.h5");
  }
  Dataset dataset(index_t sequence, Order order = Order::shuffled,
                  bool mask_end_of_document = false) const {
    const NextTokenRules rules{sequence, mask_end_of_document};
    return {{{corpus_, {0, corpus_->token_count()}, 1.0}},
            sample_rules(rules, 11),
            order,
            "train"};
  }
  test::Scratch scratch_;
  std::shared_ptr<const Corpus> corpus_;
};

void fill(Batch& batch, const Dataset& data, index_t first, index_t columns) {
  batch.fill(*make_sample_maker(data), first, columns);
}

// What nobody asks for is not made.
TEST_F(BatchLoaderData, HasTheFieldsThatAreAskedFor) {
  const Dataset data = dataset(13);
  Batch some(spec_of(13), 2, {0, 3}), none(spec_of(13), 2, {});
  fill(some, data, 4, 2);
  fill(none, data, 4, 2);
  Batch all(spec_of(13), 2);
  fill(all, data, 4, 2);
  const HostBatch view = some.view();
  EXPECT_EQ(view.first_sample, 4u);
  EXPECT_NE(view.fields[0], nullptr);
  EXPECT_EQ(view.fields[1], nullptr);
  EXPECT_EQ(some.field<std::int32_t>("tokens")(12, 1),
            all.field<std::int32_t>("tokens")(12, 1));
  EXPECT_THROW(some.field<std::int32_t>("labels"), Error);
  EXPECT_EQ(none.view().fields[0], nullptr);
  some.discount_columns(1);
  EXPECT_EQ(some.sum("loss_mask"), 13.0);
  BatchSpec other = spec_of(13);
  other.fields[1].name = "token_types";
  Batch unknown(other, 2);
  EXPECT_THAT(test::message_of<Error>([&] { fill(unknown, data, 4, 2); }),
              HasSubstr("no field 'token_types' can be made of these samples"));
}

// What a field is made as, and what the batch has room for, is compared.
TEST_F(BatchLoaderData, MakesNoFieldInAnotherTypeOrSize) {
  const Dataset data = dataset(13);
  BatchSpec spec = spec_of(13);
  spec.fields[1].per = Per::sample;
  Batch short_one(spec, 2);
  EXPECT_THAT(test::message_of<Error>([&] { fill(short_one, data, 0, 2); }),
              HasSubstr("made as 13 in int32"));
  spec = spec_of(13);
  spec.fields[0].holds = Holds::weights;
  Batch other_type(spec, 2);
  EXPECT_THROW(fill(other_type, data, 0, 2), Error);
}

// Held-out parts of two corpora, mixed three to one: in order, by weight, each window
// once.
TEST_F(BatchLoaderData, OfTwoCorporaNothingComesTwice) {
  const index_t s = 4;
  const std::vector<std::pair<index_t, index_t>> sizes = {{41, 41}, {81, 17}, {9, 81}};
  for (const auto& [first, second] : sizes) {
    const Dataset data({{corpus_, {0, first}, 3.0}, {corpus_, {100, 100 + second}, 1.0}},
                       sample_rules(NextTokenRules{s}, 11), Order::sequential,
                       "validation");
    EXPECT_EQ(data.windows(), (first - 1) / s + (second - 1) / s);
    const index_t positions = data.positions_without_repeats();
    std::set<index_t> seen;
    for (index_t p = 0; p < positions; ++p) {
      EXPECT_TRUE(seen.insert(data.place(p).tokens.begin).second) << p;
    }
    EXPECT_FALSE(seen.insert(data.place(positions).tokens.begin).second);
    // In order: of the first corpus the first windows, of the second a third as many.
    const auto of_second =
        static_cast<index_t>(std::distance(seen.lower_bound(100), seen.end()));
    EXPECT_NEAR(static_cast<double>(of_second), static_cast<double>(positions) / 4.0,
                1.0);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), 100 + s * (of_second - 1));
  }
  EXPECT_EQ(dataset(s).positions_without_repeats(), dataset(s).windows());
}

TEST_F(BatchLoaderData, ColumnsAreWindows) {
  const index_t s = 13, b = 3;
  const Dataset data = dataset(s);
  Batch batch(spec_of(s), 5);
  fill(batch, data, 7, b);
  EXPECT_EQ(batch.first_sample(), 7);
  EXPECT_EQ(batch.columns(), b);
  ASSERT_EQ(batch.field<std::int32_t>("tokens").extent(0), 13u);
  ASSERT_EQ(batch.field<std::int32_t>("tokens").extent(1), 3u);
  for (index_t j = 0; j < b; ++j) {
    const TokenRange window = data.place(7 + j).tokens;
    for (index_t i = 0; i < s; ++i) {
      EXPECT_EQ(batch.field<std::int32_t>("tokens")(i, j),
                static_cast<std::int32_t>(corpus_->token(window.begin + i)));
      EXPECT_EQ(batch.field<std::int32_t>("labels")(i, j),
                static_cast<std::int32_t>(corpus_->token(window.begin + i + 1)));
      EXPECT_EQ(batch.field<std::int32_t>("positions")(i, j), i);
      EXPECT_EQ(batch.field<float>("loss_mask")(i, j), 1.0f);
    }
  }
  EXPECT_EQ(batch.sum("loss_mask"), s * b);
  EXPECT_THROW(fill(batch, data, 0, 6), Error);
}

TEST_F(BatchLoaderData, MasksWhatFollowsADocument) {
  const index_t s = 50, b = 4;
  const Dataset data = dataset(s, Order::sequential, true);
  Batch batch(spec_of(s), b);
  fill(batch, data, 0, b);
  index_t masked = 0;
  for (index_t i = 0; i < s; ++i) {
    for (index_t j = 0; j < b; ++j) {
      const bool end = batch.field<std::int32_t>("tokens")(i, j) == 0;  // end of document
      EXPECT_EQ(batch.field<float>("loss_mask")(i, j), end ? 0.0f : 1.0f);
      masked += end ? 1 : 0;
    }
  }
  EXPECT_GT(masked, 2);
  EXPECT_EQ(batch.sum("loss_mask"), s * b - masked);
}

TEST_F(BatchLoaderData, DoesNotDependOnGrouping) {
  const index_t s = 9;
  const Dataset data = dataset(s);
  Batch wide(spec_of(s), 6), narrow(spec_of(s), 2);
  fill(wide, data, 20, 6);
  for (index_t part = 0; part < 3; ++part) {
    fill(narrow, data, 20 + 2 * part, 2);
    for (index_t i = 0; i < s; ++i) {
      for (index_t j = 0; j < 2; ++j) {
        EXPECT_EQ(narrow.field<std::int32_t>("tokens")(i, j),
                  wide.field<std::int32_t>("tokens")(i, 2 * part + j));
      }
    }
  }
}

// A checksum of all fields of the first samples, of two corpora that differ in size, over
// many epochs of the smaller.
std::string checksum_of_batches(const Dataset& data, index_t sequence) {
  const auto maker = make_sample_maker(data);
  Batch batch(spec_of(sequence), 7);
  io::Checksum sum;
  for (index_t n = 0; n < 300; ++n) {
    batch.fill(*maker, 7 * n, 7 - n % 3);
    const HostBatch view = batch.view();
    for (std::size_t field = 0; field < 4; ++field) {
      sum.update(view.fields[field],
                 static_cast<std::size_t>(sequence * batch.columns()) * 4);
    }
  }
  return io::to_hex(sum.value());
}

// As they were recorded before samples had other makers than that of windows.
TEST_F(BatchLoaderData, WindowsAreAsRecorded) {
  const index_t half = corpus_->token_count() / 2;
  const std::pair<Order, bool> cases[] = {{Order::shuffled, false},
                                          {Order::shuffled, true},
                                          {Order::sequential, false},
                                          {Order::sequential, true}};
  std::vector<std::string> found;
  for (const auto& [order, mask] : cases) {
    const Dataset data({{corpus_, {0, half}, 3.0}, {corpus_, {half, 2 * half - 3}, 1.0}},
                       sample_rules(NextTokenRules{11, mask}, 1234), order, "train",
                       Tail::counted);
    found.push_back(checksum_of_batches(data, 11));
  }
  EXPECT_THAT(found, ::testing::ElementsAre("6866ad9593ccce57", "a899ebbf6b91ec2b",
                                            "ffa4d956ea4554df", "95d1ebf959fb9ea2"));
}

TEST_F(BatchLoaderData, GivesBatchesInOrder) {
  const index_t s = 8;
  const Dataset data = dataset(s);
  Batch expected(spec_of(s), 3);
  for (const int depth : {2, 3, 5}) {
    // Sizes that change, as when the batch ramps up.
    const auto plan = [](index_t n) {
      return n < 300 ? ColumnRange{5 * n, 1 + n % 3} : ColumnRange{};
    };
    BatchLoader loader(data, plan, options(s, 3, depth));
    const Batch* previous = nullptr;
    for (index_t n = 0; n < 300; ++n) {
      const Batch& batch = loader.next();
      EXPECT_NE(&batch, previous);
      previous = &batch;
      if (n % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      fill(expected, data, 5 * n, 1 + n % 3);
      ASSERT_EQ(batch.first_sample(), 5 * n);
      ASSERT_EQ(batch.columns(), 1 + n % 3);
      for (index_t i = 0; i < s; ++i) {
        for (index_t j = 0; j < batch.columns(); ++j) {
          ASSERT_EQ(batch.field<std::int32_t>("tokens")(i, j),
                    expected.field<std::int32_t>("tokens")(i, j));
        }
      }
    }
    EXPECT_THAT(test::message_of<Error>([&] { loader.next(); }),
                HasSubstr("batch 300 was asked for, the plan ends there"));
  }
}

// Before a step begins it is known how many labels count in it, and what is known ahead
// is what comes.
TEST_F(BatchLoaderData, SumsFieldsAhead) {
  const Dataset data = dataset(8, Order::shuffled, true);
  BatchLoader::Options of = options(8, 3, 2);  // fewer buffers than batches of a step
  of.summed = {3};
  of.most_summed = 5;
  const auto plan = [](index_t n) {
    return n < 20 ? ColumnRange{3 * n, 3} : ColumnRange{};
  };
  BatchLoader loader(data, plan, of);
  double all = 0;
  for (int step = 0; step < 4; ++step) {
    const double ahead = loader.sum_ahead(5, "loss_mask");
    double sum = 0;
    for (int m = 0; m < 5; ++m) sum += loader.next().sum("loss_mask");
    EXPECT_EQ(sum, ahead) << step;
    all += sum;
  }
  EXPECT_LT(all, 20 * 3 * 8);
  EXPECT_GT(all, 0);
  EXPECT_THAT(test::message_of<Error>([&] { loader.sum_ahead(1, "loss_mask"); }),
              HasSubstr("the plan ends there"));
  EXPECT_THROW(loader.sum_ahead(6, "loss_mask"), Error);
  EXPECT_THROW(loader.sum_ahead(1, "labels"), Error);
}

TEST_F(BatchLoaderData, FillsTheRingAndNoMore) {
  const Dataset data = dataset(8);
  std::atomic<int> planned = 0;
  const auto plan = [&](index_t n) {
    ++planned;
    return ColumnRange{n, 1};
  };
  BatchLoader loader(data, plan, options(8, 1, 4));
  loader.next();
  for (int i = 0; i < 200 && planned < 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(planned, 4);  // one in use, three ready
}

TEST_F(BatchLoaderData, StopsAtAnyMoment) {
  const Dataset data = dataset(8);
  for (int i = 0; i < 200; ++i) {
    BatchLoader loader(
        data,
        [](index_t n) {
          return ColumnRange{n, 1};
        },
        options(8));
    for (int n = 0; n < i % 5; ++n) loader.next();
  }
}

TEST_F(BatchLoaderData, ThrowsWhatTheThreadThrew) {
  const Dataset data = dataset(8);
  const auto plan = [](index_t n) -> ColumnRange {
    TRIREME_REQUIRE_INPUT(n < 3, "no batch {}", n);
    return {n, 1};
  };
  BatchLoader loader(data, plan, options(8));
  for (int n = 0; n < 3; ++n) EXPECT_EQ(loader.next().first_sample(), n);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(test::message_of<InputError>([&] { loader.next(); }), "no batch 3");
  }
  EXPECT_THROW(BatchLoader(data, plan, options(8, 1, 1)), Error);
}

TEST_F(BatchLoaderData, FindsIdsOutsideTheVocabulary) {
  const auto at = io::H5File::open(scratch_ / "c.h5").dataset("tokens").offset().value();
  std::string bytes = test::slurp(scratch_ / "c.h5");
  bytes[at + 21] = '\x7F';  // token 10
  test::spill(scratch_ / "damaged.h5", bytes);
  const auto damaged = std::make_shared<const Corpus>(scratch_ / "damaged.h5");
  const Dataset data({{damaged, {0, damaged->token_count()}}},
                     sample_rules(NextTokenRules{8}, 1), Order::sequential, "t");
  BatchLoader loader(
      data,
      [](index_t n) {
        return ColumnRange{n, 1};
      },
      options(8));
  loader.next();
  EXPECT_THAT(test::message_of<InputError>([&] { loader.next(); }),
              HasSubstr("is outside its vocabulary of 700: the file is damaged"));
}

TEST_F(BatchLoaderData, BlendsCorpora) {
  test::make_corpus(scratch_, "other.h5", {std::string(4000, 'x')},
                    test::trained_tokenizer());
  const auto other = std::make_shared<const Corpus>(scratch_ / "other.h5");
  const Dataset data({{corpus_, {0, corpus_->token_count()}, 3.0},
                      {other, {0, other->token_count()}, 1.0}},
                     sample_rules(NextTokenRules{8}, 1), Order::shuffled, "train");
  int from_other = 0;
  for (index_t p = 0; p < 4000; ++p) {
    const Dataset::Place place = data.place(p);
    from_other += place.corpus == other.get() ? 1 : 0;
    ASSERT_LE(place.tokens.begin + 9, place.corpus->token_count());
  }
  EXPECT_EQ(from_other, 1000);
  const std::vector<double> epochs = data.epochs(4000);
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_EQ(epochs[0], 3000.0 / static_cast<double>((corpus_->token_count() - 1) / 8));
  EXPECT_EQ(epochs[1], 1000.0 / static_cast<double>((other->token_count() - 1) / 8));
  // Of another tokenizer: refused.
  const Tokenizer split = Tokenizer::load({test::fixture("split.json")});
  test::make_corpus(scratch_, "split.h5", {"some text that is long enough"}, split);
  const auto foreign = std::make_shared<const Corpus>(scratch_ / "split.h5");
  EXPECT_THAT(test::message_of<InputError>([&] {
                Dataset({{corpus_, {0, 100}, 1.0}, {foreign, {0, 10}, 1.0}},
                        sample_rules(NextTokenRules{8}, 1), Order::shuffled, "train");
              }),
              HasSubstr("made with different tokenizers"));
}

}  // namespace
}  // namespace trireme::data
