// step/settled_products.hpp — by which algorithms the ranks of a start multiply, settled
// together before its first step.
//
// All ranks take one table: each product is timed by one of them, and the others take its
// word, as ranks that compute the same part of the model must have the same bits. What
// the run's table has already is not timed again, for the same reason.
#ifndef TRIREME_STEP_SETTLED_PRODUCTS_HPP_
#define TRIREME_STEP_SETTLED_PRODUCTS_HPP_

#include <functional>
#include <string>
#include <vector>

#include "base/exec.hpp"
#include "base/product_shape.hpp"
#include "ckpt/training_state.hpp"
#include "comm/communicator.hpp"
#include "kernels/gemm_table.hpp"
#include "kernels/gemm_tuner.hpp"
#include "step/replica.hpp"

namespace trireme::step {

// What a checkpoint calls the run's table, and the table that it has; empty: none.
inline constexpr const char* kGemmTableText = "gemm_table";
std::string stored_gemm_table(const ckpt::TrainingState& state);

// What is given to settle_products().
struct ProductRequest {
  // The table that the run has so far (gemm_table_text.hpp); empty: none. Rank 0's
  // counts.
  std::string stored;
  // Whether products that the table does not have are timed; else the library's first
  // proposal stays.
  bool times = false;
  // This rank's products; asked for only where they are timed.
  std::function<std::vector<ProductShape>()> occurring;
};

struct SettledProducts {
  kernels::GemmTable table;
  std::string note;  // what was timed; empty: nothing
  std::string
      warning;  // what of the stored table cannot be kept, or why none can be made
};

// Collective. Where products have no choice, a table that is empty.
SettledProducts settle_products(comm::Communicator& world, kernels::GemmTuner& tuner,
                                const ProductRequest& request);

// The products of a step of this replica, by a pass on shapes. Ranks that do the work of
// another, on other samples, have none to tell.
std::vector<ProductShape> products_of(const Replica& replica, const StepShape& shape);

// How an evaluation or a generation multiplies: as the run that it is of, where this is
// the library and the device of that.
void multiply_as_in(const Exec& exec, const ckpt::TrainingState& run);

}  // namespace trireme::step

#endif  // TRIREME_STEP_SETTLED_PRODUCTS_HPP_
