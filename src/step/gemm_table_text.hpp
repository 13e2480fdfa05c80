// step/gemm_table_text.hpp — a table of products (kernels/gemm_table.hpp) as text: JSON
// with one line for each product, in checkpoints, in gemm_table.json of a run, and from
// rank to rank.
#ifndef TRIREME_STEP_GEMM_TABLE_TEXT_HPP_
#define TRIREME_STEP_GEMM_TABLE_TEXT_HPP_

#include <string>
#include <string_view>
#include <vector>

#include "base/product_shape.hpp"
#include "kernels/gemm_table.hpp"

namespace trireme::step {

// Empty where there is no choice of algorithms.
std::string text_of(const kernels::GemmTable& table);
// InputError where a text is no such table, or one that no library can have made; `what`
// says what text it is. An empty text is an empty table.
kernels::GemmTable gemm_table_from(std::string_view text, const std::string& what);

// Products alone.
std::string text_of(const std::vector<ProductShape>& shapes);
std::vector<ProductShape> product_shapes_from(std::string_view text);

}  // namespace trireme::step

#endif  // TRIREME_STEP_GEMM_TABLE_TEXT_HPP_
