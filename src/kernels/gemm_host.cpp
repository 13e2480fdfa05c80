// kernels/gemm_host.cpp — gemm on host cores: oneDNN for float (its threads are the
// OpenMP pool that Kokkos uses, so no second pool competes for the cores), Kokkos Kernels
// for double; impl/narrow_gemm.hpp for 16-bit types. What follows a product of the
// library is done block by block of its result, because the library can add a bias but
// cannot keep what the activation took; a product of our own, fused with it, took 4 %
// more time. A product and what follows are one kernel on every processor, so that plans
// are the same.
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <KokkosBlas3_gemm.hpp>

#include <atomic>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/impl/float_gemm.hpp"
#include "kernels/impl/narrow_gemm.hpp"
#include "kernels/impl/product_shape.hpp"
#include "kernels/impl/thread_count.hpp"
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

// What a queue keeps for products of float, so that a step allocates nothing for them:
// the parts of threads, and the blocks that a pass follows.
struct FloatState final : LibraryState {
  impl::ProductParts parts, blocks;
};
FloatState& float_state(const Exec& exec) {
  return exec.library<FloatState>([] { return std::make_unique<FloatState>(); });
}

dnnl_status_t part_of_product(const impl::Product& p, const impl::PartOfC& part,
                              const float* a, const float* b, float* c) {
  const bool is_a_transposed = p.transpose_a == Transpose::yes;
  const bool is_b_transposed = p.transpose_b == Transpose::yes;
  return dnnl_sgemm(code(p.transpose_a), code(p.transpose_b), part.rows(), part.columns(),
                    p.k, 1.0f, a + part.row * (is_a_transposed ? 1 : p.lda), p.lda,
                    b + part.column * (is_b_transposed ? p.ldb : 1), p.ldb,
                    p.accumulate == Accumulate::yes ? 1.0f : 0.0f,
                    c + part.row * p.ldc + part.column, p.ldc);
}

// The library cuts a product for its threads, too, and badly where few columns are made
// with a transposed B: on two cores of an EPYC (Zen 4) 1024 x 512 from 2048 took 1.3
// times as long as in two parts of ours; where its own cut is good, both take as long.
void library_product(const Exec& exec, const impl::Product& p, const float* a,
                     const float* b, float* c) {
  const std::vector<impl::PartOfC>& parts =
      float_state(exec).parts.of(p, [](const impl::Product& product) {
        return impl::float_parts(product, impl::thread_count());
      });
  dnnl_status_t status = dnnl_success;
  if (parts.size() == 1) {
    status = part_of_product(p, parts.front(), a, b, c);
  } else {
    // Within a parallel region the library takes the one thread that calls it.
    std::atomic<dnnl_status_t> worst = dnnl_success;
    launch(exec, "trireme::kernels::library_product", static_cast<index_t>(parts.size()),
           [=, &p, &parts, &worst](index_t part) {
             const dnnl_status_t of_part =
                 part_of_product(p, parts[extent(part)], a, b, c);
             if (of_part != dnnl_success) worst = of_part;
           });
    status = worst;
  }
  TRIREME_REQUIRE(status == dnnl_success,
                  "oneDNN sgemm of ({}, {}) by ({}, {}): status {}", p.m, p.k, p.k, p.n,
                  static_cast<int>(status));
}

}  // namespace

std::vector<impl::PartOfC> impl::float_parts(const Product& product, index_t threads) {
  // Numbers that a part packs for each of its elements and each step of k.
  constexpr double kMostPacked = 1.0 / 128;
  double least = std::numeric_limits<double>::infinity();
  index_t row_parts = 1, column_parts = 1;
  for (index_t r = 1; r <= threads; ++r) {
    if (threads % r != 0) continue;
    const double height = static_cast<double>(product.m) / static_cast<double>(r);
    const double width =
        static_cast<double>(product.n) / static_cast<double>(threads / r);
    const double packed = 1 / height + 1 / width;
    if (packed < least) {
      least = packed;
      row_parts = r;
      column_parts = threads / r;
    }
  }
  if (least > kMostPacked) row_parts = column_parts = 1;
  return parts_of_tiles(product, kFloatTileRows, kFloatTileColumns, row_parts,
                        column_parts);
}

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
    library_product(exec, product, a.data(), b.data(), c.data());
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

template <class T, class Multiply>
void forward_in_blocks(const Exec& exec, const impl::Product& all,
                       const View2<const T>& x, const View2<const T>& weight,
                       const Epilogue<T>& epilogue, const View2<T>& y,
                       const Multiply& multiply) {
  using Range = std::pair<index_t, index_t>;
  const auto cut = [](const impl::Product& product) {
    return impl::parts_of_tiles(product, impl::kFloatTileRows, impl::kFloatTileColumns,
                                impl::ceil_divide(product.m, kBlockRows),
                                impl::ceil_divide(product.n, kBlockColumns));
  };
  for (const impl::PartOfC& block : float_state(exec).blocks.of(all, cut)) {
    const Range across(block.row, block.row_end), along(block.column, block.column_end);
    const auto part = [&]<class View>(const View& matrix) -> View {
      if (matrix.extent(0) == 0) return matrix;
      return Kokkos::subview(matrix, across, along);
    };
    Epilogue<T> rest{.residual = part(epilogue.residual),
                     .activation = epilogue.activation,
                     .pre_activation = part(epilogue.pre_activation)};
    if (epilogue.bias.extent(0) > 0) rest.bias = Kokkos::subview(epilogue.bias, along);
    forward_in_two_passes<T>(
        exec, rest, part(y),
        [&](Accumulate accumulate, const View2<T>& z) {
          impl::Product product = all;
          product.m = block.rows();
          product.n = block.columns();
          product.ldc = static_cast<index_t>(z.stride(0));
          product.accumulate = accumulate;
          multiply(product, x.data() + block.row * all.lda,
                   weight.data() + block.column * all.ldb, z.data());
        },
        PassOf::product);
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
    if (shape.m > kFewRows && shape.n > 0 && shape.k > 0 && !is_empty(epilogue)) {
      const Kernel kernel = fused_kernel(shape, x, weight, epilogue, y);
      if (impl::only_counts_product(
              exec, kernel, impl::forward_shape(shape, x, weight.rows, epilogue, y))) {
        return;
      }
      LibraryCall call(exec, kernel);
      if constexpr (std::is_same_v<T, float>) {
        forward_in_blocks<T>(exec, product, x, weight.rows, epilogue, y,
                             [&](const impl::Product& block, const T* a, const T* b,
                                 T* c) { library_product(exec, block, a, b, c); });
      } else if (impl::fuses_forward<T>(exec, product)) {
        impl::fused_forward<T>(exec, product, x, weight.rows, epilogue, y);
      } else {
        forward_in_blocks<T>(
            exec, product, x, weight.rows, epilogue, y,
            [&](const impl::Product& block, const T* a, const T* b, T* c) {
              impl::narrow_product<T, T>(exec, block, a, b, c);
            });
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
