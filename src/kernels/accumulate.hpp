// kernels/accumulate.hpp — whether a kernel adds its result to what is there already, or
// writes over it without reading it.
#ifndef TRIREME_KERNELS_ACCUMULATE_HPP_
#define TRIREME_KERNELS_ACCUMULATE_HPP_

namespace trireme::kernels {

enum class Accumulate { no, yes };

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_ACCUMULATE_HPP_
