// kernels/cuda/decode_layers.hpp — all layers of a step of generation in one launch, of
// 16-bit elements: for kernels/decode_layers.hpp.
//
// A token of one text is so little work that a kernel for each product is done before
// the next one has begun to read its weights. Here a block is on every multiprocessor
// from the first layer to the last, has some rows of every matrix, and is never without
// copies of weights under way: those of the next products arrive in its shared memory
// while it waits for the numbers that they are multiplied with. A warp copies just what
// it will multiply itself, so that no other one has to be told of its arrival.
//
// What a product makes, all blocks need for the next one. A number that one block hands
// on to others lies in one word with a mark, the number of its layer: who finds the mark
// has the number, and asks again where it is not there yet. There are no barriers of the
// grid, and no fences. Words are cleared before they are used again: a launch uses one of
// two sets, and clears the other one.
//
// A word of a layer is written anew in the next one, when all blocks have read it: the
// next layer begins with sums over what every block has made last, and every block has
// rows of every matrix. All blocks have to be on the device at once.
//
// Products are tensor cores', with rows of a matrix as rows of a tile and texts as its
// columns, so that up to four texts cost as much as one. A warp adds up a range of the
// columns of a matrix in their order, and a thread the ranges; attention keeps a largest
// score and sums of each warp, which one thread puts together, and so do those of 256
// keys each. No order depends on what other texts are there. Products that are added are
// written as fused, which leaves the compiler no choice: a text has the same bits alone
// and beside others.
#ifndef TRIREME_KERNELS_CUDA_DECODE_LAYERS_HPP_
#define TRIREME_KERNELS_CUDA_DECODE_LAYERS_HPP_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/warp.hpp"
#include "kernels/cuda/weight_ring.hpp"

namespace trireme::cuda {

// kCopies: how weights come (weight_ring.hpp). kDepth: chunks of a warp whose copies are
// under way. kHeadElements: of a head, at most.
//
// A multiprocessor has room for few instructions, and a layer goes through all of these
// once: what is written out only once, and not unrolled, is there when its turn comes.
template <Element kElement, int kRows, int kDepth, int kHeadElements,
          WeightCopies kCopies>
struct DecodeLayers {
  static constexpr int kThreads = kDecodeThreads;
  static constexpr int kWarps = kThreads / kWarpLanes;
  // A product of tensor cores: rows of a matrix, and of x as its columns.
  static constexpr int kTileRows = kChunkRows, kTexts = 8;
  static constexpr int kChunk = kChunkColumns;
  static constexpr int kPadding = kOfQuad;  // of rows of x: they begin in other banks
  static constexpr int kMatrices = kMatricesOfLayer;
  static constexpr float kNothing = -INFINITY;
  static constexpr int kRowThreads = kThreads / kRows;  // that take a row of x
  // Warps that make the norm of a row.
  static constexpr int kNormWarps = 4, kNormThreads = kNormWarps * kWarpLanes;

  // Of attention: keys of a head that a block has at a time, four of them in a turn of
  // each warp, or two of large heads: a lane has eight columns.
  static constexpr int kKeys = kDecodeKeys;
  static constexpr int kLanesOfKey = kHeadElements / kOfQuad;
  static constexpr int kKeysOfWarp = kWarpLanes / kLanesOfKey;
  static constexpr int kKeysApart = kWarps * kKeysOfWarp, kKeyTurns = kKeys / kKeysApart;
  // Whether a thread has registers for values beside keys.
  static constexpr bool kHoldsValues = kHeadElements <= 64;

  static int shared_bytes(const DecodeLayersTask& task) {
    return static_cast<int>(sizeof(Fixed)) + kMostSkipped +
           task.layer_count * static_cast<int>(sizeof(DecodeLayer)) +
           2 * kRows * (widest(task) + 3 * task.hidden + 2 * kPadding);
  }
  TRIREME_HOST_DEVICE static constexpr int widest(const DecodeLayersTask& task) {
    const int attended = task.heads * task.head_dim;
    return attended > task.ffn ? attended : task.ffn;
  }

  TRIREME_DEVICE static void block(const DecodeLayersTask& task) {
    DecodeLayers of(task);
    of.run();
  }

 private:
  enum Matrix { qkv, projection, fc1, fc2 };  // in this order

  using Ring = WeightRing<kCopies, kDepth, kWarps>;
  // Of shared memory, which begins at a multiple of 16 bytes.
  static constexpr int kMostSkipped = Ring::kAlignment > 16 ? Ring::kAlignment : 0;

