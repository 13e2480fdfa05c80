// ckpt/foreign_tokenizer.hpp — the tokenizer's files in a directory of Hugging Face's:
// read beside the weights, and written there under the names that transformers looks for.
#ifndef TRIREME_CKPT_FOREIGN_TOKENIZER_HPP_
#define TRIREME_CKPT_FOREIGN_TOKENIZER_HPP_

#include <optional>

#include "base/log.hpp"
#include "ckpt/dialect.hpp"
#include "data/tokenizer.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

// The files of a directory's tokenizer, as corpora have them that are made with it
// (trireme tokenize --tokenizer DIRECTORY). Empty where there are none. InputError where
// Trireme cannot use them, where the tokenizer has tokens for which the model has no row,
// and where the model has more rows without a token than padding explains: it is another
// model's, or cut short.
data::TokenizerFiles find_tokenizer(const io::Path& directory, const Dialect& dialect,
                                    const ForeignConfig& config, Log& log);

struct WrittenTokenizer {
  // As transformers reads them, with a tokenizer_config.json where there was none.
  data::TokenizerFiles files;
  // What data::kTokensKey of a config.json is to say; none where padding explains the
  // rows without a token, or there is no tokenizer.
  std::optional<index_t> tokens = {};
};

// Of a checkpoint's files. InputError as above.
WrittenTokenizer for_transformers(const data::TokenizerFiles& files,
                                  const Dialect& dialect, const ForeignConfig& config);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_FOREIGN_TOKENIZER_HPP_
