// tests/support/fake_cublaslt.cpp — see fake_cublaslt.hpp. The functions have the names
// and types of cublasLt.h, and stand in the place of the library when a test is linked.
#include "support/fake_cublaslt.hpp"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <thread>

#include "base/types.hpp"
#include "kernels/impl/cuda_queue.hpp"

namespace trireme::test {

FakeCublasLt& fake_cublaslt() {
  static FakeCublasLt state;
  return state;
}

namespace {

// A rule that is broken fails the test, and the call.
#define TRIREME_RULE(condition)                                \
  do {                                                         \
    if (!(condition)) {                                        \
      ADD_FAILURE() << "cuBLASLt is called with !" #condition; \
      return CUBLAS_STATUS_INVALID_VALUE;                      \
    }                                                          \
  } while (false)

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* kept = nullptr;
  std::int64_t kept_leading = 0;

  bool has(int part) const { return (static_cast<int>(epilogue) & part) != 0; }
};
constexpr int kBias = CUBLASLT_EPILOGUE_BIAS, kGelu = CUBLASLT_EPILOGUE_GELU,
              kKeeps = 128;

struct Layout {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};

template <class Own, class Handle>
Own& own(Handle handle) {
  return *reinterpret_cast<Own*>(handle);
}
template <class Handle, class Own>
Handle make(const Own& value) {
  ++fake_cublaslt().descriptors;
  return reinterpret_cast<Handle>(new Own(value));
}
template <class Own, class Handle>
cublasStatus_t destroy(Handle handle) {
  --fake_cublaslt().descriptors;
  delete reinterpret_cast<Own*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t take(T& value, const void* from, std::size_t bytes) {
  TRIREME_RULE(from != nullptr && bytes == sizeof(T));
  std::memcpy(&value, from, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t bytes_of_type(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}
double element(const void* data, std::int64_t i, cudaDataType_t type) {
  if (type == CUDA_R_64F) return static_cast<const double*>(data)[i];
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  if (type == CUDA_R_16BF) return static_cast<float>(static_cast<const bf16*>(data)[i]);
  return static_cast<float>(static_cast<const fp16*>(data)[i]);
}
void store(void* data, std::int64_t i, cudaDataType_t type, double value) {
  const auto narrow = static_cast<float>(value);
  if (type == CUDA_R_64F) static_cast<double*>(data)[i] = value;
  if (type == CUDA_R_32F) static_cast<float*>(data)[i] = narrow;
  if (type == CUDA_R_16BF) static_cast<bf16*>(data)[i] = bf16(narrow);
  if (type == CUDA_R_16F) static_cast<fp16*>(data)[i] = fp16(narrow);
}
bool is_aligned(const void* data, std::uint64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

// The words of algorithm i: more than its number, so that a word that gets lost shows.
cublasLtMatmulAlgo_t words_of(int i) {
  const auto n = static_cast<std::uint64_t>(i);
  return {{0xfab1a50000000000u + n, n * 0x0101010101010101u, 0, 0, 0, 0, 0, ~n}};
}
// -1: it is none of this library's.
int number_of(const cublasLtMatmulAlgo_t& algorithm) {
  for (int i = 0; i < kFakeAlgorithms; ++i) {
    const cublasLtMatmulAlgo_t known = words_of(i);
    if (std::memcmp(&known, &algorithm, sizeof(known)) == 0) return i;
  }
  return -1;
}

// D = A B + C with all that belongs to it.
struct Problem {
  const Operation& operation;
  const Layout &a, &b, &c, &d;

  Problem(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t of_a,
          cublasLtMatrixLayout_t of_b, cublasLtMatrixLayout_t of_c,
          cublasLtMatrixLayout_t of_d)
      : operation(own<Operation>(description)),
        a(own<Layout>(of_a)),
        b(own<Layout>(of_b)),
        c(own<Layout>(of_c)),
        d(own<Layout>(of_d)) {}

  std::int64_t m() const { return operation.a == CUBLAS_OP_T ? a.columns : a.rows; }
  std::int64_t k() const { return operation.a == CUBLAS_OP_T ? a.rows : a.columns; }
  std::int64_t n() const { return operation.b == CUBLAS_OP_T ? b.rows : b.columns; }
  bool is_double() const { return a.type == CUDA_R_64F; }

  cublasStatus_t check() const {
    TRIREME_RULE(k() == (operation.b == CUBLAS_OP_T ? b.columns : b.rows));
    TRIREME_RULE(a.type == b.type && c.type == d.type);
    TRIREME_RULE(d.type == a.type || d.type == CUDA_R_32F);
    for (const Layout* layout : {&c, &d}) {
      TRIREME_RULE(layout->rows == m() && layout->columns == n());
    }
    for (const Layout* layout : {&a, &b, &c, &d}) {
      TRIREME_RULE(layout->rows > 0 && layout->columns > 0);
      TRIREME_RULE(layout->leading >= layout->rows);
    }
    TRIREME_RULE(operation.compute ==
                 (is_double() ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F));
    TRIREME_RULE(operation.scale == (is_double() ? CUDA_R_64F : CUDA_R_32F));
    TRIREME_RULE(!operation.has(kBias) || operation.bias != nullptr);
    return CUBLAS_STATUS_SUCCESS;
  }
  bool has_epilogue() const {
    if (operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
    const bool can_keep =
        !operation.has(kKeeps) ||
        (operation.kept_leading % 8 == 0 && operation.kept_leading >= m() &&
         operation.kept != nullptr && is_aligned(operation.kept, 16));
    return fake_cublaslt().has_epilogues && can_keep;
  }
  // Whether the distances between columns, and what is said of addresses, allow it.
  bool suits(std::uint64_t alignment) const {
    for (const Layout* layout : {&a, &b, &c, &d}) {
      const auto bytes =
          static_cast<std::uint64_t>(layout->leading) * bytes_of_type(layout->type);
      if (bytes % alignment != 0) return false;
    }
    return !operation.has(kBias) || is_aligned(operation.bias, alignment);
  }

  // Element (i, j) of A B by an algorithm: sums of parts of k, each in order.
  double product(const void* a_data, const void* b_data, std::int64_t i, std::int64_t j,
                 int parts) const {
    double sum = 0.0;
    const auto rounded = [this](double x) {
      return is_double() ? x : static_cast<double>(static_cast<float>(x));
    };
    for (int part = 0; part < parts; ++part) {
      double of_part = 0.0;
      for (std::int64_t l = k() * part / parts; l < k() * (part + 1) / parts; ++l) {
        const std::int64_t at_a =
            operation.a == CUBLAS_OP_T ? i * a.leading + l : l * a.leading + i;
        const std::int64_t at_b =
            operation.b == CUBLAS_OP_T ? l * b.leading + j : j * b.leading + l;
        of_part = rounded(of_part + rounded(element(a_data, at_a, a.type) *
                                            element(b_data, at_b, b.type)));
      }
      sum = rounded(sum + of_part);
    }
    return sum;
  }
  // What else is done with it before it is stored in column j.
  double finished(double z, std::int64_t i, std::int64_t j) const {
    if (operation.has(kBias)) z += element(operation.bias, i, d.type);
    if (operation.has(kKeeps)) {
      store(operation.kept, j * operation.kept_leading + i, d.type, z);
    }
    if (!operation.has(kGelu)) return z;
    const double u = std::sqrt(2 / std::acos(-1.0)) * (z + 0.044715 * z * z * z);
    return 0.5 * z * (1 + std::tanh(u));
  }
};

}  // namespace
}  // namespace trireme::test

// What a host has in the place of kernels/cuda_queue.cpp.
namespace trireme::kernels::impl {
void* cuda_stream_of(const Exec&) {
  return nullptr;
}
cudaStream_t stream_of(const Exec&) {
  return nullptr;
}
CudaDevice device_of(const Exec&) {
  return {.name = test::fake_cublaslt().device,
          .capability = "9.0",
          .multiprocessors = 7,
          .cache_bytes = 4096};
}
}  // namespace trireme::kernels::impl

using trireme::test::fake_cublaslt;
using trireme::test::FakeAlgorithm;
using trireme::test::kFake;
using trireme::test::kFakeAlgorithms;
using namespace trireme::test;  // NOLINT: the library's functions are in no namespace

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
std::size_t cublasLtGetVersion() {
  return 130100;
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "other";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = make<cublasLtHandle_t>(1);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy<int>(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = make<cublasLtMatmulDesc_t>(Operation{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t one) {
  return destroy<Operation>(one);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t one,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  auto& operation = own<Operation>(one);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(operation.a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(operation.b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(operation.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(operation.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(operation.kept, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(operation.kept_leading, value, bytes);
    default:
      TRIREME_RULE(attribute == CUBLASLT_MATMUL_DESC_TRANSA);
      return CUBLAS_STATUS_SUCCESS;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made,
                                          cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  *made =
      make<cublasLtMatrixLayout_t>(Layout{type, static_cast<std::int64_t>(rows),
                                          static_cast<std::int64_t>(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t one) {
  return destroy<Layout>(one);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = make<cublasLtMatmulPreference_t>(Preference());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t one) {
  return destroy<Preference>(one);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t one, cublasLtMatmulPreferenceAttributes_t attribute,
    const void* value, std::size_t bytes) {
  auto& preference = own<Preference>(one);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference.schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(preference.alignments[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(preference.alignments[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(preference.alignments[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(preference.alignments[3], value, bytes);
    default:
      TRIREME_RULE(attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
      return CUBLAS_STATUS_SUCCESS;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t wanted, int most, cublasLtMatmulHeuristicResult_t* results,
    int* found) {
  TRIREME_RULE(handle != nullptr && most > 0);
  ++fake_cublaslt().proposals;
  *found = 0;
  const Problem problem(operation, a, b, c, d);
  if (const cublasStatus_t status = problem.check(); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (!problem.has_epilogue()) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto& preference = own<Preference>(wanted);
  const std::uint64_t alignment = *std::ranges::min_element(preference.alignments);
  for (int i = 0; i < kFakeAlgorithms && *found < most; ++i) {
    const FakeAlgorithm& one = kFake[static_cast<std::size_t>(i)];
    const bool is_wanted = one.scheme == 0 || (one.scheme & preference.schemes) != 0;
    if (!is_wanted || one.workspace > preference.workspace || one.alignment > alignment ||
        !problem.suits(one.alignment)) {
      continue;
    }
    results[(*found)++] = {.algo = words_of(i),
                           .workspaceSize = one.workspace,
                           .state = CUBLAS_STATUS_SUCCESS,
                           .wavesCount = 1.0f,
                           .reserved = {}};
  }
  return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle,
                                       cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  TRIREME_RULE(handle != nullptr);
  ++fake_cublaslt().checks;
  const Problem problem(operation, a, b, c, d);
  if (const cublasStatus_t status = problem.check(); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const int number = number_of(*algorithm);
  if (number < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!problem.has_epilogue()) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->workspaceSize = kFake[static_cast<std::size_t>(number)].workspace;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
    void* value, std::size_t bytes, std::size_t* written) {
  const int number = number_of(*algorithm);
  if (number < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const FakeAlgorithm& one = kFake[static_cast<std::size_t>(number)];
  std::uint32_t found = 0;
  if (attribute == CUBLASLT_ALGO_CONFIG_ID) found = static_cast<std::uint32_t>(number);
  if (attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM) {
    found = static_cast<std::uint32_t>(one.parts);
  }
  if (attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) found = one.scheme;
  const bool is_short = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                        attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  *written = is_short ? sizeof(std::uint16_t) : sizeof(std::uint32_t);
  TRIREME_RULE(bytes == *written);
  std::memcpy(value, &found, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a, const void* b_data,
                              cublasLtMatrixLayout_t b, const void* beta,
                              const void* c_data, cublasLtMatrixLayout_t c, void* d_data,
                              cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t) {
  TRIREME_RULE(handle != nullptr);
  const Problem problem(operation, a, b, c, d);
  if (const cublasStatus_t status = problem.check(); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  TRIREME_RULE(problem.has_epilogue());
  const int number = number_of(*algorithm);
  TRIREME_RULE(number >= 0);
  FakeCublasLt& state = fake_cublaslt();
  if (number == state.refused) return CUBLAS_STATUS_NOT_SUPPORTED;
  const FakeAlgorithm& one = kFake[static_cast<std::size_t>(number)];
  TRIREME_RULE(is_aligned(workspace, 256) && one.workspace <= workspace_bytes);
  TRIREME_RULE(problem.suits(one.alignment));
  for (const void* data : {a_data, b_data, c_data, static_cast<const void*>(d_data)}) {
    TRIREME_RULE(is_aligned(data, one.alignment));
  }
  const auto factor = [&](const void* data) {
    return element(data, 0, problem.operation.scale);
  };
  TRIREME_RULE(factor(alpha) == 1.0 && (factor(beta) == 0.0 || factor(beta) == 1.0));
  const bool adds = factor(beta) == 1.0;
  TRIREME_RULE(!adds || c_data != d_data || problem.c.leading == problem.d.leading);

  ++state.products;
  ++state.products_of[static_cast<std::size_t>(number)];
  std::memset(workspace, state.products & 0xff, one.workspace);  // it is its own
  std::this_thread::sleep_for(
      std::chrono::milliseconds(state.milliseconds[static_cast<std::size_t>(number)]));
  for (std::int64_t j = 0; j < problem.n(); ++j) {
    for (std::int64_t i = 0; i < problem.m(); ++i) {
      double z = problem.product(a_data, b_data, i, j, one.parts);
      if (adds) z += element(c_data, j * problem.c.leading + i, problem.c.type);
      if (number == state.unsteady) z += state.products;
      store(d_data, j * problem.d.leading + i, problem.d.type, problem.finished(z, i, j));
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
