// kernels/gemm_cuda.cpp — gemm on NVIDIA GPUs through cuBLASLt.
//
// A handle, a workspace and the algorithms chosen for each product belong to one Exec
// (one stream): impl/cublaslt.hpp. An algorithm is that of the run's table
// (gemm_tuner.hpp) or, where this has none for the product, the first that the library
// proposes; it is looked up once.
//
// An Epilogue (kernels/gemm.hpp) is cuBLASLt's where it has one and the table does not
// say otherwise, and a GeLU, of the tanh form, only where the table says so: cuBLASLt
// takes it before z is rounded, so that one which is made again from z (memory.recompute:
// selective) has other bits, and is faster on some devices only. Else the product is
// followed by the pass of kernels/epilogue.hpp. So it is for other activations: cuBLASLt
// has no erf and no tanh, and where it does a ReLU it keeps its signs in place of z.
#include "base/error.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/impl/cublaslt.hpp"
#include "kernels/impl/cuda_queue.hpp"
#include "kernels/impl/product_shape.hpp"
#include "kernels/library_versions.hpp"
#include "kernels/narrow_gemm.hpp"

namespace trireme::kernels {

namespace {

void multiply(const Exec& exec, const impl::CublasLt& library,
              const impl::CublasLt::Plan& plan, Accumulate accumulate,
              const impl::ProductOperands& operands) {
  impl::check_cublaslt(
      plan.product.run(library.handle(), plan.algorithm, accumulate, operands,
                       library.workspace(), impl::stream_of(exec)),
      "cublasLtMatmul");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  int cuda = 0;
  const bool known = cudaRuntimeGetVersion(&cuda) == cudaSuccess;
  return {
      {"cuda", known ? fmt::format("{}.{}", cuda / 1000, cuda / 10 % 100) : "unknown"},
      {"blas", impl::cublaslt_version()}};
}

template <class T, class To>
void gemm(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
          Accumulate accumulate, View2<const T> a, View2<const T> b, View2<To> c) {
  const GemmShape shape = gemm_shape(transpose_a, transpose_b, a, b, c);
  const Kernel kernel = gemm_kernel(shape, accumulate, a, b, c);
  const ProductShape product =
      impl::product_shape(transpose_a, transpose_b, shape, a, b, c);
  if (impl::skips_gemm(exec, kernel, product)) return;
  if (shape.k == 0) {  // no layout has zero rows
    gemm_reference<T, To>(exec, transpose_a, transpose_b, accumulate, a, b, c);
    return;
  }
  impl::CublasLt& library = impl::cublaslt_of(exec);
  const impl::CublasLt::Plan& plan = library.plan(product);
  LibraryCall call(exec, kernel);
  multiply(exec, library, plan, accumulate,
           {.a = a.data(), .b = b.data(), .added = c.data(), .c = c.data()});
  call.finish();
}

namespace {

// y = activation(x W^T + bias) + residual in one call; false where that is to be done in
// two.
template <class T>
bool fused_forward(const Exec& exec, const ProductShape& product, const Kernel& kernel,
                   View2<const T> x, View2<const T> weight, const Epilogue<T>& epilogue,
                   View2<T> y) {
  impl::CublasLt& library = impl::cublaslt_of(exec);
  const impl::CublasLt::Plan& plan = library.plan(product);
  if (!plan.exists) return false;
  const bool has_residual = product.ld_residual > 0;
  LibraryCall call(exec, kernel);
  multiply(exec, library, plan, has_residual ? Accumulate::yes : Accumulate::no,
           {.a = x.data(),
            .b = weight.data(),
            .added = has_residual ? epilogue.residual.data() : y.data(),
            .c = y.data(),
            .bias = epilogue.bias.data(),
            .kept = epilogue.pre_activation.data()});
  call.finish();
  return true;
}

// z with its GeLU by one product, where the table says so. A plan counts two: what times
// may decide, it does not know.
template <class T>
bool forward_with_gelu(const Exec& exec, const GemmShape& shape, View2<const T> x,
                       const WeightOperand<T>& weight, const Epilogue<T>& epilogue,
                       View2<T> y) {
  const ProductShape product = impl::forward_shape(shape, x, weight.rows, epilogue, y);
  impl::count_product(exec, product);
  const bool is_product = shape.m > 0 && shape.n > 0 && shape.k > 0;
  return is_product && !exec.is_shape_only() &&
         fused_forward(exec, product, fused_kernel(shape, x, weight, epilogue, y), x,
                       weight.rows, epilogue, y);
}

// z by one product, then its activation.
template <class T>
void forward_with_activation(const Exec& exec, const GemmShape& shape, View2<const T> x,
                             const WeightOperand<T>& weight, const Epilogue<T>& epilogue,
                             View2<T> y) {
  if (epilogue.activation == Activation::gelu_tanh &&
      forward_with_gelu(exec, shape, x, weight, epilogue, y)) {
    return;
  }
  const View2<T> z = epilogue.pre_activation.extent(0) > 0 ? epilogue.pre_activation : y;
  linear_forward<T>(exec, x, weight, Epilogue<T>{.bias = epilogue.bias}, z);
  apply_epilogue<T>(exec, z, Epilogue<T>{.activation = epilogue.activation}, y);
}

}  // namespace

template <class T>
void linear_forward(const Exec& exec, View2<const T> x, const WeightOperand<T>& weight,
                    const Epilogue<T>& epilogue, View2<T> y) {
  if constexpr (sizeof(T) == 2) {  // what tensor cores multiply
    require_epilogue(epilogue, y);
    const GemmShape shape = gemm_shape(Transpose::no, Transpose::yes, x, weight.rows, y);
    if (epilogue.activation != Activation::none) {
      forward_with_activation(exec, shape, x, weight, epilogue, y);
      return;
    }
    const ProductShape product = impl::forward_shape(shape, x, weight.rows, epilogue, y);
    const Kernel kernel = fused_kernel(shape, x, weight, epilogue, y);
    if (impl::only_counts_product(exec, kernel, product)) return;
    const bool is_product = shape.m > 0 && shape.n > 0 && shape.k > 0;
    if (is_product && fused_forward(exec, product, kernel, x, weight.rows, epilogue, y)) {
      return;
    }
  }
  forward_in_two_passes<T>(exec, epilogue, y,
                           [&](Accumulate accumulate, const View2<T>& product) {
                             gemm<T, T>(exec, Transpose::no, Transpose::yes, accumulate,
                                        x, weight.rows, product);
                           });
}

#define TRIREME_INSTANTIATE(T, To) template decltype(gemm<T, To>) gemm<T, To>;
TRIREME_FOR_EACH_GEMM(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

#define TRIREME_INSTANTIATE(T)                                                          \
  template void linear_forward<T>(const Exec&, View2<const T>, const WeightOperand<T>&, \
                                  const Epilogue<T>&, View2<T>);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

void set_narrow_products(const Exec&, DType, NarrowProducts products) {
  TRIREME_REQUIRE_INPUT(
      products == NarrowProducts::native,
      "precision.gemm: {}: a GPU has products of its own for 16-bit types",
      name_of(products));
}

NarrowProducts narrow_products(const Exec&, DType) {
  return NarrowProducts::native;
}

bool has_narrow_products(const Exec&, DType, NarrowProducts products) {
  return products == NarrowProducts::native;
}

std::string_view product_instructions(const Exec&, DType type) {
  return has_product_ways(type) ? "tensor cores" : "native";
}

std::size_t product_workspace_bytes(const Exec&, DType) {
  return impl::kCublasLtKeptBytes;
}

std::size_t kept_by_products(const Exec&) {
  return impl::kCublasLtKeptBytes;  // from the first product on
}

}  // namespace trireme::kernels
