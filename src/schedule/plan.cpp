// schedule/plan.cpp — see plan.hpp.
//
// A message is begun as early as it can be and waited for as late as possible. Where a
// receive is begun depends on when the neighbour sends, which is either simulated (the
// caller has a timeline) or counted in ticks, in which every pass takes one (Neighbours).
// Ticks need the orders of the two neighbouring stages alone, so that a pipeline of
// thousands of stages is planned stage by stage. Both ends of a channel begin their
// messages in the same order, because messages between two stages have no names of their
// own: check() proves that for all stages together, and that no buffer is written while
// it is still read.
//
// Example: stage 1 of 2 has the passes F0 B0 F1 B1 F2 B2, forward and backward in turn.
// With its messages and, in brackets, buffers that is
//
//   recv [0]  recv [1]  F0 [0]  B0 to [2]  send [2]
//   recv [0]  F1 [1]  B1 to [3]  send [3]   F2 [0]  B2 to [1]  send [1]
//
// The input of F1 is received a pass ahead. After B0 nobody wants micro-batch 0's input
// any more: buffer 0 takes that of micro-batch 2.
#include "schedule/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "schedule/free_numbers.hpp"
#include "schedule/round.hpp"

namespace trireme::schedule {

using Kind = Action::Kind;

namespace {

bool is_forward(Kind kind) {
  return kind == Kind::forward || kind == Kind::recv_forward ||
         kind == Kind::send_forward;
}
bool is_send(Kind kind) {
  return kind == Kind::send_forward || kind == Kind::send_backward;
}

// Walks through the passes of one stage and adds the messages around them.
class Planner {
 public:
  // `receive_at` has, for each pass, the number of the pass before which its receive
  // begins.
  Planner(const PipelineShape& shape, int stage, const Order& passes,
          const std::vector<std::size_t>& receive_at)
      : shape_(shape), stage_(stage), passes_(passes), receive_at_(receive_at) {
    is_evaluation_ = std::none_of(passes.begin(), passes.end(), ends_microbatch);
  }

  StagePlan plan() {
    std::vector<std::size_t> receives(passes_.size());
    std::iota(receives.begin(), receives.end(), std::size_t{0});
    std::ranges::stable_sort(receives, {}, [&](std::size_t i) { return receive_at_[i]; });
    auto next = receives.begin();
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      for (; next != receives.end() && receive_at_[*next] <= i; ++next) {
        receive_for(passes_[*next]);
      }
      add_pass(passes_[i]);
    }
    return {.actions = std::move(actions_), .buffers = buffers_.most()};
  }

 private:
  using Key = std::pair<int, int>;  // (chunk, micro-batch)
  static Key key_of(const Action& action) { return {action.chunk, action.microbatch}; }
  // Whether there is a piece before (after) this one. Neighbouring pieces are always on
  // different stages, so that one means a message.
  bool has_before(const Action& action) const {
    return shape_.piece(stage_, action.chunk) > 0;
  }
  bool has_after(const Action& action) const {
    return shape_.piece(stage_, action.chunk) + 1 < shape_.pieces();
  }

  void receive_for(const Action& pass) {
    if (pass.kind == Kind::backward_weight) return;
    const bool forward = is_forward(pass.kind);
    if (forward ? !has_before(pass) : !has_after(pass)) return;
    const int buffer = buffers_.take();
    (forward ? inputs_ : gradients_)[key_of(pass)] = buffer;
    Action message = pass;
    message.kind = forward ? Kind::recv_forward : Kind::recv_backward;
    message.out = buffer;
    actions_.push_back(message);
  }

  void add_pass(Action pass) {
    const Key key = key_of(pass);
    const auto number_of = [&](const std::map<Key, int>& buffers) {
      const auto found = buffers.find(key);
      return found == buffers.end() ? Action::kNone : found->second;
    };
    const bool forward = is_forward(pass.kind);
    if (pass.kind != Kind::backward_weight) {
      pass.in = number_of(forward ? inputs_ : gradients_);
      if (forward ? has_after(pass) : has_before(pass)) pass.out = buffers_.take();
    }
    actions_.push_back(pass);
    if (pass.out != Action::kNone) send_of(pass);
    if (!forward && pass.in != Action::kNone) {
      buffers_.give_back(pass.in);
      gradients_.erase(key);
    }
    if ((ends_microbatch(pass) || is_evaluation_) && inputs_.count(key) > 0) {
      buffers_.give_back(inputs_[key]);
      inputs_.erase(key);
    }
  }

  void send_of(const Action& pass) {
    constexpr std::size_t kUnderWay = 2;
    Action message = pass;
    message.kind = is_forward(pass.kind) ? Kind::send_forward : Kind::send_backward;
    message.in = pass.out;
    message.out = Action::kNone;
    actions_.push_back(message);
    std::deque<int>& sent = sent_[message.kind];
    sent.push_back(message.in);
    if (sent.size() <= kUnderWay) return;
    buffers_.give_back(sent.front());
    sent.pop_front();
  }

