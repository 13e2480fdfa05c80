// comm/nccl_link_none.cpp — a build without NCCL: nothing is carried, and who asks for it
// is told so. See nccl_link.hpp.
#include "base/error.hpp"
#include "comm/nccl_link.hpp"

namespace trireme::comm {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "this build of trireme has no NCCL; CMake takes it in where it finds nccl.h, in a "
      "build for NVIDIA GPUs");
}

}  // namespace

struct NcclLink::State {};

bool has_nccl() {
  return false;
}
std::string nccl_version() {
  return {};
}
std::string make_nccl_id() {
  refuse();
}
int device_of_thread() {
  return 0;
}
void enter_nccl_thread(int) {}
void begin_nccl_group() {
  refuse();
}
void end_nccl_group() {}

NcclMark::NcclMark() {
  refuse();
}
NcclMark::~NcclMark() = default;
void NcclMark::record(const Exec&) {}
bool NcclMark::is_past() const {
  return event_ == nullptr;
}
void NcclMark::hold_up(const Exec&) const {}
double NcclMark::seconds_since(const NcclMark&) const {
  return 0.0;
}

NcclLink::NcclLink(const Options&) {
  refuse();
}
NcclLink::~NcclLink() = default;
void NcclLink::hold_up(const NcclMark&) {}
void NcclLink::record(NcclMark&) {}
void NcclLink::start(const Transfer&, int) {}
void NcclLink::start_first(const std::vector<Transfer>&, int, double) {}
std::unique_lock<std::timed_mutex> NcclLink::hold() const {
  return {};
}
void NcclLink::settle(double) {}
std::string NcclLink::asynchronous_error() const {
  return {};
}
void NcclLink::abort() noexcept {}

}  // namespace trireme::comm
