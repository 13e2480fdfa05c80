// Attention over a cache: the definition, for texts of unlike length in any places, on
// odd sizes; the same bits for a text whatever texts are beside it, and with one thread
// and with several. By both ways: a host's, and that of teams, which is a GPU's.
#include "kernels/decode_attention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "kernels/impl/decode_attention.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using Values = std::vector<double>;
using Numbers = std::vector<std::int32_t>;

test::Array<std::int32_t> on_device(const Numbers& numbers) {
  return test::Array<std::int32_t>(Values(numbers.begin(), numbers.end()));
}

constexpr index_t kPlaces = 5, kCapacity = 257;

// Keys and values of all places, and queries of some texts.
template <class T>
struct Problem {
  Problem(const CachedHeads& of, const Numbers& at, const Numbers& of_length)
      : heads(of),
        count(std::ssize(at)),
        places(at),
        lengths(of_length),
        device_places(on_device(at)),
        device_lengths(on_device(of_length)),
        columns(of.kv_heads * of.head_dim),
        width(of.heads * of.head_dim + 2 * columns),
        k(test::uniform(kPlaces * kCapacity * columns, 1)),
        v(test::uniform(kPlaces * kCapacity * columns, 2)),
        qkv(test::uniform(count * width, 3)) {}

  // longest: 0, what it is.
  CachedTexts texts(index_t longest = 0) const {
    return {.count = count,
            .capacity = kCapacity,
            .places = device_places.cvector(),
            .lengths = device_lengths.cvector(),
            .longest = longest > 0 ? longest : std::ranges::max(lengths)};
  }
  // From now on with what keys add by their distance.
  Problem& add_bias() {
    bias = test::Array<Accumulator<T>>(test::uniform(heads.heads * kCapacity, 4, -3, 3));
    has_bias = true;
    return *this;
  }
  View2<const Accumulator<T>> bias_view() const {
    if (!has_bias) return {};
    return bias.cmatrix(heads.heads, kCapacity);
  }
  template <class Function>
  Values run(Function function, const Exec& exec = Exec(), index_t longest = 0) const {
    const index_t out = heads.heads * heads.head_dim;
    const test::Array<T> o(count * out, -7.0);
    const test::Array<Accumulator<T>> scratch(
        decode_attention_scratch_elements(texts(longest), heads), NAN);
    function(exec, texts(longest), heads, qkv.cmatrix(count, width),
             k.cmatrix(kPlaces * kCapacity, columns),
             v.cmatrix(kPlaces * kCapacity, columns), scratch.vector(),
             o.matrix(count, out), bias_view());
    exec.fence("test");
    return o.values();
  }
  Values run(const Exec& exec = Exec()) const { return run(decode_attention<T>, exec); }

  Values expected() const {
    const index_t d = heads.head_dim;
    const Values q = qkv.values(), keys = k.values(), values = v.values();
    const Values added = bias.values();
    Values o(count * heads.heads * d);
    for (index_t text = 0; text < count; ++text) {
      for (index_t head = 0; head < heads.heads; ++head) {
        const index_t kv_head = head / (heads.heads / heads.kv_heads);
        Values p;
        double most = -1e300, total = 0;
        for (index_t j = 0; j < lengths[text]; ++j) {
          const index_t row = places[text] * kCapacity + j;
          double score = 0;
          for (index_t c = 0; c < d; ++c) {
            score +=
                q[text * width + head * d + c] * keys[row * columns + kv_head * d + c];
          }
          p.push_back(heads.scale * score);
          if (has_bias) p.back() += added[head * kCapacity + lengths[text] - 1 - j];
          most = std::max(most, p.back());
        }
        for (double& x : p) total += x = std::exp(x - most);
        for (index_t j = 0; j < lengths[text]; ++j) {
          const index_t row = places[text] * kCapacity + j;
          for (index_t c = 0; c < d; ++c) {
            o[(text * heads.heads + head) * d + c] +=
                p[j] / total * values[row * columns + kv_head * d + c];
          }
        }
      }
    }
    return o;
  }

  CachedHeads heads;
  index_t count;
  Numbers places, lengths;
  test::Array<std::int32_t> device_places, device_lengths;
  index_t columns, width;
  test::Array<T> k, v, qkv;
  test::Array<Accumulator<T>> bias{Values{0.0}};
  bool has_bias = false;
};

