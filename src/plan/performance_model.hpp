// plan/performance_model.hpp — how long a step of a deck's layout takes on a machine, and
// what of it each part is.
//
// The passes of a stage take what its kernels and its tensor messages take
// (kernel_model.hpp); the pipeline what its schedule makes of them, with the messages
// between stages (schedule/simulate.hpp); then come the gradients' messages and the
// optimizer, and what the machine file says that nothing explains. Nothing is measured
// here and nothing is random: the same deck and machine give the same times.
#ifndef TRIREME_PLAN_PERFORMANCE_MODEL_HPP_
#define TRIREME_PLAN_PERFORMANCE_MODEL_HPP_

#include <map>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"
#include "plan/kernel_model.hpp"
#include "plan/layout_memory.hpp"
#include "plan/machine.hpp"
#include "plan/workload.hpp"
#include "schedule/balance.hpp"

namespace trireme::plan {

// Seconds of a step; they add up to it. Those of passes are of the stage that has most to
// do, and the bubble is what the pipeline takes beside that stage's work.
struct StepParts {
  double compute = 0.0;          // kernels, but:
  double recompute = 0.0;        // forward passes that are made again
  double tensor_messages = 0.0;  // of the tensor group, not hidden
  double stage_messages = 0.0;   // between stages, waited for
  double bubble = 0.0;
  double data_messages = 0.0;  // gradients, and weights with ZeRO
  double optimizer = 0.0;
  double checkpoint = 0.0;  // a step's share of one that training waits for
  double other = 0.0;       // software.step_seconds and microbatch_seconds

  double total() const;
};

// How the pipeline's time is found.
enum class Schedule {
  estimated,  // by a formula: its bubble and the slowest stage
  by_rule,    // pass by pass, in the order of the schedule's rule
  of_run      // pass by pass, in the order that a run of the deck chooses
};

struct Prediction {
  StepParts parts;
  // FLOPs of a step by the formulae of the Megatron papers (all scores of attention),
  // without and with what is made again.
  double model_flops = 0.0, hardware_flops = 0.0;
  int devices = 1;
  // As asked for; but `estimated` where the passes are too many to simulate.
  Schedule schedule = Schedule::estimated;

  double seconds() const { return parts.total(); }
  double model_rate() const { return model_flops / seconds() / devices; }  // of a device
  double hardware_rate() const { return hardware_flops / seconds() / devices; }
};

// What kernels and messages of a step take by themselves, the mean over the stages.
struct StepKernels {
  TallySeconds passes, update;
  // Of these, and of the data ranks' messages, what does not travel beside kernels.
  double tensor_messages = 0.0, data_messages = 0.0;
};

// Predicts steps of decks that differ in their layout: parallel, batch and
// memory.recompute.
class PerformanceModel {
 public:
  // `deck`: of the model, the precision and all else.
  PerformanceModel(Machine machine, const config::Deck& deck);

  Prediction predict(const config::Deck& layout, Schedule schedule);

  StepKernels step_kernels(const config::Deck& layout);

  LayoutMemory memory(const config::Deck& layout);

  const Machine& machine() const { return machine_; }
  // Another machine for the same decks: what is known of their work stays.
  void set_machine(Machine machine);

 private:
  // Seconds of a Work on the machine.
  struct WorkSeconds {
    TallySeconds forward, backward, backward_weight, step;
  };
  // Of a class of layers one, and one that is not made again.
  struct LayerSeconds {
    WorkSeconds layer, plain;
    double elements = 0.0;  // of its parameters
  };
  struct ChunkSeconds {
    WorkSeconds own;
    double elements = 0.0;
  };
  struct LayoutSeconds {
    std::vector<LayerSeconds> layers;
    std::map<PieceKind, ChunkSeconds> chunks;
    // Of each micro-batch: a launch or two, and of each message between stages.
    double around = 0.0, stage_message = 0.0;
  };
  // What the times of a layout's kernels and messages depend on.
  struct Key {
    Workloads::Key workload;
    int tensor_stride = 1, stage_stride = 1, stages = 1, devices = 1;
    auto operator<=>(const Key&) const = default;
  };
  // What a stage has to do in a step; seconds of its passes are of one micro-batch.
  struct Stage {
    std::vector<schedule::PieceCost> chunks;
    StepParts parts;                                  // of passes, without the bubble
    TallySeconds work;                                // of passes, as in `parts`
    TallySeconds step;                                // once in a step
    double own_elements = 0.0, layer_elements = 0.0;  // of parameters
    index_t layers = 0;
    double passes() const { return parts.total(); }
  };

  WorkSeconds work_seconds(const Work& work, const Places& places,
                           const AttentionShape& attention) const;
  LayoutSeconds& seconds_of(const config::Deck& layout);
  void find_messages(const config::Deck& layout, LayoutSeconds& seconds);
  const ChunkSeconds& chunk_of(const config::Deck& layout, LayoutSeconds& seconds,
                               const PieceKind& kind);
  double visible(const TallySeconds& seconds) const;
  schedule::PieceCost cost_of(const WorkSeconds& work) const;
  void add_layers(Stage& stage, schedule::PieceCost& cost, const WorkSeconds& layer,
                  index_t count, double recomputed) const;
  void add_chunk(Stage& stage, const config::Deck& layout, LayoutSeconds& seconds,
                 int piece, index_t begin, index_t end);
  std::vector<Stage> stages_of(const config::Deck& layout);
  double estimated_seconds(const config::Deck& layout, const std::vector<Stage>& stages,
                           double stage_message) const;
  double simulated_seconds(const config::Deck& layout, const std::vector<Stage>& stages,
                           double stage_message, const schedule::OrderOf& order_of) const;
  double pipeline_seconds(const config::Deck& layout, const std::vector<Stage>& stages,
                          Schedule schedule);
  double data_seconds(const config::Deck& layout, const Stage& stage) const;
  double hardware_flops(const config::Deck& layout) const;
  double checkpoint_seconds(const config::CheckpointConfig& checkpoint) const;

  Machine machine_, updating_;  // the second with the row_share of what a step has once
  config::Deck deck_;
  double parameters_ = 0.0;
  // FLOPs of a sample: of the model, of attention in its layers' forward pass, and of
  // that pass of a layer of each class.
  double model_flops_ = 0.0, attention_forward_ = 0.0;
  std::vector<double> layer_forward_;
  std::vector<AttentionShape> attention_;  // of each class
  Workloads workloads_;
  MemoryModel memory_model_;
  std::map<Key, LayoutSeconds> known_;
};

// Whether a pipeline has few enough passes to be simulated; in the order that a run
// chooses, by what it looks at for that.
bool is_simulated(const config::Deck& layout, Schedule schedule);
// Where the groups of a layout lie among the ranks.
Places places_of(const config::Deck& layout);
// Layers of each piece: those of the deck, or an even split where it leaves them open.
std::vector<index_t> split_of(const config::Deck& layout);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_PERFORMANCE_MODEL_HPP_
