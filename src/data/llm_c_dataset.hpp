// data/llm_c_dataset.hpp — reads the token files of llm.c, which modded-nanogpt and
// others took over: one file, all ids in a row.
//
//   256 int32: magic, version, number of tokens, zeros; then the ids
//   magic 20240520, version 1: uint16 (GPT-2's vocabulary)
//   magic 20240801, version 7: uint32 (Llama 3's)
// Nothing says where documents are: each has an end-of-document token in front (or behind
// it), and the part before the first one may be the rest of a document of the file
// before.
// Source: dev/data/data_common.py and llmc/dataloader.h of llm.c.
#ifndef TRIREME_DATA_LLM_C_DATASET_HPP_
#define TRIREME_DATA_LLM_C_DATASET_HPP_

#include <cstdint>
#include <filesystem>
#include <vector>

#include "comm/communicator.hpp"
#include "data/corpus_writer.hpp"
#include "data/tokenizer.hpp"
#include "io/mapped_file.hpp"

namespace trireme::data {

// Is this such a file, whole or damaged: a .bin that begins like one, or a .bin without a
// Megatron index beside it?
bool is_llm_c_dataset(const std::filesystem::path& path);

class LlmCDataset {
 public:
  // InputError: shorter than a header, another kind of file, examples for evaluation, a
  // version that is not known, or a size that is not that of its tokens.
  explicit LlmCDataset(const std::filesystem::path& path);

  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t bytes() const { return file_.size(); }
  const std::filesystem::path& path() const { return file_.path(); }
  // InputError, with the place, for an id that is not below `vocabulary_size`.
  TokenId token(std::uint64_t i, TokenId vocabulary_size) const;
  void require_uncut() const { file_.require_uncut(); }

 private:
  io::MappedFile file_;
  std::size_t id_bytes_ = 2;
  std::uint64_t tokens_ = 0;
};

// Collective: the corpus of the same documents, each closed by one end-of-document token
// of `tokenizer`, which must be the one that the ids were made with.
CorpusSummary convert_llm_c_dataset(const LlmCDataset& dataset,
                                    const Tokenizer& tokenizer,
                                    const std::filesystem::path& out,
                                    comm::Communicator& comm,
                                    const CorpusOptions& options);

}  // namespace trireme::data

#endif  // TRIREME_DATA_LLM_C_DATASET_HPP_
