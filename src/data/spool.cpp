// data/spool.cpp — see spool.hpp.
#include "data/spool.hpp"

#include <algorithm>
#include <system_error>

namespace trireme::data {

struct Spool::File {
  explicit File(const io::Path& path)
      : writer(path, io::FileWriter::Mode::create), reader(path, "spool file") {
    // Both keep it open; its name is not needed.
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  io::FileWriter writer;
  io::FileReader reader;
};

Spool::Spool(io::Path beside, std::size_t memory_limit)
    : path_(std::move(beside)), limit_(memory_limit) {}
Spool::~Spool() = default;

void Spool::append(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  buffer_.insert(buffer_.end(), from, from + bytes);
  if (buffer_.size() > limit_) spill();
}

void Spool::spill() {
  if (file_ == nullptr) file_ = std::make_unique<File>(path_);
  file_->writer.write_at(spilled_, buffer_.data(), buffer_.size());
  spilled_ += buffer_.size();
  buffer_.clear();
}

void Spool::drain(const std::function<void(std::byte*, std::size_t)>& take) {
  constexpr std::size_t kBlock = std::size_t{8} << 20;
  if (spilled_ > 0) {
    std::vector<std::byte> block(std::min<std::uint64_t>(kBlock, spilled_));
    for (std::uint64_t at = 0; at < spilled_;) {
      const std::size_t bytes = std::min<std::uint64_t>(block.size(), spilled_ - at);
      file_->reader.read_at(at, block.data(), bytes);
      take(block.data(), bytes);
      at += bytes;
    }
  }
  if (!buffer_.empty()) take(buffer_.data(), buffer_.size());
}

}  // namespace trireme::data
