// kernels/gemm_table.cpp — see gemm_table.hpp.
#include "kernels/gemm_table.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::kernels {

std::string GemmLibrary::text() const {
  return fmt::format("{} on {} ({}, {})", name, device, capability,
                     format_plural(multiprocessors, "multiprocessor"));
}

void GemmTable::add(const GemmTable& other) {
  TRIREME_REQUIRE(library == other.library,
                  "a table of products of {} cannot take those of {}", library.text(),
                  other.library.text());
  products.insert(other.products.begin(), other.products.end());
}

ProductShape first_pass_of(const ProductShape& shape) {
  ProductShape first = shape;
  if (shape.has_gelu) {
    if (shape.ld_kept > 0) first.ldc = shape.ld_kept;
    first.has_gelu = false;
    first.ld_kept = 0;
  } else {
    first.has_bias = false;
    first.ld_residual = 0;
  }
  return first;
}

bool is_untimed_choice(const ProductShape& shape, const GemmChoice& choice) {
  if (shape.has_gelu) return choice.in_two_passes;
  return !choice.in_two_passes && choice.proposal == 0;
}

bool adds_as_a_rule(const ProductShape& shape) {
  return shape.ld_residual > 0 || shape.transpose_a;
}

std::size_t trial_bytes(const ProductShape& shape) {
  const index_t ld_added = shape.ld_residual > 0 ? shape.ld_residual : shape.ldc;
  const auto bytes = [](index_t rows, index_t leading, DType type) {
    return extent(rows) * extent(leading) * size_of(type);
  };
  return bytes(shape.transpose_a ? shape.k : shape.m, shape.lda, shape.type) +
         bytes(shape.transpose_b ? shape.n : shape.k, shape.ldb, shape.type) +
         bytes(shape.m, shape.ldc, shape.type_c) +
         bytes(shape.m, shape.ld_kept, shape.type_c) +
         bytes(shape.m, adds_as_a_rule(shape) ? ld_added : 0, shape.type_c) +
         bytes(shape.has_bias ? 1 : 0, shape.n, shape.type_c);
}

std::vector<std::vector<ProductShape>> deal_products(
    const std::vector<ProductShape>& shapes, int ranks) {
  // Sets, so that the deal does not depend on the order of what is asked for: of the
  // products that begin with the same bare one, by how many passes come behind that.
  std::map<ProductShape, std::map<int, std::set<ProductShape>>> groups;
  for (const ProductShape& shape : shapes) {
    std::vector<ProductShape> passes = {shape};
    while (passes.back().has_epilogue()) {
      passes.push_back(first_pass_of(passes.back()));
    }
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const auto behind = static_cast<int>(passes.size() - 1 - i);
      groups[passes.back()][behind].insert(passes[i]);
    }
  }
  std::vector<std::vector<ProductShape>> parts;
  for (const auto& [bare, by_passes] : groups) {
    std::vector<ProductShape>& part = parts.emplace_back();
    for (const auto& [behind, all] : by_passes) {
      part.insert(part.end(), all.begin(), all.end());
    }
  }
  const auto flops = [](const std::vector<ProductShape>& part) {
    return part.front().flops() * static_cast<double>(part.size());
  };
  std::ranges::stable_sort(parts, std::ranges::greater(), flops);
  std::vector<std::vector<ProductShape>> dealt(extent(ranks));
  std::vector<double> loads(extent(ranks), 0.0);
  for (const std::vector<ProductShape>& part : parts) {
    const auto rank = std::ranges::min_element(loads) - loads.begin();
    loads[extent(rank)] += flops(part);
    dealt[extent(rank)].insert(dealt[extent(rank)].end(), part.begin(), part.end());
  }
  return dealt;
}

}  // namespace trireme::kernels
