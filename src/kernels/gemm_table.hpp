// kernels/gemm_table.hpp — which algorithm of a library computes each product of a run.
//
// A library proposes several algorithms for a product, which sum in different orders, so
// that another choice is other rounding. What was chosen by time is therefore kept with
// the run: GemmTable. It is of one library on one model of device, whose algorithms are
// numbers that mean nothing to another. A product that is not in the table is computed by
// the first algorithm that the library proposes, which depends on nothing but library,
// device and product; and its GeLU is a pass of its own over z as it is stored, which a
// library's GeLU, taken before z is rounded, is not the same as to the bit.
//
// Nothing here knows a vendor: kernels/gemm_tuner.hpp is the door to one.
#ifndef TRIREME_KERNELS_GEMM_TABLE_HPP_
#define TRIREME_KERNELS_GEMM_TABLE_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/product_shape.hpp"

namespace trireme::kernels {

// What algorithms are of: the same algorithm of the same library on the same model of
// device computes the same bits.
struct GemmLibrary {
  std::string name;        // "cuBLASLt 13.1.0"; empty where products have no choice
  std::string device;      // "NVIDIA H100 80GB HBM3"
  std::string capability;  // "9.0"
  int multiprocessors = 0;

  bool is_empty() const { return name.empty(); }
  // "cuBLASLt 13.1.0 on NVIDIA H100 80GB HBM3 (9.0, 132 multiprocessors)"
  std::string text() const;
  bool operator==(const GemmLibrary&) const = default;
};

// How one product is computed.
struct GemmChoice {
  // As the library describes an algorithm to itself (cublasLtMatmulAlgo_t); not used
  // where the product and its epilogue are two passes.
  using Algorithm = std::array<std::uint64_t, 8>;

  bool in_two_passes = false;  // first_pass_of() it, and then a pass over that
  Algorithm algorithm{};
  std::size_t workspace_bytes = 0;  // that the algorithm takes
  int proposal = 0;                 // its place among the library's proposals, from 0
  int proposals = 1;                // how many were timed
  // Medians of the choice, and of what would have been taken untimed. 0: not timed.
  double seconds = 0.0, untimed_seconds = 0.0;
  std::string about{};  // the algorithm, for people

  // Whether both compute the same bits.
  bool computes_as(const GemmChoice& other) const {
    return in_two_passes == other.in_two_passes && algorithm == other.algorithm;
  }
};

struct GemmTable {
  GemmLibrary library;
  std::map<ProductShape, GemmChoice> products;

  // Takes what this table does not have. What it has stays: a run's product is chosen
  // once. Error where the other is of another library or device.
  void add(const GemmTable& other);
  bool has(const ProductShape& shape) const { return products.count(shape) > 0; }
};

// What is computed first where a product with an epilogue is done in two passes: a GeLU
// takes z, with its bias, from where it is kept, or from C; a bias and a residual come to
// the bare product. Products without an epilogue are their own.
ProductShape first_pass_of(const ProductShape& shape);

// Whether a product would be computed so if there were no table.
bool is_untimed_choice(const ProductShape& shape, const GemmChoice& choice);

// Whether C, or a residual, is read as a rule: where A is transposed the product is a
// weight's gradient, which all micro-batches but the first add to.
bool adds_as_a_rule(const ProductShape& shape);
// Bytes that timing a product takes: of all that it reads and writes, with what is added
// apart from the result.
std::size_t trial_bytes(const ProductShape& shape);

// Which rank times which products: each is some rank's, with the products that its first
// pass, and the first pass of that, are, before it. The largest are dealt first, each to
// who has the least to compute.
std::vector<std::vector<ProductShape>> deal_products(
    const std::vector<ProductShape>& shapes, int ranks);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_GEMM_TABLE_HPP_
