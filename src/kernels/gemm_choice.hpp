// kernels/gemm_choice.hpp — the fastest of several ways to compute the same product, by
// their times, and in a manner that noise does not decide.
//
// Ways come in the order in which they are preferred without times. All of them are timed
// in turn, round after round, and every other round backwards: what drifts meanwhile, as
// a device that becomes warmer, favours none of them in the middle of an even number of
// rounds. Of each way the median counts. The way that is taken is the first one that is
// not slower than the fastest by more than a margin: the library's own first proposal
// therefore stays, unless another is clearly faster.
//
// A way whose result has other bits when it is computed again is never taken.
#ifndef TRIREME_KERNELS_GEMM_CHOICE_HPP_
#define TRIREME_KERNELS_GEMM_CHOICE_HPP_

#include <cstdint>
#include <limits>

namespace trireme::kernels {

// What can be tried: the seam between the choice and a device.
class GemmTrials {
 public:
  virtual ~GemmTrials() = default;
  virtual int count() const = 0;
  // Computes once, untimed, in memory whose other content is not needed. False where this
  // way cannot be gone here. Else `digest` depends on all bits of the result.
  virtual bool run(int way, std::uint64_t& digest) = 0;
  // Computes once more, and says how long that took.
  virtual double seconds(int way) = 0;
};

struct TrialLimits {
  int rounds = 8;        // at most, in pairs; and at least:
  int least_rounds = 4;  // even where these take longer than
  double budget = 0.5;   // seconds of timed work
  // What is slower than the fastest by no more than this is as fast.
  double margin = 0.02;
  // After least_rounds, what has not come once within this of the fastest is not timed
  // any more.
  double hopeless = 1.25;
};

struct GemmTrialResult {
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  int way = -1;               // -1: none can be gone, or none has the same bits again
  double seconds = kUnknown;  // median
  double first_seconds = kUnknown;  // of the most preferred that can be gone
  int timed = 0;                    // how many ways could be gone
  int unsteady = 0;                 // ways that were refused for their bits
};

GemmTrialResult choose_way(GemmTrials& trials, const TrialLimits& limits = {});

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_GEMM_CHOICE_HPP_
