// kernels/gemm_cuda.cpp — gemm on NVIDIA GPUs through cuBLASLt.
//
// A handle, a workspace and the algorithms chosen for each shape belong to one Exec (one
// stream). The heuristic is asked once per shape. cuBLASLt is column-major: a row-major
// C = A B is the column-major C^T = B^T A^T, so the operands change places.
#include <cublasLt.h>

#include <compare>
#include <map>

#include "base/error.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/library_versions.hpp"

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
  auto operator<=>(const PlanKey&) const = default;
};

// The descriptors of one shape and the algorithm chosen for it.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  ~Plan() {
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
        cublasLtMatmulAlgoGetHeuristic(handle_, plan->operation, plan->b, plan->a,
                                       plan->c, plan->c, preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    TRIREME_REQUIRE(found > 0, "cuBLASLt has no algorithm for m {} n {} k {}", key.m,
                    key.n, key.k);
    plan->algorithm = best.algo;
    return plan;
  }

  cublasLtHandle_t handle_ = nullptr;
  Kokkos::View<std::byte*, DeviceMemory> workspace_;
  std::map<PlanKey, std::unique_ptr<Plan>> plans_;
};

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
  auto& library = exec.library<CublasLt>([] { return std::make_unique<CublasLt>(); });
  const PlanKey key{transpose_a == Transpose::yes,
                    transpose_b == Transpose::yes,
                    accumulate == Accumulate::yes,
                    shape.m,
                    shape.n,
                    shape.k,
                    static_cast<index_t>(a.stride(0)),
                    static_cast<index_t>(b.stride(0)),
                    static_cast<index_t>(c.stride(0)),
                    kDataType<T>,
                    kDataType<To>};
  const Plan& plan = library.plan(key);
  const Accumulator<T> alpha = 1;
  const Accumulator<T> beta = accumulate == Accumulate::yes ? 1 : 0;
  LibraryCall call(exec, gemm_kernel(shape, accumulate, a, b, c));
  check(
      cublasLtMatmul(library.handle(), plan.operation, &alpha, b.data(), plan.b, a.data(),
                     plan.a, &beta, c.data(), plan.c, c.data(), plan.c, &plan.algorithm,
                     library.workspace(), kWorkspaceBytes, exec.space().cuda_stream()),
      "cublasLtMatmul");
  call.finish();
}

#define TRIREME_INSTANTIATE(T, To) template decltype(gemm<T, To>) gemm<T, To>;
TRIREME_FOR_EACH_GEMM(TRIREME_INSTANTIATE)
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

}  // namespace trireme::kernels
