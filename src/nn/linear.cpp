// nn/linear.cpp — see linear.hpp.
//
// A column-parallel product adds its bias, because every rank has all of the sums for its
// columns. A row-parallel one may not: its ranks' parts are summed by a message, and each
// would bring the bias along. Example: h = 8 and f = 32 on 2 tensor ranks; fc1's rank has
// W (16, 8), b (16) and y (rows, 16), fc2's W (8, 16) and a part of every sum of
// y (rows, 8).
#include "nn/linear.hpp"

#include "base/exec.hpp"
#include "comm/group.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/dropout.hpp"
#include "kernels/gemm.hpp"
#include "nn/weight_gradients.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::nn {

namespace {

ParamSpec weight_spec(const std::string& name, ShardSpec shard, const Initializer& init) {
  return {
      .name = name + "/weight", .shard = std::move(shard), .init = init, .decay = true};
}

ParamSpec bias_spec(const std::string& name, ShardSpec shard) {
  return {.name = name + "/bias",
          .shard = std::move(shard),
          .init = Initializer::constant(0)};
}

}  // namespace

template <class T>
ColumnParallelLinear<T>::ColumnParallelLinear(const Builder<T>& builder,
                                              const std::string& name, index_t in,
                                              index_t out, const LinearOptions& options) {
  const std::vector<index_t> parts =
      options.blocks.empty() ? std::vector<index_t>{out} : options.blocks;
  const int size = builder.tensor_size();
  const int rank = builder.tensor_rank();
  weight_ = builder.add(
      weight_spec(name, split_blocks({out, in}, parts, size, rank), options.init));
  if (!options.has_bias) return;
  bias_ = builder.add(bias_spec(name, split_blocks({out}, parts, size, rank)));
}

template <class T>
void ColumnParallelLinear<T>::forward(const Context& context, View2<const T> x,
                                      const kernels::Epilogue<T>& epilogue,
                                      View2<T> y) const {
  const ArenaScope scope(context.scratch);
  kernels::linear_forward<T>(
      context.exec, gather_rows(context, x, context.scratch, "column-parallel input"),
      weight_.operand(), epilogue, y);
}

template <class T>
void ColumnParallelLinear<T>::forward(const Context& context, View2<const T> x,
                                      View2<T> y) const {
  forward(context, x, kernels::Epilogue<T>{.bias = bias()}, y);
}

template <class T>
void ColumnParallelLinear<T>::forward_activated(const Context& context, View2<const T> x,
                                                kernels::Activation activation,
                                                View2<T> z, View2<T> y) const {
  forward(
      context, x,
      kernels::Epilogue<T>{.bias = bias(), .activation = activation, .pre_activation = z},
      y);
}

template <class T>
void ColumnParallelLinear<T>::decode(const Context& context,
                                     const kernels::DecodeInput<T>& input,
                                     kernels::DecodeOutput<T> output) const {
  output.bias = bias();
  kernels::decode_linear<T>(context.exec, input, weight_.operand(), output);
}

template <class T>
comm::Request ColumnParallelLinear<T>::start_backward_input(const Context& context,
                                                            View2<const T> d_y,
                                                            View2<T> d_x) const {
  return start_reduce_rows(
      context, d_x, context.held, Category::gradient, "column-parallel input gradient",
      [&](const View2<T>& partial) {
        kernels::linear_backward_input<T>(context.exec, d_y, weight_.operand(), partial);
      });
}

template <class T>
void ColumnParallelLinear<T>::add_backward_input(const Context& context,
                                                 View2<const T> d_y, View2<T> d_x) const {
  TRIREME_REQUIRE(context.groups.tensor->size() == 1,
                  "'{}': a product that is a part of a sum is added to nothing",
                  weight_.name());
  kernels::gemm<T, T>(context.exec, kernels::Transpose::no, kernels::Transpose::no,
                      kernels::Accumulate::yes, d_y, weight_.matrix(), d_x);
}

template <class T>
GatheredRows<T> ColumnParallelLinear<T>::start_weight_input(const Context& context,
                                                            View2<const T> x) const {
  return start_gather_rows(context, x, context.scratch,
                           "column-parallel input, for its weight");
}

template <class T>
void ColumnParallelLinear<T>::backward_weight(const Context& context, View2<const T> d_y,
                                              GatheredRows<T> x) const {
  x.arrival.wait(context.exec);
  product_gradient(context.exec, weight_, d_y, x.rows);
}