template <class T>
class DecodeAttentionOf : public testing::Test {};
using Types = testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(DecodeAttentionOf, Types);

TYPED_TEST(DecodeAttentionOf, MatchesDefinition) {
  using T = TypeParam;
  for (const CachedHeads& heads :
       {CachedHeads{1, 1, 1, 0.7}, CachedHeads{6, 3, 31, 0.2},
        CachedHeads{4, 4, 64, 0.125}, CachedHeads{11, 1, 33, 0.15},
        CachedHeads{3, 3, 80, 0.1}, CachedHeads{4, 2, 96, 0.1},
        CachedHeads{5, 1, 128, 0.09}, CachedHeads{2, 1, 257, 0.05}}) {
    Problem<T> problem(heads, {3, 0, 4, 1, 2}, {1, 257, 64, 65, 33});
    const auto expect_definition = [&](const Values& want) {
      const double bound = test::rounding<T>() + 1e-6;
      test::expect_close(problem.run(), want, bound, 1, "o");
      test::expect_close(problem.run(decode_attention_reference<T>), want, bound, 1,
                         "reference");
      test::expect_close(problem.run(impl::decode_attention_by_teams<T>), want, bound, 1,
                         "by teams");
    };
    const Values plain = problem.expected();
    expect_definition(plain);
    const Values biased = problem.add_bias().expected();
    expect_definition(biased);
    EXPECT_NE(biased, plain);
  }
}

// The bits of no bias at all.
TYPED_TEST(DecodeAttentionOf, ABiasOfZerosChangesNothing) {
  using T = TypeParam;
  Problem<T> problem({6, 3, 31, 0.2}, {3, 0, 4}, {31, 200, 64});
  const std::vector<decltype(&decode_attention<T>)> ways = {
      decode_attention<T>, decode_attention_reference<T>,
      impl::decode_attention_by_teams<T>};
  std::vector<Values> without;
  for (const auto way : ways) without.push_back(problem.run(way));
  problem.add_bias().bias.set(Values(6 * kCapacity, 0.0));
  for (std::size_t i = 0; i < ways.size(); ++i) {
    EXPECT_EQ(problem.run(ways[i]), without[i]) << i;
  }
}

// A text that is passed over, and one whose launch has room for more keys than it has,
// which is how a step is launched that is the same for every token.
TYPED_TEST(DecodeAttentionOf, LengthsAreReadFromMemory) {
  using T = TypeParam;
  const CachedHeads heads{4, 2, 40, 0.2};
  const Problem<T> problem(heads, {3, 0, 4}, {31, 0, 65});
  const Values want = problem.run();
  const std::vector<decltype(&decode_attention<T>)> ways = {
      decode_attention<T>, decode_attention_reference<T>,
      impl::decode_attention_by_teams<T>};
  for (const auto way : ways) {
    const Values got = problem.run(way), roomy = problem.run(way, Exec(), kCapacity);
    EXPECT_EQ(got, roomy);
    EXPECT_EQ(Values(got.begin() + 160, got.begin() + 320), Values(160, 0.0));
    test::expect_close(got, want, 2 * test::rounding<T>() + 1e-6, 1, "o");
  }
}

TYPED_TEST(DecodeAttentionOf, ATextHasTheBitsThatItHasAlone) {
  using T = TypeParam;
  const CachedHeads heads{6, 2, 33, 0.2};
  const Problem<T> all =
      Problem<T>(heads, {3, 0, 4, 1, 2}, {31, 200, 64, 65, 129}).add_bias();
  const Values queries = all.qkv.values();
  const auto out = static_cast<std::size_t>(heads.heads * heads.head_dim);
  for (const auto way : {decode_attention<T>, impl::decode_attention_by_teams<T>}) {
    const Values together = all.run(way);
    for (std::size_t i = 0; i < 5; ++i) {
      Problem<T> alone(heads, Numbers{all.places[i]}, Numbers{all.lengths[i]});
      alone.qkv = test::Array<T>(
          Values(queries.begin() + i * all.width, queries.begin() + (i + 1) * all.width));
      EXPECT_EQ(alone.add_bias().run(way),
                Values(together.begin() + i * out, together.begin() + (i + 1) * out))
          << i;
    }
  }
}

