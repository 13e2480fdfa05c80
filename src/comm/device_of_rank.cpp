// comm/device_of_rank.cpp — see device_of_rank.hpp.
//
// Every rank tells what it sees, and all compute the choice of all from the same list:
// what is wrong is then known, and refused in the same words, everywhere. Devices are
// told apart by their UUIDs, because each process numbers those that it sees from 0. No
// device is begun before the choice is good, so that a refusal leaves no context behind.
#include "comm/device_of_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "comm/on_ranks.hpp"
#include "comm/rank_list.hpp"

namespace trireme::comm {

namespace {

// Ranks of one node that see the same devices in the same order, ascending.
struct Sharers {
  std::vector<int> ranks;
  const RankDevices& first;
  int devices() const { return static_cast<int>(first.visible.size()); }
};

std::vector<std::string> uuids_of(const RankDevices& rank) {
  std::vector<std::string> uuids;
  for (const Device& device : rank.visible) uuids.push_back(device.uuid);
  return uuids;
}

std::vector<Sharers> sharers_of(const std::vector<RankDevices>& ranks) {
  std::vector<Sharers> all;
  std::map<std::pair<int, std::vector<std::string>>, std::size_t> known;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [place, is_new] =
        known.emplace(std::pair{ranks[rank].node, uuids_of(ranks[rank])}, all.size());
    if (is_new) all.push_back({{}, ranks[rank]});
    all[place->second].ranks.push_back(static_cast<int>(rank));
  }
  return all;
}

std::string in_brackets(const std::string& text) {
  return text.empty() ? "" : " (" + text + ")";
}

void require_device(const Sharers& sharers) {
  TRIREME_REQUIRE_INPUT(
      sharers.devices() > 0,
      "{} on {} {} no GPU{}, and this program was built for them: ask for them (sbatch "
      "--gpus-per-node=N), take a launcher's binding away that hides them, or take a "
      "build for CPUs",
      rank_list(sharers.ranks), sharers.first.host,
      sharers.ranks.size() == 1 ? "sees" : "see", in_brackets(sharers.first.binding));
}

void require_enough(const Sharers& sharers) {
  const auto ranks = static_cast<int>(sharers.ranks.size());
  if (ranks <= sharers.devices()) return;
  const std::string who = rank_list(sharers.ranks), binding = sharers.first.binding;
  if (sharers.devices() == 1) {
    const Device& device = sharers.first.visible.front();
    throw InputError(fmt::format(
        "{} on {} all see one GPU alone, {} at {}{}: a rank has a GPU to itself. Start "
        "one rank there, or show each rank its own (no --gpu-bind or "
        "CUDA_VISIBLE_DEVICES that is the same for all; sbatch --gpus-per-node={}). For "
        "tests TRIREME_SHARE_DEVICES=1 lets ranks share one, with messages by MPI",
        who, sharers.first.host, device.name, device.address, in_brackets(binding),
        ranks));
  }
  throw InputError(fmt::format(
      "{} has {} for {}{}: {} would have none. Start {} on a node (srun "
      "--ntasks-per-node={}, mpiexec -ppn {}). For tests TRIREME_SHARE_DEVICES=1 lets "
      "ranks share one, with messages by MPI",
      sharers.first.host, format_plural(sharers.devices(), "GPU"),
      format_plural(ranks, "rank"),
      in_brackets(who + (binding.empty() ? "" : "; " + binding)),
      format_plural(ranks - sharers.devices(), "rank"),
      format_plural(sharers.devices(), "rank"), sharers.devices(), sharers.devices()));
}

void require_capability(const RankDevices& rank, int number, const Device& device,
                        int built) {
  TRIREME_REQUIRE_INPUT(
      runs_build(device.capability, built),
      "rank {} on {} has {} of compute capability {}.{}, and this program was built for "
      "{}.{}: build it for that GPU (a Kokkos with its architecture: "
      "Kokkos_ARCH_AMPERE80 for an A100, Kokkos_ARCH_HOPPER90 for an H100 or H200)",
      number, rank.host, device.name, device.capability / 10, device.capability % 10,
      built / 10, built % 10);
}

// Ranks that see different lists may come to the same device all the same.
void require_different(const std::vector<RankDevices>& ranks,
                       const std::vector<int>& chosen) {
  std::map<std::pair<std::string, std::string>, int> owners;  // host, uuid
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankDevices& mine = ranks[rank];
    const Device& device = mine.visible[static_cast<std::size_t>(chosen[rank])];
    const auto [owner, is_first] =
        owners.emplace(std::pair{mine.host, device.uuid}, static_cast<int>(rank));
    if (is_first) continue;
    const RankDevices& other = ranks[static_cast<std::size_t>(owner->second)];
    throw InputError(fmt::format(
        "ranks {} and {} on {} would both have the GPU at {}: rank {} is shown {}{}, "
        "rank "
        "{} is shown {}{}. Show each rank one of its own, or all of them all. For tests "
        "TRIREME_SHARE_DEVICES=1 lets ranks share one, with messages by MPI",
        owner->second, rank, mine.host, device.address, owner->second,
        format_plural(std::ssize(other.visible), "GPU"), in_brackets(other.binding), rank,
        format_plural(std::ssize(mine.visible), "GPU"), in_brackets(mine.binding)));
  }
}

