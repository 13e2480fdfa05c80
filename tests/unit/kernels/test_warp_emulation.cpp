// The emulation of a GPU's blocks itself: it computes what the instructions compute, and
// shows what a GPU would get wrong.
#include "support/warp_emulation.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "kernels/cuda/attention_tiles.hpp"
#include "kernels/cuda/warp.hpp"

namespace trireme {
namespace {

// Four warps; each hands a number to the next one through shared memory.
void pass_on(bool syncs, std::vector<float>& got) {
  auto* const shared = reinterpret_cast<float*>(cuda::shared_memory());
  shared[cuda::warp_index()] = static_cast<float>(cuda::warp_index());
  if (syncs) cuda::sync_block();
  got[static_cast<std::size_t>(cuda::thread_index())] =
      shared[(cuda::warp_index() + 1) % 4];
}

TEST(WarpEmulation, ShowsAMissingBarrier) {
  std::vector<float> with(128), without(128);
  test::run_emulated({.threads = 128, .shared_bytes = 64}, [&] { pass_on(true, with); });
  test::run_emulated({.threads = 128, .shared_bytes = 64},
                     [&] { pass_on(false, without); });
  EXPECT_EQ(with[0], 1.0f);
  EXPECT_EQ(with[127], 0.0f);
  EXPECT_TRUE(std::isnan(without[0]));
}

TEST(WarpEmulation, ShowsACopyThatNobodyWaitedFor) {
  alignas(16) const float from[4] = {1, 2, 3, 4};
  const auto read = [&](bool waits) {
    float got = 0;
    test::run_emulated({.shared_bytes = 512}, [&] {
      auto* const to = cuda::shared_memory() + 16 * cuda::thread_index();
      cuda::copy_quad_async(to, from, true);
      cuda::commit_copies();
      if (waits) cuda::wait_for_copies<0>();
      if (cuda::thread_index() == 3) got = reinterpret_cast<float*>(to)[1];
    });
    return got;
  };
  EXPECT_EQ(read(true), 2.0f);
  EXPECT_TRUE(std::isnan(read(false)));
}

// What is not there is zeros, of four bytes as of sixteen.
TEST(WarpEmulation, CopiesWordsAndHandsThemToAnyLane) {
  const std::vector<float> from = {1, 2, 3, 4};
  std::vector<float> got(cuda::kWarpLanes);
  test::run_emulated({.shared_bytes = 128}, [&] {
    const int lane = cuda::lane_index();
    auto* const to = reinterpret_cast<float*>(cuda::shared_memory()) + lane;
    cuda::copy_word_async(to, &from[extent(lane % 4)], lane != 6);
    cuda::commit_copies();
    cuda::wait_for_copies<0>();
    got[extent(lane)] = cuda::shuffle(*to, lane / 2);
  });
  for (int lane = 0; lane < cuda::kWarpLanes; ++lane) {
    const float want = lane / 2 == 6 ? 0 : from[extent(lane / 2 % 4)];
    EXPECT_EQ(got[extent(lane)], want) << lane;
  }
}

// A matrix of 20 rows and 72 columns, whose elements are 100 row + column + 1.
class WarpEmulationOfBoxes : public testing::Test {
 protected:
  static constexpr int kRows = 20, kColumns = 72;

  WarpEmulationOfBoxes() {
    for (int i = 0; i < kRows * kColumns; ++i) {
      elements_[extent(i)] =
          static_cast<std::uint16_t>(100 * (i / kColumns) + i % kColumns + 1);
    }
    map_ = test::emulated_box_map(words(), kRows, kColumns);
  }
  const std::uint16_t* words() const {
    return reinterpret_cast<const std::uint16_t*>(quads_.data());
  }
  // Of one warp with room for a box and a barrier.
  void run(const std::function<void(std::byte*, std::uint64_t*)>& kernel) const {
    constexpr auto kBytes = static_cast<std::uintptr_t>(cuda::kBoxBytes);
    test::run_emulated({.shared_bytes = 3 * kBytes}, [&] {
      std::byte* const begin = cuda::shared_memory();
      const auto address = reinterpret_cast<std::uintptr_t>(begin);
      std::byte* const box = begin + (kBytes - address % kBytes);
      auto* const barrier = reinterpret_cast<std::uint64_t*>(box + kBytes);
      if (cuda::lane_index() == 0) {
        cuda::begin_barrier(barrier);
        cuda::take_map(&map_);
      }
      cuda::sync_block();
      kernel(box, barrier);
    });
  }