  // The block's rows of a matrix, as tiles of so many rows, whose chunks of columns are
  // dealt to `splits` warps, a range each; and where what is made of them goes.
  struct Part {
    int begin, end, columns;
    int tiles, tile_rows, splits;
    int words, words_of_row;
  };
  // What a warp has of a matrix: rows of a tile, and chunks of their columns.
  struct alignas(16) Share {
    int row, rows, column, chunks;
  };
  struct Sums {
    float sum, squares;
  };
  struct Moments {
    float shift, center, variance;
    TRIREME_DEVICE bool is_lost() const { return shift * shift > 16.0f * variance; }
  };
  // Shared memory whose size does not depend on the model.
  struct alignas(Ring::kAlignment) Fixed {
    typename Ring::Slots slots;
    Quad zeros;
    float sums_of_warps[kWarps][kTileRows][kRows];
    float outputs[kWarps][kHeadElements];
    float maxima[kWarps], totals[kWarps];
    Sums sums[2][kRows][kNormWarps];
    std::int64_t first_rows[kRows];  // of the texts in the cache
    int lengths[kRows];
    Part parts[kMatrices];
    Share shares[kMatrices][kWarps];
    std::uint32_t per_head;  // 2^32 / head_dim, rounded up
    std::uint16_t biases[2][kDecodeOutRows];
  };
  TRIREME_DEVICE explicit DecodeLayers(const DecodeLayersTask& of)
      : task(of),
        fixed(*reinterpret_cast<Fixed*>(begin_of_shared())),
        thread(thread_index()),
        warp(thread_index() / kWarpLanes),
        lane(thread_index() % kWarpLanes) {
    layers = reinterpret_cast<DecodeLayer*>(begin_of_shared() + sizeof(Fixed));
    normed = reinterpret_cast<std::uint16_t*>(layers + task.layer_count);
    residuals = normed + kRows * (task.hidden + kPadding);
    wide = residuals + 2 * kRows * task.hidden;
  }
  TRIREME_DEVICE static std::byte* begin_of_shared() {
    if constexpr (kMostSkipped == 0) {
      return shared_memory();
    } else {
      constexpr auto kLast = static_cast<std::uint32_t>(Ring::kAlignment - 1);
      return shared_memory() +
             ((kLast + 1 - (shared_address(shared_memory()) & kLast)) & kLast);
    }
  }
  // By as many threads as there are facts: one would divide for as long as a layer takes.
  TRIREME_DEVICE void find_facts() {
    static_assert(kMatrices * kWarps + kRows < kThreads && kRows <= kWarpLanes);
    if (thread < kMatrices) find_part(thread);
    if (thread == kThreads - 1) {
      fixed.per_head = 0xffffffffu / static_cast<unsigned>(task.head_dim) + 1;
      fixed.zeros = {};
    }
    const int r = thread - kMatrices * kWarps;
    if (r >= 0 && r < kRows) {
      const bool exists = r < task.rows;
      fixed.lengths[r] = !exists                   ? 0
                         : task.lengths == nullptr ? task.longest
                                                   : task.lengths[r];
      const int place =
          exists && task.places != nullptr ? task.places[r] : task.first_place + r;
      fixed.first_rows[r] = static_cast<std::int64_t>(task.capacity) * place;
    }
    sync_block();
    if (thread < kMatrices * kWarps) find_share(thread / kWarps, thread % kWarps);
  }
  TRIREME_DEVICE void find_part(int m) const {
    const auto [rows, columns] = size_of(task, m);
    const int begin = share(rows, block_index());
    const int end = share(rows, block_index() + 1);
    const int tiles = (end - begin + kTileRows - 1) / kTileRows;
    const int of_tile = (end - begin + tiles - 1) / tiles;
    constexpr int kTogether = Ring::kRowsTogether;
    const auto at = static_cast<int>((m == qkv          ? qkv_words(0)
                                      : m == projection ? middle_words(0)
                                      : m == fc1        ? activation_words(0)
                                                        : output_words(0)) -
                                     words);
    fixed.parts[m] = {begin,
                      end,
                      columns,
                      tiles,
                      (of_tile + kTogether - 1) / kTogether * kTogether,
                      kWarps / tiles,
                      at,
                      rows};
  }
  TRIREME_DEVICE void find_share(int matrix, int w) const {
    const Part& part = fixed.parts[matrix];
    const int chunks = (part.columns + kChunk - 1) / kChunk;
    const int row = w / part.splits * part.tile_rows, split = w % part.splits;
    const int left = part.end - part.begin - row;
    const int chunk = split * chunks / part.splits;
    const int rows = left < part.tile_rows ? left : part.tile_rows;
    const bool has_any = w / part.splits < part.tiles && left > 0;
    fixed.shares[matrix][w] = {row, has_any ? rows : 0, chunk * kChunk,
                               (split + 1) * chunks / part.splits - chunk};
  }
  // Of 32 bits: a block has kDecodeOutRows rows at most, and there are some hundred.
  TRIREME_DEVICE int share(int rows, int index) const {
    return rows * index / task.blocks;
  }

  TRIREME_DEVICE void run() {
    const std::int32_t turn = *task.turn;
    // The layers' pointers.
    const auto* const from = reinterpret_cast<const Quad*>(task.layers);
    const int quads = task.layer_count * static_cast<int>(sizeof(DecodeLayer) / 16);
    TRIREME_ONE_BY_ONE
    for (int i = thread; i < quads; i += kThreads) {
      reinterpret_cast<Quad*>(layers)[i] = from[i];
    }
    words = task.words + turn * words_of_set(task);
    Ring::begin(task, fixed.slots, thread);
    find_facts();
    sync_block();
    find_chunks();
    TRIREME_ONE_BY_ONE
    for (int i = 0; i < kDepth; ++i) ask();
    clear(task.words + (1 - turn) * words_of_set(task));
    TRIREME_ONE_BY_ONE
    for (int layer = 0; layer < task.layer_count; ++layer) {
      mark = static_cast<std::uint32_t>(layer + 1);
      TRIREME_ONE_BY_ONE
      for (int matrix = 0; matrix < kMatrices; ++matrix) {
        // What is computed of it has no registers over the layers.
        thread = as_unknown(thread);
        warp = thread / kWarpLanes;
        lane = thread % kWarpLanes;
        make(layer, matrix);
      }
    }
    // All blocks have begun: this one has what they made.
    if (block_index() == 0 && thread == 0) *task.turn = 1 - turn;
  }

  // ---- weights ----

