// step/drawn_texts.hpp — texts that grow on the device: a row each, and what the host
// writes there before some steps and reads after them.
#ifndef TRIREME_STEP_DRAWN_TEXTS_HPP_
#define TRIREME_STEP_DRAWN_TEXTS_HPP_

#include <cstdint>
#include <span>

#include "base/exec.hpp"
#include "base/pinned.hpp"
#include "kernels/sampling.hpp"

namespace trireme::step {

class DrawnTexts {
 public:
  // A text that is to go on.
  struct Row {
    index_t token = 0;        // its last one, which no step has read yet
    index_t position = 0;     // where that one goes in the cache
    index_t size = 0;         // tokens that the text has
    index_t left = 0;         // tokens that it may yet get
    std::uint64_t owner = 0;  // of its random numbers (kernels::TextRows)
  };

  // Every row may get `most` tokens between two looks of the host. On a shape-only Exec
  // without memory.
  DrawnTexts(const Exec& exec, index_t rows, index_t most);
  std::size_t device_bytes() const;

  kernels::TextRows rows() const;

  // On the host, in this order: all rows become empty, some are set, all are sent to the
  // device; steps run; what these drew is fetched, for which the host waits.
  void clear();
  void set(index_t row, const Row& text);
  void send(const Exec& exec) const;
  void fetch(const Exec& exec);
  // What the row got, in order; see kernels::TextRows::drawn.
  std::span<const std::int32_t> drawn(index_t row) const;

 private:
  // Numbers of each row, one array behind the other; the tokens drawn are behind all.
  enum Field : index_t { token, position, length, size, left, count, kFields };
  std::int32_t& number(Field field, index_t row);

  index_t rows_, most_;
  DeviceArray<std::int32_t> numbers_;
  DeviceArray<std::uint64_t> owners_;
  PinnedArray<std::int32_t> host_numbers_;
  PinnedArray<std::uint64_t> host_owners_;
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_DRAWN_TEXTS_HPP_
