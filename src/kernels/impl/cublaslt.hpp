// kernels/impl/cublaslt.hpp — cuBLASLt as the sources of this directory use it: one
// product's descriptors, and what a queue keeps (handle, workspace, table, plans).
//
// cuBLASLt is column-major: a row-major C = A B is the column-major C^T = B^T A^T, so the
// operands change places. An epilogue's bias goes along the rows of C^T, its auxiliary
// output is z with the bias, and a residual is its operand C, beside the output D.
//
// Only algorithms with a fixed order of sums are taken, which round once: k in one piece,
// or in pieces whose sums lie apart in the workspace, in the type that is computed in,
// until they are added in order (CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).
#ifndef TRIREME_KERNELS_IMPL_CUBLASLT_HPP_
#define TRIREME_KERNELS_IMPL_CUBLASLT_HPP_

#include <cublasLt.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/exec.hpp"
#include "base/product_shape.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/gemm_table.hpp"

namespace trireme::kernels::impl {

// What cuBLAS itself takes on Hopper; and what the library wants its address to be a
// multiple of, which Kokkos' allocations, behind a header of 128 bytes, are not.
inline constexpr std::size_t kCublasLtWorkspaceBytes = std::size_t{32} << 20;
inline constexpr std::size_t kCublasLtWorkspaceAlignment = 256;
// All that is allocated.
inline constexpr std::size_t kCublasLtKeptBytes =
    kCublasLtWorkspaceBytes + kCublasLtWorkspaceAlignment;

void check_cublaslt(cublasStatus_t status, const char* what);
// "cuBLASLt 13.1.0"
std::string cublaslt_version();

// Where the operands of a call lie; the bias and z where the product has them.
struct ProductOperands {
  const void *a = nullptr, *b = nullptr;
  const void* added = nullptr;  // the residual, or C; not read unless it is added
  void* c = nullptr;
  const void* bias = nullptr;
  void* kept = nullptr;
};

class CublasLtProduct {
 public:
  // A type of our own: nvcc 13.0 cannot destroy a vector of the library's, whose struct
  // has no name.
  struct Proposal {
    cublasLtMatmulAlgo_t algorithm;
    std::size_t workspace_bytes;
  };
  static constexpr int kMostProposals = 16;

  explicit CublasLtProduct(const ProductShape& shape);

  const ProductShape& shape() const { return shape_; }
  // Up to so many algorithms (kMostProposals), the first of which the library would take.
  // None where it has none: a product with an epilogue may be one that it does not do.
  std::vector<Proposal> proposals(cublasLtHandle_t handle, int most) const;
  // Whether the library takes this algorithm, whoever proposed it.
  bool accepts(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) const;
  cublasStatus_t run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm,
                     Accumulate accumulate, const ProductOperands& operands,
                     void* workspace, cudaStream_t stream) const;

 private:
  struct Destroy {
    void operator()(cublasLtMatmulDescOpaque_t* one) { cublasLtMatmulDescDestroy(one); }
    void operator()(cublasLtMatrixLayoutOpaque_t* one) {
      cublasLtMatrixLayoutDestroy(one);
    }
  };
  using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;

  Operation make_operation() const;
  Layout make_layout(DType type, index_t rows, index_t columns, index_t leading) const;
  void set_pointers(const void* bias, void* kept) const;

  ProductShape shape_;
  Operation operation_;
  Layout a_, b_, added_, c_;
};

// The algorithm for people: "algorithm 66, tile 600, ...".
std::string text_of(const cublasLtMatmulAlgo_t& algorithm);

GemmChoice::Algorithm words_of(const cublasLtMatmulAlgo_t& algorithm);
cublasLtMatmulAlgo_t algorithm_of(const GemmChoice& choice);

class CublasLt : public LibraryState {
 public:
  // How a product is computed from its first call on.
  struct Plan {
    explicit Plan(const ProductShape& shape) : product(shape) {}

    CublasLtProduct product;
    cublasLtMatmulAlgo_t algorithm{};
    // False where the epilogue, or the last of it, is to be a pass of its own.
    bool exists = false;
  };

  CublasLt();
  ~CublasLt() override { cublasLtDestroy(handle_); }

  const Plan& plan(const ProductShape& shape);
  // From now on.
  void use(const GemmTable& table);
  const GemmTable& table() const { return table_; }
  cublasLtHandle_t handle() const { return handle_; }
  void* workspace() const { return workspace_; }

 private:
  std::unique_ptr<Plan> make_plan(const ProductShape& shape) const;

  cublasLtHandle_t handle_ = nullptr;
  DeviceArray<std::byte> memory_;
  void* workspace_ = nullptr;  // in that memory
  GemmTable table_;
  std::map<ProductShape, std::unique_ptr<Plan>> plans_;
};

CublasLt& cublaslt_of(const Exec& exec);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_CUBLASLT_HPP_
