// report/banner.hpp — what a run says of itself before it begins, in a few aligned lines
// of at most 80 columns.
#ifndef TRIREME_REPORT_BANNER_HPP_
#define TRIREME_REPORT_BANNER_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "ckpt/build_identity.hpp"
#include "config/deck.hpp"
#include "report/corpus_epochs.hpp"

namespace trireme::report {

// A member that is empty or 0 is not known, and is left out.
struct BannerInfo {
  config::Deck deck;
  std::string version;        // of Trireme, with its commit
  ckpt::BuildIdentity build;  // compiler and libraries are shown
  std::int64_t parameters = 0;
  int hosts = 1;
  std::vector<std::string> bindings;  // Placement::bindings(); the first few are shown
  std::vector<std::string> devices;   // Placement::devices(), the same way
  Machine machine;                    // of rank 0
  std::string wait_policy;            // "yield"; empty where it goes without saying
  double gemm_tflops = 0.0;           // measured, per device
  std::string attention;              // whose kernels, where that is a question
  std::vector<CorpusEpochs> corpora;  // of all of the run's steps
  std::int64_t corpus_tokens = 0;     // for training
  struct Set {
    std::string name;
    std::int64_t tokens = 0;
  };
  std::vector<Set> validation;  // what a validation looks at
  std::int64_t first_step = 0;  // done before this start
};

// Ends with a newline.
std::string banner(const BannerInfo& info);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_BANNER_HPP_
