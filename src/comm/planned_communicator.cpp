// comm/planned_communicator.cpp — see planned_communicator.hpp.
#include "comm/planned_communicator.hpp"

#include <utility>

#include "base/plural.hpp"

namespace trireme::comm {
namespace {

class PlannedCommunicator final : public Communicator {
 public:
  PlannedCommunicator(int rank, int size, std::string name)
      : Communicator(rank, size, std::move(name)) {}

  void set_timeout(double) override {}
  const void* native_handle() const override { return nullptr; }

 private:
  [[noreturn]] void refuse() const {
    throw Error(fmt::format("group '{}' of {} is only planned: it sends no messages",
                            name(), format_plural(size(), "rank")));
  }
  int do_start(const Exec&, const Transfer&) override { refuse(); }
  void do_wait(int) override { refuse(); }
  bool counts_shapes() const override { return true; }
  void do_barrier() override { refuse(); }
  std::shared_ptr<Communicator> do_split(int, int, const std::string&) override {
    refuse();
  }
  std::vector<std::shared_ptr<Communicator>> do_cartesian(
      const std::vector<int>&, const std::vector<SubGrid>&) override {
    refuse();
  }
  void host_all_gather(const void*, void*, std::size_t, const char*, Site) override {
    refuse();
  }
  void host_gather(const void*, void*, std::size_t, const char*) override { refuse(); }
  void host_broadcast(void*, std::size_t, int) override { refuse(); }
};

}  // namespace

std::shared_ptr<Communicator> make_planned_communicator(int rank, int size,
                                                        const std::string& name) {
  TRIREME_REQUIRE(size >= 1 && rank >= 0 && rank < size, "group '{}': rank {} of {}",
                  name, rank, format_plural(size, "rank"));
  return std::make_shared<PlannedCommunicator>(rank, size, name);
}

}  // namespace trireme::comm