// A rank of a tensor group has some of the heads: theirs are the same numbers.
TYPED_TEST(DecodeAttentionOf, AHeadHasTheBitsThatItHasAlone) {
  using T = TypeParam;
  const Problem<T> all({4, 2, 32, 0.2}, {1}, {130});
  Problem<T> half({2, 1, 32, 0.2}, {1}, {130});
  const auto slice = [](const test::Array<T>& from, index_t rows, index_t from_width,
                        std::vector<index_t> columns) {
    const Values all_values = from.values();
    Values some;
    for (index_t r = 0; r < rows; ++r) {
      for (const index_t c : columns) {
        for (index_t j = 0; j < 32; ++j)
          some.push_back(all_values[r * from_width + c + j]);
      }
    }
    return test::Array<T>(some);
  };
  half.k = slice(all.k, kPlaces * kCapacity, all.columns, {32});
  half.v = slice(all.v, kPlaces * kCapacity, all.columns, {32});
  half.qkv = slice(all.qkv, 1, all.width, {64, 96, 160, 224});
  for (const auto way : {decode_attention<T>, impl::decode_attention_by_teams<T>}) {
    const Values together = all.run(way);
    EXPECT_EQ(half.run(way), Values(together.begin() + 64, together.end()));
  }
}

TYPED_TEST(DecodeAttentionOf, ThreadsDoNotChangeBits) {
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "there is one thread only";
  const Problem<TypeParam> problem({6, 2, 33, 0.2}, {3, 0, 4}, {257, 200, 65});
  EXPECT_EQ(problem.run(one.exec), problem.run());
  const auto by_teams = impl::decode_attention_by_teams<TypeParam>;
  EXPECT_EQ(problem.run(by_teams, one.exec), problem.run(by_teams));
}

// Scores far apart: the largest is in the last tile, and what is left of the others is 0.
TEST(DecodeAttentionExtremes, ScoresFarApart) {
  Problem<float> problem({1, 1, 32, 1.0}, {0}, {200});
  Values keys = problem.k.values(), queries(problem.width, 1.0);
  for (index_t j = 0; j < 200; ++j) {
    for (index_t c = 0; c < 32; ++c) keys[j * 32 + c] = 1e3 * static_cast<double>(j);
  }
  problem.k = test::Array<float>(keys);
  problem.qkv = test::Array<float>(queries);
  const Values values = problem.v.values();
  const Values want(values.begin() + 199 * 32, values.begin() + 200 * 32);
  EXPECT_EQ(problem.run(), want);
  EXPECT_EQ(problem.run(impl::decode_attention_by_teams<float>), want);
}

TEST(DecodeAttentionAppend, GoesBehindThePositionsOfEachText) {
  constexpr index_t kColumns = 3, kWidth = 8;
  const auto places = on_device({2, 0}), lengths = on_device({4, 1});
  const test::Array<float> qkv(test::uniform(2 * kWidth, 1)), k(3 * 5 * kColumns, 0.0),
      v(3 * 5 * kColumns, 0.0);
  const CachedTexts texts{.count = 2,
                          .capacity = 5,
                          .places = places.cvector(),
                          .lengths = lengths.cvector(),
                          .longest = 4};
  append_to_cache<float>(Exec(), texts, qkv.cmatrix(2, kWidth), 2, k.matrix(15, kColumns),
                         v.matrix(15, kColumns));
  Exec().fence("test");
  Values want_k(45, 0.0), want_v(45, 0.0);
  const Values from = qkv.values();
  for (index_t c = 0; c < kColumns; ++c) {
    want_k[(2 * 5 + 3) * kColumns + c] = from[2 + c];
    want_v[(2 * 5 + 3) * kColumns + c] = from[5 + c];
    want_k[c] = from[kWidth + 2 + c];
    want_v[c] = from[kWidth + 5 + c];
  }
  EXPECT_EQ(k.values(), want_k);
  EXPECT_EQ(v.values(), want_v);
  // A text that is passed over leaves its place as it is.
  const auto none = on_device({0, 0});
  CachedTexts passed_over = texts;
  passed_over.lengths = none.cvector();
  append_to_cache<float>(Exec(), passed_over, qkv.cmatrix(2, kWidth), 1,
                         k.matrix(15, kColumns), v.matrix(15, kColumns));
  EXPECT_EQ(k.values(), want_k);
  EXPECT_EQ(v.values(), want_v);
  // Two positions of two texts of one length, in places 1 and 2.
  const test::Array<float> more(test::uniform(4 * kWidth, 2));
  append_to_cache<float>(
      Exec(), {.count = 2, .capacity = 5, .first_place = 1, .longest = 3},
      more.cmatrix(4, kWidth), 2, k.matrix(15, kColumns), v.matrix(15, kColumns));
  Exec().fence("test");
  const Values rows = more.values();
  for (index_t row = 0; row < 4; ++row) {
    const index_t to = (1 + row % 2) * 5 + 1 + row / 2;
    EXPECT_EQ(k.values()[to * kColumns], rows[row * kWidth + 2]) << row;
    EXPECT_EQ(v.values()[to * kColumns + 2], rows[row * kWidth + 7]) << row;
  }
}

