// data/byte_level_bpe.hpp — byte-level BPE as a TokenModel: text is cut into pieces by a
// pattern (pre_tokenizer.hpp), and the bytes of each piece are merged (bpe.hpp). The ids
// of a text spell its bytes.
#ifndef TRIREME_DATA_BYTE_LEVEL_BPE_HPP_
#define TRIREME_DATA_BYTE_LEVEL_BPE_HPP_

#include <memory>
#include <string>
#include <string_view>

#include "data/bpe.hpp"
#include "data/pre_tokenizer.hpp"
#include "data/token_model.hpp"

namespace trireme::data {

class ByteLevelBpe : public TokenModel {
 public:
  // space_in_front: a text that begins with none is encoded as if it did (Hugging Face's
  // add_prefix_space).
  ByteLevelBpe(BpeModel bpe, PreTokenizer pre_tokenizer, bool space_in_front = false);

  std::unique_ptr<Coder> coder() const override;
  TokenId size() const override { return static_cast<TokenId>(bpe_.size()); }
  std::string_view bytes_of(TokenId id) const override { return bpe_.bytes_of(id); }
  bool drops_first_space() const override { return false; }
  bool begins_word(TokenId id) const override;
  bool can_cut_before_space() const override;
  std::string description() const override { return "byte-level BPE"; }

 private:
  class PieceCoder;

  BpeModel bpe_;
  PreTokenizer pre_tokenizer_;
  bool space_in_front_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_BYTE_LEVEL_BPE_HPP_
