// data/sentence_piece_library.cpp — the SentencePiece library's own calls (0.1.97 or
// later), and nowhere else. See sentence_piece_library.hpp.
//
// The library hands out ids as int, and with places as a message of protocol buffers,
// which takes it longer. It throws nothing of its own; what building its trie throws is
// told like its statuses.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <exception>
#include <unordered_map>

#include "base/error.hpp"
#include "data/sentence_piece_library.hpp"

namespace trireme::data {
namespace {

namespace spm = sentencepiece;

// Words as the library's own format of them: the word, a tab, and how often it is there.
class CountedWords : public spm::SentenceIterator {
 public:
  using Words = std::vector<std::pair<std::string, std::uint64_t>>;
  explicit CountedWords(const Words& words) : words_(words) { spell(); }

  bool done() const override { return at_ == words_.size(); }
  void Next() override {
    ++at_;
    spell();
  }
  const std::string& value() const override { return line_; }
  spm::util::Status status() const override { return {}; }

 private:
  void spell() {
    if (done()) return;
    line_ = words_[at_].first + '\t' + std::to_string(words_[at_].second);
  }
  const Words& words_;
  std::size_t at_ = 0;
  std::string line_;
};

}  // namespace

struct SentencePieceLibrary::State {
  spm::SentencePieceProcessor processor;
};

SentencePieceLibrary::SentencePieceLibrary(const std::string& name,
                                           const std::string& model)
    : state_(std::make_unique<State>()) {
  std::string problem;
  try {
    const spm::util::Status status = state_->processor.LoadFromSerializedProto(model);
    if (!status.ok()) problem = status.ToString();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  TRIREME_REQUIRE_INPUT(problem.empty(),
                        "tokenizer file '{}': SentencePiece does not take this model: {}",
                        name, problem);
}
SentencePieceLibrary::~SentencePieceLibrary() = default;

void SentencePieceLibrary::encode(std::string_view text, std::vector<TokenId>& ids,
                                  std::vector<std::size_t>* begins) const {
  const absl::string_view view(text.data(), text.size());
  if (begins == nullptr) {
    std::vector<int> found;
    const spm::util::Status status = state_->processor.Encode(view, &found);
    TRIREME_REQUIRE(status.ok(), "SentencePiece cannot encode a text: {}",
                    status.ToString());
    ids.insert(ids.end(), found.begin(), found.end());
    return;
  }
  spm::ImmutableSentencePieceText found;
  const spm::util::Status status = state_->processor.Encode(view, found.mutable_proto());
  TRIREME_REQUIRE(status.ok(), "SentencePiece cannot encode a text: {}",
                  status.ToString());
  for (std::size_t i = 0; i < found.pieces_size(); ++i) {
    const auto piece = found.pieces(static_cast<int>(i));
    ids.push_back(piece.id());
    begins->push_back(piece.begin());
  }
}

bool has_sentence_piece() {
  return true;
}

std::string train_sentence_piece(const std::map<std::string, std::string>& options,
                                 const CountedWords::Words& words) {
  CountedWords iterator(words);
  std::unordered_map<std::string, std::string> all(options.begin(), options.end());
  all.emplace("input_format", "tsv");
  all.emplace("minloglevel", "2");  // errors alone
  std::string model, problem;
  try {
    const spm::util::Status status =
        spm::SentencePieceTrainer::Train(all, &iterator, &model);
    if (!status.ok()) problem = status.ToString();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  TRIREME_REQUIRE_INPUT(problem.empty(), "SentencePiece cannot train this vocabulary: {}",
                        problem);
  return model;
}

}  // namespace trireme::data