template <class T>
RowParallelLinear<T>::RowParallelLinear(const Builder<T>& builder,
                                        const std::string& name, index_t in, index_t out,
                                        const LinearOptions& options) {
  weight_ = builder.add(
      weight_spec(name, split({out, in}, 1, builder.tensor_size(), builder.tensor_rank()),
                  options.init));
  if (!options.has_bias) return;
  ParamSpec bias = bias_spec(name, replicated({out}));
  bias.in_sequence_region = true;
  bias_ = builder.add(std::move(bias));
}

template <class T>
void RowParallelLinear<T>::forward(const Context& context, View2<const T> x,
                                   View2<T> y) const {
  reduce_rows(context, y, "row-parallel output", [&](const View2<T>& partial) {
    kernels::linear_forward<T>(context.exec, x, weight_.operand(), partial);
  });
}

template <class T>
void RowParallelLinear<T>::forward_residual(const Context& context, View2<const T> x,
                                            View2<const T> residual, View2<T> y) const {
  TRIREME_REQUIRE(context.groups.tensor->size() == 1,
                  "'{}': a product that is a part of a sum takes no bias",
                  weight_.name());
  kernels::linear_forward<T>(context.exec, x, weight_.operand(),
                             kernels::Epilogue<T>{.bias = bias(), .residual = residual},
                             y);
}

template <class T>
void RowParallelLinear<T>::decode(const Context& context,
                                  const kernels::DecodeInput<T>& input,
                                  View2<const T> residual, View2<T> y) const {
  kernels::DecodeOutput<T> output;
  output.y = y;
  if (context.groups.tensor->size() == 1) {
    output.bias = bias();
    output.residual = residual;
    kernels::decode_linear<T>(context.exec, input, weight_.operand(), output);
    return;
  }
  const ArenaScope scope(context.scratch);
  output.y = context.scratch.matrix<T>(Category::hidden, context.rows(),
                                       static_cast<index_t>(y.extent(1)));
  reduce_rows(context, output.y, "row-parallel output of a step",
              [&](const View2<T>& partial) {
                kernels::DecodeOutput<T> part;
                part.y = partial;
                kernels::decode_linear<T>(context.exec, input, weight_.operand(), part);
              });
  kernels::DropoutDesc keeps_all;
  keeps_all.batch = context.samples();
  kernels::bias_dropout_add_forward<T>(context.exec, keeps_all, context.step,
                                       as_const(output.y), bias(), residual, y);
}

template <class T>
View2<const T> RowParallelLinear<T>::whole_output_gradient(const Context& context,
                                                           View2<const T> d_y) const {
  return gather_rows(context, d_y, context.held, "row-parallel output gradient");
}

template <class T>
void RowParallelLinear<T>::backward_input(const Context& context, View2<const T> d_y,
                                          View2<T> d_x) const {
  kernels::linear_backward_input<T>(context.exec, d_y, weight_.operand(), d_x);
}

template <class T>
void RowParallelLinear<T>::backward_weight(const Context& context, View2<const T> d_y,
                                           View2<const T> x) const {
  product_gradient(context.exec, weight_, d_y, x);
}

template <class T>
ReplicatedLinear<T>::ReplicatedLinear(const Builder<T>& builder, const std::string& name,
                                      index_t in, index_t out, double init_std)
    : weight_(builder.add(
          weight_spec(name, replicated({out, in}), Initializer::normal(init_std)))),
      bias_(builder.add(bias_spec(name, replicated({out})))) {}

template <class T>
void ReplicatedLinear<T>::forward(const Context& context, View2<const T> x,
                                  View2<T> y) const {
  forward_activated(context, x, kernels::Activation::none, {}, y);
}

template <class T>
void ReplicatedLinear<T>::forward_activated(const Context& context, View2<const T> x,
                                            kernels::Activation activation, View2<T> z,
                                            View2<T> y) const {
  kernels::linear_forward<T>(
      context.exec, x, weight_.operand(),
      kernels::Epilogue<T>{
          .bias = bias_.vector(), .activation = activation, .pre_activation = z},
      y);
}

template <class T>
void ReplicatedLinear<T>::backward_input(const Context& context, View2<const T> d_y,
                                         View2<T> d_x) const {
  kernels::linear_backward_input<T>(context.exec, d_y, weight_.operand(), d_x);
}

template <class T>
void ReplicatedLinear<T>::backward_weight(const Context& context, View2<const T> d_y,
                                          View2<const T> x) const {
  product_gradient(context.exec, weight_, d_y, x);
}

#define TRIREME_INSTANTIATE(T)            \
  template class ColumnParallelLinear<T>; \
  template class RowParallelLinear<T>;    \
  template class ReplicatedLinear<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn
