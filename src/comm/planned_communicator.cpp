// comm/planned_communicator.cpp — see planned_communicator.hpp.
#include "comm/planned_communicator.hpp"

#include <utility>

#include "base/plural.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::comm {
namespace {

[[noreturn]] void refuse(const Communicator& group) {
  throw Error(fmt::format("group '{}' of {} is only planned: it sends no messages",
                          group.name(), format_plural(group.size(), "rank")));
}

class PlannedTransport final : public Transport {
 public:
  explicit PlannedTransport(const Communicator& group) : group_(group) {}
  int start(const Exec&, const Transfer&) override { refuse(group_); }
  void wait(const Exec&, int) override { refuse(group_); }
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
  void do_barrier() override { refuse(*this); }
  std::shared_ptr<Communicator> do_split(int, int, const std::string&) override {
    refuse(*this);
  }
  std::shared_ptr<Communicator> do_subset(int number, int size,
                                          const std::string& name) override {
    return number < 0 ? nullptr : group_of(number, size, name);
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
      groups.push_back(group_of(number, size, grid.name));
    }
    return groups;
  }
  // A group of one is the self communicator here, too, as everywhere.
  static std::shared_ptr<Communicator> group_of(int number, int size,
                                                const std::string& name) {
    return size == 1 ? make_self_communicator(name)
                     : make_planned_communicator(number, size, name);
  }
  void host_all_gather(const void*, void*, std::size_t, const char*, Site) override {
    refuse(*this);
  }
  void host_gather(const void*, void*, std::size_t, const char*) override {
    refuse(*this);
  }
  void host_broadcast(void*, std::size_t, int) override { refuse(*this); }
};

}  // namespace

std::shared_ptr<Communicator> make_planned_communicator(int rank, int size,
                                                        const std::string& name) {
  TRIREME_REQUIRE(size >= 1 && rank >= 0 && rank < size, "group '{}': rank {} of {}",
                  name, rank, format_plural(size, "rank"));
  return std::make_shared<PlannedCommunicator>(rank, size, name);
}

}  // namespace trireme::comm
