// Corpora that BERT and T5 can be trained on, of some 7 KB of text: the parity tests'
// sample.txt by one of their tokenizers (tests/parity/fixtures/tokenizer).
#ifndef TRIREME_REGRESSION_CLI_SAMPLE_CORPORA_HPP_
#define TRIREME_REGRESSION_CLI_SAMPLE_CORPORA_HPP_

#include <filesystem>
#include <string>
#include <vector>

#include "regression/cli/workplace.hpp"

namespace trireme::test {

// Of a text, by this tokenizer, with more options of `trireme tokenize`.
inline void make_corpus_of(const std::filesystem::path& text,
                           const std::filesystem::path& out, const std::string& tokenizer,
                           const std::vector<std::string>& options) {
  const fs::path place = source_file("tests/parity/fixtures/tokenizer");
  std::vector<std::string> arguments = {"tokenize", "--tokenizer", place / tokenizer,
                                        "--out", out};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.push_back(text);
  const RunResult result = trireme(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
}
inline void make_sample_corpus(const std::filesystem::path& out,
                               const std::string& tokenizer,
                               std::vector<std::string> options) {
  options.insert(options.end(), {"--documents", "blank-line"});
  make_corpus_of(source_file("tests/parity/fixtures/tokenizer/sample.txt"), out,
                 tokenizer, options);
}

// In WordPiece, with its sentences.
inline void make_sample_corpus_of_bert(const std::filesystem::path& out) {
  make_sample_corpus(out, "uncased", {"--sentences", "en"});
}
// In pieces of SentencePiece, with sentinels.
inline void make_sample_corpus_of_t5(const std::filesystem::path& out) {
  make_sample_corpus(out, "unigram.model", {"--extra-ids", "100"});
}

}  // namespace trireme::test

#endif  // TRIREME_REGRESSION_CLI_SAMPLE_CORPORA_HPP_
