// Samples of each kind as people see them.
#include "data/sample_text.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "unit/data/fixtures.hpp"

namespace trireme::data {
namespace {

// Gives the numbers that it was given.
class FixedMaker : public SampleMaker {
 public:
  explicit FixedMaker(std::map<std::string, std::vector<double>, std::less<>> values)
      : values_(std::move(values)) {}

  void make(index_t, std::span<const SampleColumn> columns) override {
    for (const SampleColumn& column : columns) {
      const std::vector<double>& values = values_.find(column.field)->second;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto at = static_cast<index_t>(i);
        if (column.to.type == DType::float32) {
          column.to.elements<float>(std::ssize(values))(at) =
              static_cast<float>(values[i]);
        } else {
          column.to.elements<std::int32_t>(std::ssize(values))(at) =
              static_cast<std::int32_t>(values[i]);
        }
      }
    }
  }

 private:
  std::map<std::string, std::vector<double>, std::less<>> values_;
};

std::vector<double> ids_of(const Tokenizer& tokenizer, std::string_view text,
                           std::size_t rows = 0, double padding = 0) {
  const std::vector<TokenId> ids = tokenizer.encode(text);
  std::vector<double> values(ids.begin(), ids.end());
  values.resize(std::max(values.size(), rows), padding);
  return values;
}

std::string shown(const BatchSpec& spec, FixedMaker maker, const Tokenizer& tokenizer) {
  return sample_text(spec, maker, 1, tokenizer);
}

TEST(SampleText, OfNextTokens) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::vector<double> ids = ids_of(tokenizer, "the\n\" earth");
  const std::size_t rows = ids.size();
  std::vector<double> places, mask(rows, 1.0);
  for (std::size_t i = 0; i < rows; ++i) places.push_back(static_cast<double>(i));
  mask.back() = 0.0;
  const BatchSpec spec{.streams = {{"text", static_cast<index_t>(rows)}},
                       .fields = {{.name = "tokens"},
                                  {.name = "positions", .holds = Holds::places},
                                  {.name = "loss_mask", .holds = Holds::weights}}};
  EXPECT_EQ(
      shown(spec,
            FixedMaker({{"tokens", ids}, {"positions", places}, {"loss_mask", mask}}),
            tokenizer),
      fmt::format("text, {} positions\n"
                  "  tokens     \"the\\n\\\" earth\"\n"
                  "  positions  0 ... {}\n"
                  "  loss_mask  1 x {}, 0\n",
                  rows, rows - 1, rows - 1));
}

TEST(SampleText, OfMaskedTokens) {
  const Tokenizer tokenizer = Tokenizer::load({test::fixture("uncased")});
  const BatchSpec spec{
      .streams = {{"text", 8}, {"predictions", 2, false}},
      .fields = {{.name = "tokens"},
                 {.name = "token_types", .holds = Holds::classes, .below = 2},
                 {.name = "lengths", .per = Per::sample, .holds = Holds::lengths},
                 {.name = "masked_positions", .stream = 1, .holds = Holds::rows},
                 {.name = "masked_labels", .stream = 1},
                 {.name = "pair_labels", .per = Per::sample, .holds = Holds::classes}}};
  FixedMaker maker({{"tokens", ids_of(tokenizer, "[CLS] and [MASK] said [SEP]", 8)},
                    {"token_types", {0, 0, 0, 1, 1, 0, 0, 0}},
                    {"lengths", {5}},
                    {"masked_positions", {2, -1}},
                    {"masked_labels", ids_of(tokenizer, "god", 2)},
                    {"pair_labels", {1}}});
  EXPECT_EQ(shown(spec, maker, tokenizer),
            "text, 8 positions\n"
            "  tokens            \"[CLS] and {[MASK]} said [SEP]\" and 3 of padding\n"
            "  token_types       0 x 3, 1 x 2, 0 x 3\n"
            "  lengths           5\n"
            "  pair_labels       1\n"
            "predictions, 2 positions\n"
            "  masked_positions  2, -1\n"
            "  masked_labels     \" god\", \" [PAD]\"\n");
}

TEST(SampleText, OfSpans) {
  const Tokenizer tokenizer = test::trained_tokenizer();
  const std::vector<double> source = ids_of(tokenizer, "the earth", 6);
  const index_t length = std::ssize(tokenizer.encode("the earth"));
  const BatchSpec spec{
      .streams = {{"source", 6}, {"target", 3}},
      .fields = {{.name = "source"},
                 {.name = "source_lengths", .per = Per::sample, .holds = Holds::lengths},
                 {.name = "labels", .stream = 1},
                 {.name = "loss_mask", .stream = 1, .holds = Holds::weights}}};
  FixedMaker maker({{"source", source},
                    {"source_lengths", {static_cast<double>(length)}},
                    {"labels", {5000, 0, -7}},
                    {"loss_mask", {1, 0.5, 0}}});
  EXPECT_EQ(shown(spec, maker, tokenizer),
            fmt::format("source, 6 positions\n"
                        "  source          \"the earth\" and {} of padding\n"
                        "  source_lengths  {}\n"
                        "target, 3 positions\n"
                        "  labels          \"<5000><|endoftext|><-7>\"\n"
                        "  loss_mask       1, 0.5, 0\n",
                        6 - length, length));
}

}  // namespace
}  // namespace trireme::data
