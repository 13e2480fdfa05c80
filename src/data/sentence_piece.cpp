// data/sentence_piece.cpp — see sentence_piece.hpp.
//
// A cut leaves out the space between two words, as the next stretch gets one in front;
// of a model that adds none it belongs to the next stretch. Example: "... of the" and
// "earth ..." of "... of the earth ...". Whether that gives the same ids is asked of the
// library for the text around each place, since it depends on everything that a model
// says: its map of characters, its spaces, and whether a piece goes over several words.
#include "data/sentence_piece.hpp"

#include <algorithm>
#include <utility>

#include "base/utf8.hpp"

namespace trireme::data {
namespace {

constexpr std::size_t kAround = 64;  // bytes of text on each side of a cut
constexpr int kMostCutTries = 100;   // for one cut

bool is_space_byte(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

std::size_t character_begin(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() &&
         (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
    --at;
  }
  return at;
}

std::string text_of_piece(const SentencePieceModel::Piece& piece) {
  using Kind = SentencePieceModel::Kind;
  if (piece.kind == Kind::byte)
    return std::string(1, static_cast<char>(byte_of_piece(piece.text)));
  if (piece.kind == Kind::control || piece.kind == Kind::unknown) return piece.text;
  std::string text;
  for (std::size_t at = 0; at < piece.text.size();) {
    if (piece.text.compare(at, kSpaceMark.size(), kSpaceMark) == 0) {
      text += ' ';
      at += kSpaceMark.size();
    } else {
      text += piece.text[at++];
    }
  }
  return text;
}

SentencePieceModel without_front_space(SentencePieceModel model) {
  model.adds_space_in_front = false;
  return model;
}

}  // namespace

class SentencePiece::PieceCoder : public Coder {
 public:
  explicit PieceCoder(const SentencePiece& model) : model_(model) {}

  void set_at_front(bool is_at_front) override { is_at_front_ = is_at_front; }
  void encode(std::string_view text, std::vector<TokenId>& ids,
              std::vector<std::size_t>* begins) override {
    const SentencePieceLibrary* library = &model_.library_for(text, is_at_front_);
    for (std::size_t at = 0; at < text.size();) {
      const StretchEnd stretch = model_.stretch_end(text, at);
      const std::size_t known = begins != nullptr ? begins->size() : 0;
      library->encode(text.substr(at, stretch.end - at), ids, begins);
      if (begins != nullptr) {
        for (std::size_t i = known; i < begins->size(); ++i) (*begins)[i] += at;
      }
      at = stretch.next;
      library = &model_.library_;
    }
  }

 private:
  const SentencePiece& model_;
  bool is_at_front_ = true;
};

SentencePiece::SentencePiece(const std::string& name, SentencePieceModel model,
                             const std::string& bytes, FrontSpace front)
    : model_(std::move(model)), front_(front), library_(name, bytes) {
  if (front_ != FrontSpace::always) {
    without_space_.emplace(name, without_front_space(model_).serialized());
  }
  using Kind = SentencePieceModel::Kind;
  for (const SentencePieceModel::Piece& piece : model_.pieces) {
    texts_.push_back(text_of_piece(piece));
    begins_word_.push_back(piece.text.starts_with(kSpaceMark) ||
                           piece.kind == Kind::control);
  }
}

std::unique_ptr<Coder> SentencePiece::coder() const {
  return std::make_unique<PieceCoder>(*this);
}

const SentencePieceLibrary& SentencePiece::library_for(std::string_view text,
                                                       bool is_at_front) const {
  if (!without_space_) return library_;
  const bool has_space = is_space_byte(text.front()) || text.starts_with(kSpaceMark);
  const bool is_first = is_at_front || front_ == FrontSpace::unless_there;
  // Where spaces at the front are removed, the one that is added stands for them.
  const bool is_added =
      model_.removes_extra_spaces ? is_first || has_space : is_first && !has_space;
  return is_added ? library_ : *without_space_;
}

SentencePiece::StretchEnd SentencePiece::stretch_end(std::string_view text,
                                                     std::size_t begin) const {
  const StretchEnd rest = {text.size(), text.size()};
  if (text.size() - begin <= kLongestStretch) return rest;
  const std::size_t wanted = begin + kLongestStretch;
  int tries = 0;
  for (std::size_t at = wanted; at > begin + kLongestStretch / 2; --at) {
    if (!is_space_byte(text[at]) || ++tries > kMostCutTries) continue;
    if (const auto cut = cut_at(text, at)) return *cut;
  }
  tries = 0;
  for (std::size_t at = wanted + 1; at + 1 < text.size() && tries < kMostCutTries; ++at) {
    if (!is_space_byte(text[at])) continue;
    ++tries;
    if (const auto cut = cut_at(text, at)) return *cut;
  }
  return rest;
}

std::optional<SentencePiece::StretchEnd> SentencePiece::cut_at(std::string_view text,
                                                               std::size_t at) const {
  const std::size_t first = character_begin(text, at > kAround ? at - kAround : 0);
  const std::size_t last = character_begin(text, std::min(at + 1 + kAround, text.size()));
  std::vector<TokenId> whole, parts;
  library_.encode(text.substr(first, last - first), whole, nullptr);
  const std::size_t next = model_.adds_space_in_front ? at + 1 : at;
  library_.encode(text.substr(first, at - first), parts, nullptr);
  const std::size_t before = parts.size();
  library_.encode(text.substr(next, last - next), parts, nullptr);
  // Without ids on one side there is nothing to tell by.
  if (before == 0 || before == parts.size() || parts != whole) return std::nullopt;
  return StretchEnd{at, next};
}

std::optional<TokenId> SentencePiece::unknown() const {
  using Kind = SentencePieceModel::Kind;
  const auto found =
      std::ranges::find(model_.pieces, Kind::unknown, &SentencePieceModel::Piece::kind);
  return static_cast<TokenId>(found - model_.pieces.begin());  // every model has one
}

std::string SentencePiece::description() const {
  const bool is_unigram = model_.algorithm == SentencePieceModel::Algorithm::unigram;
  std::string text = is_unigram ? "SentencePiece, unigram" : "SentencePiece, BPE";
  if (model_.byte_fallback) text += " with byte fallback";
  return text;
}

}  // namespace trireme::data
