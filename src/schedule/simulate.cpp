// schedule/simulate.cpp — see simulate.hpp.
//
// Arrivals holds, for every pass, when what it needs has come; simulating is filling that
// table. For given orders each stage keeps a position in its list, and the stages that
// can go on do so until all lists are at their end; where none can, the orders wait for
// each other in a circle, which is an error that names who waits for what. zero_bubble()
// has no given order: a stage decides anew whenever it is free, which makes the order and
// its times in one go. Indices: the input of a forward pass of piece g comes from piece g
// - 1, that of a backward pass from piece g + 1; with 2 stages and 4 pieces, the input of
// chunk 1 of stage 0 (piece 2) comes from chunk 0 of stage 1 (piece 1).
#include "schedule/simulate.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "schedule/round.hpp"

namespace trireme::schedule {

using Kind = Action::Kind;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::size_t as_index(int number) {
  return static_cast<std::size_t>(number);
}

// The times at which the input of every piece's forward (backward) pass of every
// micro-batch is there.
class Arrivals {
 public:
  Arrivals(const PipelineShape& shape, const Costs& costs)
      : shape_(shape),
        costs_(costs),
        forward_(as_index(shape.pieces() * shape.microbatches), kNever),
        backward_(forward_) {
    for (int m = 0; m < shape.microbatches; ++m) forward_[at(0, m)] = 0.0;
  }

  double forward(int piece, int microbatch) const {
    return forward_[at(piece, microbatch)];
  }
  double backward(int piece, int microbatch) const {
    return backward_[at(piece, microbatch)];
  }
  // When a pass could begin, as far as its input is concerned. A weight pass needs none:
  // it follows its input pass on the same stage.
  double input_of(const Action& action, int stage) const {
    const int piece = shape_.piece(stage, action.chunk);
    switch (action.kind) {
      case Kind::forward:
        return forward(piece, action.microbatch);
      case Kind::backward:
      case Kind::backward_input:
        return backward(piece, action.microbatch);
      default:
        return 0.0;
    }
  }
  // When the pass ended that the input of this one comes from.
  double sent_at(const Action& action, int stage) const {
    const int piece = shape_.piece(stage, action.chunk);
    const bool is_forward = action.kind == Kind::forward;
    const int from = is_forward ? piece - 1 : piece + 1;
    const double arrival = input_of(action, stage);
    return from < 0 || from == shape_.pieces() ? arrival : arrival - message(from, piece);
  }
  // A pass has ended: its result goes to the piece after it, or before it in a backward
  // pass.
  void note_end(const Action& action, int stage, double time) {
    const int piece = shape_.piece(stage, action.chunk);
    if (action.kind == Kind::forward) {
      if (piece + 1 == shape_.pieces()) {
        backward_[at(piece, action.microbatch)] = time;
      } else {
        forward_[at(piece + 1, action.microbatch)] = time + message(piece, piece + 1);
      }
    }
    if (action.kind == Kind::backward || action.kind == Kind::backward_input) {
      if (piece > 0) {
        backward_[at(piece - 1, action.microbatch)] = time + message(piece, piece - 1);
      }
    }
  }
  double seconds_of(const Action& action, int stage) const {
    const int piece = shape_.piece(stage, action.chunk);
    const PieceCost& cost = costs_.pieces[as_index(piece)];
    const int before = piece > 0 && crosses(piece, piece - 1) ? 1 : 0;
    const int after = piece + 1 < shape_.pieces() && crosses(piece, piece + 1) ? 1 : 0;
    const double messages = costs_.message_work * (before + after);
    switch (action.kind) {
      case Kind::forward:
        return cost.forward + messages;
      case Kind::backward:
        return cost.backward() + messages;
      case Kind::backward_input:
        return cost.backward_input + messages;
      case Kind::backward_weight:
        return cost.backward_weight;
      default:
        throw Error("simulate: orders of passes have no messages");
    }
  }

 private:
  std::size_t at(int piece, int microbatch) const {
    return as_index(piece) * as_index(shape_.microbatches) + as_index(microbatch);
  }
  bool crosses(int from, int to) const {
    return shape_.stage_of(from) != shape_.stage_of(to);
  }
  double message(int from, int to) const {
    return crosses(from, to) ? costs_.message : 0.0;
  }

