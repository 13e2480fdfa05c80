// report/profile_table.hpp — what the kernels of some steps took, on all ranks: each
// beside its bound, by region, and the roofline of the step; for people (text) and
// programs (JSON).
//
//   bound of a call    = max(necessary FLOPs / measured GEMM peak,
//                            bytes / measured copy bandwidth)
//   roofline of a step = the sum of the bounds of all its calls
// Necessary FLOPs are those of the kernel's cost (base/tally.hpp) without products with
// what a mask hides. Bytes pass once: what a kernel finds in a cache makes it faster than
// its bound.
#ifndef TRIREME_REPORT_PROFILE_TABLE_HPP_
#define TRIREME_REPORT_PROFILE_TABLE_HPP_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/kernel_profile.hpp"
#include "base/types.hpp"

namespace trireme::report {

// What the device can do, per second.
struct MachineSpeed {
  double flops = 0.0;  // of matrix products, in the type that the model computes in
  double bytes = 0.0;  // to and from memory
};

// All calls of one kernel in one region and section, in all profiled steps of a rank; or
// means of ranks, in one step.
struct KernelUse {
  std::string kernel;  // the label without "trireme::"
  std::string region;  // a component; "optimizer", "communication", "data"; or "other"
  std::string section;
  double calls = 0.0, flops = 0.0, masked_flops = 0.0, bytes = 0.0;
  double seconds = 0.0, bound = 0.0;
  double most_seconds = 0.0;  // of a rank, and of which
  int most_rank = 0;

  double needed_flops() const { return flops - masked_flops; }
};

// What one rank measured.
struct RankProfile {
  std::int64_t steps = 0;
  double seconds = 0.0;  // of these steps
  // In sections that wait for messages, or for the next batch: exposed time.
  double communication = 0.0, data = 0.0;
  MachineSpeed machine;
  index_t layers = 0;      // forward passes of a layer
  double row_bytes = 0.0;  // of (rows, hidden) in the compute type, once
  std::vector<KernelUse> kernels;

  // Takes the kernels from what was recorded; `machine` must be set.
  void take(const KernelProfile& profile);
  std::string text() const;  // for of_text(), exactly
  static RankProfile of_text(const std::string& text);
};

class ProfileTable {
 public:
  // What the profile is of, said at its head.
  struct Title {
    std::int64_t start = 0;                      // number of the start
    std::int64_t first_step = 0, last_step = 0;  // of the run
    DType type = DType::float32;
  };
  struct Region {
    std::string name;
    double forward = 0.0, backward = 0.0;  // seconds; recomputation is in backward
    double seconds = 0.0, bound = 0.0, flops = 0.0, bytes = 0.0;
    double most_seconds = 0.0;  // of a rank, and of which
    int most_rank = 0;
  };

  // At least one rank, in order.
  ProfileTable(Title title, const std::vector<RankProfile>& ranks);

  // Per step, by falling time; means over the ranks.
  const std::vector<KernelUse>& kernels() const { return kernels_; }
  // The sum of their seconds is step_seconds(). The last, "other", is what is neither a
  // kernel of a region nor a wait: launches, the host's own work.
  const std::vector<Region>& regions() const { return regions_; }
  double step_seconds() const { return step_seconds_; }
  double roofline() const { return roofline_; }
  // Times that a layer reads or writes (rows, hidden) outside matrix products and
  // attention, forward and backward together.
  double passes_per_layer() const { return passes_forward_ + passes_backward_; }

  // At most 80 columns; ends with a newline.
  std::string text() const;
  // The file profile.json (docs/profile.md).
  std::string json() const;

 private:
  void merge_kernels(const std::vector<RankProfile>& ranks);
  void merge_regions(const std::vector<RankProfile>& ranks);
  void count_passes(const std::vector<RankProfile>& ranks);
  std::vector<KernelUse> kernels_of_all_sections() const;
  std::string head_text() const;
  std::string regions_text() const;
  std::string kernels_text() const;

  Title title_;
  int ranks_ = 1;
  double step_seconds_ = 0.0, roofline_ = 0.0;
  double most_step_seconds_ = 0.0;
  int most_step_rank_ = 0;
  MachineSpeed machine_;  // means
  double passes_forward_ = 0.0, passes_backward_ = 0.0;
  std::vector<KernelUse> kernels_;
  std::vector<Region> regions_;
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_PROFILE_TABLE_HPP_
