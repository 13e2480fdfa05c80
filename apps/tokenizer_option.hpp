// apps/tokenizer_option.hpp — what --tokenizer names, for the subcommands that have it.
#ifndef TRIREME_APPS_TOKENIZER_OPTION_HPP_
#define TRIREME_APPS_TOKENIZER_OPTION_HPP_

#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace trireme::apps {

// gpt2 (its files beside the executable, or in TRIREME_GPT2_DIR); the files or directory
// of a tokenizer; or a corpus, for the one it was made with, a checkpoint or a run, for
// that of its corpus. InputError otherwise.
data::Tokenizer load_tokenizer(const std::vector<std::string>& names);

}  // namespace trireme::apps

#endif  // TRIREME_APPS_TOKENIZER_OPTION_HPP_
