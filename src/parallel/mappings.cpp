// parallel/mappings.cpp — see mappings.hpp.
#include "parallel/mappings.hpp"

namespace trireme::parallel {

template <class T>
void reduce_from_tensor_parallel_region(const Exec& exec, comm::Communicator& tensor,
                                        View2<T> y) {
  if (tensor.size() > 1) tensor.all_reduce(exec, comm::span_of(y));
}

template <class T>
void copy_to_tensor_parallel_region_backward(const Exec& exec, comm::Communicator& tensor,
                                             View2<T> d_x) {
  if (tensor.size() > 1) tensor.all_reduce(exec, comm::span_of(d_x));
}

#define TRIREME_INSTANTIATE(T)                                                          \
  template void reduce_from_tensor_parallel_region<T>(const Exec&, comm::Communicator&, \
                                                      View2<T>);                        \
  template void copy_to_tensor_parallel_region_backward<T>(                             \
      const Exec&, comm::Communicator&, View2<T>);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::parallel
