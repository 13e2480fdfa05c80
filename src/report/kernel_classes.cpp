// report/kernel_classes.cpp — see kernel_classes.hpp.
#include "report/kernel_classes.hpp"

#include <cstring>
#include <string>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::report {

namespace {

constexpr std::size_t kNumbers = 6;  // of a class
static_assert(sizeof(KernelClasses) == kKernelKinds * kNumbers * sizeof(double));

struct Pattern {
  std::string_view text;
  KernelKind kind;
};
// The first that a label contains says its kind.
constexpr Pattern kPatterns[] = {
    {"attention", KernelKind::attention},
    {"append_to_cache", KernelKind::attention},
    {"relative_bias", KernelKind::attention},
    {"gemm", KernelKind::products},
    {"product", KernelKind::products},
    {"linear", KernelKind::products},
    {"apply_epilogue", KernelKind::products},
    {"norm_", KernelKind::norms},
    {"cross_entropy", KernelKind::loss},
    {"embedding", KernelKind::embedding},
    {"zero_runs", KernelKind::embedding},
    {"gather_rows", KernelKind::embedding},
    {"mean_rows", KernelKind::embedding},
    {"copy_rows_as_float", KernelKind::embedding},
    {"gelu", KernelKind::activations},
    {"gated_", KernelKind::activations},
    {"relu", KernelKind::activations},
    {"tanh", KernelKind::activations},
    {"dropout", KernelKind::activations},
    {"adamw", KernelKind::optimizer},
    {"optim::", KernelKind::optimizer},
    {"count_non_finite", KernelKind::optimizer},
    {"digest", KernelKind::optimizer},
    {"square_sum", KernelKind::optimizer},
    {"sum_row_blocks", KernelKind::norms},
    {"add_partials", KernelKind::norms},
    {"copy", KernelKind::copies},
    {"fill", KernelKind::copies},
    {"convert", KernelKind::copies},
    {"add_to_shard", KernelKind::copies},
    {"step::set_", KernelKind::copies},
};

}  // namespace

std::string_view name_of(KernelKind kind) {
  constexpr std::array<std::string_view, kKernelKinds> kNames = {
      "products", "attention", "norms",  "activations", "embedding",
      "loss",     "optimizer", "copies", "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

KernelKind kind_of(std::string_view kernel) {
  for (const Pattern& pattern : kPatterns) {
    if (kernel.find(pattern.text) != std::string_view::npos) return pattern.kind;
  }
  return KernelKind::other;
}

void KernelClass::add(double share, const KernelClass& other) {
  calls += share * other.calls;
  seconds += share * other.seconds;
  flops += share * other.flops;
  needed_flops += share * other.needed_flops;
  bytes += share * other.bytes;
  bound += share * other.bound;
}

KernelClasses classes_of(const RankProfile& rank) {
  KernelClasses classes{};
  if (rank.steps == 0) return classes;
  const double share = 1.0 / static_cast<double>(rank.steps);
  for (const KernelUse& use : rank.kernels) {
    KernelClass& sum = classes[static_cast<std::size_t>(kind_of(use.kernel))];
    sum.add(share, {use.calls, use.seconds, use.flops, use.needed_flops(), use.bytes,
                    use.bound});
  }
  return classes;
}

std::optional<KernelClasses> mean_of_ranks(comm::Communicator& world,
                                           const KernelClasses& mine) {
  std::string bytes(sizeof(KernelClasses), '\0');
  std::memcpy(bytes.data(), mine.data(), bytes.size());
  const std::vector<std::string> all = world.gather_to_first(bytes);
  if (world.rank() != 0) return {};
  KernelClasses mean{};
  for (const std::string& text : all) {
    TRIREME_REQUIRE(text.size() == sizeof(KernelClasses), "a rank's kernel classes of {}",
                    format_plural(static_cast<index_t>(text.size()), "byte"));
    KernelClasses one{};
    std::memcpy(one.data(), text.data(), text.size());
    const double share = 1.0 / static_cast<double>(all.size());
    for (std::size_t i = 0; i < kKernelKinds; ++i) mean[i].add(share, one[i]);
  }
  return mean;
}

}  // namespace trireme::report
