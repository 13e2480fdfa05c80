// tests/unit/data/t5_json.hpp — the tokenizer.json that transformers makes of a T5's
// spiece.model.
#ifndef TRIREME_TESTS_UNIT_DATA_T5_JSON_HPP_
#define TRIREME_TESTS_UNIT_DATA_T5_JSON_HPP_

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "data/sentence_piece_model.hpp"

namespace trireme::test {

inline std::string base64_of(std::string_view bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 |
             (i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : 0);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += i + k <= bytes.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

// With 100 sentinels.
inline nlohmann::json t5_json(const data::SentencePieceModel& model) {
  using Json = nlohmann::json;
  Json vocabulary = Json::array(), added = Json::array();
  for (const auto& piece : model.pieces) {
    if (piece.kind != data::SentencePieceModel::Kind::normal) {
      added.push_back({{"id", vocabulary.size()}, {"content", piece.text}});
    }
    vocabulary.push_back({piece.text, piece.score});
  }
  for (int i = 99; i >= 0; --i) {
    const std::string text = fmt::format("<extra_id_{}>", i);
    added.push_back({{"id", vocabulary.size()}, {"content", text}});
    vocabulary.push_back({text, 0.0});
  }
  const Json pre_tokenizers = Json::array(
      {{{"type", "WhitespaceSplit"}},
       {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"add_prefix_space", true}}});
  return {{"added_tokens", added},
          {"normalizer",
           {{"type", "Precompiled"},
            {"precompiled_charsmap", base64_of(model.character_map)}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", pre_tokenizers}}},
          {"model", {{"type", "Unigram"}, {"unk_id", 2}, {"vocab", vocabulary}}}};
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_DATA_T5_JSON_HPP_
