// nn/linear.hpp — tensor-parallel matrix layers (Shoeybi et al. 2019, section 3).
//
//   ColumnParallelLinear: W (out, in) split by rows;    y_tp = x W_tp^T
//   RowParallelLinear:    W (out, in) split by columns; y = sum over ranks of x_tp W_tp^T
//   ReplicatedLinear:     W (out, in) whole on every rank; y = x W^T, of a few rows
// A layer has a bias unless it is told otherwise. A column-parallel layer's product adds
// it, and takes the activation where asked. The bias of a row-parallel one is left to
// what follows (dropout and residual), on local rows, unless the product is all there is
// to add to the residual. A bias' gradient is the row sum of d_y, from sums over blocks
// of rows that a pass over d_y has left. A layer saves x.
//
// With sequence parallelism a column-parallel layer's x and d_x, and a row-parallel
// layer's y, are local rows; x is gathered again for the weight gradient, as in
// Megatron-LM (Korthikanti et al. 2022, section 4.2.2).
#ifndef TRIREME_NN_LINEAR_HPP_
#define TRIREME_NN_LINEAR_HPP_

#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "comm/group.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/gemm.hpp"
#include "nn/mappings.hpp"
#include "nn/weight_gradients.hpp"
#include "tensor/arena.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::nn {

struct LinearOptions {
  Initializer init = {};
  bool has_bias = true;
  // Of a column-parallel layer: extents of the stacked parts of `out` that are each split
  // by themselves (QKV); one part where empty.
  std::vector<index_t> blocks = {};
};

template <class T>
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(const Builder<T>& builder, const std::string& name, index_t in,
                       index_t out, const LinearOptions& options);

  // y = x W^T + bias.
  void forward(const Context& context, View2<const T> x, View2<T> y) const;
  // z = x W^T + bias; y = activation(z).
  void forward_activated(const Context& context, View2<const T> x,
                         kernels::Activation activation, View2<T> z, View2<T> y) const;
  // A step of generation where kernels::has_decode_linear(): the output's bias is set
  // here.
  void decode(const Context& context, const kernels::DecodeInput<T>& input,
              kernels::DecodeOutput<T> output) const;
  // d_x is there after wait(); takes from context.held what must live until then.
  comm::Request start_backward_input(const Context& context, View2<const T> d_y,
                                     View2<T> d_x) const;
  // d_x += the same, where there is no other tensor rank.
  void add_backward_input(const Context& context, View2<const T> d_y, View2<T> d_x) const;
  // All rows of x, as the weight pass wants them, on their way into context.scratch.
  GatheredRows<T> start_weight_input(const Context& context, View2<const T> x) const;
  void backward_weight(const Context& context, View2<const T> d_y,
                       GatheredRows<T> x) const;
  // The bias's gradient from sums over blocks of rows of d_y: (blocks, out_tp).
  void backward_bias(View2<const Accumulator<T>> partials,
                     PartialGradients<T>& gradients) const {
    if (bias_) gradients.gather(*bias_, partials);
  }

  index_t out_tp() const { return weight_.local_shape()[0]; }
  View2<const T> weight() const { return weight_.matrix(); }
  // Null where there is none.
  View1<const T> bias() const { return bias_ ? bias_->vector() : View1<const T>(); }
  bool has_bias() const { return bias_.has_value(); }

 private:
  void forward(const Context& context, View2<const T> x,
               const kernels::Epilogue<T>& epilogue, View2<T> y) const;

  ParamRef<T> weight_;               // (out_tp, in)
  std::optional<ParamRef<T>> bias_;  // (out_tp)
};

template <class T>
class RowParallelLinear {
 public:
  RowParallelLinear(const Builder<T>& builder, const std::string& name, index_t in,
                    index_t out, const LinearOptions& options);

  void forward(const Context& context, View2<const T> x, View2<T> y) const;
  // y + bias + residual, by the product itself; where there is no other tensor rank.
  void forward_residual(const Context& context, View2<const T> x, View2<const T> residual,
                        View2<T> y) const;
  // The same of a step of generation where kernels::has_decode_linear(), whatever ranks
  // there are: their parts are summed before bias and residual come to them.
  void decode(const Context& context, const kernels::DecodeInput<T>& input,
              View2<const T> residual, View2<T> y) const;
  // The gradient of y that the backward passes take: all rows of d_y, gathered into
  // context.held where d_y has local ones.
  View2<const T> whole_output_gradient(const Context& context, View2<const T> d_y) const;
  void backward_input(const Context& context, View2<const T> d_y, View2<T> d_x) const;
  void backward_weight(const Context& context, View2<const T> d_y,
                       View2<const T> x) const;
  // From sums over blocks of rows of y's gradient, which the backward pass of the
  // residual addition leaves: (blocks, out), of the rows that this rank adds on.
  void backward_bias(View2<const Accumulator<T>> partials,
                     PartialGradients<T>& gradients) const {
    if (bias_) gradients.gather(*bias_, partials);
  }

  View2<const T> weight() const { return weight_.matrix(); }
  // Null where there is none.
  View1<const T> bias() const { return bias_ ? bias_->vector() : View1<const T>(); }
  bool has_bias() const { return bias_.has_value(); }

 private:
  ParamRef<T> weight_;               // (out, in_tp)
  std::optional<ParamRef<T>> bias_;  // (out), the same on every rank of the tensor group
};

// All ranks of a tensor group compute the same: worth it for so few rows that splitting
// them would cost more than it saves. x and y are whole on every rank.
template <class T>
class ReplicatedLinear {
 public:
  ReplicatedLinear(const Builder<T>& builder, const std::string& name, index_t in,
                   index_t out, double init_std);

  // y = x W^T + bias; of any number of rows.
  void forward(const Context& context, View2<const T> x, View2<T> y) const;
  // z = x W^T + bias; y = activation(z).
  void forward_activated(const Context& context, View2<const T> x,
                         kernels::Activation activation, View2<T> z, View2<T> y) const;
  void backward_input(const Context& context, View2<const T> d_y, View2<T> d_x) const;
  void backward_weight(const Context& context, View2<const T> d_y,
                       View2<const T> x) const;
  // From sums over blocks of rows of d_y.
  void backward_bias(View2<const Accumulator<T>> partials,
                     PartialGradients<T>& gradients) const {
    gradients.gather(bias_, partials);
  }

 private:
  ParamRef<T> weight_;  // (out, in)
  ParamRef<T> bias_;    // (out)
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_LINEAR_HPP_
