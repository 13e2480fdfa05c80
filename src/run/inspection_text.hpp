// run/inspection_text.hpp — what `trireme inspect` prints of the JSON that
// run::inspect() gives: the model, its training and its losses first, tensors by layer
// last. Lines fit 80 columns where paths and names let them.
#ifndef TRIREME_RUN_INSPECTION_TEXT_HPP_
#define TRIREME_RUN_INSPECTION_TEXT_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme::run {

// Ends with a newline.
std::string inspection_text(const nlohmann::ordered_json& json);

}  // namespace trireme::run

#endif  // TRIREME_RUN_INSPECTION_TEXT_HPP_
