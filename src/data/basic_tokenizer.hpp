// data/basic_tokenizer.hpp — BERT's basic tokenizer (Devlin et al. 2019): text to cleaned
// words, which WordPiece then looks for in its vocabulary.
//
// What Hugging Face's BertNormalizer and BertPreTokenizer do together, in their order:
// control characters, U+0000 and U+FFFD removed; white space separates words; every
// Chinese character a word of its own; accents stripped (decomposed by NFD, nonspacing
// marks dropped, Hangul syllables left in their letters); lower case; every punctuation
// character a word of its own. Each step but the second and the last by an option.
#ifndef TRIREME_DATA_BASIC_TOKENIZER_HPP_
#define TRIREME_DATA_BASIC_TOKENIZER_HPP_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::data {

// Named as in tokenizer.json and tokenizer_config.json. There strip_accents may be null,
// which stands for what lowercase says.
struct BasicTokenizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;

  static BasicTokenizerOptions uncased() { return {}; }
  static BasicTokenizerOptions cased() {
    return {.strip_accents = false, .lowercase = false};
  }
};

// Immutable, shared by threads; each thread scans with a Scanner of its own.
class BasicTokenizer {
 public:
  explicit BasicTokenizer(const BasicTokenizerOptions& options);

  const BasicTokenizerOptions& options() const { return options_; }

  class Scanner;

 private:
  class Table;
  BasicTokenizerOptions options_;
  std::shared_ptr<const Table> table_;
};

// A word, and the bytes of the text that it was made of: from its first character of
// which something stayed to its last. It is never empty.
struct Word {
  std::string_view text;  // until the next word is asked for
  std::size_t begin = 0;
  std::size_t end = 0;
};

class BasicTokenizer::Scanner {
 public:
  explicit Scanner(const BasicTokenizer& tokenizer);

  // `text` must be valid UTF-8 (base/utf8.hpp repairs what is not) and stay in place
  // while it is scanned.
  void start(std::string_view text);
  // The next word; false at the end of the text.
  bool next(Word& word);

 private:
  enum class Step { goes_on, ends_before, ends_behind };
  void take_plain_bytes();
  Step take_character();
  void append(std::string_view bytes);
  void append_hangul(char32_t syllable);
  void append_in_order(std::string_view characters);
  void close_marks();

  std::shared_ptr<const Table> table_;
  std::string_view text_;
  std::size_t at_ = 0;
  // The word so far: the first length_ bytes of buffer_.
  std::string buffer_;
  std::size_t length_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  // The latest marks in a row, which are put in order when something else follows.
  std::size_t marks_begin_ = 0;
  std::size_t marks_end_ = 0;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_BASIC_TOKENIZER_HPP_
