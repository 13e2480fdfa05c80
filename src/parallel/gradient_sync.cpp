// parallel/gradient_sync.cpp — see gradient_sync.hpp.
#include "parallel/gradient_sync.hpp"

namespace trireme::parallel {

template <class T>
void synchronise_gradients(const Exec& exec, const comm::ProcessGroups& groups,
                           const ParamBuffer<T>& params, std::size_t tied) {
  if (groups.embedding->size() > 1) {
    groups.embedding->all_reduce(exec, comm::span_of(params.slice(Slab::gradient, tied)));
  }
  if (groups.data->size() > 1) {
    groups.data->all_reduce(exec, comm::span_of(params.slab(Slab::gradient)));
  }
}

#define TRIREME_INSTANTIATE(T)                                                    \
  template void synchronise_gradients<T>(const Exec&, const comm::ProcessGroups&, \
                                         const ParamBuffer<T>&, std::size_t);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::parallel
