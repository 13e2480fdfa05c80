// engine/message_plan.cpp — see message_plan.hpp.
#include "engine/message_plan.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "engine/shape_pass.hpp"
#include "optim/optimizer.hpp"
#include "parallel/data_parallel.hpp"
#include "parallel/stage_messages.hpp"

namespace trireme::engine {

namespace {

// What TrainStep does with the actions of a step, on shapes.
template <class T>
class CountedStep {
 public:
  CountedStep(ModelState<T>& shapes, const StepShape& shape,
              const schedule::StagePlan& plan)
      : shapes_(shapes),
        microbatches_(shape.microbatches),
        plan_(plan),
        data_parallel_(exec_, shapes.groups, shapes.params, shapes.sequence_parallel()),
        pass_(shapes, shape, &data_parallel_),
        messages_(exec_, shapes.groups, pass_.border_elements(), plan.buffers,
                  shapes.sequence_parallel()),
        weight_passes_(shapes.chunks.size()) {}

  void run() {
    data_parallel_.begin_step();
    schedule::execute(plan_.actions, *this);
    messages_.finish();
    data_parallel_.finish_gradients();
    optim::sum_totals(exec_, shapes_.groups, pass_.totals());
    optim::sum_squares(exec_, shapes_.groups, shapes_.sharding().stage,
                       View1<double>(static_cast<double*>(nullptr), 1));
    for (std::size_t b = 0; b < shapes_.params.partition().buckets().size(); ++b) {
      data_parallel_.start_gather(b);
    }
  }

  void forward(const schedule::Action& action) {
    if (action.in != schedule::Action::kNone) messages_.received(action.in);
    pass_.forward(action.chunk);
  }
  void backward(const schedule::Action& action) {
    count_weight_pass(action);
    backward(action, model::WeightPass::now);
  }
  void backward_input(const schedule::Action& action) {
    backward(action, model::WeightPass::later);
  }
  void backward_weight(const schedule::Action& action) {
    count_weight_pass(action);
    pass_.backward_weight(action.chunk);
  }
  void begin_message(const schedule::Action& action) {
    engine::begin_message(messages_, shapes_.sharing.pipeline.shape(microbatches_),
                          shapes_.groups.pipeline->rank(), action);
  }

 private:
  void backward(const schedule::Action& action, model::WeightPass weight_pass) {
    if (action.in != schedule::Action::kNone) messages_.received(action.in);
    pass_.backward(action.chunk, weight_pass);
  }
  void count_weight_pass(const schedule::Action& action) {
    int& passes = weight_passes_[static_cast<std::size_t>(action.chunk)];
    data_parallel_.begin_microbatch(passes == 0, passes == microbatches_ - 1);
    ++passes;
  }

  Exec exec_ = Exec::shape_only();
  ModelState<T>& shapes_;
  int microbatches_;
  const schedule::StagePlan& plan_;
  parallel::DataParallel<T> data_parallel_;
  ShapePass<T> pass_;
  parallel::StageMessages<T> messages_;
  std::vector<int> weight_passes_;
};

template <class T>
std::vector<MessageCount> count_step(const ModelState<T>& state, StepShape shape,
                                     int microbatches) {
  for (comm::Communicator* group : state.groups.of_axes()) group->reset_traffic();
  ModelState<T> shapes = state.without_memory();
  shapes.params.plan(shapes.registry, shapes.sharding());
  shape.microbatches = microbatches;
  const PipelinePlans plans(state.sharing.pipeline, state.config, shape);
  const schedule::StagePlan plan =
      plans.training(state.groups.pipeline->rank(), microbatches);
  CountedStep<T>(shapes, shape, plan).run();
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
TRIREME_FOR_EACH_MODEL_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::engine
