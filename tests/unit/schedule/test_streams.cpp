// Plans on a device, whose host never waits: passes go one after the other on a queue of
// their own, and a message goes on the queue of its communicator when the passes before
// it are done and the message before it is over, which takes both ends. That is how NCCL
// carries them.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <ranges>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/plan.hpp"
#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

using Kind = Action::Kind;

bool is_forward(const Action& message) {
  return message.kind == Kind::recv_forward || message.kind == Kind::send_forward;
}
bool is_send(const Action& message) {
  return message.kind == Kind::send_forward || message.kind == Kind::send_backward;
}

// Which messages of a stage share a communicator.
enum class Communicators {
  of_channels,  // one for each way between two stages
  of_ways,      // one for each way of the whole pipeline
  one
};
enum class Neighbours {
  apart,    // each message by itself
  grouped,  // those of a communicator that no pass lies between begin and end together
};

// What a pass waits for before it ends.
enum class Passes {
  wait_for_theirs,  // the messages that bring what it reads, and take what it writes over
  wait_for_device,  // all that was begun before, as for an allocation on a device
};

class Devices {
 public:
  Devices(const PipelineShape& shape, const std::vector<StagePlan>& plans,
          Communicators communicators, Neighbours neighbours,
          Passes passes = Passes::wait_for_theirs)
      : shape_(shape),
        communicators_(communicators),
        neighbours_(neighbours),
        passes_(passes) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      add(stage, plans[static_cast<std::size_t>(stage)].actions);
    }
  }

  // Whether all comes to its end.
  bool run() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (auto& [queue, tasks] : queues_) goes_on = advance(tasks) || goes_on;
    }
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& entry) {
      return entry.second.done == entry.second.tasks.size();
    });
  }

 private:
  // One end of a message: from and to which stage, which way, its number, and which end.
  using End = std::tuple<int, int, bool, int, bool>;
  struct Task {
    std::vector<std::size_t> after;  // tasks
    std::vector<End> ends;           // none: a pass, or a wait
    std::size_t met = 0;             // ends
    bool has_begun = false, has_ended = false;
  };
  struct Queue {
    std::vector<std::size_t> tasks;
    std::size_t done = 0;
  };
  using QueueKey = std::tuple<int, int, int, bool>;  // stage, other stage, way, round

  std::size_t put(const QueueKey& queue, std::vector<std::size_t> after) {
    tasks_.push_back({.after = std::move(after), .ends = {}});
    queues_[queue].tasks.push_back(tasks_.size() - 1);
    return tasks_.size() - 1;
  }
  QueueKey queue_of(int stage, int other, const Action& message) const {
    const bool forward = is_forward(message);
    const int way = forward ? 1 : 2;
    const bool is_round = forward == is_send(message) ? stage > other : stage < other;
    switch (communicators_) {
      case Communicators::of_channels:
        return {stage, other, way, is_round};
      case Communicators::of_ways:
        return {stage, -1, way, false};
      case Communicators::one:
        return {stage, -1, 1, false};
    }
    return {};
  }

  void add(int stage, const Order& actions) {
    const QueueKey passes{stage, -1, 0, false};
    std::map<int, std::size_t> last;  // message of a buffer, whose passes wait for it
    std::map<QueueKey, std::size_t> group;
    std::vector<std::size_t> begun;  // messages
    std::map<std::tuple<int, bool, bool>, int> count;
    const auto wait_for = [&](std::initializer_list<int> buffers) {
      std::vector<std::size_t> after;
      for (const int buffer : buffers) {
        if (last.count(buffer) > 0) after.push_back(last[buffer]);
      }
      put(passes, after);
    };
    for (const Action& action : actions) {
      if (!is_message(action)) {
        wait_for({action.in, action.out});
        if (passes_ == Passes::wait_for_device) put(passes, begun);
        group.clear();
        continue;
      }
      const bool sends = is_send(action), forward = is_forward(action);
      const int buffer = sends ? action.in : action.out;
      if (!sends) wait_for({buffer});
      const int other = route_of(shape_, stage, action).stage;
      const QueueKey queue = queue_of(stage, other, action);
      if (neighbours_ == Neighbours::apart || group.count(queue) == 0) {
        group[queue] = put(queue, {});
      }
      const std::size_t task = group[queue];
      const int number = count[{other, sends, forward}]++;
      const int from = sends ? stage : other, to = sends ? other : stage;
      tasks_[task].ends.push_back({from, to, forward, number, sends});
      task_of_[tasks_[task].ends.back()] = task;
      if (!queues_[passes].tasks.empty()) {
        tasks_[task].after.push_back(queues_[passes].tasks.back());
      }
      last[buffer] = task;
      begun.push_back(task);
    }
  }

  bool advance(Queue& queue) {
    bool goes_on = false;
    while (queue.done < queue.tasks.size()) {
      Task& task = tasks_[queue.tasks[queue.done]];
      const auto has_ended = [&](std::size_t other) { return tasks_[other].has_ended; };
      if (!task.has_begun) {
        if (!std::all_of(task.after.begin(), task.after.end(), has_ended)) break;
        task.has_begun = goes_on = true;
        for (End end : task.ends) {  // meets the other, where that waits already
          std::get<4>(end) = !std::get<4>(end);
          Task& other = tasks_[task_of_.at(end)];
          if (!other.has_begun) continue;
          task.met += 1;
          other.met += 1;
        }
      }
      if (task.met < task.ends.size()) break;
      task.has_ended = goes_on = true;
      queue.done += 1;
    }
    return goes_on;
  }

  PipelineShape shape_;
  Communicators communicators_;
  Neighbours neighbours_;
  Passes passes_;
  std::vector<Task> tasks_;
  std::map<QueueKey, Queue> queues_;
  std::map<End, std::size_t> task_of_;
};

