// comm/planned_communicator.cpp — see planned_communicator.hpp and self_communicator.hpp.
//
// Both are groups of which this process alone is there: nothing is ever sent. A group of
// one rank answers every call, since the result of its own contribution is that
// contribution. Of a larger one the others are missing, so that it can say who would be
// in the groups made of it, and refuses what they would have a part in.
#include "comm/planned_communicator.hpp"

#include <cstring>
#include <utility>

#include "base/exec.hpp"
#include "base/plural.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::comm {

namespace {

using Bytes = DeviceView<std::byte*>;
using ConstBytes = DeviceView<const std::byte*>;

void require_alone(const Communicator& group) {
  if (group.size() == 1) return;
  throw Error(fmt::format("group '{}' of {} is only planned: it sends no messages",
                          group.name(), format_plural(group.size(), "rank")));
}

class PlannedTransport final : public Transport {
 public:
  explicit PlannedTransport(const Communicator& group) : group_(group) {}
  int start(const Exec& exec, const Transfer& transfer) override {
    require_alone(group_);
    const ConstSpan in = transfer.in;
    const Span out = transfer.out;
    if (in.data == out.data) return kComplete;
    copy(exec, Bytes(static_cast<std::byte*>(out.data), out.bytes()),
         ConstBytes(static_cast<const std::byte*>(in.data), in.bytes()));
    return kComplete;
  }
  void wait(const Exec&, int) override {}
  void open(const std::vector<ChannelEnd>&) override {}
  void begin_group() override {}
  void end_group() override {}

 private:
  const Communicator& group_;
};

class PlannedCommunicator final : public Communicator {
 public:
  PlannedCommunicator(int rank, int size, std::string name)
      : Communicator(rank, size, std::move(name)) {}
  std::unique_ptr<Transport> make_transport() override {
    return std::make_unique<PlannedTransport>(*this);
  }
  void set_timeout(double) override {}
  const void* native_handle() const override { return nullptr; }

 private:
  void do_barrier() override { require_alone(*this); }
  std::shared_ptr<Communicator> do_split(int colour, int,
                                         const std::string& name) override {
    require_alone(*this);
    return colour < 0 ? nullptr : make_self_communicator(name);
  }
  std::shared_ptr<Communicator> do_subset(int number, int size,
                                          const std::string& name) override {
    return number < 0 ? nullptr : make_planned_communicator(number, size, name);
  }
  std::vector<std::shared_ptr<Communicator>> do_cartesian(
      const std::vector<int>& extents, const std::vector<SubGrid>& grids) override {
    std::vector<std::shared_ptr<Communicator>> groups;
    for (const SubGrid& grid : grids) {
      int number = 0, size = 1, rest = rank();
      for (std::size_t d = extents.size(); d-- > 0; rest /= extents[d]) {
        if (!grid.keep[d]) continue;
        number += rest % extents[d] * size;
        size *= extents[d];
      }
      groups.push_back(make_planned_communicator(number, size, grid.name));
    }
    return groups;
  }
  void host_all_gather(const void* in, void* out, std::size_t bytes, const char*,
                       Site) override {
    require_alone(*this);
    std::memcpy(out, in, bytes);
  }
  void host_gather(const void* in, void* out, std::size_t bytes,
                   const char* call) override {
    host_all_gather(in, out, bytes, call, "");
  }
  void host_broadcast(void*, std::size_t, int) override { require_alone(*this); }
};

}  // namespace

std::shared_ptr<Communicator> make_planned_communicator(int rank, int size,
                                                        const std::string& name) {
  TRIREME_REQUIRE(size >= 1 && rank >= 0 && rank < size, "group '{}': rank {} of {}",
                  name, rank, format_plural(size, "rank"));
  return std::make_shared<PlannedCommunicator>(rank, size, name);
}

std::shared_ptr<Communicator> make_self_communicator(const std::string& name) {
  return make_planned_communicator(0, 1, name);
}

}  // namespace trireme::comm
