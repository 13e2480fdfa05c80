// Schedules as lists: what no_pipelining says, what check() lets pass and what it
// refuses, and that the executor does what the list says.
#include "schedule/schedule.hpp"

#include <gmock/gmock.h>

#include <string>

#include "base/error.hpp"

namespace trireme::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Actions = std::vector<Action>;
using Kind = Action::Kind;

Action forward(int m, int slot = 0, int chunk = 0) {
  return {.kind = Kind::forward, .microbatch = m, .chunk = chunk, .slot = slot};
}
Action backward(int m, int slot = 0, int chunk = 0) {
  return {.kind = Kind::backward, .microbatch = m, .chunk = chunk, .slot = slot};
}
Action input(int m, int slot = 0, int chunk = 0, int held = 0) {
  return {.kind = Kind::backward_input,
          .microbatch = m,
          .chunk = chunk,
          .slot = slot,
          .held = held};
}
Action weight(int m, int slot = 0, int chunk = 0, int held = 0) {
  return {.kind = Kind::backward_weight,
          .microbatch = m,
          .chunk = chunk,
          .slot = slot,
          .held = held};
}

// Two stages' first: two micro-batches in flight, one chunk (1F1B).
Actions one_forward_one_backward() {
  return {forward(0, 0),  forward(1, 1), backward(0, 0), forward(2, 0),
          backward(1, 1), forward(3, 1), backward(2, 0), backward(3, 1)};
}
// Weight gradients put off (zero bubble), two chunks.
Actions split_backward() {
  return {forward(0, 0, 0), forward(0, 0, 1), input(0, 0, 1),   forward(1, 1, 0),
          input(0, 0, 0),   weight(0, 0, 1),  forward(1, 0, 1), weight(0, 0, 0),
          input(1, 0, 1),   weight(1, 0, 1),  input(1, 1, 0),   weight(1, 1, 0)};
}

TEST(ScheduleNoPipelining, IsForwardAndBackwardInTurn) {
  EXPECT_TRUE(no_pipelining(0).empty());
  EXPECT_EQ(no_pipelining(1), (Actions{forward(0), backward(0)}));
  EXPECT_EQ(no_pipelining(3), (Actions{forward(0), backward(0), forward(1), backward(1),
                                       forward(2), backward(2)}));
  for (int m = 0; m < 40; ++m) {
    const Actions actions = no_pipelining(m);
    EXPECT_EQ(actions.size(), 2u * static_cast<unsigned>(m));
    EXPECT_NO_THROW(check(actions, m, 1));
    EXPECT_EQ(slot_count(actions, 0), m == 0 ? 0 : 1);
  }
}

TEST(ScheduleSlots, AreCountedByChunk) {
  EXPECT_EQ(slot_count({}, 0), 0);
  EXPECT_EQ(slot_count(one_forward_one_backward(), 0), 2);
  EXPECT_EQ(slot_count(one_forward_one_backward(), 1), 0);
  EXPECT_EQ(slot_count(split_backward(), 0), 2);
  EXPECT_EQ(slot_count(split_backward(), 1), 1);
}

TEST(ScheduleSlots, AreTheLowestThatAreFree) {
  Actions actions = split_backward();
  for (Action& action : actions) action.slot = action.held = 7;
  assign_slots(actions);
  EXPECT_EQ(actions, split_backward());
  EXPECT_EQ(held_count(actions, 0), 1);
  EXPECT_EQ(held_count(no_pipelining(3), 0), 0);
  // Weight passes that wait while another micro-batch's gradients pass.
  Actions waiting = {forward(0),  forward(1, 1), input(0),
                     input(1, 1), weight(0),     weight(1, 1)};
  assign_slots(waiting);
  EXPECT_EQ(held_count(waiting, 0), 2);
  EXPECT_EQ(waiting.back(), weight(1, 1, 0, 1));
  EXPECT_NO_THROW(check(waiting, 2, 1));
}

TEST(ScheduleCheck, AcceptsWhatIsRight) {
  EXPECT_NO_THROW(check({}, 0, 1));
  EXPECT_NO_THROW(check(one_forward_one_backward(), 4, 1));
  EXPECT_NO_THROW(check(split_backward(), 2, 2));
}

