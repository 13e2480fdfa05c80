// data/basic_tokenizer.cpp — see basic_tokenizer.hpp.
//
// Every step looks at one character at a time but for the order of marks, so all of them
// are done at once: a table made of the options says what becomes of a character in the
// end. Removed characters, spaces and single ones are actions, and the rest is text to be
// appended to the word. ASCII letters and digits, most of most texts, do not get that
// far: a table of 256 bytes says what they become.
//
// NFD orders the marks behind a letter by their combining class. Nearly all of them are
// stripped, and order is nothing to those; some twenty spacing marks of Indic and musical
// scripts stay, as do marks too new for the category tables of `tokenizers`. A character
// that it strips may still keep two others apart, when its own class is 0.
#include "data/basic_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "data/code_point_ranges.hpp"
#include "data/unicode_tables.hpp"

namespace trireme::data {
namespace {

// What the published tokenizer takes for Chinese. `tokenizers` begins the last but one at
// U+2B920 where BERT's own code has U+2B820, and ids are those of `tokenizers`.
constexpr CodePointRange kIdeographs[] = {
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
    {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
};

// Hangul syllables and their letters (Unicode, section 3.12).
constexpr char32_t kFirstSyllable = 0xAC00;
constexpr char32_t kLastSyllable = 0xD7A3;
constexpr char32_t kFirstLeading = 0x1100;
constexpr char32_t kFirstVowel = 0x1161;
constexpr char32_t kBeforeTrailing = 0x11A7;
constexpr char32_t kVowels = 21;
constexpr char32_t kTrailings = 28;  // with none

constexpr char32_t kCodePoints = 0x110000;
constexpr char32_t kPageSize = 256;

// 0 of marks that are stripped, too: nobody asks for theirs.
std::uint8_t combining_class(char32_t character) {
  const MarkRange* const found = find_range(kReorderedMarks, character);
  return found != nullptr ? found->combining_class : 0;
}

void append_mapped(const Mapping& mapping, std::u32string& characters) {
  for (const char32_t part : mapping.to) {
    if (part != 0) characters += part;
  }
}

std::u32string in_lower_case(const std::u32string& characters) {
  std::u32string lower;
  for (const char32_t character : characters) {
    const auto mapping =
        std::ranges::lower_bound(kLowerCase, character, {}, &Mapping::from);
    if (mapping != kLowerCase.end() && mapping->from == character) {
      append_mapped(*mapping, lower);
    } else {
      lower += character;
    }
  }
  return lower;
}

}  // namespace

class BasicTokenizer::Table {
 public:
  enum class Action : std::uint8_t {
    append,
    append_alone,     // a word of its own
    append_in_order,  // with marks that may belong before those in front of it
    append_hangul,
    remove,
    remove_starter,  // and marks do not pass by where it was
    end_word,
  };

  struct Entry {
    Action action = Action::append;
    std::uint8_t length = 0;  // of the text that is appended; 0: the character as it is
    std::uint16_t at = 0;     // where that lies in Table::texts_
  };

  explicit Table(const BasicTokenizerOptions& options);

  const Entry& entry_of(char32_t character) const {
    return pages_[page_of_[character / kPageSize] * kPageSize + character % kPageSize];
  }
  std::string_view text_of(const Entry& entry) const {
    return std::string_view(texts_).substr(entry.at, entry.length);
  }
  // The byte that an ASCII letter or digit becomes; 0 of every byte that needs a look at
  // its entry.
  const std::array<char, 256>& plain_bytes() const { return plain_bytes_; }

 private:
  using Entries = std::vector<Entry>;  // of all code points
  template <class Ranges>
  static void set_action(Entries& entries, const Ranges& ranges, Action action);
  static void isolate_punctuation(Entries& entries);
  void strip_accents(Entries& entries, bool lowercase);
  void change_case(Entries& entries);
  Entry entry_of_text(const std::u32string& characters);
  void compress(const Entries& entries);
  void find_plain_bytes();

