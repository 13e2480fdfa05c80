// comm/planned_communicator.hpp — a group that is only planned: it says how large it is
// and which of its ranks this is, and refuses every message.
//
// For passes on shapes alone (Exec::shape_only), where no operation gets as far as the
// implementation: what one of many ranks would hold is known without the others. Such a
// pass is counted in traffic(): what a step would send.
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
