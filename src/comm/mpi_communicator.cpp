// comm/mpi_communicator.cpp — host values, groups and ways of waiting over MPI:
// collectives as non-blocking calls that are polled by our own waiting policy.
//
// This is the control side: what it sends is small and lies on the host. Its groups share
// the MPI communicator with their transport (mpi_group.hpp), which make_transport() makes
// of the kind that the world was started with.
#include "comm/mpi_communicator.hpp"

#include <mpi.h>
#include <sys/prctl.h>
#include <array>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/host_cores.hpp"
#include "comm/environment.hpp"
#include "comm/mpi_group.hpp"
#include "comm/nccl_environment.hpp"
#include "comm/nccl_transport.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::comm {
namespace {

// Linux lets a timer of a thread end 50 microseconds late, to gather wake-ups of idle
// machines: naps would last 70 in place of 20.
void end_naps_on_time() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
}

// If only some ranks compared calls, that would itself be a different call. One rank that
// wants it is therefore enough for all. Collective over MPI_COMM_WORLD.
void agree(MpiWorld& world) {
  const MpiOptions& given = world.options;
  const bool checks = given.check_calls
                          ? *given.check_calls
                          : choose_call_checks(std::getenv("TRIREME_CHECK_MESSAGES"));
  int wanted = checks ? 1 : 0;
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, &wanted, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD),
            "MPI_Allreduce");
  world.checks_calls = wanted != 0;
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(std::shared_ptr<MpiGroup> group)
      : Communicator(group->rank, group->size, group->name, group->world->recorders),
        group_(std::move(group)) {}

  std::unique_ptr<Transport> make_transport() override {
    std::unique_ptr<Transport> transport = world().transport == TransportKind::nccl
                                               ? make_nccl()
                                               : make_mpi_transport(group_, *this);
    const auto& wrap = world().options.wrap_transport;
    return wrap ? wrap(std::move(transport), *this) : std::move(transport);
  }
  void set_timeout(double seconds) override {
    world().timeout = seconds;
    if (world().watch != nullptr) world().watch->set_timeout(seconds);
  }
  const void* native_handle() const override { return &group_->comm; }
  bool checks_calls() const override { return world().checks_calls; }
  void progress() override { world().progress(); }
  bool is_under_way() const override {
    const auto& watch = world().watch;
    return !world().under_way.empty() || has_given_up() ||
           (watch != nullptr && watch->is_under_way());
  }
  bool has_given_up() const override {
    return world().gave_up || (world().watch != nullptr && world().watch->has_failed());
  }

 private:
  // One MPI call to its end. `start` begins it, and returns MPI's code.
  template <class Start>
  void run(const char* call, Site site, const Start& start) {
    MPI_Request request;
    group_->started(start(&request), call, site);
    group_->wait(request, call, calls(), site);
  }
  MpiMessage message_of(std::size_t bytes) const {
    return {DType::uint8, static_cast<index_t>(bytes), group_->max_count()};
  }

  void do_barrier() override {
    run("barrier", "",
        [&](MPI_Request* request) { return MPI_Ibarrier(comm(), request); });
  }

  void host_all_gather(const void* in, void* out, std::size_t bytes, const char* call,
                       Site site) override {
    const MpiMessage block = message_of(bytes);
    run(call, site, [&](MPI_Request* request) {
      return MPI_Iallgather(in, block.count(), block.type(), out, block.count(),
                            block.type(), comm(), request);
    });
  }

  void host_gather(const void* in, void* out, std::size_t bytes,
                   const char* call) override {
    const MpiMessage block = message_of(bytes);
    run(call, "", [&](MPI_Request* request) {
      return MPI_Igather(in, block.count(), block.type(), out, block.count(),
                         block.type(), 0, comm(), request);
    });
  }

  void host_broadcast(void* data, std::size_t bytes, int root) override {
    const MpiMessage message = message_of(bytes);
    run("broadcast of a host value", "", [&](MPI_Request* request) {
      return MPI_Ibcast(data, message.count(), message.type(), root, comm(), request);
    });
  }

  std::shared_ptr<Communicator> do_split(int colour, int key,
                                         const std::string& name) override {
    come_here();
    MPI_Comm part = MPI_COMM_NULL;
    group_->started(
        MPI_Comm_split(comm(), colour < 0 ? MPI_UNDEFINED : colour, key, &part), "split");
    return part == MPI_COMM_NULL ? nullptr : adopt(part, name);
  }

  std::shared_ptr<Communicator> do_subset(int number, int,
                                          const std::string& name) override {
    return do_split(number < 0 ? -1 : 0, number, name);
  }

  std::vector<std::shared_ptr<Communicator>> do_cartesian(
      const std::vector<int>& extents, const std::vector<SubGrid>& grids) override {
    come_here();
    // Groups of one axis need not agree with those of another one by themselves, and the
    // ranks of all have to.
    if (world().transport == TransportKind::nccl) begin_nccl();
    const std::vector<int> open_ends(extents.size(), 0);
    MPI_Comm cart = MPI_COMM_NULL;
    group_->started(
        MPI_Cart_create(comm(), static_cast<int>(extents.size()), extents.data(),
                        open_ends.data(), /*reorder=*/0, &cart),
        "cartesian");
    std::vector<std::shared_ptr<Communicator>> groups;
    for (const SubGrid& grid : grids) {
      std::vector<int> keep(grid.keep.begin(), grid.keep.end());
      int ranks = 1;
      for (std::size_t d = 0; d < extents.size(); ++d) ranks *= keep[d] ? extents[d] : 1;
      if (ranks == 1) {
        groups.push_back(make_self_communicator(grid.name));
        continue;
      }
      MPI_Comm part = MPI_COMM_NULL;
      group_->started(MPI_Cart_sub(cart, keep.data(), &part), "cartesian");
      groups.push_back(adopt(part, grid.name));
    }
    MPI_Comm_free(&cart);
    return groups;
  }

  static int world_rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }

  // What comes once, before the first of NCCL's communicators: the ranks of this group
  // agree on its settings, and the watch begins.
  void begin_nccl() {
    std::unique_ptr<DeviceWatch>& watch = world().watch;
    if (watch != nullptr) return;
    const auto& asks = world().options.is_deterministic;
    settle_nccl(*this, asks ? asks() : true);
    const auto& end = world().options.end_job;
    watch = std::make_unique<DeviceWatch>(DeviceWatch::Options{
        .rank = world_rank(),
        .end = end ? end : [] { Environment::abort_beside_main(1); }});
    watch->set_timeout(world().timeout);
  }

  std::unique_ptr<Transport> make_nccl() {
    begin_nccl();
    // Kernels wait for the messages of layers; those of gradients run beside kernels.
    const bool has_high_priority = name() == "tensor" || name() == "context";
    return make_nccl_transport(
        *this, {.has_high_priority = has_high_priority,
                .timeout = [group = group_] { return group->world->timeout; },
                .watch = world().watch.get(),
                .world_rank = world_rank(),
                .board = [group = group_] { return group->world->recorders->board; }});
  }

  // MPI's own calls that make groups would wait for ever for a rank that died.
  void come_here() {
    if (size() > 1) do_barrier();
  }

  std::shared_ptr<Communicator> adopt(MPI_Comm part, const std::string& name) {
    auto group = std::make_shared<MpiGroup>(part, name, group_->world);
    if (group->size == 1) return make_self_communicator(name);
    return std::make_shared<MpiCommunicator>(std::move(group));
  }

  MpiWorld& world() const { return *group_->world; }
  MPI_Comm comm() const { return group_->comm; }

  std::shared_ptr<MpiGroup> group_;
};

}  // namespace

