// inference/prompts.hpp — what is to be continued, from a command line and from files.
#ifndef TRIREME_INFERENCE_PROMPTS_HPP_
#define TRIREME_INFERENCE_PROMPTS_HPP_

#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace trireme::inference {

// What is to be continued: text, or token ids where there is no tokenizer.
struct Prompt {
  std::string text;
  std::vector<data::TokenId> ids;
  bool is_text = true;
};

// Prompts as a user gives them.
struct PromptSources {
  std::vector<std::string> texts;
  std::vector<std::string> ids;  // "15496 11 995" or "15496,11,995"
  // One prompt a line; of a .jsonl file the string "prompt" or the list "ids" of each.
  std::string file;
};

// Texts, ids and the file's, each with its tokens, and with a text as far as there is
// one; where nothing is given, the one empty prompt that begins a document. InputError:
// no such file, what is no prompt, or text for a model without a tokenizer (`model` names
// it).
std::vector<Prompt> read_prompts(const PromptSources& sources,
                                 const std::optional<data::Tokenizer>& tokenizer,
                                 const std::string& model);

}  // namespace trireme::inference

#endif  // TRIREME_INFERENCE_PROMPTS_HPP_
