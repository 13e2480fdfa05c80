// run/dropout_words.hpp — which definition of dropout's words a run draws its masks by.
#ifndef TRIREME_RUN_DROPOUT_WORDS_HPP_
#define TRIREME_RUN_DROPOUT_WORDS_HPP_

#include <string>

#include "ckpt/training_state.hpp"

namespace trireme::run {

// Makes `state` one of a run that draws its masks by this program's definition
// (random::DropoutWords) from the next step on, and keeps on record from which step that
// is: numbers `dropout_words` and `dropout_words_since`, below /extra of index.h5. What
// to tell the user where that changes masks of a run under way (`drops`: its model has
// dropout), else nothing. InputError where the state is of a later definition than this
// program knows.
std::string adopt_dropout_words(ckpt::TrainingState& state, bool drops);

}  // namespace trireme::run

#endif  // TRIREME_RUN_DROPOUT_WORDS_HPP_
