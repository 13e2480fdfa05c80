// optim/optimizer.hpp — from accumulated gradients to new weights: global norm, clipping,
// AdamW, all without the host looking at a number.
//
// The backward pass used the nominal normaliser 1 / (global batch * sequence). With N the
// true number of tokens that counted, all-reduced, gradients are corrected by
// c = (global batch * sequence) / N; the norm is that of the corrected gradients.
// Clipping multiplies by min(1, clip / (norm + 1e-6)) (as
// torch.nn.utils.clip_grad_norm_).
#ifndef TRIREME_OPTIM_OPTIMIZER_HPP_
#define TRIREME_OPTIM_OPTIMIZER_HPP_

#include "comm/rank_grid.hpp"
#include "kernels/adamw.hpp"
#include "kernels/step_state.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::optim {

// What a step leaves on the device for the log.
struct StepReport {
  double loss_sum = 0.0;   // sum over ranks of mask * loss
  double tokens = 0.0;     // tokens that counted
  double grad_norm = 0.0;  // before clipping
};

template <class T>
class Optimizer {
 public:
  using Master = Accumulator<T>;

  Optimizer(const Exec& exec, ParamBuffer<T>& params, const comm::ProcessGroups& groups,
            const kernels::AdamWDesc& adamw, double clip_norm);

  // totals: (loss sum, token count) of this rank's micro-batches; all-reduced here. Sets
  // step.gradient_scale, updates weights and moments, refreshes the compute copy.
  void step(const Exec& exec, View0<kernels::StepState> state, View1<double> totals,
            double nominal_tokens);

  // grad_norm of the last step, in device memory: read it after a fence.
  View0<const double> grad_norm() const { return View0<const double>(grad_norm_.data()); }

 private:
  ParamBuffer<T>& params_;
  const comm::ProcessGroups& groups_;
  kernels::AdamWDesc adamw_;
  double clip_norm_;
  DeviceArray<kernels::AdamWChunk> chunks_;
  DeviceArray<double> square_sum_;  // one number
  DeviceArray<double> grad_norm_;   // one number
  DeviceArray<double> scratch_;
};

}  // namespace trireme::optim

#endif  // TRIREME_OPTIM_OPTIMIZER_HPP_