  // To the next matrix that this warp has a share of.
  TRIREME_DEVICE void find_chunks() {
    TRIREME_ONE_BY_ONE
    for (;;) {
      if (++asked_matrix == kMatrices) {
        asked_matrix = 0;
        ++asked_layer;
      }
      if (asked_layer >= task.layer_count) {
        ring.aim_at_nothing();
        asked_left = 0x7fffffff;
        return;
      }
      const Share mine = fixed.shares[asked_matrix][warp];
      if (mine.rows == 0 || mine.chunks == 0) continue;
      const Part& part = fixed.parts[asked_matrix];
      asked_left = mine.chunks;
      ring.aim(task, layers[asked_layer], asked_layer, asked_matrix,
               {part.begin + mine.row, mine.rows, mine.column, part.columns}, lane);
      return;
    }
  }
  TRIREME_DEVICE void ask() {
    ring.ask(fixed.slots, warp, lane, layers[0].weights[0]);
    if (--asked_left == 0) find_chunks();
  }

  // The block's rows of a matrix times the rows of x. Each warp has a range of the
  // columns of a tile; what it has of their sums meets in shared memory, and a thread
  // ends each number.
  TRIREME_DEVICE void multiply(int layer, int matrix, const std::uint16_t* x,
                               int leading) {
    const Part& part = fixed.parts[matrix];
    const Share mine = fixed.shares[matrix][warp];
    float sum[4] = {};
    int left = mine.rows > 0 ? mine.chunks : 0;
    TRIREME_ONE_BY_ONE
    for (int column = mine.column; left > 0; --left, column += kChunk) {
      add_chunk(x, leading, column, part.columns, sum);
      if (left == 1) break;
      sync_warp();  // all have read what is written over
      ask();
    }
    keep(sum);
    sync_block();
    TRIREME_ONE_BY_ONE
    for (int i = kThreads - 1 - thread; i < part.tiles * kTileRows * kRows;
         i += kThreads) {
      const int tile = i / (kTileRows * kRows), row = i / kRows % kTileRows;
      const int r = i % kRows, at = tile * part.tile_rows + row;
      if (row >= part.tile_rows || at >= part.end - part.begin || r >= task.rows)
        continue;
      finish(layer, matrix, r, at, sum_of(tile, part.splits, row, r));
    }
    // In place of the last chunk, when nobody waits for this warp.
    if (left > 0) ask();
  }
  TRIREME_DEVICE void add_chunk(const std::uint16_t* x, int leading, int first,
                                int columns, float (&sum)[4]) {
    ring.wait(fixed.slots, warp);
    sync_warp();
    const int text = lane % kTexts;
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int column = first + half * (kChunk / 2) + lane / kTexts * kOfQuad;
      const bool is_there = text < task.rows && column < columns;
      std::uint32_t of_x[4];
      load_matrices(
          is_there ? static_cast<const void*>(x + text * leading + column) : &fixed.zeros,
          of_x);
      TRIREME_UNROLL
      for (int i = 0; i < 2; ++i) {
        std::uint32_t w[4];
        load_matrices(ring.quad_at(fixed.slots, warp, lane % kTileRows,
                                   half * 4 + i * 2 + lane / kTileRows),
                      w);
        multiply_add<kElement>(w, of_x[2 * i], of_x[2 * i + 1], sum);
      }
    }
  }
  TRIREME_DEVICE void keep(const float (&sum)[4]) const {
    TRIREME_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, text = lane % 4 * 2 + i % 2;
      if (text < kRows) fixed.sums_of_warps[warp][row][text] = sum[i];
    }
  }
  // Over the warps of a tile.
  TRIREME_DEVICE float sum_of(int tile, int splits, int row, int r) const {
    const float* const from = &fixed.sums_of_warps[tile * splits][row][r];
    float one[kWarps];
    TRIREME_UNROLL
    for (int i = 0; i < kWarps; ++i) {
      one[i] = i < splits ? from[i * kTileRows * kRows] : 0.0f;
    }
    float sum = 0;
    TRIREME_UNROLL
    for (int i = 0; i < kWarps; ++i) sum += one[i];
    return sum;
  }
  TRIREME_DEVICE static float sum_of_lanes(float x) {
    TRIREME_UNROLL
    for (int apart = kWarpLanes / 2; apart > 0; apart /= 2) x += shuffle_xor(x, apart);
    return x;
  }

  // ---- what blocks hand on ----

  TRIREME_DEVICE std::uint32_t* qkv_words(int r) const {
    return words + r * (task.heads + 2 * task.kv_heads) * task.head_dim;
  }
  TRIREME_DEVICE std::uint32_t* middle_words(int r) const {
    return qkv_words(kDecodeRows) + r * task.hidden;
  }
  TRIREME_DEVICE std::uint32_t* activation_words(int r) const {
    return middle_words(kDecodeRows) + r * task.ffn;
  }
  TRIREME_DEVICE std::uint32_t* output_words(int r) const {
    return activation_words(kDecodeRows) + r * task.hidden;
  }
  // Of a head and some tiles of keys: o (d), the largest score M and the sum S of
  // exp(score - M), each a float and a mark.
  TRIREME_DEVICE std::uint32_t* tile_words(int r, int head, int group) const {
    const std::int64_t at =
        (static_cast<std::int64_t>(r) * task.heads + head) * groups_of(task.capacity) +
        group;
    return output_words(kDecodeRows) + at * (task.head_dim + 2) * 2;
  }
  TRIREME_DEVICE int length_of(int r) const { return fixed.lengths[r]; }
  TRIREME_DEVICE static int groups_of(int length) { return (length + kKeys - 1) / kKeys; }

  TRIREME_DEVICE void clear(std::uint32_t* set) const {
    const auto quads = static_cast<int>(words_of_set(task) / 4);
    for (int i = block_index() * kThreads + thread; i < quads;
         i += task.blocks * kThreads) {
      reinterpret_cast<Quad*>(set)[i] = {};
    }
  }

  TRIREME_DEVICE static bool has_marks(const Quad& of, std::uint32_t wanted) {
    return (((of.word[0] ^ wanted) | (of.word[1] ^ wanted) | (of.word[2] ^ wanted) |
             (of.word[3] ^ wanted)) &
            0xffffu) == 0;
  }
  TRIREME_DEVICE static std::uint32_t both(std::uint32_t low, std::uint32_t high) {
    return low >> 16 | (high & 0xffff0000u);
  }
  // Until the four words are there.
  TRIREME_DEVICE static Quad take(const Quad* from, std::uint32_t wanted, Quad seen) {
    while (!has_marks(seen, wanted)) seen = peek_again(from, seen);
    return seen;
  }
  // The words of eight numbers of a row, as they are now.
  struct Eight {
    Quad first, second;
  };
  TRIREME_DEVICE static Eight peek_eight(const std::uint32_t* from) {
    const auto* const quads = reinterpret_cast<const Quad*>(from);
    return {peek(quads), peek(quads + 1)};
  }
  // Eight numbers, when they are there.
  TRIREME_DEVICE static Quad take_eight(const std::uint32_t* from, std::uint32_t wanted,
                                        const Eight& seen) {
    const auto* const quads = reinterpret_cast<const Quad*>(from);
    const Quad a = take(quads, wanted, seen.first);
    const Quad b = take(quads + 1, wanted, seen.second);
    return {{both(a.word[0], a.word[1]), both(a.word[2], a.word[3]),
             both(b.word[0], b.word[1]), both(b.word[2], b.word[3])}};
  }
  // A row of activations to shared memory, by its kRowThreads threads.
  TRIREME_DEVICE void take_row(const std::uint32_t* from, std::uint16_t* to) const {
    const auto* const quads = reinterpret_cast<const Quad*>(from);
    constexpr int kTogether = 2;  // whose loads are under way
    const int count = task.ffn / 4;
    TRIREME_ONE_BY_ONE
    for (int first = thread % kRowThreads; first < count;
         first += kTogether * kRowThreads) {
      Quad seen[kTogether];
      TRIREME_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const int at = first + i * kRowThreads;
        if (at < count) seen[i] = peek(quads + at);
      }
      TRIREME_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const int at = first + i * kRowThreads;
        if (at >= count) continue;
        const Quad q = take(quads + at, mark, seen[i]);
        *reinterpret_cast<QuadHalf*>(to + at * 4) = {
            {both(q.word[0], q.word[1]), both(q.word[2], q.word[3])}};
      }
    }
  }

  // ---- the parts of a layer ----

  TRIREME_DEVICE void make(int layer, int matrix) {
    const DecodeLayer& of = layers[layer];
    load_biases(of, matrix);
    if (layer + 1 == task.layer_count) ask_for_next(matrix);
    const bool has_norm = matrix == qkv || matrix == fc1;
    const int r = thread / kRowThreads;
    if (has_norm) {
      make_norms(layer, matrix);
    } else if (matrix == projection) {
      attend(of);
      if (r < task.rows) take_attended(r, wide + r * wide_leading());
    } else if (r < task.rows) {
      take_row(activation_words(r), wide + r * wide_leading());
    }
    sync_block();
    multiply(layer, matrix, has_norm ? normed : wide,
             has_norm ? normed_leading() : wide_leading());
  }
  // A line for each thread of the launch.
  TRIREME_DEVICE void ask_for_next(int matrix) const {
    constexpr int kOfLine = 64;  // elements
    const int line = (matrix * task.blocks + block_index()) * kThreads + thread;
    if (line < task.next_lines) {
      ask_for_line(task.next + static_cast<std::int64_t>(line) * kOfLine);
    }
  }
  // On their way before anything is waited for, by the last warps, which have least to
  // wait for.
  TRIREME_DEVICE void load_biases(const DecodeLayer& of, int matrix) const {
    const Part& part = fixed.parts[matrix];
    TRIREME_ONE_BY_ONE
    for (int i = kThreads - 1 - thread; i < part.end - part.begin; i += kThreads) {
      fixed.biases[matrix % 2][i] = of.biases[matrix][part.begin + i];
    }
  }
  TRIREME_DEVICE int normed_leading() const { return task.hidden + kPadding; }
  TRIREME_DEVICE int wide_leading() const { return widest(task) + kPadding; }
  TRIREME_DEVICE std::uint16_t* residual_of(int matrix) const {
    return residuals + matrix / 2 * (kRows * task.hidden);
  }

  // What is made of a row of x and a row of the block's part of a matrix, from the sum of
  // their products.
  TRIREME_DEVICE void finish(int layer, int matrix, int r, int at, float z) const {
    const int row = fixed.parts[matrix].begin + at;
    z += low_of<kElement>(fixed.biases[matrix % 2][at]);
    if (matrix % 2 != 0) {  // the projection and fc2
      z += low_of<kElement>(residual_of(matrix)[r * task.hidden + row]);
    }
    if (matrix == fc1) z = gelu(z);
    const std::uint32_t bits = pack<kElement>(z, 0.0f) & 0xffffu;
    if (matrix == fc2 && layer + 1 == task.layer_count) {
      task.y[r * task.y_leading + row] = static_cast<std::uint16_t>(bits);
      return;
    }
    const Part& part = fixed.parts[matrix];
    store_word(bits << 16 | mark, words + part.words + r * part.words_of_row + row);
    const int column = row - task.heads * task.head_dim;
    if (matrix != qkv || column < 0 || length_of(r) == 0) return;
    const bool is_key = column < kv_columns();
    std::uint16_t* const cache = is_key ? layers[layer].k : layers[layer].v;
    cache[(fixed.first_rows[r] + length_of(r) - 1) * kv_columns() + column -
          (is_key ? 0 : kv_columns())] = static_cast<std::uint16_t>(bits);
  }
  TRIREME_DEVICE static float gelu(float z) {
    constexpr float kLinear = 1.5957691216057307;
    constexpr float kCubic = 1.5957691216057307 * 0.044715;
    const float e = exponential(-z * multiply_add(kCubic, z * z, kLinear));
    return quotient(z, 1.0f + e);
  }

  // ---- norms ----

  // A row whose norm is made: words with a mark, or the launch's own numbers.
  struct Row {
    const std::uint32_t* words;
    std::uint32_t wanted;
    const std::uint16_t* numbers;
  };

  TRIREME_DEVICE static float number(const Quad& of, int e) {
    return e % 2 == 0 ? low_of<kElement>(of.word[e / 2])
                      : high_of<kElement>(of.word[e / 2]);
  }
  TRIREME_DEVICE static Quad piece_at(const std::uint16_t* row, int column) {
    return *reinterpret_cast<const Quad*>(row + column);
  }
  TRIREME_DEVICE static void add(const Quad& piece, float pivot, Sums& to) {
    TRIREME_UNROLL
    for (int e = 0; e < kOfQuad; ++e) {
      const float difference = number(piece, e) - pivot;
      to.sum += difference;
      to.squares = multiply_add(difference, difference, to.squares);
    }
  }
  TRIREME_DEVICE Moments moments_about(float pivot, const Sums* of_warps) const {
    const float sum =
        (of_warps[0].sum + of_warps[1].sum) + (of_warps[2].sum + of_warps[3].sum);
    const float squares = (of_warps[0].squares + of_warps[1].squares) +
                          (of_warps[2].squares + of_warps[3].squares);
    const float shift = sum * task.per_column;
    return {shift, multiply_add(sum, task.per_column, pivot),
            multiply_add(-shift, shift, squares * task.per_column)};
  }
  // Warps that have a row take it, keep it as what is added to the next product, and have
  // its norm in `normed` behind a barrier.
  TRIREME_DEVICE void make_norms(int layer, int matrix) {
    const DecodeLayer& of = layers[layer];
    const int r = warp / kNormWarps;
    const bool has_row = r < task.rows;
    const int begin = thread % kNormThreads * kOfQuad;
    std::uint16_t* const row = residual_of(matrix) + r * task.hidden;
    const std::uint16_t *const gamma = of.gammas[matrix / 2], *const beta =
                                                                  of.betas[matrix / 2];
    Quad first_gamma = {}, first_beta = {};  // on their way before the row is waited for
    if (has_row && begin < task.hidden) {
      first_gamma = piece_at(gamma, begin);
      first_beta = piece_at(beta, begin);
    }
    Sums sums = {};
    if (has_row) sums = take_sums(row_of(layer, matrix, r), begin, row);
    Moments moments = {};
    TRIREME_ONE_BY_ONE
    for (int turn = 0; turn < 2; ++turn) {
      sync_warp();
      const float sum = sum_of_lanes(sums.sum), squares = sum_of_lanes(sums.squares);
      Sums* const to = fixed.sums[turn][has_row ? r : 0];
      if (has_row && lane == 0) to[warp % kNormWarps] = {sum, squares};
      sync_block();
      if (has_row) moments = moments_about(pivot, to);
      // Of any row, as all threads find: then those of all are at the barrier again.
      if (turn == 1) break;
      if (!(kRows == 1 && has_row ? moments.is_lost() : is_any_lost())) break;
      if (!has_row || !moments.is_lost()) continue;
      pivot = moments.center;
      sums = {};
      TRIREME_ONE_BY_ONE
      for (int column = begin; column < task.hidden; column += kNormThreads * kOfQuad) {
        add(piece_at(row, column), pivot, sums);
      }
    }
    if (!has_row) return;
    pivot = moments.center;
    const float variance = moments.variance > 0.0f ? moments.variance : 0.0f;
    const float scale = quotient(1.0f, square_root(variance + task.epsilon));
    TRIREME_ONE_BY_ONE
    for (int column = begin; column < task.hidden; column += kNormThreads * kOfQuad) {
      const Quad g = column == begin ? first_gamma : piece_at(gamma, column);
      const Quad b = column == begin ? first_beta : piece_at(beta, column);
      *reinterpret_cast<Quad*>(normed + r * normed_leading() + column) =
          norm_of(piece_at(row, column), moments.center, scale, g, b);
    }
  }
  // A thread's pieces of a row, which are kept at `to`, and their sums.
  TRIREME_DEVICE Sums take_sums(const Row& from, int begin, std::uint16_t* to) const {
    constexpr int kApart = kNormThreads * kOfQuad;
    constexpr int kTogether = kRows == 1 ? 2 : 1;  // as there are registers
    Sums sums = {};
    TRIREME_ONE_BY_ONE
    for (int first = begin; first < task.hidden; first += kTogether * kApart) {
      Eight seen[kTogether];
      TRIREME_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const int column = first + i * kApart;
        if (column < task.hidden) seen[i] = peek_piece(from, column);
      }
      TRIREME_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        const int column = first + i * kApart;
        if (column >= task.hidden) continue;
        const Quad piece = take_piece(from, column, seen[i]);
        *reinterpret_cast<Quad*>(to + column) = piece;
        add(piece, pivot, sums);
      }
    }
    return sums;
  }
  TRIREME_DEVICE static Quad norm_of(const Quad& piece, float center, float scale,
                                     const Quad& gamma, const Quad& beta) {
    float made[kOfQuad];
    TRIREME_UNROLL
    for (int e = 0; e < kOfQuad; ++e) {
      const float x_hat = (number(piece, e) - center) * scale;
      made[e] = multiply_add(x_hat, number(gamma, e), number(beta, e));
    }
    Quad rounded;
    TRIREME_UNROLL
    for (int i = 0; i < 4; ++i) {
      rounded.word[i] = pack<kElement>(made[2 * i], made[2 * i + 1]);
    }
    return rounded;
  }
  // Whether a row's mean is far from the one before, so that most of its variance would
  // be lost. Behind the barrier that its sums were brought to.
  TRIREME_DEVICE bool is_any_lost() const {
    bool is_lost = false;
    TRIREME_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= task.rows) break;
      if (moments_about(0.0f, fixed.sums[0][r]).is_lost()) is_lost = true;
    }
    return is_lost;
  }
  TRIREME_DEVICE Row row_of(int layer, int matrix, int r) const {
    if (matrix == fc1) return {middle_words(r), mark, nullptr};
    if (layer > 0) return {output_words(r), mark - 1, nullptr};
    return {nullptr, 0, task.x + r * task.x_leading};
  }
  TRIREME_DEVICE static Eight peek_piece(const Row& of, int column) {
    if (of.words == nullptr) return {piece_at(of.numbers, column), {}};
    return peek_eight(of.words + column);
  }
  TRIREME_DEVICE static Quad take_piece(const Row& of, int column, const Eight& seen) {
    return of.words == nullptr ? seen.first
                               : take_eight(of.words + column, of.wanted, seen);
  }

  // ---- attention ----

  TRIREME_DEVICE void attend(const DecodeLayer& of) {
    const int items = item_count();
    TRIREME_ONE_BY_ONE
    for (int item = block_index(); item < items; item += task.blocks) {
      const Place at = place_of(item);
      if (item != block_index()) sync_block();  // all have read what is written over
      attend_to(of, at.r, at.head, at.group);
    }
  }
  struct Place {
    int r, head, group;
  };
  TRIREME_DEVICE int item_count() const {
    int items = 0;
    TRIREME_UNROLL
    for (int r = 0; r < kRows; ++r) items += task.heads * groups_of(length_of(r));
    return items;
  }
  TRIREME_DEVICE Place place_of(int item) const {
    int rest = item, r = 0;
    for (; r + 1 < kRows && rest >= task.heads * groups_of(length_of(r)); ++r) {
      rest -= task.heads * groups_of(length_of(r));
    }
    const int groups = groups_of(length_of(r));
    const int head = groups == 1 ? rest : rest / groups;
    return {r, head, rest - head * groups};
  }

  // kKeys keys of a head: which of them a lane takes, eight columns of a key in each
  // turn.
  struct Item {
    int r, head, kv_head, length;
    int first_of_warp, first;  // keys
    int column;
    std::int64_t begin;  // of the head in the cache's first row of the text
  };
  using KeyPieces = Quad[kKeyTurns];
  using RowFloats = float[kOfQuad];

  // Each warp has a largest score of its own.
  TRIREME_DEVICE void attend_to(const DecodeLayer& of, int r, int head, int group) {
    const bool has_own = task.heads == task.kv_heads;
    const int kv_head = has_own ? head : head / (task.heads / task.kv_heads);
    const int first_of_warp = group * kKeys + warp * kKeysOfWarp;
    const Item item{r,
                    head,
                    kv_head,
                    length_of(r),
                    first_of_warp,
                    first_of_warp + lane / kLanesOfKey,
                    lane % kLanesOfKey * kOfQuad,
                    fixed.first_rows[r] * kv_columns() + kv_head * task.head_dim};
    KeyPieces key = {}, value = {};
    load_cached(of, item, key, value);
    RowFloats query = {}, sum = {};
    Quad newest_value = {};
    take_newest(item, query, key, value, newest_value);
    sync_warp();
    float score[kKeyTurns];
    const float largest = find_scores(item, query, key, score);
    float total = add_values(of, item, score, largest, value, newest_value, sum);
    sync_warp();
    if (first_of_warp < item.length) add_lanes(total, sum);  // for the whole warp
    if (lane < kLanesOfKey) {
      TRIREME_UNROLL
      for (int e = 0; e < kOfQuad; ++e) {
        fixed.outputs[warp][item.column + e] = sum[e];
      }
    }
    if (lane == 0) {
      fixed.maxima[warp] = largest;
      fixed.totals[warp] = total;
    }
    sync_block();
    if (thread < task.head_dim) combine(thread, tile_words(r, head, group));
  }
  TRIREME_DEVICE int kv_columns() const { return task.kv_heads * task.head_dim; }
  // All keys and values but the newest are there before the layer begins.
  TRIREME_DEVICE void load_cached(const DecodeLayer& of, const Item& item, KeyPieces& key,
                                  KeyPieces& value) const {
    if (item.column >= task.head_dim) return;
    TRIREME_UNROLL
    for (int t = 0; t < kKeyTurns; ++t) {
      const int j = item.first + t * kKeysApart;
      if (j + 1 >= item.length) continue;
      const std::int64_t at =
          item.begin + static_cast<std::int64_t>(j) * kv_columns() + item.column;
      key[t] = piece_at(of.k + at, 0);
      if constexpr (kHoldsValues) {
        value[t] = piece_at(of.v + at, 0);
      } else {
        ask_for_line(of.v + at);
      }
    }
  }
  // The query, and the newest key and value, which this layer makes.
  TRIREME_DEVICE void take_newest(const Item& item, RowFloats& query, KeyPieces& key,
                                  KeyPieces& value, Quad& newest_value) const {
    const int d = task.head_dim, behind = item.length - 1 - item.first;
    if (item.column >= d || item.first_of_warp >= item.length) return;
    const bool has_newest = behind >= 0 && behind < kKeys && behind % kKeysApart == 0;
    const std::uint32_t* const own = qkv_words(item.r) + item.head * d + item.column;
    const std::uint32_t* const new_key =
        qkv_words(item.r) + (task.heads + item.kv_head) * d + item.column;
    const std::uint32_t* const new_value = new_key + kv_columns();
    const Eight seen = peek_eight(own);
    Eight seen_key, seen_value;
    if (has_newest) {  // on their way together
      seen_key = peek_eight(new_key);
      seen_value = peek_eight(new_value);
    }
    const Quad piece = take_eight(own, mark, seen);
    TRIREME_UNROLL
    for (int e = 0; e < kOfQuad; ++e) query[e] = task.scale * number(piece, e);
    if (!has_newest) return;
    const Quad newest_key = take_eight(new_key, mark, seen_key);
    newest_value = take_eight(new_value, mark, seen_value);
    TRIREME_UNROLL
    for (int t = 0; t < kKeyTurns; ++t) {
      if (behind != t * kKeysApart) continue;
      key[t] = newest_key;
      if constexpr (kHoldsValues) value[t] = newest_value;
    }
  }
  // The largest one of the warp's.
  TRIREME_DEVICE float find_scores(const Item& item, const RowFloats& query,
                                   const KeyPieces& key,
                                   float (&score)[kKeyTurns]) const {
    float largest = kNothing;
    TRIREME_UNROLL
    for (int t = 0; t < kKeyTurns; ++t) {
      score[t] = kNothing;
      if (item.first_of_warp + t * kKeysApart >= item.length) continue;  // of all lanes
      float sum = 0;
      TRIREME_UNROLL
      for (int e = 0; e < kOfQuad; ++e) {
        sum = multiply_add(query[e], number(key[t], e), sum);
      }
      TRIREME_UNROLL
      for (int apart = kLanesOfKey / 2; apart > 0; apart /= 2) {
        sum += shuffle_xor(sum, apart);
      }
      if (item.first + t * kKeysApart < item.length) score[t] = sum;
      largest = score[t] > largest ? score[t] : largest;
    }
    TRIREME_UNROLL
    for (int apart = kWarpLanes / 2; apart >= kLanesOfKey; apart /= 2) {
      const float other = shuffle_xor(largest, apart);
      largest = other > largest ? other : largest;
    }
    return largest;
  }
  // Of a lane's keys: the sum of their weights, and values that are multiplied with them.
  TRIREME_DEVICE float add_values(const DecodeLayer& of, const Item& item,
                                  const float (&score)[kKeyTurns], float largest,
                                  KeyPieces& value, const Quad& newest_value,
                                  RowFloats& sum) const {
    float total = 0;
    TRIREME_UNROLL
    for (int t = 0; t < kKeyTurns; ++t) {
      const int j = item.first + t * kKeysApart;
      if (j >= item.length) continue;
      const float weight = exponential(score[t] - largest);
      total += weight;
      if constexpr (!kHoldsValues) {
        if (item.column >= task.head_dim) continue;
        const std::int64_t at = item.begin + static_cast<std::int64_t>(j) * kv_columns();
        value[t] = j + 1 == item.length ? newest_value : piece_at(of.v + at, item.column);
      }
      TRIREME_UNROLL
      for (int e = 0; e < kOfQuad; ++e) {
        sum[e] = multiply_add(weight, number(value[t], e), sum[e]);
      }
    }
    return total;
  }
  // Over the keys of a turn.
  TRIREME_DEVICE static void add_lanes(float& total, RowFloats& sum) {
    TRIREME_UNROLL
    for (int apart = kWarpLanes / 2; apart >= kLanesOfKey; apart /= 2) {
      total += shuffle_xor(total, apart);
      TRIREME_UNROLL
      for (int e = 0; e < kOfQuad; ++e) sum[e] += shuffle_xor(sum[e], apart);
    }
  }
  // A column of the warps together, and with the first one their M and S.
  TRIREME_DEVICE void combine(int column, std::uint32_t* to) const {
    float largest = kNothing;
    TRIREME_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      largest = fixed.maxima[w] > largest ? fixed.maxima[w] : largest;
    }
    float total = 0, sum = 0;
    TRIREME_UNROLL_BY(4)
    for (int w = 0; w < kWarps; ++w) {
      const float weight = exponential(fixed.maxima[w] - largest);
      total = multiply_add(weight, fixed.totals[w], total);
      sum = multiply_add(weight, fixed.outputs[w][column], sum);
    }
    hand_on_float(sum, to + 2 * column);
    if (column > 0) return;
    hand_on_float(largest, to + 2 * task.head_dim);
    hand_on_float(total, to + 2 * task.head_dim + 2);
  }
  TRIREME_DEVICE void hand_on_float(float x, std::uint32_t* to) const {
    store_pair(word_of(x), mark, to);
  }

  // Attention's output of a row, rounded.
  TRIREME_DEVICE void take_attended(int r, std::uint16_t* to) const {
    constexpr int kTogether = 2;  // groups whose loads are under way
    const int d = task.head_dim;
    const int groups = groups_of(length_of(r));
    TRIREME_ONE_BY_ONE
    for (int pair = thread % kRowThreads; pair < task.heads * d / 2;
         pair += kRowThreads) {
      const auto head =
          static_cast<int>(static_cast<std::uint64_t>(2 * pair) * fixed.per_head >> 32);
      const int column = 2 * pair - head * d;
      const std::uint32_t* const first = tile_words(r, head, 0);
      const int apart = 2 * (d + 2);
      float largest = kNothing, total = 0, low = 0, high = 0;
      TRIREME_ONE_BY_ONE
      for (int begin = 0; begin < groups; begin += kTogether) {
        Quad o[kTogether], m[kTogether];
        TRIREME_UNROLL
        for (int i = 0; i < kTogether; ++i) {
          if (begin + i >= groups) continue;
          o[i] = peek_pairs(float_quad(first + (begin + i) * apart + 2 * column));
          m[i] = peek_pairs(float_quad(first + (begin + i) * apart + 2 * d));
        }
        TRIREME_UNROLL
        for (int i = 0; i < kTogether; ++i) {
          if (begin + i >= groups) continue;
          take_floats(float_quad(first + (begin + i) * apart + 2 * column), o[i]);
          take_floats(float_quad(first + (begin + i) * apart + 2 * d), m[i]);
          const float of_group = float_of(m[i].word[0]);
          const float now = of_group > largest ? of_group : largest;
          const float kept = exponential(largest - now);
          const float added = exponential(of_group - now);
          total = multiply_add(added, float_of(m[i].word[2]), total * kept);
          low = multiply_add(added, float_of(o[i].word[0]), low * kept);
          high = multiply_add(added, float_of(o[i].word[2]), high * kept);
          largest = now;
        }
      }
      const float scale = groups > 0 ? 1.0f / total : 0.0f;
      *reinterpret_cast<std::uint32_t*>(to + 2 * pair) =
          pack<kElement>(low * scale, high * scale);
    }
  }
  TRIREME_DEVICE static const Quad* float_quad(const std::uint32_t* words_of_two) {
    return reinterpret_cast<const Quad*>(words_of_two);
  }
  TRIREME_DEVICE void take_floats(const Quad* from, Quad& seen) const {
    while (((seen.word[1] ^ mark) | (seen.word[3] ^ mark)) != 0) {
      seen = peek_pairs_again(from, seen);
    }
  }

  const DecodeLayersTask& task;
  Fixed& fixed;
  int thread, warp, lane;
  Ring ring;
  // The matrix that the next chunk is of, and how many more it has for this warp.
  int asked_layer = 0, asked_matrix = -1, asked_left = 0;
  std::uint32_t mark = 0;
  // What numbers of the warp's row are taken from before they are squared: the mean of
  // its norm before.
  float pivot = 0;
  std::uint32_t* words = nullptr;
  // In shared memory: the layers' pointers; (kRows, hidden) of norms, and twice of what
  // is added to products; (kRows, widest).
  DecodeLayer* layers;
  std::uint16_t *normed, *residuals, *wide;
};

