// tests/unit/data/token_files.hpp — datasets that others have tokenized, made byte by
// byte by their published layouts: Megatron's and llm.c's.
#ifndef TRIREME_TESTS_UNIT_DATA_TOKEN_FILES_HPP_
#define TRIREME_TESTS_UNIT_DATA_TOKEN_FILES_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace trireme::test {

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Documents of sequences of ids.
using Documents3 = std::vector<std::vector<std::vector<std::int64_t>>>;

struct MegatronFiles {
  std::string index, bin;
};

inline std::string id_bytes(std::uint8_t code, std::int64_t id) {
  std::string bytes;
  switch (code) {
    case 1:
      put(bytes, static_cast<std::uint8_t>(id));
      break;
    case 2:
      put(bytes, static_cast<std::int8_t>(id));
      break;
    case 3:
      put(bytes, static_cast<std::int16_t>(id));
      break;
    case 4:
      put(bytes, static_cast<std::int32_t>(id));
      break;
    case 5:
      put(bytes, id);
      break;
    default:
      put(bytes, static_cast<std::uint16_t>(id));
      break;
  }
  return bytes;
}

// `code`: the type of the ids, as the index says it.
inline MegatronFiles megatron_files(const Documents3& documents, std::uint8_t code) {
  std::string lengths, places, bounds, bin;
  std::uint64_t sequences = 0;
  put<std::int64_t>(bounds, 0);
  for (const auto& document : documents) {
    for (const auto& sequence : document) {
      put(lengths, static_cast<std::int32_t>(sequence.size()));
      put(places, static_cast<std::int64_t>(bin.size()));
      for (const std::int64_t id : sequence) bin += id_bytes(code, id);
      ++sequences;
    }
    put(bounds, static_cast<std::int64_t>(sequences));
  }
  std::string index("MMIDIDX\0\0", 9);
  put<std::uint64_t>(index, 1);
  put(index, code);
  put(index, sequences);
  put<std::uint64_t>(index, documents.size() + 1);
  return {index + lengths + places + bounds, bin};
}

struct LlmCHeader {
  std::int32_t magic = 20240520, version = 1, count = -1;  // -1: as many as there are
};

template <class Id>
std::string llm_c_file(const std::vector<data::TokenId>& ids, LlmCHeader header) {
  std::int32_t values[256] = {
      header.magic, header.version,
      header.count < 0 ? static_cast<std::int32_t>(ids.size()) : header.count};
  std::string bytes(reinterpret_cast<const char*>(values), sizeof(values));
  for (const data::TokenId id : ids) put(bytes, static_cast<Id>(id));
  return bytes;
}
// Of 16-bit ids, as GPT-2's are.
inline std::string gpt2_file(const std::vector<data::TokenId>& ids,
                             LlmCHeader header = {}) {
  return llm_c_file<std::uint16_t>(ids, header);
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_DATA_TOKEN_FILES_HPP_
