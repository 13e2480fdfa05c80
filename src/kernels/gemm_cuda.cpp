// kernels/gemm_cuda.cpp — gemm on NVIDIA GPUs through cuBLASLt.
//
// A handle, a workspace and the algorithms chosen for each shape belong to one Exec (one
// stream). The heuristic is asked once per shape. cuBLASLt is column-major: a row-major
// C = A B is the column-major C^T = B^T A^T, so the operands change places.
//
// An Epilogue (kernels/gemm.hpp) is cuBLASLt's where it has one: its GeLU is the tanh
// form, its bias goes along the rows of C^T, its auxiliary output is z with the bias, and
// a residual is its operand C, beside the output D. Where there is no algorithm for that,
// the product is followed by the pass of kernels/epilogue.hpp.
#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>

#include "base/error.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/library_versions.hpp"
#include "kernels/narrow_gemm.hpp"

namespace trireme::kernels {

namespace {

constexpr std::size_t kWorkspaceBytes = 32u << 20;  // what cuBLAS itself takes on Hopper

void check(cublasStatus_t status, const char* what) {
  TRIREME_REQUIRE(status == CUBLAS_STATUS_SUCCESS, "{}: {}", what,
                  cublasLtGetStatusString(status));
}

template <class T>
constexpr cudaDataType_t kDataType = CUDA_R_32F;
template <>
constexpr cudaDataType_t kDataType<double> = CUDA_R_64F;
template <>
constexpr cudaDataType_t kDataType<bf16> = CUDA_R_16BF;
template <>
constexpr cudaDataType_t kDataType<fp16> = CUDA_R_16F;

struct PlanKey {
  bool transpose_a, transpose_b, accumulate;
  index_t m, n, k, lda, ldb, ldc;
  int type, type_c;
  int epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  index_t ld_added = 0;      // of what is accumulated to; 0: C itself
  index_t ld_auxiliary = 0;  // of z, where the epilogue keeps it
  auto operator<=>(const PlanKey&) const = default;
};

// The descriptors of one shape and the algorithm chosen for it.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, added = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool exists = false;  // an algorithm

  ~Plan() {
    if (added != nullptr) cublasLtMatrixLayoutDestroy(added);
    if (c != nullptr) cublasLtMatrixLayoutDestroy(c);
    if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
    if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }
};

class CublasLt : public LibraryState {
 public:
  CublasLt() : workspace_("cublaslt workspace", kWorkspaceBytes) {
    check(cublasLtCreate(&handle_), "cublasLtCreate");
  }
  ~CublasLt() override { cublasLtDestroy(handle_); }

  const Plan& plan(const PlanKey& key) {
    std::unique_ptr<Plan>& plan = plans_[key];
    if (plan == nullptr) plan = make_plan(key);
    return *plan;
  }
  cublasLtHandle_t handle() const { return handle_; }
  void* workspace() const { return workspace_.data(); }

 private:
  std::unique_ptr<Plan> make_plan(const PlanKey& key) {
    auto plan = std::make_unique<Plan>();
    const auto type = static_cast<cudaDataType_t>(key.type);
    const auto type_c = static_cast<cudaDataType_t>(key.type_c);
    const bool is_double = type == CUDA_R_64F;
    check(cublasLtMatmulDescCreate(&plan->operation,
                                   is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                   is_double ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    // Column-major operands: first B^T, then A^T.
    const cublasOperation_t first = key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                         &first, sizeof(first)),
          "cublasLtMatmulDescSetAttribute");
    check(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                         &second, sizeof(second)),
          "cublasLtMatmulDescSetAttribute");
    // Stored row-major (rows, columns) is column-major (columns, rows).
    const auto layout = [](cublasLtMatrixLayout_t* result, cudaDataType_t data_type,
                           index_t rows, index_t columns, index_t ld) {
      check(cublasLtMatrixLayoutCreate(result, data_type,
                                       static_cast<std::uint64_t>(columns),
                                       static_cast<std::uint64_t>(rows), ld),
            "cublasLtMatrixLayoutCreate");
    };
    layout(&plan->a, type, key.transpose_a ? key.k : key.m,
           key.transpose_a ? key.m : key.k, key.lda);
    layout(&plan->b, type, key.transpose_b ? key.n : key.k,
           key.transpose_b ? key.k : key.n, key.ldb);
    layout(&plan->c, type_c, key.m, key.n, key.ldc);
    layout(&plan->added, type_c, key.m, key.n,
           key.ld_added == 0 ? key.ldc : key.ld_added);
    set_epilogue(*plan, key);
    choose_algorithm(*plan, key);
    return plan;
  }

