// docs/random_numbers.py and docs/dropout_mask.py, which know nothing of the program,
// find the same windows, blends, batch sizes, initial weights and dropout masks, bit by
// bit.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "comm/rank_grid.hpp"
#include "comm/self_communicator.hpp"
#include "config/deck.hpp"
#include "data/draws.hpp"
#include "data/sample_index.hpp"
#include "layouts/documented.hpp"
#include "layouts/layout_masks.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;

TEST(RandomNumbersDocumented, Windows) {
  struct Case {
    data::TokenRange range;
    index_t sequence;
    std::uint64_t seed;
    int corpus;
  };
  for (const Case& c : {Case{{0, 5001}, 33, 1234, 0},
                        {{77, 90}, 5, (std::uint64_t{1} << 40) + 3, 2},
                        {{3, 9}, 5, 1, 1},
                        {{0, 3'000'000'000'000}, 1024, ~std::uint64_t{0}, 65535}}) {
    const data::SampleIndex index(c.range, data::next_token_windows(c.sequence), c.seed,
                                  data::Order::shuffled, "test", c.corpus);
    const index_t windows = index.samples_per_epoch();
    json positions = json::array(), expected = json::array();
    for (index_t i = 0; i < 400; ++i) {
      positions.push_back(i < 200 ? i : 7 * windows - 100 + i);
      expected.push_back(index.tokens(index.sample(positions.back()).window).begin);
    }
    EXPECT_EQ(computed(fmt::format("[window({}, p, {}, {}, {}, {}) for p in {}]", c.seed,
                                   c.corpus, c.range.begin, c.range.end, c.sequence,
                                   positions.dump())),
              expected);
  }
  const data::SampleIndex index({10, 5001}, data::next_token_windows(33), 5,
                                data::Order::shuffled, "test", 3);
  EXPECT_EQ(printed({"window", "5", "1000", "3", "10", "5001", "33"}),
            std::to_string(index.tokens(index.sample(1000).window).begin) + "\n");
}

TEST(RandomNumbersDocumented, BlendsAndRamps) {
  for (const std::vector<double>& weights :
       {std::vector<double>{3.0, 1.0, 2.5}, {0.1, 0.2, 0.3, 0.4}, {7.0}}) {
    const data::Blend blend(weights);
    json expected = json::array();
    for (index_t p = 0; p < 3000; ++p) {
      const auto place = blend.place(p);
      expected.push_back({place.corpus, place.position});
    }
    EXPECT_EQ(computed("[blend(p, *" + json(weights).dump() + ") for p in range(3000)]"),
              expected);
  }
  config::BatchConfig batch;
  batch.global = 50;
  batch.ramp_up = config::RampUp{.start = 8, .increment = 7, .samples = 1003};
  json sizes = json::array();
  for (index_t samples = 0; samples < 1100; ++samples) {
    sizes.push_back(batch.size_at(samples));
  }
  EXPECT_EQ(computed("[batch_size(n, 50, 8, 7, 1003) for n in range(1100)]"), sizes);
  EXPECT_EQ(printed({"blend", "7", "3", "1", "2.5"}), "(2, 3)\n");
  EXPECT_EQ(printed({"batch_size", "300", "50", "8", "7", "1003"}),
            std::to_string(batch.size_at(300)) + "\n");
}

TEST(RandomNumbersDocumented, WhatIsLeftToChanceInASample) {
  const data::SampleId sample{3, 65536 + 7, (index_t{1} << 40) + 5};
  const auto purpose = data::Draws::Purpose::kept_spans;
  const std::string words = "draws(1234, 3, 65543, 2**40 + 5, 2)";
  data::Draws draws(1234, sample, purpose);
  json expected = json::array();
  for (index_t n = 1; n < 1000; ++n) expected.push_back(draws.below(n * n * 4000));
  EXPECT_EQ(computed("(lambda words: [below(words, n * n * 4000) for n in range(1, "
                     "1000)])(" +
                     words + ")"),
            expected);
  for (const auto& [chosen, of] : {std::pair{27, 482}, {0, 0}, {0, 5}, {5, 5}}) {
    std::vector<std::uint8_t> marks(static_cast<std::size_t>(of));
    data::Draws(1234, sample, purpose).choose(chosen, marks);
    expected = json::array();
    for (int i = 0; i < of; ++i) {
      if (marks[static_cast<std::size_t>(i)] != 0) expected.push_back(i);
    }
    EXPECT_EQ(computed(fmt::format("choose({}, {}, {})", words, chosen, of)), expected);
  }
  EXPECT_EQ(printed({"spans", "1234", "0", "1", "2", "17", "3", "2"}),
            "[(8, 1), (9, 2)]\n");
}

// Of the layers of a model (layout_masks.hpp says how they are read off).
constexpr index_t kMaskSamples = 8;  // of those that there are

