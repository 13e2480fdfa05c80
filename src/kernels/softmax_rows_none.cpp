// kernels/softmax_rows_none.cpp — impl/softmax_rows.hpp where there is nothing but the
// plain loops.
#include "base/types.hpp"
#include "kernels/impl/softmax_rows.hpp"

namespace trireme::kernels::impl {

template <class T>
SoftmaxRows<T> softmax_rows() {
  return {};
}
template SoftmaxRows<bf16> softmax_rows<bf16>();
template SoftmaxRows<fp16> softmax_rows<fp16>();

void set_softmax_rows(LongVectors) {}

}  // namespace trireme::kernels::impl
