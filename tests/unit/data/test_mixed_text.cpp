// Sixteen million bytes of text of every kind, invalid UTF-8 included: the ids are those
// of Hugging Face's tokenizers, document by document (fixtures/tokenizer/mixed.json has
// their checksums). One encoder for all, so that its cache fills and starts anew.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "unit/data/fixtures.hpp"
#include "unit/data/mixed_text.hpp"

namespace trireme::data {
namespace {

constexpr std::size_t kDocumentBytes = std::size_t{1} << 18;

// FNV-1a with whole 32-bit words in the place of bytes: easily written in any language.
std::string checksum(const std::uint32_t* words, std::size_t count) {
  std::uint64_t value = 0xCBF29CE484222325ull;
  for (std::size_t i = 0; i < count; ++i) value = (value ^ words[i]) * 0x100000001B3ull;
  return fmt::format("{:016x}", value);
}

std::string checksum_of_text(const std::string& text) {
  std::vector<std::uint32_t> words(text.size() / sizeof(std::uint32_t));
  std::memcpy(words.data(), text.data(), words.size() * sizeof(std::uint32_t));
  return checksum(words.data(), words.size());
}

void expect_same_ids(const Tokenizer& tokenizer, const char* name) {
  const auto expected = nlohmann::json::parse(io::read_file(test::fixture("mixed.json")));
  ASSERT_GE(expected.size() * kDocumentBytes, std::size_t{16} << 20);
  test::MixedText texts(io::read_file(test::fixture("sample.txt")),
                        io::read_file(test::fixture("invalid.bin")));
  Encoder encoder(tokenizer);
  std::vector<TokenId> ids;
  for (std::size_t number = 0; number < expected.size(); ++number) {
    SCOPED_TRACE(fmt::format("document {}", number));
    const nlohmann::json& record = expected[number];
    const std::string text = texts.document(number, kDocumentBytes);
    ASSERT_EQ(checksum_of_text(text), record.at("text").get<std::string>())
        << "not the text of the fixture: mixed_text.hpp and make_tokenizer_fixtures.py "
           "differ";
    const std::uint64_t replaced_before = encoder.replaced_sequences();
    ids.clear();
    encoder.encode(text, ids);
    EXPECT_EQ(encoder.replaced_sequences() - replaced_before,
              record.at("replaced").get<std::uint64_t>());
    EXPECT_EQ(ids.size(), record.at(name).at("tokens").get<std::size_t>());
    EXPECT_EQ(checksum(ids.data(), ids.size()),
              record.at(name).at("ids").get<std::string>());
  }
}

TEST(MixedTextIds, OfATrainedTokenizerAreHuggingFaces) {
  expect_same_ids(test::trained_tokenizer(), "trained");
}

TEST(MixedTextIds, AreGpt2s) {
  const std::filesystem::path directory = test::gpt2_directory();
  if (directory.empty()) GTEST_SKIP() << test::kNoGpt2;
  expect_same_ids(Tokenizer::load({directory}), "gpt2");
}

}  // namespace
}  // namespace trireme::data
