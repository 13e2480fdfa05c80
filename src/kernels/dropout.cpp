// kernels/dropout.cpp — masks drawn where they are used, by counter.
//
// On the host the words of a piece of the row are drawn side by side
// (impl/philox_lanes.hpp), on a GPU each thread draws eight. Derivation:
// docs/math/dropout.md
#include "kernels/dropout.hpp"

#include "base/plural.hpp"
#include "kernels/impl/philox_lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {
namespace {

// Everything that an element needs to know of the mask to draw its own bit of it.
template <class A>
struct Mask {
  std::uint32_t threshold = 0;  // 0: everything is kept
  A scale{1};                   // of what is kept
  index_t batch = 1;
  index_t sequence_begin = 0;
  std::uint64_t calls_per_row = 0;
  std::uint16_t layer = 0;
  random::Site site = random::Site::embedding;

  Mask(const DropoutDesc& desc, index_t rows, index_t h, const char* kernel)
      : batch(desc.batch),
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
  }

  KOKKOS_FORCEINLINE_FUNCTION random::Generator generator(const StepState& step,
                                                          index_t row) const {
    random::Generator generator;
    generator.seed = step.seed;
    generator.owner = step.sample_base + static_cast<std::uint64_t>(row % batch);
    generator.layer = layer;
    generator.site = site;
    generator.stream = random::Stream::dropout;
    return generator;
  }
  KOKKOS_FORCEINLINE_FUNCTION std::uint64_t first_call(index_t row) const {
    return static_cast<std::uint64_t>(sequence_begin + row / batch) * calls_per_row;
  }
};

// body(j, word) for each element j of a row and its word.
template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_word(const HostRow&,
                                               const random::Generator& generator,
                                               std::uint64_t first_call, index_t count,
                                               const Body& body) {
  constexpr int kGroups = 4;
  constexpr index_t kPerGroup = 2 * kPhiloxWords;
  constexpr index_t kChunk = kGroups * kPerGroup;
  std::uint16_t words[kChunk];
  for (index_t begin = 0; begin < count; begin += kChunk) {
    const index_t left = count - begin < kChunk ? count - begin : kChunk;
    philox_lanes<random::DropoutWords::kRounds, WordOrder::by_call>(
        generator, first_call + static_cast<std::uint64_t>(begin) / 8,
        static_cast<int>((left + kPerGroup - 1) / kPerGroup), words);
    TRIREME_INDEPENDENT_ITERATIONS
    for (index_t i = 0; i < left; ++i) body(begin + i, words[i]);
  }
}

template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_word(const TeamMember& team,
                                               const random::Generator& generator,
                                               std::uint64_t first_call, index_t count,
                                               const Body& body) {
  using random::DropoutWords;
  for_each_column(team, (count + 7) / 8, [&](index_t q) {
    const random::Words words =
        DropoutWords::call(generator, first_call + static_cast<std::uint64_t>(q));
    for (int k = 0; k < 8; ++k) {
      if (8 * q + k < count) {
        body(8 * q + k, DropoutWords::half(words.word[k / 2], k % 2));
      }
    }
  });
}

}  // namespace

template <class T>
void bias_dropout_add_forward(const Exec& exec, const DropoutDesc& desc,
                              StepStateView step, View2<const T> x, View1<const T> bias,
                              View2<const T> residual, View2<T> y) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  const Mask<A> mask(desc, rows, h, "bias_dropout_add_forward");
  require_extents("bias_dropout_add_forward", "y", y, rows, h);
  if (bias.extent(0) != 0) require_extent("bias_dropout_add_forward", "bias", bias, h);
  if (residual.extent(0) != 0) {
    require_extents("bias_dropout_add_forward", "residual", residual, rows, h);
  }

  const T* const x_data = x.data();
  const T* const bias_data = bias.data();
  const T* const residual_data = residual.data();
  T* const y_data = y.data();
  const StepState* const state = step.data();
  launch_rows(
      exec,
      {"trireme::kernels::bias_dropout_add_forward",
       {.bytes = bytes_of(x, bias, residual, y)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = x_data + row * h;
        const T* const by_pass =
            residual_data == nullptr ? nullptr : residual_data + row * h;
        T* const out = y_data + row * h;
        const std::uint32_t threshold = mask.threshold;
        const A scale = mask.scale;
        // x (+ bias), times `factor`, (+ residual). The tests of the pointers do not
        // depend on j, so that the compiler takes them out of the loop.
        const auto element = [=](index_t j, A factor) {
          A value = static_cast<A>(in[j]);
          if (bias_data != nullptr) value += static_cast<A>(bias_data[j]);
          value = factor == A{0} ? A{0} : value * factor;
          if (by_pass != nullptr) value += static_cast<A>(by_pass[j]);
          out[j] = static_cast<T>(value);
        };
        if (threshold == 0) {
          for_each_column(team, h, [=](index_t j) { element(j, A{1}); });
        } else {
          for_each_word(team, mask.generator(*state, row), mask.first_call(row), h,
                        [=](index_t j, std::uint32_t word) {
                          element(j, word < threshold ? A{0} : scale);
                        });
        }
      });
}

template <class T>
void dropout_backward(const Exec& exec, const DropoutDesc& desc, StepStateView step,
                      View2<const T> d_y, View2<T> d_x) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(d_y.extent(0));
  const auto h = static_cast<index_t>(d_y.extent(1));
  const Mask<A> mask(desc, rows, h, "dropout_backward");
  require_extents("dropout_backward", "d_x", d_x, rows, h);

  const T* const d_y_data = d_y.data();
  T* const d_x_data = d_x.data();
  // Views of a pass on shapes have no memory that could be the same.
  const bool in_place = d_y_data == d_x_data && d_y_data != nullptr;
  if (mask.threshold == 0 && in_place) return;
  const StepState* const state = step.data();
  launch_rows(
      exec, {"trireme::kernels::dropout_backward", {.bytes = bytes_of(d_y, d_x)}}, rows,
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const d_out = d_y_data + row * h;
        T* const d_in = d_x_data + row * h;
        const std::uint32_t threshold = mask.threshold;
        const A scale = mask.scale;
        if (threshold == 0) {
          for_each_column(team, h, [=](index_t j) { d_in[j] = d_out[j]; });
        } else {
          for_each_word(team, mask.generator(*state, row), mask.first_call(row), h,
                        [=](index_t j, std::uint32_t word) {
                          const A value = static_cast<A>(d_out[j]) * scale;
                          d_in[j] = static_cast<T>(word < threshold ? A{0} : value);
                        });
        }
      });
}

#define TRIREME_INSTANTIATE(T)                                                \
  template decltype(bias_dropout_add_forward<T>) bias_dropout_add_forward<T>; \
  template decltype(dropout_backward<T>) dropout_backward<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
