// data/pre_tokenizer.hpp — cuts text into the pieces that byte-pair merges stay within.
//
// GPT-2's pattern by default (Radford et al. 2019), run by PCRE2's JIT. Letters and
// numbers are those of Unicode 16 and white space is Unicode's White_Space, whatever
// PCRE2's own Unicode version is; patterns of other tokenizers run with PCRE2's tables.
#ifndef TRIREME_DATA_PRE_TOKENIZER_HPP_
#define TRIREME_DATA_PRE_TOKENIZER_HPP_

#include <memory>
#include <string>
#include <string_view>

namespace trireme::data {

// Immutable, shared by threads; each thread scans with a Scanner of its own.
class PreTokenizer {
 public:
  static PreTokenizer gpt2();
  // InputError when PCRE2 does not accept the pattern.
  explicit PreTokenizer(const std::string& pattern);
  // Cuts nothing: the whole text is one piece.
  static PreTokenizer none();

  // Whether text may be cut where a non-space is followed by a line feed or a space, each
  // side tokenized alone with the same result: known of GPT-2's pattern (see
  // document_source.hpp), assumed of no other.
  bool can_cut_before_space() const { return is_gpt2_; }
  const std::string& pattern() const { return pattern_; }

  class Scanner;

 private:
  struct Code;  // a compiled pattern
  PreTokenizer() = default;

  std::string pattern_;
  bool is_gpt2_ = false;
  std::shared_ptr<const Code> usual_;
  std::shared_ptr<const Code> recent_;  // GPT-2's with characters PCRE2 may not know
};

class PreTokenizer::Scanner {
 public:
  explicit Scanner(const PreTokenizer& pre_tokenizer);
  ~Scanner();
  Scanner(Scanner&&) noexcept;
  Scanner& operator=(Scanner&&) noexcept;

  // `text` must be valid UTF-8 and stay in place while it is scanned.
  void start(std::string_view text);
  // The next piece; false at the end of the text. Pieces joined give the text.
  bool next(std::string_view& piece);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_PRE_TOKENIZER_HPP_
