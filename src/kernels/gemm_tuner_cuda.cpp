// kernels/gemm_tuner_cuda.cpp — cuBLASLt's proposals for a product, timed on this device.
//
// Operands are normal random numbers in memory of their own: zeros would be multiplied
// faster, as the device stays cooler. What is added (C, or a residual) lies apart from
// the result, so that a product that adds can be computed again and again from the same
// numbers. Before each timed call the device's cache is written full of something else,
// as it is in a step; that takes the device longer than the host takes to launch what
// comes behind it, so that no launch is part of a time.
//
// A product with an epilogue has one way more than the library's proposals: its first
// pass by the algorithm chosen for that, and a pass over the result. Untimed it is what a
// GeLU is computed by, and then it is the first way, which the others have to be faster
// than; else it is the last.
#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/kernel_clock.hpp"
#include "base/random.hpp"
#include "kernels/digest.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/gemm_choice.hpp"
#include "kernels/gemm_tuner.hpp"
#include "kernels/impl/cublaslt.hpp"
#include "kernels/impl/cuda_queue.hpp"
#include "kernels/initialize.hpp"

namespace trireme::kernels {

namespace {

using impl::CublasLtProduct;

// The operands of one product, each aligned as no product asks for more.
template <class T, class To>
class TrialOperands {
 public:
  TrialOperands(const Exec& exec, const ProductShape& shape) : shape_(shape) {
    const index_t a_rows = shape.transpose_a ? shape.k : shape.m;
    const index_t b_rows = shape.transpose_b ? shape.n : shape.k;
    a = random<T>(exec, a_rows, shape.lda);
    b = random<T>(exec, b_rows, shape.ldb);
    if (adds_as_a_rule(shape)) {
      added = random<To>(exec, shape.m,
                         shape.ld_residual > 0 ? shape.ld_residual : shape.ldc);
    }
    if (shape.has_bias) bias = random<To>(exec, 1, shape.n);
    // What is written lies together, with what is behind its last element.
    const std::size_t c_bytes = bytes_of_rows(shape.ldc);
    result_ = DeviceArray<std::uint32_t>(
        "gemm trial", (c_bytes + bytes_of_rows(shape.ld_kept)) / sizeof(std::uint32_t));
    auto* const begin = reinterpret_cast<std::byte*>(result_.data());
    c = reinterpret_cast<To*>(begin);
    if (added == nullptr) added = c;
    if (shape.ld_kept > 0) kept = reinterpret_cast<To*>(begin + c_bytes);
  }

  View2<To> matrix(To* data, index_t leading) const {
    const View2<To> rows(data, extent(shape_.m), extent(leading));
    return Kokkos::subview(rows, Kokkos::ALL, std::pair<index_t, index_t>(0, shape_.n));
  }
  impl::ProductOperands operands() const {
    return {.a = a, .b = b, .added = added, .c = c, .bias = bias, .kept = kept};
  }
  View1<const std::uint32_t> result() const {
    return {result_.data(), result_.extent(0)};
  }

  T *a = nullptr, *b = nullptr;
  To *added = nullptr, *bias = nullptr, *c = nullptr, *kept = nullptr;

 private:
  std::size_t bytes_of_rows(index_t leading) const {
    constexpr std::size_t kLine = 256;
    const std::size_t bytes = extent(shape_.m) * extent(leading) * sizeof(To);
    return (bytes + kLine - 1) / kLine * kLine;
  }

  template <class Element>
  Element* random(const Exec& exec, index_t rows, index_t columns) {
    const std::size_t count = extent(rows) * extent(columns);
    const DeviceArray<std::byte> memory("gemm trial", count * sizeof(Element));
    auto* const data = reinterpret_cast<Element*>(memory.data());
    fill_normal<Element>(exec, random::Generator{.seed = memory_.size()}, 1.0,
                         {0, 0, columns, 0, 0, columns, rows, columns},
                         View1<Element>(data, count));
    memory_.push_back(memory);
    return data;
  }

