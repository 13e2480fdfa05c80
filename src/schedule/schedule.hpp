// schedule/schedule.hpp — the order of work of one training step, as data.
//
// A schedule is a pure function of (stages, chunks, micro-batches): lists of actions, one
// for each pipeline stage. Whoever runs one needs to know nothing about why the order is
// what it is. Orders of work (pipeline.hpp) have passes only; plan.hpp adds the messages
// between stages.
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
    // The messages of a pass. These actions only begin them: the pass that needs what is
    // received waits for it.
    recv_forward,   // the input of (micro-batch, chunk)'s forward pass
    send_forward,   // its output
    recv_backward,  // the gradient of its output
    send_backward,  // the gradient of its input
  };
  static constexpr int kNone = -1;

  Kind kind = Kind::forward;
  int microbatch = 0;
  int chunk = 0;     // the number of one of this stage's chunks
  int slot = 0;      // where the chunk keeps this micro-batch's saved tensors
  int held = kNone;  // held slot: where it keeps what a weight pass of its own needs
  // Buffers of what crosses the chunk's borders: the one that the action reads, and the
  // one that it writes. A message has one of the two.
  int in = kNone;
  int out = kNone;

  bool operator==(const Action&) const = default;
};

// What one stage does.
using Order = std::vector<Action>;

const char* name_of(Action::Kind kind);
inline bool is_message(const Action& action) {
  return action.kind >= Action::Kind::recv_forward;
}
// Whether the action is the last that a micro-batch's saved tensors are needed for.
inline bool ends_microbatch(const Action& action) {
  return action.kind == Action::Kind::backward ||
         action.kind == Action::Kind::backward_weight;
}

// Megatron's forward_backward_no_pipelining: F0 B0 F1 B1 ..., one slot.
Order no_pipelining(int microbatches);

// Gives every pass the lowest slot of its chunk that is free then, and a pass whose
// weight gradients come later the lowest free held slot as well.
void assign_slots(Order& order);

// How many slots a chunk needs for these actions (the most micro-batches in flight in
// it), and how many held slots (the most whose weight gradients are still to come).
int slot_count(const Order& order, int chunk);
int held_count(const Order& order, int chunk);

// Throws Error unless every micro-batch goes forward once and then backward once through
// every chunk, and no two in flight share a slot or a held slot.
void check(const Order& order, int microbatches, int chunks);

// The executor: calls handler.forward(action), .backward(action),
// .backward_input(action), .backward_weight(action), and .begin_message(action) for the
// messages, in order.
template <class Handler>
void execute(const Order& order, Handler& handler) {
  for (const Action& action : order) {
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
      case Action::Kind::recv_forward:
      case Action::Kind::send_forward:
      case Action::Kind::recv_backward:
      case Action::Kind::send_backward:
        handler.begin_message(action);
        break;
    }
  }
}

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_SCHEDULE_HPP_
