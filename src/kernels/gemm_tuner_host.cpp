// kernels/gemm_tuner_host.cpp — products on host cores have no choice that times decide:
// see kernels/narrow_gemm.hpp for the one that measured models of CPUs do.
#include "base/error.hpp"
#include "kernels/gemm_tuner.hpp"

namespace trireme::kernels {

namespace {

class NoTuner final : public GemmTuner {
 public:
  GemmLibrary library() const override { return {}; }
  bool can_run(const ProductShape&, const GemmChoice&) override { return false; }
  GemmTable time(const std::vector<ProductShape>&, const GemmTable&) override {
    return {};
  }
};

}  // namespace

std::unique_ptr<GemmTuner> make_gemm_tuner(const Exec&) {
  return std::make_unique<NoTuner>();
}

bool times_decide_gelu() {
  return false;
}

void use_gemm_table(const Exec&, const GemmTable& table) {
  TRIREME_REQUIRE(table.library.is_empty(),
                  "host cores cannot multiply by the algorithms of {}",
                  table.library.text());
}

GemmTable gemm_table(const Exec&) {
  return {};
}

}  // namespace trireme::kernels