using Plans = std::vector<StagePlan>;
Plans stage_plans(const PipelineShape& shape, const std::vector<Order>& orders,
                  const Timeline* timeline = nullptr) {
  Plans plans;
  for (int stage = 0; stage < shape.stages; ++stage) {
    plans.push_back(with_messages(
        shape, [&](int of) { return orders.at(static_cast<std::size_t>(of)); }, stage,
        timeline));
  }
  return plans;
}
Plans training_plans(const PipelineShape& shape) {
  return stage_plans(shape, interleaved_orders(shape, most_groups(shape)));
}
Plans evaluation_plans(const PipelineShape& shape) {
  return stage_plans(shape,
                     orders_of_all(shape, [&](int) { return forward_only(shape); }));
}
Plans found_plans(const PipelineShape& shape) {
  const Costs costs = unequal_costs(shape);
  const std::vector<Order> found = zero_bubble(shape, costs);
  const Timeline timeline = simulate(shape, found, costs);
  return stage_plans(shape, found, &timeline);
}

std::vector<PipelineShape> small_pipelines(int most_passes) {
  std::vector<PipelineShape> shapes = pipelines();
  std::erase_if(shapes, [&](const PipelineShape& shape) {
    return shape.stages == 1 || shape.pieces() * shape.microbatches > most_passes;
  });
  return shapes;
}

TEST(Streams, OverChannelsEveryPlanComesToItsEnd) {
  for (const PipelineShape& shape : small_pipelines(64)) {
    SCOPED_TRACE(text_of(shape));
    for (const Plans& plans :
         {stage_plans(shape, gpipe_orders(shape)),
          stage_plans(shape, interleaved_orders(shape, 1)), training_plans(shape),
          stage_plans(shape, zero_bubble_rule_orders(shape)), evaluation_plans(shape),
          found_plans(shape)}) {
      EXPECT_TRUE(
          Devices(shape, plans, Communicators::of_channels, Neighbours::apart).run());
    }
  }
}

// What else could be chosen, and why it is not. Receives begin before the pass during
// which the message is sent, and hold up what is behind them: where stages form a ring,
// with chunks, they wait for each other round it. With one communicator for all messages
// of a stage training hangs without chunks, too. Beginning neighbouring messages together
// mends none of that.
TEST(Streams, CommunicatorsOfAWholePipelineHang) {
  for (const PipelineShape& shape : small_pipelines(32)) {
    SCOPED_TRACE(text_of(shape));
    const auto runs = [&](const Plans& plans, Communicators communicators) {
      const bool apart = Devices(shape, plans, communicators, Neighbours::apart).run();
      EXPECT_EQ(Devices(shape, plans, communicators, Neighbours::grouped).run(), apart);
      return apart;
    };
    const bool is_chain = shape.chunks == 1;
    const Plans training = training_plans(shape), evaluation = evaluation_plans(shape);
    EXPECT_EQ(runs(training, Communicators::of_ways), is_chain);
    EXPECT_EQ(runs(evaluation, Communicators::of_ways), is_chain);
    EXPECT_FALSE(runs(training, Communicators::one));
    EXPECT_EQ(runs(evaluation, Communicators::one), is_chain);
  }
}

// A receive begins before a pass that what it brings depends on.
TEST(Streams, WaitingForAWholeDeviceHangs) {
  for (const PipelineShape& shape : small_pipelines(32)) {
    SCOPED_TRACE(text_of(shape));
    EXPECT_FALSE(Devices(shape, training_plans(shape), Communicators::of_channels,
                         Neighbours::apart, Passes::wait_for_device)
                     .run());
  }
}

// It ties the end of a send to the arrival of what is received.
TEST(Streams, GroupedNeighboursMayHangOverChannels) {
  const PipelineShape shape{.stages = 2, .chunks = 2, .microbatches = 1};
  for (const Plans& plans : {training_plans(shape), evaluation_plans(shape)}) {
    const auto runs = [&](Neighbours neighbours) {
      return Devices(shape, plans, Communicators::of_channels, neighbours).run();
    };
    EXPECT_TRUE(runs(Neighbours::apart));
    EXPECT_FALSE(runs(Neighbours::grouped));
  }
}

}  // namespace
}  // namespace trireme::schedule
