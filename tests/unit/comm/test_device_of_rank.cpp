// Which device each rank takes, and what is refused, on made-up nodes.
#include "comm/device_of_rank.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "unit/io/scratch.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The GPU with this number in the whole cluster; uuids are never the same.
Device gpu(int number, int capability = 80) {
  return {.name = "NVIDIA A100",
          .uuid = fmt::format("GPU-{}", number),
          .address = fmt::format("0000:{:02x}:00.0", number),
          .capability = capability,
          .multiprocessors = 108,
          .memory_bytes = std::int64_t{40} << 30};
}

std::vector<Device> gpus(const std::vector<int>& numbers) {
  std::vector<Device> devices;
  for (const int number : numbers) devices.push_back(gpu(number));
  return devices;
}

// Ranks of one node, each with the GPUs that it sees.
std::vector<RankDevices> node(const std::vector<std::vector<int>>& visible,
                              const std::string& host = "n0", int first = 0) {
  std::vector<RankDevices> ranks;
  for (const std::vector<int>& numbers : visible) {
    ranks.push_back(
        {.node = first, .host = host, .visible = gpus(numbers), .binding = ""});
  }
  return ranks;
}

std::vector<int> chosen(const std::vector<RankDevices>& ranks, DeviceRules rules = {}) {
  return devices_of_ranks(ranks, rules);
}

std::string refusal(const std::vector<RankDevices>& ranks, DeviceRules rules = {}) {
  return test::message_of<InputError>([&] { devices_of_ranks(ranks, rules); });
}

TEST(DeviceOfRank, TheOneThatItSees) {
  EXPECT_THAT(chosen(node({{5}})), ElementsAre(0));
  EXPECT_THAT(chosen(node({{3}, {2}, {1}, {0}})), ElementsAre(0, 0, 0, 0));
}

TEST(DeviceOfRank, TheOneOfItsNumberOnTheNode) {
  EXPECT_THAT(chosen(node({{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}})),
              ElementsAre(0, 1, 2));
  // Ranks dealt out in turn: 0 and 2 on one node, 1 and 3 on the other.
  std::vector<RankDevices> ranks = node({{0, 1}, {0, 1}, {0, 1}, {0, 1}});
  for (const std::size_t rank : {1u, 3u}) {
    ranks[rank] = {.node = 1, .host = "n1", .visible = gpus({8, 9}), .binding = ""};
  }
  EXPECT_THAT(chosen(ranks), ElementsAre(0, 0, 1, 1));
}

TEST(DeviceOfRank, HalvesOfANodeCountForThemselves) {
  EXPECT_THAT(chosen(node({{0, 1}, {2, 3}, {0, 1}, {2, 3}})), ElementsAre(0, 0, 1, 1));
  // The same devices in an order of each rank's own.
  EXPECT_THAT(chosen(node({{0, 1}, {1, 0}})), ElementsAre(0, 0));
}

TEST(DeviceOfRank, NoDeviceIsRefused) {
  std::vector<RankDevices> ranks = node({{0}, {}, {}});
  ranks[1].binding = ranks[2].binding = "CUDA_VISIBLE_DEVICES=";
  EXPECT_THAT(refusal(ranks),
              AllOf(HasSubstr("ranks 1-2 on n0 see no GPU (CUDA_VISIBLE_DEVICES=)"),
                    HasSubstr("--gpus-per-node")));
}

TEST(DeviceOfRank, MoreRanksThanDevicesAreRefused) {
  EXPECT_THAT(refusal(node({{0, 1}, {0, 1}, {0, 1}})),
              AllOf(HasSubstr("n0 has 2 GPUs for 3 ranks (ranks 0-2): 1 rank would "
                              "have none"),
                    HasSubstr("--ntasks-per-node=2")));
  EXPECT_THAT(chosen(node({{0, 1}, {0, 1}, {0, 1}}), {.may_share = true}),
              ElementsAre(0, 1, 0));
}

TEST(DeviceOfRank, OneDeviceOfTwoRanksIsRefused) {
  std::vector<RankDevices> ranks = node({{4}, {4}, {5}});
  for (RankDevices& rank : ranks) rank.binding = "CUDA_VISIBLE_DEVICES=0";
  EXPECT_THAT(refusal(ranks),
              AllOf(HasSubstr("ranks 0-1 on n0 all see one GPU alone, NVIDIA A100 at "
                              "0000:04:00.0 (CUDA_VISIBLE_DEVICES=0)"),
                    HasSubstr("TRIREME_SHARE_DEVICES=1")));
  EXPECT_THAT(chosen(ranks, {.may_share = true}), ElementsAre(0, 0, 0));
  // By lists that differ.
  EXPECT_THAT(refusal(node({{6, 7}, {6}})),
              HasSubstr("ranks 0 and 1 on n0 would both have the GPU at 0000:06:00.0: "
                        "rank 0 is shown 2 GPUs, rank 1 is shown 1 GPU"));
  // The same card in two nodes is none.
  std::vector<RankDevices> apart = node({{4}});
  apart.push_back(node({{5}}, "n1", 1).front());
  EXPECT_THAT(chosen(apart), ElementsAre(0, 0));
}

TEST(DeviceOfRank, AnotherGenerationIsRefused) {
  std::vector<RankDevices> ranks = node({{0}, {1}});
  ranks[1].visible = {gpu(1, 90)};
  EXPECT_THAT(
      refusal(ranks, {.capability = 80}),
      AllOf(HasSubstr("rank 1 on n0 has NVIDIA A100 of compute capability 9.0, and this "
                      "program was built for 8.0"),
            HasSubstr("Kokkos_ARCH_HOPPER90")));
  EXPECT_THAT(chosen(ranks), ElementsAre(0, 0));
}

TEST(DeviceOfRank, WhatBindsIsWrittenDown) {
  const auto binding = [](const std::map<std::string, std::string>& variables) {
    return device_binding([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(binding({}), "");
  EXPECT_EQ(binding({{"SLURM_STEP_GPUS", "0,1"}, {"CUDA_VISIBLE_DEVICES", ""}}),
            "CUDA_VISIBLE_DEVICES=, SLURM_STEP_GPUS=0,1");
}

TEST(DeviceOfRank, SharingIsAskedForInOneWord) {
  EXPECT_FALSE(choose_device_sharing(nullptr));
  EXPECT_FALSE(choose_device_sharing(""));
  EXPECT_FALSE(choose_device_sharing("0"));
  EXPECT_TRUE(choose_device_sharing("1"));
  EXPECT_THAT(test::message_of<InputError>([] { choose_device_sharing("yes"); }),
              HasSubstr("TRIREME_SHARE_DEVICES is 'yes'; it may be 1"));
}

TEST(DeviceOfRank, AChoiceOfKokkosIsRefused) {
  const auto refuse = [](const std::string& variable) {
    return test::message_of<InputError>([&] {
      refuse_device_choice_of_kokkos(
          [&](const char* name) { return name == variable ? "1" : nullptr; });
    });
  };
  for (const char* variable :
       {"KOKKOS_VISIBLE_DEVICES", "KOKKOS_DEVICE_ID", "KOKKOS_MAP_DEVICE_ID_BY"}) {
    EXPECT_THAT(refuse(variable), AllOf(HasSubstr(std::string(variable) + " is set"),
                                        HasSubstr("CUDA_VISIBLE_DEVICES")));
  }
  refuse_device_choice_of_kokkos([](const char*) -> const char* { return nullptr; });
}

}  // namespace
}  // namespace trireme::comm
