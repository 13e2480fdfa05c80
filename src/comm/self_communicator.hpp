// comm/self_communicator.hpp — a group of one rank: copies where a collective has an
// output, nothing otherwise. Runs without MPI.
#ifndef TRIREME_COMM_SELF_COMMUNICATOR_HPP_
#define TRIREME_COMM_SELF_COMMUNICATOR_HPP_

#include <memory>
#include <string>

#include "comm/communicator.hpp"

namespace trireme::comm {

std::shared_ptr<Communicator> make_self_communicator(const std::string& name);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_SELF_COMMUNICATOR_HPP_
