// The walk over tiles of attention on a host (kernels/impl/attention_tiles.hpp) computes
// the pairs of tiles in which some query sees some key, each once, and no others:
// padding, other documents and the future cost nothing beyond the tile that they begin
// in. Results do not tell, as a pair that nobody sees adds zeros. So the walk is given an
// Engine that computes nothing and writes down what it is asked for, and that is compared
// with a count from the definition of the masks, query by query and key by key.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "kernels/impl/attention_tiles.hpp"

namespace trireme::kernels::impl {
namespace {

using Lengths = std::vector<std::int32_t>;

// A problem as a person would say it: the masks' fields are made of it.
struct MaskedTexts {
  std::string name;
  MaskKind mask;
  index_t queries, keys;  // per sample
  index_t batch;
  Lengths real_queries = {};            // per sample; none: all of them
  Lengths real_keys = {};               // of the padding mask
  std::vector<Lengths> documents = {};  // per sample, which together have all keys

  static constexpr index_t kHeads = 4, kKeyHeads = 2;

  index_t document_of(index_t sample, index_t position) const {
    index_t end = 0, number = 0;
    for (const std::int32_t length : documents[static_cast<std::size_t>(sample)]) {
      end += length;
      if (position < end) break;
      ++number;
    }
    return number;
  }
  bool is_real_query(index_t sample, index_t q) const {
    return real_queries.empty() || q < real_queries[static_cast<std::size_t>(sample)];
  }
  // The definition.
  bool sees(index_t sample, index_t q, index_t k) const {
    if (!is_real_query(sample, q)) return false;
    const index_t position = q + keys - queries;
    const auto is_one_document = [&] {
      return document_of(sample, k) == document_of(sample, position);
    };
    switch (mask) {
      case MaskKind::causal:
        return k <= position;
      case MaskKind::padding:
        return k < real_keys[static_cast<std::size_t>(sample)];
      case MaskKind::document:
        return k <= position && is_one_document();
      case MaskKind::segment:
        return is_one_document();
      case MaskKind::none:
        break;
    }
    return true;
  }
};

// Text up to a place and padding behind it; lengths at the borders of tiles, of chunks of
// eight tiles, and none at all.
const std::vector<MaskedTexts>& masked_texts() {
  using enum MaskKind;
  static const std::vector<MaskedTexts> all = {
      {"all keys", none, 200, 700, 1},
      {"padding",
       padding,
       640,
       640,
       6,
       {640, 320, 64, 65, 1, 0},
       {640, 320, 64, 65, 1, 0}},
      {"padding of queries", none, 300, 300, 3, {300, 128, 129}},
      {"padding of keys", padding, 130, 600, 4, {}, {600, 512, 513, 0}},
      {"cross attention", padding, 200, 600, 3, {200, 70, 0}, {64, 600, 600}},
      {"causal", causal, 600, 600, 1},
      {"causal with padding", causal, 600, 600, 4, {600, 300, 128, 0}},
      {"cached keys", causal, 100, 700, 2, {100, 36}},
      {"documents", document, 640, 640, 2, {}, {}, {{64, 1, 63, 512}, {200, 3, 437}}},
      {"documents with padding",
       document,
       640,
       640,
       2,
       {400, 130},
       {},
       {{100, 28, 272, 240}, {65, 65, 510}}},
      {"segments", segment, 640, 640, 2, {}, {}, {{64, 1, 63, 512}, {200, 3, 437}}},
      {"segments with padding",
       segment,
       640,
       640,
       2,
       {400, 130},
       {},
       {{100, 28, 272, 240}, {65, 65, 510}}},
  };
  return all;
}

// What kernels are given of it.
struct MaskFields {
  Lengths begins, ends;
  AttentionDesc desc;

  explicit MaskFields(const MaskedTexts& texts) {
    desc.batch = texts.batch;
    desc.q_length = texts.queries;
    desc.kv_length = texts.keys;
    desc.heads = MaskedTexts::kHeads;
    desc.kv_heads = MaskedTexts::kKeyHeads;
    desc.mask = texts.mask;
    if (!texts.real_queries.empty()) desc.query_lengths = texts.real_queries.data();
    if (!texts.real_keys.empty()) desc.key_lengths = texts.real_keys.data();
    if (texts.documents.empty()) return;
    for (index_t q = 0; q < texts.queries; ++q) {
      for (index_t sample = 0; sample < texts.batch; ++sample) add(texts, sample, q);
    }
    desc.document_begins = begins.data();
    if (texts.mask == MaskKind::segment) desc.document_ends = ends.data();
  }
  MaskFields(const MaskFields&) = delete;
  MaskFields& operator=(const MaskFields&) = delete;

