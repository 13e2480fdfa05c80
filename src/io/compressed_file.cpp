// io/compressed_file.cpp — gzip by zlib, Zstandard by libzstd; see compressed_file.hpp.
//
// read() hands the library what there is of the file and what room there is for text,
// until the room is full. The library says when a member (here the word for a frame, too)
// has ended, and its checksum was right; then comes the next one's beginning or the end
// of the file. A call that neither takes nor makes a byte wants more of the file than
// there is.
#include "io/compressed_file.hpp"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::io {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} << 10;
// What tells a format.
constexpr std::size_t kMagicBytes = 4;

constexpr const char* kGetAnew = "Get the whole file anew";

}  // namespace

class CompressedFile::Unpacker {
 public:
  // What one call of the library did.
  struct Unpacked {
    std::size_t taken = 0;  // bytes of the file
    std::size_t made = 0;   // bytes of the text
    bool is_member_end = false;
    std::string error = {};  // the library's; empty where there is none
    const char* advice = kGetAnew;
  };
  virtual ~Unpacker() = default;
  virtual void begin_member() = 0;
  virtual Unpacked unpack(std::string_view from, char* to, std::size_t room) = 0;
};

namespace {

class GzipUnpacker final : public CompressedFile::Unpacker {
 public:
  GzipUnpacker() {
    constexpr int kGzipOnly = 16;  // added to the logarithm of the window
    TRIREME_REQUIRE(::inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK,
                    "zlib: no memory to unpack");
  }
  ~GzipUnpacker() override { ::inflateEnd(&stream_); }
  GzipUnpacker(const GzipUnpacker&) = delete;
  GzipUnpacker& operator=(const GzipUnpacker&) = delete;

  void begin_member() override { ::inflateReset(&stream_); }

  Unpacked unpack(std::string_view from, char* to, std::size_t room) override {
    constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
    const std::size_t given = std::min(from.size(), kMost);
    room = std::min(room, kMost);
    // zlib does not change what it reads, but does not promise so.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));
    stream_.avail_in = static_cast<uInt>(given);
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(room);
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    Unpacked unpacked{given - stream_.avail_in, room - stream_.avail_out,
                      status == Z_STREAM_END};
    // Z_BUF_ERROR: neither was a byte taken nor one made.
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      unpacked.error = stream_.msg != nullptr ? stream_.msg : ::zError(status);
    }
    return unpacked;
  }

 private:
  z_stream stream_ = {};
};

class ZstdUnpacker final : public CompressedFile::Unpacker {
 public:
  ZstdUnpacker() : stream_(ZSTD_createDStream()) {
    TRIREME_REQUIRE(stream_ != nullptr, "libzstd: no memory to unpack");
  }
  ~ZstdUnpacker() override { ZSTD_freeDStream(stream_); }
  ZstdUnpacker(const ZstdUnpacker&) = delete;
  ZstdUnpacker& operator=(const ZstdUnpacker&) = delete;

  void begin_member() override { wanted_ = ZSTD_initDStream(stream_); }

  // No more than what the library asks for, which is up to the end of a block: after an
  // error it does not tell how far it came, so that the block's place is told.
  Unpacked unpack(std::string_view from, char* to, std::size_t room) override {
    ZSTD_inBuffer in = {from.data(), std::min(from.size(), wanted_), 0};
    ZSTD_outBuffer out = {to, room, 0};
    const std::size_t status = ZSTD_decompressStream(stream_, &out, &in);
    Unpacked unpacked{in.pos, out.pos, status == 0};
    if (ZSTD_isError(status) == 0) {
      wanted_ = status;
      return unpacked;
    }
    unpacked.error = ZSTD_getErrorName(status);
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(status);
    if (code == ZSTD_error_frameParameter_windowTooLarge) {
      unpacked.advice = "Compress the text with a window of 128 MiB at most (--long=27)";
    } else if (code == ZSTD_error_dictionary_wrong) {
      unpacked.advice = "Compress the text without a dictionary";
    }
    return unpacked;
  }

 private:
  ZSTD_DStream* stream_;
  std::size_t wanted_ = 0;
};