std::string_view name_of(WaitPolicy policy) {
  constexpr std::array<std::string_view, 3> kNames = {"spin", "yield", "adaptive"};
  return kNames.at(static_cast<std::size_t>(policy));
}

WaitPolicy choose_wait_policy(const NodeInfo& node, const char* override_value) {
  const std::string_view given = override_value != nullptr ? override_value : "";
  for (const WaitPolicy policy :
       {WaitPolicy::spin, WaitPolicy::yield, WaitPolicy::adaptive}) {
    if (given == name_of(policy)) return policy;
  }
  TRIREME_REQUIRE_INPUT(
      given.empty(),
      "TRIREME_WAIT is '{}'; it may be spin (poll without a pause), yield (nap between "
      "polls) or adaptive (nap while others use the core)",
      given);
  return node.ranks * node.threads > node.cores ? WaitPolicy::yield
                                                : WaitPolicy::adaptive;
}

NodeInfo find_node_info() {
  MPI_Comm node = MPI_COMM_NULL;
  mpi_check(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
      "MPI_Comm_split_type");
  NodeInfo info;
  MPI_Comm_size(node, &info.ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &info.first);
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, &info.first, 1, MPI_INT, MPI_MIN, node),
            "MPI_Allreduce");
  // A rank that is alone on its node waits for nobody. Where nobody says how many threads
  // there are, the ranks share the cores.
  for (const char* name : {"OMP_NUM_THREADS", "KOKKOS_NUM_THREADS"}) {
    const char* said = info.ranks > 1 ? std::getenv(name) : nullptr;
    if (said != nullptr) info.threads = std::clamp(std::atoi(said), 1, 1 << 16);
  }
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, &info.threads, 1, MPI_INT, MPI_MAX, node),
            "MPI_Allreduce");
  // The cores any of them may run on: pinned ranks have a few each, others share all.
  const std::vector<int> allowed = allowed_cores();
  const unsigned char unknown = allowed.empty() ? 1 : 0;  // taken for enough
  std::vector<unsigned char> may_run(kMostHostCores, unknown);
  for (const int core : allowed) may_run[static_cast<std::size_t>(core)] = 1;
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, may_run.data(), kMostHostCores, MPI_UNSIGNED_CHAR,
                          MPI_BOR, node),
            "MPI_Allreduce");
  MPI_Comm_free(&node);
  info.cores = static_cast<int>(std::count(may_run.begin(), may_run.end(), 1));
  return info;
}

