// data/pre_tokenizer.cpp — see pre_tokenizer.hpp.
//
// GPT-2's pattern stands here twice: as it is, and with the letters and numbers listed
// that Unicode has had only since PCRE2's tables were made. The second one is a quarter
// slower, and hardly any text has such characters: each text is looked through for them
// once, and scanned with the first pattern unless one occurs. Both give the same pieces
// for text without them.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/pre_tokenizer.hpp"

#include <pcre2.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "data/code_point_ranges.hpp"

namespace trireme::data {
namespace {

// Letters and numbers that Unicode 15 to 16 added to version 14, which PCRE2 10.42 has.
#define TRIREME_RECENT_LETTERS                                                \
  "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}"                 \
  "\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D65}\\x{10D6F}-\\x{10D85}"           \
  "\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}" \
  "\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}"             \
  "\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}" \
  "\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}" \
  "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}"  \
  "\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}" \
  "\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define TRIREME_RECENT_NUMBERS                                      \
  "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}" \
  "\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}" \
  "\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}\\x{1E4F0}-\\x{1E4F9}" \
  "\\x{1E5F1}-\\x{1E5FA}"
// White_Space; PCRE2's \s also has U+180E, which left that property in Unicode 6.3.
#define TRIREME_WHITE_SPACE                                                       \
  "\\t-\\r\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
  "\\x{205f}\\x{3000}"

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt2Recent =
    "'s|'t|'re|'ve|'m|'ll|'d"
    "| ?[\\p{L}" TRIREME_RECENT_LETTERS
    "]+"
    "| ?[\\p{N}" TRIREME_RECENT_NUMBERS
    "]+"
    "| ?[^" TRIREME_WHITE_SPACE
    "\\p{L}\\p{N}" TRIREME_RECENT_LETTERS TRIREME_RECENT_NUMBERS
    "]+"
    "|[" TRIREME_WHITE_SPACE "]+(?![^" TRIREME_WHITE_SPACE "])|[" TRIREME_WHITE_SPACE
    "]+";

// The characters on which the two patterns differ (the ranges above and U+180E).
constexpr CodePointRange kRecent[] = {
    {0x180E, 0x180E},   {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},
    {0x105C0, 0x105F3}, {0x10D40, 0x10D49}, {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85},
    {0x10EC2, 0x10EC4}, {0x1123F, 0x11240}, {0x11380, 0x11389}, {0x1138B, 0x1138B},
    {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1},
    {0x113D3, 0x113D3}, {0x116D0, 0x116E3}, {0x11BC0, 0x11BE0}, {0x11BF0, 0x11BF9},
    {0x11F02, 0x11F02}, {0x11F04, 0x11F10}, {0x11F12, 0x11F33}, {0x11F50, 0x11F59},
    {0x1342F, 0x1342F}, {0x13441, 0x13446}, {0x13460, 0x143FA}, {0x16100, 0x1611D},
    {0x16130, 0x16139}, {0x16D40, 0x16D6C}, {0x16D70, 0x16D79}, {0x18CFF, 0x18CFF},
    {0x1B132, 0x1B132}, {0x1B155, 0x1B155}, {0x1CCF0, 0x1CCF9}, {0x1D2C0, 0x1D2D3},
    {0x1DF25, 0x1DF2A}, {0x1E030, 0x1E06D}, {0x1E4D0, 0x1E4EB}, {0x1E4F0, 0x1E4F9},
    {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0}, {0x1E5F1, 0x1E5FA}, {0x2B739, 0x2B739},
    {0x2EBF0, 0x2EE5D}, {0x31350, 0x323AF},
};

// True when `text` (valid UTF-8) has a character of kRecent.
bool has_recent(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const std::size_t size = text.size();
  for (std::size_t at = 0; at < size;) {
    if (at + 8 <= size) {
      std::uint64_t word;
      std::memcpy(&word, bytes + at, 8);
      if ((word & 0x8080808080808080ull) == 0) {
        at += 8;
        continue;
      }
    }
    const unsigned char lead = bytes[at];
    if (lead < 0xE0) {
      at += lead < 0x80 ? 1 : 2;
      continue;
    }
    // Lead bytes of three: U+180E, U+1C89 and U+A7CB... only. Of four: not U+1F000 on
    // (F0 9F: emoji).
    const bool suspect = lead < 0xF0 ? lead == 0xE1 || lead == 0xEA
                                     : !(lead == 0xF0 && bytes[at + 1] == 0x9F);
    const CodePoint point = code_point_at(text, at);
    if (suspect && is_in(kRecent, point.value)) return true;
    at += point.length;
  }
  return false;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

constexpr std::size_t kJitStackBytes = std::size_t{8} << 20;

}  // namespace

