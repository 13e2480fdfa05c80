// base/kernel_profile.cpp — see kernel_profile.hpp.
#include "base/kernel_profile.hpp"

#include <functional>
#include <utility>

namespace trireme {

namespace {

// Beyond so many launches their times are taken over at the next that stands alone: a
// device has an event pair for each.
constexpr std::size_t kMostStretches = 16384;

}  // namespace

std::size_t KernelProfile::Hash::operator()(const Key& key) const {
  std::size_t hash = std::hash<const void*>()(key.label);
  for (const std::size_t part :
       {static_cast<std::size_t>(key.section) * kComponentCount +
            static_cast<std::size_t>(key.component),
        std::hash<double>()(key.flops), std::hash<double>()(key.masked_flops),
        std::hash<index_t>()(key.bytes)}) {
    hash = hash * 0x9e3779b97f4a7c15u + part;
  }
  return hash ^ hash >> 32;
}

KernelProfile::KernelProfile(std::unique_ptr<KernelClock> clock)
    : clock_(std::move(clock)) {
  stretches_.reserve(kMostStretches);
  numbers_.reserve(1024);
}

void KernelProfile::begin(const Kernel& kernel, Section section, Component component) {
  if (is_part(kernel)) {
    ++parts_;
    return;
  }
  const Key key{
      kernel.label,     section, component, kernel.cost.flops, kernel.cost.masked_flops,
      kernel.cost.bytes};
  const auto [found, is_new] = numbers_.try_emplace(key, records_.size());
  if (is_new) {
    records_.push_back({kernel.label, section, component, kernel.cost, 0, 0.0});
  }
  ++records_[found->second].calls;
  stretches_.push_back({found->second, open_});
  open_ = stretches_.size() - 1;
  clock_->begin(open_);
}

// What a part launches is a part as well.
bool KernelProfile::is_part(const Kernel& kernel) const {
  if (open_ == kNone) return false;
  const Cost& outer = records_[stretches_[open_].record].cost;
  const auto has_none = [](const Cost& cost) {
    return cost.flops == 0 && cost.bytes == 0;
  };
  return parts_ > 0 || (has_none(kernel.cost) && !has_none(outer));
}

void KernelProfile::end() {
  if (parts_ > 0) {
    --parts_;
    return;
  }
  clock_->end(open_);
  open_ = stretches_[open_].outer;
  if (open_ == kNone && stretches_.size() >= kMostStretches) resolve();
}

void KernelProfile::resolve() {
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    const double seconds = clock_->seconds(i);
    records_[stretches_[i].record].seconds += seconds;
    if (stretches_[i].outer == kNone) continue;
    records_[stretches_[stretches_[i].outer].record].seconds -= seconds;
  }
  stretches_.clear();
}

}  // namespace trireme
