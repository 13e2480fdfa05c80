// data/sample_text.hpp — a sample as the model sees it, for people.
//
// Fields are told by what they hold, and no name or kind of model is known here: words
// are text, the rows that another stream predicts are braced in it, and other numbers are
// listed by their runs. For example, of BERT:
//
//   text, 16 positions
//     tokens            "[CLS] it is {[MASK]} . [SEP]" and 10 of padding
//     token_types       0 x 16
//     lengths           6
//   predictions, 2 positions
//     masked_positions  3, -1
//     masked_labels     " done", " [PAD]"
#ifndef TRIREME_DATA_SAMPLE_TEXT_HPP_
#define TRIREME_DATA_SAMPLE_TEXT_HPP_

#include <string>

#include "base/types.hpp"
#include "data/sample_maker.hpp"
#include "data/tokenizer.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::data {

// The sample at this position of a run, of all fields of the spec. Lines with their ends.
std::string sample_text(const BatchSpec& spec, SampleMaker& maker, index_t position,
                        const Tokenizer& tokenizer);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SAMPLE_TEXT_HPP_
