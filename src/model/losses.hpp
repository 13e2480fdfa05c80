// model/losses.hpp — what is said of a step's or an evaluation's sums: the loss that is
// minimised, and what each objective has to do with it.
#ifndef TRIREME_MODEL_LOSSES_HPP_
#define TRIREME_MODEL_LOSSES_HPP_

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/step_state.hpp"
#include "model/blueprint.hpp"

namespace trireme::model {

using NamedLosses = std::vector<std::pair<std::string, double>>;

struct Losses {
  // Sum of weight * mean over the objectives for which something counts; NaN where
  // nothing counts at all.
  double total = std::numeric_limits<double>::quiet_NaN();
  NamedLosses parts = {};  // mean of each objective, where there are several
};

inline Losses losses_of(const std::vector<Objective>& objectives,
                        std::span<const kernels::LossSum> sums) {
  Losses losses;
  double total = 0.0;
  for (std::size_t i = 0; i < objectives.size(); ++i) {
    if (sums[i].count > 0.0) {
      losses.total = total += objectives[i].weight * sums[i].mean();
    }
    if (objectives.size() > 1) {
      losses.parts.emplace_back(objectives[i].name, sums[i].mean());
    }
  }
  return losses;
}

// "4.400", with so many digits behind the point; where nothing counts there is no mean.
inline std::string text_of_loss(double mean, int digits) {
  return std::isfinite(mean) ? fmt::format("{:.{}f}", mean, digits) : "not known";
}

// " (masked words 4.400, sentence order not known)"; empty for one objective.
inline std::string text_of(const NamedLosses& parts) {
  std::string text;
  for (const auto& [name, mean] : parts) {
    text += text.empty() ? " (" : ", ";
    text += name + " " + text_of_loss(mean, 3);
  }
  return text.empty() ? text : text + ")";
}

}  // namespace trireme::model

#endif  // TRIREME_MODEL_LOSSES_HPP_