  const ProductShape& shape_;
  std::vector<DeviceArray<std::byte>> memory_;
  DeviceArray<std::uint32_t> result_;
};

// The ways of one product. `first_pass`: how that is computed; null where it is not
// known.
template <class T, class To>
class ProductTrials final : public GemmTrials {
 public:
  ProductTrials(const Exec& exec, const View1<float>& cache, const ProductShape& shape,
                const GemmChoice* first_pass)
      : exec_(exec),
        library_(impl::cublaslt_of(exec)),
        cache_(cache),
        clock_(make_kernel_clock(exec.space())),
        product_(shape),
        first_pass_(first_pass_of(shape)),
        proposals_(
            product_.proposals(library_.handle(), CublasLtProduct::kMostProposals)),
        operands_(exec, product_.shape()) {
    for (int i = 0; i < static_cast<int>(proposals_.size()); ++i) ways_.push_back(i);
    // A first pass that is two itself would make three, which nothing is gained by.
    if (shape.has_epilogue() && first_pass != nullptr && !first_pass->in_two_passes) {
      first_algorithm_ = impl::algorithm_of(*first_pass);
      ways_.insert(shape.has_gelu ? ways_.begin() : ways_.end(), kTwoPasses);
    }
  }

  int count() const override { return static_cast<int>(ways_.size()); }
  bool run(int way, std::uint64_t& digest) override {
    const bool runs = compute(way) == CUBLAS_STATUS_SUCCESS;
    exec_.fence("trireme::kernels::gemm_tuner");
    if (runs) digest = digest_of(exec_, operands_.result());
    return runs;
  }
  double seconds(int way) override {
    fill<float>(exec_, cache_, 1.0f);
    clock_->begin(0);
    const cublasStatus_t status = compute(way);
    clock_->end(0);
    impl::check_cublaslt(status, "cublasLtMatmul");
    return clock_->seconds(0);
  }

  // What the table is to have; what would be taken without times, where none was chosen.
  GemmChoice choice(const GemmTrialResult& result) const {
    GemmChoice choice;
    choice.proposals = std::max<int>(1, static_cast<int>(proposals_.size()));
    if (result.way >= 0) {
      choice.seconds = result.seconds;
      choice.untimed_seconds = result.first_seconds;
    }
    const int untimed = product_.shape().has_gelu || proposals_.empty() ? kTwoPasses : 0;
    const int way = result.way >= 0 ? ways_[extent(result.way)] : untimed;
    choice.in_two_passes = way == kTwoPasses;
    if (choice.in_two_passes) return choice;
    const CublasLtProduct::Proposal& chosen = proposals_[extent(way)];
    choice.algorithm = impl::words_of(chosen.algorithm);
    choice.workspace_bytes = chosen.workspace_bytes;
    choice.proposal = way;
    choice.about = impl::text_of(chosen.algorithm);
    return choice;
  }

 private:
  cublasStatus_t run_product(const CublasLtProduct& product,
                             const cublasLtMatmulAlgo_t& algorithm, bool adds,
                             const impl::ProductOperands& operands) const {
    return product.run(library_.handle(), algorithm,
                       adds ? Accumulate::yes : Accumulate::no, operands,
                       library_.workspace(), impl::stream_of(exec_));
  }

  cublasStatus_t compute(int number) const {
    const ProductShape& shape = product_.shape();
    const int way = ways_[extent(number)];
    if (way == kTwoPasses) return compute_in_two_passes();
    return run_product(product_, proposals_[extent(way)].algorithm, adds_as_a_rule(shape),
                       operands_.operands());
  }

