// schedule/schedule.hpp — the order of work of one training step, as data.
//
// A schedule is a pure function of (stages, micro-batches, chunks): a list of actions for
// this stage. Whoever runs it needs to know nothing about why the order is what it is.
#ifndef TRIREME_SCHEDULE_SCHEDULE_HPP_
#define TRIREME_SCHEDULE_SCHEDULE_HPP_

#include <vector>

namespace trireme::schedule {

struct Action {
  enum class Kind {
    forward,
    backward,         // input and weight gradients
    backward_input,   // input gradients alone
    backward_weight,  // weight gradients of an earlier backward_input
  };
  Kind kind = Kind::forward;
  int microbatch = 0;
  int chunk = 0;
  int slot = 0;  // where the chunk keeps this micro-batch's saved tensors

  bool operator==(const Action&) const = default;
};

// Megatron's forward_backward_no_pipelining: F0 B0 F1 B1 ..., one slot.
std::vector<Action> no_pipelining(int microbatches);
// Evaluation: F0 F1 F2 ..., one slot.
std::vector<Action> forward_only(int microbatches);

// Slots a chunk needs for these actions: the most micro-batches in flight in it.
int slot_count(const std::vector<Action>& actions, int chunk);

// Throws Error unless every micro-batch goes forward once and then backward once through
// every chunk, and no two in flight share a slot.
void check(const std::vector<Action>& actions, int microbatches, int chunks);

// The executor: calls handler.forward(action), .backward(action),
// .backward_input(action), .backward_weight(action) in order.
template <class Handler>
void execute(const std::vector<Action>& actions, Handler& handler) {
  for (const Action& action : actions) {
    switch (action.kind) {
      case Action::Kind::forward:
        handler.forward(action);
        break;
      case Action::Kind::backward:
        handler.backward(action);
        break;
      case Action::Kind::backward_input:
        handler.backward_input(action);
        break;
      case Action::Kind::backward_weight:
        handler.backward_weight(action);
        break;
    }
  }
}

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_SCHEDULE_HPP_