TEST(ScheduleCheck, SaysWhatIsWrong) {
  const auto refused = [](const Actions& actions, int microbatches, int chunks,
                          const char* message) {
    EXPECT_THAT([&] { check(actions, microbatches, chunks); },
                ThrowsMessage<Error>(HasSubstr(message)));
  };
  refused({backward(0)}, 1, 1, "micro-batch 0 is not in slot 0 of chunk 0");
  refused({backward(0), forward(0)}, 1, 1, "micro-batch 0 is not in slot 0");
  refused({forward(0)}, 1, 1, "micro-batch 0 does not finish in chunk 0");
  refused({forward(0), input(0)}, 1, 1, "micro-batch 0 does not finish in chunk 0");
  refused({forward(0), forward(0)}, 1, 1,
          "forward of micro-batch 0 in chunk 0 out of order");
  refused({forward(0), backward(0), forward(0), backward(0)}, 1, 1,
          "forward of micro-batch 0 in chunk 0 out of order");
  refused({forward(0), backward(0), backward(0)}, 1, 1, "is not in slot 0");
  refused({forward(0), weight(0)}, 1, 1,
          "backward_weight of micro-batch 0 in chunk 0 out of order");
  refused({forward(0), input(0), input(0)}, 1, 1,
          "backward_input of micro-batch 0 in chunk 0 out of order");
  refused({forward(0), input(0), backward(0)}, 1, 1,
          "backward of micro-batch 0 in chunk 0 out of order");
  refused({forward(0), forward(1), backward(0), backward(1)}, 2, 1,
          "micro-batches 0 and 1 share slot 0 of chunk 0");
  // The saved tensors are needed until the weight pass.
  refused({forward(0), input(0), forward(1), weight(0), backward(1)}, 2, 1,
          "micro-batches 0 and 1 share slot 0 of chunk 0");
  refused({forward(0, 0), forward(1, 1), backward(0, 1), backward(1, 0)}, 2, 1,
          "micro-batch 0 is not in slot 1 of chunk 0");
  refused({forward(0), forward(1, 1), input(0), input(1, 1), weight(0), weight(1, 1)}, 2,
          1, "micro-batches 0 and 1 share held slot 0 of chunk 0");
  refused({forward(0), input(0, 0, 0, 0), weight(0, 0, 0, 1)}, 1, 1,
          "micro-batch 0 is not in held slot 1 of chunk 0");
  refused({forward(0), backward(0)}, 2, 1, "micro-batch 1 does not finish in chunk 0");
  refused({forward(0), backward(0)}, 1, 2, "micro-batch 0 does not finish in chunk 1");
  refused({forward(0), backward(0), forward(1), backward(1)}, 1, 1,
          "work for 2 (chunk, micro-batch) pairs, 1 x 1 expected");
}

// Take any one action away, do it twice, or put it in another slot or chunk: never right.
TEST(ScheduleCheck, EveryActionMatters) {
  struct Case {
    Actions actions;
    int microbatches, chunks;
  };
  for (const Case& c :
       {Case{no_pipelining(3), 3, 1}, Case{one_forward_one_backward(), 4, 1},
        Case{split_backward(), 2, 2}}) {
    for (std::size_t i = 0; i < c.actions.size(); ++i) {
      SCOPED_TRACE(i);
      Actions missing = c.actions, twice = c.actions, moved = c.actions,
              elsewhere = c.actions, other = c.actions;
      const auto at = static_cast<std::ptrdiff_t>(i);
      missing.erase(missing.begin() + at);
      EXPECT_THROW(check(missing, c.microbatches, c.chunks), Error);
      twice.insert(twice.begin() + at, c.actions[i]);
      EXPECT_THROW(check(twice, c.microbatches, c.chunks), Error);
      moved[i].slot += 7;
      EXPECT_THROW(check(moved, c.microbatches, c.chunks), Error);
      elsewhere[i].chunk += 1;
      EXPECT_THROW(check(elsewhere, c.microbatches, c.chunks), Error);
      other[i].microbatch += 1;
      EXPECT_THROW(check(other, c.microbatches, c.chunks), Error);
    }
  }
}

struct Recorder {
  Actions done;
  std::string log;
  void note(const Action& action, char letter) {
    done.push_back(action);
    log += letter;
  }
  void forward(const Action& action) { note(action, 'F'); }
  void backward(const Action& action) { note(action, 'B'); }
  void backward_input(const Action& action) { note(action, 'I'); }
  void backward_weight(const Action& action) { note(action, 'W'); }
  void begin_message(const Action& action) { note(action, 'm'); }
};

TEST(ScheduleExecute, CallsInOrder) {
  Recorder plain, split, none;
  execute(one_forward_one_backward(), plain);
  EXPECT_EQ(plain.done, one_forward_one_backward());
  EXPECT_EQ(plain.log, "FFBFBFBB");
  execute(split_backward(), split);
  EXPECT_EQ(split.done, split_backward());
  EXPECT_EQ(split.log, "FFIFIWFWIWIW");
  Recorder with_message;
  execute({{.kind = Kind::recv_forward, .out = 0}, forward(0), backward(0)},
          with_message);
  EXPECT_EQ(with_message.log, "mFB");
  execute({}, none);
  EXPECT_TRUE(none.log.empty());
}

}  // namespace
}  // namespace trireme::schedule
