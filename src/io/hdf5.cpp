// io/hdf5.cpp — HDF5 files and groups; see hdf5.hpp.
//
// Files are made so that equal contents give equal bytes: no times are stored, and
// datasets are allocated at once, aligned and filled. What others made is opened with
// suspicion: links out of a file are refused, groups are not followed deeper than any of
// ours go, and a group that holds itself has an end that way. Every public function takes
// the lock (H5Lock) first.
#include "io/hdf5.hpp"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "io/element_types.hpp"
#include "io/hdf5_file_driver.hpp"
#include "io/hdf5_handle.hpp"

namespace trireme::io {

namespace {

H5Scoped property_list(hid_t kind) {
  return {H5Pcreate(kind), H5Pclose, "make a property list"};
}

// Contents must depend on what is stored alone: no time stamps.
H5Scoped untimed_list(hid_t kind) {
  H5Scoped list = property_list(kind);
  h5_check(H5Pset_obj_track_times(list, false), "turn time stamps off");
  return list;
}

std::vector<std::string> components(const std::string& path) {
  std::vector<std::string_view> parts = split(path, "/");
  std::erase(parts, std::string_view());
  return {parts.begin(), parts.end()};
}

std::string joined(const std::string& parent, const std::string& path) {
  return parent == "/" ? "/" + path : parent + "/" + path;
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::vector<hsize_t> extents(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

// What stands where there are no data: NaN, all ones in integers.
std::array<std::uint8_t, 8> missing_value(DType dtype) {
  std::array<std::uint8_t, 8> bytes;
  bytes.fill(0xff);
  with_real(dtype, [&](auto zero) {
    const auto nan = static_cast<decltype(zero)>(std::numeric_limits<float>::quiet_NaN());
    std::memcpy(bytes.data(), &nan, sizeof nan);
  });
  return bytes;
}

std::int64_t open_file(const Path& path, H5File::Mode mode) {
  const H5Lock lock;
  const std::string text = path.string();
  const H5Scoped access = property_list(H5P_FILE_ACCESS);
  h5_check(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "set the close degree");
  // Whoever maps a dataset may rely on its alignment.
  h5_check(H5Pset_alignment(access, 1, 64), "set the alignment");
#if H5_VERSION_GE(1, 10, 7)
  // Files are private to their writer until they are renamed; locks only fail on Lustre.
  h5_check(H5Pset_file_locking(access, false, true), "turn file locking off");
#endif
  if (mode != H5File::Mode::read) h5_set_file_driver(access);
  if (mode == H5File::Mode::create) {
    const hid_t id = H5Fcreate(text.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access);
    h5_check(id, fmt::format("create '{}'", text));
    return id;
  }
  const H5FileCheck check = check_hdf5(path);
  TRIREME_REQUIRE_INPUT(check.problem.empty(), "{}", check.problem);
  const bool reading = mode == H5File::Mode::read;
  const hid_t id = H5Fopen(text.c_str(), reading ? H5F_ACC_RDONLY : H5F_ACC_RDWR, access);
  h5_check(id, fmt::format("open '{}'", text));
  return id;
}

}  // namespace

H5Object::H5Object(std::shared_ptr<Handle> handle, std::string name)
    : handle_(std::move(handle)), name_(std::move(name)) {}

const std::string& H5Object::file() const {
  return handle_->file;
}

H5File::H5File(const Path& path, Mode mode)
    : H5Group(std::make_shared<Handle>(open_file(path, mode),
                                       mode == Mode::read ? H5Fclose : h5_close_written,
                                       nullptr, path.string(), mode != Mode::read),
              "/") {}

std::shared_ptr<H5Object::Handle> H5Object::opened(std::int64_t id,
                                                   int (*close)(std::int64_t),
                                                   const std::string& name) const {
  h5_check(id, fmt::format("open {} in '{}'", name, file()));
  return std::make_shared<Handle>(id, close, handle_->owner ? handle_->owner : handle_,
                                  file(), handle_->writing);
}

void H5File::fail_writes(Fault fault) {
  const H5Lock lock;
  if (fault != Fault::none) h5_inject(handle_->use(), fault);
}

void H5File::close() {
  const H5Lock lock;
  const hid_t id = handle_->use();
  handle_->id = -1;
  if (!handle_->writing) {
    h5_check(H5Fclose(id), fmt::format("close '{}'", handle_->file));
    return;
  }
  const int error = h5_close_written(id);
  if (error != 0) throw Error(system_message("cannot write", handle_->file, error));
}

bool H5Group::has(const std::string& path) const {
  const H5Lock lock;
  // H5Lexists wants every step of the way to exist.
  std::string so_far;
  for (const std::string& part : components(path)) {
    so_far += so_far.empty() ? part : "/" + part;
    if (H5Lexists(handle_->use(), so_far.c_str(), H5P_DEFAULT) <= 0) return false;
    H5L_info_t link;
    h5_check(H5Lget_info(handle_->use(), so_far.c_str(), &link, H5P_DEFAULT),
             fmt::format("look at {} in '{}'", joined(name_, so_far), file()));
    TRIREME_REQUIRE_INPUT(link.type == H5L_TYPE_HARD,
                          "'{}': {} is {} link: what it leads to is no part of the file. "
                          "Replace it by the object itself (h5copy, h5repack)",
                          file(), joined(name_, so_far),
                          link.type == H5L_TYPE_SOFT ? "a soft" : "an external");
  }
  return !so_far.empty();
}

bool H5Group::is_group(const std::string& path) const {
  const H5Lock lock;
  if (!has(path)) return false;
  const H5Scoped object(H5Oopen(handle_->use(), path.c_str(), H5P_DEFAULT), H5Oclose,
                        fmt::format("open {} in '{}'", joined(name_, path), file()));
  return H5Iget_type(object) == H5I_GROUP;
}

namespace {

// Deeper than any file of ours; a group that holds itself has no end.
constexpr int kMaxDepth = 32;

struct Link {
  std::string name;
  bool is_hard = true;
};

std::vector<Link> links_of(hid_t group, const std::string& where) {
  std::vector<Link> links;
  const auto collect = [](hid_t, const char* name, const H5L_info_t* info,
                          void* data) -> herr_t {
    static_cast<std::vector<Link>*>(data)->push_back({name, info->type == H5L_TYPE_HARD});
    return 0;
  };
  hsize_t position = 0;
  h5_check(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &position, collect, &links),
           "list " + where);
  return links;
}

void add_tree(hid_t group, const std::string& prefix, int depth, const std::string& file,
              std::vector<H5Entry>& entries) {
  const std::string where = fmt::format("/{} in '{}'", prefix, file);
  TRIREME_REQUIRE_INPUT(depth < kMaxDepth, "'{}': /{} is nested too deep", file, prefix);
  for (const Link& link : links_of(group, where)) {
    const std::string path = prefix.empty() ? link.name : prefix + "/" + link.name;
    if (!link.is_hard) {
      entries.push_back({path, H5Entry::Kind::link});
      continue;
    }
    const H5Scoped object(H5Oopen(group, link.name.c_str(), H5P_DEFAULT), H5Oclose,
                          fmt::format("open /{} in '{}'", path, file));
    const bool is_group = H5Iget_type(object) == H5I_GROUP;
    entries.push_back({path, is_group ? H5Entry::Kind::group : H5Entry::Kind::dataset});
    if (is_group) add_tree(object, path, depth + 1, file, entries);
  }
}

}  // namespace

std::vector<std::string> H5Group::children() const {
  const H5Lock lock;
  std::vector<std::string> names;
  for (Link& link : links_of(handle_->use(), fmt::format("{} in '{}'", name_, file()))) {
    names.push_back(std::move(link.name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<H5Entry> H5Group::tree() const {
  const H5Lock lock;
  std::vector<H5Entry> entries;
  add_tree(handle_->use(), "", 0, file(), entries);
  std::ranges::sort(entries, {}, &H5Entry::path);
  return entries;
}

H5Group H5Group::group(const std::string& path) const {
  const H5Lock lock;
  const std::string full = joined(name_, path);
  TRIREME_REQUIRE_INPUT(is_group(path), "'{}' has no group {}", file(), full);
  const hid_t id = H5Gopen2(handle_->use(), path.c_str(), H5P_DEFAULT);
  return {opened(id, H5Gclose, full), full};
}

void H5Group::ensure_group(const std::string& path) {
  std::set<std::string>& seen = (handle_->owner ? handle_->owner : handle_)->groups_seen;
  std::string so_far;
  for (const std::string& part : components(path)) {
    so_far += so_far.empty() ? part : "/" + part;
    const std::string full = joined(name_, so_far);
    if (seen.contains(full)) continue;
    if (H5Lexists(handle_->use(), so_far.c_str(), H5P_DEFAULT) > 0) {
      TRIREME_REQUIRE_INPUT(is_group(so_far), "'{}' has no group {}", file(), full);
    } else {
      const H5Scoped group(H5Gcreate2(handle_->use(), so_far.c_str(), H5P_DEFAULT,
                                      untimed_list(H5P_GROUP_CREATE), H5P_DEFAULT),
                           H5Gclose, fmt::format("create {} in '{}'", full, file()));
    }
    seen.insert(full);
  }
}

H5Group H5Group::make_group(const std::string& path) {
  const H5Lock lock;
  ensure_group(path);
  return group(path);
}

H5Dataset H5Group::dataset(const std::string& path) const {
  const H5Lock lock;
  const std::string full = joined(name_, path);
  TRIREME_REQUIRE_INPUT(has(path) && !is_group(path), "'{}' has no dataset {}", file(),
                        full);
  return open_dataset(path);
}

H5Dataset H5Group::open_dataset(const std::string& path) const {
  const std::string full = joined(name_, path);
  const hid_t id = H5Dopen2(handle_->use(), path.c_str(), H5P_DEFAULT);
  return {opened(id, H5Dclose, full), full};
}

H5Dataset H5Group::make_dataset(const std::string& path, DType dtype,
                                const Shape& shape) {
  const H5Lock lock;
  ensure_group(parent_of(path));
  const std::string attempt =
      fmt::format("create {} in '{}'", joined(name_, path), file());
  const H5Scoped creation = untimed_list(H5P_DATASET_CREATE);
  h5_check(H5Pset_layout(creation, H5D_CONTIGUOUS), attempt);
  h5_check(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), attempt);
  h5_check(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), attempt);
  return create(path, dtype, h5_space(shape), creation, attempt);
}

H5Dataset H5Group::create(const std::string& path, DType dtype, std::int64_t space,
                          std::int64_t creation, const std::string& attempt) {
  {
    const H5Scoped id(H5Dcreate2(handle_->use(), path.c_str(), h5_type(dtype), space,
                                 H5P_DEFAULT, creation, H5P_DEFAULT),
                      H5Dclose, attempt);
  }
  H5Dataset made = open_dataset(path);
  if (dtype != DType::bfloat16) return made;
  made.set_attribute("dtype", std::string(name_of(DType::bfloat16)));
  return open_dataset(path);  // whose type is that now
}

H5Dataset H5Group::make_virtual_dataset(const std::string& path, DType dtype,
                                        const Shape& shape,
                                        const std::vector<VirtualPiece>& pieces) {
  const H5Lock lock;
  ensure_group(parent_of(path));
  const std::string attempt =
      fmt::format("create {} in '{}'", joined(name_, path), file());
  const H5Scoped creation = untimed_list(H5P_DATASET_CREATE);
  const auto fill = missing_value(dtype);
  h5_check(H5Pset_fill_value(creation, h5_type(dtype), fill.data()), attempt);
  const H5Scoped space = h5_space(shape);
  for (const VirtualPiece& piece : pieces) {
    TRIREME_REQUIRE(piece.start.size() == shape.size() &&
                        piece.extent.size() == shape.size() && !shape.empty(),
                    "{}: a piece has {}, the tensor {}", attempt,
                    format_plural(piece.start.size(), "dimension"), shape.size());
    const std::vector<hsize_t> start = extents(piece.start);
    const std::vector<hsize_t> extent = extents(piece.extent);
    h5_check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr,
                                 extent.data(), nullptr),
             attempt);
    h5_check(H5Pset_virtual(creation, space, piece.file.c_str(), piece.dataset.c_str(),
                            h5_space(piece.extent)),
             attempt);
  }
  h5_check(H5Sselect_all(space), attempt);
  return create(path, dtype, space, creation, attempt);
}

void H5Group::write_bytes(const std::string& path, std::string_view bytes) {
  H5Dataset dataset =
      make_dataset(path, DType::uint8, {static_cast<index_t>(bytes.size())});
  dataset.write_rows(0, dataset.shape()[0], bytes.data(), bytes.size());
}

std::string H5Group::read_bytes(const std::string& path) const {
  const H5Dataset bytes = dataset(path);
  TRIREME_REQUIRE_INPUT(!bytes.is_virtual(),
                        "{} in '{}' is taken from other files: it is no part of this one",
                        bytes.name(), file());
  const std::vector<std::uint8_t> values = bytes.read<std::uint8_t>();
  return {values.begin(), values.end()};
}

void H5Group::write_text(const std::string& path, std::string_view text) {
  const H5Lock lock;
  ensure_group(parent_of(path));
  const std::string attempt =
      fmt::format("write {} in '{}'", joined(name_, path), file());
  const H5Scoped type(H5Tcopy(H5T_C_S1), H5Tclose, attempt);
  // One byte more, so that no reader misses a terminator and an empty text has a size.
  std::string terminated(text);
  terminated.push_back('\0');
  h5_check(H5Tset_size(type, terminated.size()), attempt);
  h5_check(H5Tset_strpad(type, H5T_STR_NULLTERM), attempt);
  h5_check(H5Tset_cset(type, H5T_CSET_UTF8), attempt);
  const H5Scoped id(
      H5Dcreate2(handle_->use(), path.c_str(), type, h5_space({}), H5P_DEFAULT,
                 untimed_list(H5P_DATASET_CREATE), H5P_DEFAULT),
      H5Dclose, attempt);
  h5_check(H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, terminated.data()), attempt);
}

std::string H5Group::read_text(const std::string& path) const {
  const H5Lock lock;
  const std::string where = fmt::format("{} in '{}'", joined(name_, path), file());
  TRIREME_REQUIRE_INPUT(has(path) && !is_group(path), "'{}' has no dataset {}", file(),
                        joined(name_, path));
  const H5Scoped id(H5Dopen2(handle_->use(), path.c_str(), H5P_DEFAULT), H5Dclose,
                    "open " + where);
  const H5Scoped type(H5Dget_type(id), H5Tclose, "get the type of " + where);
  const H5Scoped space(H5Dget_space(id), H5Sclose, "get the extent of " + where);
  const H5Scoped layout(H5Dget_create_plist(id), H5Pclose, "get the layout of " + where);
  const std::size_t bytes = H5Tget_size(type);
  TRIREME_REQUIRE_INPUT(H5Tget_class(type) == H5T_STRING &&
                            H5Tis_variable_str(type) == 0 &&
                            H5Sget_simple_extent_npoints(space) == 1 &&
                            (handle_->writing || bytes <= file_size(file())),
                        "{} is not one text of fixed length", where);
  TRIREME_REQUIRE_INPUT(
      H5Pget_layout(layout) != H5D_VIRTUAL && H5Pget_external_count(layout) == 0,
      "{} is taken from other files: it is no part of this one", where);
  std::string text(bytes, '\0');
  h5_check(H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()),
           "read " + where);
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::string library_version() {
  unsigned major = 0, minor = 0, release = 0;
  const H5Lock lock;
  h5_check(H5get_libversion(&major, &minor, &release), "ask for the version");
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace trireme::io
