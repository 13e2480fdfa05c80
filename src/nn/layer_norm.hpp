// nn/layer_norm.hpp — layer normalisation with its parameters (the same on every rank of
// the tensor group). Saves x, and mean and rstd of every row.
#ifndef TRIREME_NN_LAYER_NORM_HPP_
#define TRIREME_NN_LAYER_NORM_HPP_

#include <string>

#include "base/exec.hpp"
#include "nn/context.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::nn {

inline constexpr double kLayerNormEpsilon = 1e-5;  // GPT-2, Megatron-LM

template <class T>
class LayerNorm {
 public:
  struct Saved {
    View2<const T> x;                  // (rows, h)
    View1<Accumulator<T>> mean, rstd;  // (rows)
  };
  // The parameters' values, or a copy of them.
  struct Values {
    View1<const T> weight, bias;  // (h)
  };

  LayerNorm(const Builder<T>& builder, const std::string& name, index_t h);

  // y may not be x. The statistics are taken from context.saved.
  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved) const;
  // The parameters, from which the weight pass makes y again.
  Values values_for(const Context& context, WeightPass weight_pass) const {
    return {nn::values_for(context, weight_pass, weight_.vector()),
            nn::values_for(context, weight_pass, bias_.vector())};
  }
  // y of the forward pass, once more.
  static void forward_again(const Context& context, const Values& values,
                            const Saved& saved, View2<T> y);
  // d_x = gradient through the norm + d_residual (null: none).
  void backward_input(const Context& context, View2<const T> d_y, const Saved& saved,
                      View2<const T> d_residual, View2<T> d_x) const;
  void backward_weight(const Context& context, View2<const T> d_y,
                       const Saved& saved) const;

 private:
  ParamRef<T> weight_, bias_;  // (h)
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_LAYER_NORM_HPP_
