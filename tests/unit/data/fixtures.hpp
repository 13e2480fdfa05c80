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
      inputs, {.cut_inside_documents = tokenizer.can_cut_before_space()});
  const auto self = comm::make_self_communicator("self");
  return data::write_corpus(tokenizer, source, scratch / name, *self, options);
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_DATA_FIXTURES_HPP_
