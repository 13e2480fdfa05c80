// data/sentence_piece_library.hpp — the SentencePiece library in our own terms: a loaded
// model that makes ids of text, and training. Which source stands behind it is a matter
// of CMake: sentence_piece_library.cpp where the library was found, else
// sentence_piece_none.cpp, which refuses with what is missing.
#ifndef TRIREME_DATA_SENTENCE_PIECE_LIBRARY_HPP_
#define TRIREME_DATA_SENTENCE_PIECE_LIBRARY_HPP_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/token_model.hpp"

namespace trireme::data {

// Immutable, shared by threads.
class SentencePieceLibrary {
 public:
  // `model` is a file's content, which SentencePieceModel::parse has seen. InputError
  // where the library does not take it, or is not there; `name` is for messages.
  SentencePieceLibrary(const std::string& name, const std::string& model);
  ~SentencePieceLibrary();

  // Appends the ids of a text, and where `begins` is not null for each the byte of the
  // text at which begins what it stands for.
  void encode(std::string_view text, std::vector<TokenId>& ids,
              std::vector<std::size_t>* begins) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

bool has_sentence_piece();

// A model's content, learned from words with their counts. `options` are those of the
// library's spm_train. InputError with what the library says where it cannot.
std::string train_sentence_piece(
    const std::map<std::string, std::string>& options,
    const std::vector<std::pair<std::string, std::uint64_t>>& words);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SENTENCE_PIECE_LIBRARY_HPP_
