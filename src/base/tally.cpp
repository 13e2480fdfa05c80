// base/tally.cpp — see tally.hpp.
#include "base/tally.hpp"

#include <algorithm>
#include <cstring>

namespace trireme {

namespace {

// Copies of one literal may have addresses of their own.
bool same(const char* a, const char* b) {
  return a == b || std::strcmp(a, b) == 0;
}

bool same_place(const KernelTally& a, const KernelTally& b) {
  return same(a.label, b.label);
}
bool same_place(const MessageTally& a, const MessageTally& b) {
  return a.site == b.site && a.operation == b.operation && a.axis == b.axis;
}
bool same_place(const ProductTally& a, const ProductTally& b) {
  return a.shape == b.shape;
}

void accumulate(KernelTally& to, const KernelTally& more) {
  to.calls += more.calls;
  to.cost.flops += more.cost.flops;
  to.cost.masked_flops += more.cost.masked_flops;
  to.cost.bytes += more.cost.bytes;
}
void accumulate(MessageTally& to, const MessageTally& more) {
  to.calls += more.calls;
  to.elements += more.elements;
  to.bytes += more.bytes;
}

void accumulate(ProductTally& to, const ProductTally& more) {
  to.calls += more.calls;
}

template <class Entry>
void add_to(std::vector<Entry>& entries, const Entry& more) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& e) { return same_place(e, more); });
  if (found == entries.end()) {
    entries.push_back(more);
  } else {
    accumulate(*found, more);
  }
}

}  // namespace

void Tally::add(const KernelTally& more) {
  add_to(kernels_, more);
}

void Tally::add(const MessageTally& more) {
  add_to(messages_, more);
}

void Tally::add(const ProductTally& more) {
  add_to(products_, more);
}

KernelTally Tally::kernel(const char* label) const {
  for (const KernelTally& entry : kernels_) {
    if (same(entry.label, label)) return entry;
  }
  return {label, 0, {}};
}

KernelTally Tally::total() const {
  KernelTally sum{"total", 0, {}};
  for (const KernelTally& entry : kernels_) accumulate(sum, entry);
  return sum;
}

Tally& Tally::operator+=(const Tally& other) {
  for (const KernelTally& entry : other.kernels_) add(entry);
  for (const MessageTally& entry : other.messages_) add(entry);
  for (const ProductTally& entry : other.products_) add(entry);
  drop_zeros();
  return *this;
}

Tally& Tally::operator*=(index_t n) {
  for (KernelTally& entry : kernels_) {
    entry.calls *= n;
    entry.cost.flops *= static_cast<double>(n);
    entry.cost.masked_flops *= static_cast<double>(n);
    entry.cost.bytes *= n;
  }
  for (MessageTally& entry : messages_) {
    entry.calls *= n;
    entry.elements *= n;
    entry.bytes *= n;
  }
  for (ProductTally& entry : products_) entry.calls *= n;
  drop_zeros();
  return *this;
}

void Tally::drop_zeros() {
  std::erase_if(kernels_, [](const KernelTally& e) {
    return e.calls == 0 && e.cost.flops == 0 && e.cost.bytes == 0;
  });
  std::erase_if(messages_, [](const MessageTally& e) {
    return e.calls == 0 && e.elements == 0 && e.bytes == 0;
  });
  std::erase_if(products_, [](const ProductTally& e) { return e.calls == 0; });
}

}  // namespace trireme
