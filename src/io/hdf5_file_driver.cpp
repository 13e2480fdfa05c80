// io/hdf5_file_driver.cpp — a virtual file driver over POSIX calls ("HDF5 Virtual File
// Layer"); see hdf5_file_driver.hpp.
//
// HDF5 calls the functions below through a table. While a file is being closed, a write
// that fails is noted and told to HDF5 as done, so that the library comes to its regular
// end; whoever closes the file asks for the note (h5_close_written) and throws it. At all
// other times HDF5 hears of a failure at once.
#include "io/hdf5_file_driver.hpp"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>

#include "base/error.hpp"
#include "io/faulty_write.hpp"
#include "io/files.hpp"
#include "io/hdf5_handle.hpp"

namespace trireme::io {

namespace {

// `base` first: HDF5 knows a file by the address of that.
struct File {
  H5FD_t base = {};
  Path path;
  int descriptor = -1;
  struct stat identity = {};
  haddr_t end_allocated = 0;
  haddr_t end_written = 0;
  bool closing = false;       // failures are noted below, and HDF5 hears of none
  int failure = 0;            // errno of the first of those
  Fault fault = Fault::none;  // what writes shall suffer
  bool awaited = false;       // h5_close_written() wants to read it, and deletes this
  bool closed = false;
};

File* own(H5FD_t* file) {
  return reinterpret_cast<File*>(file);
}
const File* own(const H5FD_t* file) {
  return reinterpret_cast<const File*>(file);
}

// A failure for HDF5's error stack, or for the one who closes.
herr_t failed(File& file, const char* where, int error) {
  if (file.closing) {
    if (file.failure == 0) file.failure = error;
    return 0;
  }
  H5Epush2(H5E_DEFAULT, __FILE__, where, __LINE__, H5E_ERR_CLS, H5E_FILE, H5E_WRITEERROR,
           "%s", system_cause(file.path, error).c_str());
  return -1;
}

bool is_given_up(const File& file) {
  return file.closing && file.failure != 0;
}

H5FD_t* open_file(const char* name, unsigned flags, hid_t, haddr_t) {
  int mode = (flags & H5F_ACC_RDWR) != 0 ? O_RDWR : O_RDONLY;
  if ((flags & H5F_ACC_TRUNC) != 0) mode |= O_TRUNC;
  if ((flags & H5F_ACC_CREAT) != 0) mode |= O_CREAT;
  if ((flags & H5F_ACC_EXCL) != 0) mode |= O_EXCL;
  auto* file = new (std::nothrow) File;
  if (file == nullptr) return nullptr;
  file->path = name;
  file->descriptor = ::open(name, mode | O_CLOEXEC, 0666);
  if (file->descriptor < 0 || ::fstat(file->descriptor, &file->identity) != 0) {
    failed(*file, "open", errno);
    if (file->descriptor >= 0) ::close(file->descriptor);
    delete file;
    return nullptr;
  }
  file->end_written = static_cast<haddr_t>(file->identity.st_size);
  return &file->base;
}

herr_t close_file(H5FD_t* base) {
  File* file = own(base);
  // Network file systems report failed writes here at the latest.
  const herr_t status =
      ::close(file->descriptor) != 0 ? failed(*file, "close", errno) : 0;
  file->closed = true;
  if (!file->awaited) delete file;
  return status;
}

int compare(const H5FD_t* a, const H5FD_t* b) {
  const struct stat &x = own(a)->identity, &y = own(b)->identity;
  if (x.st_dev != y.st_dev) return x.st_dev < y.st_dev ? -1 : 1;
  if (x.st_ino != y.st_ino) return x.st_ino < y.st_ino ? -1 : 1;
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
  if (flags == nullptr) return 0;
  // These are the default driver's flags: the same calls lay out the same file.
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
           H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
           H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t end_of_allocation(const H5FD_t* file, H5FD_mem_t) {
  return own(file)->end_allocated;
}
herr_t set_end_of_allocation(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  own(file)->end_allocated = address;
  return 0;
}
haddr_t end_of_file(const H5FD_t* file, H5FD_mem_t) {
  return own(file)->end_written;
}
herr_t get_handle(H5FD_t* file, hid_t, void** handle) {
  *handle = own(file);
  return 0;
}

herr_t read(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size,
            void* buffer) {
  File& file = *own(base);
  auto* to = static_cast<char*>(buffer);
  while (size > 0) {
    const ssize_t got = ::pread(file.descriptor, to, std::min(size, kMaxCall),
                                static_cast<off_t>(address));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(file, "read", errno);
    if (got == 0) break;  // allocated, never written: zeros
    size -= static_cast<std::size_t>(got);
    address += static_cast<haddr_t>(got);
    to += got;
  }
  std::memset(to, 0, size);
  return 0;
}

herr_t write(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size,
             const void* buffer) {
  File& file = *own(base);
  if (is_given_up(file)) return 0;
  const auto* from = static_cast<const char*>(buffer);
  while (size > 0) {
    const ssize_t put = faulty_write(file.descriptor, from, size,
                                     static_cast<off_t>(address), file.fault);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return failed(file, "write", errno);
    size -= static_cast<std::size_t>(put);
    address += static_cast<haddr_t>(put);
    from += put;
  }
  file.end_written = std::max(file.end_written, address);
  return 0;
}

herr_t truncate(H5FD_t* base, hid_t, hbool_t) {
  File& file = *own(base);
  if (file.end_allocated == file.end_written || is_given_up(file)) return 0;
  if (::ftruncate(file.descriptor, static_cast<off_t>(file.end_allocated)) != 0) {
    return failed(file, "truncate", errno);
  }
  file.end_written = file.end_allocated;
  return 0;
}

// Assigned by name: what is not used, and what other versions have besides, is zero.
H5FD_class_t make_driver() {
  H5FD_class_t driver = {};
#if H5_VERSION_GE(1, 13, 2)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(600);  // 512 and above are free
#endif
  driver.name = "trireme";
  driver.maxaddr = static_cast<haddr_t>(std::numeric_limits<off_t>::max());
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.open = open_file;
  driver.close = close_file;
  driver.cmp = compare;
  driver.query = query;
  driver.get_eoa = end_of_allocation;
  driver.set_eoa = set_end_of_allocation;
  driver.get_eof = end_of_file;
  driver.get_handle = get_handle;
  driver.read = read;
  driver.write = write;
  driver.truncate = truncate;
  constexpr H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), driver.fl_map);
  return driver;
}

}  // namespace

