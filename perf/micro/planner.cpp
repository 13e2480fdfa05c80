// perf/micro/planner.cpp — searches for layouts of the largest published models: the CPU
// time is what counts.
#include <benchmark/benchmark.h>

#include <fmt/format.h>

#include "config/load.hpp"
#include "plan/machine.hpp"
#include "plan/performance_model.hpp"
#include "plan/search.hpp"

namespace trireme::perf {
namespace {

// Arguments: layers, width, heads, samples of a step, devices.
void plan_search(benchmark::State& state) {
  const config::Deck deck = config::parse(
      fmt::format(
          "model: {{kind: gpt, layers: {}, hidden: {}, heads: {}, sequence: 2048, "
          "vocab: 51200}}\ndata: {{train: none}}\nbatch: {{global: {}}}\n"
          "precision: {{compute: bf16}}\n",
          state.range(0), state.range(1), state.range(2), state.range(3)),
      "deck");
  const plan::Machine machine =
      plan::load_machine(TRIREME_MACHINES "/selene-trireme.yaml");
  double seconds = 0.0;
  for (auto _ : state) {
    plan::PerformanceModel model(machine, deck);
    seconds = plan::search(model, deck, static_cast<int>(state.range(4)))
                  .plans.front()
                  .seconds();
  }
  state.counters["step_seconds"] = seconds;
}
BENCHMARK(plan_search)
    ->Args({96, 12288, 96, 1536, 1024})
    ->Args({105, 20480, 128, 2520, 2520})
    ->Args({128, 25600, 160, 3072, 3072})
    ->Unit(benchmark::kSecond);

}  // namespace
}  // namespace trireme::perf
