// ckpt/dialects/gpt2.hpp — GPT-2 as Hugging Face Transformers keeps it.
//
// Its matrices are Conv1D's (in, out), ours (out, in); c_attn is [q; k; v] by whole heads
// in both. The causal-mask buffers of old files (attn.bias, attn.masked_bias) are no
// weights; the head is tied, so that lm_head.weight is another name of the word
// embedding. Reference: transformers, models/gpt2/{configuration,modeling}_gpt2.py.
#ifndef TRIREME_CKPT_DIALECTS_GPT2_HPP_
#define TRIREME_CKPT_DIALECTS_GPT2_HPP_

#include "ckpt/dialect.hpp"

namespace trireme::ckpt {

Dialect gpt2_dialect();

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_DIALECTS_GPT2_HPP_
