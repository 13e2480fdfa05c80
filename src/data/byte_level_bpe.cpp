// data/byte_level_bpe.cpp — see byte_level_bpe.hpp.
#include "data/byte_level_bpe.hpp"

#include <utility>

namespace trireme::data {

class ByteLevelBpe::PieceCoder : public Coder {
 public:
  explicit PieceCoder(const ByteLevelBpe& model)
      : model_(model), bpe_(model.bpe_), scanner_(model.pre_tokenizer_) {}

  void encode(std::string_view text, std::vector<TokenId>& ids,
              std::vector<std::size_t>* begins) override {
    const std::size_t first = ids.size();
    const bool adds_space = model_.space_in_front_ && text[0] != ' ';
    if (adds_space) {
      spaced_.assign(1, ' ').append(text);
      text = spaced_;
    }
    scanner_.start(text);
    std::string_view piece;
    while (scanner_.next(piece)) bpe_.encode(piece, ids);
    if (begins != nullptr) append_begins(ids, first, adds_space ? 1 : 0, *begins);
  }

 private:
  // The ids from `first` on spell the text, behind `added` bytes that are not in it.
  void append_begins(const std::vector<TokenId>& ids, std::size_t first,
                     std::size_t added, std::vector<std::size_t>& begins) const {
    std::size_t at = 0;
    for (std::size_t i = first; i < ids.size(); ++i) {
      begins.push_back(at > added ? at - added : 0);
      at += model_.bytes_of(ids[i]).size();
    }
  }

  const ByteLevelBpe& model_;
  BpeEncoder bpe_;
  PreTokenizer::Scanner scanner_;
  std::string spaced_;
};

ByteLevelBpe::ByteLevelBpe(BpeModel bpe, PreTokenizer pre_tokenizer, bool space_in_front)
    : bpe_(std::move(bpe)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      space_in_front_(space_in_front) {}

std::unique_ptr<Coder> ByteLevelBpe::coder() const {
  return std::make_unique<PieceCoder>(*this);
}

bool ByteLevelBpe::begins_word(TokenId id) const {
  constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";
  const std::string_view bytes = bytes_of(id);
  return !bytes.empty() && kWhiteSpace.find(bytes[0]) != std::string_view::npos;
}

bool ByteLevelBpe::can_cut_before_space() const {
  return pre_tokenizer_.can_cut_before_space() && !space_in_front_;
}

}  // namespace trireme::data
