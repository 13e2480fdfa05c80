// kernels/gemm_host.cpp — gemm on host cores: oneDNN for float (its threads are the
// OpenMP pool that Kokkos uses, so no second pool competes for the cores), Kokkos Kernels
// for double; impl/narrow_gemm.hpp for 16-bit types. What follows a product of float is
// done block by block of its result, because the library can add a bias but cannot keep
// what the activation took; a product of our own, fused with it, took 4 % more time.
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <KokkosBlas3_gemm.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/impl/narrow_gemm.hpp"
#include "kernels/impl/product_shape.hpp"
#include "kernels/library_versions.hpp"

namespace trireme::kernels {

namespace {

char code(Transpose transpose) {
  return transpose == Transpose::yes ? 'T' : 'N';
}

// The version of the BLAS that the process runs with, which need not be the one it was
// linked with. The interface has no call for it; each implementation tells its own under
// another name.
std::string blas_version() {
  using Text = const char* (*)();
  if (const auto config =
          reinterpret_cast<Text>(::dlsym(RTLD_DEFAULT, "openblas_get_config"))) {
    // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": name and version.
    const std::string_view text = config();
    return std::string(text.substr(0, text.find(' ', text.find(' ') + 1)));
  }
  if (const auto version =
          reinterpret_cast<Text>(::dlsym(RTLD_DEFAULT, "bli_info_get_version_str"))) {
    return fmt::format("BLIS {}", version());
  }
  using Fill = void (*)(char*, int);
  if (const auto fill =
          reinterpret_cast<Fill>(::dlsym(RTLD_DEFAULT, "mkl_get_version_string"))) {
    char text[200] = "";
    fill(text, sizeof(text) - 1);
    const std::string_view line = text;
    return std::string(line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return TRIREME_BLAS_NAME;
}

template <class A, class B, class C>
impl::Product product_of(Transpose transpose_a, Transpose transpose_b,
                         Accumulate accumulate, const GemmShape& shape, const A& a,
                         const B& b, const C& c) {
  const auto leading = [](const auto& view) {
    return static_cast<index_t>(view.stride(0));
  };
  return {transpose_a, transpose_b, accumulate, shape.m,   shape.n,
          shape.k,     leading(a),  leading(b), leading(c)};
}

void library_product(const impl::Product& p, const float* a, const float* b, float* c) {
  const float beta = p.accumulate == Accumulate::yes ? 1.0f : 0.0f;
  const dnnl_status_t status =
      dnnl_sgemm(code(p.transpose_a), code(p.transpose_b), p.m, p.n, p.k, 1.0f, a, p.lda,
                 b, p.ldb, beta, c, p.ldc);
  TRIREME_REQUIRE(status == dnnl_success,
                  "oneDNN sgemm of ({}, {}) by ({}, {}): status {}", p.m, p.k, p.k, p.n,
                  static_cast<int>(status));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  const dnnl_version_t* dnnl = dnnl_version();
  return {{"onednn", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
          {"kokkos_kernels",
           fmt::format("{}.{}.{}", KOKKOSKERNELS_VERSION / 10000,
                       KOKKOSKERNELS_VERSION / 100 % 100, KOKKOSKERNELS_VERSION % 100)},
          {"blas", blas_version()}};
}

template <class T, class To>
void gemm(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
          Accumulate accumulate, View2<const T> a, View2<const T> b, View2<To> c) {
  const GemmShape shape = gemm_shape(transpose_a, transpose_b, a, b, c);
  const Kernel kernel = gemm_kernel(shape, accumulate, a, b, c);
  if (impl::skips_gemm(exec, kernel,
                       impl::product_shape(transpose_a, transpose_b, shape, a, b, c))) {
    return;
  }
  // oneDNN refuses a sum of no products; Kokkos Kernels (4.4) takes a single column for a
  // contiguous vector, whatever lies between its rows.
  const bool is_column = std::is_same_v<T, double> && shape.n == 1 &&
                         transpose_b == Transpose::no &&
                         (b.stride(0) != 1 || c.stride(0) != 1);
  if (shape.k == 0 || is_column) {
    gemm_reference<T, To>(exec, transpose_a, transpose_b, accumulate, a, b, c);
    return;
  }
  LibraryCall call(exec, kernel);
  const impl::Product product =
      product_of(transpose_a, transpose_b, accumulate, shape, a, b, c);
  if constexpr (std::is_same_v<T, float>) {
    library_product(product, a.data(), b.data(), c.data());
  } else if constexpr (std::is_same_v<T, double>) {
    const char codes[] = {code(transpose_a), 0, code(transpose_b), 0};
    KokkosBlas::gemm(exec.space(), codes, codes + 2, 1.0, a, b,
                     accumulate == Accumulate::yes ? 1.0 : 0.0, c);
  } else {
    impl::narrow_product(exec, product, a.data(), b.data(), c.data());
  }
  call.finish();
}

namespace {

// The library's product and a pass over it, by equal blocks of y of at most this size:
// the pass finds the block in the second caches or the last one. The product takes as
// long as in one go.
constexpr index_t kBlockRows = 1024, kBlockColumns = 768;

void forward_in_blocks(const Exec& exec, const impl::Product& all,
                       const View2<const float>& x, const View2<const float>& weight,
                       const Epilogue<float>& epilogue, const View2<float>& y) {
  using Range = std::pair<index_t, index_t>;
  const auto cut = [](index_t n, index_t parts, index_t index) {
    return Range(n * index / parts, n * (index + 1) / parts);
  };
  const index_t row_parts = impl::ceil_divide(all.m, kBlockRows);
  const index_t column_parts = impl::ceil_divide(all.n, kBlockColumns);
  for (index_t r = 0; r < row_parts; ++r) {
    for (index_t c = 0; c < column_parts; ++c) {
      const Range across = cut(all.m, row_parts, r);
      const Range along = cut(all.n, column_parts, c);
      const auto part = [&]<class View>(const View& matrix) -> View {
        if (matrix.extent(0) == 0) return matrix;
        return Kokkos::subview(matrix, across, along);
      };
      Epilogue<float> rest{.residual = part(epilogue.residual),
                           .activation = epilogue.activation,
                           .pre_activation = part(epilogue.pre_activation)};
      if (epilogue.bias.extent(0) > 0) rest.bias = Kokkos::subview(epilogue.bias, along);
      forward_in_two_passes<float>(
          exec, rest, part(y),
          [&](Accumulate accumulate, const View2<float>& z) {
            impl::Product block = all;
            block.m = across.second - across.first;
            block.n = along.second - along.first;
            block.ldc = static_cast<index_t>(z.stride(0));
            block.accumulate = accumulate;
            library_product(block, x.data() + across.first * all.lda,
                            weight.data() + along.first * all.ldb, z.data());
          },
          PassOf::product);
    }
  }
}

}  // namespace

template <class T>
void linear_forward(const Exec& exec, View2<const T> x, const WeightOperand<T>& weight,
                    const Epilogue<T>& epilogue, View2<T> y) {
  if constexpr (!std::is_same_v<T, double>) {
    require_epilogue(epilogue, y);
    const GemmShape shape = gemm_shape(Transpose::no, Transpose::yes, x, weight.rows, y);
    const impl::Product product = product_of(Transpose::no, Transpose::yes,
                                             Accumulate::no, shape, x, weight.rows, y);
    bool is_fused =
        shape.m > kFewRows && shape.n > 0 && shape.k > 0 && !is_empty(epilogue);
    if constexpr (!std::is_same_v<T, float>) {
      is_fused = is_fused && impl::fuses_forward<T>(exec, product);
    }
    if (is_fused) {
      const Kernel kernel = fused_kernel(shape, x, weight, epilogue, y);
      if (impl::only_counts_product(
              exec, kernel, impl::forward_shape(shape, x, weight.rows, epilogue, y))) {
        return;
      }
      LibraryCall call(exec, kernel);
      if constexpr (std::is_same_v<T, float>) {
        forward_in_blocks(exec, product, x, weight.rows, epilogue, y);
      } else {
        impl::fused_forward<T>(exec, product, x, weight.rows, epilogue, y);
      }
      call.finish();
      return;
    }
  }
  forward_in_two_passes<T>(exec, epilogue, y,
                           [&](Accumulate accumulate, const View2<T>& product) {
                             if (accumulate == Accumulate::no) {
                               linear_forward<T>(exec, x, weight, product);
                               return;
                             }
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

}  // namespace trireme::kernels
