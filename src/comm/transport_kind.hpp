// comm/transport_kind.hpp — which of the transports of a build carries device messages.
#ifndef TRIREME_COMM_TRANSPORT_KIND_HPP_
#define TRIREME_COMM_TRANSPORT_KIND_HPP_

#include <string_view>

namespace trireme::comm {

enum class TransportKind { mpi, nccl };
std::string_view name_of(TransportKind kind);

// NCCL where kernels run on a GPU and the build has it, else MPI;
// TRIREME_TRANSPORT=mpi|nccl (argument: its value or null) overrides. Throws InputError
// for another value, and for NCCL where the build has none.
TransportKind choose_transport(const char* override_value);

}  // namespace trireme::comm

#endif  // TRIREME_COMM_TRANSPORT_KIND_HPP_
