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
