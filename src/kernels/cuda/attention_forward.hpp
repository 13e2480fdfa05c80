// kernels/cuda/attention_forward.hpp — o = dropout(softmax(scale q k^T + bias + mask)) v
// on tensor cores: what a block of 128 threads does (Dao 2023, arXiv:2307.08691, alg. 1).
//
// A block has 128 queries of a head, 32 a warp, and walks over tiles of keys: while one
// is worked on, the next comes from memory. Of scores s a lane holds four rows, and of
// each the columns 8 i + 2 t + {0, 1}; maximum and sum of a row are those of four lanes.
// Rounded, p is the left operand of p v without a move. Dropout's words are made for just
// those columns (philox.hpp). Sums, maxima and o are float; o is rounded once. Of a bias
// the distances of a pair of tiles come with the keys.
#ifndef TRIREME_KERNELS_CUDA_ATTENTION_FORWARD_HPP_
#define TRIREME_KERNELS_CUDA_ATTENTION_FORWARD_HPP_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/philox.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme::cuda {

inline constexpr float kLogOf2 = 0.6931471805599453f;

template <Element kElement, int kHeadDim, bool kDrops, bool kHasBias = false>
class AttentionForward {
 public:
  static constexpr int kThreads = 128;
  static constexpr int kQueries = 128;
  static constexpr int kKeys = kHeadDim <= 96 ? 64 : 32;
  static constexpr int kDistances = kHasBias ? kQueries + kKeys : 0;  // and one more
  static constexpr int kSharedBytes = (kQueries + 4 * kKeys) * pitch_of(kHeadDim) *
                                          static_cast<int>(sizeof(std::uint16_t)) +
                                      2 * kDistances * static_cast<int>(sizeof(float));
  static int blocks(const AttentionShape& shape) {
    return divide_up(shape.q_length, kQueries) * shape.heads * shape.batch;
  }

  TRIREME_DEVICE static void block(const AttentionForwardTask& task) {
    const AttentionShape& shape = task.shape;
    const int tiles = divide_up(shape.q_length, kQueries);
    const int index = block_index();
    // The last queries see the most keys and take longest, so that they go first.
    const int q_begin = (tiles - 1 - index % tiles) * kQueries;
    const int head = index / tiles % shape.heads;
    AttentionForward(task, q_begin, head, index / tiles / shape.heads).run();
  }

 private:
  static constexpr int kPitch = pitch_of(kHeadDim);
  static constexpr int kRowTiles = 2;                    // of 16 queries, of a warp
  static constexpr int kSteps = kHeadDim / 16;           // of q k^T
  static constexpr int kColumns = kKeys / 8;             // tiles of s
  static constexpr int kOutColumns = kHeadDim / 8;       // tiles of o
  static constexpr bool kKeepsQueries = kHeadDim <= 64;  // in registers
  static_assert(kHeadDim % 16 == 0 && kKeys % 32 == 0);

  TRIREME_DEVICE AttentionForward(const AttentionForwardTask& task, int q_begin, int head,
                                  int sample)
      : task_(task),
        dropout_(task.dropout, sample),
        q_begin_(q_begin),
        head_(head),
        sample_(sample),
        queries_(reinterpret_cast<std::uint16_t*>(shared_memory())),
        stages_(queries_ + kQueries * kPitch),
        bias_(reinterpret_cast<float*>(stages_ + 4 * kKeys * kPitch)) {}

  // The query of this lane's row `half` (0: g, 1: g + 8) of tile m.
  TRIREME_DEVICE int query_of(int m, int half) const {
    return q_begin_ + warp_index() * 32 + m * 16 + half * 8 + lane_index() / 4;
  }
  TRIREME_DEVICE std::uint16_t* keys_of(int stage) const {
    return stages_ + stage * 2 * kKeys * kPitch;
  }
  TRIREME_DEVICE std::uint16_t* values_of(int stage) const {
    return keys_of(stage) + kKeys * kPitch;
  }
  // That of the tile's last key and first query is the first one.
  TRIREME_DEVICE float* bias_of(int stage) const { return bias_ + stage * kDistances; }
  // As exponents of 2 scores are this times as large; with a bias they are exponents
  // already.
  TRIREME_DEVICE float factor() const {
    return kHasBias ? 1 : task_.shape.scale * kLog2OfE;
  }

