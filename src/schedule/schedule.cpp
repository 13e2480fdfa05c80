// schedule/schedule.cpp — see schedule.hpp.
#include "schedule/schedule.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace trireme::schedule {

using Kind = Action::Kind;

std::vector<Action> no_pipelining(int microbatches) {
  std::vector<Action> actions;
  for (int m = 0; m < microbatches; ++m) {
    actions.push_back({Kind::forward, m, 0, 0});
    actions.push_back({Kind::backward, m, 0, 0});
  }
  return actions;
}

std::vector<Action> forward_only(int microbatches) {
  std::vector<Action> actions;
  for (int m = 0; m < microbatches; ++m) actions.push_back({Kind::forward, m, 0, 0});
  return actions;
}

int slot_count(const std::vector<Action>& actions, int chunk) {
  int slots = 0;
  for (const Action& action : actions) {
    if (action.chunk == chunk) slots = std::max(slots, action.slot + 1);
  }
  return slots;
}

void check(const std::vector<Action>& actions, int microbatches, int chunks) {
  enum class State { waiting, forward_done, input_done, done };
  std::map<std::pair<int, int>, State> states;   // (chunk, micro-batch)
  std::map<std::pair<int, int>, int> occupants;  // (chunk, slot) -> micro-batch
  for (const Action& action : actions) {
    State& state = states[{action.chunk, action.microbatch}];
    const auto advance = [&](State from, State to, const char* what) {
      TRIREME_REQUIRE(state == from,
                      "schedule: {} of micro-batch {} in chunk {} out of order", what,
                      action.microbatch, action.chunk);
      state = to;
    };
    if (action.kind == Kind::forward) {
      advance(State::waiting, State::forward_done, "forward");
      const auto [it, is_free] =
          occupants.try_emplace({action.chunk, action.slot}, action.microbatch);
      TRIREME_REQUIRE(is_free,
                      "schedule: micro-batches {} and {} share slot {} of chunk {}",
                      it->second, action.microbatch, action.slot, action.chunk);
      continue;
    }
    const auto it = occupants.find({action.chunk, action.slot});
    TRIREME_REQUIRE(it != occupants.end() && it->second == action.microbatch,
                    "schedule: micro-batch {} is not in slot {} of chunk {}",
                    action.microbatch, action.slot, action.chunk);
    if (action.kind == Kind::backward)
      advance(State::forward_done, State::done, "backward");
    if (action.kind == Kind::backward_input) {
      advance(State::forward_done, State::input_done, "backward_input");
    }
    if (action.kind == Kind::backward_weight) {
      advance(State::input_done, State::done, "backward_weight");
    }
    if (state == State::done) occupants.erase(it);
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int m = 0; m < microbatches; ++m) {
      const auto it = states.find({chunk, m});
      TRIREME_REQUIRE(it != states.end() && it->second == State::done,
                      "schedule: micro-batch {} does not finish in chunk {}", m, chunk);
    }
  }
  TRIREME_REQUIRE(states.size() == static_cast<std::size_t>(microbatches) *
                                       static_cast<std::size_t>(chunks),
                  "schedule: work for {} (chunk, micro-batch) pairs, {} x {} expected",
                  states.size(), chunks, microbatches);
}

}  // namespace trireme::schedule