  std::string texts_;
  std::vector<std::uint16_t> page_of_;
  std::vector<Entry> pages_;  // those that differ
  std::array<char, 256> plain_bytes_{};
};

// In the order in which one step has the last word over another.
BasicTokenizer::Table::Table(const BasicTokenizerOptions& options) {
  Entries entries(kCodePoints);
  if (options.strip_accents) strip_accents(entries, options.lowercase);
  if (options.lowercase) change_case(entries);
  isolate_punctuation(entries);
  if (options.handle_chinese_chars) {
    set_action(entries, kIdeographs, Action::append_alone);
  }
  set_action(entries, kWhiteSpace, Action::end_word);
  if (options.clean_text) {
    set_action(entries, kControls, Action::remove);
    entries[0xFFFD].action = Action::remove;
    for (const char32_t white : {U'\t', U'\n', U'\r'}) {
      entries[white].action = Action::end_word;
    }
  }
  compress(entries);
  find_plain_bytes();
}

template <class Ranges>
void BasicTokenizer::Table::set_action(Entries& entries, const Ranges& ranges,
                                       Action action) {
  for (const auto& range : ranges) {
    for (char32_t character = range.first; character <= range.last; ++character) {
      entries[character].action = action;
    }
  }
}

// Of those characters that stay as they are; entry_of_text() sees to the others.
void BasicTokenizer::Table::isolate_punctuation(Entries& entries) {
  for (const CodePointRange& range : kPunctuation) {
    for (char32_t character = range.first; character <= range.last; ++character) {
      Entry& entry = entries[character];
      const bool stays = entry.action == Action::append && entry.length == 0;
      if (stays) entry.action = Action::append_alone;
    }
  }
}

void BasicTokenizer::Table::strip_accents(Entries& entries, bool lowercase) {
  for (const MarkRange& marks : kStrippedMarks) {
    for (char32_t mark = marks.first; mark <= marks.last; ++mark) {
      entries[mark].action =
          marks.combining_class == 0 ? Action::remove_starter : Action::remove;
    }
  }
  set_action(entries, kReorderedMarks, Action::append_in_order);
  for (char32_t syllable = kFirstSyllable; syllable <= kLastSyllable; ++syllable) {
    entries[syllable].action = Action::append_hangul;
  }
  for (const Mapping& mapping : kBases) {
    std::u32string bases;
    append_mapped(mapping, bases);
    entries[mapping.from] = entry_of_text(lowercase ? in_lower_case(bases) : bases);
  }
}

// Of those characters that stripping accents left as they were.
void BasicTokenizer::Table::change_case(Entries& entries) {
  for (const Mapping& mapping : kLowerCase) {
    Entry& entry = entries[mapping.from];
    if (entry.action != Action::append || entry.length != 0) continue;
    std::u32string lower;
    append_mapped(mapping, lower);
    entry = entry_of_text(lower);
  }
}

BasicTokenizer::Table::Entry BasicTokenizer::Table::entry_of_text(
    const std::u32string& characters) {
  Entry entry;
  entry.at = static_cast<std::uint16_t>(texts_.size());
  bool has_punctuation = false;
  for (const char32_t character : characters) {
    append_utf8(character, texts_);
    has_punctuation = has_punctuation || is_in(kPunctuation, character);
    if (combining_class(character) != 0) entry.action = Action::append_in_order;
  }
  entry.length = static_cast<std::uint8_t>(texts_.size() - entry.at);
  TRIREME_REQUIRE(texts_.size() <= 0xFFFF,
                  "the texts of characters have size {}, and an entry counts up to 65535",
                  texts_.size());
  TRIREME_REQUIRE(!has_punctuation || characters.size() == 1,
                  "a character becomes punctuation and more: no entry says that");
  if (has_punctuation) entry.action = Action::append_alone;
  return entry;
}

void BasicTokenizer::Table::compress(const Entries& entries) {
  std::unordered_map<std::string_view, std::uint16_t> known;
  for (char32_t first = 0; first < kCodePoints; first += kPageSize) {
    const Entry* page = &entries[first];
    const std::string_view bytes(reinterpret_cast<const char*>(page),
                                 kPageSize * sizeof(Entry));
    const auto number = static_cast<std::uint16_t>(known.size());
    const auto [place, is_new] = known.try_emplace(bytes, number);
    if (is_new) pages_.insert(pages_.end(), page, page + kPageSize);
    page_of_.push_back(place->second);
  }
}

void BasicTokenizer::Table::find_plain_bytes() {
  for (char32_t character = 0; character < 0x80; ++character) {
    const Entry& entry = entry_of(character);
    if (entry.action != Action::append) continue;
    plain_bytes_[character] =
        entry.length == 0 ? static_cast<char>(character) : text_of(entry).front();
  }
}

BasicTokenizer::BasicTokenizer(const BasicTokenizerOptions& options)
    : options_(options), table_(std::make_shared<const Table>(options)) {}

BasicTokenizer::Scanner::Scanner(const BasicTokenizer& tokenizer)
    : table_(tokenizer.table_), buffer_(64, '\0') {}

void BasicTokenizer::Scanner::start(std::string_view text) {
  text_ = text;
  at_ = 0;
}

bool BasicTokenizer::Scanner::next(Word& word) {
  length_ = marks_begin_ = marks_end_ = 0;
  Step step = Step::goes_on;
  while (step == Step::goes_on) {
    take_plain_bytes();
    if (at_ == text_.size()) break;
    step = take_character();
  }
  if (marks_end_ > marks_begin_) close_marks();
  word = {std::string_view(buffer_).substr(0, length_), begin_, end_};
  return length_ > 0;
}

void BasicTokenizer::Scanner::take_plain_bytes() {
  const std::array<char, 256>& plain = table_->plain_bytes();
  const std::size_t from = at_;
  if (length_ == 0) begin_ = from;
  while (at_ < text_.size()) {
    if (length_ == buffer_.size()) buffer_.resize(2 * length_);
    const std::size_t most = std::min(text_.size() - at_, buffer_.size() - length_);
    const char* in = text_.data() + at_;
    char* out = buffer_.data() + length_;
    std::size_t count = 0;
    for (; count < most; ++count) {
      const char byte = plain[static_cast<unsigned char>(in[count])];
      if (byte == 0) break;
      out[count] = byte;
    }
    at_ += count;
    length_ += count;
    if (count < most) break;
  }
  if (at_ > from) end_ = at_;
}

BasicTokenizer::Scanner::Step BasicTokenizer::Scanner::take_character() {
  const CodePoint point = code_point_at(text_, at_);
  using Action = Table::Action;
  const Table::Entry entry = table_->entry_of(point.value);
  if (entry.action == Action::append_alone && length_ > 0) return Step::ends_before;
  const std::string_view bytes =
      entry.length > 0 ? table_->text_of(entry)
                       : text_.substr(at_, static_cast<std::size_t>(point.length));
  const std::size_t from = at_;
  at_ += static_cast<std::size_t>(point.length);
  switch (entry.action) {
    case Action::end_word:
      return length_ > 0 ? Step::ends_behind : Step::goes_on;
    case Action::remove_starter:
      close_marks();
      return Step::goes_on;
    case Action::remove:
      return Step::goes_on;
    default:
      break;
  }
  if (length_ == 0) begin_ = from;
  end_ = at_;
  if (entry.action == Action::append_hangul) {
    append_hangul(point.value);
  } else if (entry.action == Action::append_in_order) {
    append_in_order(bytes);
  } else {
    append(bytes);
  }
  return entry.action == Action::append_alone ? Step::ends_behind : Step::goes_on;
}

void BasicTokenizer::Scanner::append(std::string_view bytes) {
  if (buffer_.size() - length_ < bytes.size()) buffer_.resize(2 * buffer_.size());
  std::memcpy(buffer_.data() + length_, bytes.data(), bytes.size());
  length_ += bytes.size();
}

void BasicTokenizer::Scanner::append_hangul(char32_t syllable) {
  const char32_t number = syllable - kFirstSyllable;
  const char32_t trailing = number % kTrailings;
  std::string letters;
  append_utf8(kFirstLeading + number / kTrailings / kVowels, letters);
  append_utf8(kFirstVowel + number / kTrailings % kVowels, letters);
  if (trailing != 0) append_utf8(kBeforeTrailing + trailing, letters);
  append(letters);
}

void BasicTokenizer::Scanner::append_in_order(std::string_view characters) {
  while (!characters.empty()) {
    const CodePoint point = code_point_at(characters, 0);
    const auto length = static_cast<std::size_t>(point.length);
    const bool is_mark = combining_class(point.value) != 0;
    if (is_mark && marks_end_ != length_) close_marks();
    append(characters.substr(0, length));
    if (is_mark) marks_end_ = length_;
    characters.remove_prefix(length);
  }
}

// Sorted all at once: a text may be one long row of marks.
void BasicTokenizer::Scanner::close_marks() {
  std::string_view marks(buffer_.data() + marks_begin_, marks_end_ - marks_begin_);
  std::vector<char32_t> in_order;
  while (!marks.empty()) {
    const CodePoint point = code_point_at(marks, 0);
    in_order.push_back(point.value);
    marks.remove_prefix(static_cast<std::size_t>(point.length));
  }
  if (in_order.size() > 1) {
    std::ranges::stable_sort(in_order, {}, combining_class);
    std::string sorted;
    for (const char32_t mark : in_order) append_utf8(mark, sorted);
    sorted.copy(buffer_.data() + marks_begin_, sorted.size());
  }
  marks_begin_ = marks_end_ = length_;
}

}  // namespace trireme::data
