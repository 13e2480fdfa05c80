// kernels/gemm_tuner.hpp — the library behind the products of a device, as far as there
// is a choice of algorithms: gemm_tuner_cuda.cpp, or, where there is none,
// gemm_tuner_host.cpp.
#ifndef TRIREME_KERNELS_GEMM_TUNER_HPP_
#define TRIREME_KERNELS_GEMM_TUNER_HPP_

#include <memory>
#include <vector>

#include "base/exec.hpp"
#include "base/product_shape.hpp"
#include "kernels/gemm_table.hpp"

namespace trireme::kernels {

// What chooses, of one device; tests have another one.
class GemmTuner {
 public:
  virtual ~GemmTuner() = default;
  virtual GemmLibrary library() const = 0;
  // Whether the library takes the algorithm of a table of its own, on this device.
  virtual bool can_run(const ProductShape& shape, const GemmChoice& choice) = 0;
  // Times the library's proposals for what is not known yet, each product in memory of
  // its own that is given back: trial_bytes(), and twice the device's cache. A product
  // with an epilogue stands behind its first pass, or that is known.
  virtual GemmTable time(const std::vector<ProductShape>& shapes,
                         const GemmTable& known) = 0;
};
std::unique_ptr<GemmTuner> make_gemm_tuner(const Exec& exec);

// Whether times decide if a product does its GeLU itself. A pass on shapes, which has no
// times, then counts two products, of which a step computes one: that with the GeLU, and
// that without, whose GeLU is a pass of its own and counted as well.
bool times_decide_gelu();

// What products of `exec` and its copies are computed by from now on, where the table has
// them. Error where it is of another library or device.
void use_gemm_table(const Exec& exec, const GemmTable& table);
// The table in use. Its library is this device's; where there is no choice of algorithms
// it is empty.
GemmTable gemm_table(const Exec& exec);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_GEMM_TUNER_HPP_
