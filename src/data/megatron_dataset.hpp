// data/megatron_dataset.hpp — reads the indexed datasets that Megatron-LM's
// tools/preprocess_data.py makes: NAME.bin with token ids one after the other, NAME.idx
// with where sequences and documents begin.
//
//   .idx   "MMIDIDX" and two zero bytes; uint64 version (1); uint8 type of the ids;
//          uint64 sequences S; uint64 document bounds D + 1;
//          int32 length of each sequence; int64 place of each in .bin, in bytes;
//          int64 first sequence of each document, and S at the end
// Source: IndexedDataset of Megatron-LM (megatron/core/datasets/indexed_dataset.py).
#ifndef TRIREME_DATA_MEGATRON_DATASET_HPP_
#define TRIREME_DATA_MEGATRON_DATASET_HPP_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "comm/communicator.hpp"
#include "data/corpus_writer.hpp"
#include "data/tokenizer.hpp"
#include "io/mapped_file.hpp"

namespace trireme::data {

// Is this the name of one: NAME.idx or NAME.bin, both there, or NAME alone?
bool is_megatron_dataset(const std::filesystem::path& path);

class MegatronDataset {
 public:
  // InputError: one of the files is missing, truncated, of another kind or version, has
  // ids of a type that is no integer, or places outside the other file.
  explicit MegatronDataset(const std::filesystem::path& path);

  std::uint64_t documents() const { return documents_; }
  std::uint64_t sequences() const { return sequences_; }
  std::uint64_t bytes() const { return bin_.size(); }
  const std::filesystem::path& path() const { return bin_.path(); }
  // All sequences of a document, one after the other; where `begins` is not null, where
  // in `ids` those begin that are not empty. InputError, with the place, for an id that
  // is not below `vocabulary_size`.
  void read_document(std::uint64_t document, TokenId vocabulary_size,
                     std::vector<TokenId>& ids,
                     std::vector<std::size_t>* begins = nullptr) const;

 private:
  std::int64_t document_bound(std::uint64_t i) const;
  std::int64_t sequence_length(std::uint64_t i) const;
  std::int64_t sequence_place(std::uint64_t i) const;
  void check_places() const;
  // Ids of one sequence of the document, to the end of `ids`.
  template <class Id>
  void append_sequence(std::uint64_t sequence, TokenId vocabulary_size,
                       std::uint64_t document, std::vector<TokenId>& ids) const;

  struct IdType {
    std::size_t bytes = 0;  // 0: no integer
    void (MegatronDataset::*append)(std::uint64_t, TokenId, std::uint64_t,
                                    std::vector<TokenId>&) const = nullptr;
  };
  static const IdType kIdTypes[9];

  io::MappedFile index_, bin_;
  IdType id_type_;
  std::uint64_t sequences_ = 0, documents_ = 0;
  const std::byte* lengths_ = nullptr;
  const std::byte* places_ = nullptr;
  const std::byte* bounds_ = nullptr;
};

// Collective: the corpus of the same documents, each closed by one end-of-document token
// (of `tokenizer`, which must be the one the ids were made with) whether or not it had
// one. With options.sentences, the sequences of a document are its sentences, which is
// what preprocess_data.py --split-sentences makes: InputError where no document has more
// than one.
CorpusSummary convert_megatron_dataset(const MegatronDataset& dataset,
                                       const Tokenizer& tokenizer,
                                       const std::filesystem::path& out,
                                       comm::Communicator& comm,
                                       const CorpusOptions& options);

}  // namespace trireme::data

#endif  // TRIREME_DATA_MEGATRON_DATASET_HPP_
