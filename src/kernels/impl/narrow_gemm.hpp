// kernels/impl/narrow_gemm.hpp — products of 16-bit elements on the host, for gemm().
#ifndef TRIREME_KERNELS_IMPL_NARROW_GEMM_HPP_
#define TRIREME_KERNELS_IMPL_NARROW_GEMM_HPP_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/exec.hpp"
#include "base/types.hpp"
#include "kernels/gemm.hpp"
#include "kernels/narrow_gemm.hpp"

namespace trireme::kernels::impl {

// What a CPU says of itself (CPUID).
struct CpuModel {
  std::string vendor;  // "GenuineIntel", "AuthenticAMD"; empty where it is no x86
  int family = 0, model = 0;
  bool has_amx_bf16 = false, has_avx512_bf16 = false;
};
CpuModel this_cpu();

// The faster way for a type on a CPU, as far as it was measured; widened where it was
// not.
NarrowProducts fastest_products(DType type, const CpuModel& cpu);

// A product C (m, n) = or += op(A) op(B) as libraries take it: row-major, with the
// distance between rows as stored.
struct Product {
  Transpose transpose_a, transpose_b;
  Accumulate accumulate;
  index_t m, n, k;
  index_t lda, ldb, ldc;

  auto operator<=>(const Product&) const = default;
};

// A part of C, computed by one thread: rows [row, row_end), columns [column, column_end).
struct PartOfC {
  index_t row, row_end, column, column_end;
  index_t rows() const { return row_end - row; }
  index_t columns() const { return column_end - column; }
};

// C (m, n) as row_parts x column_parts parts of whole tiles, where C has them: of equal
// size, or one tile more; parts of the same columns follow each other.
std::vector<PartOfC> parts_of_tiles(const Product& product, index_t tile_rows,
                                    index_t tile_columns, index_t row_parts,
                                    index_t column_parts);

// C = or += op(A) op(B) [+ bias] [+ residual]; then, where there is an activation,
// C = activation(z) of that z, as it is rounded. Null pointers: left out. A float C has
// nothing but the product. T: bf16 or fp16.
template <class T>
struct FusedProduct {
  Product product;
  const T* a = nullptr;
  const T* b = nullptr;
  void* c = nullptr;  // T, or float
  bool is_c_float = false;
  const T* bias = nullptr;      // (n)
  const T* residual = nullptr;  // (m, n); may be C itself, where it is not added to
  index_t ld_residual = 0;
  T* pre_activation = nullptr;  // keeps z
  index_t ld_pre_activation = 0;
  // y[j] = activation(z[j]) for j in [0, count); y may be z.
  void (*activate)(const T* z, T* y, index_t count) = nullptr;
};

inline index_t ceil_divide(index_t a, index_t b) {
  return (a + b - 1) / b;
}

// The workspaces of threads begin at a line of the caches.
inline constexpr std::size_t kLine = 64;
inline std::byte* first_line(std::byte* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return memory + (kLine - address % kLine) % kLine;
}

// Bytes of a workspace for each thread.
std::size_t workspaces_bytes(std::size_t of_thread);

// What a queue keeps for products that threads compute part by part.
class ProductParts {
 public:
  // cut(product): C in parts. Asked once for each product.
  template <class Cut>
  const std::vector<PartOfC>& of(const Product& product, const Cut& cut) {
    auto found = parts_.find(product);
    if (found == parts_.end()) found = parts_.emplace(product, cut(product)).first;
    return found->second;
  }
  // The first of the threads' workspaces; they follow each other.
  std::byte* workspaces(std::size_t of_thread);
  std::size_t kept_bytes() const { return memory_.extent(0); }

 private:
  std::map<Product, std::vector<PartOfC>> parts_;
  DeviceArray<std::byte> memory_;
};

// The same as gemm(), of which it is the part for these types; k > 0. T: bf16 or fp16.
template <class T, class To>
void narrow_product(const Exec& exec, const Product& product, const T* a, const T* b,
                    To* c);

// Whether y = x W^T is computed together with its epilogue, and that: the product is the
// shape of x W^T, neither is empty. T: bf16 or fp16.
template <class T>
bool fuses_forward(const Exec& exec, const Product& product);
template <class T>
void fused_forward(const Exec& exec, const Product& product, View2<const T> x,
                   View2<const T> weight, const Epilogue<T>& epilogue, View2<T> y);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_NARROW_GEMM_HPP_
