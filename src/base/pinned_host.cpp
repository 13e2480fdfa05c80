// base/pinned_host.cpp — copies where kernels run on the host: done when they return, but
// for those of late queues (base/late_queue.hpp).
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/late_queue.hpp"
#include "base/pinned.hpp"
#include "base/plural.hpp"

namespace trireme {

namespace {

using Bytes = std::vector<std::byte>;

// What the destination of a late copy has until then: NaN, and counts below zero.
constexpr int kNotYet = 0xff;

Kernel copy_kernel(std::size_t bytes) {
  return {"trireme::copy", {.bytes = 2 * static_cast<index_t>(bytes)}};
}

// The kernels behind it, which run at once, read what was copied; what is late is the end
// of the copy, until which its source may not change.
void watch_source(LateWork& late, const std::byte* from, std::size_t bytes) {
  late.add([from, copied = Bytes(from, from + bytes)] {
    TRIREME_REQUIRE(std::memcmp(from, copied.data(), copied.size()) == 0,
                    "{} of pinned memory were written while a copy from there to the "
                    "device was under way: wait for an Event behind the copy",
                    format_plural(copied.size(), "byte"));
  });
}

void copy_to_host_late(LateWork& late, std::byte* to, const std::byte* from,
                       std::size_t bytes) {
  std::memset(to, kNotYet, bytes);
  if (late.kind() == LateWork::Kind::of_copies) {
    late.add([to, from, bytes] { std::memcpy(to, from, bytes); });
    return;
  }
  late.add([to, copied = Bytes(from, from + bytes)] {
    std::memcpy(to, copied.data(), copied.size());
  });
}

}  // namespace

void copy_bytes_to_device(const Exec& exec, std::byte* to, const std::byte* from,
                          std::size_t bytes) {
  const Kernel kernel = copy_kernel(bytes);
  if (bytes == 0 || exec.only_counts(kernel)) return;
  const KernelCall call(exec, kernel);
  if (const auto late = late_work(exec)) watch_source(*late, from, bytes);
  std::memcpy(to, from, bytes);
}

void copy_bytes_to_host(const Exec& exec, std::byte* to, const std::byte* from,
                        std::size_t bytes) {
  const Kernel kernel = copy_kernel(bytes);
  if (bytes == 0 || exec.only_counts(kernel)) return;
  const KernelCall call(exec, kernel);
  if (const auto late = late_work(exec)) {
    copy_to_host_late(*late, to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void copy_rows_to_host(const Exec& exec, std::span<const RowCopy> copies) {
  if (exec.is_shape_only()) return;
  const auto late = late_work(exec);
  if (!late) {
    copy_rows(copies);
    return;
  }
  for (const RowCopy& copy : copies) {
    std::memset(copy.to, kNotYet, copy.bytes());
  }
  std::vector<RowCopy> list(copies.begin(), copies.end());
  if (late->kind() == LateWork::Kind::of_copies) {
    late->add([list = std::move(list)] { copy_rows(list); });
    return;
  }
  for (const RowCopy& copy : list) {
    Bytes copied(copy.bytes());
    RowCopy taken = copy;
    taken.to = copied.data();
    copy_rows({&taken, 1});
    late->add([to = copy.to, copied = std::move(copied)] {
      std::memcpy(to, copied.data(), copied.size());
    });
  }
}

}  // namespace trireme
