// run/definitions.hpp — by which definitions a run goes on: where a later version of the
// program draws or makes something otherwise, a run under way is told so.
//
// Each is on record with its version and the step after which it came to hold, as two
// numbers below /extra of index.h5, NAME and NAME_since. A run that has begun without
// them is of version 1. For some hours before the numbers were kept, BERT's samples were
// made by version 2 already: a run of that time is told of a change that it does not
// have.
#ifndef TRIREME_RUN_DEFINITIONS_HPP_
#define TRIREME_RUN_DEFINITIONS_HPP_

#include <string>

#include "ckpt/training_state.hpp"
#include "data/datasets.hpp"

namespace trireme::run {

// Makes `state` one of a run that draws its masks by this program's definition
// (random::DropoutWords) from the next step on: `dropout_words`. What to tell the user
// where that changes masks of a run under way (`drops`: its model has dropout), else
// nothing. InputError where the state is of a later version than this program knows.
std::string adopt_dropout_words(ckpt::TrainingState& state, bool drops);

// And one that makes its samples by this program's rules (data/sample_rules.hpp), in the
// same way: `sample_rules`.
std::string adopt_sample_rules(ckpt::TrainingState& state,
                               const data::Datasets& datasets);

}  // namespace trireme::run

#endif  // TRIREME_RUN_DEFINITIONS_HPP_
