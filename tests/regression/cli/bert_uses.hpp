// BERTs of the parity fixtures as checkpoints with a tokenizer, and what they give as an
// oracle has it (tests/parity/make_bert_use_fixtures.py).
#ifndef TRIREME_REGRESSION_CLI_BERT_USES_HPP_
#define TRIREME_REGRESSION_CLI_BERT_USES_HPP_

#include <filesystem>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "regression/cli/workplace.hpp"
#include "support/safetensors.hpp"

namespace trireme::test {

// Words 5 to 96 are w5 to w96, so that a text says its ids.
inline std::string numbered_words() {
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int id = 5; id < 97; ++id) words += "w" + std::to_string(id) + "\n";
  return words;
}

// Texts of the oracle: (n, s) of ids, and how many of each are real.
inline std::vector<std::string> texts_of(const io::SafetensorsReader& oracle,
                                         const std::string& ids_name,
                                         const std::string& lengths_name) {
  const auto ids = elements<std::int32_t>(oracle.at(ids_name));
  const auto lengths = elements<std::int32_t>(oracle.at(lengths_name));
  const std::size_t columns = ids.size() / lengths.size();
  std::vector<std::string> texts;
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    std::string text;
    for (int i = 1; i < lengths[n] - 1; ++i) {
      const std::int32_t id = ids[n * columns + static_cast<std::size_t>(i)];
      text += (i > 1 ? " " : "") + (id == 4 ? "[MASK]" : "w" + std::to_string(id));
    }
    texts.push_back(text);
  }
  return texts;
}

// Converts the fixture to `scratch / name`, with such a tokenizer beside its weights.
inline void convert_fixture(const Scratch& scratch, const std::string& name) {
  const std::filesystem::path fixture = hugging_face_fixture(name);
  const std::filesystem::path there = scratch / (name + "-there");
  std::filesystem::create_directory(there);
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy(fixture / file, there / file);
  }
  spill(there / "vocab.txt", numbered_words());
  spill(there / "tokenizer_config.json", R"({"do_lower_case": true})");
  const RunResult result = trireme({"convert", there, scratch / name});
  ASSERT_EQ(result.status, 0) << result.err;
}

}  // namespace trireme::test

#endif  // TRIREME_REGRESSION_CLI_BERT_USES_HPP_
