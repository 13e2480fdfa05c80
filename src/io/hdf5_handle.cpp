// io/hdf5_handle.cpp — the HDF5 lock, error stack, handles and data types.
//
// A handle is shared by the objects that came out of a file, and keeps that file open.
// Closing a file closes all that is open in it, and the numbers of its objects may then
// be used anew by HDF5: a handle therefore knows whether its file is still open before it
// uses its own number. Errors are read off HDF5's stack at once, as the next call clears
// it.
#include "io/hdf5_handle.hpp"

#include <hdf5.h>

#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "io/hdf5_file_driver.hpp"

namespace trireme::io {

// So that H5Tclose and its like are H5Scoped::Close.
static_assert(std::is_same_v<hid_t, std::int64_t> && std::is_same_v<herr_t, int>);

namespace {

std::recursive_mutex& hdf5_mutex() {
  // The one object for the whole process in Trireme: the library it guards is one too.
  static std::recursive_mutex mutex;
  return mutex;
}

// The causes in HDF5's error stack, innermost first, without repetition.
std::string error_stack() {
  constexpr std::size_t kEnough = 3;
  std::vector<std::string> causes;
  const auto collect = [](unsigned, const H5E_error2_t* error, void* data) -> herr_t {
    auto& list = *static_cast<std::vector<std::string>*>(data);
    const std::string text = error->desc != nullptr ? error->desc : "";
    if (!text.empty() && list.size() < kEnough && (list.empty() || list.back() != text)) {
      list.push_back(text);
    }
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &causes);
  H5Eclear2(H5E_DEFAULT);
  // Our own driver's words (hdf5_file_driver.cpp) say it all.
  if (!causes.empty() && causes[0].find("(errno ") != std::string::npos) return causes[0];
  std::string text;
  for (const std::string& cause : causes) text += (text.empty() ? "" : "; ") + cause;
  return text.empty() ? "no cause given" : text;
}

// IEEE half precision, as h5py has it too.
hid_t make_half() {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  if (type < 0 || H5Tset_fields(type, 15, 10, 5, 0, 10) < 0 || H5Tset_size(type, 2) < 0 ||
      H5Tset_ebias(type, 15) < 0) {
    return -1;
  }
  return type;
}

H5Scoped copy_type(hid_t type) {
  return {H5Tcopy(type), H5Tclose, "copy a data type"};
}

}  // namespace

H5Lock::H5Lock() : lock_(hdf5_mutex()) {
  // Errors are thrown, not printed.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

H5Scoped::H5Scoped(std::int64_t id, Close close, const std::string& attempt)
    : id_(id), close_(close) {
  h5_check(id, attempt);
}

H5Scoped::~H5Scoped() {
  if (id_ >= 0) close_(id_);
}

H5Scoped::H5Scoped(H5Scoped&& other) noexcept
    : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

H5Object::Handle::Handle(std::int64_t new_id, H5Scoped::Close how_to_close,
                         std::shared_ptr<Handle> new_owner, std::string new_file,
                         bool for_writing)
    : id(new_id),
      close(how_to_close),
      owner(std::move(new_owner)),
      file(std::move(new_file)),
      writing(for_writing) {}

H5Object::Handle::~Handle() {
  const H5Lock lock;
  // Closing a file closes all that is open in it; its objects' ids are void then.
  if (id >= 0 && (!owner || owner->id >= 0)) close(id);
}

std::int64_t H5Object::Handle::use() const {
  TRIREME_REQUIRE(id >= 0 && (!owner || owner->id >= 0),
                  "'{}' was closed before this use", file);
  return id;
}

void h5_check(std::int64_t status, const std::string& attempt) {
  if (status >= 0) return;
  throw Error(fmt::format("HDF5: cannot {}: {}", attempt, error_stack()));
}

H5Scoped h5_type(DType dtype) {
  // Every machine Trireme runs on is little-endian; a foreign file's big-endian elements
  // are converted by the library.
  static_assert(std::endian::native == std::endian::little);
  switch (dtype) {
    case DType::float32:
      return copy_type(H5T_IEEE_F32LE);
    case DType::float64:
      return copy_type(H5T_IEEE_F64LE);
    case DType::float16:
      return {make_half(), H5Tclose, "make float16"};
    case DType::int32:
      return copy_type(H5T_STD_I32LE);
    case DType::int64:
      return copy_type(H5T_STD_I64LE);
    case DType::uint8:
      return copy_type(H5T_STD_U8LE);
    case DType::bfloat16:  // HDF5 has none
    case DType::uint16:
      return copy_type(H5T_STD_U16LE);
    case DType::uint32:
      return copy_type(H5T_STD_U32LE);
    case DType::uint64:
      return copy_type(H5T_STD_U64LE);
  }
  throw Error("h5_type: not a DType");
}

H5Scoped h5_space(const Shape& shape) {
  const std::vector<hsize_t> extent(shape.begin(), shape.end());
  return {shape.empty()
              ? H5Screate(H5S_SCALAR)
              : H5Screate_simple(static_cast<int>(extent.size()), extent.data(), nullptr),
          H5Sclose, "make a data space"};
}

DType h5_dtype(std::int64_t type, bool marked_bf16, const std::string& where) {
  const H5T_class_t kind = H5Tget_class(type);
  const std::size_t bytes = H5Tget_size(type);
  if (kind == H5T_FLOAT) {
    if (bytes == 2) return DType::float16;
    if (bytes == 4) return DType::float32;
    if (bytes == 8) return DType::float64;
  } else if (kind == H5T_INTEGER) {
    const bool has_sign = H5Tget_sign(type) == H5T_SGN_2;
    if (bytes == 1 && !has_sign) return DType::uint8;
    if (bytes == 2 && !has_sign) return marked_bf16 ? DType::bfloat16 : DType::uint16;
    if (bytes == 4) return has_sign ? DType::int32 : DType::uint32;
    if (bytes == 8) return has_sign ? DType::int64 : DType::uint64;
  }
  throw InputError(
      fmt::format("{}: elements of {} and HDF5 class {} are not supported; expected "
                  "integers or floating-point numbers of 1 to 8 bytes",
                  where, format_plural(bytes, "byte"), static_cast<int>(kind)));
}

}  // namespace trireme::io
