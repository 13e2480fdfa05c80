// data/word_piece.cpp — see word_piece.hpp.
//
// One trie holds all pieces; those that a word goes on with are below the state behind
// "##". Example: of "playing" the longest piece that it begins with is "play", and from
// that state "ing" is found of "##ing".
#include "data/word_piece.hpp"

#include <algorithm>
#include <utility>

#include "data/piece_cache.hpp"

namespace trireme::data {
namespace {

bool has_more_characters(std::string_view word, std::size_t most) {
  if (word.size() <= most) return false;
  const auto begins = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  };
  return std::cmp_greater(std::ranges::count_if(word, begins), most);
}

// What Hugging Face's decoder writes without a space in front when it cleans up. Its list
// has more, which no single token can be.
bool joins_what_is_before(std::string_view piece) {
  constexpr std::string_view kJoining[] = {".",  "?",  "!",   ",",  "n't",
                                           "'m", "'s", "'ve", "'re"};
  return std::ranges::any_of(
      kJoining, [&](std::string_view front) { return piece.starts_with(front); });
}

}  // namespace

class WordPiece::WordCoder : public Coder {
 public:
  explicit WordCoder(const WordPiece& model) : model_(model), scanner_(model.basic_) {}

  void encode(std::string_view text, std::vector<TokenId>& ids,
              std::vector<std::size_t>* begins) override {
    scanner_.start(text);
    Word word;
    while (scanner_.next(word)) {
      const std::size_t before = ids.size();
      cache_.encode(word.text, ids, model_);
      if (begins == nullptr) continue;
      begins->insert(begins->end(), ids.size() - before, word.begin);
    }
  }

 private:
  const WordPiece& model_;
  BasicTokenizer::Scanner scanner_;
  PieceCache cache_;
};

WordPiece::WordPiece(const std::vector<std::string>& tokens, WordPieceOptions options)
    : options_(std::move(options)),
      basic_(options_.basic),
      trie_(tokens),
      goes_on_(trie_.state_behind(options_.prefix)) {
  for (const std::string& token : tokens) {
    const std::string& prefix = options_.prefix;
    const bool goes_on = !prefix.empty() && token.starts_with(prefix);
    begins_word_.push_back(!goes_on);
    if (goes_on) {
      texts_.push_back(token.substr(prefix.size()));
    } else if (token.empty() || (options_.cleans_up && joins_what_is_before(token))) {
      texts_.push_back(token);
    } else {
      texts_.push_back(" " + token);
    }
  }
}

std::unique_ptr<Coder> WordPiece::coder() const {
  return std::make_unique<WordCoder>(*this);
}

void WordPiece::encode(std::string_view word, std::vector<TokenId>& ids) const {
  if (has_more_characters(word, options_.longest_word)) {
    ids.push_back(options_.unknown);
    return;
  }
  const std::size_t before = ids.size();
  PieceTrie::State state = PieceTrie::kRoot;
  while (!word.empty()) {
    const PieceTrie::Match piece = trie_.longest(state, word);
    if (piece.length == 0) {
      ids.resize(before);
      ids.push_back(options_.unknown);
      return;
    }
    ids.push_back(piece.id);
    word.remove_prefix(piece.length);
    state = goes_on_;
  }
}

std::string WordPiece::description() const {
  std::string text = options_.basic.lowercase ? "WordPiece, uncased" : "WordPiece, cased";
  if (options_.basic.strip_accents != options_.basic.lowercase) {
    text += options_.basic.strip_accents ? ", accents stripped" : ", accents kept";
  }
  if (!options_.source_of_case.empty()) text += " (" + options_.source_of_case + ")";
  return text;
}

}  // namespace trireme::data
