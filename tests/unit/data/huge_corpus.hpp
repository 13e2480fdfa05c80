// tests/unit/data/huge_corpus.hpp — a corpus of 10^12 tokens that takes next to no disk:
// its tokens are a hole in the file, which reads as zeros.
#ifndef TRIREME_TESTS_UNIT_DATA_HUGE_CORPUS_HPP_
#define TRIREME_TESTS_UNIT_DATA_HUGE_CORPUS_HPP_

#include <cstdint>
#include <memory>
#include <vector>

#include "data/corpus.hpp"
#include "data/corpus_format.hpp"
#include "io/hdf5.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {

inline constexpr index_t kHugeTokens = 1'000'000'000'000;

// None where the file system has no such files. Documents are of 5 million tokens, with a
// short one between any two.
inline std::shared_ptr<const data::Corpus> huge_corpus(const Scratch& scratch) {
  constexpr index_t kPairs = 200'000;
  const auto path = scratch / "huge.h5";
  std::vector<std::uint64_t> documents;
  for (index_t pair = 0; pair < kPairs; ++pair) {
    const auto begin = static_cast<std::uint64_t>(pair * (kHugeTokens / kPairs));
    documents.insert(documents.end(), {begin, begin + 40});
  }
  documents.push_back(static_cast<std::uint64_t>(kHugeTokens));
  try {
    io::H5File file = io::H5File::create(path);
    file.set_attribute<std::int64_t>("format_version", data::kCorpusFormatVersion);
    file.set_attribute<std::uint64_t>("vocabulary_size", 1000);
    file.set_attribute<std::uint64_t>("end_of_document", 0);
    file.set_attribute<std::uint64_t>("token_count", documents.back());
    file.set_attribute<std::uint64_t>("document_count", documents.size() - 1);
    file.set_attribute<std::string>("checksum", std::string(16, '0'));
    file.make_dataset("tokens", DType::uint16, {kHugeTokens});
    io::H5Dataset bounds =
        file.make_dataset("documents", DType::uint64, {std::ssize(documents)});
    bounds.write_rows(0, std::ssize(documents), documents.data(),
                      documents.size() * sizeof(documents[0]));
    file.close();
    return std::make_shared<const data::Corpus>(path);
  } catch (const Error& error) {
    std::fprintf(stderr, "no file of 2 TB here: %s\n", error.what());
    return nullptr;
  }
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_DATA_HUGE_CORPUS_HPP_