  std::vector<cuda::Quad> quads_{extent(kRows * kColumns / 8)};
  std::uint16_t* elements_ = reinterpret_cast<std::uint16_t*>(quads_.data());
  cuda::BoxMap map_;
};

// Quads of a row are where quad_of_box() says, and what the matrix does not have is zero.
TEST_F(WarpEmulationOfBoxes, BringsThemSwizzled) {
  const int row = 16, column = 64;
  run([&](std::byte* box, std::uint64_t* barrier) {
    for (int phase = 0; phase < 3; ++phase) {
      if (cuda::lane_index() == 0) {
        cuda::expect_bytes(barrier, cuda::kBoxBytes);
        cuda::copy_box_async(box, &map_, row, column, barrier);
      }
      cuda::wait_for_phase(barrier, phase % 2);
      cuda::sync_warp();
      const auto* const got = reinterpret_cast<const std::uint16_t*>(box);
      for (int i = cuda::lane_index(); i < 8 * 64; i += cuda::kWarpLanes) {
        const int r = i / 64, c = i % 64;
        const bool is_there = row + r < kRows && column + c < kColumns;
        const int want = is_there ? 100 * (row + r) + column + c + 1 : 0;
        EXPECT_EQ(got[r * 64 + cuda::quad_of_box(r, c / 8) * 8 + c % 8], want) << i;
      }
      cuda::sync_warp();
    }
  });
}

TEST_F(WarpEmulationOfBoxes, ShowsOneThatIsReadTooEarly) {
  std::uint16_t early = 0, late = 0;
  run([&](std::byte* box, std::uint64_t* barrier) {
    if (cuda::lane_index() != 0) return;
    cuda::expect_bytes(barrier, cuda::kBoxBytes);
    cuda::copy_box_async(box, &map_, 0, 0, barrier);
    early = *reinterpret_cast<const std::uint16_t*>(box);
    cuda::wait_for_phase(barrier, 0);
    late = *reinterpret_cast<const std::uint16_t*>(box);
  });
  EXPECT_EQ(early, 0xffff);
  EXPECT_EQ(late, 1);
}

TEST_F(WarpEmulationOfBoxes, NamesMistakes) {
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  // What is expected, the copies that are begun, and how far from where a box can be.
  const auto expect = [&](int bytes, int copies, int away, const char* message) {
    const auto kernel = [&](std::byte* box, std::uint64_t* barrier) {
      if (cuda::lane_index() == 0) {
        cuda::expect_bytes(barrier, bytes);
        for (int i = 0; i < copies; ++i) {
          cuda::copy_box_async(box + away, &map_, 0, 0, barrier);
        }
      }
      cuda::wait_for_phase(barrier, 0);
    };
    EXPECT_THAT([&] { run(kernel); }, ThrowsMessage<Error>(HasSubstr(message)));
  };
  expect(2 * cuda::kBoxBytes, 1, 0, "waits for copies that nobody began");
  expect(cuda::kBoxBytes, 2, 0, "expects 1024 bytes, and 2048 are copied");
  expect(cuda::kBoxBytes, 1, -16, "no multiple of 1024");
  EXPECT_THAT(
      [&] {
        run([&](std::byte*, std::uint64_t* barrier) {
          cuda::wait_for_phase(barrier + 1, 0);
        });
      },
      ThrowsMessage<Error>(HasSubstr("no barrier was begun")));
  const auto copy_turns = [&](std::byte* box, std::uint64_t* barrier, int turns) {
    if (cuda::lane_index() != 0) return;
    for (int i = 0; i < turns; ++i) {
      cuda::expect_bytes(barrier, cuda::kBoxBytes);
      cuda::copy_box_async(box, &map_, 0, 0, barrier);
    }
  };
  EXPECT_THAT(
      [&] { run([&](auto* box, auto* barrier) { copy_turns(box, barrier, 2); }); },
      ThrowsMessage<Error>(HasSubstr("nobody has waited for the copies before")));
  EXPECT_THAT(
      [&] { run([&](auto* box, auto* barrier) { copy_turns(box, barrier, 1); }); },
      ThrowsMessage<Error>(HasSubstr("ends while boxes are on their way")));
  const cuda::BoxMap other = map_;
  EXPECT_THAT(
      [&] {
        run([&](std::byte* box, std::uint64_t* barrier) {
          if (cuda::lane_index() == 0) {
            cuda::copy_box_async(box, &other, 0, 0, barrier);
          }
        });
      },
      ThrowsMessage<Error>(HasSubstr("was not taken")));
  map_ = {};
  expect(cuda::kBoxBytes, 1, 0, "no map of a matrix");
}

TEST(WarpEmulation, NamesMistakes) {
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  const auto expect = [](const std::function<void()>& kernel, const char* message) {
    EXPECT_THAT([&] { test::run_emulated({.threads = 64, .shared_bytes = 64}, kernel); },
                ThrowsMessage<Error>(HasSubstr(message)));
  };
  expect(
      [] {
        if (cuda::lane_index() == 3) cuda::sync_warp();
      },
      "lane 0");
  expect(
      [] {
        if (cuda::lane_index() < 16) {
          cuda::sync_warp();
        } else {
          (void)cuda::shuffle_xor(1, 1);
        }
      },
      "another instruction");
  expect(
      [] {
        if (cuda::warp_index() == 0) cuda::sync_block();
      },
      "are done");
  expect(
      [] {
        std::uint32_t words[4];
        cuda::load_matrices(cuda::shared_memory() + 8, words);
      },
      "no multiple of 16");
  expect(
      [] {
        std::uint32_t words[4];
        cuda::load_matrices(cuda::shared_memory() + 64, words);
      },
      "of 64 bytes of shared memory");
  const std::int32_t counter = 2;
  expect([&] { cuda::wait_for(&counter, 3); }, "waits for 3 where 2 was published");
}

// Two blocks: the first to take a ticket stores a number for the other one.
float handed_on(bool waits, bool has_barrier, bool publishes) {
  std::int32_t ticket = 0, counter = 0;
  cuda::FloatQuad memory{{NAN, NAN, NAN, NAN}};
  float got = 0;
  // The first has a long way to go before it stores, and after it publishes.
  const auto linger = [] {
    for (int i = 0; i < 100; ++i) cuda::sync_block();
  };
  const auto store = [&] {
    linger();
    if (cuda::thread_index() == 5) cuda::store_for_others({{7, 7, 7, 7}}, &memory);
    if (has_barrier) cuda::sync_block();
    if (publishes && cuda::thread_index() == 0) cuda::publish(&counter, 1);
    linger();
  };
  const auto load = [&] {
    if (cuda::thread_index() != 0) return;
    if (waits) cuda::wait_for(&counter, 1);
    got = cuda::load_from_others(&memory).value[0];
  };
  test::run_emulated({.blocks = 2, .shared_bytes = 16, .blocks_under_way = 2}, [&] {
    auto* const number = reinterpret_cast<std::int32_t*>(cuda::shared_memory());
    if (cuda::thread_index() == 0) *number = cuda::take_ticket(&ticket);
    cuda::sync_block();
    if (*number == 0) {
      store();
    } else {
      load();
    }
  });
  return got;
}

TEST(WarpEmulation, ShowsWhatWasNotHandedOn) {
  EXPECT_EQ(handed_on(true, true, true), 7.0f);
  EXPECT_TRUE(std::isnan(handed_on(false, true, true)));
  EXPECT_TRUE(std::isnan(handed_on(true, false, true)));
  EXPECT_THAT([] { handed_on(true, true, false); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("waits for 1")));
}

// The fragments of PTX: a product of 16 x 16 by 16 x 8 whose result each lane can check.
TEST(WarpEmulation, MultipliesFragments) {
  std::vector<float> got(16 * 8);
  test::run_emulated({.shared_bytes = 2048}, [&] {
    const int lane = cuda::lane_index();
    auto* const a = reinterpret_cast<std::uint16_t*>(cuda::shared_memory());
    auto* const b = a + 16 * 16;
    for (int i = lane; i < 16 * 16; i += 32) {
      a[i] = bf16(static_cast<float>(i % 7 - i / 16)).bits;
      b[i] = bf16(static_cast<float>(i % 5 + i / 16)).bits;  // (k, n) of 16 columns
    }
    cuda::sync_warp();
    std::uint32_t left[4], right[4];
    cuda::load_matrices(cuda::matrices_down(a, 16, 0, 0), left);
    cuda::load_transposed(cuda::matrices_down(b, 16, 0, 0), right);
    float c[4] = {};
    cuda::multiply_add<cuda::Element::bf16>(left, right[0], right[1], c);
    for (int i = 0; i < 4; ++i) {
      got[static_cast<std::size_t>((lane / 4 + i / 2 * 8) * 8 + 2 * (lane % 4) + i % 2)] =
          c[i];
    }
  });
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float want = 0;
      for (int k = 0; k < 16; ++k) {
        want += static_cast<float>((16 * i + k) % 7 - i) *
                static_cast<float>((16 * k + j) % 5 + k);
      }
      ASSERT_EQ(got[static_cast<std::size_t>(i * 8 + j)], want) << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace trireme
