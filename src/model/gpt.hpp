// model/gpt.hpp — GPT as a list of blocks (Radford et al. 2019: pre-LayerNorm, learned
// positions, tied head): embedding, layers, head. What goes from block to block is the
// residual stream, "hidden".
#ifndef TRIREME_MODEL_GPT_HPP_
#define TRIREME_MODEL_GPT_HPP_

#include "model/blueprint.hpp"

namespace trireme::model {

Blueprint gpt_blueprint(const Architecture& architecture);

}  // namespace trireme::model

#endif  // TRIREME_MODEL_GPT_HPP_
