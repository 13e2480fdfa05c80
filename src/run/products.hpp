// run/products.hpp — by which instructions a run multiplies matrices of its 16-bit type,
// by which algorithms of a library where there is a choice of them, and by whose kernels
// it computes attention.
#ifndef TRIREME_RUN_PRODUCTS_HPP_
#define TRIREME_RUN_PRODUCTS_HPP_

#include <string>

#include "ckpt/training_state.hpp"
#include "config/deck.hpp"
#include "kernels/gemm_table.hpp"
#include "kernels/narrow_gemm.hpp"

namespace trireme::run {

// Keeps the instructions of this start's ranks (step::ProductWays::names) on record, with
// the type that they are of: text `product_instructions`, below /extra of index.h5;
// nothing for types that have no choice. What to tell the user where they are others than
// those by which the run has multiplied this type so far, so that rounding differs from
// what it would have been, else nothing.
std::string adopt_products(ckpt::TrainingState& state, const config::Deck& deck,
                           const std::string& instructions);

// Keeps the algorithms of this start on record: text `gemm_table`, below /extra of
// index.h5, and nothing where there is no choice. What to tell the user where a product
// is computed in another way than by the run's record so far, else nothing. InputError
// where that record cannot be read.
std::string adopt_gemm_table(ckpt::TrainingState& state, const config::Deck& deck,
                             const kernels::GemmTable& table);

// Keeps on record whose kernels attention is computed by (step::attention_ways()): text
// `attention_kernels`, below /extra of index.h5, and nothing where there is no choice.
// What to tell the user where they are others than those of the run so far, else nothing.
std::string adopt_attention(ckpt::TrainingState& state, const std::string& kernels);

// What to tell the user at a start, once: that this device multiplies the type by
// widening. Empty where it does not.
std::string say_products(const config::Deck& deck, kernels::NarrowProducts products);

}  // namespace trireme::run

#endif  // TRIREME_RUN_PRODUCTS_HPP_
