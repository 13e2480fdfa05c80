// parallel/mappings.cpp — see mappings.hpp.
#include "parallel/mappings.hpp"

namespace trireme::parallel {

template <class T>
comm::Request start_reduce_from_tensor_parallel_region(const Exec& exec,
                                                       comm::Group& tensor, View2<T> x,
                                                       comm::Site site) {
  return tensor.start_all_reduce(exec, comm::span_of(x), comm::Op::sum, site);
}

template <class T>
comm::Request start_gather_from_sequence_parallel_region(const Exec& exec,
                                                         comm::Group& tensor,
                                                         View2<const T> part, View2<T> x,
                                                         comm::Site site) {
  return tensor.start_all_gather(exec, comm::span_of(part), comm::span_of(x), site);
}

template <class T>
comm::Request start_reduce_scatter_to_sequence_parallel_region(const Exec& exec,
                                                               comm::Group& tensor,
                                                               View2<const T> partial,
                                                               View2<T> part,
                                                               comm::Site site) {
  return tensor.start_reduce_scatter(exec, comm::span_of(partial), comm::span_of(part),
                                     comm::Op::sum, site);
}

#define TRIREME_INSTANTIATE(T)                                           \
  template decltype(start_reduce_from_tensor_parallel_region<T>)         \
      start_reduce_from_tensor_parallel_region<T>;                       \
  template decltype(start_gather_from_sequence_parallel_region<T>)       \
      start_gather_from_sequence_parallel_region<T>;                     \
  template decltype(start_reduce_scatter_to_sequence_parallel_region<T>) \
      start_reduce_scatter_to_sequence_parallel_region<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::parallel
