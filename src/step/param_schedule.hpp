// step/param_schedule.hpp — tells who lends the memory of parameters which passes come:
// ZeRO fetches weights for the next pass during this one, and sums gradients in every
// micro-batch, or at each chunk's last one where they are kept whole (docs/pipeline.md).
#ifndef TRIREME_STEP_PARAM_SCHEDULE_HPP_
#define TRIREME_STEP_PARAM_SCHEDULE_HPP_

#include <algorithm>
#include <optional>
#include <vector>

#include "parallel/data_parallel.hpp"
#include "schedule/schedule.hpp"
#include "step/model_state.hpp"
#include "tensor/param_use.hpp"

namespace trireme::step {

template <class T>
class ParamSchedule {
 public:
  using Action = schedule::Action;

  // For the stage that has this state; both arguments outlive this object.
  ParamSchedule(const ModelState<T>& state, parallel::DataParallel<T>& use)
      : state_(state), use_(use), weight_passes_(state.chunks.size()) {}

  // To be called before the first action of a step (or of an evaluation), and after its
  // last.
  void begin(const schedule::Order& actions, int microbatches) {
    actions_ = &actions;
    microbatches_ = microbatches;
    std::fill(weight_passes_.begin(), weight_passes_.end(), 0);
  }
  void end() { use_.end_passes(); }

  // To be called before a pass, which is an element of the actions.
  void begin_pass(const Action& action) {
    if (schedule::ends_microbatch(action)) {
      int& passes = weight_passes_[static_cast<std::size_t>(action.chunk)];
      use_.begin_microbatch(passes == 0, passes == microbatches_ - 1);
      ++passes;
    }
    const PassUnits units = units_of(action);
    if (!units.empty()) use_.begin_pass(units, next_after(action));
  }

 private:
  // The units whose weights a pass reads; none where it reads none.
  PassUnits units_of(const Action& action) const {
    if (schedule::is_message(action) || action.kind == Action::Kind::backward_weight) {
      return {};
    }
    const bool forward = action.kind == Action::Kind::forward;
    return state_.chunk(action.chunk)
        .weight_units(forward ? Pass::forward : Pass::backward);
  }
  std::optional<PassUnits> next_after(const Action& action) const {
    const auto index = static_cast<std::size_t>(&action - actions_->data());
    for (std::size_t i = index + 1; i < actions_->size(); ++i) {
      const PassUnits units = units_of((*actions_)[i]);
      if (!units.empty()) return units;
    }
    return {};
  }

  const ModelState<T>& state_;
  parallel::DataParallel<T>& use_;
  const schedule::Order* actions_ = nullptr;
  int microbatches_ = 0;
  std::vector<int> weight_passes_;  // of each chunk, so far
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_PARAM_SCHEDULE_HPP_
