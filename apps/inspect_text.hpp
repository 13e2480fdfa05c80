// apps/inspect_text.hpp — what `trireme inspect` prints of the JSON that
// run::inspect() gives: the model, its training and its losses first, tensors by layer
// last. Lines fit 80 columns where paths and names let them.
#ifndef TRIREME_APPS_INSPECT_TEXT_HPP_
#define TRIREME_APPS_INSPECT_TEXT_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme::apps {

// Ends with a newline.
std::string inspect_text(const nlohmann::ordered_json& json);

}  // namespace trireme::apps

#endif  // TRIREME_APPS_INSPECT_TEXT_HPP_
