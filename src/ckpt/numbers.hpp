// ckpt/numbers.hpp — numbers that no training can go on from: NaN and infinity, and
// second moments below zero. They are looked for as data pass by on their way to a
// checksum or to memory, so that nothing is read for it.
#ifndef TRIREME_CKPT_NUMBERS_HPP_
#define TRIREME_CKPT_NUMBERS_HPP_

#include <cstddef>
#include <string>

#include "base/types.hpp"
#include "ckpt/manifest.hpp"

namespace trireme::ckpt {

// Counts the bad numbers of one tensor, or of what is read of it.
class BadNumbers {
 public:
  explicit BadNumbers(const TensorEntry& tensor);

  // The elements of `place`, row by row and without gaps, from number `first` of it on.
  void look_at(const Rectangle& place, index_t first, const std::byte* data,
               std::size_t bytes);

  index_t count() const { return count_; }
  // "3 numbers of 'model/x' are not finite; the first is nan at (12, 7)"; empty where
  // there are none.
  std::string text() const;

 private:
  template <class T>
  void scan(const Rectangle& place, index_t first, const std::byte* data,
            std::size_t count);

  const TensorEntry& tensor_;
  index_t columns_;       // of the tensor
  bool has_sign_ = true;  // else numbers below zero are bad, too
  index_t count_ = 0;
  index_t first_ = 0;   // the first of them, counted in the whole tensor
  double value_ = 0.0;  // what it is
};

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_NUMBERS_HPP_
