// tensor/arena.cpp — see arena.hpp.
#include "tensor/arena.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plural.hpp"

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
                  "workspace of {} is full: {} in use, {} more asked for ({}); the "
                  "shape-only pass planned for less than the step takes",
                  format_plural(capacity_, "byte"), begin, size, name_of(category));
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

namespace {

std::size_t bytes_of(const std::vector<std::size_t>& each,
                     const std::vector<int>& counts) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < each.size(); ++i) {
    bytes += each[i] * static_cast<std::size_t>(counts[i]);
  }
  return bytes;
}

// Bytes of the fullest of each row of arenas, and how many there are.
void note_peaks(const std::vector<std::vector<Arena>>& arenas,
                std::vector<std::size_t>& bytes, std::vector<int>& counts) {
  for (const std::vector<Arena>& row : arenas) {
    std::size_t fullest = 0;
    for (const Arena& arena : row) fullest = std::max(fullest, arena.peak());
    bytes.push_back(fullest);
    counts.push_back(static_cast<int>(row.size()));
  }
}

}  // namespace

std::size_t Workspace::Plan::held_bytes() const {
  return bytes_of(held, held_slots);
}

std::size_t Workspace::Plan::total() const {
  return scratch + held_bytes() + bytes_of(saved, slots);
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
  const auto cut_rows = [&](const std::vector<std::size_t>& bytes,
                            const std::vector<int>& counts,
                            std::vector<std::vector<Arena>>& arenas) {
    for (std::size_t c = 0; c < bytes.size(); ++c) {
      arenas.emplace_back();
      for (int i = 0; i < counts[c]; ++i) arenas.back().push_back(cut(bytes[c]));
    }
  };
  cut_rows(plan.saved, plan.slots, saved_);
  scratch_ = cut(plan.scratch);
  cut_rows(plan.held, plan.held_slots, held_);
}

Workspace::Workspace(const std::vector<int>& slots, const std::vector<int>& held_slots) {
  for (const int count : slots) saved_.emplace_back(count);
  for (const int count : held_slots) held_.emplace_back(count);
}

Workspace::Plan Workspace::peaks() const {
  Plan plan;
  note_peaks(saved_, plan.saved, plan.slots);
  plan.scratch = scratch_.peak();
  note_peaks(held_, plan.held, plan.held_slots);
  return plan;
}

std::array<std::size_t, kCategoryCount> Workspace::saved_peaks() const {
  std::array<std::size_t, kCategoryCount> peaks{};
  for (const std::vector<Arena>& slots : saved_) {
    for (std::size_t c = 0; c < peaks.size(); ++c) {
      std::size_t fullest = 0;
      for (const Arena& arena : slots) {
        fullest = std::max(fullest, arena.peak_by_category()[c]);
      }
      peaks[c] += fullest * slots.size();
    }
  }
  return peaks;
}

Arena& Workspace::saved(int chunk, int slot) {
  return saved_.at(static_cast<std::size_t>(chunk)).at(static_cast<std::size_t>(slot));
}

Arena& Workspace::held(int chunk, int slot) {
  return held_.at(static_cast<std::size_t>(chunk)).at(static_cast<std::size_t>(slot));
}

}  // namespace trireme
