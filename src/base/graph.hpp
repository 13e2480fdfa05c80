// base/graph.hpp — Graph: what a function launches, recorded once and launched again as
// one: on a device a CUDA graph, of which the host makes one call for any number of
// kernels.
//
//   step(exec);                             // for once as ever
//   graph.record(exec, [=](const Exec& on) { step(on); });
//   for (...) graph.replay(exec);
// A replay runs the same kernels with the same arguments: what changes from one to the
// next must lie in the device's memory. Before it is recorded the function has run as
// ever, so that whatever is made at first use exists: libraries' handles and workspaces,
// scratch memory. In the function the host neither waits nor allocates nor copies from
// its own memory.
//
// On a host a replay runs the function again. It is held to the same rule as far as can
// be seen from outside: every replay launches the same kernels, products and messages, in
// number and size, or is an Error.
#ifndef TRIREME_BASE_GRAPH_HPP_
#define TRIREME_BASE_GRAPH_HPP_

#include <functional>
#include <memory>

#include "base/exec.hpp"

namespace trireme {

class Graph {
 public:
  using Launches = std::function<void(const Exec&)>;

  Graph();
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  // Nothing runs. What was recorded before is forgotten; on a device none of its replays
  // may be under way. A function that throws leaves nothing recorded.
  void record(const Exec& exec, Launches launches);
  bool is_recorded() const;
  // In the Exec's queue, after what was launched there.
  void replay(const Exec& exec) const;

 private:
  struct Recorded;
  std::unique_ptr<Recorded> recorded_;
};

}  // namespace trireme

#endif  // TRIREME_BASE_GRAPH_HPP_
