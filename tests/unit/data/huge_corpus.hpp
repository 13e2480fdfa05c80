// tests/unit/data/huge_corpus.hpp — a corpus of 10^12 tokens that takes next to no disk:
// its tokens are a hole in the file, which reads as zeros.
#ifndef TRIREME_TESTS_UNIT_DATA_HUGE_CORPUS_HPP_
#define TRIREME_TESTS_UNIT_DATA_HUGE_CORPUS_HPP_

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "data/corpus.hpp"
#include "data/corpus_format.hpp"
#include "data/sample_index.hpp"
#include "io/hdf5.hpp"

namespace trireme::test {

inline constexpr index_t kHugeTokens = 1'000'000'000'000;
// Stretches of tokens, each a short document and a long one, but for the last stretch,
// which is short documents alone. Every document has two sentences.
inline constexpr index_t kStretches = 400'000;
inline constexpr index_t kStretch = kHugeTokens / kStretches;
inline constexpr index_t kShortDocument = 40;
inline constexpr index_t kFirstSentence = 20;
inline constexpr data::TokenRange kShortDocuments = {kHugeTokens - kStretch, kHugeTokens};
inline constexpr index_t kHugeDocuments =
    2 * (kStretches - 1) + kStretch / kShortDocument;

// Writes a dataset piece by piece, so that what it takes to make the file is gone when
// memory is measured.
class PiecesOfOffsets {
 public:
  explicit PiecesOfOffsets(io::H5Dataset dataset) : dataset_(std::move(dataset)) {}
  void add(index_t offset) {
    piece_.push_back(static_cast<std::uint64_t>(offset));
    if (piece_.size() == kPiece) write();
  }
  void write() {
    dataset_.write_rows(written_, std::ssize(piece_), piece_.data(),
                        piece_.size() * sizeof(piece_[0]));
    written_ += std::ssize(piece_);
    piece_.clear();
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 13;
  io::H5Dataset dataset_;
  std::vector<std::uint64_t> piece_;
  index_t written_ = 0;
};

inline void write_huge_documents(io::H5File& file) {
  PiecesOfOffsets documents(
      file.make_dataset("documents", DType::uint64, {kHugeDocuments + 1}));
  PiecesOfOffsets sentences(
      file.make_dataset("sentences", DType::uint64, {2 * kHugeDocuments}));
  const auto add = [&](index_t begin) {
    documents.add(begin);
    sentences.add(begin);
    sentences.add(begin + kFirstSentence);
  };
  for (index_t stretch = 0; stretch + 1 < kStretches; ++stretch) {
    add(stretch * kStretch);
    add(stretch * kStretch + kShortDocument);
  }
  for (index_t begin = kShortDocuments.begin; begin < kHugeTokens;
       begin += kShortDocument) {
    add(begin);
  }
  documents.add(kHugeTokens);
  documents.write();
  sentences.write();
}

// False where the file system has no such files.
inline bool write_huge_corpus(const std::filesystem::path& path) {
  try {
    io::H5File file = io::H5File::create(path);
    file.set_attribute<std::int64_t>("format_version", data::kCorpusFormatVersion);
    file.set_attribute<std::uint64_t>("vocabulary_size", 1000);
    file.set_attribute<std::uint64_t>("end_of_document", 0);
    file.set_attribute<std::uint64_t>("token_count", kHugeTokens);
    file.set_attribute<std::uint64_t>("document_count", kHugeDocuments);
    file.set_attribute<std::string>("checksum", std::string(16, '0'));
    file.set_attribute<std::uint64_t>("sentence_count", 2 * kHugeDocuments);
    file.set_attribute<std::string>("sentence_language", "none");
    file.set_attribute<std::string>("sentence_checksum", std::string(16, '0'));
    file.make_dataset("tokens", DType::uint16, {kHugeTokens});
    write_huge_documents(file);
    file.close();
    return true;
  } catch (const Error& error) {
    std::fprintf(stderr, "no file of 2 TB here: %s\n", error.what());
    return false;
  }
}

// None where no such file can be mapped.
inline std::shared_ptr<const data::Corpus> open_huge_corpus(
    const std::filesystem::path& path) {
  try {
    return std::make_shared<const data::Corpus>(path);
  } catch (const Error& error) {
    std::fprintf(stderr, "no mapping of 2 TB here: %s\n", error.what());
    return nullptr;
  }
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_DATA_HUGE_CORPUS_HPP_
