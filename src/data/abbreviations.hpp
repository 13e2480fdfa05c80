// data/abbreviations.hpp — the words of a language that tell whether a full stop ends a
// sentence: abbreviations, and words that sentences often begin with.
#ifndef TRIREME_DATA_ABBREVIATIONS_HPP_
#define TRIREME_DATA_ABBREVIATIONS_HPP_

#include <string_view>

#include "data/sentences.hpp"

namespace trireme::data {

// Lists of words, separated by single blanks. Abbreviations stand without their
// last full stop, and their case counts; one that begins with a small ASCII letter is one
// with a capital, too, as at the beginning of a sentence.
struct LanguageWords {
  // No sentence ends with these: "Mr. Brown", "z.B. Hunde".
  std::string_view never_last;
  // These belong to the number behind them, and are words or the last ones otherwise:
  // "No. 5", but "No. They left."
  std::string_view before_number;
  // Either: a sentence ends if a word of `starters` follows. So it is with initials
  // ("J. Smith") and with letters between full stops ("U.S."), which are not listed.
  std::string_view sometimes_last;
  // Words that sentences often begin with, and names hardly ever.
  std::string_view starters;
  // "am 3. Oktober": numbers with a full stop are ordinals, and nouns have capitals.
  bool ordinals = false;
  // "'s Avonds": a sentence may begin with an apostrophe and a single small letter.
  bool begins_with_apostrophe = false;
};

// Languages without abbreviations of their own have empty lists.
const LanguageWords& words_of(Language language);

}  // namespace trireme::data

#endif  // TRIREME_DATA_ABBREVIATIONS_HPP_
