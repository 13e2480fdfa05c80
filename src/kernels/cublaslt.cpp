// kernels/cublaslt.cpp — see impl/cublaslt.hpp.
//
// Alignment is a part of what an algorithm is asked for: without a word the library takes
// every operand to begin at a multiple of 256 bytes, and an algorithm that it proposes
// then may refuse the real ones. That of a bias and of a kept z it reads off the pointers
// of the descriptor, which therefore hold an address of no more than the product's
// alignment when it is asked.
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/error.hpp"
#include "kernels/impl/cublaslt.hpp"

namespace trireme::kernels::impl {

namespace {

cudaDataType_t cuda_type(DType type) {
  switch (type) {
    case DType::float64:
      return CUDA_R_64F;
    case DType::bfloat16:
      return CUDA_R_16BF;
    case DType::float16:
      return CUDA_R_16F;
    default:
      TRIREME_REQUIRE(type == DType::float32, "cuBLASLt: a product of {}", name_of(type));
      return CUDA_R_32F;
  }
}

// cuBLASLt's GeLU is the tanh form, as ours is.
cublasLtEpilogue_t epilogue_of(const ProductShape& shape) {
  if (!shape.has_gelu) {
    return shape.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
  if (shape.ld_kept > 0) {
    return shape.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  }
  return shape.has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

template <class T>
void set_attribute(cublasLtMatmulDesc_t operation,
                   cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublaslt(
      cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
      "cublasLtMatmulDescSetAttribute");
}

template <class T>
void set_attribute(cublasLtMatmulPreference_t preference,
                   cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check_cublaslt(
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

// -1 where this algorithm has no such attribute.
template <class T>
std::int64_t attribute_of(const cublasLtMatmulAlgo_t& algorithm,
                          cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(
      &algorithm, attribute, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS ? static_cast<std::int64_t>(value) : -1;
}

constexpr std::uint32_t kOrderedSums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

// The proposals are of the preferred schemes alone; this is for algorithms that come from
// a table, and to take nobody's word.
bool has_ordered_sums(const cublasLtMatmulAlgo_t& algorithm) {
  const std::int64_t scheme =
      attribute_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  return scheme <= 0 || scheme == kOrderedSums;
}

// The library keeps z in whole vectors of eight.
bool can_keep(const ProductShape& shape) {
  return shape.ld_kept == 0 || (shape.ld_kept % 8 == 0 && shape.alignment == 16);
}

struct DestroyPreference {
  void operator()(cublasLtMatmulPreferenceOpaque_t* one) {
    cublasLtMatmulPreferenceDestroy(one);
  }
};
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyPreference>;

Preference make_preference(const ProductShape& shape) {
  cublasLtMatmulPreference_t made = nullptr;
  check_cublaslt(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  Preference preference(made);
  const std::uint64_t workspace = kCublasLtWorkspaceBytes;
  set_attribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  set_attribute(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kOrderedSums);
  const auto alignment = static_cast<std::uint32_t>(shape.alignment);
  for (const auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set_attribute(made, operand, alignment);
  }
  return preference;
}

}  // namespace

void check_cublaslt(cublasStatus_t status, const char* what) {
  TRIREME_REQUIRE(status == CUBLAS_STATUS_SUCCESS, "{}: {}", what,
                  cublasLtGetStatusString(status));
}

std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100,
                     version % 100);
}

CublasLtProduct::CublasLtProduct(const ProductShape& shape)
    : shape_(shape),
      operation_(make_operation()),
      a_(make_layout(shape.type, shape.transpose_a ? shape.k : shape.m,
                     shape.transpose_a ? shape.m : shape.k, shape.lda)),
      b_(make_layout(shape.type, shape.transpose_b ? shape.n : shape.k,
                     shape.transpose_b ? shape.k : shape.n, shape.ldb)),
      added_(make_layout(shape.type_c, shape.m, shape.n,
                         shape.ld_residual > 0 ? shape.ld_residual : shape.ldc)),
      c_(make_layout(shape.type_c, shape.m, shape.n, shape.ldc)) {}

auto CublasLtProduct::make_operation() const -> Operation {
  const bool is_double = shape_.type == DType::float64;
  cublasLtMatmulDesc_t made = nullptr;
  check_cublaslt(
      cublasLtMatmulDescCreate(&made, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                               is_double ? CUDA_R_64F : CUDA_R_32F),
      "cublasLtMatmulDescCreate");
  Operation operation(made);
  // The column-major operands are first B^T, then A^T.
  const cublasOperation_t first = shape_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = shape_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set_attribute(made, CUBLASLT_MATMUL_DESC_TRANSA, first);
  set_attribute(made, CUBLASLT_MATMUL_DESC_TRANSB, second);
  set_attribute(made, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(shape_));
  if (shape_.ld_kept > 0) {
    const std::int64_t leading = shape_.ld_kept;
    set_attribute(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading);
  }
  return operation;
}

// Stored row-major (rows, columns) is column-major (columns, rows).
auto CublasLtProduct::make_layout(DType type, index_t rows, index_t columns,
                                  index_t leading) const -> Layout {
  cublasLtMatrixLayout_t made = nullptr;
  check_cublaslt(cublasLtMatrixLayoutCreate(&made, cuda_type(type),
                                            static_cast<std::uint64_t>(columns),
                                            static_cast<std::uint64_t>(rows), leading),
                 "cublasLtMatrixLayoutCreate");
  return Layout(made);
}

void CublasLtProduct::set_pointers(const void* bias, void* kept) const {
  if (shape_.has_bias) {
    set_attribute(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  if (shape_.ld_kept > 0) {
    set_attribute(operation_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kept);
  }
}

auto CublasLtProduct::proposals(cublasLtHandle_t handle, int most) const
    -> std::vector<Proposal> {
  if (!can_keep(shape_)) return {};
  void* const aligned =
      reinterpret_cast<void*>(static_cast<std::uintptr_t>(shape_.alignment));
  set_pointers(aligned, aligned);
  const Preference preference = make_preference(shape_);
  cublasLtMatmulHeuristicResult_t results[kMostProposals];
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, operation_.get(), b_.get(), a_.get(), added_.get(), c_.get(),
      preference.get(), std::min(most, kMostProposals), results, &found);
  if (status != CUBLAS_STATUS_SUCCESS) found = 0;
  std::vector<Proposal> all;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[i];
    if (result.state == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= kCublasLtWorkspaceBytes &&
        has_ordered_sums(result.algo)) {
      all.push_back({result.algo, result.workspaceSize});
    }
  }
  TRIREME_REQUIRE(!all.empty() || shape_.has_epilogue(),
                  "cuBLASLt has no algorithm for m {} n {} k {}: {}", shape_.m, shape_.n,
                  shape_.k, cublasLtGetStatusString(status));
  return all;
}

bool CublasLtProduct::accepts(cublasLtHandle_t handle,
                              const cublasLtMatmulAlgo_t& algorithm) const {
  if (!can_keep(shape_)) return false;
  void* const aligned =
      reinterpret_cast<void*>(static_cast<std::uintptr_t>(shape_.alignment));
  set_pointers(aligned, aligned);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle, operation_.get(), b_.get(), a_.get(), added_.get(),
                              c_.get(), &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kCublasLtWorkspaceBytes && has_ordered_sums(algorithm);
}

cublasStatus_t CublasLtProduct::run(cublasLtHandle_t handle,
                                    const cublasLtMatmulAlgo_t& algorithm,
                                    Accumulate accumulate,
                                    const ProductOperands& operands, void* workspace,
                                    cudaStream_t stream) const {
  set_pointers(operands.bias, operands.kept);
  // The factors are of the type that is computed in.
  const bool is_double = shape_.type == DType::float64;
  const bool adds = accumulate == Accumulate::yes;
  const double doubles[] = {1.0, adds ? 1.0 : 0.0};
  const float floats[] = {1.0f, adds ? 1.0f : 0.0f};
  const void* const alpha = is_double ? static_cast<const void*>(doubles) : floats;
  const void* const beta = is_double ? static_cast<const void*>(doubles + 1) : floats + 1;
  return cublasLtMatmul(handle, operation_.get(), alpha, operands.b, b_.get(), operands.a,
                        a_.get(), beta, operands.added, added_.get(), operands.c,
                        c_.get(), &algorithm, workspace, kCublasLtWorkspaceBytes, stream);
}

std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format(
      "algorithm {}, tile {}, stages {}, splits {}, reduction {}, swizzle {}, option {}, "
      "inner shape {}, cluster {}",
      attribute_of<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID),
      attribute_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
      attribute_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID),
      attribute_of<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
      attribute_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
      attribute_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
      attribute_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
      attribute_of<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
      attribute_of<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

GemmChoice::Algorithm words_of(const cublasLtMatmulAlgo_t& algorithm) {
  GemmChoice::Algorithm words;
  static_assert(sizeof(algorithm.data) == sizeof(words));
  std::copy(std::begin(algorithm.data), std::end(algorithm.data), words.begin());
  return words;
}

cublasLtMatmulAlgo_t algorithm_of(const GemmChoice& choice) {
  cublasLtMatmulAlgo_t algorithm{};
  std::copy(choice.algorithm.begin(), choice.algorithm.end(), std::begin(algorithm.data));
  return algorithm;
}

CublasLt::CublasLt() : memory_("cublaslt workspace", kCublasLtKeptBytes) {
  std::size_t space = kCublasLtKeptBytes;
  workspace_ = memory_.data();
  TRIREME_REQUIRE(std::align(kCublasLtWorkspaceAlignment, kCublasLtWorkspaceBytes,
                             workspace_, space) != nullptr,
                  "no room for an aligned workspace of cuBLASLt");
  check_cublaslt(cublasLtCreate(&handle_), "cublasLtCreate");
}

void CublasLt::use(const GemmTable& table) {
  table_ = table;
  plans_.clear();
}

auto CublasLt::plan(const ProductShape& shape) -> const Plan& {
  std::unique_ptr<Plan>& plan = plans_[shape];
  if (plan == nullptr) plan = make_plan(shape);
  return *plan;
}

auto CublasLt::make_plan(const ProductShape& shape) const -> std::unique_ptr<Plan> {
  auto plan = std::make_unique<Plan>(shape);
  const auto found = table_.products.find(shape);
  if (found == table_.products.end()) {
    if (shape.has_gelu) return plan;
    const auto proposals = plan->product.proposals(handle_, 1);
    plan->exists = !proposals.empty();
    if (plan->exists) plan->algorithm = proposals.front().algorithm;
    return plan;
  }
  if (found->second.in_two_passes) return plan;
  plan->algorithm = algorithm_of(found->second);
  plan->exists = plan->product.accepts(handle_, plan->algorithm);
  TRIREME_REQUIRE(plan->exists,
                  "cuBLASLt refuses what the run's table of matrix products has for m {} "
                  "n {} k {} ({})",
                  shape.m, shape.n, shape.k, found->second.about);
  return plan;
}

CublasLt& cublaslt_of(const Exec& exec) {
  return exec.library<CublasLt>([] { return std::make_unique<CublasLt>(); });
}

}  // namespace trireme::kernels::impl
