// data/corpus.hpp — a corpus file as readers see it: a stream of tokens in mapped memory.
//
// Everything small is read when the file is opened; after that no HDF5 call is made,
// tokens and document offsets are taken from the mapping, and nothing of the size of the
// corpus is held in memory. Opening checks that the file is whole; whether its documents
// are in order takes reading all their offsets, and is asked besides. Threads may read at
// once.
#ifndef TRIREME_DATA_CORPUS_HPP_
#define TRIREME_DATA_CORPUS_HPP_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/types.hpp"
#include "data/tokenizer.hpp"
#include "io/mapped_file.hpp"

namespace trireme::io {
class H5File;
}

namespace trireme::data {

class Corpus {
 public:
  // InputError: missing, no HDF5, truncated, or not a corpus, with what is missing in it.
  explicit Corpus(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  index_t token_count() const { return token_count_; }
  index_t document_count() const { return document_count_; }
  TokenId vocabulary_size() const { return vocabulary_size_; }
  TokenId end_of_document() const { return end_of_document_; }
  std::uint64_t checksum() const { return checksum_; }  // as stored
  // Files of the tokenizer that made it; Tokenizer::from_files.
  const TokenizerFiles& tokenizer_files() const { return tokenizer_files_; }

  TokenId token(index_t at) const { return narrow_ != nullptr ? narrow_[at] : wide_[at]; }
  // out[i] = token(begin + i) for i in [0, count). Bounds are checked, and that the file
  // was not cut meanwhile.
  void copy(index_t begin, index_t count, std::int32_t* out) const;
  // First token of document d; of d = document_count() the end of the stream.
  index_t document_begin(index_t document) const;
  // The document that has this token.
  index_t document_of(index_t token) const;

  // Where sentences begin, of a corpus that was made with --sentences: tokens, ascending,
  // none of them an end of a document. A sentence ends where the next one begins, or
  // before its document's end-of-document token. Every document with more tokens than
  // that one begins with a sentence.
  bool has_sentences() const { return sentences_ != nullptr; }
  index_t sentence_count() const { return sentence_count_; }
  // The code of the language whose rules found them.
  const std::string& sentence_language() const { return sentence_language_; }
  index_t sentence_begin(index_t sentence) const;
  // The first sentence that begins at this token or behind it; sentence_count() where
  // none does.
  index_t first_sentence_from(index_t token) const;

  // Entropy of the frequencies of single tokens, in nats per token: what a model must
  // beat. From the file where it is stored, else counted.
  double unigram_entropy() const;
  // Reads all offsets of documents, as fast as the file can be read: has each document a
  // token at least, and begins where the one before ends? Returns what is wrong, with the
  // document; empty when nothing is.
  std::string documents_problem() const;
  // What is wrong with the whole corpus: do the stored checksums hold, is every id in the
  // vocabulary, are documents and sentences in order?
  std::string verify() const;

 private:
  void open();
  void read_attributes(const io::H5File& file);
  void read_tokenizer(const io::H5File& file);
  void map_arrays(const io::H5File& file);
  void map_sentences(const io::H5File& file);
  std::string sentences_problem() const;

  std::filesystem::path path_;
  io::MappedFile file_;
  const std::uint16_t* narrow_ = nullptr;  // one of the two
  const std::uint32_t* wide_ = nullptr;
  const std::uint64_t* documents_ = nullptr;
  const std::uint64_t* sentences_ = nullptr;  // null where they were not kept
  std::uint64_t documents_at_ = 0;            // in the file
  index_t token_count_ = 0;
  index_t document_count_ = 0;
  index_t sentence_count_ = 0;
  TokenId vocabulary_size_ = 0;
  TokenId end_of_document_ = 0;
  std::uint64_t checksum_ = 0;
  std::uint64_t sentence_checksum_ = 0;
  std::string sentence_language_;
  std::optional<double> unigram_entropy_;
  TokenizerFiles tokenizer_files_;
};

// Do the same ids stand for the same text, and the same one for a document's end?
bool same_tokenizer(const Corpus& a, const Corpus& b);

}  // namespace trireme::data

#endif  // TRIREME_DATA_CORPUS_HPP_
