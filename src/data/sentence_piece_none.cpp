// data/sentence_piece_none.cpp — a build without SentencePiece: its models are refused.
// See sentence_piece_library.hpp.
#include "base/error.hpp"
#include "data/sentence_piece_library.hpp"

namespace trireme::data {
namespace {

[[noreturn]] void refuse_sentence_piece(const std::string& what) {
  throw InputError(
      what +
      " needs the SentencePiece library, which this build of trireme does "
      "not have: install libsentencepiece-dev (Debian; tools/bootstrap does) "
      "or your site's module of sentencepiece, and configure and build again");
}

}  // namespace

struct SentencePieceLibrary::State {};

SentencePieceLibrary::SentencePieceLibrary(const std::string& name, const std::string&) {
  refuse_sentence_piece("tokenizer file '" + name + "'");
}
SentencePieceLibrary::~SentencePieceLibrary() = default;
void SentencePieceLibrary::encode(std::string_view, std::vector<TokenId>&,
                                  std::vector<std::size_t>*) const {}

bool has_sentence_piece() {
  return false;
}

std::string train_sentence_piece(
    const std::map<std::string, std::string>&,
    const std::vector<std::pair<std::string, std::uint64_t>>&) {
  refuse_sentence_piece("training this vocabulary");
}

}  // namespace trireme::data
