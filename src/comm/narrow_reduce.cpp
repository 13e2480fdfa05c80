// comm/narrow_reduce.cpp — see narrow_reduce.hpp.
#include "comm/narrow_reduce.hpp"

namespace trireme::comm {

template <class T>
void narrow_reduce(Op op, const T* in, T* inout, index_t count) {
  // Each operation has a loop of its own, so that each is vectorised. A NaN on either
  // side stays.
  switch (op) {
    case Op::sum:
      for (index_t i = 0; i < count; ++i) {
        inout[i] = T(static_cast<float>(in[i]) + static_cast<float>(inout[i]));
      }
      break;
    case Op::max:
      for (index_t i = 0; i < count; ++i) {
        const float a = in[i], b = inout[i];
        inout[i] = a != a || a > b ? in[i] : inout[i];
      }
      break;
    case Op::min:
      for (index_t i = 0; i < count; ++i) {
        const float a = in[i], b = inout[i];
        inout[i] = a != a || a < b ? in[i] : inout[i];
      }
      break;
  }
}

template void narrow_reduce<bf16>(Op, const bf16*, bf16*, index_t);
template void narrow_reduce<fp16>(Op, const fp16*, fp16*, index_t);

}  // namespace trireme::comm
