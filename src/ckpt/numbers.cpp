// ckpt/numbers.cpp — see numbers.hpp.
#include "ckpt/numbers.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "io/element_types.hpp"

namespace trireme::ckpt {

namespace {

// The bits of an element type: without the sign, numbers from kInfinity on are infinite
// or none; with it, those above the sign alone are below zero (-0.0 is zero).
template <class W, W infinity>
struct BitsOf {
  using Word = W;
  static constexpr Word kSign = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  static constexpr Word kInfinity = infinity;
};
template <class T>
struct Bits;
template <>
struct Bits<float> : BitsOf<std::uint32_t, 0x7f800000u> {};
template <>
struct Bits<double> : BitsOf<std::uint64_t, std::uint64_t{0x7ff} << 52> {};
template <>
struct Bits<bf16> : BitsOf<std::uint16_t, 0x7f80u> {};
template <>
struct Bits<fp16> : BitsOf<std::uint16_t, 0x7c00u> {};

template <class T>
typename Bits<T>::Word word_at(const std::byte* data, std::size_t i) {
  typename Bits<T>::Word word;
  std::memcpy(&word, data + i * sizeof(word), sizeof(word));
  return word;
}

template <class T>
bool is_bad(typename Bits<T>::Word word, bool has_sign) {
  using Of = Bits<T>;
  const bool is_finite =
      static_cast<typename Of::Word>(word & ~Of::kSign) < Of::kInfinity;
  return !is_finite || (!has_sign && word > Of::kSign);
}

}  // namespace

BadNumbers::BadNumbers(const TensorEntry& tensor)
    : tensor_(tensor),
      columns_(whole(tensor.shape).columns),
      has_sign_(!tensor.name.starts_with(kExpAvgSqGroup)) {}

template <class T>
void BadNumbers::scan(const Rectangle& place, index_t first, const std::byte* data,
                      std::size_t count) {
  std::size_t bad = 0;  // no branch: the compiler makes vectors of it
  for (std::size_t i = 0; i < count; ++i) {
    bad += is_bad<T>(word_at<T>(data, i), has_sign_) ? 1 : 0;
  }
  if (bad == 0) return;
  std::size_t i = 0;
  while (!is_bad<T>(word_at<T>(data, i), has_sign_)) ++i;
  const index_t inside = first + static_cast<index_t>(i);
  const index_t number = (place.row + inside / place.columns) * columns_ + place.column +
                         inside % place.columns;
  if (count_ == 0 || number < first_) {
    T value;
    std::memcpy(static_cast<void*>(&value), data + i * sizeof(T), sizeof(T));
    first_ = number;
    value_ = static_cast<double>(value);
  }
  count_ += static_cast<index_t>(bad);
}

void BadNumbers::look_at(const Rectangle& place, index_t first, const std::byte* data,
                         std::size_t bytes) {
  const std::size_t count = bytes / size_of(tensor_.dtype);
  io::with_real(tensor_.dtype,
                [&](auto zero) { scan<decltype(zero)>(place, first, data, count); });
}

std::string BadNumbers::text() const {
  if (count_ == 0) return "";
  Shape at(tensor_.shape.size());
  index_t rest = first_;
  for (std::size_t i = at.size(); i-- > 0;) {
    at[i] = rest % tensor_.shape[i];
    rest /= tensor_.shape[i];
  }
  return fmt::format("{} of '{}' {} not finite{}; the first is {} at {}",
                     format_plural(count_, "number"), tensor_.name,
                     count_ == 1 ? "is" : "are",
                     has_sign_ ? "" : ", or below zero, which no second moment is",
                     value_, to_string(at));
}

}  // namespace trireme::ckpt
