// plan/message_plan.cpp — see message_plan.hpp.
#include "plan/message_plan.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "comm/group.hpp"
#include "comm/process_groups.hpp"
#include "model/block.hpp"
#include "optim/optimizer.hpp"
#include "parallel/data_parallel.hpp"
#include "parallel/stage_messages.hpp"
#include "schedule/plan.hpp"
#include "step/param_schedule.hpp"
#include "step/shape_pass.hpp"
#include "tensor/param_use.hpp"

namespace trireme::plan {

namespace {

// What TrainStep does with the actions of a step, on shapes.
template <class T>
class CountedStep {
 public:
  CountedStep(step::ModelState<T>& shapes, const step::StepShape& shape,
              const schedule::StagePlan& plan)
      : shapes_(shapes),
        microbatches_(shape.microbatches),
        plan_(plan),
        data_parallel_(exec_, shapes.groups, shapes.params, shapes.sequence_parallel()),
        pass_(shapes, shape, &data_parallel_),
        borders_(pass_.border_elements()),
        messages_(exec_, shapes.groups, largest(borders_), plan.buffers,
                  shapes.sequence_parallel()),
        params_(shapes, data_parallel_) {}

  void run() {
    data_parallel_.begin_step();
    params_.begin(plan_.actions, microbatches_);
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
    params_.begin_pass(action);
    pass_.forward(action.chunk);
  }
  void backward(const schedule::Action& action) {
    backward(action, model::WeightPass::now);
  }
  void backward_input(const schedule::Action& action) {
    backward(action, model::WeightPass::later);
  }
  void backward_weight(const schedule::Action& action) {
    params_.begin_pass(action);
    pass_.backward_weight(action.chunk);
  }
  void begin_message(const schedule::Action& action) {
    step::begin_message(messages_, shapes_.sharing.pipeline.shape(microbatches_),
                        shapes_.groups.pipeline->rank(), borders_, action);
  }

 private:
  void backward(const schedule::Action& action, model::WeightPass weight_pass) {
    if (action.in != schedule::Action::kNone) messages_.received(action.in);
    params_.begin_pass(action);
    pass_.backward(action.chunk, weight_pass);
  }

  Exec exec_ = Exec::shape_only();
  step::ModelState<T>& shapes_;
  int microbatches_;
  const schedule::StagePlan& plan_;
  parallel::DataParallel<T> data_parallel_;
  step::ShapePass<T> pass_;
  std::vector<step::BorderElements> borders_;
  parallel::StageMessages<T> messages_;
  step::ParamSchedule<T> params_;
};

// What a pass says of the parameters that it uses.
class RecordedUse final : public ParamUse {
 public:
  void begin(std::size_t unit, Pass pass) override {
    uses_.push_back({unit, pass, true});
  }
  void end(std::size_t unit, Pass pass) override { uses_.push_back({unit, pass, false}); }
  void tell(ParamUse& other) const {
    for (const Use& use : uses_) {
      use.is_begin ? other.begin(use.unit, use.pass) : other.end(use.unit, use.pass);
    }
  }

 private:
  struct Use {
    std::size_t unit = 0;
    Pass pass = Pass::forward;
    bool is_begin = true;
  };
  std::vector<Use> uses_;
};

// A step of which nothing is done but to say which parameters come into use.
template <class T>
class UsesOfStep {
 public:
  UsesOfStep(step::ModelState<T>& shapes, const step::StepShape& shape)
      : microbatches_(shape.microbatches),
        data_parallel_(exec_, shapes.groups, shapes.params, shapes.sequence_parallel()),
        params_(shapes, data_parallel_) {
    for (int c = 0; c < std::ssize(shapes.chunks); ++c) {
      Passes& passes = passes_.emplace_back();
      step::ShapePass<T>(shapes, shape, &passes.forward).forward(c);
      step::ShapePass<T>(shapes, shape, &passes.backward).backward(c);
      const auto later = model::WeightPass::later;
      step::ShapePass<T>(shapes, shape, &passes.backward_input).backward(c, later);
      step::ShapePass<T>(shapes, shape, &passes.backward_weight).backward_weight(c);
    }
  }
  void run(const schedule::Order& actions) {
    params_.begin(actions, microbatches_);
    schedule::execute(actions, *this);
  }

  void forward(const schedule::Action& action) { tell(action, &Passes::forward); }
  void backward(const schedule::Action& action) { tell(action, &Passes::backward); }
  void backward_input(const schedule::Action& action) {
    tell(action, &Passes::backward_input);
  }
  void backward_weight(const schedule::Action& action) {
    tell(action, &Passes::backward_weight);
  }
  void begin_message(const schedule::Action&) {}