  TRIREME_DEVICE void run() {
    const AttentionShape& shape = task_.shape;
    load_tile<kQueries, kHeadDim, kThreads>(task_.q, sample_, head_, q_begin_,
                                            shape.q_length, queries_);
    const int last = smaller(q_begin_ + kQueries, shape.q_length) - 1;
    const KeyRange keys = visible_keys(shape, sample_, q_begin_, last);
    const int first = keys.begin / kKeys * kKeys;
    if (!keys.is_empty()) load_keys(first, 0);
    commit_copies();
    begin_rows();
    int stage = 0;
    for (int k_begin = first; k_begin < keys.end; k_begin += kKeys, stage ^= 1) {
      wait_for_copies<0>();
      sync_block();
      if (k_begin + kKeys < keys.end) load_keys(k_begin + kKeys, stage ^ 1);
      commit_copies();
      if (kKeepsQueries && k_begin == first) keep_queries();
      visit_keys(k_begin, stage);
    }
    wait_for_copies<0>();
    sync_block();  // the queries' place becomes that of o
    finish();
  }

  TRIREME_DEVICE void load_keys(int k_begin, int stage) const {
    const int kv_head = head_ / (task_.shape.heads / task_.shape.kv_heads);
    const int length = task_.shape.kv_length;
    load_tile<kKeys, kHeadDim, kThreads>(task_.k, sample_, kv_head, k_begin, length,
                                         keys_of(stage));
    load_tile<kKeys, kHeadDim, kThreads>(task_.v, sample_, kv_head, k_begin, length,
                                         values_of(stage));
    if constexpr (kHasBias) {
      load_bias<kDistances, kThreads>(task_.shape, task_.bias, head_,
                                      q_begin_ - k_begin + length - kKeys,
                                      bias_of(stage));
    }
  }

