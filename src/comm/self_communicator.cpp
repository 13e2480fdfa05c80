// comm/self_communicator.cpp — see self_communicator.hpp.
#include "comm/self_communicator.hpp"

#include <cstring>

#include "base/exec.hpp"

namespace trireme::comm {
namespace {

using Bytes = DeviceView<std::byte*>;
using ConstBytes = DeviceView<const std::byte*>;

// The result of a rank's own contribution is that contribution.
class SelfTransport final : public Transport {
 public:
  int start(const Exec& exec, const Transfer& transfer) override {
    const ConstSpan in = transfer.in;
    const Span out = transfer.out;
    if (in.data == out.data) return kComplete;
    copy(exec, Bytes(static_cast<std::byte*>(out.data), out.bytes()),
         ConstBytes(static_cast<const std::byte*>(in.data), in.bytes()));
    return kComplete;
  }
  void wait(const Exec&, int) override {}
  void begin_group() override {}
  void end_group() override {}
};

class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(std::string name) : Communicator(0, 1, std::move(name)) {}

  std::unique_ptr<Transport> make_transport() override {
    return std::make_unique<SelfTransport>();
  }
  void set_timeout(double) override {}
  const void* native_handle() const override { return nullptr; }

 private:
  void do_barrier() override {}

  std::shared_ptr<Communicator> do_split(int colour, int,
                                         const std::string& name) override {
    return colour < 0 ? nullptr : make_self_communicator(name);
  }
  std::shared_ptr<Communicator> do_subset(int number, int,
                                          const std::string& name) override {
    return do_split(number, number, name);
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
};

}  // namespace

std::shared_ptr<Communicator> make_self_communicator(const std::string& name) {
  return std::make_shared<SelfCommunicator>(name);
}

}  // namespace trireme::comm
