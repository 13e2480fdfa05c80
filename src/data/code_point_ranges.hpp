// data/code_point_ranges.hpp — characters as ascending lists of ranges.
#ifndef TRIREME_DATA_CODE_POINT_RANGES_HPP_
#define TRIREME_DATA_CODE_POINT_RANGES_HPP_

#include <algorithm>
#include <span>

namespace trireme::data {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// The range with this character, of ascending ones that have a `first` and a `last`; null
// where none has it.
template <class Range>
const Range* find_range(std::span<const Range> ranges, char32_t character) {
  const auto found = std::ranges::lower_bound(ranges, character, {}, &Range::last);
  return found != ranges.end() && found->first <= character ? &*found : nullptr;
}
inline bool is_in(std::span<const CodePointRange> ranges, char32_t character) {
  return find_range(ranges, character) != nullptr;
}

}  // namespace trireme::data

#endif  // TRIREME_DATA_CODE_POINT_RANGES_HPP_
