// run/shared_directory.hpp — directories that ranks of several nodes write to.
#ifndef TRIREME_RUN_SHARED_DIRECTORY_HPP_
#define TRIREME_RUN_SHARED_DIRECTORY_HPP_

#include <string>
#include <string_view>

#include "comm/communicator.hpp"
#include "io/files.hpp"

namespace trireme::run {

// Collective. What rank 0 writes there must be there for the others, else InputError on
// all: each node has a directory of its own by this name. `what` says what it is for.
void require_seen_by_all(comm::Communicator& world, const io::Path& directory,
                         std::string_view what);

}  // namespace trireme::run

#endif  // TRIREME_RUN_SHARED_DIRECTORY_HPP_