// The kept ones of a row of the model, by the bit that is theirs; and what the script
// makes of so many columns of each site of a layer, [sample][position].
std::string row_of(const MaskTable& table, index_t sample, index_t position, int bit) {
  std::string kept;
  for (index_t j = 0; j < table.columns; ++j) {
    kept += (table.at(sample, position, j) & bit) != 0 ? '1' : '0';
  }
  return kept;
}
void expect_rows(const MaskTable& table, int layer, std::initializer_list<int> sites) {
  json expected = json::array();
  std::string expression;
  int bit = 2;
  for (const int site : sites) {
    for (index_t sample = 0; sample < kMaskSamples; ++sample) {
      for (index_t s = 0; s < kSequence; ++s) {
        expected.push_back(row_of(table, sample, s, bit));
      }
    }
    bit *= 2;
    expression += fmt::format(
        "+ [mask({}, {} + n, {}, {}, s, {}, 0.5) for n in range({}) for s in range({})]",
        kMaskSeed, kMaskFirst, layer, site, table.columns, kMaskSamples, kSequence);
  }
  EXPECT_EQ(computed("[] " + expression), expected);
}

// Of a query the keys that it sees: bit k % kMaskBits of column k / kMaskBits of a head.
void expect_keys(const MaskTable& table, int layer, int site, index_t keys,
                 bool is_causal) {
  const index_t head_dim = table.columns / kMaskHeads;
  json expected = json::array();
  for (index_t sample = 0; sample < kMaskSamples; ++sample) {
    for (index_t head = 0; head < kMaskHeads; ++head) {
      for (index_t q = 0; q < kSequence; ++q) {
        std::string seen;
        for (index_t k = 0; k < (is_causal ? q + 1 : keys); ++k) {
          const int column = table.at(sample, q, head * head_dim + k / kMaskBits);
          seen += (column >> k % kMaskBits & 1) != 0 ? '1' : '0';
        }
        expected.push_back(seen);
      }
    }
  }
  EXPECT_EQ(computed(fmt::format(
                "[mask({}, {} + n, {}, {}, a * {} + q, {}, 0.5)[:{}] for n in range({}) "
                "for a in range({}) for q in range({})]",
                kMaskSeed, kMaskFirst, layer, site, kSequence, keys,
                is_causal ? "q + 1" : "None", kMaskSamples, kMaskHeads, kSequence)),
            expected);
}

TEST(RandomNumbersDocumented, Masks) {
  const Masks masks = masks_of_one_rank();
  expect_rows(masks.embedding, 0, {0});
  expect_rows(masks.outputs, kMaskLayer, {2, 3});
  expect_rows(masks.decoder_outputs, kMaskDecoderLayer, {2, 3, 5});
  expect_keys(masks.probabilities, kMaskLayer, 1, kSequence, true);
  expect_keys(masks.cross_probabilities, kMaskDecoderLayer, 4, kMaskSource, false);
  // The worked example of docs/math/dropout.md.
  EXPECT_EQ(printed({"1234", "7", "0", "2", "1", "12", "0.25"}, "dropout_mask.py"),
            "111010111110\n");
}

TEST(RandomNumbersDocumented, Weights) {
  constexpr std::uint64_t kSeed = (std::uint64_t{1} << 62) + 9;
  model::Architecture config = matrix_model(kWide);
  const comm::RankGrid grid(comm::make_self_communicator("world"), {});
  step::ModelState<float> state(grid.groups(), config);
  state.allocate(ParamBuffer<float>::Use::inference);
  state.params.initialize(Exec(), kSeed);
  Kokkos::fence("test");
  struct Matrix {
    std::size_t param;
    std::size_t elements;  // of its first rows
  };
  std::vector<Matrix> matrices;
  std::string expression;
  for (std::size_t p = 0; p < state.registry.size(); ++p) {
    const ParamSpec& spec = state.registry.spec(p);
    const Shape& shape = spec.shard.global_shape;
    if (shape.size() != 2) continue;
    const bool is_output = spec.name.ends_with("attention/projection/weight") ||
                           spec.name.ends_with("mlp/fc2/weight");
    const index_t rows = std::min<index_t>(shape[0], 16);
    matrices.push_back({p, static_cast<std::size_t>(rows * shape[1])});
    expression += fmt::format(
        "[weight({}, '{}', i, j, {}, {} / math.sqrt(2 * {})) for i in range({}) for j in "
        "range({})],",
        kSeed, spec.name, shape[1], config.init_std, is_output ? config.layers : 0.5,
        rows, shape[1]);
  }
  ASSERT_EQ(matrices.size(), 14u);  // two embeddings and four of each layer
  const json found = computed("[" + expression + "]");
  ASSERT_EQ(found.size(), matrices.size());
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    const auto [param, elements] = matrices[m];
    const auto values = Kokkos::create_mirror_view_and_copy(
        Kokkos::HostSpace{}, state.params.slice(Slab::weight, param));
    ASSERT_EQ(found[m].size(), elements);
    std::size_t different = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      if (found[m][i].get<float>() != values(i)) ++different;
    }
    EXPECT_EQ(different, 0u) << state.registry.spec(param).name;
  }
  EXPECT_EQ(std::stof(printed(
                {"weight", "1234", "embedding/word/weight", "3", "5", "60", "2e-2"})),
            -0.0035345742944628f);
}

}  // namespace
}  // namespace trireme::test
