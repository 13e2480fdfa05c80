// kernels/vector_gemm_host.cpp — which vectors widened products are computed on, and the
// cut of C among threads; see impl/vector_gemm.hpp.
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "base/exec.hpp"
#include "kernels/impl/narrow_gemm.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/thread_count.hpp"
#include "kernels/impl/vector_gemm.hpp"

namespace trireme::kernels::impl {

namespace {

#if defined(__x86_64__)
// One switch, ONEDNN_MAX_CPU_ISA, governs all products.
bool is_allowed(int isa) {
  return (dnnl_get_effective_cpu_isa() & isa) == isa;
}
#endif

// What a queue keeps for these products.
struct VectorState final : LibraryState {
  ProductParts parts;
};

ProductParts& parts_of(const Exec& exec) {
  return exec.library<VectorState>([] { return std::make_unique<VectorState>(); }).parts;
}

}  // namespace

std::vector<const VectorSet*> vector_sets() {
  std::vector<const VectorSet*> sets;
#if defined(__x86_64__)
  if (is_allowed(dnnl_cpu_isa_avx512_core)) sets.push_back(&kAvx512Vectors);
  if (is_allowed(dnnl_cpu_isa_avx2)) sets.push_back(&kAvx2Vectors);
#endif
  sets.push_back(&kPlainVectors);
  return sets;
}

const VectorSet& fastest_vector_set() {
  static const VectorSet& fastest = *vector_sets().front();
  return fastest;
}

std::vector<PartOfC> vector_parts(const Product& product, const VectorSet& set,
                                  index_t threads) {
  const index_t rows = ceil_divide(product.m, set.tile_rows);
  const index_t columns = ceil_divide(product.n, set.tile_columns);
  // Rough costs, of which only the proportions matter: of a tile, and of packing as much
  // of A and of B for it.
  const double tile = static_cast<double>(set.tile_rows);
  const double pack_a = tile, pack_b = static_cast<double>(set.tile_columns) / 2;
  index_t row_parts = 1, column_parts = 1;
  double least = std::numeric_limits<double>::infinity();
  for (index_t r = 1; r <= std::min(rows, threads); ++r) {
    const index_t c = std::min(columns, threads / r);
    const auto height = static_cast<double>(ceil_divide(rows, r));
    const auto width = static_cast<double>(ceil_divide(columns, c));
    const double cost = height * width * tile + height * pack_a + width * pack_b;
    if (cost < least) {
      least = cost;
      row_parts = r;
      column_parts = c;
    }
  }
  return parts_of_tiles(product, set.tile_rows, set.tile_columns, row_parts,
                        column_parts);
}

template <class T>
void vector_product(const Exec& exec, const FusedProduct<T>& task) {
  const VectorSet& set = fastest_vector_set();
  ProductParts& kept = parts_of(exec);
  const std::vector<PartOfC>& parts = kept.of(task.product, [&](const Product& product) {
    return vector_parts(product, set, thread_count());
  });
  std::byte* const workspace = kept.workspaces(set.workspace_bytes);
  launch(exec, "trireme::kernels::vector_product", static_cast<index_t>(parts.size()),
         [=, &task, &set, &parts](index_t worker) {
           set.part_of<T>()(task, parts[extent(worker)],
                            workspace + extent(worker) * set.workspace_bytes);
         });
}

std::size_t vector_workspace_bytes() {
  return workspaces_bytes(fastest_vector_set().workspace_bytes);
}
std::size_t vector_kept_bytes(const Exec& exec) {
  return parts_of(exec).kept_bytes();
}

template void vector_product<bf16>(const Exec&, const FusedProduct<bf16>&);
template void vector_product<fp16>(const Exec&, const FusedProduct<fp16>&);

}  // namespace trireme::kernels::impl
