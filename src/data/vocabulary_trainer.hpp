// data/vocabulary_trainer.hpp — learns vocabularies from text: that of GPT-2 by our own
// trainer (bpe_trainer.hpp), those of T5 and BERT by the SentencePiece library.
//
// All need no more of a text than its words with their counts. Every rank counts its
// part, and the sums are trained on; by the library in the order of the words, with a
// fixed number of threads: the vocabulary is the same whatever the number of ranks.
#ifndef TRIREME_DATA_VOCABULARY_TRAINER_HPP_
#define TRIREME_DATA_VOCABULARY_TRAINER_HPP_

#include <cstdint>
#include <functional>

#include "comm/communicator.hpp"
#include "data/basic_tokenizer.hpp"
#include "data/bpe_trainer.hpp"
#include "data/document_source.hpp"
#include "data/tokenizer.hpp"

namespace trireme::data {

using TrainingProgress = std::function<void(std::uint64_t, std::uint64_t)>;

struct TrainedTokenizer {
  Tokenizer tokenizer;
  bool ran_out_of_pairs = false;
  std::uint64_t words = 0;  // different ones
};

// Collective: a byte-level BPE of `size` tokens, as GPT-2's; equal on all ranks.
TrainedTokenizer train_byte_level_bpe(const DocumentSource& source, TokenId size,
                                      comm::Communicator& comm,
                                      const TrainingProgress& progress);

// Collective: a unigram model as T5's: <pad> 0, </s> 1, <unk> 2, pieces of text as
// nmt_nfkc normalises it, those of bytes for characters that have none, and at the end
// so many sentinels. `size` is that of the whole vocabulary; where the text has too few
// pieces it is smaller. InputError where there is no room, or no text.
TrainedTokenizer train_unigram(const DocumentSource& source, TokenId size,
                               std::int64_t sentinels, comm::Communicator& comm,
                               const TrainingProgress& progress);

// Collective: a vocab.txt as BERT's, of the words that the basic tokenizer makes: the
// five special tokens, the characters of the text (the 1000 most frequent ones at most),
// each to begin a word with and to go on with where it is found so, and merges of
// neighbours, the most frequent ones first.
TrainedTokenizer train_word_piece(const DocumentSource& source, TokenId size,
                                  const BasicTokenizerOptions& basic,
                                  comm::Communicator& comm,
                                  const TrainingProgress& progress);

// What train_word_piece() makes of counted words; `ran_out` tells whether there were too
// few pairs for `size`.
std::string trained_word_list(const WordCounter::Counts& counts, TokenId size,
                              bool& ran_out);

}  // namespace trireme::data

#endif  // TRIREME_DATA_VOCABULARY_TRAINER_HPP_