  PipelineShape shape_;
  const Costs& costs_;
  std::vector<double> forward_, backward_;
};

void require_costs(const PipelineShape& shape, const Costs& costs) {
  TRIREME_REQUIRE(costs.pieces.size() == as_index(shape.pieces()),
                  "simulate: costs of {}, the pipeline has {}",
                  format_plural(costs.pieces.size(), "piece"), shape.pieces());
}

std::string who_waits(const std::vector<Order>& orders,
                      const std::vector<std::size_t>& next) {
  std::string text;
  for (std::size_t s = 0; s < orders.size(); ++s) {
    if (next[s] == orders[s].size()) continue;
    const Action& action = orders[s][next[s]];
    text += fmt::format("{}stage {} for the input of {} of micro-batch {} in chunk {}",
                        text.empty() ? "" : ", ", s, name_of(action.kind),
                        action.microbatch, action.chunk);
  }
  return text;
}

// A stage that decides what to do next whenever it is free and something has come.
class ZeroBubble {
 public:
  // Which pass goes first where the inputs of both have come. A weight pass is not begun
  // if an input comes sooner than after `patience` times its duration.
  enum class First { forward, backward, other };  // other: than the last one
  struct Rule {
    First first = First::other;
    double patience = 0.0;
  };

  ZeroBubble(const PipelineShape& shape, const Costs& costs, int in_flight,
             const Rule& rule)
      : shape_(shape),
        costs_(costs),
        in_flight_(in_flight),
        rule_(rule),
        arrivals_(shape, costs),
        forward_(in_groups(shape, most_groups(shape), true)),
        backward_(in_groups(shape, most_groups(shape), false)),
        stages_(as_index(shape.stages)) {}

  // The orders found; nothing where the limit of micro-batches in flight lets no stage go
  // on.
  std::optional<std::vector<Order>> orders() {
    for (int stage = 0; stage < shape_.stages; ++stage) wake(stage, 0.0);
    while (!events_.empty()) {
      const auto [time, stage] = events_.top();
      events_.pop();
      if (stages_[as_index(stage)].free_at <= time) decide(stage, time);
    }
    std::vector<Order> orders;
    for (Stage& stage : stages_) {
      if (stage.order.size() != 3 * forward_.size()) return {};
      assign_slots(stage.order);
      orders.push_back(std::move(stage.order));
    }
    return orders;
  }

 private:
  struct Stage {
    double free_at = 0.0;
    std::size_t next_forward = 0, next_backward = 0;
    std::deque<Pass> weight_passes;
    int in_flight = 0;
    bool was_forward = false;  // the last pass that is no weight pass
    Order order;
  };

  void wake(int stage, double time) {
    if (time < kNever) events_.emplace(time, stage);
  }
  Action action_of(Kind kind, const Pass& pass) const {
    return {.kind = kind, .microbatch = pass.microbatch, .chunk = pass.chunk};
  }

  void decide(int s, double now) {
    Stage& stage = stages_[as_index(s)];
    double arrival = kNever;
    const bool forward_first =
        rule_.first == First::forward ||
        (rule_.first == First::other && !stage.order.empty() && !stage.was_forward);
    if (forward_first && try_forward(s, now, arrival)) return;
    if (try_backward(s, now, arrival)) return;
    if (!forward_first && try_forward(s, now, arrival)) return;
    if (stage.weight_passes.empty()) return;
    const Action action = action_of(Kind::backward_weight, stage.weight_passes.front());
    if (arrival - now < rule_.patience * arrivals_.seconds_of(action, s)) return;
    stage.weight_passes.pop_front();
    stage.in_flight -= 1;
    begin(s, action, now);
  }

  // Begin the next such pass where its input has come; otherwise: when that will be, as
  // far as is known now.
  bool try_forward(int s, double now, double& next_arrival) {
    Stage& stage = stages_[as_index(s)];
    if (stage.next_forward == forward_.size() || stage.in_flight == in_flight_) {
      return false;
    }
    const Action action = action_of(Kind::forward, forward_[stage.next_forward]);
    if (!has_come(action, s, now, next_arrival)) return false;
    stage.next_forward += 1;
    stage.in_flight += 1;
    stage.was_forward = true;
    begin(s, action, now);
    return true;
  }
  bool try_backward(int s, double now, double& next_arrival) {
    Stage& stage = stages_[as_index(s)];
    if (stage.next_backward == backward_.size()) return false;
    const Action action = action_of(Kind::backward_input, backward_[stage.next_backward]);
    if (!has_come(action, s, now, next_arrival)) return false;
    stage.next_backward += 1;
    stage.weight_passes.push_back({action.microbatch, action.chunk});
    stage.was_forward = false;
    begin(s, action, now);
    return true;
  }
  bool has_come(const Action& action, int s, double now, double& next_arrival) const {
    const double arrival = arrivals_.input_of(action, s);
    next_arrival = std::min(next_arrival, arrival);
    return arrival <= now;
  }