// ---- for the host: what a task is launched by ----

template <WeightCopies kCopies, Element kElement, int kRows, int kHeadElements, class Use>
auto with_depth(const DecodeLayersTask& task, int shared_bytes, const Use& use) {
  constexpr int kMostDepth = kRows == 1 ? 4 : 3;
  using Deep = DecodeLayers<kElement, kRows, kMostDepth, kHeadElements, kCopies>;
  using Shallow = DecodeLayers<kElement, kRows, kMostDepth - 1, kHeadElements, kCopies>;
  return Deep::shared_bytes(task) <= shared_bytes ? use(std::type_identity<Deep>())
                                                  : use(std::type_identity<Shallow>());
}
template <WeightCopies kCopies, Element kElement, class Use>
auto with_element(const DecodeLayersTask& task, int shared_bytes, const Use& use) {
  constexpr int kMost = kDecodeHeadElements, kRows = kDecodeRows;
  const bool is_narrow = task.head_dim <= kMost / 2;
  if (task.rows == 1) {
    return is_narrow
               ? with_depth<kCopies, kElement, 1, kMost / 2>(task, shared_bytes, use)
               : with_depth<kCopies, kElement, 1, kMost>(task, shared_bytes, use);
  }
  return is_narrow
             ? with_depth<kCopies, kElement, kRows, kMost / 2>(task, shared_bytes, use)
             : with_depth<kCopies, kElement, kRows, kMost>(task, shared_bytes, use);
}

// use(std::type_identity<DecodeLayers<...>>()) of a task of rows of `element`: with the
// most copies under way that there is room for in a block's `shared_bytes`, or with the
// fewest.
template <WeightCopies kCopies, class Use>
auto with_block(Element element, const DecodeLayersTask& task, int shared_bytes,
                const Use& use) {
  return element == Element::bf16
             ? with_element<kCopies, Element::bf16>(task, shared_bytes, use)
             : with_element<kCopies, Element::fp16>(task, shared_bytes, use);
}

// What a block of steps of several texts takes at least. Where that fits a
// multiprocessor, one of a text by itself does.
template <WeightCopies kCopies>
int least_shared_bytes(DecodeLayersTask task) {
  task.rows = kDecodeRows;
  return with_block<kCopies>(Element::bf16, task, 0, [&](auto block) {
    return decltype(block)::type::shared_bytes(task);
  });
}

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_DECODE_LAYERS_HPP_