  PipelineShape shape_;
  int stage_;
  const Order& passes_;
  const std::vector<std::size_t>& receive_at_;
  bool is_evaluation_ = false;
  Order actions_;
  FreeNumbers buffers_;
  std::map<Key, int> inputs_, gradients_;
  std::map<Kind, std::deque<int>> sent_;
};

// The orders of the stages before and after a stage, and where in them what it receives
// is sent.
class Neighbours {
 public:
  Neighbours(const PipelineShape& shape, const OrderOf& order_of, int stage)
      : shape_(shape), stage_(stage), before_(shape), after_(shape) {
    before_.read(order_of, (stage + shape.stages - 1) % shape.stages);
    after_.read(order_of, (stage + 1) % shape.stages);
  }

  // The number of the pass of this stage during which the neighbour sends the input of
  // each pass, by ticks.
  std::vector<std::size_t> passes_at_sends(const Order& passes) {
    std::vector<std::size_t> at_sends;
    at_sends.reserve(passes.size());
    for (std::size_t i = 0; i < passes.size(); ++i) {
      at_sends.push_back(tick_of_send(passes[i], i));
    }
    return at_sends;
  }

 private:
  // A neighbour, and at which position of its order the forward and the backward pass of
  // each (micro-batch, chunk) stand.
  struct Sender {
    explicit Sender(const PipelineShape& shape_in) : shape(shape_in) {}

    void read(const OrderOf& order_of, int stage_in) {
      stage = stage_in;
      const auto passes = static_cast<std::size_t>(shape.chunks) *
                          static_cast<std::size_t>(shape.microbatches);
      forward.assign(passes, -1);
      backward.assign(passes, -1);
      const Order order = order_of(stage);
      for (std::size_t i = 0; i < order.size(); ++i) {
        const Action& pass = order[i];
        if (pass.kind == Kind::backward_weight) continue;
        (is_forward(pass.kind) ? forward : backward).at(at(pass.chunk, pass.microbatch)) =
            static_cast<std::int64_t>(i);
      }
    }
    std::size_t at(int chunk, int microbatch) const {
      return static_cast<std::size_t>(chunk) *
                 static_cast<std::size_t>(shape.microbatches) +
             static_cast<std::size_t>(microbatch);
    }

    PipelineShape shape;
    int stage = 0;
    std::vector<std::int64_t> forward, backward;
    // The last that was received of each, to see that the orders agree.
    std::int64_t last_forward = -1, last_backward = -1;
  };

  // The number of this stage's pass that falls in the tick in which the input of `pass`
  // is sent; `none` where nobody sends it.
  std::size_t tick_of_send(const Action& pass, std::size_t none) {
    if (pass.kind == Kind::backward_weight) return none;
    const bool forward = is_forward(pass.kind);
    const int piece = shape_.piece(stage_, pass.chunk) + (forward ? -1 : 1);
    if (piece < 0 || piece >= shape_.pieces()) return none;
    Sender& sender = forward ? before_ : after_;
    const std::size_t at = sender.at(shape_.chunk_of(piece), pass.microbatch);
    const std::int64_t sent = (forward ? sender.forward : sender.backward).at(at);
    std::int64_t& last = forward ? sender.last_forward : sender.last_backward;
    TRIREME_REQUIRE(sent > last,
                    "schedule: stage {} sends {} of micro-batch {} for chunk {} in "
                    "another order than stage {} receives it",
                    sender.stage, forward ? "forward" : "backward", pass.microbatch,
                    pass.chunk, stage_);
    last = sent;
    return static_cast<std::size_t>(
        std::max<std::int64_t>(sent + sender.stage - stage_, 0));
  }

