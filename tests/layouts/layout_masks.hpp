// tests/layouts/layout_masks.hpp — dropout masks as real layers draw them in one layout,
// by global place.
//
// Weights and inputs are chosen so that the masks can be read off what comes out. With
// p = 1/2 what is kept is doubled.
//   Embedding           words are 1 and positions 0: x = 2 mask. Every token stands once,
//                       so that its row of the gradient is a row of 2 mask, too.
//   outputs of a layer  matrices are 0, output biases 1 and 2: y - x = 2 mask + 4 mask.
//                       A decoder's layer has cross attention with 4: + 8 mask.
//   probabilities       queries are 0, all q + 1 keys alike; value k is 2^(k mod 12) in
//                       one of two columns: (q + 1) o / 2 has one bit for each key. Cross
//                       attention sees all keys of a longer source, in four columns.
#ifndef TRIREME_TESTS_LAYOUTS_LAYOUT_MASKS_HPP_
#define TRIREME_TESTS_LAYOUTS_LAYOUT_MASKS_HPP_

#include <vector>

#include "comm/process_groups.hpp"
#include "layouts/layout_matrix.hpp"

namespace trireme::test {

inline constexpr index_t kMaskHidden = 48, kMaskHeads = 24, kMaskHeadDim = 2;
inline constexpr std::uint64_t kMaskSeed = 77;
inline constexpr index_t kMaskFirst = 500;  // global number of the step's first sample
inline constexpr std::uint16_t kMaskLayer = 2, kMaskDecoderLayer = 5;
inline constexpr index_t kMaskBits = kSequence / kMaskHeadDim;  // keys of a column
inline constexpr index_t kMaskSource = 48, kMaskCrossDim = 4;   // the same bits a column

// A number for each element of (kGlobal samples, kSequence, columns).
struct MaskTable {
  static constexpr int kNotHere = -1;   // another rank has it
  static constexpr int kNotAMask = -2;  // what came out is no mask

  explicit MaskTable(index_t columns_in)
      : columns(columns_in),
        values(static_cast<std::size_t>(kGlobal * kSequence * columns), kNotHere) {}
  int& at(index_t sample, index_t position, index_t column) {
    return values[index_of(sample, position, column)];
  }
  int at(index_t sample, index_t position, index_t column) const {
    return values[index_of(sample, position, column)];
  }
  std::size_t index_of(index_t sample, index_t position, index_t column) const {
    return static_cast<std::size_t>((sample * kSequence + position) * columns + column);
  }

  index_t columns;
  std::vector<int> values;
};

struct Masks {
  MaskTable embedding{kMaskHidden}, embedding_backward{kMaskHidden};
  MaskTable outputs{kMaskHidden}, attention_backward{kMaskHidden},
      mlp_backward{kMaskHidden};
  MaskTable probabilities{kMaskHeads * kMaskHeadDim};
  // Of a layer with cross attention.
  MaskTable decoder_outputs{kMaskHidden}, cross_backward{kMaskHidden};
  MaskTable cross_probabilities{kMaskHeads * kMaskCrossDim};
};

// This rank's, of samples [first, first + count) of the step in micro-batches of `micro`.
Masks draw_masks(const comm::ProcessGroups& groups, bool sequence_parallel, index_t first,
                 index_t count, index_t micro);
Masks masks_of_one_rank();

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_LAYOUT_MASKS_HPP_
