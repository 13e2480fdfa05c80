// step/replica.cpp — see replica.hpp.
//
// Whatever a replica does is done elsewhere: here each request goes on to the one object,
// of the type that the model computes in, that does it. Which of these there are follows
// from the use that was begun. A weight that is drawn or read goes to all who share it
// before anything else is asked.
#include "step/replica.hpp"

#include "base/error.hpp"
#include "base/queue.hpp"
#include "comm/process_groups.hpp"
#include "model/blueprint.hpp"
#include "optim/optimizer.hpp"
#include "step/block_probe.hpp"
#include "step/deck_model.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::step {

static_assert(Replica::kReports == optim::Optimizer<float>::kReports);

namespace {

template <class T>
class ReplicaOf final : public Replica {
 public:
  using Use = typename ParamBuffer<T>::Use;

  ReplicaOf(const comm::ProcessGroups& groups, const model::Blueprint& blueprint,
            const Sharing& sharing)
      : state_(groups, blueprint, sharing) {
    state_.params.plan(state_.registry, state_.sharding());
  }

  ~ReplicaOf() override { exec_.set_timers(nullptr); }

  const ModelPart& part() const override { return state_; }
  StepPlan plan_step(const StepShape& shape, const PipelinePlans& plans) const override {
    return step::plan_step(state_, shape, plans);
  }
  DecoderMemory plan_decoder(index_t places) const override {
    return step::plan_decoder(state_, places);
  }
  std::size_t plan_output_pass(index_t samples) const override {
    return step::plan_output_pass(state_, samples);
  }
  schedule::PieceCost time_block(std::size_t block,
                                 const config::Deck& deck) const override {
    return step::time_block<T>(state_, block, deck);
  }

  void begin_training(const Exec& exec, const StepShape& shape,
                      const UpdateRule& rule) override {
    begin(exec, Use::training);
    step_.emplace(exec, state_, shape, timers());
    optimizer_.emplace(exec, state_.params, state_.groups, rule.adamw, rule.clip_norm);
  }
  void begin_evaluation(const Exec& exec, const StepShape& shape) override {
    begin(exec, Use::inference);
    step_.emplace(exec, state_, shape, timers());
  }
  void begin_generation(const Exec& exec) override { begin(exec, Use::inference); }

  void initialize(std::uint64_t seed) override {
    state_.params.initialize(exec_, seed);
    if (step_) step_->share_weights();
  }
  void load(const ckpt::CheckpointReader& reader, ckpt::Content content,
            ckpt::Conversion conversion) override {
    ckpt::load_params(reader, exec_, state_.params, content, conversion);
    if (step_) step_->share_weights();
    exec_.fence("trireme::step::Replica::load");
  }
  std::vector<ckpt::TensorPart> parts() override {
    if (step_) step_->settle();
    return ckpt::parts_of(state_.params, ckpt::Content::training,
                          ckpt::replicas_of(state_.groups));
  }

  void start(const StepInput& input) override {
    step_->set_microbatches(input.microbatches);
    optimizer_->begin_step(exec_, step_->state_view(),
                           {.update = input.number,
                            .learning_rate = input.learning_rate,
                            .learning_rate_before = input.learning_rate_before,
                            .loss_scale = input.loss_scale});
    if (input.overflows) step_->plant_overflow();
    step_->accumulate_gradients(input.fetch, input.sum);
    const Region region(timers(), Section::optimizer);
    optimizer_->prepare(exec_, step_->state_view(), step_->totals());
    if (input.state_copied != nullptr) input.state_copied->hold_up(exec_);
    step_->update(*optimizer_);  // which leaves a step out by itself
  }
  optim::StepReport read_report() override {
    // On a device that is a wait for all of the step, and no work of the optimizer.
    const Region region(timers(), Section::other, {.name = "read report"});
    return optimizer_->read_report();
  }
  std::size_t ready_reports() const override { return optimizer_->ready(); }
  bool is_asynchronous() const override { return trireme::is_asynchronous(exec_); }
  LossSums evaluate(const FetchBatch& fetch, int microbatches) override {
    return step_->evaluate(fetch, microbatches);
  }
  std::string locate_non_finite(const FetchBatch& fetch) override {
    return step_->locate_non_finite(fetch);
  }
  MemoryUse memory_use() const override {
    return {step_->plan().memory, step_->memory()};
  }
  double flops() const override { return step_->plan().tally.total().cost.flops; }
  std::optional<PipelineReport> pipeline_report(double kernels) override {
    return step_->pipeline_report(kernels);
  }
  double pass_seconds() override { return step_->pass_seconds(); }

  std::unique_ptr<Decoder> make_decoder(index_t places) override {
    return step::make_decoder(exec_, state_, places);
  }
  std::unique_ptr<OutputPass> make_output_pass(index_t samples) override {
    return step::make_output_pass(exec_, state_, samples);
  }

 private:
  void begin(const Exec& exec, Use use) {
    TRIREME_REQUIRE(!state_.params.is_allocated(), "a replica has one use");
    exec_ = exec;
    exec_.set_timers(&timers());
    state_.allocate(use);
  }

  Exec exec_ = Exec::shape_only();  // until it begins: many are only planned
  ModelState<T> state_;
  std::optional<TrainStep<T>> step_;              // but for generation
  std::optional<optim::Optimizer<T>> optimizer_;  // of training
};

}  // namespace

std::unique_ptr<Replica> make_replica(DType type, const comm::ProcessGroups& groups,
                                      const model::Blueprint& blueprint,
                                      const Sharing& sharing) {
#define TRIREME_MAKE(T)    \
  if (type == dtype_of<T>) \
    return std::make_unique<ReplicaOf<T>>(groups, blueprint, sharing);
  TRIREME_FOR_EACH_REAL(TRIREME_MAKE)
#undef TRIREME_MAKE
  throw Error(fmt::format("there is no model that computes in {}", name_of(type)));
}

std::unique_ptr<Replica> make_replica(const config::Deck& deck,
                                      const comm::ProcessGroups& groups,
                                      const Sharing& sharing, model::Use use) {
  return make_replica(compute_type(deck), groups, model::make_blueprint(deck.model, use),
                      sharing);
}

}  // namespace trireme::step
