// kernels/impl/dropout_rows.hpp — the dropout mask of rows of h elements, for the kernels
// that draw it where they use it.
//
// On the host the words of a piece of the row are drawn side by side into a buffer
// (impl/philox_lanes.hpp), since a loop that draws and uses them at once is not made into
// vectors. On a GPU each thread draws eight. Example: of 600 elements the host draws the
// words of 512, uses them, and draws those of 88. docs/math/dropout.md
#ifndef TRIREME_KERNELS_IMPL_DROPOUT_ROWS_HPP_
#define TRIREME_KERNELS_IMPL_DROPOUT_ROWS_HPP_

#include <cstdint>
#include <limits>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/plural.hpp"
#include "base/random.hpp"
#include "kernels/dropout.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/philox_lanes.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {

// What of a step masks depend on. A loop over rows reads it once: a GPU would read it
// again behind each row that is written, which might have been it.
struct DrawnBy {
  std::uint64_t seed = 0, sample_base = 0;

  DrawnBy() = default;
  KOKKOS_FORCEINLINE_FUNCTION DrawnBy(const StepState& step)
      : seed(step.seed), sample_base(step.sample_base) {}
};

// Everything that an element needs to know of the mask to draw its own bit of it.
template <class A>
struct DropoutMask {
  std::uint32_t threshold = 0;  // 0: everything is kept
  A scale{1};                   // of what is kept, with a factor
  std::uint32_t batch = 1;  // a GPU divides numbers of 64 bits in three times the time
  index_t sequence_begin = 0;
  std::uint64_t calls_per_row = 0;
  std::uint16_t layer = 0;
  random::Site site = random::Site::embedding;

  static constexpr index_t kMostRows = std::numeric_limits<std::uint32_t>::max();

  DropoutMask() = default;
  DropoutMask(const DropoutDesc& desc, index_t rows, index_t h, const char* kernel)
      : batch(static_cast<std::uint32_t>(desc.batch)),
        sequence_begin(desc.sequence_begin),
        calls_per_row(random::DropoutWords::calls_per_row(static_cast<std::uint64_t>(h))),
        layer(desc.layer),
        site(desc.site) {
    TRIREME_REQUIRE(
        random::DropoutWords::can_express(desc.probability),
        "kernels::{}: dropout probability {} is not in [0, 1), or is 0 or 1 in "
        "16 bits",
        kernel, desc.probability);
    threshold = random::DropoutWords::threshold(desc.probability);
    scale = static_cast<A>(random::DropoutWords::keep_scale(threshold));
    TRIREME_REQUIRE(desc.batch > 0 && rows % desc.batch == 0,
                    "kernels::{}: {} are no multiple of the batch {}", kernel,
                    format_plural(rows, "row"), desc.batch);
    TRIREME_REQUIRE(rows <= kMostRows && desc.batch <= kMostRows,
                    "kernels::{}: {} in a batch of {}, {} at most", kernel,
                    format_plural(rows, "row"), desc.batch, kMostRows);
    TRIREME_REQUIRE(desc.factor == 1.0,
                    "kernels::{}: a factor of {}, where there is none", kernel,
                    desc.factor);
  }
  // Of kernels that multiply with `scale` where nothing is dropped, too.
  static DropoutMask with_factor(DropoutDesc desc, index_t rows, index_t h,
                                 const char* kernel) {
    const double factor = desc.factor;
    desc.factor = 1.0;
    DropoutMask mask(desc, rows, h, kernel);
    mask.scale = static_cast<A>(factor * static_cast<double>(mask.scale));
    return mask;
  }
  // Whether what goes through is what came.
  bool changes_nothing() const { return threshold == 0 && scale == A{1}; }

  KOKKOS_FORCEINLINE_FUNCTION random::Generator generator(const DrawnBy& step,
                                                          index_t row) const {
    random::Generator generator;
    generator.seed = step.seed;
    generator.owner = step.sample_base + static_cast<std::uint32_t>(row) % batch;
    generator.layer = layer;
    generator.site = site;
    generator.stream = random::Stream::dropout;
    return generator;
  }
  KOKKOS_FORCEINLINE_FUNCTION std::uint64_t first_call(index_t row) const {
    const index_t position = sequence_begin + static_cast<std::uint32_t>(row) / batch;
    return static_cast<std::uint64_t>(position) * calls_per_row;
  }
};

// Words of one row that the host draws at a time: a multiple of a group's.
inline constexpr index_t kWordsAtOnce = 8 * (2 * kPhiloxWords);

// words[i] = word of element begin + i of the row, for i in [0, count), which is at most
// kWordsAtOnce; what is behind is overwritten, too. begin is a multiple of 8.
inline void draw_words(const random::Generator& generator, std::uint64_t first_call,
                       index_t begin, index_t count, std::uint16_t* words) {
  constexpr index_t kPerGroup = 2 * kPhiloxWords;
  philox_lanes<random::DropoutWords::kRounds, WordOrder::by_call>(
      generator,
      first_call + static_cast<std::uint64_t>(begin) / random::DropoutWords::kPerCall,
      static_cast<int>((count + kPerGroup - 1) / kPerGroup), words);
}

