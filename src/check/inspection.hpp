// check/inspection.hpp — what `inspect` shows: ckpt/describe.hpp finds out what files
// hold; of a checkpoint or a run, the deck in it and the records beside it say the rest.
#ifndef TRIREME_CHECK_INSPECTION_HPP_
#define TRIREME_CHECK_INSPECTION_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ckpt/verify.hpp"
#include "io/files.hpp"

namespace trireme::check {

// JSON: the keys of ckpt::describe(), and of a checkpoint or a run
//   model     kind, layers, hidden, heads, kv_heads, head_size, ffn_hidden, and what else
//             the kind has (model/facts.hpp: sequence, vocabulary ...), parameters
//   training  step, steps, finished, samples, tokens; where they are known loss {step,
//             value}, validation [{name, step, loss}], best_validation {step, loss}
//   deck      as text; of a run, that of its last start
// `deck_problem` says why the deck could not be read, and there is no model then;
// `records_problem` of training says the same of train.jsonl. Errors are those of
// ckpt::describe().
std::string inspect(const io::Path& path, ckpt::Depth depth);

// The text for people of what inspect() returns: the model, its training and its losses
// first, tensors by layer last. Lines fit 80 columns where paths and names let them. Ends
// with a newline.
std::string inspection_text(const nlohmann::ordered_json& json);

}  // namespace trireme::check

#endif  // TRIREME_CHECK_INSPECTION_HPP_
