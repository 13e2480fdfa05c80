// ckpt/dialects/bert.hpp — BERTs as Hugging Face Transformers keeps them: BertModel's,
// whose norms stand behind the sums, and MegatronBertModel's, whose norms stand before
// the branches.
//
// Matrices lie as ours; queries, keys and values are three there. A model may have been
// saved without its heads (BertModel), or without that of pairs (BertForMaskedLM). The
// head over words is tied, so that cls.predictions.decoder is another name of the word
// embedding and of the vocabulary's bias. Files that began with TensorFlow call weight
// and bias of a norm gamma and beta. Reference: transformers, models/{bert,
// megatron_bert}/{configuration,modeling}_*.py.
#ifndef TRIREME_CKPT_DIALECTS_BERT_HPP_
#define TRIREME_CKPT_DIALECTS_BERT_HPP_

#include "ckpt/dialect.hpp"

namespace trireme::ckpt {

Dialect bert_dialect();
Dialect megatron_bert_dialect();

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_DIALECTS_BERT_HPP_
