// tensor/arena.cpp — see arena.hpp.
#include "tensor/arena.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme {

namespace {
// Enough for any vector load, and whole cache lines, so that neighbours never share one.
constexpr std::size_t kAlignBytes = 256;
constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}
}  // namespace

std::string_view name_of(Category category) {
  constexpr std::array<std::string_view, kCategoryCount> names = {
      "hidden", "attention", "mlp", "norm", "logits", "gradient", "input"};
  return names[static_cast<std::size_t>(category)];
}

std::byte* Arena::take_bytes(Category category, std::size_t bytes) {
  const std::size_t begin = used_;
  const std::size_t size = round_up(bytes);
  TRIREME_REQUIRE(data_ == nullptr || begin + size <= capacity_,
                  "workspace of {} bytes is full: {} in use, {} more asked for ({}); the "
                  "shape-only pass planned for less than the step takes",
                  capacity_, begin, size, name_of(category));
  used_ += size;
  peak_ = std::max(peak_, used_);
  blocks_.push_back({begin, category});
  const auto c = static_cast<std::size_t>(category);
  category_used_[c] += size;
  category_peak_[c] = std::max(category_peak_[c], category_used_[c]);
  return data_ == nullptr ? nullptr : data_ + begin;
}

void Arena::release_to(std::size_t mark) {
  while (!blocks_.empty() && blocks_.back().begin >= mark) {
    const Block block = blocks_.back();
    category_used_[static_cast<std::size_t>(block.category)] -= used_ - block.begin;
    used_ = block.begin;
    blocks_.pop_back();
  }
}

std::size_t Workspace::Plan::total() const {
  std::size_t bytes = scratch + held;
  for (std::size_t c = 0; c < saved.size(); ++c) {
    bytes += saved[c] * static_cast<std::size_t>(slots[c]);
  }
  return bytes;
}

Workspace::Workspace(const Plan& plan)
    : memory_(Kokkos::view_alloc("workspace", Kokkos::WithoutInitializing),
              plan.total()) {
  std::byte* next = memory_.data();
  const auto cut = [&](std::size_t bytes) {
    Arena arena(next, bytes);
    next += bytes;
    return arena;
  };
  for (std::size_t c = 0; c < plan.saved.size(); ++c) {
    saved_.emplace_back();
    for (int slot = 0; slot < plan.slots[c]; ++slot) {
      saved_.back().push_back(cut(plan.saved[c]));
    }
  }
  scratch_ = cut(plan.scratch);
  held_ = cut(plan.held);
}

Workspace::Plan Workspace::peaks() const {
  Plan plan;
  for (const std::vector<Arena>& slots : saved_) {
    std::size_t fullest = 0;
    for (const Arena& arena : slots) fullest = std::max(fullest, arena.peak());
    plan.saved.push_back(fullest);
    plan.slots.push_back(static_cast<int>(slots.size()));
  }
  plan.scratch = scratch_.peak();
  plan.held = held_.peak();
  return plan;
}

std::array<std::size_t, kCategoryCount> Workspace::saved_peaks() const {
  std::array<std::size_t, kCategoryCount> peaks{};
  for (const std::vector<Arena>& slots : saved_) {
    for (const Arena& arena : slots) {
      for (std::size_t c = 0; c < peaks.size(); ++c) {
        peaks[c] += arena.peak_by_category()[c];
      }
    }
  }
  return peaks;
}

Arena& Workspace::saved(int chunk, int slot) {
  return saved_.at(static_cast<std::size_t>(chunk)).at(static_cast<std::size_t>(slot));
}

}  // namespace trireme
