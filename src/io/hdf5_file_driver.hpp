// io/hdf5_file_driver.hpp — private to src/io: how HDF5 writes its files.
//
// HDF5's own driver is as good as this one until a write fails: a file that cannot be
// flushed cannot be closed either, stays half open, and the library trips over it when
// MPI shuts down (a segmentation fault, H5F__close_cb). With this driver a close always
// succeeds, and tells what could not be written.
#ifndef TRIREME_IO_HDF5_FILE_DRIVER_HPP_
#define TRIREME_IO_HDF5_FILE_DRIVER_HPP_

#include <cstdint>

#include "base/fault.hpp"

namespace trireme::io {

// Files created or opened through this list of access properties are written by the
// driver.
void h5_set_file_driver(std::int64_t access_list);

// What writes to such a file shall suffer from now on.
void h5_inject(std::int64_t file, Fault fault);

// Closes a file that was opened so, and everything open in it. errno of the first write
// that failed meanwhile (nothing is written after it), or 0.
int h5_close_written(std::int64_t file) noexcept;

}  // namespace trireme::io

#endif  // TRIREME_IO_HDF5_FILE_DRIVER_HPP_