  PipelineShape shape_;
  int stage_;
  Sender before_, after_;
};

// Finds what Neighbours::passes_at_sends() finds, by simulated times and not by ticks.
std::vector<std::size_t> passes_at_sends(const Timeline& timeline, int stage) {
  const auto s = static_cast<std::size_t>(stage);
  const std::vector<Interval>& intervals = timeline.stages.at(s);
  // Passes that end together may be apart by rounding.
  const double tie = 1e-9 * timeline.seconds;
  std::vector<std::size_t> at_sends;
  at_sends.reserve(intervals.size());
  for (const double sent : timeline.sent.at(s)) {
    const auto during =
        std::ranges::lower_bound(intervals, sent - tie, {}, &Interval::end);
    at_sends.push_back(static_cast<std::size_t>(during - intervals.begin()));
  }
  return at_sends;
}

// The messages that one stage sends to another in one direction, in order.
struct Stream {
  struct Message {
    int microbatch = 0;
    int piece = 0;  // that receives it
    bool operator==(const Message&) const = default;
  };
  std::vector<Message> sent, received;
  std::map<std::pair<int, int>, std::size_t> number;  // of (micro-batch, piece) sent
  std::size_t begun_sends = 0, begun_receives = 0;    // of a walk through the plans
};
using StreamKey = std::tuple<int, int, bool>;  // from, to, forward

class Streams {
 public:
  Streams(const PipelineShape& shape, const std::vector<StagePlan>& plans)
      : shape_(shape), plans_(plans) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      for (const Action& action : plans_[static_cast<std::size_t>(stage)].actions) {
        if (is_message(action)) note(stage, action);
      }
    }
  }

  void require_match() const {
    for (const auto& [key, stream] : streams_) {
      const auto& [from, to, forward] = key;
      TRIREME_REQUIRE(stream.sent == stream.received,
                      "schedule: what stage {} sends {} to stage {} ({}) is not what "
                      "that receives ({}), in this order",
                      from, forward ? "forward" : "backward", to,
                      format_plural(stream.sent.size(), "message"),
                      format_plural(stream.received.size(), "message"));
    }
  }

  void require_end() {
    std::vector<std::size_t> next(plans_.size(), 0);
    advance_all(shape_.stages, [&](int stage) {
      const auto s = static_cast<std::size_t>(stage);
      const Order& actions = plans_[s].actions;
      const std::size_t before = next[s];
      while (next[s] < actions.size() && may_go_on(stage, actions[next[s]])) ++next[s];
      return next[s] > before;
    });
    for (std::size_t s = 0; s < plans_.size(); ++s) {
      if (next[s] == plans_[s].actions.size()) continue;
      const Action& action = plans_[s].actions[next[s]];
      throw Error(fmt::format(
          "schedule: stages wait for each other: stage {} in {} of micro-batch {} in "
          "chunk {} for ever",
          s, name_of(action.kind), action.microbatch, action.chunk));
    }
  }

 private:
  Stream& stream_of(int stage, const Action& message) {
    const int other = route_of(shape_, stage, message).stage;
    const bool sends = is_send(message.kind);
    return streams_[{sends ? stage : other, sends ? other : stage,
                     is_forward(message.kind)}];
  }

  void note(int stage, const Action& message) {
    Stream& stream = stream_of(stage, message);
    if (!is_send(message.kind)) {
      stream.received.push_back({message.microbatch, shape_.piece(stage, message.chunk)});
      return;
    }
    const Route to = route_of(shape_, stage, message);
    const int piece = shape_.piece(to.stage, to.chunk);
    stream.number[{message.microbatch, piece}] = stream.sent.size();
    stream.sent.push_back({message.microbatch, piece});
  }

  bool may_go_on(int stage, const Action& action) {
    if (!is_message(action)) return has_come(stage, action);
    Stream& stream = stream_of(stage, action);
    if (!is_send(action.kind)) {
      stream.begun_receives += 1;
      return true;
    }
    if (stream.begun_sends == stream.begun_receives) return false;
    stream.begun_sends += 1;
    return true;
  }

  // Whether the input of a pass is there: the message that carries it has a number in the
  // stream, and so many sends have begun.
  bool has_come(int stage, const Action& pass) {
    if (pass.in == Action::kNone) return true;
    Action message = pass;
    message.kind = is_forward(pass.kind) ? Kind::recv_forward : Kind::recv_backward;
    const Stream& stream = stream_of(stage, message);
    const auto number =
        stream.number.find({pass.microbatch, shape_.piece(stage, pass.chunk)});
    return number != stream.number.end() && number->second < stream.begun_sends;
  }

  PipelineShape shape_;
  const std::vector<StagePlan>& plans_;
  std::map<StreamKey, Stream> streams_;
};

}  // namespace

Route route_of(const PipelineShape& shape, int stage, const Action& message) {
  const bool to_next =
      message.kind == Kind::send_forward || message.kind == Kind::recv_backward;
  const int piece = shape.piece(stage, message.chunk) + (to_next ? 1 : -1);
  TRIREME_REQUIRE(is_message(message) && piece >= 0 && piece < shape.pieces(),
                  "schedule: {} of chunk {} of stage {} has no other end",
                  name_of(message.kind), message.chunk, stage);
  return {.stage = shape.stage_of(piece), .chunk = shape.chunk_of(piece)};
}

StagePlan with_messages(const PipelineShape& shape, const OrderOf& order_of, int stage,
                        const Timeline* timeline) {
  const Order passes = order_of(stage);
  if (shape.stages == 1) return {.actions = passes, .buffers = 0};
  std::vector<std::size_t> receive_at =
      Neighbours(shape, order_of, stage).passes_at_sends(passes);
  if (timeline != nullptr) receive_at = passes_at_sends(*timeline, stage);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    receive_at[i] = std::min(receive_at[i], i == 0 ? 0 : i - 1);
  }
  return Planner(shape, stage, passes, receive_at).plan();
}

void check(const PipelineShape& shape, const std::vector<StagePlan>& plans) {
  TRIREME_REQUIRE(plans.size() == static_cast<std::size_t>(shape.stages),
                  "schedule: plans of {}, the pipeline has {}",
                  format_plural(plans.size(), "stage"), shape.stages);
  Streams streams(shape, plans);
  streams.require_match();
  streams.require_end();
}

}  // namespace trireme::schedule
