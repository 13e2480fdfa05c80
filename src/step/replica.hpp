// step/replica.hpp — this rank's part of one model and all that is done with it: the door
// behind which the type that it computes in ends. Runs, plans, checkpoints and programs
// know this interface alone; what crosses it are numbers as double, fields of batches and
// bytes of tensors with their type.
//
// A replica is made without memory, to be planned. Then it is given a use, which takes
// all memory there will be, and weights: drawn, or from a checkpoint.
#ifndef TRIREME_STEP_REPLICA_HPP_
#define TRIREME_STEP_REPLICA_HPP_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event.hpp"
#include "base/timers.hpp"
#include "ckpt/params.hpp"
#include "ckpt/reader.hpp"
#include "comm/process_groups.hpp"
#include "config/deck.hpp"
#include "kernels/adamw.hpp"
#include "model/blueprint.hpp"
#include "optim/loss_scale.hpp"
#include "optim/optimizer.hpp"
#include "schedule/balance.hpp"
#include "step/decoder.hpp"
#include "step/output_pass.hpp"
#include "step/step_plan.hpp"
#include "step/train_step.hpp"

namespace trireme::step {

// How weights are updated.
struct UpdateRule {
  kernels::AdamWDesc adamw = {};
  double clip_norm = 0.0;
};

// One step of training.
struct StepInput {
  // The same as the fields of optim::StepStart.
  std::int64_t number = 1;
  double learning_rate = 0.0;
  double learning_rate_before = 0.0;
  optim::LossScale loss_scale = 1.0;
  int microbatches = 1;  // of this rank
  FetchBatch fetch = {};
  SumField sum = {};
  // What the update waits for, on the device, before it writes weights and moments: a
  // copy of them that is under way. Null: nothing.
  const Event* state_copied = nullptr;
  // One of this rank's gradients is made infinite before gradients are summed, as if it
  // had overflowed: for tests, and for --fault.
  bool overflows = false;
};

struct MemoryUse {
  MemoryPlan planned, measured;
};

class Replica {
 public:
  virtual ~Replica() = default;

  virtual const ModelPart& part() const = 0;
  // The same as plan_step() of step_plan.hpp.
  virtual StepPlan plan_step(const StepShape& shape,
                             const PipelinePlans& plans) const = 0;
  virtual DecoderMemory plan_decoder(index_t places = 1) const = 0;
  // Bytes of device memory of make_output_pass().
  virtual std::size_t plan_output_pass(index_t samples) const = 0;
  // The same as time_block() of block_probe.hpp.
  virtual schedule::PieceCost time_block(std::size_t block,
                                         const config::Deck& deck) const = 0;

  // Begins one of three uses. Evaluation and generation need weights only; outputs are
  // given as texts are generated.
  virtual void begin_training(const Exec& exec, const StepShape& shape,
                              const UpdateRule& rule) = 0;
  virtual void begin_evaluation(const Exec& exec, const StepShape& shape) = 0;
  virtual void begin_generation(const Exec& exec) = 0;

  virtual void initialize(std::uint64_t seed) = 0;
  virtual void load(const ckpt::CheckpointReader& reader, ckpt::Content content,
                    ckpt::Conversion conversion = ckpt::Conversion::exact) = 0;
  // What this rank saves of its state. Waits until weights are whole everywhere; without
  // memory, what it would save.
  virtual std::vector<ckpt::TensorPart> parts() = 0;

  // Launches a step. Weights are updated if its report is finite, and left as they are if
  // not; then by no step behind it either, where the loss scale lets none be left out,
  // before that report is read. So many reports may wait to be read meanwhile.
  virtual void start(const StepInput& input) = 0;
  static constexpr int kReports = 2;
  // The report of the earliest step that is not read yet: waits until that step has come
  // to it.
  virtual optim::StepReport read_report() = 0;
  // How many reports that are not read yet need not be waited for.
  virtual std::size_t ready_reports() const = 0;
  // Whether steps may go on when they are launched: then reports are best read one late.
  virtual bool is_asynchronous() const = 0;
  // Both at once, for those in no haste.
  optim::StepReport step(const StepInput& input) {
    start(input);
    return read_report();
  }
  // The same as the functions of TrainStep.
  virtual LossSums evaluate(const FetchBatch& fetch, int microbatches) = 0;
  virtual std::string locate_non_finite(const FetchBatch& fetch) = 0;
  virtual MemoryUse memory_use() const = 0;
  // What this rank computes in a step of the full batch, counted on shapes.
  virtual double flops() const = 0;
  virtual std::optional<PipelineReport> pipeline_report(double kernels) = 0;
  virtual double pass_seconds() = 0;

  // What its steps take, and whatever else a caller times.
  Timers& timers() { return timers_; }

  // A use must have begun, and the model must be in one piece.
  virtual std::unique_ptr<Decoder> make_decoder(index_t places = 1) = 0;
  // The same of a model that gives an output, for so many samples at a time at most.
  virtual std::unique_ptr<OutputPass> make_output_pass(index_t samples) = 0;

 private:
  Timers timers_;
};

// The one dispatch on the type that a model computes in. Error for one that none can.
std::unique_ptr<Replica> make_replica(DType type, const comm::ProcessGroups& groups,
                                      const model::Blueprint& blueprint,
                                      const Sharing& sharing = {});
// Makes the deck's model, in the deck's type. InputError where it has no such use.
std::unique_ptr<Replica> make_replica(const config::Deck& deck,
                                      const comm::ProcessGroups& groups,
                                      const Sharing& sharing = {},
                                      model::Use use = model::Use::training);

}  // namespace trireme::step

#endif  // TRIREME_STEP_REPLICA_HPP_
