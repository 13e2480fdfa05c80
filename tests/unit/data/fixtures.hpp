// tests/unit/data/fixtures.hpp — what the tests of data share: the committed fixtures,
// and small corpora written on the spot.
#ifndef TRIREME_TESTS_UNIT_DATA_FIXTURES_HPP_
#define TRIREME_TESTS_UNIT_DATA_FIXTURES_HPP_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/self_communicator.hpp"
#include "data/corpus_writer.hpp"
#include "data/tokenizer.hpp"
#include "io/files.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {

inline std::filesystem::path fixture(const std::string& name) {
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  return std::filesystem::path(source != nullptr ? source : ".") /
         "tests/parity/fixtures" / "tokenizer" / name;
}

inline data::Tokenizer trained_tokenizer() {
  return data::Tokenizer::load({fixture("trained.json")});
}

// Where GPT-2's own files are: put in place by tools/bootstrap, not part of the
// repository. Empty when they are nowhere.
inline constexpr const char* kNoGpt2 =
    "NO GPT-2 VOCABULARY: run tools/bootstrap, or set TRIREME_GPT2_DIR";
inline std::filesystem::path gpt2_directory() {
  std::vector<std::filesystem::path> places;
  if (const char* named = std::getenv("TRIREME_GPT2_DIR")) places.emplace_back(named);
  if (const char* binary = std::getenv("TRIREME_BINARY")) {
    places.push_back(std::filesystem::path(binary).parent_path().parent_path() /
                     "share/trireme/gpt2");
  }
  std::filesystem::path found;
  for (const auto& place : places) {
    if (std::filesystem::exists(place / "vocab.bpe")) found = place;
  }
  return found;
}

// Makes a corpus of these texts, one file each.
inline data::CorpusSummary make_corpus(const Scratch& scratch, const std::string& name,
                                       const std::vector<std::string>& texts,
                                       const data::Tokenizer& tokenizer,
                                       data::CorpusOptions options = {}) {
  std::vector<std::filesystem::path> inputs;
  for (const std::string& text : texts) {
    inputs.push_back(scratch / (name + "." + std::to_string(inputs.size()) + ".txt"));
    spill(inputs.back(), text);
  }
  const data::DocumentSource source(
      inputs, {.cut_inside_documents = tokenizer.can_cut_before_space(),
               .cut_before_blank_lines_only = options.sentences.has_value()});
  const auto self = comm::make_self_communicator("self");
  return data::write_corpus(tokenizer, source, scratch / name, *self, options);
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_DATA_FIXTURES_HPP_
