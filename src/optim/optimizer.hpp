// optim/optimizer.hpp — from accumulated gradients to new weights: global norm, clipping,
// AdamW. The host looks at one report between the two halves of a step.
//
// Gradients are those of the loss, which the backward pass has normalised, times the loss
// scale, which the norm in the report and the new weights are without. Clipping
// multiplies by min(1, clip / (norm + 1e-6)) (as torch.nn.utils.clip_grad_norm_).
#ifndef TRIREME_OPTIM_OPTIMIZER_HPP_
#define TRIREME_OPTIM_OPTIMIZER_HPP_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/exec.hpp"
#include "comm/process_groups.hpp"
#include "kernels/adamw.hpp"
#include "kernels/step_state.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::optim {

// What a step leaves on the device for the log, and for the check that comes before the
// weights are touched.
struct StepReport {
  // Sums of each objective over ranks and micro-batches.
  kernels::LossSum losses[kernels::kMostObjectives];
  double grad_norm = 0.0;  // before clipping

  bool has_finite_losses() const {
    return std::ranges::all_of(losses,
                               [](const auto& loss) { return std::isfinite(loss.sum); });
  }
  bool is_finite() const { return std::isfinite(grad_norm) && has_finite_losses(); }
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
  // step.gradient_scale. Weights are not touched. The report is on the host after
  // read_report().
  void prepare(const Exec& exec, View0<kernels::StepState> state, View1<double> totals);
  // Copies the report to the host: the one place of a step where the host waits.
  StepReport read_report(const Exec& exec);
  // Second half: new weights and moments of one bucket of the parameters, or of all, and
  // their refreshed compute copy.
  void apply_bucket(const Exec& exec, View0<kernels::StepState> state,
                    std::size_t bucket);
  void apply(const Exec& exec, View0<kernels::StepState> state);

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
  DeviceArray<double> square_sum_;  // one number
  DeviceArray<StepReport> report_;  // one
  Kokkos::View<StepReport*, Kokkos::SharedHostPinnedSpace> host_report_;
  DeviceArray<double> partial_sums_;
};

}  // namespace trireme::optim

#endif  // TRIREME_OPTIM_OPTIMIZER_HPP_