 private:
  void add(const MaskedTexts& texts, index_t sample, index_t q) {
    // What a field says of padding is of no account.
    std::int32_t begin = -7, end = 1 << 20;
    if (texts.is_real_query(sample, q)) {
      const Lengths& lengths = texts.documents[static_cast<std::size_t>(sample)];
      const index_t number = texts.document_of(sample, q + texts.keys - texts.queries);
      begin = std::accumulate(lengths.begin(), lengths.begin() + number, 0);
      end = begin + lengths[static_cast<std::size_t>(number)];
    }
    begins.push_back(begin);
    ends.push_back(end);
  }
};

// A sample, a head, and a tile of queries, of keys, or of both.
using TileOfHead = std::array<index_t, 3>;
using PairOfTiles = std::array<index_t, 4>;

// What a walk has asked for, from any thread.
struct AskedFor {
  std::mutex mutex;
  index_t batch, heads, key_heads;
  const float *q, *k;  // elements (position, sample, head)
  std::map<PairOfTiles, int> pairs;
  std::set<TileOfHead> query_tiles, key_tiles;

  void pair(const TileOfHead& queries, const TileOfHead& keys) {
    EXPECT_EQ(keys[0], queries[0]);
    EXPECT_EQ(keys[1], queries[1] / (heads / key_heads));
    const std::lock_guard lock(mutex);
    ++pairs[{queries[0], queries[1], queries[2], keys[2]}];
  }
  TileOfHead queries_at(const float* row) {
    return add(query_tiles, tile_at(row - q, heads));
  }
  TileOfHead keys_at(const float* row) {
    return add(key_tiles, tile_at(row - k, key_heads));
  }

 private:
  TileOfHead tile_at(index_t element, index_t of_heads) const {
    const index_t position = element / of_heads / batch;
    EXPECT_EQ(position % kTile, 0);
    return {element / of_heads % batch, element % of_heads, position / kTile};
  }
  TileOfHead add(std::set<TileOfHead>& to, const TileOfHead& tile) {
    const std::lock_guard lock(mutex);
    to.insert(tile);
    return tile;
  }
};

// The Engine: packed tiles are their names, and sums are nothing.
struct NotedTiles {
  using Element = float;
  struct Session {};
  static constexpr const int (&kWordOrder)[kTile] = kInOrder;
  static inline AskedFor* asked = nullptr;

  static constexpr std::size_t kBytes = 64;
  static_assert(sizeof(TileOfHead) <= kBytes);
  static int depth(int d) { return d; }
  static float bias_factor(double) { return 1.0f; }
  static std::size_t forward_key_bytes(int) { return kBytes; }
  static std::size_t forward_query_bytes(int) { return kBytes; }
  static std::size_t forward_work_bytes(int) { return kBytes; }
  static std::size_t backward_key_bytes(int) { return kBytes; }
  static std::size_t backward_query_bytes(int) { return kBytes; }
  static std::size_t backward_work_bytes(int) { return kBytes; }
  static std::size_t key_sum_bytes(int) { return kBytes; }

  static void put(const TileOfHead& tile, std::byte* to) {
    std::memcpy(to, &tile, sizeof(tile));
  }
  static TileOfHead get(const std::byte* from) {
    TileOfHead tile;
    std::memcpy(&tile, from, sizeof(tile));
    return tile;
  }
  static void note(const TilePair& pair, const std::byte* keys,
                   const std::byte* queries) {
    EXPECT_EQ(pair.k_begin, get(keys)[2] * kTile);
    asked->pair(get(queries), get(keys));
  }

  static void load_forward_keys(const Rows<const float>& k, const Rows<const float>&, int,
                                int, std::byte* to) {
    put(asked->keys_at(k.row(0)), to);
  }
  static void begin_forward(const Rows<const float>& q, int, int, double, std::byte* to) {
    put(asked->queries_at(q.row(0)), to);
  }
  static void forward_tile(const TilePair& pair, int, double, const std::byte* keys,
                           std::byte* queries, std::byte*) {
    note(pair, keys, queries);
  }
  static void end_forward(std::byte*, int, int, double, float, const Rows<float>&,
                          float*) {}

