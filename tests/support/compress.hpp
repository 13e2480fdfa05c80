// tests/support/compress.hpp — text as a compressed file has it, by the libraries' own
// writers.
#ifndef TRIREME_TESTS_SUPPORT_COMPRESS_HPP_
#define TRIREME_TESTS_SUPPORT_COMPRESS_HPP_

#include <string>
#include <string_view>

namespace trireme::test {

// One member, with its checksum and length.
std::string gzip_of(std::string_view text);
// One frame, with its checksum.
std::string zstd_of(std::string_view text);

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_COMPRESS_HPP_