void h5_set_file_driver(std::int64_t access_list) {
  const H5FD_class_t driver = make_driver();
  // HDF5 copies the list, and keeps it as long as anything uses it.
  const H5Scoped id(
      H5FDregister(&driver), [](std::int64_t i) { return H5FDunregister(i); },
      "register the file driver");
  h5_check(H5Pset_driver(access_list, id, nullptr), "choose the file driver");
}

void h5_inject(std::int64_t file, Fault fault) {
  void* handle = nullptr;
  h5_check(H5Fget_vfd_handle(file, H5P_DEFAULT, &handle), "find the file's driver");
  static_cast<File*>(handle)->fault = fault;
}

int h5_close_written(std::int64_t file) noexcept {
  void* handle = nullptr;
  File* written = nullptr;
  if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) >= 0) {
    written = static_cast<File*>(handle);
    written->closing = true;
    written->awaited = true;
  }
  const bool done = H5Fclose(file) >= 0;
  int error = written != nullptr ? written->failure : 0;
  if (!done && error == 0) error = EIO;
  if (written == nullptr) return error;
  if (written->closed) {
    delete written;
    return error;
  }
  // HDF5 still has it. Either it is open once more, under another id that is to hear of
  // what fails; or it could not be closed, and nobody is there to hear.
  written->awaited = false;
  written->closing = !done;
  return error;
}

}  // namespace trireme::io
