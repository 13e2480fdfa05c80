// data/corpus_format.hpp — names and definitions shared by the writer and the reader of
// corpora. docs/corpora.md describes the format for users.
#ifndef TRIREME_DATA_CORPUS_FORMAT_HPP_
#define TRIREME_DATA_CORPUS_FORMAT_HPP_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace trireme::data {

inline constexpr std::int64_t kCorpusFormatVersion = 1;

// The version of the rules that found the sentences of a corpus (sentences.hpp): changed
// with them.
inline constexpr std::int64_t kSentenceRules = 1;

// The checksum of a corpus is the XXH3-64 of the XXH3-64 values (8 bytes each, little
// endian) of consecutive blocks of this many bytes of /tokens, the last one shorter:
// blocks are summed by as many ranks as there are, and the value is the same. /sentences
// has one of its own, made likewise.
inline constexpr std::size_t kChecksumBlock = std::size_t{4} << 20;

// /tokens holds 16-bit numbers where all ids fit.
inline DType token_type(std::uint64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? DType::uint16 : DType::uint32;
}

// The checksum of the tokenizer's files, names and contents in order: a text spelt by a
// damaged one would be another text.
std::uint64_t checksum_of(const std::map<std::string, std::string>& files);

// - sum p log p over the ids that occur: nats per token of the best model that knows
// nothing but frequencies.
double entropy_of(const std::vector<std::uint64_t>& counts);

}  // namespace trireme::data

#endif  // TRIREME_DATA_CORPUS_FORMAT_HPP_
