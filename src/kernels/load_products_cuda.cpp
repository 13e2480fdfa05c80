// kernels/load_products_cuda.cpp — cuBLASLt's kernels lie in modules of their own, which
// its first products load. See load_products.hpp.
#include "kernels/load_products.hpp"

#include "base/exec.hpp"
#include "kernels/gemm.hpp"

namespace trireme::kernels {

namespace {

template <class T>
void load_products_of(const Exec& exec) {
  constexpr std::size_t n = 64;
  const DeviceArray<T> a("trireme::kernels::load_products", n * n),
      c("trireme::kernels::load_products", n * n);
  const View2<const T> square(a.data(), n, n);
  gemm<T, T>(exec, Transpose::no, Transpose::yes, Accumulate::no, square, square,
             View2<T>(c.data(), n, n));
  exec.fence("trireme::kernels::load_products");
}

}  // namespace

void load_products(const Exec& exec, DType type) {
#define TRIREME_LOAD(T) \
  if (type == dtype_of<T>) load_products_of<T>(exec);
  TRIREME_FOR_EACH_REAL(TRIREME_LOAD)
#undef TRIREME_LOAD
}

}  // namespace trireme::kernels
