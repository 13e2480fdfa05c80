// report/kernel_classes.hpp — a roofline of few rows: the kernels of sampled steps by
// what they are, each class beside the time that its FLOPs and bytes allow (Williams et
// al. 2009).
#ifndef TRIREME_REPORT_KERNEL_CLASSES_HPP_
#define TRIREME_REPORT_KERNEL_CLASSES_HPP_

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "report/profile_table.hpp"

namespace trireme::report {

enum class KernelKind {
  products,   // of matrices
  attention,  // scores, softmax and their products, fused
  norms,      // with residuals where these are fused
  activations,
  embedding,
  loss,
  optimizer,  // with norms of gradients
  copies,
  other
};
inline constexpr std::size_t kKernelKinds = 9;
std::string_view name_of(KernelKind kind);
// Of a kernel's label without "trireme::".
KernelKind kind_of(std::string_view kernel);

// Of a rank in one step, or the mean of ranks.
struct KernelClass {
  double calls = 0.0, seconds = 0.0;
  double flops = 0.0;         // of products, with what a mask hides
  double needed_flops = 0.0;  // without
  double bytes = 0.0;
  double bound = 0.0;  // seconds that the kernels would take at the measured rates

  // Adds so large a share of another.
  void add(double share, const KernelClass& other);
};
using KernelClasses = std::array<KernelClass, kKernelKinds>;

// Zeros where no step was profiled.
KernelClasses classes_of(const RankProfile& rank);
// Collective: the mean over ranks, on rank 0; nothing elsewhere.
std::optional<KernelClasses> mean_of_ranks(comm::Communicator& world,
                                           const KernelClasses& mine);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_KERNEL_CLASSES_HPP_
