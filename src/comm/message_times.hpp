// comm/message_times.hpp — when a rank began an operation of a group, and when it waited
// for it, or its device did: for an account of who waits for whom.
#ifndef TRIREME_COMM_MESSAGE_TIMES_HPP_
#define TRIREME_COMM_MESSAGE_TIMES_HPP_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::comm {

struct MessageTime {
  using Time = std::chrono::steady_clock::time_point;

  int peer = -1;    // of a message between two ranks; -1: all of the group take part
  int channel = 0;  // of that
  bool sends = false;
  std::size_t bytes = 0;  // of the payload, as Traffic counts it
  Time begin, begun;      // of the call that begins it
  Time wait, end;         // of the wait for it; both `begun` where there is none
};

// Takes no memory while it records; what is beyond its room is left out.
class MessageTimes {
 public:
  explicit MessageTimes(std::size_t room) { times_.reserve(room); }

  // Begins anew, and is open. What waits for an operation of before says nothing any
  // more.
  void clear() {
    first_ += static_cast<std::int64_t>(times_.size());
    times_.clear();
    is_open_ = true;
  }
  // Nothing is added from now on, while waits for what is there are noted still.
  void close() { is_open_ = false; }
  bool has_room() const { return is_open_ && times_.size() < times_.capacity(); }
  // The number that its wait is noted with; there must be room.
  std::int64_t add(const MessageTime& time) {
    times_.push_back(time);
    return first_ + static_cast<std::int64_t>(times_.size()) - 1;
  }
  void note_wait(std::int64_t number, MessageTime::Time wait, MessageTime::Time end) {
    if (!has(number)) return;
    MessageTime& time = of(number);
    time.wait = wait;
    time.end = end;
  }
  // The same of an operation that a device carries: where it began, where its result came
  // to be needed, and where it was there.
  void set(std::int64_t number, MessageTime::Time begin, MessageTime::Time needed,
           MessageTime::Time end) {
    if (!has(number)) return;
    MessageTime& time = of(number);
    time.begin = time.begun = begin;
    time.wait = needed;
    time.end = std::max(needed, end);
  }
  const std::vector<MessageTime>& all() const { return times_; }

 private:
  bool has(std::int64_t number) const {
    return number >= first_ && number < first_ + static_cast<std::int64_t>(times_.size());
  }
  MessageTime& of(std::int64_t number) {
    return times_[static_cast<std::size_t>(number - first_)];
  }

  std::vector<MessageTime> times_;
  std::int64_t first_ = 0;  // the number of the first of these
  bool is_open_ = true;
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_MESSAGE_TIMES_HPP_
