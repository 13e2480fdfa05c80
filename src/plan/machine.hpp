// plan/machine.hpp — a machine as the planner knows it: what a YAML file of
// inputs/machines/ says of its devices, its network and the software on it.
//
// All numbers are in SI units: FLOP/s, bytes/s, bytes, seconds. docs/machine_files.md has
// every key; inputs/machines/ has commented files.
#ifndef TRIREME_PLAN_MACHINE_HPP_
#define TRIREME_PLAN_MACHINE_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace trireme::plan {

// A number for each type that a model computes in. Of rates 0: the device has no products
// of it.
struct ByType {
  double fp32 = 0.0, bf16 = 0.0, fp16 = 0.0;
  double of(DType type) const;
  // "bf16": the key in a machine file.
  static std::string_view key_of(DType type);
  static ByType of_all(double number) { return {number, number, number}; }
};

// A part of the result of a product that one multiprocessor computes at a time.
struct Tile {
  index_t rows = 128, columns = 128;
  double share = 1.0;  // of the fastest tile's rate
};

struct Device {
  std::string name;
  double memory = 0.0;      // bytes
  double reserved = 0.0;    // of it, what libraries keep: contexts, buffers of messages
  int multiprocessors = 1;  // cores of a CPU
  ByType nominal_peak;      // the maker's, FLOP/s
  // Of the fastest product of matrices there is, and the share of it that products of
  // all shapes reach in turn, at the clock that a device under load keeps: the number
  // that is fitted where a machine is known by published times alone.
  ByType gemm_peak;
  ByType gemm_share = ByType::of_all(1.0);
  ByType attention_share = ByType::of_all(0.5);  // of the same, of fused attention
  std::vector<Tile> tiles = {Tile{}};
  double wave = 0.0;       // seconds that a wave of tiles takes beside its products
  double launch = 0.0;     // seconds from one kernel to the next
  double bandwidth = 0.0;  // of the memory, bytes/s
  // Of it, that kernels which pass over memory reach, in micro-batches and once in a
  // step.
  ByType row_share = ByType::of_all(1.0);
  ByType update_share = ByType::of_all(1.0);
};

// Levels from the inside out: the devices of a node, of a rack, of the machine.
struct NetworkLevel {
  std::string name;
  int devices = 1;         // that share it
  double bandwidth = 0.0;  // bytes/s, of a device in one direction
  double latency = 0.0;    // seconds of a message
};

enum class AttentionKind {
  fused,        // scores stay on the chip
  materialised  // scores are written to memory and read again
};
enum class StageMessages {
  beside,     // they travel beside passes
  waited_for  // a pass waits for the message that it needs and for the one it sends
};

// What a program of the machine does otherwise than this one, or not as well.
struct Software {
  std::string name;  // empty: this program
  bool is_other() const { return !name.empty(); }
  AttentionKind attention = AttentionKind::fused;
  StageMessages stage_messages = StageMessages::beside;
  double gradient_bytes = 0.0;      // of an element in messages; 0: as the deck says
  double data_overlap = 0.0;        // share of gradients' messages beside passes
  double zero3_share = 1.0;         // of the network's bandwidth, that ZeRO 3 reaches
  double tensor_overlap = 0.0;      // share of tensor messages beside products
  double step_seconds = 0.0;        // of each step, that nothing else here explains
  double microbatch_seconds = 0.0;  // of each micro-batch on each stage, likewise
};

struct Machine {
  std::string name;
  Device device;
  std::vector<NetworkLevel> network;
  std::string network_of;  // the machine whose network it is; empty: its own
  Software software;
  double storage_bandwidth = 0.0;  // bytes/s that all ranks together write; 0: not known
};

// Throws config::DeckErrors with all that is wrong: unknown and missing keys, values that
// no machine has, each with its unit. `file`: for messages, and beside it lies a file
// that this one has as its `base`.
Machine parse_machine(const std::string& text, const std::string& file);
// InputError where there is no such file.
Machine load_machine(const std::string& path);

// The machine with another one's network in place of its own, as many devices as that
// has.
Machine with_network(Machine machine, const Machine& other);
// Its name, and whose network it has.
std::string title_of(const Machine& machine);

// A key of a machine file, for the page that lists them.
struct MachineKeyInfo {
  std::string path, unit, allowed, default_value, description;
};
std::vector<MachineKeyInfo> machine_keys();
// What a machine has, by all of these keys; null where it has none of it.
nlohmann::ordered_json machine_json(const Machine& machine);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_MACHINE_HPP_
