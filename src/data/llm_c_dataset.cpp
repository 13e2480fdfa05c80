// data/llm_c_dataset.cpp — see llm_c_dataset.hpp.
//
// Ranks share out the tokens: each takes those from the first document that begins at or
// behind its part's beginning. A document begins behind an end-of-document token.
// Example, with | for that token, of ranks 0 and 1: |a b c|d e| of 8 tokens is cut behind
// the token of number 4, and rank 0 has "a b c", rank 1 "d e".
#include "data/llm_c_dataset.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <fstream>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLlmCHeader = 256 * sizeof(std::int32_t);
constexpr std::int32_t kExamplesMagic = 20240522;

struct LlmCFormat {
  std::int32_t magic, version;
  std::size_t id_bytes;
};
constexpr std::array<LlmCFormat, 2> kLlmCFormats = {{{20240520, 1, 2}, {20240801, 7, 4}}};

bool is_llm_c_magic(std::int32_t magic) {
  for (const LlmCFormat& format : kLlmCFormats) {
    if (format.magic == magic) return true;
  }
  return magic == kExamplesMagic;
}

std::int32_t other_byte_order(std::int32_t value) {
  return std::bit_cast<std::int32_t>(
      __builtin_bswap32(std::bit_cast<std::uint32_t>(value)));
}

std::int32_t header_value(const io::MappedFile& file, std::size_t index) {
  std::int32_t value;
  std::memcpy(&value, file.data() + index * sizeof(value), sizeof(value));
  return value;
}

const LlmCFormat& format_of(const io::MappedFile& file) {
  const std::string name = file.path().string();
  TRIREME_REQUIRE_INPUT(
      file.size() >= kLlmCHeader,
      "'{}' has {}, and the header alone of llm.c's token files {}: it is cut short, or "
      "another kind of file",
      name, format_plural(file.size(), "byte"), kLlmCHeader);
  const std::int32_t magic = header_value(file, 0), version = header_value(file, 1);
  TRIREME_REQUIRE_INPUT(
      magic != kExamplesMagic,
      "'{}' has examples to evaluate with (llm.c's magic {}) and no text: name a file of "
      "tokens",
      name, magic);
  TRIREME_REQUIRE_INPUT(
      !is_llm_c_magic(other_byte_order(magic)),
      "'{}' is a token file of llm.c written on a machine of the other byte order: write "
      "it anew on this one",
      name);
  for (const LlmCFormat& format : kLlmCFormats) {
    if (format.magic != magic) continue;
    TRIREME_REQUIRE_INPUT(version == format.version,
                          "'{}' is a token file of llm.c of version {}; of the magic {} "
                          "version {} can be read",
                          name, version, magic, format.version);
    return format;
  }
  throw InputError(
      fmt::format("'{}' begins with {}, and token files of llm.c with {} (GPT-2) or {} "
                  "(Llama 3). Of a Megatron dataset, the .idx must lie beside the .bin",
                  name, magic, kLlmCFormats[0].magic, kLlmCFormats[1].magic));
}

}  // namespace

bool is_llm_c_dataset(const fs::path& path) {
  std::error_code ignored;  // not there: not one
  if (path.extension() != ".bin" || !fs::is_regular_file(path, ignored)) return false;
  std::int32_t magic = 0;
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(&magic), sizeof(magic));
  if (is_llm_c_magic(magic)) return true;
  fs::path index = path;
  return !fs::exists(index.replace_extension(".idx"), ignored);
}

LlmCDataset::LlmCDataset(const fs::path& path)
    : file_(path, io::MappedFile::Access::sequential, "token file of llm.c") {
  id_bytes_ = format_of(file_).id_bytes;
  const std::int32_t count = header_value(file_, 2);
  TRIREME_REQUIRE_INPUT(count > 0, "'{}' has {} by its header: it is damaged",
                        path.string(), format_plural(count, "token"));
  tokens_ = static_cast<std::uint64_t>(count);
  const std::uint64_t expected = kLlmCHeader + tokens_ * id_bytes_;
  TRIREME_REQUIRE_INPUT(
      file_.size() == expected,
      "'{}' has {}, and {} of {} behind the header make {}: it is {}. Copy it again",
      path.string(), format_plural(file_.size(), "byte"), format_plural(tokens_, "token"),
      format_plural(static_cast<std::int64_t>(id_bytes_), "byte"), expected,
      file_.size() < expected ? "cut short" : "damaged, or two files in one");
}

TokenId LlmCDataset::token(std::uint64_t i, TokenId vocabulary_size) const {
  const std::byte* place = file_.data() + kLlmCHeader + i * id_bytes_;
  TokenId id = 0;
  std::memcpy(&id, place, id_bytes_);
  TRIREME_REQUIRE_INPUT(id < vocabulary_size,
                        "'{}': token {} is {}, and the tokenizer has {}: was the file "
                        "made with another one?",
                        file_.path().string(), i, id,
                        format_plural(vocabulary_size, "token"));
  return id;
}

CorpusSummary convert_llm_c_dataset(const LlmCDataset& dataset,
                                    const Tokenizer& tokenizer, const fs::path& out,
                                    comm::Communicator& comm,
                                    const CorpusOptions& options) {
  const TokenId end = tokenizer.end_of_document(), size = tokenizer.vocabulary_size();
  const auto ranks = static_cast<std::uint64_t>(comm.size());
  const auto first_of = [&](std::uint64_t rank) {
    std::uint64_t at = dataset.tokens() * rank / ranks;
    while (at > 0 && at < dataset.tokens() && dataset.token(at - 1, size) != end) ++at;
    return at;
  };
  return write_tokenized_corpus(
      tokenizer, dataset.bytes(), out, comm, options, [&](TokenSink& sink) {
        const auto rank = static_cast<std::uint64_t>(comm.rank());
        const std::uint64_t first = first_of(rank), last = first_of(rank + 1);
        std::vector<TokenId> document;
        for (std::uint64_t i = first; i < last; ++i) {
          const TokenId id = dataset.token(i, size);
          if (id != end) document.push_back(id);
          if (document.empty() || (id != end && i + 1 < last)) continue;
          document.push_back(end);
          sink.begin_document();
          sink.tokens(document);
          document.clear();
          if (options.progress) options.progress(i + 1 - first, last - first);
        }
        dataset.require_uncut();
        return std::uint64_t{0};
      });
}

}  // namespace trireme::data