bool choose_call_checks(const char* override_value) {
  const std::string_view given = override_value != nullptr ? override_value : "";
  TRIREME_REQUIRE_INPUT(given.empty() || given == "0" || given == "1",
                        "TRIREME_CHECK_MESSAGES is '{}'; it may be 1 (ranks compare "
                        "what they call, before each call) or 0",
                        given);
#ifdef NDEBUG
  return given == "1";
#else
  return given != "0";
#endif
}

std::shared_ptr<Communicator> make_mpi_world(const MpiOptions& options) {
  TRIREME_REQUIRE(options.max_count >= 1 && options.max_count <= 0x7fffffff,
                  "MpiOptions::max_count is {}; MPI counts are positive 32-bit integers",
                  options.max_count);
  auto shared = std::make_shared<MpiWorld>(options);
  shared->wait = options.wait
                     ? *options.wait
                     : choose_wait_policy(find_node_info(), std::getenv("TRIREME_WAIT"));
  shared->transport = options.transport
                          ? *options.transport
                          : choose_transport(std::getenv("TRIREME_TRANSPORT"));
  end_naps_on_time();
  // A failed MPI_Test asks the error handler of the world, not of the group it was for.
  mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
            "MPI_Comm_set_errhandler");
  mpi_check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN),
            "MPI_Comm_set_errhandler");
  agree(*shared);
  MPI_Comm world = MPI_COMM_NULL;
  mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  return std::make_shared<MpiCommunicator>(
      std::make_shared<MpiGroup>(world, "world", std::move(shared)));
}

}  // namespace trireme::comm
