// comm/planned_communicator.hpp — a group that is only planned: it says how large it is
// and which of its ranks this is, and refuses every message.
//
// Groups that are made from it are planned too, so that the process groups of one of many
// ranks (process_groups.hpp) are known without the others. What passes on shapes alone
// (Exec::shape_only) would send over them is counted on their Tally.
#ifndef TRIREME_COMM_PLANNED_COMMUNICATOR_HPP_
#define TRIREME_COMM_PLANNED_COMMUNICATOR_HPP_

#include <memory>
#include <string>

#include "comm/communicator.hpp"

namespace trireme::comm {

std::shared_ptr<Communicator> make_planned_communicator(int rank, int size,
                                                        const std::string& name);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_PLANNED_COMMUNICATOR_HPP_
