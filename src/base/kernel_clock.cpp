// base/kernel_clock.cpp — the host's clock: see kernel_clock.hpp.
#include "base/kernel_clock.hpp"

#include <chrono>
#include <vector>

namespace trireme {

namespace {

class HostClock final : public KernelClock {
 public:
  void begin(std::size_t stretch) override {
    if (stretch >= stretches_.size()) stretches_.resize(stretch + 1);
    stretches_[stretch].begin = Clock::now();
  }
  void end(std::size_t stretch) override { stretches_[stretch].end = Clock::now(); }
  double seconds(std::size_t stretch) override {
    const Stretch& of = stretches_.at(stretch);
    return std::chrono::duration<double>(of.end - of.begin).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Stretch {
    Clock::time_point begin, end;
  };
  std::vector<Stretch> stretches_;
};

}  // namespace

std::unique_ptr<KernelClock> make_host_clock() {
  return std::make_unique<HostClock>();
}

}  // namespace trireme
