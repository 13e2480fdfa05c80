// schedule/schedule.cpp — see schedule.hpp.
#include "schedule/schedule.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "schedule/free_numbers.hpp"

namespace trireme::schedule {

using Kind = Action::Kind;

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"forward",         "backward",     "backward_input",
                                    "backward_weight", "recv_forward", "send_forward",
                                    "recv_backward",   "send_backward"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Kind::send_backward) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

Order no_pipelining(int microbatches) {
  Order order;
  for (int m = 0; m < microbatches; ++m) {
    order.push_back({.kind = Kind::forward, .microbatch = m});
    order.push_back({.kind = Kind::backward, .microbatch = m});
  }
  return order;
}

void assign_slots(Order& order) {
  struct InFlight {
    int slot = Action::kNone;
    int held = Action::kNone;
  };
  struct Chunk {
    FreeNumbers slots, helds;
    std::vector<InFlight> of_microbatch;
  };
  std::map<int, Chunk> chunks;
  for (Action& action : order) {
    if (is_message(action)) continue;
    Chunk& chunk = chunks[action.chunk];
    const auto microbatch = static_cast<std::size_t>(action.microbatch);
    if (microbatch >= chunk.of_microbatch.size()) {
      chunk.of_microbatch.resize(microbatch + 1);
    }
    InFlight& its = chunk.of_microbatch[microbatch];
    if (action.kind == Kind::forward) its.slot = chunk.slots.take();
    if (action.kind == Kind::backward_input) its.held = chunk.helds.take();
    action.slot = its.slot;
    action.held = its.held;
    if (!ends_microbatch(action)) continue;
    chunk.slots.give_back(its.slot);
    if (its.held != Action::kNone) chunk.helds.give_back(its.held);
  }
}

int slot_count(const Order& order, int chunk) {
  int slots = 0;
  for (const Action& action : order) {
    if (action.chunk == chunk) slots = std::max(slots, action.slot + 1);
  }
  return slots;
}

int held_count(const Order& order, int chunk) {
  int slots = 0;
  for (const Action& action : order) {
    if (action.chunk == chunk) slots = std::max(slots, action.held + 1);
  }
  return slots;
}

void check(const Order& order, int microbatches, int chunks) {
  enum class State { waiting, forward_done, input_done, done };
  std::map<std::pair<int, int>, State> states;  // (chunk, micro-batch)
  // The micro-batch that is in each (chunk, slot), and in each (chunk, held slot).
  std::map<std::pair<int, int>, int> occupants, holders;
  for (const Action& action : order) {
    if (is_message(action)) continue;
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
      const auto [holder, is_free] =
          holders.try_emplace({action.chunk, action.held}, action.microbatch);
      TRIREME_REQUIRE(is_free,
                      "schedule: micro-batches {} and {} share held slot {} of chunk {}",
                      holder->second, action.microbatch, action.held, action.chunk);
    }
    if (action.kind == Kind::backward_weight) {
      advance(State::input_done, State::done, "backward_weight");
      const auto holder = holders.find({action.chunk, action.held});
      TRIREME_REQUIRE(holder != holders.end() && holder->second == action.microbatch,
                      "schedule: micro-batch {} is not in held slot {} of chunk {}",
                      action.microbatch, action.held, action.chunk);
      holders.erase(holder);
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
