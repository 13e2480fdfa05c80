// comm/device_of_rank.hpp — which device each rank takes, chosen before Kokkos begins.
//
// The launcher's binding is respected: it decides what a process sees. Of what it sees a
// rank takes the device of its place among the ranks of its node that see the same:
//
//   every rank sees one of its own     that one
//   all ranks of a node see them all   the one of the rank's number on the node
//   two halves of a node see a half    each half counts for itself
//
// A device that two ranks would take is refused, as NCCL refuses it: each would have half
// of the memory and of the time that its plan counts with.
#ifndef TRIREME_COMM_DEVICE_OF_RANK_HPP_
#define TRIREME_COMM_DEVICE_OF_RANK_HPP_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "comm/communicator.hpp"
#include "comm/environment.hpp"

namespace trireme::comm {

// What a rank has to choose from.
struct RankDevices {
  int node = 0;      // NodeInfo::first: the lowest rank that is there
  std::string host;  // its name
  std::vector<Device> visible;
  std::string binding;  // what decides what is visible: "CUDA_VISIBLE_DEVICES=0"
};

struct DeviceRules {
  bool may_share = false;  // ranks may have a device together: for tests
  int capability = 0;      // that the program was built for; 0: any will do
};

// The variables by which launchers and people bind devices, as far as they are set:
// "CUDA_VISIBLE_DEVICES=0, SLURM_STEP_GPUS=0". Asks `get` (std::getenv, or a test's).
std::string device_binding(const std::function<const char*(const char*)>& get);

// TRIREME_SHARE_DEVICES=1|0 (argument: its value or null): whether ranks may have a
// device together. InputError for another value.
bool choose_device_sharing(const char* value);

// For each rank the index of its device among those that it sees. InputError where a rank
// sees none, where a node has more ranks than devices, where two ranks would have the
// same one, and where a device cannot run what the program was built for; it names the
// ranks, the node and what to do.
std::vector<int> devices_of_ranks(const std::vector<RankDevices>& ranks,
                                  const DeviceRules& rules);

// Collective: the index of this rank's device. Throws the same on all ranks. Devices may
// be shared where any rank says so.
int device_of_rank(Communicator& world, const RankDevices& mine, DeviceRules rules);

// Throws InputError where one of Kokkos' own variables says which device to take: the
// choice is made here, and would go by another numbering than the variable.
void refuse_device_choice_of_kokkos(const std::function<const char*(const char*)>& get);

// Collective, before Kokkos begins: the index of this rank's device by its environment
// and by what the runtime sees; nothing in a build for host cores. Throws the same on all
// ranks.
std::optional<int> take_device(const Environment& environment);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_DEVICE_OF_RANK_HPP_
