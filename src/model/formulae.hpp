// model/formulae.hpp — what a model costs, in closed form.
//
// FLOPs count a multiply-add as two, matrix products only, as the Megatron papers do
// (Narayanan et al. 2021, appendix; Korthikanti et al. 2022, appendix A).
#ifndef TRIREME_MODEL_FORMULAE_HPP_
#define TRIREME_MODEL_FORMULAE_HPP_

#include "base/types.hpp"
#include "model/blueprint.hpp"

namespace trireme::model {

// Parameters: L (4 h^2 + 2 h f + 9 h + f) + 2 h + V h + s h for g = a; the same as
// 12 L h^2 (1 + 13 / (12 h) + (V + s) / (12 L h)) + 2 h where f = 4 h. That is GPT-2; of
// its variants, a head of its own has V h more, a gated feed-forward block a third matrix
// (and its bias), rope no s h, RMSNorm no bias, and without `bias` there is none
// anywhere. Relative positions are refused.
index_t parameter_count(const Architecture& config);

// How attention is counted: `full` as in the Megatron papers (s^2 scores per head,
// whatever the mask), `causal` the half of it that is needed.
enum class AttentionCount { full, causal };

// One forward pass of a block over `samples` sequences of `sequence` tokens.
double forward_flops(const BlockSpec& block, index_t samples, index_t sequence,
                     AttentionCount count = AttentionCount::full);

// One forward pass of all layers, embedding and head left out: what recomputing all of
// them (`memory.recompute: full`) adds to a step.
double layers_forward_flops(const Architecture& config, index_t samples, index_t sequence,
                            AttentionCount count = AttentionCount::full);

// One forward and backward pass over `samples` sequences of `sequence` tokens without
// recomputation: 72 B s L h^2 (1 + s / (6 h) + V / (12 L h)) for f = 4 h, g = a, full
// count.
double model_flops(const Architecture& config, index_t samples, index_t sequence,
                   AttentionCount count = AttentionCount::full);

}  // namespace trireme::model

#endif  // TRIREME_MODEL_FORMULAE_HPP_