struct PreTokenizer::Code {
  explicit Code(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE where = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                         PCRE2_UTF | PCRE2_UCP, &error, &where, nullptr);
    TRIREME_REQUIRE_INPUT(
        code != nullptr,
        "pre-tokenizer pattern '{}': {} at character {} (the pattern must "
        "be one that PCRE2 accepts)",
        pattern, message_of(error), where);
    jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code = nullptr;
  bool jit = false;  // false where the CPU or a hardened kernel does not allow it
};

PreTokenizer::PreTokenizer(const std::string& pattern)
    : pattern_(pattern), is_gpt2_(pattern == kGpt2Pattern) {
  usual_ = std::make_shared<const Code>(pattern);
  recent_ = is_gpt2_ ? std::make_shared<const Code>(kGpt2Recent) : usual_;
}

PreTokenizer PreTokenizer::gpt2() {
  return PreTokenizer(kGpt2Pattern);
}
PreTokenizer PreTokenizer::none() {
  return PreTokenizer();
}

struct PreTokenizer::Scanner::State {
  explicit State(const PreTokenizer& pre_tokenizer)
      : usual(pre_tokenizer.usual_), recent(pre_tokenizer.recent_) {
    if (usual == nullptr) return;
    match = pcre2_match_data_create(1, nullptr);
    context = pcre2_match_context_create(nullptr);
    stack = pcre2_jit_stack_create(32768, kJitStackBytes, nullptr);
    TRIREME_REQUIRE(match != nullptr && context != nullptr && stack != nullptr,
                    "no memory for PCRE2's match data");
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // The next match at or after `at`; false when there is none.
  bool find(std::size_t at, std::size_t& begin, std::size_t& end) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int found =
        active->jit ? pcre2_jit_match(active->code, subject, text.size(), at,
                                      PCRE2_NOTEMPTY, match, context)
                    : pcre2_match(active->code, subject, text.size(), at,
                                  PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK, match, context);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    TRIREME_REQUIRE(found >= 0, "PCRE2 stopped at byte {} of {}: {}", at, text.size(),
                    message_of(found));
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(match);
    begin = place[0];
    end = place[1];
    return true;
  }

  std::shared_ptr<const Code> usual;
  std::shared_ptr<const Code> recent;
  const Code* active = nullptr;  // none: the text is one piece
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  std::string_view text;
  std::size_t at = 0;
  // A match that waits while the text before it is given as a piece.
  std::size_t pending_end = 0;
};

PreTokenizer::Scanner::Scanner(const PreTokenizer& pre_tokenizer)
    : state_(std::make_unique<State>(pre_tokenizer)) {}
PreTokenizer::Scanner::~Scanner() = default;
PreTokenizer::Scanner::Scanner(Scanner&&) noexcept = default;
PreTokenizer::Scanner& PreTokenizer::Scanner::operator=(Scanner&&) noexcept = default;

void PreTokenizer::Scanner::start(std::string_view text) {
  State& state = *state_;
  state.text = text;
  state.at = state.pending_end = 0;
  state.active = state.usual.get();
  if (state.usual != state.recent && has_recent(text)) state.active = state.recent.get();
}

bool PreTokenizer::Scanner::next(std::string_view& piece) {
  State& state = *state_;
  if (state.at >= state.text.size()) return false;
  std::size_t begin = state.at;
  std::size_t end = state.text.size();
  if (state.pending_end > 0) {
    end = state.pending_end;
    state.pending_end = 0;
  } else if (state.active != nullptr && state.find(state.at, begin, end) &&
             begin > state.at) {
    state.pending_end = end;
    end = begin;
    begin = state.at;
  }
  piece = state.text.substr(begin, end - begin);
  state.at = end;
  return true;
}

}  // namespace trireme::data