// What a mask makes of the values of some columns, whose words it has.
template <class A, class Words>
struct Dropping {
  Words words;
  std::uint32_t threshold;
  A scale;
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value operator()(const Value& value) const {
    return zero_below(threshold, words, value * scale);
  }
};
// The same where everything is kept and scaled.
template <class A>
struct Scaling {
  A scale;
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value operator()(const Value& value) const {
    return value * scale;
  }
};
// And where it is kept as it is.
struct Keeping {
  template <class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value operator()(const Value& value) const {
    return value;
  }
};

template <class A, class Words>
KOKKOS_FORCEINLINE_FUNCTION Dropping<A, Words> dropping(const DropoutMask<A>& mask,
                                                        Words words) {
  return {words, mask.threshold, mask.scale};
}

// body(j, dropping) for the columns of a row, as for_each_lanes() takes them.
template <class A, class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_dropping(const HostRow& team,
                                                   const DropoutMask<A>& mask,
                                                   const StepState& step, index_t row,
                                                   index_t h, const Body& body) {
  std::uint16_t words[kWordsAtOnce];
  const random::Generator generator = mask.generator(step, row);
  for (index_t begin = 0; begin < h; begin += kWordsAtOnce) {
    const index_t left = h - begin < kWordsAtOnce ? h - begin : kWordsAtOnce;
    draw_words(generator, mask.first_call(row), begin, left, words);
    for_each_lanes(team, left,
                   [&](auto i) { body(begin + i, dropping(mask, words_at(words, i))); });
  }
}

template <class A, class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_dropping(const TeamRow& team,
                                                   const DropoutMask<A>& mask,
                                                   const StepState& step, index_t row,
                                                   index_t h, const Body& body) {
  using random::DropoutWords;
  const random::Generator generator = mask.generator(step, row);
  const std::uint64_t first_call = mask.first_call(row);
  static_assert(kPieceColumns == DropoutWords::kPerCall);
  const index_t pieces = team.has_pieces ? h / kPieceColumns : 0;
  for_each_column(team, (h + kPieceColumns - 1) / kPieceColumns, [&](index_t q) {
    const random::Words words =
        DropoutWords::call(generator, first_call + static_cast<std::uint64_t>(q));
    const index_t begin = kPieceColumns * q;
    if (q < pieces) {
      body(PieceAt{begin}, dropping(mask, words));
      return;
    }
    for (int k = 0; k < kPieceColumns && begin + k < h; ++k) {
      body(begin + k, dropping(mask, DropoutWords::half(words.word[k / 2], k % 2)));
    }
  });
}

// The same, where no numbers are drawn if everything is kept.
template <class A, class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_masked(const RowTeam& team,
                                                 const DropoutMask<A>& mask,
                                                 const StepState* step, index_t row,
                                                 index_t h, const Body& body) {
  if (mask.threshold == 0) {
    // Times 1 where there is no factor, which changes no bit.
    const Scaling<A> scaling{mask.scale};
    for_each_lanes(team, h, [=](auto j) { body(j, scaling); });
  } else {
    for_each_dropping(team, mask, *step, row, h, body);
  }
}

// One row of y = residual + dropout(x + bias); bias and residual may be null.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void bias_dropout_add_row(
    const RowTeam& team, const DropoutMask<Accumulator<T>>& mask, const StepState* step,
    index_t row, index_t h, const T* x, const T* bias, const T* residual, T* y) {
  using A = Accumulator<T>;
  const T* const in = x + row * h;
  const T* const by_pass = residual == nullptr ? nullptr : residual + row * h;
  T* const out = y + row * h;
  for_each_masked(team, mask, step, row, h, [=](auto j, const auto& dropped) {
    auto value = read_streamed<A>(in, j);
    if (bias != nullptr) value = value + read<A>(bias, j);
    value = dropped(value);
    if (by_pass != nullptr) value = value + read_streamed<A>(by_pass, j);
    write(out, j, value);
  });
}

// Where a GPU's threads have the words of a row from, a piece at a time.
struct WordsOfRow {
  random::Generator generator;
  std::uint64_t first_call = 0;

  WordsOfRow() = default;
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION WordsOfRow(const DropoutMask<A>& mask, const DrawnBy& step,
                                         index_t row)
      : generator(mask.generator(step, row)), first_call(mask.first_call(row)) {}
  KOKKOS_FORCEINLINE_FUNCTION random::Words at(PieceAt piece) const {
    const auto call = static_cast<std::uint64_t>(piece.j / kPieceColumns);
    return random::DropoutWords::call(generator, first_call + call);
  }
};

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_DROPOUT_ROWS_HPP_
