// What papers have published of steps on machines that inputs/machines/ describes, and
// the same as the planner predicts it.
#ifndef TRIREME_TESTS_UNIT_PLAN_PUBLISHED_ROWS_HPP_
#define TRIREME_TESTS_UNIT_PLAN_PUBLISHED_ROWS_HPP_

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "config/load.hpp"
#include "plan/performance_model.hpp"

namespace trireme::plan::test {

inline std::string source_path(const std::string& file) {
  const char* root = std::getenv("TRIREME_SOURCE_DIR");
  TRIREME_REQUIRE(root != nullptr, "TRIREME_SOURCE_DIR is not set");
  return std::string(root) + "/" + file;
}

inline Machine machine_named(const std::string& name) {
  return load_machine(source_path("inputs/machines/" + name + ".yaml"));
}

// A GPT, and how ranks share it.
struct Case {
  int layers = 1, hidden = 1, heads = 1, sequence = 2048;
  int tensor = 1, pipeline = 1, chunks = 1, data = 1;
  int micro = 1, global = 1;
  const char* recompute = "full";
  bool sequence_parallel = false;
  int zero = 0;
  const char* compute = "fp16";
  const char* schedule = "1f1b";
};

inline config::Deck deck_of(const Case& c) {
  std::string text = fmt::format(
      "model: {{kind: gpt, layers: {}, hidden: {}, heads: {}, sequence: {}, "
      "vocab: 51200}}\n"
      "data: {{train: none}}\n"
      "batch: {{micro: {}, global: {}}}\n"
      "parallel: {{tensor: {}, pipeline: {}, virtual_pipeline: {}, data: {}, zero: {}, "
      "sequence: {}, schedule: {}}}\n"
      "precision: {{compute: {}}}\n"
      "memory: {{recompute: {}}}\n",
      c.layers, c.hidden, c.heads, c.sequence, c.micro, c.global, c.tensor, c.pipeline,
      c.chunks, c.data, c.zero, c.sequence_parallel, c.schedule, c.compute, c.recompute);
  return config::parse(text, "case", {.ranks = c.tensor * c.pipeline * c.data});
}

inline Prediction predict(const Machine& machine, const Case& c,
                          Schedule schedule = Schedule::by_rule) {
  const config::Deck deck = deck_of(c);
  return PerformanceModel(machine, deck).predict(deck, schedule);
}

}  // namespace trireme::plan::test

#endif  // TRIREME_TESTS_UNIT_PLAN_PUBLISHED_ROWS_HPP_