  static void load_backward_keys(const Rows<const float>& k, const Rows<const float>& v,
                                 int rows, int d, std::byte* to) {
    load_forward_keys(k, v, rows, d, to);
  }
  static void begin_backward(const Rows<const float>& q, const Rows<const float>&,
                             int rows, int d, double scale, const float*, const float*,
                             std::byte* to) {
    begin_forward(q, rows, d, scale, to);
  }
  template <bool keys_wanted, bool queries_wanted>
  static void backward_tile(const TilePair& pair, int, double, const std::byte* keys,
                            std::byte* queries, std::byte*, float*, std::byte*) {
    note(pair, keys, queries);
  }
  static void store_key_sums(const std::byte*, int, int, double, float,
                             const Rows<float>&, const Rows<float>&) {}
  static void store_d_q(const float*, int, int, double, const Rows<float>&) {}
};

// What must be visited, and no more.
struct Needed {
  std::set<PairOfTiles> pairs;
  std::set<TileOfHead> query_tiles, key_tiles;

  explicit Needed(const MaskedTexts& texts) {
    for (index_t sample = 0; sample < texts.batch; ++sample) {
      for (index_t q = 0; q * kTile < texts.queries; ++q) {
        for (index_t k = 0; k * kTile < texts.keys; ++k) {
          if (is_needed(texts, sample, q, k)) add(sample, q, k);
        }
      }
    }
  }

 private:
  static bool is_needed(const MaskedTexts& texts, index_t sample, index_t q_tile,
                        index_t k_tile) {
    const index_t q_end = std::min((q_tile + 1) * kTile, texts.queries);
    const index_t k_end = std::min((k_tile + 1) * kTile, texts.keys);
    for (index_t q = q_tile * kTile; q < q_end; ++q) {
      for (index_t k = k_tile * kTile; k < k_end; ++k) {
        if (texts.sees(sample, q, k)) return true;
      }
    }
    return false;
  }
  void add(index_t sample, index_t q_tile, index_t k_tile) {
    constexpr index_t kGroup = MaskedTexts::kHeads / MaskedTexts::kKeyHeads;
    for (index_t head = 0; head < MaskedTexts::kHeads; ++head) {
      pairs.insert({sample, head, q_tile, k_tile});
      query_tiles.insert({sample, head, q_tile});
      key_tiles.insert({sample, head / kGroup, k_tile});
    }
  }
};

// Of queries [first, last] of a sample.
KeyRange union_of_seen(const MaskedTexts& texts, index_t sample, index_t first,
                       index_t last) {
  KeyRange seen{texts.keys, 0};
  for (index_t q = first; q <= last; ++q) {
    for (index_t k = 0; k < texts.keys; ++k) {
      if (!texts.sees(sample, q, k)) continue;
      seen = {std::min(seen.begin, k), std::max(seen.end, k + 1)};
    }
  }
  return seen;
}

// Operands that nobody looks into, and memory for zeros.
class TileWalk {
 public:
  explicit TileWalk(const MaskedTexts& texts)
      : fields_(texts),
        q_(size(texts.queries, MaskedTexts::kHeads)),
        k_(size(texts.keys, MaskedTexts::kKeyHeads)),
        zeros_(q_.size()),
        sums_(size(texts.queries + kTile, MaskedTexts::kHeads)) {}

  void forward() {
    begin();
    ForwardArguments<float> in{};
    in.desc = fields_.desc;
    in.q = view<const float>(q_, MaskedTexts::kHeads);
    in.k = in.v = view<const float>(k_, MaskedTexts::kKeyHeads);
    in.o = view<float>(zeros_, MaskedTexts::kHeads);
    in.lse = rows_.data();
    launch_forward<NotedTiles>(Exec(), Kernel("tests::visited_tiles"), in);
  }
  void backward(BackwardLaunches launches) {
    begin();
    const Exec exec;
    set_backward_launches(exec, launches);
    BackwardArguments<float> in{};
    in.desc = fields_.desc;
    in.q = in.o = in.d_o = view<const float>(q_, MaskedTexts::kHeads);
    in.k = in.v = view<const float>(k_, MaskedTexts::kKeyHeads);
    in.lse = in.delta = rows_.data();
    in.d_q_sum = sums_.data();
    in.d_q = view<float>(zeros_, MaskedTexts::kHeads);
    in.d_k = in.d_v = view<float>(k_, MaskedTexts::kKeyHeads);
    const Kernel kernel("tests::visited_tiles");
    launch_backward<NotedTiles>(exec, {kernel, kernel, kernel, kernel}, in);
  }
  // Each of these pairs so often, and what is packed for them alone.
  void expect(const Needed& needed, int times) const {
    std::set<PairOfTiles> pairs;
    for (const auto& [pair, count] : asked_->pairs) {
      pairs.insert(pair);
      EXPECT_EQ(count, times) << ::testing::PrintToString(pair);
    }
    EXPECT_EQ(pairs, needed.pairs);
    EXPECT_EQ(asked_->query_tiles, needed.query_tiles);
    EXPECT_EQ(asked_->key_tiles, needed.key_tiles);
  }