// 2 texts of up to 7 positions, 3 heads of 5 in 1 of keys: each of two products is
// 2 * (2 * 3 * 7) * 5 = 420 FLOPs. 70 elements in each of k and v, 30 in each of q and o.
TEST(DecodeAttentionCosts, AreThoseOfKeysValuesAndQueries) {
  if constexpr (!kHostExecution) GTEST_SKIP() << "a GPU's tiles have other labels";
  Tally tally;
  const Exec exec = Exec::shape_only(tally);
  const CachedTexts texts{.count = 2, .capacity = 9, .longest = 7};
  const CachedHeads heads{3, 1, 5, 1.0};
  const auto of = [](index_t rows, index_t columns) {
    return View2<bf16>(nullptr, extent(rows), extent(columns));
  };
  const View1<float> scratch(nullptr,
                             extent(decode_attention_scratch_elements(texts, heads)));
  decode_attention<bf16>(exec, texts, heads, of(2, 25), of(18, 5), of(18, 5), scratch,
                         of(2, 15));
  const KernelTally found = tally.kernel("trireme::kernels::decode_attention");
  EXPECT_EQ(found.calls, 1);
  EXPECT_EQ(found.cost.flops, 840);
  EXPECT_EQ(found.cost.bytes, 2 * (2 * 70 + 2 * 30));
  append_to_cache<bf16>(exec, texts, of(2, 25), 15, of(18, 5), of(18, 5));
  // 2 rows of 5 keys and 5 values, read and written.
  EXPECT_EQ(tally.kernel("trireme::kernels::append_to_cache").cost.bytes, 2 * 2 * 20);
}

TEST(DecodeAttentionErrors, AreNamed) {
  const Problem<float> problem({2, 2, 8, 1.0}, {0}, {3});
  const auto message_of = [&](const CachedTexts& texts, const CachedHeads& heads,
                              std::size_t room = 1000,
                              const View2<const float>& bias = {}) {
    const test::Array<float> o(16), scratch(room);
    try {
      decode_attention<float>(Exec(), texts, heads, problem.qkv.cmatrix(1, problem.width),
                              problem.k.cmatrix(kPlaces * kCapacity, 16),
                              problem.v.cmatrix(kPlaces * kCapacity, 16),
                              scratch.vector(), o.matrix(1, 16), bias);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(message_of(problem.texts(), {3, 2, 8, 1.0}),
              testing::HasSubstr("3 query heads share 2 key heads"));
  CachedTexts long_texts = problem.texts();
  long_texts.longest = kCapacity + 1;
  EXPECT_THAT(message_of(long_texts, problem.heads),
              testing::HasSubstr("texts of up to 258 positions in a cache for 257"));
  EXPECT_THAT(message_of(problem.texts(), problem.heads, 19),
              testing::HasSubstr("scratch of 19 elements, 20 are needed"));
  const test::Array<float> short_bias(2 * 2);
  EXPECT_THAT(message_of(problem.texts(), problem.heads, 1000, short_bias.cmatrix(2, 2)),
              testing::HasSubstr("a bias of 2 distances for texts of up to 3 positions"));
}

}  // namespace
}  // namespace trireme::kernels
