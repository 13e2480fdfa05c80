// Activation memory: bump allocation, alignment, peaks by category, and a plan that was
// too small is an error that says so.
#include "tensor/arena.hpp"

#include <gmock/gmock.h>

#include <random>

#include "base/error.hpp"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::size_t peak(const Arena& arena, Category category) {
  return arena.peak_by_category()[static_cast<std::size_t>(category)];
}

TEST(ArenaUnbacked, HandsOutNullViewsAndCounts) {
  Arena arena;
  const auto x = arena.vector<float>(Category::mlp, 100);
  const auto y = arena.matrix<double>(Category::mlp, 3, 5);
  EXPECT_EQ(x.data(), nullptr);
  EXPECT_EQ(x.extent(0), 100u);
  EXPECT_EQ(y.data(), nullptr);
  EXPECT_EQ(y.extent(0), 3u);
  EXPECT_EQ(y.extent(1), 5u);
  EXPECT_EQ(arena.used(), 512u + 256u);  // 400 and 120 bytes in whole 256s
  EXPECT_EQ(arena.peak(), arena.used());
}

TEST(ArenaBacked, PartsAreAlignedAndApart) {
  const DeviceArray<std::byte> memory("memory", 64 << 10);
  Arena arena(memory.data(), memory.extent(0));
  std::mt19937 engine(3);
  std::vector<std::pair<const std::byte*, const std::byte*>> parts;
  for (int i = 0; i < 40; ++i) {
    const auto count = static_cast<index_t>(engine() % 700);
    const auto bytes = [&](const auto& view) {
      const auto* begin = reinterpret_cast<const std::byte*>(view.data());
      EXPECT_EQ(static_cast<std::size_t>(begin - memory.data()) % 256, 0u);
      EXPECT_GE(begin, memory.data());
      EXPECT_LE(begin + view.size() * sizeof(view.data()[0]),
                memory.data() + memory.extent(0));
      parts.emplace_back(begin, begin + view.size() * sizeof(view.data()[0]));
    };
    if (i % 3 == 0) bytes(arena.vector<double>(Category::hidden, count / 8));
    if (i % 3 == 1) bytes(arena.vector<bf16>(Category::norm, count));
    if (i % 3 == 2) bytes(arena.matrix<float>(Category::mlp, 7, count / 40));
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    ASSERT_GE(parts[i].first, parts[i - 1].second) << i;
  }
}

// The unbacked pass and the real one are the same code: they must use the same memory.
TEST(ArenaBacked, UsesWhatTheUnbackedPassCounted) {
  const auto step = [](Arena& arena) {
    arena.vector<float>(Category::hidden, 1000);
    {
      const ArenaScope scope(arena);
      arena.matrix<double>(Category::attention, 31, 33);
      arena.vector<float>(Category::attention, 1);
      const ArenaScope inner(arena);
      arena.vector<float>(Category::logits, 5000);
    }
    arena.vector<float>(Category::mlp, 2000);
  };
  Arena planned;
  step(planned);
  const DeviceArray<std::byte> memory("memory", planned.peak());
  Arena real(memory.data(), memory.extent(0));
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_NO_THROW(step(real));
    EXPECT_EQ(real.used(), planned.used());
    EXPECT_EQ(real.peak(), planned.peak());
    EXPECT_EQ(real.peak_by_category(), planned.peak_by_category());
    real.reset();
    EXPECT_EQ(real.used(), 0u);
  }
}

TEST(ArenaPeak, IsKeptByCategory) {
  Arena arena;
  arena.vector<std::uint8_t>(Category::hidden, 1024);
  const std::size_t mark = arena.used();
  arena.vector<std::uint8_t>(Category::attention, 4096);
  arena.vector<std::uint8_t>(Category::hidden, 512);
  arena.release_to(mark);
  EXPECT_EQ(arena.used(), 1024u);
  arena.vector<std::uint8_t>(Category::logits, 2048);
  arena.vector<std::uint8_t>(Category::hidden, 256);
  EXPECT_EQ(arena.used(), 1024u + 2048u + 256u);
  EXPECT_EQ(arena.peak(), 1024u + 4096u + 512u);
  EXPECT_EQ(peak(arena, Category::hidden), 1024u + 512u);
  EXPECT_EQ(peak(arena, Category::attention), 4096u);
  EXPECT_EQ(peak(arena, Category::logits), 2048u);
  EXPECT_EQ(peak(arena, Category::gradient), 0u);
  // What was given back does not count again.
  arena.reset();
  arena.vector<std::uint8_t>(Category::hidden, 1536);
  EXPECT_EQ(peak(arena, Category::hidden), 1536u);
  EXPECT_EQ(arena.peak(), 1024u + 4096u + 512u);
}

