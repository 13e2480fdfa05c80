// base/graph_host.cpp — a Graph of a host runs its function again, and sees by a pass on
// shapes whether a device, which would not, could do the same.
#include <utility>

#include "base/error.hpp"
#include "base/graph.hpp"
#include "base/plural.hpp"
#include "base/tally.hpp"

namespace trireme {

namespace {

Tally count(const Graph::Launches& launches) {
  Tally tally;
  launches(Exec::shape_only(tally));
  return tally;
}

// What the second has more or less of than the first, if anything.
std::string difference(const Tally& recorded, const Tally& now) {
  const Tally more = now - recorded;
  if (!more.kernels().empty()) {
    const KernelTally& kernel = more.kernels().front();
    return fmt::format("{} has {} and {:+} B", kernel.label,
                       format_plural(kernel.calls, "call more", "calls more"),
                       kernel.cost.bytes);
  }
  if (!more.products().empty()) return "a product of matrices is another one";
  if (!more.messages().empty()) {
    return fmt::format("a message of {} is another one", more.messages().front().site);
  }
  return {};
}

}  // namespace

struct Graph::Recorded {
  Launches launches;
  Tally tally;
};

Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::record(const Exec&, Launches launches) {
  recorded_.reset();
  Tally tally = count(launches);
  recorded_ = std::make_unique<Recorded>(Recorded{std::move(launches), std::move(tally)});
}

bool Graph::is_recorded() const {
  return recorded_ != nullptr;
}

void Graph::replay(const Exec& exec) const {
  TRIREME_REQUIRE(is_recorded(), "a replay of what was not recorded");
  if (exec.is_shape_only()) return recorded_->launches(exec);
  const std::string other = difference(recorded_->tally, count(recorded_->launches));
  TRIREME_REQUIRE(other.empty(),
                  "a graph would replay what was recorded, but now its function launches "
                  "something else: {}. What changes from replay to replay must lie in "
                  "the device's memory",
                  other);
  recorded_->launches(exec);
}

}  // namespace trireme