std::unique_ptr<CompressedFile::Unpacker> make_unpacker(Compression compression) {
  TRIREME_REQUIRE(compression != Compression::none, "a compressed file has a format");
  if (compression == Compression::gzip) return std::make_unique<GzipUnpacker>();
  return std::make_unique<ZstdUnpacker>();
}

}  // namespace

std::string_view name_of(Compression compression) {
  switch (compression) {
    case Compression::gzip:
      return "gzip";
    case Compression::zstd:
      return "zstd";
    default:
      return "uncompressed";
  }
}

Compression compression_of(std::string_view first_bytes) {
  if (first_bytes.starts_with("\x1F\x8B")) return Compression::gzip;
  if (first_bytes.starts_with("\x28\xB5\x2F\xFD")) return Compression::zstd;
  // A frame that is to be skipped has one of 16 numbers; parallel zstd begins with some.
  const bool is_skippable = first_bytes.size() >= kMagicBytes &&
                            (first_bytes[0] & 0xF0) == 0x50 &&
                            first_bytes.substr(1).starts_with("\x2A\x4D\x18");
  return is_skippable ? Compression::zstd : Compression::none;
}

Compression promised_compression(const Path& path) {
  const Path extension = path.extension();
  if (extension == ".gz") return Compression::gzip;
  if (extension == ".zst" || extension == ".zstd") return Compression::zstd;
  return Compression::none;
}

CompressedFile::CompressedFile(const Path& path, Compression compression)
    : file_(path),
      compression_(compression),
      unpacker_(make_unpacker(compression)),
      buffer_(kBufferBytes) {}
CompressedFile::~CompressedFile() = default;

std::size_t CompressedFile::read(char* text, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    if (buffer_end_ - buffer_begin_ < kMagicBytes) refill();
    if (!is_inside_member_) {
      if (buffer_begin_ == buffer_end_ && position_ > 0) break;
      require_member_start();
      unpacker_->begin_member();
      member_begin_ = position_;
      is_inside_member_ = true;
    }
    const std::string_view left(buffer_.data() + buffer_begin_,
                                buffer_end_ - buffer_begin_);
    const Unpacker::Unpacked unpacked =
        unpacker_->unpack(left, text + done, bytes - done);
    buffer_begin_ += unpacked.taken;
    position_ += unpacked.taken;
    done += unpacked.made;
    if (!unpacked.error.empty()) fail(unpacked.error, unpacked.advice);
    if (unpacked.is_member_end) {
      is_inside_member_ = false;
    } else if (unpacked.taken == 0 && unpacked.made == 0) {
      fail("the file ends inside it: it was cut short", kGetAnew);
    }
  }
  return done;
}

// Moves what is left to the front, so that a member's first bytes are together.
void CompressedFile::refill() {
  const std::size_t left = buffer_end_ - buffer_begin_;
  std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(buffer_begin_), left,
              buffer_.begin());
  const auto more = static_cast<std::size_t>(
      std::min<std::uint64_t>(buffer_.size() - left, file_.size() - position_ - left));
  file_.read_at(position_ + left, buffer_.data() + left, more);
  buffer_begin_ = 0;
  buffer_end_ = left + more;
}

void CompressedFile::require_member_start() const {
  const std::string_view left(buffer_.data() + buffer_begin_,
                              buffer_end_ - buffer_begin_);
  if (compression_of(left) == compression_) return;
  if (position_ == 0) {
    throw InputError(
        fmt::format("'{}' does not begin as a {} file. {}, or name it by what it is",
                    file_.path().string(), name_of(compression_), kGetAnew));
  }
  throw InputError(fmt::format(
      "'{}' has trailing garbage: {} of no {}, from byte {} on. Cut the file there "
      "(head -c {}), or get it anew",
      file_.path().string(), format_plural(file_.size() - position_, "byte"), member(),
      format_grouped(position_), position_));
}

void CompressedFile::fail(const std::string& what, const char* advice) const {
  throw InputError(fmt::format(
      "cannot unpack '{}' at byte {} of {}, in the {} that begins at byte {}: "
      "{}. {}",
      file_.path().string(), format_grouped(position_), format_grouped(file_.size()),
      member(), format_grouped(member_begin_), what, advice));
}

const char* CompressedFile::member() const {
  return compression_ == Compression::gzip ? "gzip member" : "zstd frame";
}

}  // namespace trireme::io
