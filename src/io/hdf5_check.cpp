// io/hdf5_check.cpp — reads an HDF5 superblock without the library (HDF5 File Format
// Specification 3.0, section II.A).
#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "io/hdf5.hpp"

namespace trireme::io {

namespace {

constexpr std::array<unsigned char, 8> kSignature = {0x89, 'H',  'D',  'F',
                                                     '\r', '\n', 0x1a, '\n'};
// Where the end-of-file address lies, by version, with 8-byte addresses.
constexpr std::array<std::size_t, 4> kEndOffset = {40, 44, 28, 28};
constexpr std::size_t kSuperblockBytes = 96;

}  // namespace

H5FileCheck check_hdf5(const Path& path, std::string_view role) {
  const FileReader reader(path, role);
  H5FileCheck check;
  check.bytes = reader.size();
  std::array<unsigned char, kSuperblockBytes> head{};
  reader.read_at(0, head.data(), std::min<std::uint64_t>(head.size(), check.bytes));
  check.is_hdf5 = std::equal(kSignature.begin(), kSignature.end(), head.begin());
  if (!check.is_hdf5) {
    check.problem = fmt::format(
        "'{}' is not an HDF5 file (its {} do not begin with the HDF5 signature)",
        path.string(), format_plural(check.bytes, "byte"));
    return check;
  }
  const unsigned version = head[8];
  const unsigned address_bytes = version < 2 ? head[13] : head[9];
  if (version >= kEndOffset.size() || address_bytes != 8 || check.bytes < 48) {
    check.problem = fmt::format(
        "'{}' has a damaged HDF5 superblock (version {}, {}-byte addresses, {} in all)",
        path.string(), version, address_bytes, format_plural(check.bytes, "byte"));
    return check;
  }
  std::memcpy(&check.expected_bytes, head.data() + kEndOffset[version], 8);
  if (check.bytes < check.expected_bytes) {
    check.problem = fmt::format(
        "'{}' is truncated: its HDF5 superblock says {}, the file has {}; fetch or make "
        "it anew",
        path.string(), format_plural(check.expected_bytes, "byte"),
        format_grouped(check.bytes));
  }
  return check;
}

}  // namespace trireme::io
