// io/hdf5_dataset.cpp — reading and writing rows of datasets; see hdf5.hpp.
//
// Rows [first, first + rows) of the first dimension are the only selection, because that
// is how ranks share a tensor: row r of a tensor of shape (4, 3) is elements 3 r to 3 r +
// 2, and rows 1 and 2 are bytes 12 to 35 of a float dataset. Shapes come from files that
// may be damaged, so sizes are multiplied with checks before any memory is asked for.
#include <hdf5.h>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "io/element_types.hpp"
#include "io/hdf5_handle.hpp"

namespace trireme::io {

namespace {

constexpr std::size_t kMaxRank = 8;
constexpr index_t kMaxElementBytes = 8;

H5Scoped creation_list(std::int64_t dataset, const std::string& where) {
  return {H5Dget_create_plist(dataset), H5Pclose, "get the layout of " + where};
}

std::string place(const H5Object& object) {
  return fmt::format("{} in '{}'", object.name(), object.file());
}

}  // namespace

H5Dataset::H5Dataset(std::shared_ptr<Handle> handle, std::string name)
    : H5Object(std::move(handle), std::move(name)) {
  const H5Lock lock;
  const std::string where = place(*this);
  const H5Scoped space(H5Dget_space(handle_->use()), H5Sclose,
                       "get the extent of " + where);
  const int rank = H5Sget_simple_extent_ndims(space);
  h5_check(rank, "get the extent of " + where);
  TRIREME_REQUIRE_INPUT(static_cast<std::size_t>(rank) <= kMaxRank,
                        "{} has {}; at most {} are supported", where,
                        format_plural(rank, "dimension"), kMaxRank);
  hsize_t extent[kMaxRank] = {};
  h5_check(H5Sget_simple_extent_dims(space, extent, nullptr),
           "get the extent of " + where);
  for (int i = 0; i < rank; ++i) {
    shape_.push_back(checked_cast<index_t>(extent[i]).value_or(-1));
  }
  // A damaged header may claim anything; bytes must not overflow further on.
  const auto elements = counted_elements(shape_);
  TRIREME_REQUIRE_INPUT(elements && checked_multiply(*elements, kMaxElementBytes),
                        "{} claims an impossible extent", where);
  TRIREME_REQUIRE_INPUT(
      H5Pget_external_count(creation_list(handle_->use(), where)) == 0,
      "{} keeps its data in other files: they are no part of it (h5repack puts them in)",
      where);
  const H5Scoped type(H5Dget_type(handle_->use()), H5Tclose, "get the type of " + where);
  const bool marked =
      has_attribute("dtype") && attribute<std::string>("dtype") == "bfloat16";
  dtype_ = h5_dtype(type, marked, where);
}

std::uint64_t H5Dataset::bytes() const {
  return static_cast<std::uint64_t>(element_count(shape_)) * size_of(dtype_);
}

bool H5Dataset::is_virtual() const {
  const H5Lock lock;
  return H5Pget_layout(creation_list(handle_->use(), place(*this))) == H5D_VIRTUAL;
}

namespace {

// A text that HDF5 copies into a buffer of ours; it tells the length where there is none.
template <class Get>
std::string text_of(const Get& get, const std::string& attempt) {
  const ssize_t length = get(nullptr, std::size_t{0});
  h5_check(length, attempt);
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  h5_check(get(text.data(), text.size()), attempt);
  text.pop_back();
  return text;
}

// The rectangle that a selection is.
VirtualPiece rectangle_of(hid_t space, std::size_t rank, const std::string& where) {
  hsize_t first[kMaxRank] = {};
  hsize_t last[kMaxRank] = {};
  TRIREME_REQUIRE_INPUT(H5Sget_simple_extent_ndims(space) == static_cast<int>(rank) &&
                            rank > 0 && H5Sget_select_bounds(space, first, last) >= 0,
                        "{}: one of its parts is nowhere in it", where);
  VirtualPiece piece;
  for (std::size_t i = 0; i < rank; ++i) {
    piece.start.push_back(checked_cast<index_t>(first[i]).value_or(-1));
    piece.extent.push_back(checked_cast<index_t>(last[i] - first[i] + 1).value_or(-1));
  }
  const hssize_t selected = H5Sget_select_npoints(space);
  TRIREME_REQUIRE_INPUT(counted_elements(piece.extent) == selected,
                        "{}: one of its parts is no rectangle", where);
  return piece;
}

}  // namespace

std::vector<VirtualPiece> H5Dataset::pieces() const {
  const H5Lock lock;
  const std::string where = place(*this);
  const std::string attempt = "get the parts of " + where;
  const H5Scoped list = creation_list(handle_->use(), where);
  std::size_t count = 0;
  h5_check(H5Pget_virtual_count(list, &count), attempt);
  std::vector<VirtualPiece> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    const H5Scoped here(H5Pget_virtual_vspace(list, i), H5Sclose, attempt);
    const H5Scoped there(H5Pget_virtual_srcspace(list, i), H5Sclose, attempt);
    VirtualPiece piece = rectangle_of(here, shape_.size(), where);
    // The extent of the source is not known before that is opened.
    TRIREME_REQUIRE_INPUT(H5Sget_select_type(there) == H5S_SEL_ALL,
                          "{}: one of its parts is not all of what it is taken from",
                          where);
    piece.file = text_of(
        [&](char* text, std::size_t size) {
          return H5Pget_virtual_filename(list, i, text, size);
        },
        attempt);
    piece.dataset = text_of(
        [&](char* text, std::size_t size) {
          return H5Pget_virtual_dsetname(list, i, text, size);
        },
        attempt);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::optional<std::uint64_t> H5Dataset::offset() const {
  const H5Lock lock;
  const std::string where = place(*this);
  if (H5Pget_layout(creation_list(handle_->use(), where)) != H5D_CONTIGUOUS) return {};
  const H5Scoped type(H5Dget_type(handle_->use()), H5Tclose, "get the type of " + where);
  if (size_of(dtype_) > 1 && H5Tget_order(type) != H5T_ORDER_LE) return {};
  const haddr_t offset = H5Dget_offset(handle_->use());
  H5Eclear2(H5E_DEFAULT);
  if (offset == HADDR_UNDEF) return {};
  return offset;
}

void H5Dataset::check_type(DType type) const {
  TRIREME_REQUIRE_INPUT(type == dtype_, "{} holds {}; expected {}", place(*this),
                        name_of(dtype_), name_of(type));
}

namespace {

// The hyperslab of some rows, in the file and in memory.
struct RowSpaces {
  H5Scoped file;
  H5Scoped memory;
};

RowSpaces select_rows(std::int64_t dataset, const Shape& shape, DType dtype,
                      index_t first, index_t rows, std::size_t bytes,
                      const std::string& where) {
  const index_t all_rows = shape.empty() ? 1 : shape[0];
  TRIREME_REQUIRE(first >= 0 && rows >= 0 && first <= all_rows - rows,
                  "rows {} to {} of {} {} do not exist", first, first + rows, where,
                  to_string(shape));
  hsize_t start[kMaxRank] = {};
  hsize_t count[kMaxRank] = {};
  std::size_t expected = size_of(dtype) * static_cast<std::size_t>(rows);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    count[i] = static_cast<hsize_t>(i == 0 ? rows : shape[i]);
    if (i > 0) expected *= static_cast<std::size_t>(shape[i]);
  }
  start[0] = static_cast<hsize_t>(first);
  TRIREME_REQUIRE(bytes == expected, "{} of {} take {}; the buffer has {}",
                  format_plural(rows, "row"), where, format_plural(expected, "byte"),
                  bytes);
  H5Scoped file(H5Dget_space(dataset), H5Sclose, "get the extent of " + where);
  if (shape.empty()) return {std::move(file), {H5Screate(H5S_SCALAR), H5Sclose, where}};
  h5_check(H5Sselect_hyperslab(file, H5S_SELECT_SET, start, nullptr, count, nullptr),
           "select rows of " + where);
  H5Scoped memory(H5Screate_simple(static_cast<int>(shape.size()), count, nullptr),
                  H5Sclose, "describe rows of " + where);
  return {std::move(file), std::move(memory)};
}

}  // namespace

void H5Dataset::write_rows(index_t first, index_t rows, const void* data,
                           std::size_t bytes) {
  const H5Lock lock;
  const std::string where = place(*this);
  const RowSpaces spaces =
      select_rows(handle_->use(), shape_, dtype_, first, rows, bytes, where);
  if (bytes == 0) return;
  h5_check(H5Dwrite(handle_->use(), h5_type(dtype_), spaces.memory, spaces.file,
                    H5P_DEFAULT, data),
           "write " + where);
}

void H5Dataset::read_rows(index_t first, index_t rows, void* data,
                          std::size_t bytes) const {
  const H5Lock lock;
  const std::string where = place(*this);
  const RowSpaces spaces =
      select_rows(handle_->use(), shape_, dtype_, first, rows, bytes, where);
  if (bytes == 0) return;
  h5_check(H5Dread(handle_->use(), h5_type(dtype_), spaces.memory, spaces.file,
                   H5P_DEFAULT, data),
           "read " + where);
}

template <class T>
std::vector<T> H5Dataset::read() const {
  check_type(dtype_of<T>);
  // Lest a damaged header make us ask for the whole memory.
  if (!handle_->writing && !is_virtual()) {
    const std::uint64_t size = file_size(file());
    const auto at = offset();
    TRIREME_REQUIRE_INPUT(at || bytes() <= size,
                          "{} claims {}, and the file has {}: it is damaged, or "
                          "compressed, which none of ours is",
                          place(*this), format_plural(bytes(), "byte"),
                          format_grouped(size));
    TRIREME_REQUIRE_INPUT(!at || is_range_within(*at, bytes(), size),
                          "'{}' is truncated: {} takes {} from byte {}, the file has {}",
                          file(), name_, format_plural(bytes(), "byte"),
                          format_grouped(at.value_or(0)), format_grouped(size));
  }
  std::vector<T> values(static_cast<std::size_t>(element_count(shape_)));
  read_rows(0, shape_.empty() ? 1 : shape_[0], values.data(), values.size() * sizeof(T));
  return values;
}

template <class T>
void H5Dataset::write(const std::vector<T>& values) {
  check_type(dtype_of<T>);
  write_rows(0, shape_.empty() ? 1 : shape_[0], values.data(), values.size() * sizeof(T));
}

#define TRIREME_INSTANTIATE(T)                        \
  template std::vector<T> H5Dataset::read<T>() const; \
  template void H5Dataset::write(const std::vector<T>&);
TRIREME_FOR_EACH_STORED(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::io
