// io/checksum.cpp — XXH3-64 by libxxhash; see checksum.hpp.
#include "io/checksum.hpp"

#include <xxhash.h>

#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "io/files.hpp"

namespace trireme::io {

struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();  // XXH3_state_t must be 64-byte aligned
  ~State() { XXH3_freeState(xxh); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  TRIREME_REQUIRE(state_->xxh != nullptr && XXH3_64bits_reset(state_->xxh) == XXH_OK,
                  "XXH3: no memory for its state");
}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  TRIREME_REQUIRE(XXH3_64bits_update(state_->xxh, data, bytes) == XXH_OK,
                  "XXH3: update of {} failed", format_plural(bytes, "byte"));
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(state_->xxh);
}

std::uint64_t checksum(const void* data, std::size_t bytes) {
  return XXH3_64bits(data, bytes);
}

FileSum checksum_file(const std::filesystem::path& path) {
  constexpr std::size_t kChunk = std::size_t{4} << 20;
  const FileReader reader(path);
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kChunk, reader.size()));
  Checksum sum;
  for (std::uint64_t at = 0; at < reader.size(); at += buffer.size()) {
    const auto bytes = static_cast<std::size_t>(
        std::min<std::uint64_t>(buffer.size(), reader.size() - at));
    reader.read_at(at, buffer.data(), bytes);
    sum.update(buffer.data(), bytes);
  }
  return {reader.size(), sum.value()};
}

std::string to_hex(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

std::uint64_t from_hex(std::string_view text) {
  const auto value = number_in<std::uint64_t>(text, 16);
  TRIREME_REQUIRE_INPUT(text.size() == 16 && value,
                        "'{}' is not a checksum: expected 16 hexadecimal digits", text);
  return *value;
}

}  // namespace trireme::io