  // As linear_forward() does it.
  cublasStatus_t compute_in_two_passes() const {
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    if constexpr (std::is_same_v<T, To>) {
      const ProductShape& shape = product_.shape();
      impl::ProductOperands first = operands_.operands();
      if (shape.ld_kept > 0) first.c = first.kept;
      first.added = first.c;
      const View2<T> z =
          operands_.matrix(static_cast<T*>(first.c), first_pass_.shape().ldc);
      status = run_product(first_pass_, first_algorithm_, false, first);
      Epilogue<T> rest;
      if (shape.has_gelu) {
        rest.activation = Activation::gelu_tanh;
      } else {
        if (shape.has_bias) {
          rest.bias = View1<const T>(operands_.bias, extent(shape.n));
        }
        if (shape.ld_residual > 0) {
          rest.residual = operands_.matrix(operands_.added, shape.ld_residual);
        }
      }
      apply_epilogue<T>(exec_, z, rest, operands_.matrix(operands_.c, shape.ldc));
    }
    return status;
  }

  static constexpr int kTwoPasses = -1;

  const Exec& exec_;
  impl::CublasLt& library_;
  View1<float> cache_;  // as large as all that the device's cache holds, twice
  std::unique_ptr<KernelClock> clock_;
  CublasLtProduct product_, first_pass_;
  std::vector<CublasLtProduct::Proposal> proposals_;
  TrialOperands<T, To> operands_;
  std::vector<int> ways_;  // a proposal, or two passes
  cublasLtMatmulAlgo_t first_algorithm_{};
};

class CublasLtTuner final : public GemmTuner {
 public:
  explicit CublasLtTuner(const Exec& exec) : exec_(exec) {}

  GemmLibrary library() const override {
    const impl::CudaDevice device = impl::device_of(exec_);
    return {.name = impl::cublaslt_version(),
            .device = device.name,
            .capability = device.capability,
            .multiprocessors = device.multiprocessors};
  }

  bool can_run(const ProductShape& shape, const GemmChoice& choice) override {
    return CublasLtProduct(shape).accepts(impl::cublaslt_of(exec_).handle(),
                                          impl::algorithm_of(choice));
  }

  GemmTable time(const std::vector<ProductShape>& shapes,
                 const GemmTable& known) override {
    const DeviceArray<float> cache(
        "gemm trial", 2 * impl::device_of(exec_).cache_bytes / sizeof(float) + 1);
    const View1<float> cache_view(cache.data(), cache.extent(0));
    GemmTable timed{library(), {}};
    for (const ProductShape& shape : shapes) {
      if (known.has(shape)) continue;
      const ProductShape first = first_pass_of(shape);
      const GemmChoice* first_pass = nullptr;
      for (const GemmTable* table : {&known, static_cast<const GemmTable*>(&timed)}) {
        if (table->has(first)) first_pass = &table->products.at(first);
      }
      timed.products.emplace(shape, time_one(cache_view, shape, first_pass));
    }
    return timed;
  }

 private:
  GemmChoice time_one(const View1<float>& cache, const ProductShape& shape,
                      const GemmChoice* first_pass) const {
#define TRIREME_TIME(T, To)                                        \
  if (shape.type == dtype_of<T> && shape.type_c == dtype_of<To>) { \
    ProductTrials<T, To> trials(exec_, cache, shape, first_pass);  \
    return trials.choice(choose_way(trials));                      \
  }
    TRIREME_FOR_EACH_GEMM(TRIREME_TIME)
#undef TRIREME_TIME
    throw Error(fmt::format("there is no product of {} in {}", name_of(shape.type),
                            name_of(shape.type_c)));
  }

  Exec exec_;
};

}  // namespace

std::unique_ptr<GemmTuner> make_gemm_tuner(const Exec& exec) {
  return std::make_unique<CublasLtTuner>(exec);
}

bool times_decide_gelu() {
  return true;
}

void use_gemm_table(const Exec& exec, const GemmTable& table) {
  const GemmLibrary library = CublasLtTuner(exec).library();
  TRIREME_REQUIRE(table.library == library, "{} cannot multiply by the algorithms of {}",
                  library.text(), table.library.text());
  impl::cublaslt_of(exec).use(table);
}

GemmTable gemm_table(const Exec& exec) {
  GemmTable table = impl::cublaslt_of(exec).table();
  table.library = CublasLtTuner(exec).library();
  return table;
}

}  // namespace trireme::kernels
