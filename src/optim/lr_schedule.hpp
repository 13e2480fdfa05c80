// optim/lr_schedule.hpp — the learning rate of update k, k from 1: a pure function.
//
// Warm-up: lr k / W for k <= W. Then, with r = (k - W) / (D - W) clipped to [0, 1]:
//   cosine             min + (lr - min) (1 + cos(pi r)) / 2
//   linear             min + (lr - min) (1 - r)
//   constant           lr
//   inverse_sqrt       max(min, lr sqrt(max(W, 1) / k))
//   wsd (warm-up, stable, decay)  lr, and over the last C updates before D linearly
//                      down to min (Hu et al. 2024, arXiv:2404.06395)
#ifndef TRIREME_OPTIM_LR_SCHEDULE_HPP_
#define TRIREME_OPTIM_LR_SCHEDULE_HPP_

#include <cstdint>

#include "config/enums.hpp"

namespace trireme::optim {

struct LrSchedule {
  using Kind = config::Schedule;

  Kind kind = Kind::cosine;
  double lr = 0.0;  // the peak
  double min_lr = 0.0;
  std::int64_t warmup = 0;    // W, updates
  std::int64_t decay = 0;     // D, updates
  std::int64_t cooldown = 0;  // C, updates; wsd only

  double at(std::int64_t update) const;
};

}  // namespace trireme::optim

#endif  // TRIREME_OPTIM_LR_SCHEDULE_HPP_
