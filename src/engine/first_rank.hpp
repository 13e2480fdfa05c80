// engine/first_rank.hpp — what rank 0 does for all: a look at the file system, a file
// written. The others wait and get its answer; its errors are thrown on every rank, so
// that none hangs in the next collective.
#ifndef TRIREME_ENGINE_FIRST_RANK_HPP_
#define TRIREME_ENGINE_FIRST_RANK_HPP_

#include <functional>
#include <string>

#include "comm/communicator.hpp"

namespace trireme::engine {

// Collective. The text that `work` returns on rank 0 (the others do not call it). What it
// throws is thrown on every rank: InputError as InputError, all else as Error with the
// same message.
std::string on_first_rank(comm::Communicator& world,
                          const std::function<std::string()>& work);

}  // namespace trireme::engine

#endif  // TRIREME_ENGINE_FIRST_RANK_HPP_
