// model/bert.hpp — BERT as a list of blocks (Devlin et al. 2019): embedding with types of
// tokens, layers that see both ways, and two heads. With norms before its branches it is
// the paper's rearranged BERT (Shoeybi et al. 2019, section 5.3), which ends with a norm.
//
//   block    embedding   layers/0 ...   final_norm(1)   pair_head(2)   masked_head
//   stream   text        text           text            text           predictions
//   reads                hidden         hidden          hidden         hidden
//   makes    hidden      hidden         hidden          (passes)
//
//   (1) model.norm_placement: pre   (2) model.binary_head: true
// Logits are computed at the masked positions alone, which are a stream of their own.
//
// A sample of a model that is used (model::Use) is one text, without a second segment:
// behind the layers stands, in the place of both heads, `pool` for vectors, which gives
// the mean of a text's rows and then the row of its first position, (b, 2 h); or for
// words the masked head, which gives its logits.
#ifndef TRIREME_MODEL_BERT_HPP_
#define TRIREME_MODEL_BERT_HPP_

#include "model/blueprint.hpp"
#include "model/facts.hpp"

namespace trireme::model {

Blueprint bert_blueprint(const Architecture& architecture, Use use);
Facts bert_facts(const Architecture& architecture);

}  // namespace trireme::model

#endif  // TRIREME_MODEL_BERT_HPP_
