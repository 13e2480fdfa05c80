// schedule/places.hpp — numbers that are taken and given back, as few as will do.
#ifndef TRIREME_SCHEDULE_PLACES_HPP_
#define TRIREME_SCHEDULE_PLACES_HPP_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trireme::schedule {

class Places {
 public:
  // The lowest number that is free.
  int take() {
    const auto free = std::find(taken_.begin(), taken_.end(), false);
    const auto place = static_cast<int>(free - taken_.begin());
    if (free == taken_.end()) {
      taken_.push_back(true);
    } else {
      *free = true;
    }
    return place;
  }
  void give_back(int place) { taken_.at(static_cast<std::size_t>(place)) = false; }
  // The most that were ever taken.
  int most() const { return static_cast<int>(taken_.size()); }

 private:
  std::vector<bool> taken_;
};

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_PLACES_HPP_