  static void set_epilogue(const Plan& plan, const PlanKey& key) {
    if (key.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return;
    const auto epilogue = static_cast<cublasLtEpilogue_t>(key.epilogue);
    check(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                         &epilogue, sizeof(epilogue)),
          "cublasLtMatmulDescSetAttribute");
    if (key.ld_auxiliary == 0) return;
    const std::int64_t leading = key.ld_auxiliary;
    check(cublasLtMatmulDescSetAttribute(plan.operation,
                                         CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &leading,
                                         sizeof(leading)),
          "cublasLtMatmulDescSetAttribute");
  }

  void choose_algorithm(Plan& plan, const PlanKey& key) {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::size_t bytes = kWorkspaceBytes;
    check(
        cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
        "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.b, plan.a,
                                       plan.added, plan.c, preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    // Without an epilogue there must be one; with one, the library may say no.
    plan.exists = status == CUBLAS_STATUS_SUCCESS && found > 0;
    if (key.epilogue == CUBLASLT_EPILOGUE_DEFAULT) {
      check(status, "cublasLtMatmulAlgoGetHeuristic");
      TRIREME_REQUIRE(found > 0, "cuBLASLt has no algorithm for m {} n {} k {}", key.m,
                      key.n, key.k);
    }
    plan.algorithm = best.algo;
  }

  cublasLtHandle_t handle_ = nullptr;
  Kokkos::View<std::byte*, DeviceMemory> workspace_;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
};

CublasLt& library_of(const Exec& exec) {
  return exec.library<CublasLt>([] { return std::make_unique<CublasLt>(); });
}

template <class T, class To>
PlanKey key_of(Transpose transpose_a, Transpose transpose_b, Accumulate accumulate,
               const GemmShape& shape, const View2<const T>& a, const View2<const T>& b,
               const View2<To>& c) {
  return {.transpose_a = transpose_a == Transpose::yes,
          .transpose_b = transpose_b == Transpose::yes,
          .accumulate = accumulate == Accumulate::yes,
          .m = shape.m,
          .n = shape.n,
          .k = shape.k,
          .lda = static_cast<index_t>(a.stride(0)),
          .ldb = static_cast<index_t>(b.stride(0)),
          .ldc = static_cast<index_t>(c.stride(0)),
          .type = kDataType<T>,
          .type_c = kDataType<To>};
}

// c = op(A) op(B), or that plus `added`.
template <class T>
void multiply(const Exec& exec, const CublasLt& library, const Plan& plan,
              Accumulate accumulate, const void* a, const void* b, const void* added,
              void* c) {
  const Accumulator<T> alpha = 1;
  const Accumulator<T> beta = accumulate == Accumulate::yes ? 1 : 0;
  check(cublasLtMatmul(library.handle(), plan.operation, &alpha, b, plan.b, a, plan.a,
                       &beta, added, plan.added, c, plan.c, &plan.algorithm,
                       library.workspace(), kWorkspaceBytes, exec.space().cuda_stream()),
        "cublasLtMatmul");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  int cuda = 0;
  const bool known = cudaRuntimeGetVersion(&cuda) == cudaSuccess;
  const std::size_t cublas = cublasLtGetVersion();
  return {
      {"cuda", known ? fmt::format("{}.{}", cuda / 1000, cuda / 10 % 100) : "unknown"},
      {"blas", fmt::format("cuBLASLt {}.{}.{}", cublas / 10000, cublas / 100 % 100,
                           cublas % 100)}};
}

template <class T, class To>
void gemm(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
          Accumulate accumulate, View2<const T> a, View2<const T> b, View2<To> c) {
  const GemmShape shape = gemm_shape(transpose_a, transpose_b, a, b, c);
  if (skips_gemm(exec, shape, accumulate, a, b, c)) return;
  if (shape.k == 0) {  // no layout has zero rows
    gemm_reference<T, To>(exec, transpose_a, transpose_b, accumulate, a, b, c);
    return;
  }
  CublasLt& library = library_of(exec);
  const Plan& plan =
      library.plan(key_of(transpose_a, transpose_b, accumulate, shape, a, b, c));
  LibraryCall call(exec, gemm_kernel(shape, accumulate, a, b, c));
  multiply<T>(exec, library, plan, accumulate, a.data(), b.data(), c.data(), c.data());
  call.finish();
}

// y = activation(x W^T + bias) + residual in one call, where cuBLASLt has it; false where
// it has not. Tensor cores' types only.
template <class T>
bool fused_forward(const Exec& exec, const GemmShape& shape, View2<const T> x,
                   View2<const T> weight, const Epilogue<T>& epilogue, View2<T> y) {
  const bool has_bias = epilogue.bias.extent(0) > 0;
  const bool has_residual = epilogue.residual.extent(0) > 0;
  const bool keeps_z = epilogue.pre_activation.extent(0) > 0;
  const auto accumulate = has_residual ? Accumulate::yes : Accumulate::no;
  PlanKey key = key_of(Transpose::no, Transpose::yes, accumulate, shape, x, weight, y);
  key.epilogue = has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (epilogue.activation == Activation::gelu) {
    key.epilogue =
        keeps_z
            ? (has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX)
            : (has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU);
  }
  if (has_residual) key.ld_added = static_cast<index_t>(epilogue.residual.stride(0));
  if (keeps_z) {
    key.ld_auxiliary = static_cast<index_t>(epilogue.pre_activation.stride(0));
    constexpr std::uintptr_t kAligned = 16;  // bytes, and 8 elements between rows
    const auto address = reinterpret_cast<std::uintptr_t>(epilogue.pre_activation.data());
    if (key.ld_auxiliary % 8 != 0 || address % kAligned != 0) return false;
  }
  CublasLt& library = library_of(exec);
  const Plan& plan = library.plan(key);
  if (!plan.exists) return false;
  const auto point_to = [&](cublasLtMatmulDescAttributes_t attribute, const T* data) {
    check(cublasLtMatmulDescSetAttribute(plan.operation, attribute,
                                         static_cast<const void*>(&data), sizeof(data)),
          "cublasLtMatmulDescSetAttribute");
  };
  if (has_bias) point_to(CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias.data());
  if (keeps_z) {
    point_to(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.pre_activation.data());
  }
  LibraryCall call(exec, fused_kernel(shape, x, WeightOperand<T>(weight), epilogue, y));
  multiply<T>(exec, library, plan, accumulate, x.data(), weight.data(),
              has_residual ? epilogue.residual.data() : y.data(), y.data());
  call.finish();
  return true;
}

template <class T>
void linear_forward(const Exec& exec, View2<const T> x, const WeightOperand<T>& weight,
                    const Epilogue<T>& epilogue, View2<T> y) {
  if constexpr (sizeof(T) == 2) {
    require_epilogue(epilogue, y);
    const GemmShape shape = gemm_shape(Transpose::no, Transpose::yes, x, weight.rows, y);
    if (exec.only_counts(fused_kernel(shape, x, weight, epilogue, y))) return;
    const bool is_product = shape.m > 0 && shape.n > 0 && shape.k > 0;
    if (is_product && fused_forward(exec, shape, x, weight.rows, epilogue, y)) return;
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
  return kWorkspaceBytes;
}

std::size_t kept_by_products(const Exec&) {
  return kWorkspaceBytes;  // from the first product on
}

}  // namespace trireme::kernels
