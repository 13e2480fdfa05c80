// tests/support/hdf5_edit.cpp — see hdf5_edit.hpp.
#include "support/hdf5_edit.hpp"

#include <hdf5.h>

#include <stdexcept>

namespace trireme::test {

namespace {

hid_t checked(hid_t status, const char* what) {
  if (status < 0) throw std::runtime_error(std::string("hdf5_edit: cannot ") + what);
  return status;
}

class OpenFile {
 public:
  OpenFile(const std::filesystem::path& path, const std::string& name)
      : id_(checked(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "open the file")) {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    H5Ldelete(id_, name.c_str(), H5P_DEFAULT);  // where it is there
  }
  ~OpenFile() { H5Fclose(id_); }
  OpenFile(const OpenFile&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
};

void make_dataset(hid_t file, const std::string& name, hid_t type, hid_t list,
                  hsize_t count) {
  const hid_t space = checked(H5Screate_simple(1, &count, nullptr), "make a space");
  const hid_t dataset =
      checked(H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, list, H5P_DEFAULT),
              "make a dataset");
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(list);
}

}  // namespace

void make_soft_link(const std::filesystem::path& path, const std::string& name,
                    const std::string& target) {
  const OpenFile file(path, name);
  checked(H5Lcreate_soft(target.c_str(), file, name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
          "make a soft link");
}

void make_external_link(const std::filesystem::path& path, const std::string& name,
                        const std::string& other_file, const std::string& target) {
  const OpenFile file(path, name);
  checked(H5Lcreate_external(other_file.c_str(), target.c_str(), file, name.c_str(),
                             H5P_DEFAULT, H5P_DEFAULT),
          "make an external link");
}

void make_external_dataset(const std::filesystem::path& path, const std::string& name,
                           const std::string& other_file, std::uint64_t count) {
  const OpenFile file(path, name);
  const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
  checked(H5Pset_external(list, other_file.c_str(), 0, count * sizeof(float)),
          "name another file");
  make_dataset(file, name, H5T_IEEE_F32LE, list, count);
}

void make_hollow_dataset(const std::filesystem::path& path, const std::string& name,
                         std::uint64_t bytes) {
  const OpenFile file(path, name);
  const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t chunk = 4096;
  checked(H5Pset_chunk(list, 1, &chunk), "set chunks");
  make_dataset(file, name, H5T_STD_U8LE, list, bytes);
}

void make_texts(const std::filesystem::path& path, const std::string& name,
                std::uint64_t count) {
  const OpenFile file(path, name);
  const hid_t type = checked(H5Tcopy(H5T_C_S1), "make a type");
  checked(H5Tset_size(type, 64), "size a type");
  make_dataset(file, name, type, H5Pcreate(H5P_DATASET_CREATE), count);
  H5Tclose(type);
}

void make_attribute(const std::filesystem::path& path, const std::string& name,
                    std::uint64_t value) {
  const OpenFile file(path, "");
  H5Adelete(file, name.c_str());  // where it is there
  const hid_t space = checked(H5Screate(H5S_SCALAR), "make a space");
  const hid_t attribute = checked(
      H5Acreate2(file, name.c_str(), H5T_STD_U64LE, space, H5P_DEFAULT, H5P_DEFAULT),
      "make an attribute");
  H5Awrite(attribute, H5T_NATIVE_UINT64, &value);
  H5Aclose(attribute);
  H5Sclose(space);
}

void make_integers(const std::filesystem::path& path, const std::string& name,
                   const std::vector<std::uint64_t>& values) {
  const OpenFile file(path, name);
  make_dataset(file, name, H5T_STD_U64LE, H5Pcreate(H5P_DATASET_CREATE), values.size());
  const hid_t dataset = checked(H5Dopen2(file, name.c_str(), H5P_DEFAULT), "open it");
  H5Dwrite(dataset, H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(dataset);
}

void remove_attribute(const std::filesystem::path& path, const std::string& name,
                      const std::string& of) {
  const OpenFile file(path, "");
  checked(H5Adelete_by_name(file, of.c_str(), name.c_str(), H5P_DEFAULT),
          "remove an attribute");
}

void remove_object(const std::filesystem::path& path, const std::string& name) {
  const OpenFile file(path, name);
  checked(H5Lexists(file, name.c_str(), H5P_DEFAULT) > 0 ? -1 : 0, "remove an object");
}

}  // namespace trireme::test