  void begin(int s, const Action& action, double now) {
    Stage& stage = stages_[as_index(s)];
    stage.free_at = now + arrivals_.seconds_of(action, s);
    stage.order.push_back(action);
    arrivals_.note_end(action, s, stage.free_at);
    wake(s, stage.free_at);
    const int piece = shape_.piece(s, action.chunk);
    const bool is_forward = action.kind == Kind::forward;
    const int to = is_forward ? piece + 1 : piece - 1;
    if (action.kind == Kind::backward_weight || to < 0 || to >= shape_.pieces()) return;
    const int other = shape_.stage_of(to);
    const double arrival = is_forward ? arrivals_.forward(to, action.microbatch)
                                      : arrivals_.backward(to, action.microbatch);
    wake(other, std::max(arrival, stages_[as_index(other)].free_at));
  }

  PipelineShape shape_;
  const Costs& costs_;
  int in_flight_;
  Rule rule_;
  Arrivals arrivals_;
  std::vector<Pass> forward_, backward_;
  std::vector<Stage> stages_;
  using Event = std::pair<double, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

Timeline simulate(const PipelineShape& shape, const std::vector<Order>& orders,
                  const Costs& costs) {
  require_costs(shape, costs);
  TRIREME_REQUIRE(orders.size() == as_index(shape.stages),
                  "simulate: orders of {}, the pipeline has {}",
                  format_plural(orders.size(), "stage"), shape.stages);
  Arrivals arrivals(shape, costs);
  Timeline timeline;
  timeline.stages.resize(orders.size());
  timeline.sent.resize(orders.size());
  timeline.busy.resize(orders.size());
  std::vector<std::size_t> next(orders.size(), 0);
  std::vector<double> free_at(orders.size(), 0.0);
  advance_all(shape.stages, [&](int stage) {
    const std::size_t s = as_index(stage);
    const std::size_t before = next[s];
    for (; next[s] < orders[s].size(); ++next[s]) {
      const Action& action = orders[s][next[s]];
      const double input = arrivals.input_of(action, stage);
      if (input == kNever) break;
      const double begin = std::max(free_at[s], input);
      const double seconds = arrivals.seconds_of(action, stage);
      free_at[s] = begin + seconds;
      timeline.busy[s] += seconds;
      timeline.stages[s].push_back({begin, free_at[s]});
      timeline.sent[s].push_back(arrivals.sent_at(action, stage));
      arrivals.note_end(action, stage, free_at[s]);
    }
    return next[s] > before;
  });
  const std::string waiting = who_waits(orders, next);
  TRIREME_REQUIRE(waiting.empty(), "simulate: stages wait for each other: {}", waiting);
  timeline.seconds = *std::max_element(free_at.begin(), free_at.end());
  return timeline;
}

std::vector<Order> zero_bubble(const PipelineShape& shape, const Costs& costs,
                               int in_flight) {
  using First = ZeroBubble::First;
  require_costs(shape, costs);
  if (in_flight == 0) in_flight = most_in_flight(shape, 0, most_groups(shape));
  std::vector<Order> best;
  double seconds = kNever;
  while (best.empty()) {
    for (const First first : {First::other, First::backward, First::forward}) {
      for (const double patience : {0.0, 0.5, 1.0}) {
        auto orders = ZeroBubble(shape, costs, in_flight, {first, patience}).orders();
        if (!orders) continue;
        const double taken = simulate(shape, *orders, costs).seconds;
        if (taken >= seconds) continue;
        seconds = taken;
        best = std::move(*orders);
      }
    }
    in_flight += 1;  // fewer do not reach the last piece
  }
  return best;
}

}  // namespace trireme::schedule
