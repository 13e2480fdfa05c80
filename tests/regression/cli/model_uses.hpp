// BERTs and T5s of the parity fixtures as checkpoints with a tokenizer, and texts of an
// oracle of what they give (tests/parity/make_bert_use_fixtures.py,
// make_t5_use_fixtures.py). A word is spelt as its id, so that a text says its ids.
#ifndef TRIREME_REGRESSION_CLI_MODEL_USES_HPP_
#define TRIREME_REGRESSION_CLI_MODEL_USES_HPP_

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "regression/cli/workplace.hpp"
#include "support/safetensors.hpp"

namespace trireme::test {

// Name to content.
using TextFiles = std::map<std::string, std::string>;

// BERT's: words 5 to 96 are w5 to w96.
inline std::string word_of_bert(std::int32_t id) {
  return id == 4 ? "[MASK]" : "w" + std::to_string(id);
}
inline TextFiles tokenizer_of_bert() {
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int id = 5; id < 97; ++id) words += word_of_bert(id) + "\n";
  return {{"vocab.txt", words}, {"tokenizer_config.json", R"({"do_lower_case": true})"}};
}

// T5's: words 2 to 56 are w2 to w56, and sentinels those behind them, backwards.
inline std::string word_of_t5(std::int32_t id) {
  if (id < 2) return id == 0 ? "<pad>" : "</s>";
  return id < 57 ? "w" + std::to_string(id)
                 : "<extra_id_" + std::to_string(96 - id) + ">";
}
inline TextFiles tokenizer_of_t5() {
  nlohmann::json vocabulary, added;
  for (int id = 0; id < 97; ++id) {
    vocabulary[word_of_t5(id)] = id;
    if (id < 2 || id >= 57) added.push_back({{"id", id}, {"content", word_of_t5(id)}});
  }
  const nlohmann::json json = {
      {"model", {{"type", "WordPiece"}, {"unk_token", "<pad>"}, {"vocab", vocabulary}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"added_tokens", added}};
  return {{"tokenizer.json", json.dump()}};
}

// Texts of the oracle: (n, s) of ids, and how many of each are real. The first `before`
// of these, and the last one, frame it.
inline std::vector<std::string> texts_of(
    const io::SafetensorsReader& oracle, const std::string& ids_name,
    const std::string& lengths_name, std::int32_t before = 1,
    const std::function<std::string(std::int32_t)>& word = word_of_bert) {
  const auto ids = elements<std::int32_t>(oracle.at(ids_name));
  const auto lengths = elements<std::int32_t>(oracle.at(lengths_name));
  const std::size_t columns = ids.size() / lengths.size();
  std::vector<std::string> texts;
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    std::string text;
    for (std::int32_t i = before; i < lengths[n] - 1; ++i) {
      text +=
          (i > before ? " " : "") + word(ids[n * columns + static_cast<std::size_t>(i)]);
    }
    texts.push_back(text);
  }
  return texts;
}

// Converts the fixture to `scratch / name`, with these files beside its weights. A T5
// reads as many tokens as make_t5_use_fixtures.py has them.
inline void convert_fixture(const Scratch& scratch, const std::string& name,
                            const TextFiles& tokenizer = tokenizer_of_bert()) {
  const std::filesystem::path fixture = hugging_face_fixture(name);
  const std::filesystem::path there = scratch / (name + "-there");
  std::filesystem::create_directory(there);
  std::filesystem::copy(fixture / "model.safetensors", there / "model.safetensors");
  nlohmann::json config = nlohmann::json::parse(slurp(fixture / "config.json"));
  if (config.at("model_type") == "t5") config["n_positions"] = 100;
  spill(there / "config.json", config.dump());
  for (const auto& [file, content] : tokenizer) spill(there / file, content);
  const RunResult result = trireme({"convert", there, scratch / name});
  ASSERT_EQ(result.status, 0) << result.err;
}

}  // namespace trireme::test

#endif  // TRIREME_REGRESSION_CLI_MODEL_USES_HPP_
