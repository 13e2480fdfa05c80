// nn/weight_gradients.hpp — gradients of parameters from what a backward pass has, in the
// type that they are kept in.
#ifndef TRIREME_NN_WEIGHT_GRADIENTS_HPP_
#define TRIREME_NN_WEIGHT_GRADIENTS_HPP_

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/types.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/gemm.hpp"
#include "kernels/reductions.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::nn {

// d_W (out, in) = or += d_y^T x.
template <class T>
void product_gradient(const Exec& exec, const ParamRef<T>& weight, View2<const T> d_y,
                      View2<const T> x) {
  weight.write_matrix_gradient(
      [&]<class G>(kernels::Accumulate accumulate, View2<G> d_weight) {
        kernels::linear_backward_weight<T, G>(exec, d_y, x, accumulate, d_weight);
      });
}

// Gradients of biases and norms from sums over blocks of rows, which fused backward
// passes leave. Those of a layer are gathered while its weight gradients are taken, and
// then added in one launch.
template <class T>
class PartialGradients {
 public:
  // d_vector = or += what the partials add up to; they must live until add_all().
  void gather(const ParamRef<T>& vector, View2<const Accumulator<T>> partials) {
    TRIREME_REQUIRE(count_ < kernels::kMostPartialSums,
                    "'{}' is one vector too many for one launch: {} are there",
                    vector.name(), count_);
    gathered_[count_++] = {&vector, partials};
  }
  void add_all(const Exec& exec) {
    if (count_ == 0) return;
    gathered_[0].vector->visit_gradient_type([&]<class G>(std::type_identity<G>) {
      using Sum = kernels::PartialSum<Accumulator<T>, G>;
      std::array<Sum, kernels::kMostPartialSums> sums;
      for (std::size_t i = 0; i < count_; ++i) {
        const ParamRef<T>& vector = *gathered_[i].vector;
        sums[i] = {gathered_[i].partials, vector.begin_gradient(),
                   vector.template vector_gradient<G>()};
      }
      kernels::add_partials<Accumulator<T>, G>(exec,
                                               std::span<const Sum>(sums.data(), count_));
    });
    count_ = 0;
  }

 private:
  struct Gathered {
    const ParamRef<T>* vector = nullptr;
    View2<const Accumulator<T>> partials;
  };
  std::array<Gathered, kernels::kMostPartialSums> gathered_;
  std::size_t count_ = 0;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_WEIGHT_GRADIENTS_HPP_
