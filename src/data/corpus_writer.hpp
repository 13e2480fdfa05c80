// data/corpus_writer.hpp — tokenizes inputs into a corpus file, by all ranks of a
// communicator; the bytes of the file do not depend on their number.
//
// Each rank tokenizes its part of the input into a spool. The counts are exchanged, rank
// 0 makes the HDF5 file with its datasets allocated, and each rank writes its part of
// them with plain writes at the datasets' place in the file. Parallel HDF5 would do the
// same writes with more to go wrong: every rank in every call, and no error that one rank
// alone could report. The file has its final name only when it is whole and on disk.
#ifndef TRIREME_DATA_CORPUS_WRITER_HPP_
#define TRIREME_DATA_CORPUS_WRITER_HPP_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>

#include "comm/communicator.hpp"
#include "data/document_source.hpp"
#include "data/sentences.hpp"
#include "data/tokenizer.hpp"

namespace trireme::data {

struct CorpusOptions {
  AddedTokens added_tokens = AddedTokens::recognised;
  // Keeps where sentences begin, by the rules of this language. The source must then cut
  // inside documents before blank lines only.
  std::optional<Language> sentences;
  std::size_t spool_memory = std::size_t{256} << 20;  // per rank, before it goes to disk
  // (bytes done, bytes in all) of this rank's part.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
};

// What is known of the whole corpus; equal on all ranks.
struct CorpusSummary {
  std::uint64_t tokens = 0;  // end-of-document tokens included
  std::uint64_t documents = 0;
  std::uint64_t sentences = 0;        // 0 where they are not kept
  std::uint64_t empty_documents = 0;  // left out
  std::uint64_t input_bytes = 0;
  std::uint64_t text_bytes = 0;  // of documents: no JSON, no line ends around them
  std::uint64_t replaced_sequences = 0;  // invalid UTF-8
  // Tokens for what the tokenizer has no pieces for; not those that a text spells.
  std::uint64_t unknown_tokens = 0;
  // "<|endoftext|>" and the like in the text: how often, by id.
  std::map<TokenId, std::uint64_t> added_tokens_found;
  double unigram_entropy = 0.0;   // nats per token
  double tokenize_seconds = 0.0;  // of the slowest rank, without writing
};

// Takes the documents of one rank as token ids.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void begin_document() = 0;
  // A sentence begins with the id of this number among those that come next.
  virtual void begin_sentence(std::size_t id) = 0;
  // Ids below the vocabulary's size; once or more for a document, in order.
  virtual void tokens(std::span<const TokenId> ids) = 0;
};

// Collective. InputError when no input has text, an input line is wrong, or sentences are
// to be kept and no text becomes tokens; nothing is
// left under `out` after an error that was not there before.
CorpusSummary write_corpus(const Tokenizer& tokenizer, const DocumentSource& source,
                           const std::filesystem::path& out, comm::Communicator& comm,
                           const CorpusOptions& options);

// Writes a corpus of text that was tokenized elsewhere. read(sink) gives this rank's
// documents with their end-of-document tokens, lower ranks the earlier ones, and returns
// how many empty ones it left out; it makes no collective calls. input_bytes: of all
// ranks. Where options.sentences are asked for, read() tells where they begin.
CorpusSummary write_tokenized_corpus(
    const Tokenizer& tokenizer, std::uint64_t input_bytes,
    const std::filesystem::path& out, comm::Communicator& comm,
    const CorpusOptions& options,
    const std::function<std::uint64_t(TokenSink& sink)>& read);

}  // namespace trireme::data

#endif  // TRIREME_DATA_CORPUS_WRITER_HPP_
