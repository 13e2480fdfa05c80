// io/guarded_call.hpp — opens files that nobody vouches for: a flipped bit can crash the
// HDF5 library itself, so the work is done in a child process and its result handed back.
#ifndef TRIREME_IO_GUARDED_CALL_HPP_
#define TRIREME_IO_GUARDED_CALL_HPP_

#include <functional>
#include <string>

#include "io/files.hpp"

namespace trireme::io {

// What `work` returns, run in a fork of this process. InputError and Error pass through;
// a crash, or no end within `seconds` (0: no limit), is an InputError that names `path`
// as damaged. `work` must start no threads and make no MPI call.
std::string guarded_call(const Path& path, int seconds,
                         const std::function<std::string()>& work);

}  // namespace trireme::io

#endif  // TRIREME_IO_GUARDED_CALL_HPP_
