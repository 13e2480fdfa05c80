// tensor/arena.hpp — memory for activations: fixed at start, handed out by bumping.
//
// An Arena is one range of device memory used as a stack. Its size comes from a
// shape-only pass: the same code runs on an unbacked Arena, which hands out null Views
// and records the peak. Categories say what the memory is for; the peak of each is
// reported.
//
// Three kinds make a Workspace: *saved* arenas, one per micro-batch in flight and model
// chunk, from a micro-batch's forward to its weight-gradient pass; *scratch*, empty
// between actions; *held*, what the weight-gradient pass needs from the input-gradient
// pass.
#ifndef TRIREME_TENSOR_ARENA_HPP_
#define TRIREME_TENSOR_ARENA_HPP_

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/exec.hpp"

namespace trireme {

enum class Category { hidden, attention, mlp, norm, logits, gradient, input };
inline constexpr int kCategoryCount = 7;
std::string_view name_of(Category category);

class Arena {
 public:
  // An unbacked arena, which hands out null Views and only counts.
  Arena() = default;
  // An arena that is backed by [data, data + bytes).
  Arena(std::byte* data, std::size_t bytes) : data_(data), capacity_(bytes) {}

  template <class T>
  View1<T> vector(Category category, index_t n) {
    return {take<T>(category, n), static_cast<std::size_t>(n)};
  }
  template <class T>
  View2<T> matrix(Category category, index_t rows, index_t columns) {
    return {take<T>(category, rows * columns), static_cast<std::size_t>(rows),
            static_cast<std::size_t>(columns)};
  }

  std::size_t used() const { return used_; }
  std::size_t peak() const { return peak_; }
  // Peak bytes of each category (their sum may exceed peak(): they need not coincide).
  const std::array<std::size_t, kCategoryCount>& peak_by_category() const {
    return category_peak_;
  }

  // Gives back everything taken since `mark` (a former used()).
  void release_to(std::size_t mark);
  void reset() { release_to(0); }

 private:
  template <class T>
  T* take(Category category, index_t count) {
    return reinterpret_cast<T*>(
        take_bytes(category, static_cast<std::size_t>(count) * sizeof(T)));
  }
  std::byte* take_bytes(Category category, std::size_t bytes);

  struct Block {
    std::size_t begin;
    Category category;
  };

  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;  // 0: unbacked
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
  std::vector<Block> blocks_;
  std::array<std::size_t, kCategoryCount> category_used_{};
  std::array<std::size_t, kCategoryCount> category_peak_{};
};

// Gives back at the end of a C++ scope what was taken in it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.used()) {}
  ~ArenaScope() { arena_.release_to(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  std::size_t mark_;
};

// All arenas of a rank, in one allocation.
class Workspace {
 public:
  struct Plan {
    std::vector<std::size_t> saved;  // bytes of one slot, per chunk
    std::vector<int> slots;          // micro-batches in flight, per chunk
    std::size_t scratch = 0;
    // Bytes of one held slot, for what weight passes need, and how many of them there
    // are: one for all chunks where weight gradients come at once; else per chunk, and
    // one for passes that leave nothing.
    std::vector<std::size_t> held;
    std::vector<int> held_slots;
    std::size_t held_bytes() const;
    std::size_t total() const;
  };

  Workspace() = default;
  explicit Workspace(const Plan& plan);
  // A workspace of as many unbacked arenas, which only count.
  Workspace(const std::vector<int>& slots, const std::vector<int>& held_slots);

  Arena& saved(int chunk, int slot);
  Arena& scratch() { return scratch_; }
  Arena& held(int chunk = 0, int slot = 0);
  std::size_t bytes() const { return memory_.extent(0); }
  // How much of each arena was in use at most; of a chunk's slots, in the fullest.
  Plan peaks() const;
  // The peaks of all saved arenas together, by what the memory is for; each as large as
  // the fullest of its chunk.
  std::array<std::size_t, kCategoryCount> saved_peaks() const;

 private:
  DeviceArray<std::byte> memory_;
  std::vector<std::vector<Arena>> saved_;
  Arena scratch_;
  std::vector<std::vector<Arena>> held_;
};

}  // namespace trireme

#endif  // TRIREME_TENSOR_ARENA_HPP_
