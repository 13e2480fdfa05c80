// base/tally.hpp — what a pass on shapes alone would have done: of each kernel the calls,
// FLOPs and bytes, of each site that sends the calls, elements and bytes, and of each
// product of matrices that a library would be asked for the calls.
//
// A kernel's host function states its cost beside its launch, from extents; the launch
// counts the call (Exec::only_counts). FLOPs are those of matrix products, a multiply-add
// as two. Bytes are what must pass between the device and its memory: every operand once,
// one that is read and written twice. What lies in a cache, and what a kernel computes
// once more because that is cheaper than keeping it, is not in these numbers.
//
// Tallies are added, subtracted and multiplied: `after - before` is what a pass did, and
// times n what n such passes do.
#ifndef TRIREME_BASE_TALLY_HPP_
#define TRIREME_BASE_TALLY_HPP_

#include <string>
#include <string_view>
#include <vector>

#include "base/product_shape.hpp"
#include "base/types.hpp"

namespace trireme {

struct Cost {
  double flops = 0;
  // The part of the FLOPs that is products with what a mask hides: attention counts as in
  // the Megatron papers (all scores), and a causal mask makes half of them superfluous.
  double masked_flops = 0;
  index_t bytes = 0;
};

// What is launched: the label is a literal, unique in the code.
struct Kernel {
  const char* label;
  Cost cost;
  Kernel(const char* label_in, const Cost& cost_in = {})
      : label(label_in), cost(cost_in) {}
};

struct KernelTally {
  const char* label = "";
  index_t calls = 0;
  Cost cost;
};

// Messages of one site of one group of ranks. The payload is counted as in comm::Traffic.
struct MessageTally {
  std::string axis;       // name of the group
  std::string_view site;  // a literal, as the next
  std::string_view operation;
  index_t calls = 0;
  index_t elements = 0;
  index_t bytes = 0;

  // Tallies are ordered by axis, then by site.
  auto operator<=>(const MessageTally&) const = default;
};

struct ProductTally {
  ProductShape shape;
  index_t calls = 0;
};

class Tally {
 public:
  void add(const Kernel& kernel) { add(KernelTally{kernel.label, 1, kernel.cost}); }
  void add(const KernelTally& more);
  void add(const MessageTally& more);
  void add(const ProductTally& more);

  // What was counted, in the order of the first calls; what never happened is not listed.
  const std::vector<KernelTally>& kernels() const { return kernels_; }
  const std::vector<MessageTally>& messages() const { return messages_; }
  const std::vector<ProductTally>& products() const { return products_; }
  // One kernel, or the sum of all: zeros where there is none.
  KernelTally kernel(const char* label) const;
  KernelTally total() const;

  Tally& operator+=(const Tally& other);
  Tally& operator-=(const Tally& other) { return *this += -1 * other; }
  Tally& operator*=(index_t n);
  friend Tally operator+(Tally a, const Tally& b) { return a += b; }
  friend Tally operator-(Tally a, const Tally& b) { return a -= b; }
  friend Tally operator*(index_t n, Tally a) { return a *= n; }

 private:
  void drop_zeros();

  std::vector<KernelTally> kernels_;
  std::vector<MessageTally> messages_;
  std::vector<ProductTally> products_;
};

}  // namespace trireme

#endif  // TRIREME_BASE_TALLY_HPP_
