// report/banner.hpp — what a run says of itself before it begins, in a few aligned lines
// of at most 80 columns.
#ifndef TRIREME_REPORT_BANNER_HPP_
#define TRIREME_REPORT_BANNER_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "ckpt/build_identity.hpp"
#include "comm/rank_grid.hpp"

namespace trireme::report {

// Fields that are empty or 0 are left out, and lines of which nothing is left.
struct BannerInfo {
  std::string version;        // of Trireme, with its commit
  ckpt::BuildIdentity build;  // compiler and libraries are shown

  std::string kind;  // "gpt"
  std::int64_t parameters = 0;
  std::int64_t layers = 0, hidden = 0, heads = 0, sequence = 0, vocabulary = 0;

  comm::GridShape grid;
  int hosts = 1;
  std::vector<std::string> bindings;  // Placement::bindings(); the first few are shown
  Machine machine;                    // of rank 0
  std::string wait_policy;            // "yield"; empty where it goes without saying
  std::string precision;              // "fp32"
  double gemm_tflops = 0.0;           // measured, per device
  double memory_gbs = 0.0;            // measured memory bandwidth, GB/s

  std::vector<std::string> corpora;  // paths
  std::int64_t corpus_tokens = 0;    // for training
  struct Set {
    std::string name;
    std::int64_t tokens = 0;
  };
  std::vector<Set> validation;  // what a validation looks at

  std::int64_t micro_batch = 0, global_batch = 0;  // samples
  std::int64_t steps = 0, first_step = 0;          // first_step: done before this start
  std::string run_directory, checkpoint_directory;
  std::int64_t checkpoint_every = 0;
  std::string time_limit;  // "2h00m"
};

// Ends with a newline.
std::string banner(const BannerInfo& info);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_BANNER_HPP_
