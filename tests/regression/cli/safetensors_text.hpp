// safetensors files for tests, read and written without the program's own code: eight
// bytes of length, a JSON header, the data.
#ifndef TRIREME_REGRESSION_CLI_SAFETENSORS_TEXT_HPP_
#define TRIREME_REGRESSION_CLI_SAFETENSORS_TEXT_HPP_

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "unit/io/scratch.hpp"

namespace trireme::test {

struct TensorText {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
  bool operator==(const TensorText&) const = default;
};

using TensorTexts = std::map<std::string, TensorText>;

inline TensorTexts read_safetensors(const std::filesystem::path& path) {
  const std::string file = slurp(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const auto header = nlohmann::json::parse(file.substr(8, length));
  TensorTexts tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    tensors[name] = {entry["dtype"], entry["shape"],
                     file.substr(8 + length + begin, end - begin)};
  }
  return tensors;
}

inline void write_safetensors(const std::filesystem::path& path,
                              const TensorTexts& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  spill(path, file + text + data);
}

// Each element of size n replaced by what `change` makes of its bits.
template <class From, class To, class F>
std::string mapped(const std::string& bytes, const F& change) {
  std::string result;
  for (std::size_t i = 0; i + sizeof(From) <= bytes.size(); i += sizeof(From)) {
    From from;
    std::memcpy(&from, bytes.data() + i, sizeof(from));
    const To to = change(from);
    result.append(reinterpret_cast<const char*>(&to), sizeof(to));
  }
  return result;
}

}  // namespace trireme::test

#endif  // TRIREME_REGRESSION_CLI_SAFETENSORS_TEXT_HPP_
