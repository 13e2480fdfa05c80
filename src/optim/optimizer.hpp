// optim/optimizer.hpp — from accumulated gradients to new weights: global norm, clipping,
// AdamW.
//
// A step whose loss or gradients are not finite leaves weights and moments as they are,
// bit by bit. That is decided on the device, from sums that all ranks have, so that the
// update is launched without waiting for the host, which reads the report behind it.
//
// Gradients are those of the loss, which the backward pass has normalised, times the loss
// scale, which the norm in the report and the new weights are without. Clipping
// multiplies by min(1, clip / (norm + 1e-6)) (as torch.nn.utils.clip_grad_norm_).
#ifndef TRIREME_OPTIM_OPTIMIZER_HPP_
#define TRIREME_OPTIM_OPTIMIZER_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/event.hpp"
#include "base/exec.hpp"
#include "base/pinned.hpp"
#include "comm/process_groups.hpp"
#include "kernels/adamw.hpp"
#include "kernels/step_state.hpp"
#include "optim/loss_scale.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::optim {

// What a step leaves on the device for the log.
struct StepReport {
  // Sums of each objective over ranks and micro-batches.
  kernels::LossSum losses[kernels::kMostObjectives];
  double grad_norm = 0.0;   // before clipping
  double non_finite = 0.0;  // numbers of the gradients, over all ranks, each counted once
  double loss_scale = 1.0;  // of this step
  std::int64_t update = 0;  // the number it has, or would have had

  KOKKOS_INLINE_FUNCTION bool has_finite_losses() const {
    for (const kernels::LossSum& loss : losses) {
      if (!Kokkos::isfinite(loss.sum)) return false;
    }
    return true;
  }
  // Whether weights and moments were updated.
  KOKKOS_INLINE_FUNCTION bool is_finite() const {
    return Kokkos::isfinite(grad_norm) && has_finite_losses();
  }
};

// What is decided on the device from step to step.
struct StepCourse {
  LossScale loss_scale = 1.0;  // of the next step
  std::int64_t update = 1;     // its number
  std::int32_t has_ended = 0;  // not 0: a step was not finite that cannot be left out
};

// What a step begins with, as far as the host knows.
struct StepStart {
  // The number of the update, from 1, and its learning rate: if the steps whose reports
  // are not read yet change weights. If the last of them does not, the number is one less
  // and the rate the other one.
  std::int64_t update = 1;
  double learning_rate = 0.0;
  double learning_rate_before = 0.0;
  // Taken where all reports are read; else the device has gone on from what it got then.
  LossScale loss_scale = 1.0;
};

template <class T>
class Optimizer {
 public:
  using Master = Accumulator<T>;

  // Updates what this rank keeps of the parameters: all, or its shard (ZeRO). They are
  // only planned, and nothing is allocated, where `exec` is shape-only.
  Optimizer(const Exec& exec, ParamBuffer<T>& params, const comm::ProcessGroups& groups,
            const kernels::AdamWDesc& adamw, double clip_norm);

  // To be called before a step's passes: writes the step's number, its learning rate, its
  // loss scale and Adam's bias corrections 1 - beta^update, for the kernels to read.
  void begin_step(const Exec& exec, View0<kernels::StepState> state,
                  const StepStart& start);
  void begin_step(const Exec& exec, View0<kernels::StepState> state, std::int64_t update,
                  double learning_rate, double loss_scale = 1.0) {
    begin_step(exec, state,
               {.update = update,
                .learning_rate = learning_rate,
                .learning_rate_before = learning_rate,
                .loss_scale = loss_scale});
  }
  // First half of a step: sums `totals` (of this rank's micro-batches, two for each
  // objective: of mask * loss, and of mask) over ranks, takes the global norm and sets
  // step.gradient_scale and step.skips_update. Weights are not touched. The report begins
  // its way to the host, where there is room for kReports.
  void prepare(const Exec& exec, View0<kernels::StepState> state, View1<double> totals);
  // Second half: new weights and moments of one bucket of the parameters, or of all, and
  // their compute copy; nothing where step.skips_update says so.
  void apply_bucket(const Exec& exec, View0<kernels::StepState> state,
                    std::size_t bucket);
  void apply(const Exec& exec, View0<kernels::StepState> state);

  static constexpr std::size_t kReports = 2;
  // How many are not read yet.
  std::size_t unread() const { return unread_; }
  // How many of these the host need not wait for.
  std::size_t ready() const;
  // The report of the earliest step that is not read yet, any time after its first half:
  // the one place of a step where the host waits, until that step has come so far.
  StepReport read_report();

 private:
  void find_chunks(const Exec& exec);
  void send_report(const Exec& exec);
  View1<const kernels::AdamWChunk> chunks(std::size_t begin, std::size_t end) const;

  ParamBuffer<T>& params_;
  const comm::ProcessGroups& groups_;
  kernels::AdamWDesc adamw_;
  double clip_norm_;
  DeviceArray<kernels::AdamWChunk> chunks_;  // bucket by bucket
  std::vector<std::size_t> first_chunk_;     // of each bucket, and the end
  std::vector<index_t> elements_;            // of each bucket's chunks
  index_t elements_in_norm_ = 0;
  DeviceArray<double> gradient_sums_;  // the sum of squares; how many are not finite
  DeviceArray<StepReport> report_;     // one
  DeviceArray<StepCourse> course_;     // one
  PinnedArray<StepReport> host_reports_;
  std::array<Event, kReports> copied_;
  std::size_t next_report_ = 0, unread_ = 0;
  DeviceArray<double> partial_sums_;
};

}  // namespace trireme::optim

#endif  // TRIREME_OPTIM_OPTIMIZER_HPP_
