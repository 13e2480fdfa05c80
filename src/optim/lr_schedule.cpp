// optim/lr_schedule.cpp — see lr_schedule.hpp.
#include "optim/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace trireme::optim {

double LrSchedule::at(std::int64_t update) const {
  TRIREME_REQUIRE(update >= 1, "learning rate of update {}: updates count from 1",
                  update);
  const double k = static_cast<double>(update);
  const double w = static_cast<double>(warmup);
  const double d = static_cast<double>(decay);
  if (update <= warmup) return lr * k / w;
  const double r = d > w ? std::clamp((k - w) / (d - w), 0.0, 1.0) : 1.0;
  switch (kind) {
    case Kind::cosine:
      return min_lr + 0.5 * (lr - min_lr) * (1.0 + std::cos(std::numbers::pi * r));
    case Kind::linear:
      return min_lr + (lr - min_lr) * (1.0 - r);
    case Kind::constant:
      return lr;
    case Kind::inverse_sqrt:
      return std::max(min_lr, lr * std::sqrt(std::max(w, 1.0) / k));
    case Kind::wsd: {
      const double span = std::max(1.0, static_cast<double>(cooldown));
      const double done = std::clamp((k - (d - span)) / span, 0.0, 1.0);
      return min_lr + (lr - min_lr) * (1.0 - done);
    }
  }
  throw Error("LrSchedule: not a schedule");
}

}  // namespace trireme::optim
