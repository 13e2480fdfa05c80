// engine/message_plan.cpp — see message_plan.hpp.
#include "engine/message_plan.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "engine/shape_pass.hpp"
#include "optim/optimizer.hpp"
#include "parallel/data_parallel.hpp"

namespace trireme::engine {

namespace {

// One step of so many micro-batches, on shapes.
template <class T>
std::vector<MessageCount> count_step(const ModelState<T>& state, const StepShape& shape,
                                     int microbatches) {
  for (comm::Communicator* group : state.groups.of_axes()) group->reset_traffic();
  ModelState<T> shapes = state.without_memory();
  shapes.params.plan(shapes.registry, shapes.sharding());
  const Exec exec = Exec::shape_only();
  parallel::DataParallel<T> data_parallel(exec, shapes.groups, shapes.params,
                                          shapes.chunk.tied_parameter(),
                                          shapes.sequence_parallel());
  ShapePass<T> pass(shapes, shape, &data_parallel);
  data_parallel.begin_step();
  for (int m = 0; m < microbatches; ++m) {
    pass.forward();
    data_parallel.begin_microbatch(m == 0, m == microbatches - 1);
    pass.backward();
  }
  data_parallel.finish_gradients();
  optim::Optimizer<T>::sum_totals(exec, shapes.groups, pass.totals());
  optim::Optimizer<T>::sum_squares(exec, shapes.groups, shapes.sharding().stage,
                                   View1<double>(static_cast<double*>(nullptr), 1));
  for (std::size_t b = 0; b < shapes.params.partition().buckets().size(); ++b) {
    data_parallel.start_gather(b);
  }
  return counted_messages(shapes.groups);
}

}  // namespace

std::vector<MessageCount> counted_messages(const comm::ProcessGroups& groups) {
  std::vector<MessageCount> messages;
  for (const comm::Communicator* group : groups.of_axes()) {
    for (const comm::SiteTraffic& site : group->traffic_by_site()) {
      if (site.traffic.calls == 0) continue;
      messages.push_back({group->name(), site.site, site.operation, site.traffic.calls,
                          site.traffic.elements, site.traffic.bytes});
    }
  }
  std::sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) {
    return std::tie(a.axis, a.site, a.operation) < std::tie(b.axis, b.site, b.operation);
  });
  return messages;
}

// Micro-batches in the middle of a step are all alike: three and four of them tell what
// one more sends.
template <class T>
std::vector<MessageCount> plan_messages(const ModelState<T>& state,
                                        const StepShape& shape) {
  constexpr int kEnough = 4;
  const int count = shape.microbatches;
  std::vector<MessageCount> messages = count_step(state, shape, std::min(count, kEnough));
  if (count <= kEnough) return messages;
  const std::vector<MessageCount> fewer = count_step(state, shape, kEnough - 1);
  TRIREME_REQUIRE(fewer.size() == messages.size(),
                  "steps of three and of four micro-batches send from different places");
  const std::int64_t more = count - kEnough;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    messages[i].calls += more * (messages[i].calls - fewer[i].calls);
    messages[i].elements += more * (messages[i].elements - fewer[i].elements);
    messages[i].bytes += more * (messages[i].bytes - fewer[i].bytes);
  }
  return messages;
}

#define TRIREME_INSTANTIATE(T)                                              \
  template std::vector<MessageCount> plan_messages<T>(const ModelState<T>&, \
                                                      const StepShape&);
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::engine
