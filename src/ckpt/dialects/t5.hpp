// ckpt/dialects/t5.hpp — T5 as Hugging Face Transformers keeps it: v1.0, whose feed-
// forward blocks have a ReLU and whose head is the word embedding; and v1.1, with a gated
// GeLU and a head of its own.
//
// Matrices lie as ours. Queries, keys and values are three there, keys and values of
// attention to the encoder two, gate and what it gates two. The word embedding stands
// under up to four names in old files. With a tied head, what it reads is multiplied by
// d_model^-1/2. Reference: transformers, models/t5/{configuration,modeling}_t5.py.
#ifndef TRIREME_CKPT_DIALECTS_T5_HPP_
#define TRIREME_CKPT_DIALECTS_T5_HPP_

#include "ckpt/dialect.hpp"

namespace trireme::ckpt {

Dialect t5_dialect();

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_DIALECTS_T5_HPP_
