// tests/restart/layout_runs.hpp — runs of one deck in several layouts, by their names,
// and the losses of what goes on in another one.
#ifndef TRIREME_TESTS_RESTART_LAYOUT_RUNS_HPP_
#define TRIREME_TESTS_RESTART_LAYOUT_RUNS_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "restart/training_runs.hpp"

namespace trireme::test {

class LayoutRuns : public TrainingRuns {
 protected:
  struct Layout {
    int ranks;
    Arguments keys;
    std::size_t files = 0;  // that the ranks share; 0: each has its own
  };

  // A start in the layout of this name, with `more` behind the keys of all of them; what
  // it prints.
  std::string start(const std::string& run, const std::string& layout,
                    const Arguments& more = {}) const {
    Arguments arguments = {"train", deck_, "--run-dir", run};
    const Layout& of = layouts_.at(layout);
    for (const Arguments& keys : {of.keys, keys_}) {
      for (const std::string& key : keys) {
        arguments.insert(arguments.end(), {"--set", key});
      }
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme_on_ranks(of.ranks, arguments, options(1));
    EXPECT_EQ(result.status, 0) << run << ": " << result.err;
    return result.out;
  }

  // Each step of `run`, all from the one behind `begin` to `end`, has the loss that the
  // other run has there.
  void expect_losses_of(const std::string& whole, int end, const std::string& run,
                        int begin, double tolerance) const {
    SCOPED_TRACE(run);
    const auto expected = metrics(whole).steps, got = metrics(run).steps;
    ASSERT_EQ(std::ssize(got), end - begin);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto step = static_cast<std::int64_t>(begin + 1 + i);
      ASSERT_EQ(got[i].step, step);
      const auto want =
          std::ranges::find(expected, step, [](const auto& of) { return of.step; });
      ASSERT_NE(want, expected.end()) << whole << " has no step " << step;
      EXPECT_NEAR(got[i].loss, want->loss, tolerance * want->loss) << "step " << step;
      EXPECT_EQ(got[i].lr, want->lr);
      EXPECT_EQ(got[i].samples, want->samples);
      EXPECT_EQ(got[i].loss_scale, want->loss_scale) << "step " << step;
      EXPECT_EQ(got[i].skipped, want->skipped) << "step " << step;
    }
  }

  std::string deck_ = "deck.yaml";
  std::map<std::string, Layout> layouts_;
  Arguments keys_;  // of every start
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_RESTART_LAYOUT_RUNS_HPP_
