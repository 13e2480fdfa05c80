// comm/self_communicator.cpp — see self_communicator.hpp.
#include "comm/self_communicator.hpp"

#include <cstring>

namespace trireme::comm {
namespace {

using Bytes = DeviceView<std::byte*>;
using ConstBytes = DeviceView<const std::byte*>;

class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(std::string name) : Communicator(0, 1, std::move(name)) {}

  void set_timeout(double) override {}
  const void* native_handle() const override { return nullptr; }

 private:
  int do_start(const Exec& exec, const Transfer& transfer) override {
    move(exec, transfer.in, transfer.out);
    return kComplete;
  }
  void do_wait(int) override {}
  void do_barrier() override {}

  std::shared_ptr<Communicator> do_split(int colour, int,
                                         const std::string& name) override {
    return colour < 0 ? nullptr : make_self_communicator(name);
  }
  std::vector<std::shared_ptr<Communicator>> do_cartesian(
      const std::vector<int>&, const std::vector<SubGrid>& grids) override {
    std::vector<std::shared_ptr<Communicator>> groups;
    for (const SubGrid& grid : grids) groups.push_back(make_self_communicator(grid.name));
    return groups;
  }

  void host_all_gather(const void* in, void* out, std::size_t bytes, const char*,
                       Site) override {
    std::memcpy(out, in, bytes);
  }
  void host_gather(const void* in, void* out, std::size_t bytes, const char*) override {
    std::memcpy(out, in, bytes);
  }
  void host_broadcast(void*, std::size_t, int) override {}

  static void move(const Exec& exec, ConstSpan in, Span out) {
    if (in.data == out.data) return;
    copy(exec, Bytes(static_cast<std::byte*>(out.data), out.bytes()),
         ConstBytes(static_cast<const std::byte*>(in.data), in.bytes()));
  }
};

}  // namespace

std::shared_ptr<Communicator> make_self_communicator(const std::string& name) {
  return std::make_shared<SelfCommunicator>(name);
}

}  // namespace trireme::comm
