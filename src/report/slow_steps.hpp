// report/slow_steps.hpp — a step that takes much longer than its neighbours, and what
// made it so: which rank was longer at what.
#ifndef TRIREME_REPORT_SLOW_STEPS_HPP_
#define TRIREME_REPORT_SLOW_STEPS_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/rank_account.hpp"

namespace trireme::report {

struct SlowStep {
  std::int64_t step = 0;
  double seconds = 0.0;
  double usual = 0.0;  // the median of its neighbours
};

class SlowSteps {
 public:
  static constexpr std::size_t kNeighbours = 128;

  // In order. The first step of a start is never slow.
  void add(std::int64_t step, double seconds);
  // The slowest step since the last call, where it is slow: it took half as long again as
  // the median of the last kNeighbours steps, and not only milliseconds more.
  std::optional<SlowStep> take();

 private:
  struct Step {
    std::int64_t step = 0;
    double seconds = 0.0;
  };
  std::vector<Step> last_;  // in order, at most kNeighbours
  std::size_t fresh_ = 0;   // at the end of these, since the last call
  bool is_first_ = true;
};

// "step 120 took 3.10 s, 2.1 times its neighbours: rank 3 was 1.62 s longer than usual in
// the host's code". `excess`: of each rank, the step's parts less those of usual steps.
std::string describe(const SlowStep& slow, const std::vector<PartSeconds>& excess,
                     const std::vector<std::string>& axes);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_SLOW_STEPS_HPP_
