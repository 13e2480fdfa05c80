// kernels/attention_bias.cpp — the gradient of a bias by distance, of the sums that
// attention's backward pass leaves: impl/attention_bias.hpp.
//
// A window has a few hundred sums, and there are hundreds of them for each head. A host
// adds one behind the other, for some distances at a time; a GPU has eight distances a
// team, whose threads have some of the windows each (combine_rows()).
#include "kernels/impl/attention_bias.hpp"

#include "base/types.hpp"
#include "kernels/impl/attention_fast.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

namespace {

constexpr index_t kDistances = kRowsByTeams ? kCombineTile : 64;  // of a work item

template <class Acc>
struct WindowsOfHead {
  impl::BiasSums sums;
  const Acc* windows;  // of the first sample
  index_t samples, per_sample;

  KOKKOS_FORCEINLINE_FUNCTION const Acc* window(index_t sample, index_t w) const {
    return windows + sample * per_sample + w * sums.length;
  }
  // Where the bias's first distance is in window w; it may be none of the window's.
  KOKKOS_FORCEINLINE_FUNCTION index_t origin(index_t w) const {
    return sums.shift + w * sums.step;
  }
};

// to[i] = what the windows have of the distances from `begin` on, sample by sample.
template <class Acc>
KOKKOS_FORCEINLINE_FUNCTION void add_windows(const HostRow& team,
                                             const WindowsOfHead<Acc>& of, index_t begin,
                                             index_t count, Acc* to) {
  for_each_column(team, count, [=](index_t i) { to[i] = Acc{0}; });
  for (index_t sample = 0; sample < of.samples; ++sample) {
    for (index_t w = 0; w < of.sums.windows; ++w) {
      const Acc* const window = of.window(sample, w);
      const index_t at = begin + of.origin(w);
      const index_t from = at < 0 ? -at : 0, left = of.sums.length - at;
      const index_t end = left < count ? left : count;
      for (index_t i = from; i < end; ++i) to[i] += window[at + i];
    }
  }
}
template <class Acc>
KOKKOS_FORCEINLINE_FUNCTION void add_windows(const TeamRow& team,
                                             const WindowsOfHead<Acc>& of, index_t begin,
                                             index_t count, Acc* to) {
  const index_t windows = of.sums.windows, length = of.sums.length;
  combine_rows(team, false, of.samples * windows, begin, count, to, [=](index_t row) {
    const index_t w = row % windows, origin = of.origin(w);
    const Acc* const window = of.window(row / windows, w);
    return [=](index_t distance) {
      const index_t at = distance + origin;
      return at >= 0 && at < length ? window[at] : Acc{0};
    };
  });
}

}  // namespace

template <class Acc>
void impl::sum_bias_windows(const Exec& exec, const AttentionDesc& desc,
                            const BiasSums& sums, const Acc* windows, Acc* d_bias) {
  if (!desc.has_bias) return;
  const index_t count = distances(desc), tiles = tiles_of(count, kDistances);
  const index_t heads = desc.heads, per_head = sums.windows * sums.length;
  const auto element = static_cast<index_t>(sizeof(Acc));
  const index_t read = desc.batch * heads * per_head, written = heads * count;
  const WindowsOfHead<Acc> of_first{sums, windows, desc.batch, heads * per_head};
  launch_rows(
      exec,
      {"trireme::kernels::attention_backward[bias]",
       {.bytes = (read + written) * element}},
      heads * tiles, ColumnsOfRows(),
      KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t head = item / tiles, begin = item % tiles * kDistances;
        WindowsOfHead<Acc> of = of_first;
        of.windows += head * per_head;
        add_windows(team, of, begin, tile_width(count, begin, kDistances),
                    d_bias + head * count + begin);
      },
      kCombineScratch<Acc>);
}

template decltype(impl::sum_bias_windows<float>) impl::sum_bias_windows<float>;
template decltype(impl::sum_bias_windows<double>) impl::sum_bias_windows<double>;

}  // namespace trireme::kernels
