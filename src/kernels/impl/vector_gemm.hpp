// kernels/impl/vector_gemm.hpp — products of 16-bit elements by float's instructions: the
// operands are widened where they are packed, and what a linear layer does next is done
// while the result lies in cache.
//
// Widened by passes of their own and multiplied by oneDNN 2.6's sgemm, GPT-2 124M's
// products took a tenth more time on two cores with AVX-512, and 17 MiB. For float itself
// oneDNN is the faster, by 7 %: twice the bytes go through packing.
#ifndef TRIREME_KERNELS_IMPL_VECTOR_GEMM_HPP_
#define TRIREME_KERNELS_IMPL_VECTOR_GEMM_HPP_

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/exec.hpp"
#include "base/types.hpp"
#include "kernels/impl/narrow_gemm.hpp"

namespace trireme::kernels::impl {

// The products of one instruction set.
struct VectorSet {
  std::string_view name;
  index_t tile_rows, tile_columns;  // of C, held in registers: parts are cut at these
  std::size_t workspace_bytes;      // of a thread, from a multiple of 64 on
  // Each computes one part of C; `workspace` belongs to this call. The bits of C do not
  // depend on how it is cut.
  void (*part_of_bf16)(const FusedProduct<bf16>&, const PartOfC&, std::byte* workspace);
  void (*part_of_fp16)(const FusedProduct<fp16>&, const PartOfC&, std::byte* workspace);

  template <class T>
  auto part_of() const {
    if constexpr (std::is_same_v<T, bf16>) {
      return part_of_bf16;
    } else {
      return part_of_fp16;
    }
  }
};

extern const VectorSet kPlainVectors;
#if defined(__x86_64__)
extern const VectorSet kAvx2Vectors, kAvx512Vectors;
#endif

// All that this CPU has and ONEDNN_MAX_CPU_ISA allows, the widest first.
std::vector<const VectorSet*> vector_sets();
const VectorSet& fastest_vector_set();

// C in parts, one for each of `threads` or fewer, for the least time of the slowest.
std::vector<PartOfC> vector_parts(const Product& product, const VectorSet& set,
                                  index_t threads);

template <class T>
void vector_product(const Exec& exec, const FusedProduct<T>& task);

// What these products keep for a queue at most, and what `exec`'s has kept.
std::size_t vector_workspace_bytes();
std::size_t vector_kept_bytes(const Exec& exec);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_VECTOR_GEMM_HPP_
