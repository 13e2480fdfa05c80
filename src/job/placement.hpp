// job/placement.hpp — where the ranks of a run are: on which nodes, bound to which
// cores; what of that costs time, and what to do about it.
#ifndef TRIREME_JOB_PLACEMENT_HPP_
#define TRIREME_JOB_PLACEMENT_HPP_

#include <cstddef>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "comm/environment.hpp"
#include "comm/rank_grid.hpp"

namespace trireme::job {

// Where one rank runs.
struct Place {
  int node = 0;  // the lowest rank of those that share its memory
  std::string host;
  std::string processor;    // CPU, or device where kernels run on one
  std::string device{};     // its address on the PCI bus; empty without one
  std::string device_id{};  // its UUID
  std::vector<int> near{};  // cores of the device's NUMA domain; empty where not known
  std::vector<int> cores;   // that its threads may run on, ascending
  int threads = 1;
  int node_cores = 1;  // of the node, bound or not
  int umask = 0;       // which permissions files it makes do not get
};

// "0-3+8"
std::string core_list(const std::vector<int>& cores);

class Placement {
 public:
  explicit Placement(std::vector<Place> places);
  // Collective. Kokkos must be up.
  static Placement gather(comm::Environment& environment, const Machine& machine);

  const std::vector<Place>& places() const { return places_; }
  int nodes() const { return static_cast<int>(members_.size()); }

  // One line for each way in which nodes bind their ranks: "4 nodes of 2 ranks of 8
  // threads: cores 0-7, 8-15".
  std::vector<std::string> bindings() const;
  // The same of the devices that ranks have: "4 nodes of 4 ranks: GPUs 03:00.0, 41:00.0,
  // 81:00.0, c1:00.0". None on host cores.
  std::vector<std::string> devices() const;
  // What makes the run slower than it could be, or its files differ, each with what to
  // do.
  std::vector<std::string> warnings(const comm::GridShape& grid) const;

 private:
  const Place& place_of(int rank) const {
    return places_[static_cast<std::size_t>(rank)];
  }
  // What `text_of` says of the ranks of each node, nodes that are alike counted.
  template <class TextOf>
  std::vector<std::string> patterns_of_nodes(const TextOf& text_of) const;
  std::string binding_of(const std::vector<int>& ranks) const;
  std::string devices_of(const std::vector<int>& ranks) const;
  std::string tensor_warning(const comm::GridShape& grid) const;
  std::string cores_warning() const;
  std::string distance_warning() const;
  std::string difference_warning() const;

  std::vector<Place> places_;              // by rank
  std::vector<std::vector<int>> members_;  // the ranks of each node
};

}  // namespace trireme::job

#endif  // TRIREME_JOB_PLACEMENT_HPP_
