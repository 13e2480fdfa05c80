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
#include "data/batch.hpp"
#include "data/tokenizer.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::data {

// Lines with their ends. The batch has all fields of the spec, and this column.
std::string sample_text(const BatchSpec& spec, const Batch& batch, index_t column,
                        const Tokenizer& tokenizer);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SAMPLE_TEXT_HPP_
