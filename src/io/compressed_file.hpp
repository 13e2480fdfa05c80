// io/compressed_file.hpp — gzip and Zstandard files, unpacked from beginning to end.
//
// A file is one member (gzip) or frame (zstd) or several, which are read as one text. It
// is unpacked piece by piece: what is held is a buffer of the file and what the format
// looks back at, 32 KiB in gzip and at most 128 MiB in zstd. Lengths and checksums that
// are in the file are checked, and nothing may follow the last member.
#ifndef TRIREME_IO_COMPRESSED_FILE_HPP_
#define TRIREME_IO_COMPRESSED_FILE_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/files.hpp"

namespace trireme::io {

enum class Compression { none, gzip, zstd };

// "gzip", "zstd".
std::string_view name_of(Compression compression);
// Told by a file's first bytes; four are enough.
Compression compression_of(std::string_view first_bytes);
// What the end of a file's name promises: gzip of `.gz`, zstd of `.zst` and `.zstd`.
Compression promised_compression(const Path& path);

class CompressedFile {
 public:
  // InputError where the file cannot be read. `compression` is not none.
  CompressedFile(const Path& path, Compression compression);
  ~CompressedFile();
  CompressedFile(const CompressedFile&) = delete;
  CompressedFile& operator=(const CompressedFile&) = delete;

  // The next bytes of the text: as many as are asked for, fewer only at its end.
  // InputError, with the byte of the file, where that is damaged, cut short or followed
  // by something else.
  std::size_t read(char* text, std::size_t bytes);
  // Bytes of the file that have been unpacked, and that there are.
  std::uint64_t position() const { return position_; }
  std::uint64_t size() const { return file_.size(); }

  // A format's library, behind one interface; the source of this class has them.
  class Unpacker;

 private:
  void refill();
  void require_member_start() const;
  const char* member() const;
  [[noreturn]] void fail(const std::string& what, const char* advice) const;

  FileReader file_;
  Compression compression_;
  std::unique_ptr<Unpacker> unpacker_;
  std::vector<char> buffer_;      // of the file
  std::size_t buffer_begin_ = 0;  // of what is not unpacked yet
  std::size_t buffer_end_ = 0;
  std::uint64_t position_ = 0;      // in the file, of buffer_begin_
  std::uint64_t member_begin_ = 0;  // in the file
  bool is_inside_member_ = false;
};

}  // namespace trireme::io

#endif  // TRIREME_IO_COMPRESSED_FILE_HPP_
