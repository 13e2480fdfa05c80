// data/corpus.cpp — see corpus.hpp.
//
// A corpus is opened in three steps: attributes, the embedded tokenizer, and the two
// arrays, which are then mapped and no longer read through HDF5. Document d is the tokens
// from documents[d] to documents[d + 1] - 1. Example: documents = [0, 3, 7] with 7 tokens
// are two documents, tokens 0 to 2 and 3 to 6. That these offsets ascend is checked apart
// from opening (first_descent), as it takes reading all of them.
#include "data/corpus.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "data/corpus_format.hpp"
#include "data/tokenizer_files.hpp"
#include "io/checksum.hpp"
#include "io/hdf5.hpp"

namespace trireme::data {
namespace {

constexpr const char* kAdvice = "make a corpus with `trireme tokenize`";

// Offsets of documents that are read at a time: some MiB.
constexpr index_t kOffsetsAtOnce = index_t{1} << 19;
// Offsets that are compared at a time, so that they stay in the first cache.
constexpr index_t kOffsetsTogether = 2048;

// The first i below `pairs` with values[i] >= values[i + 1]; `pairs` where they ascend.
index_t first_descent(const std::uint64_t* values, index_t pairs) {
  for (index_t begin = 0; begin < pairs; begin += kOffsetsTogether) {
    const index_t end = std::min(begin + kOffsetsTogether, pairs);
    std::uint64_t descents = 0;  // no branch: the compiler makes vectors of it
    for (index_t i = begin; i < end; ++i) descents |= values[i] >= values[i + 1] ? 1 : 0;
    if (descents == 0) continue;
    index_t i = begin;
    while (values[i] < values[i + 1]) ++i;
    return i;
  }
  return pairs;
}

// What a corpus must have and this file does not.
std::string missing_parts(const io::H5File& file) {
  std::vector<const char*> datasets = {"tokens", "documents"};
  std::vector<const char*> attributes = {"format_version",  "vocabulary_size",
                                         "end_of_document", "token_count",
                                         "document_count",  "checksum"};
  // Any of these, and there must be all.
  if (file.has("sentences") || file.has_attribute("sentence_count")) {
    datasets.push_back("sentences");
    attributes.insert(attributes.end(),
                      {"sentence_count", "sentence_language", "sentence_checksum"});
  }
  std::string missing;
  const auto add = [&](const char* kind, const char* name) {
    missing += fmt::format("{}{} {}", missing.empty() ? "" : ", ", kind, name);
  };
  for (const char* name : datasets) {
    if (!file.has(name) || file.is_group(name)) add("dataset", name);
  }
  for (const char* name : attributes) {
    if (!file.has_attribute(name)) add("attribute", name);
  }
  return missing;
}

// The checksum of an array in memory, as corpus_format.hpp has it.
std::uint64_t checksum_of_array(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  io::Checksum sum;
  for (std::size_t at = 0; at < size; at += kChecksumBlock) {
    const std::uint64_t block =
        io::checksum(bytes + at, std::min(kChecksumBlock, size - at));
    sum.update(&block, sizeof(block));
  }
  return sum.value();
}

}  // namespace

std::uint64_t checksum_of(const std::map<std::string, std::string>& files) {
  io::Checksum sum;
  for (const auto& [name, content] : files) {
    const std::uint64_t sizes[2] = {name.size(), content.size()};
    sum.update(sizes, sizeof(sizes));
    sum.update(name.data(), name.size());
    sum.update(content.data(), content.size());
  }
  return sum.value();
}

Corpus::Corpus(const std::filesystem::path& path) : path_(path) {
  try {
    open();
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {  // HDF5 tripping over what is in the file
    throw InputError(fmt::format("corpus '{}' is damaged ({}): {}", path.string(),
                                 error.what(), kAdvice));
  }
}

void Corpus::open() {
  const std::string name = path_.string();
  TRIREME_REQUIRE_INPUT(std::filesystem::exists(path_),
                        "corpus '{}' does not exist: {}, or correct the path", name,
                        kAdvice);
  const io::H5FileCheck check = io::check_hdf5(path_, "corpus");
  TRIREME_REQUIRE_INPUT(check.is_hdf5, "corpus '{}' is not an HDF5 file: {}", name,
                        kAdvice);
  TRIREME_REQUIRE_INPUT(check.problem.empty(), "corpus '{}': {}", name, check.problem);
  const io::H5File file = io::H5File::open(path_);
  const std::string missing = missing_parts(file);
  TRIREME_REQUIRE_INPUT(missing.empty(),
                        "'{}' is an HDF5 file but not a corpus: it has no {}; {}", name,
                        missing, kAdvice);
  const auto version = file.attribute<std::int64_t>("format_version");
  TRIREME_REQUIRE_INPUT(
      version == kCorpusFormatVersion,
      "corpus '{}' has format version {}, this program reads version {}: "
      "{}",
      name, version, kCorpusFormatVersion, kAdvice);
  read_attributes(file);
  read_tokenizer(file);
  map_arrays(file);
  file_.require_uncut();
}

void Corpus::read_attributes(const io::H5File& file) {
  const std::string name = path_.string();
  const auto count_of = [&](const char* attribute) {
    const auto count = file.attribute<std::uint64_t>(attribute);
    TRIREME_REQUIRE_INPUT(std::cmp_less_equal(count, kMaxCount),
                          "corpus '{}': {} is {}, which no file can hold: {}", name,
                          attribute, count, kAdvice);
    return static_cast<index_t>(count);
  };
  token_count_ = count_of("token_count");
  document_count_ = count_of("document_count");
  const auto vocabulary = file.attribute<std::uint64_t>("vocabulary_size");
  const auto end = file.attribute<std::uint64_t>("end_of_document");
  TRIREME_REQUIRE_INPUT(end < vocabulary && vocabulary <= (std::uint64_t{1} << 31),
                        "corpus '{}': end_of_document {} is not in the vocabulary of {}",
                        name, end, vocabulary);
  vocabulary_size_ = static_cast<TokenId>(vocabulary);
  end_of_document_ = static_cast<TokenId>(end);
  const auto checksum_in = [&](const char* attribute) {
    const auto checksum = file.attribute<std::string>(attribute);
    TRIREME_REQUIRE_INPUT(
        checksum.size() == 16 &&
            checksum.find_first_not_of("0123456789abcdef") == std::string::npos,
        "corpus '{}': its {} is '{}', expected 16 hexadecimal digits: the file is "
        "damaged",
        name, attribute, checksum);
    return io::from_hex(checksum);
  };
  checksum_ = checksum_in("checksum");
  if (file.has_attribute("sentence_count")) {
    sentence_count_ = count_of("sentence_count");
    sentence_language_ = file.attribute<std::string>("sentence_language");
    sentence_checksum_ = checksum_in("sentence_checksum");
  }
  if (file.has_attribute("unigram_entropy")) {
    unigram_entropy_ = file.attribute<double>("unigram_entropy");
  }
}

void Corpus::read_tokenizer(const io::H5File& file) {
  if (file.has("tokenizer")) {
    const io::H5Group group = file.group("tokenizer");
    for (const std::string& entry : group.children()) {
      tokenizer_files_[entry] = group.read_bytes(entry);
    }
  }
  if (file.has_attribute("tokenizer_checksum")) {
    const auto stored = file.attribute<std::string>("tokenizer_checksum");
    const std::string found = io::to_hex(checksum_of(tokenizer_files_));
    TRIREME_REQUIRE_INPUT(
        found == stored,
        "corpus '{}': its tokenizer has checksum {}, stored is {}: the file is damaged; "
        "{}",
        path_.string(), found, stored, kAdvice);
  }
}

void Corpus::map_arrays(const io::H5File& file) {
  const std::string name = path_.string();
  const io::H5Dataset tokens = file.dataset("tokens");
  const io::H5Dataset documents = file.dataset("documents");
  const DType type = tokens.dtype();
  TRIREME_REQUIRE_INPUT(type == DType::uint16 || type == DType::uint32,
                        "corpus '{}': /tokens is {}, expected uint16 or uint32", name,
                        name_of(type));
  TRIREME_REQUIRE_INPUT(tokens.shape() == Shape{token_count_},
                        "corpus '{}': /tokens has shape {}, token_count is {}", name,
                        to_string(tokens.shape()), token_count_);
  TRIREME_REQUIRE_INPUT(
      documents.dtype() == DType::uint64 &&
          documents.shape() == Shape{document_count_ + 1},
      "corpus '{}': /documents is {} of shape {}, expected uint64 of shape ({})", name,
      name_of(documents.dtype()), to_string(documents.shape()), document_count_ + 1);
  const auto tokens_at = tokens.offset();
  const auto documents_at = documents.offset();
  TRIREME_REQUIRE_INPUT(
      tokens_at && documents_at,
      "corpus '{}': /tokens and /documents must be stored contiguously, "
      "without chunks or filters, to be mapped",
      name);

  file_ = io::MappedFile(path_, io::MappedFile::Access::random, "corpus");
  const auto count = static_cast<std::uint64_t>(token_count_);
  if (type == DType::uint16) {
    narrow_ = file_.array<std::uint16_t>(*tokens_at, count, "/tokens");
  } else {
    wide_ = file_.array<std::uint32_t>(*tokens_at, count, "/tokens");
  }
  documents_ = file_.array<std::uint64_t>(
      *documents_at, static_cast<std::uint64_t>(document_count_) + 1, "/documents");
  documents_at_ = *documents_at;
  TRIREME_REQUIRE_INPUT(
      documents_[0] == 0 && documents_[document_count_] == count,
      "corpus '{}': in /documents the first document begins at token "
      "{}, expected 0, and the last one, {}, ends at token {}, expected "
      "{} (token_count). The file is damaged: {}",
      name, documents_[0], document_count_ - 1, documents_[document_count_], count,
      kAdvice);
  if (file.has("sentences")) map_sentences(file);
}

void Corpus::map_sentences(const io::H5File& file) {
  const std::string name = path_.string();
  const io::H5Dataset sentences = file.dataset("sentences");
  TRIREME_REQUIRE_INPUT(
      sentences.dtype() == DType::uint64 && sentences.shape() == Shape{sentence_count_} &&
          sentence_count_ > 0,
      "corpus '{}': /sentences is {} of shape {}, expected uint64 of shape ({}) and a "
      "sentence at least",
      name, name_of(sentences.dtype()), to_string(sentences.shape()), sentence_count_);
  const auto at = sentences.offset();
  TRIREME_REQUIRE_INPUT(at.has_value(),
                        "corpus '{}': /sentences must be stored contiguously, without "
                        "chunks or filters, to be mapped",
                        name);
  sentences_ = file_.array<std::uint64_t>(
      *at, static_cast<std::uint64_t>(sentence_count_), "/sentences");
  const std::uint64_t first = sentences_[0], last = sentences_[sentence_count_ - 1];
  TRIREME_REQUIRE_INPUT(
      first <= last && std::cmp_less(last, token_count_),
      "corpus '{}': in /sentences the first one begins at token {} and the last one at "
      "{}, of {}. The file is damaged: {}",
      name, first, last, token_count_, kAdvice);
}

void Corpus::copy(index_t begin, index_t count, std::int32_t* out) const {
  TRIREME_REQUIRE(begin >= 0 && count >= 0 && begin <= token_count_ - count,
                  "tokens [{}, {}) are outside corpus '{}' of {}", begin, begin + count,
                  path_.string(), token_count_);
  if (narrow_ != nullptr) {
    std::copy_n(narrow_ + begin, count, out);
  } else {
    std::copy_n(wide_ + begin, count, out);
  }
  file_.require_uncut();
}

index_t Corpus::document_begin(index_t document) const {
  TRIREME_REQUIRE(document >= 0 && document <= document_count_,
                  "document {} is outside corpus '{}' of {}", document, path_.string(),
                  document_count_);
  return static_cast<index_t>(documents_[document]);
}

index_t Corpus::document_of(index_t token) const {
  TRIREME_REQUIRE(token >= 0 && token < token_count_,
                  "token {} is outside corpus '{}' of {}", token, path_.string(),
                  token_count_);
  const std::uint64_t* const behind = std::upper_bound(
      documents_, documents_ + document_count_, static_cast<std::uint64_t>(token));
  return behind - documents_ - 1;
}

index_t Corpus::sentence_begin(index_t sentence) const {
  TRIREME_REQUIRE(sentence >= 0 && sentence < sentence_count_,
                  "sentence {} is outside corpus '{}' of {}", sentence, path_.string(),
                  sentence_count_);
  return static_cast<index_t>(sentences_[sentence]);
}

index_t Corpus::first_sentence_from(index_t token) const {
  const auto* end = sentences_ + sentence_count_;
  return std::lower_bound(sentences_, end, static_cast<std::uint64_t>(token)) -
         sentences_;
}

double Corpus::unigram_entropy() const {
  if (unigram_entropy_) return *unigram_entropy_;
  std::vector<std::uint64_t> counts(vocabulary_size_);
  for (index_t i = 0; i < token_count_; ++i) {
    const TokenId id = token(i);
    TRIREME_REQUIRE_INPUT(id < vocabulary_size_,
                          "corpus '{}': token {} has id {}, the vocabulary has {}",
                          path_.string(), i, id, vocabulary_size_);
    ++counts[id];
  }
  file_.require_uncut();
  return entropy_of(counts);
}

// The offsets are read from the file and not from the mapping, whose pages would count as
// this process' memory.
std::string Corpus::documents_problem() const {
  const io::FileReader reader(path_, "corpus");
  constexpr std::size_t kBytes = sizeof(std::uint64_t);
  std::vector<std::uint64_t> offsets(
      static_cast<std::size_t>(std::min(kOffsetsAtOnce, document_count_) + 1));
  for (index_t first = 0; first < document_count_; first += kOffsetsAtOnce) {
    const index_t documents = std::min(kOffsetsAtOnce, document_count_ - first);
    reader.read_at(documents_at_ + static_cast<std::uint64_t>(first) * kBytes,
                   offsets.data(), static_cast<std::size_t>(documents + 1) * kBytes);
    const index_t i = first_descent(offsets.data(), documents);
    if (i == documents) continue;
    const auto at = static_cast<std::size_t>(i);
    return fmt::format(
        "/documents does not ascend: document {} begins at token {} and ends at token "
        "{}. The file is damaged: {}",
        first + i, offsets[at], offsets[at + 1], kAdvice);
  }
  return {};
}

// Documents are in order. Walks along both, and says what is wrong first.
std::string Corpus::sentences_problem() const {
  index_t sentence = 0;
  for (index_t document = 0; document < document_count_; ++document) {
    const std::uint64_t begin = documents_[document];
    const std::uint64_t end = documents_[document + 1] - 1;  // its last token
    const bool has_first = sentence < sentence_count_ && sentences_[sentence] == begin;
    if (end > begin && !has_first) {
      return fmt::format(
          "/sentences has none that begins with document {}, at token {}: the file is "
          "damaged",
          document, begin);
    }
    std::uint64_t least = begin;
    for (; sentence < sentence_count_ && sentences_[sentence] <= end; ++sentence) {
      const std::uint64_t at = sentences_[sentence];
      if (at < least || at == end) {
        return fmt::format(
            "/sentences does not ascend within documents: sentence {} begins at token "
            "{}, "
            "in document {} of tokens {} to {}. The file is damaged",
            sentence, at, document, begin, end);
      }
      least = at + 1;
    }
  }
  if (sentence == sentence_count_) return {};
  return fmt::format("/sentences: sentence {} begins at token {}, behind all documents",
                     sentence, sentences_[sentence]);
}

std::string Corpus::verify() const {
  const void* tokens = narrow_ != nullptr ? static_cast<const void*>(narrow_) : wide_;
  const auto size = static_cast<std::size_t>(token_count_) * (narrow_ != nullptr ? 2 : 4);
  const auto difference = [](const char* what, std::uint64_t found,
                             std::uint64_t stored) {
    return fmt::format("{} has checksum {}, stored is {}: the file is damaged", what,
                       io::to_hex(found), io::to_hex(stored));
  };
  const std::uint64_t sum = checksum_of_array(tokens, size);
  if (sum != checksum_) return difference("/tokens", sum, checksum_);
  for (index_t i = 0; i < token_count_; ++i) {
    if (token(i) >= vocabulary_size_) {
      return fmt::format("token {} has id {}, the vocabulary has {}", i, token(i),
                         vocabulary_size_);
    }
  }
  file_.require_uncut();
  std::string problem = documents_problem();
  if (!problem.empty() || !has_sentences()) return problem;
  problem = sentences_problem();
  const std::uint64_t sentence_sum = checksum_of_array(
      sentences_, static_cast<std::size_t>(sentence_count_) * sizeof(*sentences_));
  if (problem.empty() && sentence_sum != sentence_checksum_) {
    problem = difference("/sentences", sentence_sum, sentence_checksum_);
  }
  file_.require_uncut();
  return problem;
}

bool same_tokenizer(const Corpus& a, const Corpus& b) {
  return a.vocabulary_size() == b.vocabulary_size() &&
         a.end_of_document() == b.end_of_document() &&
         is_one_tokenizer(a.tokenizer_files(), b.tokenizer_files());
}

}  // namespace trireme::data