  TRIREME_DEVICE void begin_rows() {
    TRIREME_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      TRIREME_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int query = query_of(m, half);
        row_keys_[m][half] = query < task_.shape.q_length
                                 ? visible_keys(task_.shape, sample_, query)
                                 : KeyRange{0, 0};
        max_[m][half] = -INFINITY;
        sum_[m][half] = 0;
      }
      TRIREME_UNROLL
      for (int n = 0; n < kOutColumns; ++n) {
        TRIREME_UNROLL
        for (int i = 0; i < 4; ++i) out_[m][n][i] = 0;
      }
    }
  }

  TRIREME_DEVICE void load_queries(int step, std::uint32_t (&a)[kRowTiles][4]) const {
    TRIREME_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      load_matrices(
          matrices_down(queries_, kPitch, warp_index() * 32 + m * 16, step * 16), a[m]);
    }
  }
  TRIREME_DEVICE void keep_queries() {
    if constexpr (kKeepsQueries) {
      TRIREME_UNROLL
      for (int step = 0; step < kSteps; ++step) load_queries(step, kept_[step]);
    }
  }

  TRIREME_DEVICE void visit_keys(int k_begin, int stage) {
    float s[kRowTiles][kColumns][4] = {};
    TRIREME_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t a[kRowTiles][4];
      if constexpr (!kKeepsQueries) load_queries(step, a);
      TRIREME_UNROLL
      for (int pair = 0; pair < kColumns / 2; ++pair) {
        std::uint32_t b[4];
        load_matrices(matrices_right(keys_of(stage), kPitch, pair * 16, step * 16), b);
        if constexpr (kKeepsQueries) {
          multiply_step<kElement>(kept_[step], b, s, pair);
        } else {
          multiply_step<kElement>(a, b, s, pair);
        }
      }
    }
    if constexpr (kHasBias) {
      const int lane = lane_index();
      const int first = kKeys - 1 + warp_index() * 32 + lane / 4 - lane % 4 * 2;
      add_bias(task_.shape.scale * kLog2OfE, bias_of(stage) + first, s);
    }
    TRIREME_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      hide_keys(k_begin, m, s[m]);
      TRIREME_UNROLL
      for (int half = 0; half < 2; ++half) make_probabilities(m, half, s[m]);
      if constexpr (kDrops) drop(k_begin, m, s[m]);
    }
    TRIREME_UNROLL
    for (int step = 0; step < kKeys / 16; ++step) {
      std::uint32_t a[kRowTiles][4];
      TRIREME_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        TRIREME_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float(&pairs)[4] = s[m][2 * step + i / 2];
          a[m][i] = pack<kElement>(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1]);
        }
      }
      TRIREME_UNROLL
      for (int pair = 0; pair < kOutColumns / 2; ++pair) {
        std::uint32_t b[4];
        load_transposed(matrices_down(values_of(stage), kPitch, step * 16, pair * 16), b);
        multiply_step<kElement>(a, b, out_, pair);
      }
    }
  }

  // Scores of keys that a row does not see become minus infinity.
  TRIREME_DEVICE void hide_keys(int k_begin, int m, float (&s)[kColumns][4]) const {
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      const KeyRange keys = row_keys_[m][half];
      if (keys.begin <= k_begin && k_begin + kKeys <= keys.end) continue;
      TRIREME_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        TRIREME_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int key = k_begin + n * 8 + lane_index() % 4 * 2 + e;
          if (key < keys.begin || key >= keys.end) s[n][2 * half + e] = -INFINITY;
        }
      }
    }
  }

  // Scores become e^(score - maximum); what was summed before is scaled to the
  // new maximum.
  TRIREME_DEVICE void make_probabilities(int m, int half, float (&s)[kColumns][4]) {
    float max = -INFINITY;
    TRIREME_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    }
    max = fmaxf(max, shuffle_xor(max, 1));
    max = fmaxf(max, shuffle_xor(max, 2));
    const float factor = this->factor();
    // Of powers of 2, and rounded before it is kept: where it stays, nothing is rescaled,
    // although compilers fuse multiplications and subtractions.
    const float top = fmaxf(max_[m][half], max * factor);
    // A row that has seen no key has no maximum to subtract.
    const float base = top == -INFINITY ? 0 : top;
    const float rescale = power_of_2(max_[m][half] - base);
    float sum = 0;
    TRIREME_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      TRIREME_UNROLL
      for (int e = 0; e < 2; ++e) {
        float& x = s[n][2 * half + e];
        x = power_of_2(x * factor - base);
        sum += x;
      }
    }
    sum_[m][half] = sum_[m][half] * rescale + sum;
    max_[m][half] = top;
    if (!any_of_warp(rescale != 1)) return;
    TRIREME_UNROLL
    for (int n = 0; n < kOutColumns; ++n) {
      out_[m][n][2 * half] *= rescale;
      out_[m][n][2 * half + 1] *= rescale;
    }
  }

  // What is kept is scaled at the end.
  TRIREME_DEVICE void drop(int k_begin, int m, float (&p)[kColumns][4]) const {
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      TRIREME_UNROLL
      for (int group = 0; group < kKeys / 32; ++group) {
        const random::Words words = dropout_.words(
            head_, query_of(m, half), k_begin / 32 + group, lane_index() % 4);
        TRIREME_UNROLL
        for (int i = 0; i < 4; ++i) {
          float(&pairs)[4] = p[4 * group + i];
          if (!dropout_.keeps(words.word[i], 0)) pairs[2 * half] = 0;
          if (!dropout_.keeps(words.word[i], 1)) pairs[2 * half + 1] = 0;
        }
      }
    }
  }

  TRIREME_DEVICE void finish() {
    const AttentionShape& shape = task_.shape;
    std::uint16_t* const tile = queries_ + warp_index() * 32 * kPitch;
    const std::int64_t first_row =
        (static_cast<std::int64_t>(sample_) * shape.heads + head_) * shape.q_length;
    TRIREME_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      TRIREME_UNROLL
      for (int half = 0; half < 2; ++half) {
        float sum = sum_[m][half];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        const float factor = sum == 0 ? 0 : task_.dropout.keep_scale / sum;
        const int query = query_of(m, half);
        if (lane_index() % 4 == 0 && query < shape.q_length) {
          task_.lse[first_row + query] = max_[m][half] * kLogOf2 + logarithm(sum);
        }
        const int row = m * 16 + half * 8 + lane_index() / 4;
        TRIREME_UNROLL
        for (int n = 0; n < kOutColumns; ++n) {
          const float(&pairs)[4] = out_[m][n];
          *reinterpret_cast<std::uint32_t*>(tile + row * kPitch + n * 8 +
                                            lane_index() % 4 * 2) =
              pack<kElement>(pairs[2 * half] * factor, pairs[2 * half + 1] * factor);
        }
      }
    }
    sync_warp();
    store_tile<32, kHeadDim, kWarpLanes>(tile, lane_index(), task_.o, sample_, head_,
                                         q_begin_ + warp_index() * 32, shape.q_length);
  }

  const AttentionForwardTask& task_;
  const DropoutOfSample dropout_;
  const int q_begin_, head_, sample_;
  std::uint16_t* const queries_;  // (kQueries, kPitch), and o in the end
  std::uint16_t* const stages_;   // two of keys and values, (kKeys, kPitch) each
  float* const bias_;             // two stages of kDistances
  KeyRange row_keys_[kRowTiles][2];
  // The largest score so far as an exponent of 2, and the sum of what it is subtracted
  // from.
  float max_[kRowTiles][2], sum_[kRowTiles][2];
  float out_[kRowTiles][kOutColumns][4];
  std::uint32_t kept_[kKeepsQueries ? kSteps : 1][kRowTiles][4];
};

}  // namespace trireme::cuda

#endif  // TRIREME_KERNELS_CUDA_ATTENTION_FORWARD_HPP_
