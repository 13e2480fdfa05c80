// schedule/plan.hpp — a stage's order of work with its messages, and buffers for what
// they carry.
#ifndef TRIREME_SCHEDULE_PLAN_HPP_
#define TRIREME_SCHEDULE_PLAN_HPP_

#include <vector>

#include "schedule/simulate.hpp"

namespace trireme::schedule {

// The other end of a message, and what is sent there.
struct Route {
  int stage = 0;
  int chunk = 0;  // the number of one of that stage's chunks
};
Route route_of(const PipelineShape& shape, int stage, const Action& message);

struct StagePlan {
  Order actions;
  int buffers = 0;  // how many `in` and `out` of the actions number
};

// Adds the messages to a stage's order of passes:
//   a receive begins before the pass during which the message is sent, and at least one
//   pass before the one that needs it, so that the message travels beside passes; a send
//   begins right after its pass.
// The only other stages whose orders are asked for are the two that this one exchanges
// messages with. During which pass something is sent, the orders of rules tell: a
// pipeline that follows one keeps step, stage s takes its pass i in tick i + s. Orders
// that were searched for keep no step; theirs is `timeline`, of simulate(). A buffer is
// taken when a receive begins, or by the pass that fills it, and is free again
//   - the input of a forward pass: after the micro-batch's last pass, as it is saved;
//     where there are forward passes alone, after that;
//   - the gradient of an output: after the backward pass;
//   - what was sent: when the second send after it, of the same direction, begins.
// Whoever writes into a buffer first waits for the send that was begun from it.
// Throws Error where a neighbour sends, or receives, in another order than this stage
// receives, or sends.
StagePlan with_messages(const PipelineShape& shape, const OrderOf& order_of, int stage,
                        const Timeline* timeline = nullptr);

// Throws Error unless the k-th message that a stage sends in a direction is the k-th that
// its neighbour receives, and the plans come to their ends even where every send blocks
// until its receive has begun (MPI_Ssend).
void check(const PipelineShape& shape, const std::vector<StagePlan>& plans);

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_PLAN_HPP_
