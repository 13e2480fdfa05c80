// data/sentences.hpp — where the sentences of a document begin, by rules.
//
// A sentence ends after . ! ? … or 。！？, what closes behind them (quotes, brackets),
// and white space that a capital, a digit or a letter without case follows, perhaps
// behind what opens. It does not end with an abbreviation of the language, an initial
// ("J. S. Bach") or the number of a list. Marks of Chinese and Japanese end one without
// white space. A blank line always does; the end of a line does not.
//
// Known errors: a capital goes on after a mark within quotes ("Stop!" John cried), an
// ellipsis before "I", and an abbreviation that ends a sentence before a name.
#ifndef TRIREME_DATA_SENTENCES_HPP_
#define TRIREME_DATA_SENTENCES_HPP_

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::data {

// none: only blank lines end a sentence.
enum class Language {
  english,
  german,
  french,
  spanish,
  italian,
  portuguese,
  dutch,
  chinese,
  japanese,
  none
};

// The language of an ISO 639-1 code ("en"), or of "none"; InputError lists the codes.
Language language_of(std::string_view code);
std::string_view code_of(Language language);

// Immutable, and shared by threads.
class SentenceSplitter {
 public:
  explicit SentenceSplitter(Language language);

  // begins = the byte at which each sentence begins, ascending, the first one 0; empty
  // for an empty document. White space between two sentences belongs to the first of
  // them, so that the sentences joined are the document. Invalid UTF-8 is taken as bytes
  // that are no letters; no sentence begins within a character.
  void split(std::string_view document, std::vector<std::size_t>& begins) const;

 private:
  enum class Last { never, before_number, sometimes };
  using Abbreviation = std::pair<std::string_view, Last>;
  // Where the text goes on behind a mark or a line end, and whether a sentence begins
  // there.
  struct Boundary {
    std::size_t next;
    bool is_end;
  };

  void add_abbreviations(std::string_view words, Last last);
  std::size_t next_stop(std::string_view text, std::size_t at) const;
  Boundary boundary_at(std::string_view text, std::size_t at, std::size_t sentence) const;
  std::size_t first_word(std::string_view text, std::size_t at) const;
  bool full_stop_ends(std::string_view text, std::size_t stop, std::size_t sentence,
                      std::size_t word, bool is_closed) const;
  const Abbreviation* abbreviation(std::string_view word) const;
  bool is_starter(std::string_view text, std::size_t word) const;

  std::array<bool, 256> is_stop_{};  // bytes at which the scan stops to look closer
  std::vector<Abbreviation> abbreviations_;  // sorted
  std::vector<std::string_view> starters_;   // sorted
  bool has_ordinals_ = false;
  bool begins_with_apostrophe_ = false;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_SENTENCES_HPP_
