// base/late_queue.cpp — see late_queue.hpp.
#include "base/late_queue.hpp"

#include <utility>

namespace trireme {

namespace {
// What an Exec keeps: null where its queue is not late.
struct Lateness final : LibraryState {
  std::shared_ptr<LateWork> work;
};

Lateness& lateness_of(const Exec& exec) {
  return exec.library<Lateness>([] { return std::make_unique<Lateness>(); });
}
}  // namespace

void LateWork::add(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
}

std::uint64_t LateWork::added() const {
  const std::lock_guard lock(mutex_);
  return done_ + work_.size();
}

bool LateWork::is_done(std::uint64_t count) const {
  const std::lock_guard lock(mutex_);
  return done_ >= count;
}

void LateWork::run(std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  while (done_ < count && !work_.empty()) {
    const std::function<void()> next = std::move(work_.front());
    work_.pop_front();
    ++done_;
    next();
  }
}

void make_late(const Exec& exec, LateWork::Kind kind) {
  lateness_of(exec).work = std::make_shared<LateWork>(kind);
}

std::shared_ptr<LateWork> late_work(const Exec& exec) {
  return lateness_of(exec).work;
}

}  // namespace trireme
