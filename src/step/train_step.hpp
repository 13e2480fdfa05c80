// step/train_step.hpp — one optimizer step: the schedule's actions on this rank's
// chunks, gradient synchronisation, and the optimizer. The step knows no kind of model:
// fields of the batch, tensors of the borders and parameters come from the blueprint. All
// that it needs is taken when it is made, so that a step allocates nothing.
#ifndef TRIREME_STEP_TRAIN_STEP_HPP_
#define TRIREME_STEP_TRAIN_STEP_HPP_

#include <functional>
#include <string>
#include <vector>

#include "base/pinned.hpp"
#include "base/queue_spans.hpp"
#include "base/timers.hpp"
#include "comm/group.hpp"
#include "kernels/step_state.hpp"
#include "nn/micro_batch.hpp"
#include "optim/optimizer.hpp"
#include "parallel/data_parallel.hpp"
#include "parallel/stage_messages.hpp"
#include "step/batch_staging.hpp"
#include "step/memory_plan.hpp"
#include "step/param_schedule.hpp"
#include "step/pass_records.hpp"
#include "step/pipeline_report.hpp"
#include "step/step_plan.hpp"
#include "tensor/arena.hpp"

namespace trireme::step {

// Gives micro-batch m of the step; what it points to stays valid until the next call.
using FetchBatch = std::function<HostBatch(int microbatch)>;

// Sum of a field of weights over all micro-batches that this rank has in the step.
using SumField = std::function<double(const std::string& field)>;

// Sums of each of the model's objectives, which ranks can add.
using LossSums = std::vector<kernels::LossSum>;

// On a shape-only Exec the step does all that it does otherwise but to compute and to
// send: it allocates nothing, fetches nothing, and adds what it would have done to the
// Exec's Tally; memory() then says what it would take. So it plans its own memory.
template <class T>
class TrainStep {
 public:
  // Plans and allocates the workspace; params must be allocated (planned, where `exec` is
  // shape-only). From now on to the end of its life the step is who state.use tells.
  // `plans`: of the state's pipeline with this shape.
  TrainStep(const Exec& exec, ModelState<T>& state, const StepShape& shape,
            Timers& timers, PipelinePlans plans);
  TrainStep(const Exec& exec, ModelState<T>& state, const StepShape& shape,
            Timers& timers)
      : TrainStep(exec, state, shape, timers,
                  {state.sharing.pipeline, state.blueprint, shape}) {}
  ~TrainStep();
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // How many micro-batches the next steps have; shape().microbatches from the start.
  void set_microbatches(int count);
  // Gradients of the mean loss over the global batch, summed over the micro-batches, of
  // which the first overwrites those of the step before, and over the gradient group
  // (with ZeRO of this rank's part). `sum` is asked for the masks of the objectives that
  // this stage makes, before the first fetch.
  void accumulate_gradients(const FetchBatch& fetch, const SumField& sum);

  // One of this rank's gradients will be infinite in the next step, as if it had
  // overflowed, before it meets those of other ranks.
  void plant_overflow() { data_parallel_.plant_overflow(); }

  // New weights, bucket by bucket; with ZeRO each goes to the other ranks while the next
  // is updated.
  void update(optim::Optimizer<T>& optimizer);
  // After weights were drawn or read. Where ranks share master weights (ZeRO 1 and 2 of a
  // narrow type), each has narrowed its own part of the compute copy alone: the others'
  // are fetched. Collective over the gradient group.
  void share_weights();
  // Waits until whole weights are everywhere (ZeRO 1 and 2): before they are read by
  // others than the passes of the model.
  void settle() { data_parallel_.settle(); }

  // Loss of `microbatches` micro-batches without dropout: the sums of this rank's
  // pipeline, on each of its stages.
  LossSums evaluate(const FetchBatch& fetch, int microbatches);

  // Runs forward on each micro-batch again and returns the first part in which a number
  // is not finite in this rank's pipeline, e.g. "micro-batch 3: layers/5/mlp/fc1"; empty
  // when there is none, or another rank has found one in an earlier micro-batch.
  // Collective over the world.
  std::string locate_non_finite(const FetchBatch& fetch);

  // The state that kernels read; the optimizer sets learning rate and step.
  View0<kernels::StepState> state_view() const {
    return View0<kernels::StepState>(step_state_.data());
  }
  // What the last accumulate_gradients() summed on the device, two numbers for each
  // objective: mask * loss, and mask. Both are zero where the stage does not make it.
  View1<double> totals() const {
    return {totals_.data(), 2 * state_.blueprint.objectives.size()};
  }

