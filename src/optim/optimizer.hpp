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

#include <cstdint>
#include <vector>

#include "base/exec.hpp"
#include "comm/process_groups.hpp"
#include "kernels/adamw.hpp"
#include "kernels/step_state.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::optim {

// What a step leaves on the device for the log.
struct StepReport {
  // Sums of each objective over ranks and micro-batches.
  kernels::LossSum losses[kernels::kMostObjectives];
  double grad_norm = 0.0;   // before clipping
  double non_finite = 0.0;  // numbers of the gradients, over all ranks, each counted once

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

template <class T>
class Optimizer {
 public:
  using Master = Accumulator<T>;

  // Updates what this rank keeps of the parameters: all, or its shard (ZeRO). They are
  // only planned, and nothing is allocated, where `exec` is shape-only.
  Optimizer(const Exec& exec, ParamBuffer<T>& params, const comm::ProcessGroups& groups,
            const kernels::AdamWDesc& adamw, double clip_norm);

  // To be called before a step's passes: writes the step's number (from 1), its learning
  // rate, its loss scale and Adam's bias corrections 1 - beta^update, for the kernels to
  // read.
  void begin_step(const Exec& exec, View0<kernels::StepState> state, std::int64_t update,
                  double learning_rate, double loss_scale = 1.0);
  // First half of a step: sums `totals` (of this rank's micro-batches, two for each
  // objective: of mask * loss, and of mask) over ranks, takes the global norm and sets
  // step.gradient_scale and step.skips_update. Weights are not touched.
  void prepare(const Exec& exec, View0<kernels::StepState> state, View1<double> totals);
  // Second half: new weights and moments of one bucket of the parameters, or of all, and
  // their compute copy; nothing where step.skips_update says so.
  void apply_bucket(const Exec& exec, View0<kernels::StepState> state,
                    std::size_t bucket);
  void apply(const Exec& exec, View0<kernels::StepState> state);
  // Copies the report to the host, any time after the first half: the one place of a step
  // where the host waits.
  StepReport read_report(const Exec& exec);

 private:
  void find_chunks(const Exec& exec);
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
  Kokkos::View<StepReport*, Kokkos::SharedHostPinnedSpace> host_report_;
  DeviceArray<double> partial_sums_;
};

}  // namespace trireme::optim

#endif  // TRIREME_OPTIM_OPTIMIZER_HPP_