 private:
  struct Passes {
    RecordedUse forward, backward, backward_input, backward_weight;
  };
  void tell(const schedule::Action& action, RecordedUse Passes::*pass) {
    params_.begin_pass(action);
    (passes_[static_cast<std::size_t>(action.chunk)].*pass).tell(data_parallel_);
  }

  Exec exec_ = Exec::shape_only();
  int microbatches_;
  parallel::DataParallel<T> data_parallel_;
  step::ParamSchedule<T> params_;
  std::vector<Passes> passes_;  // of each chunk
};

// What run(shapes, shape, plan of this stage) sends in a step of so many micro-batches.
template <class T, class Run>
std::vector<MessageCount> count(const step::ModelState<T>& state, step::StepShape shape,
                                const step::PipelinePlans& plans, int microbatches,
                                const Run& run) {
  for (comm::Group* group : state.groups.all()) group->reset_traffic();
  step::ModelState<T> shapes = state.without_memory();
  shapes.params.plan(shapes.registry, shapes.sharding());
  shape.microbatches = microbatches;
  run(shapes, shape, plans.training(state.groups.pipeline->rank(), microbatches));
  return counted_messages(shapes.groups);
}

template <class T>
std::vector<MessageCount> count_step(const step::ModelState<T>& state,
                                     const step::StepShape& shape,
                                     const step::PipelinePlans& plans, int microbatches) {
  return count(state, shape, plans, microbatches,
               [](step::ModelState<T>& shapes, const step::StepShape& of_step,
                  const schedule::StagePlan& plan) {
                 CountedStep<T>(shapes, of_step, plan).run();
               });
}

// Which weights ZeRO 3 finds in its buffers depends on all the passes before.
template <class T>
void count_gathers(const step::ModelState<T>& state, const step::StepShape& shape,
                   const step::PipelinePlans& plans,
                   std::vector<MessageCount>& messages) {
  const auto counted =
      count(state, shape, plans, shape.microbatches,
            [](step::ModelState<T>& shapes, const step::StepShape& of_step,
               const schedule::StagePlan& plan) {
              UsesOfStep<T>(shapes, of_step).run(plan.actions);
            });
  const auto is_gather = [](const MessageCount& message) {
    return message.site == parallel::DataParallel<T>::kGatherInPass;
  };
  const auto exact = std::find_if(counted.begin(), counted.end(), is_gather);
  if (exact == counted.end()) return;
  std::replace_if(messages.begin(), messages.end(), is_gather, *exact);
}

}  // namespace

std::vector<MessageCount> counted_messages(const comm::ProcessGroups& groups) {
  std::vector<MessageCount> messages;
  for (const comm::Group* group : groups.all()) {
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
// one more sends. But not which weights a pipeline with ZeRO 3 has already.
template <class T>
std::vector<MessageCount> plan_messages(const step::ModelState<T>& state,
                                        const step::StepShape& shape,
                                        const step::PipelinePlans& plans) {
  constexpr int kEnough = 4;
  const int count = shape.microbatches;
  std::vector<MessageCount> messages =
      count_step(state, shape, plans, std::min(count, kEnough));
  if (count <= kEnough) return messages;
  const std::vector<MessageCount> fewer = count_step(state, shape, plans, kEnough - 1);
  TRIREME_REQUIRE(fewer.size() == messages.size(),
                  "steps of three and of four micro-batches send from different places");
  const std::int64_t more = count - kEnough;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    messages[i].calls += more * (messages[i].calls - fewer[i].calls);
    messages[i].elements += more * (messages[i].elements - fewer[i].elements);
    messages[i].bytes += more * (messages[i].bytes - fewer[i].bytes);
  }
  if (state.sharding().stage == 3 && state.groups.pipeline->size() > 1) {
    count_gathers(state, shape, plans, messages);
  }
  return messages;
}

template <class T>
std::vector<MessageCount> plan_messages(const step::ModelState<T>& state,
                                        const step::StepShape& shape) {
  return plan_messages(state, shape, {state.sharing.pipeline, state.blueprint, shape});
}

#define TRIREME_INSTANTIATE(T)                                                         \
  template std::vector<MessageCount> plan_messages<T>(                                 \
      const step::ModelState<T>&, const step::StepShape&, const step::PipelinePlans&); \
  template std::vector<MessageCount> plan_messages<T>(const step::ModelState<T>&,      \
                                                      const step::StepShape&);
TRIREME_FOR_EACH_MODEL_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::plan