// As text, to be sent: a line for each field. Names of devices and hosts have no ends of
// lines, and what is written down of variables loses its own.
std::string text_of(const RankDevices& rank, bool may_share) {
  std::string binding = rank.binding;
  std::ranges::replace(binding, '\n', ' ');
  std::string text =
      fmt::format("{}\n{}\n{}\n{}\n", may_share ? 1 : 0, rank.node, rank.host, binding);
  for (const Device& device : rank.visible) {
    text +=
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", device.name, device.uuid, device.address,
                    device.capability, device.multiprocessors, device.memory_bytes);
  }
  return text;
}

RankDevices read_text(std::string_view text, bool& may_share) {
  const std::vector<std::string_view> lines = split(text, "\n");
  const auto number = [&](std::size_t line) {
    return number_in<std::int64_t>(lines.at(line)).value_or(0);
  };
  constexpr std::size_t kHead = 4, kFields = 6;
  may_share = may_share || number(0) == 1;
  RankDevices rank{.node = static_cast<int>(number(1)),
                   .host = std::string(lines.at(2)),
                   .visible = {},
                   .binding = std::string(lines.at(3))};
  for (std::size_t at = kHead; at + kFields <= lines.size(); at += kFields) {
    rank.visible.push_back({.name = std::string(lines[at]),
                            .uuid = std::string(lines[at + 1]),
                            .address = std::string(lines[at + 2]),
                            .capability = static_cast<int>(number(at + 3)),
                            .multiprocessors = static_cast<int>(number(at + 4)),
                            .memory_bytes = number(at + 5)});
  }
  return rank;
}

}  // namespace

std::string device_binding(const std::function<const char*(const char*)>& get) {
  std::string text;
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS",
                           "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND"}) {
    const char* value = get(name);
    if (value == nullptr) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

bool choose_device_sharing(const char* value) {
  const std::string_view word = value != nullptr ? value : "";
  TRIREME_REQUIRE_INPUT(word.empty() || word == "1" || word == "0",
                        "TRIREME_SHARE_DEVICES is '{}'; it may be 1 (ranks may have a "
                        "GPU together, for tests) or 0",
                        word);
  return word == "1";
}

std::vector<int> devices_of_ranks(const std::vector<RankDevices>& ranks,
                                  const DeviceRules& rules) {
  std::vector<int> chosen(ranks.size());
  for (const Sharers& sharers : sharers_of(ranks)) {
    require_device(sharers);
    if (!rules.may_share) require_enough(sharers);
    for (std::size_t i = 0; i < sharers.ranks.size(); ++i) {
      chosen[static_cast<std::size_t>(sharers.ranks[i])] =
          static_cast<int>(i) % sharers.devices();
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    require_capability(ranks[rank], static_cast<int>(rank),
                       ranks[rank].visible[static_cast<std::size_t>(chosen[rank])],
                       rules.capability);
  }
  if (!rules.may_share) require_different(ranks, chosen);
  return chosen;
}

int device_of_rank(Communicator& world, const RankDevices& mine, DeviceRules rules) {
  std::vector<RankDevices> ranks;
  for (const std::string& text : world.gather(text_of(mine, rules.may_share))) {
    ranks.push_back(read_text(text, rules.may_share));
  }
  return devices_of_ranks(ranks, rules)[static_cast<std::size_t>(world.rank())];
}

void refuse_device_choice_of_kokkos(const std::function<const char*(const char*)>& get) {
  for (const char* name :
       {"KOKKOS_VISIBLE_DEVICES", "KOKKOS_DEVICE_ID", "KOKKOS_MAP_DEVICE_ID_BY"}) {
    TRIREME_REQUIRE_INPUT(
        get(name) == nullptr,
        "{} is set, and a rank takes the GPU of its number on the node, of those that it "
        "sees: unset it, and say what a rank is to see with CUDA_VISIBLE_DEVICES",
        name);
  }
}

std::optional<int> take_device(const Environment& environment) {
  if constexpr (kHostExecution) return {};
  const auto get = [](const char* name) { return std::getenv(name); };
  Communicator& world = *environment.world();
  RankDevices mine{.node = environment.node().first,
                   .host = environment.host_name(),
                   .visible = {},
                   .binding = device_binding(get)};
  DeviceRules rules{.may_share = false, .capability = built_capability()};
  on_every_rank(world, [&] {
    refuse_device_choice_of_kokkos(get);
    rules.may_share = choose_device_sharing(get("TRIREME_SHARE_DEVICES"));
    mine.visible = visible_devices();
  });
  return device_of_rank(world, mine, rules);
}

}  // namespace trireme::comm
