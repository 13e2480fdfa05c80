// io/hdf5_attribute.cpp — attributes: scalars, arrays and strings; see hdf5.hpp.
//
// Numbers are stored in the type that they are given in, and read back from whatever type
// a file has, as long as no value changes: HDF5 would silently round a fraction to an
// integer or cut a large one. Strings are written with a fixed length and read in both of
// HDF5's forms, since h5py writes the other one.
#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "io/hdf5_handle.hpp"

namespace trireme::io {

namespace {

// HDF5 keeps an attribute in the object's header, which ends there.
constexpr std::size_t kMaxAttributeBytes = 64000;

template <class T>
hid_t number_type() {
  if constexpr (std::is_same_v<T, std::int64_t>) return H5T_STD_I64LE;
  if constexpr (std::is_same_v<T, std::uint64_t>) return H5T_STD_U64LE;
  if constexpr (std::is_same_v<T, double>) return H5T_IEEE_F64LE;
}

H5Scoped string_type(std::size_t bytes) {
  H5Scoped type(H5Tcopy(H5T_C_S1), H5Tclose, "make a string type");
  h5_check(H5Tset_size(type, std::max<std::size_t>(bytes, 1)), "size a string type");
  h5_check(H5Tset_strpad(type, H5T_STR_NULLPAD), "pad a string type");
  h5_check(H5Tset_cset(type, H5T_CSET_UTF8), "set UTF-8");
  return type;
}

void put(hid_t object, const std::string& name, hid_t type, hid_t space, const void* data,
         std::size_t bytes, const std::string& where) {
  TRIREME_REQUIRE(bytes <= kMaxAttributeBytes,
                  "{}: {} are too long for an attribute (at most {}); use a dataset",
                  where, format_plural(bytes, "byte"), kMaxAttributeBytes);
  if (H5Aexists(object, name.c_str()) > 0) {
    h5_check(H5Adelete(object, name.c_str()), "replace " + where);
  }
  const H5Scoped attribute(
      H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
      "create " + where);
  if (bytes > 0) h5_check(H5Awrite(attribute, type, data), "write " + where);
}

// An attribute as found in a file.
struct Found {
  H5Scoped attribute;
  H5Scoped type;
  H5T_class_t kind;
  std::size_t count;
};

Found find(hid_t object, const std::string& name, const std::string& where) {
  TRIREME_REQUIRE_INPUT(H5Aexists(object, name.c_str()) > 0, "{} is missing", where);
  H5Scoped attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose,
                     "open " + where);
  H5Scoped type(H5Aget_type(attribute), H5Tclose, "get the type of " + where);
  const H5Scoped space(H5Aget_space(attribute), H5Sclose, "get the extent of " + where);
  const hssize_t points = H5Sget_simple_extent_npoints(space);
  h5_check(points, "get the extent of " + where);
  const H5T_class_t kind = H5Tget_class(type);
  return {std::move(attribute), std::move(type), kind, static_cast<std::size_t>(points)};
}

std::vector<std::string> read_strings(const Found& found, const std::string& where) {
  TRIREME_REQUIRE_INPUT(found.kind == H5T_STRING, "{} is not a string", where);
  std::vector<std::string> values;
  if (found.count == 0) return values;
  if (H5Tis_variable_str(found.type) > 0) {
    std::vector<char*> pointers(found.count, nullptr);
    h5_check(H5Aread(found.attribute, found.type, pointers.data()), "read " + where);
    for (char* pointer : pointers) {
      values.emplace_back(pointer != nullptr ? pointer : "");
      H5free_memory(pointer);
    }
    return values;
  }
  const std::size_t width = H5Tget_size(found.type);
  std::string raw(width * found.count, '\0');
  h5_check(H5Aread(found.attribute, found.type, raw.data()), "read " + where);
  for (std::size_t i = 0; i < found.count; ++i) {
    const char* begin = raw.data() + i * width;
    std::size_t length = width;
    while (length > 0 && begin[length - 1] == '\0') --length;
    values.emplace_back(begin, length);
  }
  return values;
}

// Numbers as they are stored, but wider.
template <class T>
std::vector<T> read_as(const Found& found, const std::string& where) {
  std::vector<T> values(found.count);
  if (!values.empty()) {
    h5_check(H5Aread(found.attribute, number_type<T>(), values.data()), "read " + where);
  }
  return values;
}

// HDF5 itself would make the nearest T of an integer that is none.
template <class T, class Stored>
std::vector<T> read_integers(const Found& found, const std::string& where) {
  std::vector<T> values;
  for (const Stored stored : read_as<Stored>(found, where)) {
    const auto value = checked_cast<T>(stored);
    TRIREME_REQUIRE_INPUT(value.has_value(),
                          "{} is {}; expected an integer from {} to {}", where, stored,
                          std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
    values.push_back(*value);
  }
  return values;
}

template <class T>
std::vector<T> read_numbers(const Found& found, const std::string& where) {
  if constexpr (std::is_same_v<T, double>) {
    TRIREME_REQUIRE_INPUT(found.kind == H5T_INTEGER || found.kind == H5T_FLOAT,
                          "{} is not a number", where);
    return read_as<double>(found, where);
  } else {
    TRIREME_REQUIRE_INPUT(found.kind == H5T_INTEGER, "{} is not an integer", where);
    return H5Tget_sign(found.type) == H5T_SGN_2
               ? read_integers<T, std::int64_t>(found, where)
               : read_integers<T, std::uint64_t>(found, where);
  }
}

std::string place(const H5Object& object, const std::string& name) {
  return fmt::format("attribute '{}' of {} in '{}'", name, object.name(), object.file());
}

}  // namespace

bool H5Object::has_attribute(const std::string& name) const {
  const H5Lock lock;
  return H5Aexists(handle_->use(), name.c_str()) > 0;
}

std::vector<std::string> H5Object::attribute_names() const {
  const H5Lock lock;
  std::vector<std::string> names;
  hsize_t position = 0;
  const auto collect = [](hid_t, const char* name, const H5A_info_t*,
                          void* data) -> herr_t {
    static_cast<std::vector<std::string>*>(data)->emplace_back(name);
    return 0;
  };
  h5_check(
      H5Aiterate2(handle_->use(), H5_INDEX_NAME, H5_ITER_INC, &position, collect, &names),
      fmt::format("list the attributes of {} in '{}'", name_, file()));
  return names;
}

template <class T>
void H5Object::set_attribute(const std::string& name, const T& value) {
  const H5Lock lock;
  const auto set = [&](hid_t type, const Shape& extent, const void* data,
                       std::size_t bytes) {
    put(handle_->use(), name, type, h5_space(extent), data, bytes, place(*this, name));
  };
  if constexpr (std::is_same_v<T, std::string>) {
    // An empty text has a byte, too: HDF5 has no type without any.
    set(string_type(value.size()), {}, value.c_str(),
        std::max<std::size_t>(value.size(), 1));
  } else if constexpr (std::is_same_v<T, Shape>) {
    set(number_type<index_t>(), {static_cast<index_t>(value.size())}, value.data(),
        value.size() * sizeof(index_t));
  } else {
    set(number_type<T>(), {}, &value, sizeof(T));
  }
}

template <class T>
T H5Object::attribute(const std::string& name) const {
  const H5Lock lock;
  const std::string where = place(*this, name);
  const Found found = find(handle_->use(), name, where);
  if constexpr (std::is_same_v<T, Shape>) {
    return read_numbers<index_t>(found, where);
  } else {
    std::vector<T> values;
    if constexpr (std::is_same_v<T, std::string>) {
      values = read_strings(found, where);
    } else {
      values = read_numbers<T>(found, where);
    }
    TRIREME_REQUIRE_INPUT(values.size() == 1, "{} has {}; expected one", where,
                          format_plural(values.size(), "value"));
    return values.front();
  }
}

std::string H5Object::attribute_text(const std::string& name) const {
  constexpr std::size_t kMaxText = 200;
  const H5Lock lock;
  const std::string where = place(*this, name);
  const Found found = find(handle_->use(), name, where);
  std::string text;
  if (found.kind == H5T_STRING) {
    text = fmt::format("{}", fmt::join(read_strings(found, where), ", "));
  } else if (found.kind == H5T_INTEGER && H5Tget_sign(found.type) == H5T_SGN_2) {
    text = fmt::format("{}", fmt::join(read_numbers<std::int64_t>(found, where), ", "));
  } else if (found.kind == H5T_INTEGER) {
    text = fmt::format("{}", fmt::join(read_numbers<std::uint64_t>(found, where), ", "));
  } else if (found.kind == H5T_FLOAT) {
    text = fmt::format("{}", fmt::join(read_numbers<double>(found, where), ", "));
  } else {
    text = "(of a type not shown)";
  }
  if (text.size() > kMaxText) {
    text.resize(kMaxText);
    text += " ...";
  }
  return text;
}

#define TRIREME_INSTANTIATE(T)                                         \
  template void H5Object::set_attribute(const std::string&, const T&); \
  template T H5Object::attribute<T>(const std::string&) const;
TRIREME_INSTANTIATE(std::int64_t)
TRIREME_INSTANTIATE(std::uint64_t)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(std::string)
TRIREME_INSTANTIATE(Shape)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::io