 private:
  std::size_t size(index_t positions, index_t heads) const {
    return static_cast<std::size_t>(positions * fields_.desc.batch * heads);
  }
  template <class T>
  HeadsView<T> view(std::vector<float>& elements, index_t heads) const {
    return {elements.data(), fields_.desc.batch * heads, heads};
  }
  void begin() {
    rows_.assign(q_.size(), 0.0f);
    const AttentionDesc& desc = fields_.desc;
    asked_ = std::make_unique<AskedFor>();
    asked_->batch = desc.batch;
    asked_->heads = desc.heads;
    asked_->key_heads = desc.kv_heads;
    asked_->q = q_.data();
    asked_->k = k_.data();
    NotedTiles::asked = asked_.get();
  }

  MaskFields fields_;
  std::vector<float> q_, k_, zeros_, sums_, rows_;
  std::unique_ptr<AskedFor> asked_;
};

TEST(VisitedTiles, ForwardAreThoseInWhichSomeQuerySeesSomeKey) {
  for (const MaskedTexts& texts : masked_texts()) {
    SCOPED_TRACE(texts.name);
    TileWalk walk(texts);
    walk.forward();
    walk.expect(Needed(texts), 1);
  }
}

// Of two launches each has all of them.
TEST(VisitedTiles, BackwardAreThoseOfTheForwardPass) {
  for (const MaskedTexts& texts : masked_texts()) {
    SCOPED_TRACE(texts.name);
    const Needed needed(texts);
    TileWalk walk(texts);
    walk.backward(BackwardLaunches::one);
    walk.expect(needed, 1);
    walk.backward(BackwardLaunches::two);
    walk.expect(needed, 2);
  }
}

// What docs/math/attention.md says: half of the queries, and half of the keys.
TEST(VisitedTiles, OfHalfPaddingAreAQuarter) {
  const MaskedTexts whole{"whole", MaskKind::none, 512, 512, 2};
  const MaskedTexts half{"half", MaskKind::padding, 512, 512, 2, {256, 256}, {256, 256}};
  for (const MaskedTexts& texts : {whole, half}) {
    SCOPED_TRACE(texts.name);
    TileWalk walk(texts);
    walk.forward();
    walk.expect(Needed(texts), 1);
    walk.backward(BackwardLaunches::one);
    walk.expect(Needed(texts), 1);
  }
  EXPECT_EQ(Needed(whole).pairs.size(), 2u * MaskedTexts::kHeads * 8 * 8);
  EXPECT_EQ(4 * Needed(half).pairs.size(), Needed(whole).pairs.size());
}

// The ranges that all walks go by, that of kernels/attention.cpp too: from the first key
// that some query of a tile sees to the last one. A tile has 64 queries, or half as many;
// on a GPU 128 too, whose visits test_cuda_attention.cpp counts.
TEST(VisitedTiles, RangesAreThoseOfTheirQueries) {
  for (const MaskedTexts& texts : masked_texts()) {
    const MaskFields fields(texts);
    for (const index_t rows : {index_t{kTile / 2}, index_t{kTile}, index_t{2 * kTile}}) {
      for (index_t first = 0; first < texts.queries; first += rows) {
        const index_t last = std::min(first + rows, texts.queries) - 1;
        for (index_t sample = 0; sample < texts.batch; ++sample) {
          SCOPED_TRACE(fmt::format("{}: {} of sample {}", texts.name, first, sample));
          const KeyRange wanted = union_of_seen(texts, sample, first, last);
          const KeyRange seen = visible_keys(fields.desc, sample, first, last);
          ASSERT_EQ(seen.is_empty(), wanted.is_empty());
          if (wanted.is_empty()) continue;
          ASSERT_EQ(seen.begin, wanted.begin);
          ASSERT_EQ(seen.end, wanted.end);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::kernels::impl
