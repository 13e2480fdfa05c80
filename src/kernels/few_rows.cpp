// kernels/few_rows.cpp — see few_rows.hpp.
//
// The rows of x are widened once, into memory of the queue. A work item takes some rows
// of W and multiplies them with all rows of x: eight of these at a time, so that of 16
// rows the second half finds the rows of W in the core's cache.
#include "kernels/few_rows.hpp"

#include <cstddef>
#include <memory>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/gemm_reference.hpp"
#include "kernels/impl/vector_rows.hpp"

namespace trireme::kernels {

namespace {

// What a queue keeps: room for the widened rows.
class WidenedRows final : public LibraryState {
 public:
  template <class A>
  A* room(index_t elements) {
    const std::size_t bytes = extent(elements) * sizeof(A);
    if (memory_.extent(0) < bytes) {
      memory_ = DeviceArray<std::byte>();
      memory_ = DeviceArray<std::byte>(
          Kokkos::view_alloc(Kokkos::WithoutInitializing, "widened rows"), bytes);
    }
    return reinterpret_cast<A*>(memory_.data());
  }

 private:
  DeviceArray<std::byte> memory_;
};

template <class T>
struct FewRows {
  using A = Accumulator<T>;

  const T* weight;
  index_t ldw, out, in;
  const A* x;
  index_t ldx;
  T* y;
  index_t ldy;
  int rows;      // of x
  int together;  // of these, in one pass over a group
  index_t group;

  void operator()(index_t item) const {
    const index_t begin = item * group;
    const index_t count = out - begin < group ? out - begin : group;
    for (int m = 0; m < rows; m += together) {
      const int of_x = rows - m < together ? rows - m : together;
      impl::dot_rows<T, T>(of_x, count, weight + begin * ldw, ldw, x + m * ldx, ldx, in,
                           y + m * ldy + begin, ldy);
    }
  }
};

}  // namespace

template <class T>
void few_rows_product(const Exec& exec, View2<const T> x, View2<const T> weight,
                      View2<T> y) {
  using A = Accumulator<T>;
  const GemmShape shape = gemm_shape(Transpose::no, Transpose::yes, x, weight, y);
  TRIREME_REQUIRE(shape.m <= kFewRows, "a product of {}: few are {} at most",
                  format_plural(shape.m, "row"), kFewRows);
  if (shape.m == 0) return;
  const index_t ldx = impl::whole_blocks<T>(shape.k);
  A* widened = nullptr;
  if (!exec.is_shape_only()) {
    WidenedRows& memory =
        exec.library<WidenedRows>([] { return std::make_unique<WidenedRows>(); });
    widened = memory.room<A>(kFewRows * ldx);
    for (index_t m = 0; m < shape.m; ++m) {
      impl::widen_row<T>(x.data() + m * static_cast<index_t>(x.stride(0)), shape.k, A{1},
                         widened + m * ldx);
    }
  }
  const int rows = static_cast<int>(shape.m);
  const int passes = (rows + impl::kMostDotRows - 1) / impl::kMostDotRows;
  const int together = (rows + passes - 1) / passes;
  const index_t group = passes * impl::rows_together(together);
  launch(exec,
         {"trireme::kernels::few_rows_product",
          gemm_cost(shape, Accumulate::no, x, weight, y)},
         (shape.n + group - 1) / group,
         FewRows<T>{weight.data(), static_cast<index_t>(weight.stride(0)), shape.n,
                    shape.k, widened, ldx, y.data(), static_cast<index_t>(y.stride(0)),
                    rows, together, group});
}

#define TRIREME_INSTANTIATE(T) template decltype(few_rows_product<T>) few_rows_product<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
