// comm/under_way_time.hpp — how long at least one of several messages was under way, from
// the times at which each began and ended.
#ifndef TRIREME_COMM_UNDER_WAY_TIME_HPP_
#define TRIREME_COMM_UNDER_WAY_TIME_HPP_

#include <algorithm>
#include <array>
#include <cstddef>

namespace trireme::comm {

// The length of a union of stretches of time, in seconds, that come about in the order of
// their ends. The latest are kept, apart where they do not touch; older ones are only
// summed up, and what a stretch would cover of the time before the last of these is left
// out: so long a stretch has to outlast kKept others.
class UnderWayTime {
 public:
  void add(double begin, double end) {
    begin = std::max(begin, summed_until_);
    if (!(end > begin)) return;
    std::size_t first = 0;
    while (first < count_ && kept_[first].end < begin) ++first;
    std::size_t last = first;  // those in [first, last) touch it
    for (; last < count_ && kept_[last].begin <= end; ++last) {
      begin = std::min(begin, kept_[last].begin);
      end = std::max(end, kept_[last].end);
    }
    if (last == first) {
      if (count_ == kKept && first == 0) {  // older than all that are kept
        summed_ += end - begin;
        return;
      }
      if (count_ == kKept) {
        sum_oldest();
        --first;
      }
      for (std::size_t i = count_; i > first; --i) kept_[i] = kept_[i - 1];
      ++count_;
    } else {
      const std::size_t gone = last - first - 1;
      for (std::size_t i = last; i < count_; ++i) kept_[i - gone] = kept_[i];
      count_ -= gone;
    }
    kept_[first] = {begin, end};
  }

  double seconds() const {
    double seconds = summed_;
    for (std::size_t i = 0; i < count_; ++i) seconds += kept_[i].end - kept_[i].begin;
    return seconds;
  }

 private:
  static constexpr std::size_t kKept = 64;
  struct Stretch {
    double begin = 0.0, end = 0.0;
  };
  void sum_oldest() {
    summed_ += kept_[0].end - kept_[0].begin;
    summed_until_ = kept_[0].end;
    for (std::size_t i = 1; i < count_; ++i) kept_[i - 1] = kept_[i];
    --count_;
  }

  std::array<Stretch, kKept> kept_;
  std::size_t count_ = 0;
  double summed_ = 0.0;
  double summed_until_ = -1e300;  // before any time
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_UNDER_WAY_TIME_HPP_
