// tests/restart/gpt_layouts.hpp — layouts of a small GPT whose runs go on in each other:
// every axis and degree of ZeRO, with few files and many.
#ifndef TRIREME_TESTS_RESTART_GPT_LAYOUTS_HPP_
#define TRIREME_TESTS_RESTART_GPT_LAYOUTS_HPP_

#include <string>
#include <utility>
#include <vector>

#include "restart/layout_runs.hpp"

namespace trireme::test {

class GptLayouts : public LayoutRuns {
 protected:
  GptLayouts() {
    keys_ = {"model.layers=4", "model.head_size=5", "run.sample_every=0"};
    layouts_ = {
        {"one", {1, {}}},
        {"tensor", {2, {"parallel.tensor=2"}}},
        {"tensor4", {4, {"parallel.tensor=4", "parallel.sequence=true"}}},
        {"data", {3, {"parallel.zero=0", "checkpoint.writers=2"}, 2}},
        {"zero2", {3, {"parallel.zero=2", "checkpoint.writers=per_node"}, 1}},
        {"zero3", {3, {"parallel.zero=3"}}},
        {"tensor-zero2",
         {4,
          {"parallel.tensor=2", "parallel.sequence=true", "parallel.zero=2",
           "batch.micro=1", "checkpoint.writers=3"},
          3}},
        {"tensor-zero3", {4, {"parallel.tensor=2", "parallel.zero=3", "batch.micro=1"}}},
        {"pipeline-zero1",
         {4,
          {"parallel.pipeline=2", "parallel.schedule=zero_bubble", "parallel.zero=1",
           "batch.micro=1"}}},
        {"pipeline-zero2",
         {4,
          {"parallel.pipeline=2", "parallel.virtual_pipeline=2",
           "parallel.schedule=zero_bubble", "parallel.zero=2", "batch.micro=1",
           "checkpoint.writers=per_node"},
          1}},
        {"pipeline-zero3",
         {4,
          {"parallel.pipeline=2", "parallel.virtual_pipeline=2", "parallel.zero=3",
           "batch.micro=1", "memory.recompute=selective"}}},
        {"uneven", {3, {"parallel.pipeline=3", "parallel.stages=[1, 2, 1]"}}},
        {"chunks",
         {2,
          {"parallel.pipeline=2", "parallel.virtual_pipeline=2",
           "checkpoint.writers=per_node"},
          1}},
        {"eight",
         {8,
          {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2",
           "parallel.zero=1", "batch.micro=1", "memory.recompute=full"}}}};
  }

  // The first five steps of a run of this layout's name.
  void start_half(const std::string& name) const {
    start(name, name, {"--set", "run.steps=5"});
  }
  // From and to: what half a run has saved goes on in another layout, with the losses of
  // one rank that never stopped.
  void expect_crossings(
      const std::vector<std::pair<const char*, const char*>>& crossings) const {
    constexpr double kTolerance = 5e-6;
    for (const auto& [from, to] : crossings) {
      const std::string run = std::string(from) + "-" + to;
      start(run, to, {"--resume", from});
      expect_losses_of("one-whole", 13, run, 5, kTolerance);
    }
  }
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_RESTART_GPT_LAYOUTS_HPP_
