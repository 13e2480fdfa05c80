// plan/device_memory.cpp — see device_memory.hpp.
//
// A run that does not fit would end in its first step with an allocation that failed,
// after its queue time, its reading of a checkpoint and its timing of products. Plans are
// exact, so that it can be told before. What would help is found by planning decks that
// differ in one setting, as nobody can say without it how much a setting saves of this
// model on this grid; this is done only where a run is refused.
#include "plan/device_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/format.hpp"
#include "comm/on_ranks.hpp"
#include "config/capability.hpp"
#include "config/deck_error.hpp"
#include "config/load.hpp"
#include "kernels/attention_pool.hpp"
#include "plan/deck_memory.hpp"
#include "step/deck_model.hpp"

namespace trireme::plan {

namespace {

// NCCL 2.28's defaults. A connection between two neighbours of a channel has a buffer for
// each protocol: Simple 4 MiB (NCCL_BUFFSIZE), LL128 4.7 MiB, LL 0.5 MiB. Collectives
// have up to 24 channels on NVLink, a ring and a tree in each, and receive from two
// neighbours; between two ranks up to 8 channels of Simple and LL go each way.
constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::size_t kSimple = 4 * kMiB, kLL128 = 4800 * kKiB, kLL = 512 * kKiB;
constexpr std::size_t kOfCollectives = 24 * 2 * (kSimple + kLL128 + kLL);
constexpr std::size_t kOfChannel = 8 * (kSimple + kLL);

// Channels of a stage to its neighbours: one each way, and two more where messages go
// round from the last stage to the first.
std::size_t channels_of(const comm::Group& pipeline) {
  return pipeline.size() > 2 ? 4 : 2;
}

std::string bytes_text(std::size_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// A deck that differs in one setting.
struct Change {
  std::string setting;
  std::function<void(config::Deck&)> make;
};

// Twice the ranks of an axis for half of the data ranks.
void add_axis(std::vector<Change>& changes, const config::Deck& deck, const char* name,
              int config::ParallelConfig::*extent) {
  if (deck.parallel.data % 2 != 0) return;
  const int twice = 2 * deck.parallel.*extent;
  std::string setting = fmt::format("parallel.{}={}", name, twice);
  if (!deck.parallel.data_auto) {
    setting += fmt::format(" parallel.data={}", deck.parallel.data / 2);
  }
  changes.push_back({setting, [=](config::Deck& changed) {
                       changed.parallel.*extent = twice;
                       changed.parallel.data /= 2;
                       changed.parallel.stages.clear();
                     }});
}

std::vector<Change> changes_of(const config::Deck& deck) {
  using config::Recompute;
  std::vector<Change> changes;
  const auto recompute = [&](const char* name, Recompute value) {
    changes.push_back({fmt::format("memory.recompute={}", name), [=](config::Deck& d) {
                         d.memory.recompute = value;
                         d.memory.recompute_layers = 0;
                       }});
  };
  if (deck.memory.recompute == Recompute::none) {
    recompute("selective", Recompute::selective);
  }
  if (deck.memory.recompute != Recompute::full) recompute("full", Recompute::full);
  for (int zero = deck.parallel.zero + 1; zero <= 3 && deck.parallel.data > 1; ++zero) {
    changes.push_back({fmt::format("parallel.zero={}", zero),
                       [zero](config::Deck& d) { d.parallel.zero = zero; }});
  }
  if (deck.parallel.tensor > 1 && !deck.parallel.sequence) {
    changes.push_back(
        {"parallel.sequence=true", [](config::Deck& d) { d.parallel.sequence = true; }});
  }
  if (deck.batch.micro % 2 == 0) {
    const index_t half = deck.batch.micro / 2;
    changes.push_back({fmt::format("batch.micro={}", half),
                       [half](config::Deck& d) { d.batch.micro = half; }});
  }
  if (deck.precision.compute == config::Precision::bf16 &&
      deck.precision.gradients == config::Gradients::fp32) {
    changes.push_back({"precision.gradients=bf16", [](config::Deck& d) {
                         d.precision.gradients = config::Gradients::bf16;
                       }});
  }
  add_axis(changes, deck, "tensor", &config::ParallelConfig::tensor);
  add_axis(changes, deck, "pipeline", &config::ParallelConfig::pipeline);
  return changes;
}

// What the neediest of the first and the last stage takes: those between them lie
// between.
std::size_t most_of(const config::Deck& deck, Carrier carrier) {
  const step::Sharing shared = step::sharing(deck);
  std::size_t most = 0;
  for (const int stage : std::set<int>{0, deck.parallel.pipeline - 1}) {
    const auto replica =
        step::make_replica(deck, planned_groups(deck.parallel, stage), shared);
    most = std::max(most, device_need(*replica, deck, carrier).total());
  }
  return most;
}

// The changed deck, where it is a sound one that can be trained.
std::size_t total_with(const Change& change, const config::Deck& deck, Carrier carrier) {
  config::Deck changed = deck;
  change.make(changed);
  try {
    const config::Deck checked =
        config::parse_resolved(config::resolved_text(changed), deck.parallel.ranks());
    if (!config::not_trained(checked).empty()) return 0;
    return most_of(checked, carrier);
  } catch (const config::DeckErrors&) {  // heads that cannot be divided so, say
    return 0;
  }
}

std::size_t bytes_of_tiles(const config::Deck& deck) {
  return kernels::attention_pool_bytes(step::compute_type(deck),
                                       deck.model.head_elements());
}

std::string line(const char* name, std::size_t bytes, const char* note = "") {
  return bytes == 0 ? ""
                    : fmt::format("\n  {:<18}{:>10}{}", name, bytes_text(bytes), note);
}

std::string categories(const DeviceNeed& need) {
  const step::MemoryPlan& plan = need.plan;
  return line("weights", plan.weights) + line("gradients", plan.gradients) +
         line("optimizer state", plan.optimizer) + line("activations", plan.saved()) +
         line("scratch", plan.workspace.scratch + plan.workspace.held_bytes()) +
         line("batch", plan.batch) + line("buffers", plan.buffers) +
         line("matrix products", plan.products, ", cuBLASLt's workspace") +
         line("samples of text", plan.generation) +
         line("attention's tiles", need.tiles, ", in fp32 they are in no shared memory") +
         line("messages", need.messages, ", NCCL's buffers, estimated");
}

std::string advice(const std::vector<Saving>& savings, std::size_t needed,
                   std::size_t free) {
  std::string text;
  for (const Saving& saving : savings) {
    if (saving.total >= needed) continue;
    text += fmt::format("\n  {:<34}{:>10}, which saves {}{}", saving.setting,
                        bytes_text(saving.total), bytes_text(needed - saving.total),
                        saving.total <= free ? ": it fits" : "");
  }
  if (text.empty()) return "\nTake a smaller model, or a GPU with more memory.";
  return "\nWhat a rank would take of its GPU with --set:" + text;
}

}  // namespace

Carrier carrier_of(const comm::ProcessGroups& groups) {
  const bool is_on_device = std::ranges::any_of(
      groups.all(), [](const comm::Group* group) { return group->is_on_stream(); });
  return is_on_device ? Carrier::device : Carrier::host;
}

std::size_t message_bytes(const comm::ProcessGroups& groups, Carrier carrier) {
  if (carrier == Carrier::host) return 0;
  std::size_t bytes = 0;
  for (const comm::Group* group : groups.all()) {
    if (group->size() == 1) continue;
    bytes += kOfCollectives;
    if (group == groups.pipeline.get()) bytes += channels_of(*group) * kOfChannel;
  }
  return bytes;
}

std::size_t message_bytes_to_come(const comm::ProcessGroups& groups, Carrier carrier) {
  std::size_t bytes = message_bytes(groups, carrier);
  if (carrier == Carrier::host) return bytes;
  for (const comm::Group* group : groups.all()) {
    // A group that exists has carried a message: its communicator has all its buffers.
    if (group->size() > 1 && group->is_on_stream()) bytes -= kOfCollectives;
  }
  return bytes;
}

LibraryBytes library_bytes(const comm::ProcessGroups& groups, Carrier carrier,
                           const config::Deck& deck) {
  if constexpr (kHostExecution) return {};
  return {.messages = message_bytes(groups, carrier),
          .context = kContextBytes,
          .tiles = bytes_of_tiles(deck)};
}

DeviceNeed device_need(step::Replica& replica, const config::Deck& deck,
                       Carrier carrier) {
  return {.plan = plan_memory(replica, deck),
          .messages = message_bytes_to_come(replica.part().groups, carrier),
          .tiles = bytes_of_tiles(deck)};
}

std::vector<Saving> savings(const config::Deck& deck, Carrier carrier) {
  const std::size_t now = most_of(deck, carrier);
  std::vector<Saving> all;
  for (const Change& change : changes_of(deck)) {
    const std::size_t total = total_with(change, deck, carrier);
    if (total > 0 && total <= now - now / 100) all.push_back({change.setting, total});
  }
  std::ranges::stable_sort(all, {}, &Saving::total);
  return all;
}

DeviceBytes usable_bytes(const DeviceBytes& now, std::size_t products) {
  const auto free = now.free + static_cast<std::int64_t>(products);
  const auto reserve = static_cast<std::int64_t>(kReserveBytes);
  return {.free = std::max<std::int64_t>(free - reserve, 0), .total = now.total};
}

std::string device_problem(const DeviceNeed& need, const std::string& device,
                           const DeviceBytes& bytes, const std::string& whose,
                           const std::vector<Saving>& savings) {
  const auto free = static_cast<std::size_t>(bytes.free);
  const std::size_t needed = need.total();
  if (needed <= free) return {};
  return fmt::format(
             "the run takes {} of the GPU of {} ({}), which has {} free: {} too much",
             bytes_text(needed), whose, device, bytes_text(free),
             bytes_text(needed - free)) +
         categories(need) +
         fmt::format(
             "\n{} of its {} are in use before the run: by CUDA's contexts, by "
             "NCCL, and by whoever else is there (nvidia-smi); {} of them are a reserve.",
             format_bytes(static_cast<double>(bytes.total - bytes.free)),
             format_bytes(static_cast<double>(bytes.total)),
             format_bytes(static_cast<double>(kReserveBytes))) +
         advice(savings, needed, free);
}

void require_device_memory(comm::Communicator& world, const std::string& host,
                           const config::Deck& deck, step::Replica& replica,
                           const std::string& device, const DeviceBytes& bytes) {
  const Carrier carrier = carrier_of(replica.part().groups);
  const DeviceNeed need = device_need(replica, deck, carrier);
  comm::on_every_rank(world, [&] {
    if (need.total() <= static_cast<std::size_t>(bytes.free)) return;
    throw InputError(device_problem(need, device, bytes,
                                    fmt::format("rank {} on {}", world.rank(), host),
                                    savings(deck, carrier)));
  });
}

}  // namespace trireme::plan
