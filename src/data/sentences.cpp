// data/sentences.cpp — see sentences.hpp.
//
// A scan by a table of bytes stops at marks and line ends only, some tens of bytes apart;
// there the characters on both sides are looked at. What stands behind a mark is taken
// apart once: further marks, what closes, white space. So the time is linear in the text,
// whatever it is, and the words before a full stop are looked for only where a sentence
// could end:
//
//   … said Mr. Brown (of the U.S.). "Then …
//            ^ abbreviation     ^^^ mark between what closes, white space, opening,
//            capital
#include "data/sentences.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/words.hpp"
#include "data/abbreviations.hpp"
#include "data/sentence_characters.hpp"

namespace trireme::data {
namespace {

constexpr std::pair<Language, std::string_view> kLanguageCodes[] = {
    {Language::english, "en"}, {Language::german, "de"},  {Language::french, "fr"},
    {Language::spanish, "es"}, {Language::italian, "it"}, {Language::portuguese, "pt"},
    {Language::dutch, "nl"},   {Language::chinese, "zh"}, {Language::japanese, "ja"},
    {Language::none, "none"}};

constexpr std::size_t kNoWord = std::string_view::npos;
// No abbreviation and no starter is longer; a longer word is an ordinary one.
constexpr std::size_t kLongestWord = 24;
constexpr int kMostOpening = 8;

// Consecutive marks: "?!", "...", "。".
struct Marks {
  std::size_t end;
  bool is_full_stop = false;  // a single one
  bool is_strong = false;     // the last one is
  bool is_wide = false;       // one of them is
};

Marks marks_at(std::string_view text, std::size_t at) {
  Marks marks{at};
  for (;;) {
    const MarkAt next = mark_at(text, marks.end);
    if (next.mark == Mark::none) return marks;
    marks.is_full_stop = marks.end == at && next.mark == Mark::full;
    marks.is_strong = next.mark == Mark::strong;
    marks.is_wide = marks.is_wide || next.mark == Mark::wide;
    marks.end += next.length;
  }
}

// What stands between a mark and the text that follows.
struct Gap {
  bool is_closed;  // by quotes or brackets
  Blanks blanks;
};

Gap gap_behind(std::string_view text, const Marks& marks) {
  std::size_t end = marks.end;
  Character next = character_at(text, end);
  while (is_closing(next.value) || (!marks.is_wide && is_low_closing(next.value))) {
    end += next.length;
    next = character_at(text, end);
  }
  Gap gap{end > marks.end, blanks_at(text, end)};
  // French has a blank before what closes: it is no opening quote where one follows, too.
  next = character_at(text, gap.blanks.end);
  if (gap.blanks.end > end && gap.blanks.line_ends == 0 && next.value == U'»') {
    const std::size_t quoted = gap.blanks.end + next.length;
    const Blanks behind = blanks_at(text, quoted);
    if (behind.end > quoted || behind.end == text.size()) gap = {true, behind};
  }
  return gap;
}

// The letters, digits and inner full stops before a full stop: "e.g" of "e.g."; empty
// where there are none, or so many that it is no abbreviation.
std::string_view word_before(std::string_view text, std::size_t stop) {
  std::size_t begin = stop;
  for (;;) {
    const Character before = character_before(text, begin);
    const bool is_letter = letter_kind(before.value) != LetterKind::none;
    if (before.value != '.' && (!is_letter || is_cjk_letter(before.value))) break;
    begin -= before.length;
    if (stop - begin > kLongestWord) return {};
  }
  while (begin < stop && text[begin] == '.') ++begin;
  return text.substr(begin, stop - begin);
}

std::string_view word_from(std::string_view text, std::size_t at) {
  std::size_t end = at;
  for (;;) {
    const Character next = character_at(text, end);
    if (letter_kind(next.value) == LetterKind::none) break;
    end += next.length;
    if (end - at > kLongestWord) return {};
  }
  return text.substr(at, end - at);
}

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_roman(std::string_view word) {
  return !word.empty() && word.find_first_not_of("IVXLC") == std::string_view::npos;
}

// "J" of "J. Smith", but not the t of "don't. So".
bool is_initial(std::string_view text, std::string_view word) {
  const Character letter = character_at(word, 0);
  if (letter.length != word.size()) return false;
  const auto at = static_cast<std::size_t>(word.data() - text.data());
  const Character before = character_before(text, at);
  if (before.value == '\'' || before.value == U'’') return false;
  return before.value != '-' || character_before(text, at - 1).value == '.';
}

// "U.S", "a.m", "Ph.D": one or two letters between full stops.
bool is_acronym(std::string_view word) {
  if (word.find('.') == std::string_view::npos) return false;
  int letters = 0;
  for (std::size_t at = 0; at < word.size();) {
    const Character next = character_at(word, at);
    letters = next.value == '.' ? 0 : letters + 1;
    if (letters > 2 || letter_kind(next.value) == LetterKind::digit) return false;
    at += next.length;
  }
  return true;
}

// A number that a line of a list begins with: "1. First".
bool begins_line(std::string_view text, std::string_view word) {
  auto at = static_cast<std::size_t>(word.data() - text.data());
  const std::size_t nearest = at > 8 ? at - 8 : 0;
  while (at > nearest && (text[at - 1] == ' ' || text[at - 1] == '\t')) --at;
  return at > 0 && text[at - 1] == '\n';
}

std::vector<std::string_view> words_in(std::string_view list) {
  return list.empty() ? std::vector<std::string_view>() : split(list, " ");
}

}  // namespace

Language language_of(std::string_view code) {
  std::string codes;
  for (const auto& [language, its_code] : kLanguageCodes) {
    if (its_code == code) return language;
    codes += (codes.empty() ? "" : ", ") + std::string(its_code);
  }
  throw InputError(fmt::format(
      "there are no rules for sentences of the language '{}'; there are for: {} (none: "
      "only blank lines end a sentence)",
      code, codes));
}

std::string_view code_of(Language language) {
  const auto* found = std::ranges::find(kLanguageCodes, language,
                                        &std::pair<Language, std::string_view>::first);
  TRIREME_REQUIRE(found != std::end(kLanguageCodes), "code_of: no Language");
  return found->second;
}

SentenceSplitter::SentenceSplitter(Language language) {
  // Bytes that marks begin with; those of three bytes are looked at before the scan
  // stops.
  constexpr std::string_view kMarkBytes = ".!?\xE2\xE3\xEF";
  is_stop_['\n'] = is_stop_['\r'] = true;
  if (language != Language::none) {
    for (const char byte : kMarkBytes) is_stop_[static_cast<unsigned char>(byte)] = true;
  }
  const LanguageWords& words = words_of(language);
  add_abbreviations(words.never_last, Last::never);
  add_abbreviations(words.before_number, Last::before_number);
  add_abbreviations(words.sometimes_last, Last::sometimes);
  std::ranges::sort(abbreviations_);
  const auto twice = std::ranges::adjacent_find(abbreviations_, {}, &Abbreviation::first);
  TRIREME_REQUIRE(twice == abbreviations_.end(), "'{}' stands twice in the lists of {}",
                  twice->first, code_of(language));
  starters_ = words_in(words.starters);
  std::ranges::sort(starters_);
  has_ordinals_ = words.ordinals;
  begins_with_apostrophe_ = words.begins_with_apostrophe;
}

void SentenceSplitter::add_abbreviations(std::string_view words, Last last) {
  for (const std::string_view word : words_in(words)) {
    abbreviations_.emplace_back(word, last);
  }
}

void SentenceSplitter::split(std::string_view document,
                             std::vector<std::size_t>& begins) const {
  begins.clear();
  if (document.empty()) return;
  begins.push_back(0);
  std::size_t sentence = blanks_at(document, 0).end;
  std::size_t at = next_stop(document, sentence);
  while (at < document.size()) {
    const Boundary boundary = boundary_at(document, at, sentence);
    if (boundary.is_end) {
      sentence = boundary.next;
      begins.push_back(sentence);
    }
    at = next_stop(document, boundary.next);
  }
}

std::size_t SentenceSplitter::next_stop(std::string_view text, std::size_t at) const {
  for (; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (!is_stop_[byte]) continue;
    if (byte < 0x80 || mark_at(text, at).mark != Mark::none) return at;
  }
  return at;
}

// `sentence`: where the sentence under way begins, `at`: a mark or a line end in it.
SentenceSplitter::Boundary SentenceSplitter::boundary_at(std::string_view text,
                                                         std::size_t at,
                                                         std::size_t sentence) const {
  const Marks marks = marks_at(text, at);
  const bool is_line_end = marks.end == at;
  const Gap gap = is_line_end ? Gap{false, blanks_at(text, at)} : gap_behind(text, marks);
  const std::size_t next = gap.blanks.end;
  if (next == text.size()) return {next, false};
  if (gap.blanks.line_ends >= 2) return {next, true};
  // Marks without a word before them are no sentence.
  if (is_line_end || at == sentence) return {next, false};

  const bool is_apart = gap.blanks.can_break;
  const char32_t follows = character_at(text, next).value;
  if (marks.is_wide) {
    // The Japanese particle of quotations: 「はい。」と言った。
    return {next, !(gap.is_closed && !is_apart && follows == U'と')};
  }
  if (!is_apart) {
    return {next, marks.is_strong && is_cjk_letter(follows)};
  }
  const std::size_t word = first_word(text, next);
  if (word == kNoWord) return {next, false};
  return {next,
          !marks.is_full_stop || full_stop_ends(text, at, sentence, word, gap.is_closed)};
}

// The capital, digit or letter without case that text[at] begins with, behind what opens;
// kNoWord where something else follows: there a sentence cannot begin.
std::size_t SentenceSplitter::first_word(std::string_view text, std::size_t at) const {
  Character next = character_at(text, at);
  char32_t before = 0;
  for (int i = 0; i < kMostOpening && is_opening(next.value); ++i) {
    before = next.value;
    at += next.length;
    if (is_opening_with_blank(before)) {
      const Blanks blanks = blanks_at(text, at);
      if (blanks.line_ends >= 2) return kNoWord;
      at = blanks.end;
    }
    next = character_at(text, at);
  }
  const LetterKind kind = letter_kind(next.value);
  if (kind == LetterKind::capital || kind == LetterKind::digit) return at;
  if (begins_with_apostrophe_ && kind == LetterKind::small &&
      (before == '\'' || before == U'’' || before == U'‘')) {
    const Blanks blanks = blanks_at(text, at + next.length);
    const bool is_single = blanks.can_break && blanks.line_ends < 2;
    const LetterKind second = letter_kind(character_at(text, blanks.end).value);
    if (is_single && second == LetterKind::capital) return at;
  }
  return kNoWord;
}

bool SentenceSplitter::full_stop_ends(std::string_view text, std::size_t stop,
                                      std::size_t sentence, std::size_t word,
                                      bool is_closed) const {
  const std::string_view last = word_before(text, stop);
  if (last.empty()) return true;
  const bool is_first = last.data() == text.data() + sentence;
  const bool is_short_number = is_number(last) && last.size() <= 2;
  if (is_number(last)) {
    if (is_first || (is_short_number && begins_line(text, last))) return false;
    return !(has_ordinals_ && is_short_number) || is_closed || is_starter(text, word);
  }
  const Abbreviation* known = abbreviation(last);
  if (known != nullptr && known->second == Last::never) return false;
  if (known != nullptr && known->second == Last::before_number) {
    const std::string_view number = word_from(text, word);
    return letter_kind(character_at(text, word).value) != LetterKind::digit &&
           !(is_roman(number) && number.size() > 1);
  }
  const bool is_letter = is_initial(text, last);
  if (is_first && (is_letter || is_roman(last))) return false;  // "II. The second"
  const bool is_ordinal = has_ordinals_ && is_roman(last);      // "Ludwig XIV. von"
  if (known == nullptr && !is_letter && !is_ordinal && !is_acronym(last)) return true;
  return is_closed || is_starter(text, word);
}

// The entry of a word, or of the one that begins with a small letter; nullptr where there
// is none.
const SentenceSplitter::Abbreviation* SentenceSplitter::abbreviation(
    std::string_view word) const {
  const auto find = [this](std::string_view name) {
    const auto found =
        std::ranges::lower_bound(abbreviations_, name, {}, &Abbreviation::first);
    return found != abbreviations_.end() && found->first == name ? &*found : nullptr;
  };
  const Abbreviation* found = find(word);
  if (found != nullptr || word[0] < 'A' || word[0] > 'Z') return found;
  std::array<char, kLongestWord> small;
  std::ranges::copy(word, small.begin());
  small[0] = static_cast<char>(word[0] - 'A' + 'a');
  return find(std::string_view(small.data(), word.size()));
}

bool SentenceSplitter::is_starter(std::string_view text, std::size_t word) const {
  const std::string_view name = word_from(text, word);
  if (name.empty() || !std::ranges::binary_search(starters_, name)) return false;
  // "J. A. Smith"
  const std::size_t end = word + name.size();
  return name.size() > 1 || end == text.size() || text[end] != '.';
}

}  // namespace trireme::data