TEST(ArenaScopes, GiveBackInAnyDepth) {
  Arena arena;
  arena.vector<float>(Category::hidden, 1);
  {
    const ArenaScope outer(arena);
    arena.vector<float>(Category::mlp, 1);
    {
      const ArenaScope inner(arena);
      arena.vector<float>(Category::mlp, 1);
      arena.vector<float>(Category::mlp, 0);  // nothing, and no harm
    }
    EXPECT_EQ(arena.used(), 512u);
  }
  EXPECT_EQ(arena.used(), 256u);
  const ArenaScope nothing_taken(arena);
  EXPECT_EQ(arena.used(), 256u);
}

TEST(ArenaOverflow, SaysWhatWasAskedFor) {
  const DeviceArray<std::byte> memory("memory", 1024);
  Arena arena(memory.data(), 1024);
  arena.vector<std::uint8_t>(Category::mlp, 512);
  EXPECT_THAT([&] { arena.vector<std::uint8_t>(Category::attention, 600); },
              ThrowsMessage<Error>(AllOf(HasSubstr("workspace of 1,024 bytes is full"),
                                         HasSubstr("512 in use"),
                                         HasSubstr("768 more asked for (attention)"))));
  // The refusal took nothing, and what fits still goes in.
  EXPECT_EQ(arena.used(), 512u);
  EXPECT_EQ(peak(arena, Category::attention), 0u);
  EXPECT_NO_THROW(arena.vector<std::uint8_t>(Category::attention, 512));
  EXPECT_THROW(arena.vector<std::uint8_t>(Category::attention, 1), Error);
}

TEST(ArenaNames, OfCategories) {
  EXPECT_EQ(name_of(Category::hidden), "hidden");
  EXPECT_EQ(name_of(Category::logits), "logits");
  EXPECT_EQ(name_of(Category::input), "input");
}

TEST(ArenaWorkspace, CutsOneAllocation) {
  const Workspace::Plan plan{.saved = {1024, 512},
                             .slots = {2, 3},
                             .scratch = 2048,
                             .held = {256, 768},
                             .held_slots = {1, 2}};
  EXPECT_EQ(plan.held_bytes(), 256u + 2 * 768u);
  EXPECT_EQ(plan.total(), 2 * 1024u + 3 * 512u + 2048u + 256u + 2 * 768u);
  Workspace workspace(plan);
  EXPECT_EQ(workspace.bytes(), plan.total());
  // Every arena holds its share to the last byte, and no two share one.
  std::vector<View1<std::uint8_t>> views;
  const auto fill = [&](Arena& arena, index_t bytes) {
    views.push_back(arena.vector<std::uint8_t>(Category::hidden, bytes));
    EXPECT_THROW(arena.vector<std::uint8_t>(Category::hidden, 1), Error);
  };
  for (const int slot : {0, 1}) fill(workspace.saved(0, slot), 1024);
  for (const int slot : {0, 1, 2}) fill(workspace.saved(1, slot), 512);
  fill(workspace.scratch(), 2048);
  fill(workspace.held(), 256);
  for (const int place : {0, 1}) fill(workspace.held(1, place), 768);
  for (std::size_t i = 0; i < views.size(); ++i) {
    Kokkos::deep_copy(views[i], static_cast<std::uint8_t>(i + 1));
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, views[i]);
    for (std::size_t j = 0; j < host.extent(0); ++j) ASSERT_EQ(host(j), i + 1);
  }
  EXPECT_THROW(workspace.saved(0, 2), std::exception);
  EXPECT_THROW(workspace.saved(2, 0), std::exception);
  EXPECT_THROW(workspace.held(1, 2), std::exception);
}

}  // namespace
}  // namespace trireme
