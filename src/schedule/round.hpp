// schedule/round.hpp — lets every stage of a pipeline go on until none can.
#ifndef TRIREME_SCHEDULE_ROUND_HPP_
#define TRIREME_SCHEDULE_ROUND_HPP_

#include <cstddef>
#include <deque>
#include <vector>

namespace trireme::schedule {

// advance(stage) goes on as far as that stage can and returns whether it went on at all.
// Only then can its two neighbours, which are all that it exchanges anything with, go
// further than before: they come next, so that a wave through thousands of stages costs a
// call for each of them and not one for each pair.
template <class Advance>
void advance_all(int stages, const Advance& advance) {
  std::deque<int> waiting;
  std::vector<bool> is_waiting(static_cast<std::size_t>(stages), true);
  for (int stage = 0; stage < stages; ++stage) waiting.push_back(stage);
  while (!waiting.empty()) {
    const int stage = waiting.front();
    waiting.pop_front();
    is_waiting[static_cast<std::size_t>(stage)] = false;
    if (!advance(stage)) continue;
    for (const int other : {(stage + 1) % stages, (stage + stages - 1) % stages}) {
      if (is_waiting[static_cast<std::size_t>(other)]) continue;
      is_waiting[static_cast<std::size_t>(other)] = true;
      waiting.push_back(other);
    }
  }
}

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_ROUND_HPP_
