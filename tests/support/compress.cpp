// tests/support/compress.cpp — see compress.hpp.
#include "support/compress.hpp"

#include <zlib.h>
#include <zstd.h>

#include <stdexcept>

namespace trireme::test {

std::string gzip_of(std::string_view text) {
  constexpr int kGzip = 16;  // added to the logarithm of the window
  z_stream stream = {};
  if (::deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw std::runtime_error("zlib cannot begin");
  }
  std::string packed(::deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int status = ::deflate(&stream, Z_FINISH);
  packed.resize(packed.size() - stream.avail_out);
  ::deflateEnd(&stream);
  if (status != Z_STREAM_END) throw std::runtime_error("zlib cannot compress");
  return packed;
}

std::string zstd_of(std::string_view text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  ZSTD_inBuffer in = {text.data(), text.size(), 0};
  ZSTD_outBuffer out = {packed.data(), packed.size(), 0};
  const std::size_t status = ZSTD_compressStream2(context, &out, &in, ZSTD_e_end);
  ZSTD_freeCCtx(context);
  if (status != 0) throw std::runtime_error("libzstd cannot compress");
  packed.resize(out.pos);
  return packed;
}

}  // namespace trireme::test