  // What passes took, of all steps but the first. Collective over the pipeline. Of a step
  // this rank spends so many seconds in kernels of passes.
  std::optional<PipelineReport> pipeline_report(double kernels) {
    spans_.settle(
        [this](const auto& label, double seconds) { add_time(label, seconds); });
    return report_pipeline(state_.sharing.pipeline, state_.blueprint, shape_,
                           state_.groups.pipeline->control(), times_, kernels);
  }
  // In all passes so far, but those of the first step: by the clock of what computes
  // them, as far as that has come.
  double pass_seconds() {
    spans_.take([this](const auto& label, double seconds) { add_time(label, seconds); });
    return pass_seconds_;
  }
  // What it was planned to take and to do; of a step on shapes the passes alone.
  const StepPlan& plan() const { return plan_; }
  // The memory as it has come to be: what is allocated (would be, on shapes), and the
  // workspace as far as it was in use so far.
  MemoryPlan memory() const;
  const StepShape& shape() const { return shape_; }
  // For tests: logits of the last micro-batch that evaluate() has seen in slot 0, once
  // more, (rows, this rank's words); on the last stage of a pipeline. They stay until the
  // next call.
  View2<T> last_logits();

 private:
  // A micro-batch on the device: the fields that this stage reads, in one allocation.
  struct DeviceBatch {
    nn::MicroBatch view;
    DeviceArray<std::byte> memory;
    std::uint64_t first_sample = 0;
  };
  struct Handler;  // what schedule::execute calls

  bool is_on_shapes() const { return exec_.is_shape_only(); }
  void add_time(const QueueSpans::Label& label, double seconds);
  // For passes that leave nothing in it.
  Arena& spare_held() {
    return workspace_.held(needs_.has_weight_passes ? state_.sharing.pipeline.chunks : 0);
  }
  // Of a pass that is not one of a step's.
  nn::Context plain_context(Arena& saved, Arena& scratch, Arena& held) const;
  // What a step of a number of micro-batches does on this stage.
  struct Work {
    PipelinePlans::StagePlan plan;
    BatchSlots batches;
  };
  Work training_work(int microbatches) const;
  Work evaluation_work(int microbatches) const;
  // Where a micro-batch has its first number that is not finite: the piece of the model,
  // and the part of that.
  struct NonFinite {
    int piece = -1;
    std::string part;
  };
  void run(const Work& work, const FetchBatch& fetch, nn::Mode mode,
           NonFinite* bad = nullptr);
  NonFinite first_of_pipeline(const NonFinite& mine) const;
  Workspace make_workspace();
  // Elements that cross the two borders of a chunk in a micro-batch.
  struct BorderElements {
    index_t in = 0, out = 0;
  };
  std::vector<BorderElements> find_borders() const;
  index_t longest_message() const;
  std::size_t staging_buffers() const;
  void make_batches();
  void start_counts(const SumField& sum);
  void load(DeviceBatch& to, const HostBatch& batch);

  // Messages move on between kernels.
  struct Progress final : IdleWork {
    comm::Communicator& world;
    explicit Progress(comm::Communicator& world_in) : world(world_in) {}
    void run() override { world.progress(); }
  };

  // A field of the batch, and where a DeviceBatch has it.
  struct LoadedField {
    std::size_t index = 0;
    std::size_t begin = 0, bytes = 0;
  };

  Exec exec_;
  ModelState<T>& state_;
  Progress progress_;
  parallel::DataParallel<T> data_parallel_;
  StepShape shape_;
  Timers& timers_;
  PipelinePlans plans_;
  StageNeeds needs_;
  Work work_;
  ParamSchedule<T> params_;
  QueueSpans spans_;  // of passes, and of all passes of a step
  PassTimes times_;
  double pass_seconds_ = 0.0;
  bool is_first_step_ = true;  // memory is touched, libraries find their ways
  PassRecords records_;        // of passes on shapes
  StepPlan plan_;
  Workspace workspace_;
  std::vector<BorderElements> borders_;  // of each chunk
  parallel::StageMessages<T> messages_;
  std::vector<LoadedField> fields_;
  std::size_t batch_bytes_ = 0;
  std::vector<DeviceBatch> batches_;
  BatchStaging staging_;
  // A step on shapes has no memory for these. Else they have one element, and two for
  // each objective.
  DeviceArray<kernels::StepState> step_state_;
  DeviceArray<double> totals_;
  PinnedArray<double> host_totals_;  // of an evaluation
  comm::Request counts_;             // of objectives, on their way
  DeviceArray<T> logits_;            // of last_logits()
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_TRAIN_STEP_HPP_
