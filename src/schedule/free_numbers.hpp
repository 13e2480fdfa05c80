// schedule/free_numbers.hpp — numbers of slots and buffers that are taken and given back,
// as few as will do.
#ifndef TRIREME_SCHEDULE_FREE_NUMBERS_HPP_
#define TRIREME_SCHEDULE_FREE_NUMBERS_HPP_

#include <functional>
#include <queue>
#include <vector>

namespace trireme::schedule {

class FreeNumbers {
 public:
  // The lowest number that is free.
  int take() {
    if (free_.empty()) return most_++;
    const int number = free_.top();
    free_.pop();
    return number;
  }
  // Only what was taken may be given back, and once.
  void give_back(int number) { free_.push(number); }
  // The most that were ever taken.
  int most() const { return most_; }

 private:
  // A heap: a deep pipeline has thousands of micro-batches in flight, and a search
  // through all of them in every pass would take longer than the rest of its plan.
  std::priority_queue<int, std::vector<int>, std::greater<>> free_;
  int most_ = 0;
};

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_FREE_NUMBERS_HPP_
