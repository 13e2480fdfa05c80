// tests/layouts/layout_matrix.hpp — one model, many layouts: the table of axes, the
// layouts it gives, and what a training of four or ten steps in one of them leaves,
// against one rank.
//
// Dropout is on, and labels count very unevenly: whole samples do not, so that some
// micro-batches, and the share of some ranks, have nothing that counts.
#ifndef TRIREME_TESTS_LAYOUTS_LAYOUT_MATRIX_HPP_
#define TRIREME_TESTS_LAYOUTS_LAYOUT_MATRIX_HPP_

#include <algorithm>
#include <array>
#include <compare>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "base/tally.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "layouts/encoder_decoder.hpp"
#include "model/losses.hpp"
#include "step/train_step.hpp"
#include "support/filled_batch.hpp"
#include "support/kept_grids.hpp"
#include "support/rows.hpp"

namespace trireme::test {

inline constexpr index_t kSequence = 24, kDecoderSequence = 16;
inline constexpr int kSteps = 10;
// Of the covering arrays of every day: the last is like those before it, and allocates
// nothing.
inline constexpr int kStepsOfPairs = 4;
// That are done again, to the bit: the first has the gradients of the initial weights,
// the second those of weights that were updated.
inline constexpr int kStepsAgain = 2;

// The kinds of model that rows train. One only tests have; BERT's has its norms before
// branches and packed documents, or norms behind sums and padding; T5's a head that is
// tied to the embedding, or one of its own.
enum class Kind { gpt, encoder_decoder, bert, bert_post, t5, t5_own_head };
std::string name_of(Kind kind);  // as part of a test's name

// Of the initial weights. By it no unit of a ReLU is within rounding of the corner in the
// first step, where it would have a gradient in one layout and none in another; a
// reference says where that is not so.
inline constexpr std::uint64_t kSeedOfWeights = 4321;

// What all rows of a table train, but for the axes that a kind has of its own.
struct MatrixSize {
  index_t layers, heads, samples;  // of a step
  Kind kind = Kind::gpt;
  index_t head_size = 0;  // other than hidden / heads
  // BERT's text is packed where its kind has it padded, and the other way round; it has
  // no pairs of segments. T5's feed-forward block has no gate, but a ReLU.
  int other_text = 0, no_pairs = 0, no_gate = 0;

  auto operator<=>(const MatrixSize&) const = default;
  bool is_bert() const { return kind == Kind::bert || kind == Kind::bert_post; }
  bool is_t5() const { return kind == Kind::t5 || kind == Kind::t5_own_head; }
  bool has_corner() const { return no_gate != 0; }  // in its activation
};
// For many ranks in a tensor group; for many pieces of a pipeline; for both, with fewer
// of each.
inline constexpr MatrixSize kWide{.layers = 3, .heads = 24, .samples = 48};
inline constexpr MatrixSize kDeep{.layers = 10, .heads = 8, .samples = 24};
inline constexpr MatrixSize kSmall{.layers = 6, .heads = 8, .samples = 12};
inline constexpr index_t kGlobal = kWide.samples;

inline model::Architecture matrix_model(const MatrixSize& size = kWide) {
  return {.layers = size.layers,
          .hidden = 48,
          .heads = size.heads,
          .kv_heads = size.heads,
          .head_size = size.head_size,
          .ffn_hidden = 96,
          .sequence = kSequence,
          .vocab = 61,  // which no number of ranks divides
          .dropout = 0.1,
          .attention_dropout = 0.1,
          .init_std = 0.1};
}

inline model::Architecture matrix_bert(const MatrixSize& size) {
  model::Architecture model = matrix_model(size);
  const bool is_post = size.kind == Kind::bert_post;
  model.kind = model::ModelKind::bert;
  model.activation = model::Activation::gelu;
  model.norm_placement =
      is_post ? config::NormPlacement::post : config::NormPlacement::pre;
  model.type_vocab_size = 2;
  model.binary_head = size.no_pairs == 0;
  model.max_predictions = 5;
  model.within_documents = is_post == (size.other_text != 0);
  return model;
}

// Heads that are together wider than the model, and a decoder deeper than the encoder.
inline constexpr index_t encoder_layers(const MatrixSize& size) {
  return size.layers / 3;
}
inline model::Architecture matrix_t5(const MatrixSize& size) {
  model::Architecture model = matrix_model(size);
  const bool has_own_head = size.kind == Kind::t5_own_head;
  model.kind = model::ModelKind::t5;
  model.layers = encoder_layers(size);
  model.decoder_layers = size.layers - model.layers;
  model.decoder_sequence = kDecoderSequence;
  model.head_size = 2 * model.hidden / model.heads;
  model.norm = model::Norm::rmsnorm;
  model.norm_epsilon = 1e-6;
  model.activation = size.no_gate != 0 ? model::Activation::relu
                     : has_own_head    ? model::Activation::geglu_tanh
                                       : model::Activation::geglu;
  model.position = model::Position::relative;
  model.bias = false;
  model.tie_embeddings = !has_own_head;
  model.relative_attention_num_buckets = 8;
  model.relative_attention_max_distance = 20;
  return model;
}

inline model::Architecture matrix_architecture(const MatrixSize& size) {
  switch (size.kind) {
    case Kind::bert:
    case Kind::bert_post:
      return matrix_bert(size);
    case Kind::t5:
    case Kind::t5_own_head:
      return matrix_t5(size);
    case Kind::gpt:
    case Kind::encoder_decoder:
      break;
  }
  return matrix_model(size);
}
inline model::Blueprint matrix_blueprint(const MatrixSize& size) {
  const model::Architecture model = matrix_architecture(size);
  return size.kind == Kind::encoder_decoder ? encoder_decoder(model)
                                            : model::make_blueprint(model);
}
template <class T = float>
model::BlockMaker<T> matrix_maker(const MatrixSize& size) {
  if constexpr (std::is_same_v<T, float>) {
    if (size.kind == Kind::encoder_decoder) return &make_encoder_decoder_block<float>;
  }
  return &model::make_block<T>;
}

// How far a layout may be from one rank.
template <class T>
struct Tolerances;
// What docs/parallelism.md promises for losses above 0.01 (those here are above 2).
template <>
struct Tolerances<float> {
  static constexpr double kLoss = 5e-6;                     // of every step, relative
  static constexpr double kFirstNorm = 1e-5, kNorm = 1e-4;  // of gradients, relative
  // Of every gradient of the first step: of max(its norm, 1e-4 x the global norm).
  static constexpr double kGradient = 1e-5;
  static constexpr double kLogits = 5e-5;  // after the last step, of the largest
  // Of both behind the first step where the activation has a corner: rounding takes a
  // unit across it in one layout and not in another. One rank whose weights were moved by
  // ten units of rounding had norms up to 6.1e-4 off, and of 175 layouts of T5
  // one 5.0e-4.
  static constexpr double kNormAtCorners = 2e-3, kLogitsAtCorners = 2e-3;
  static constexpr double kLossScale = 1.0;
};
// Rounding in 16 bits is measured: no derivation from fp32's noise gives that of single
// gradients. Over the layouts of test_narrow_steps.cpp, which prints it, losses differed
// by at most 2.1e-4, norms by 1.5e-3 and gradients by 2.1e-2. docs/precision.md promises
// 4e-3 of the loss over 40 steps.
template <>
struct Tolerances<bf16> {
  static constexpr double kLoss = 1e-3;
  static constexpr double kNorm = 1e-2;
  static constexpr double kGradient = 5e-2, kGradientAtCorners = 2e-1;
  static constexpr double kLossScale = 1.0;
};
// 2.9e-5, 7.8e-5 and 2.0e-3: its rounding is an eighth of bf16's.
template <>
struct Tolerances<fp16> {
  static constexpr double kLoss = 2e-4;
  static constexpr double kNorm = 1e-3;
  static constexpr double kGradient = 5e-3, kGradientAtCorners = 1e-1;
  static constexpr double kLossScale = 1024.0;
};

// A row of the table: one value of each axis.
struct Layout {
  int tensor = 1;
  int sequence = 0;  // 1: sequence parallelism
  int data = 1;
  int zero = 0;
  int microbatches = 1;  // of each rank, in a step
  int small_buckets = 0;
  int data_first = 0;  // order of the axes
  int pipeline = 1;
  int chunks = 1;  // of each stage
  config::PipelineSchedule schedule = config::PipelineSchedule::one_f_one_b;
  // 1: as many layers as may be on the last piece, 2: on the first; 3: an encoder's on
  // the first, and the decoder's on the others.
  int uneven = 0;
  int recompute = 0;  // layers of each chunk; -1: selective
  MatrixSize size = kWide;

  int ranks() const { return tensor * data * pipeline; }
  index_t micro() const { return size.samples / (index_t{data} * microbatches); }
  comm::GridShape grid() const {
    using config::Axis;
    return {.tensor = tensor,
            .data = data,
            .pipeline = pipeline,
            .order = data_first != 0 ? config::AxisOrder{Axis::data, Axis::tensor,
                                                         Axis::context, Axis::pipeline}
                                     : config::kDefaultAxisOrder};
  }
  bool is_on_grid_of(const Layout& that) const {
    return tensor == that.tensor && data == that.data && pipeline == that.pipeline &&
           data_first == that.data_first;
  }
  step::StepShape step_shape() const {
    return {.micro = micro(),
            .sequence = kSequence,
            .microbatches = microbatches,
            .seed = 7,
            .recompute = {.layers = std::max(recompute, 0), .selective = recompute < 0}};
  }
  step::PipelineLayout pipeline_layout() const {
    step::PipelineLayout layout{
        .stages = pipeline, .chunks = chunks, .split = {}, .schedule = schedule};
    if (uneven == 0) {
      layout.split = step::balanced_split(layout, matrix_blueprint(size), step_shape());
      return layout;
    }
    if (uneven == 3) {
      layout.split = split_by_stacks();
      return layout;
    }
    layout.split.assign(static_cast<std::size_t>(pipeline * chunks), 1);
    int& most = uneven == 1 ? layout.split.back() : layout.split.front();
    (uneven == 1 ? layout.split.front() : layout.split.back()) = 0;
    most += static_cast<int>(size.layers) - (pipeline * chunks - 1);
    return layout;
  }
  step::Sharing sharing() const {
    return {.sequence_parallel = sequence != 0,
            .zero = zero,
            .bucket_elements = small_buckets != 0 ? 1 : index_t{1} << 22,
            .pipeline = pipeline_layout()};
  }
  // Where the decoder's layers are not fewer than the pieces behind the first.
  std::vector<int> split_by_stacks() const {
    const auto encoder = static_cast<int>(encoder_layers(size));
    const int decoder = static_cast<int>(size.layers) - encoder;
    const int pieces = pipeline * chunks - 1;
    std::vector<int> split = {encoder};
    for (int i = 0; i < pieces; ++i) {
      split.push_back(decoder * (i + 1) / pieces - decoder * i / pieces);
    }
    return split;
  }
  std::vector<int> values() const {
    std::vector<int> of_all = {
        tensor,        sequence,   data,     zero,   microbatches,
        small_buckets, data_first, pipeline, chunks, static_cast<int>(schedule),
        uneven,        recompute};
    const auto add = [&](std::initializer_list<int> of_kind) {
      of_all.push_back(static_cast<int>(size.kind));
      of_all.insert(of_all.end(), of_kind);
    };
    if (size.is_bert()) add({size.other_text, size.no_pairs});
    if (size.is_t5()) add({size.no_gate});
    return of_all;
  }
  std::string name() const {
    std::string text = fmt::format(
        "tensor {} sequence {} data {} zero {} micro-batches {} x {}{}{}", tensor,
        sequence, data, zero, microbatches, micro(), small_buckets != 0 ? " buckets" : "",
        data_first != 0 ? " data first" : "");
    if (size.kind != Kind::gpt) {
      text = fmt::format("{}{}{}{} {}", name_of(size.kind),
                         size.other_text != 0 ? ", other text" : "",
                         size.no_pairs != 0 ? ", no pairs" : "",
                         size.no_gate != 0 ? ", no gate" : "", text);
    }
    if (pipeline == 1) return text;
    return text + fmt::format(" pipeline {} x {} {} [{}] recompute {}", pipeline, chunks,
                              config::name_of(schedule),
                              fmt::join(pipeline_layout().split, ", "), recompute);
  }
  bool is_valid(int most_ranks) const {
    return ranks() <= most_ranks && size.samples % (index_t{data} * microbatches) == 0 &&
           (tensor > 1 || sequence == 0) && (data > 1 || zero == 0) &&
           (data > 1 || small_buckets == 0) &&
           (zero < 2 || small_buckets == 0) &&  // there every unit is a bucket
           (ranks() > std::max({tensor, data, pipeline}) || data_first == 0) &&
           (pipeline > 1 || (chunks == 1 && uneven == 0 &&
                             schedule == config::PipelineSchedule::one_f_one_b)) &&
           pipeline * chunks <= size.layers + 2 && is_valid_for_kind();
  }

 private:
  // Positions of each stream are shared out in whole numbers, and there are two stacks.
  bool is_valid_for_kind() const {
    if (!size.is_t5()) return uneven < 3 && (sequence == 0 || kSequence % tensor == 0);
    const bool can_share = kSequence % tensor == 0 && kDecoderSequence % tensor == 0;
    return (sequence == 0 || can_share) &&
           (uneven < 3 || pipeline * chunks - 1 <= size.layers - encoder_layers(size));
  }
};

// The same rows of another kind of model.
inline std::vector<Layout> of_kind(Kind kind, std::vector<Layout> layouts) {
  for (Layout& layout : layouts) layout.size.kind = kind;
  return layouts;
}

// Every valid row.
inline std::vector<Layout> all_layouts(int most_ranks) {
  std::vector<Layout> layouts;
  for (const int tensor : {1, 2, 3, 4, 6, 8}) {
    for (const int sequence : {0, 1}) {
      for (const int data : {1, 2, 3, 4, 6, 8}) {
        for (const int zero : {0, 1, 2, 3}) {
          for (const int microbatches : {1, 2, 3, 4}) {
            for (const int small_buckets : {0, 1}) {
              for (const int data_first : {0, 1}) {
                const Layout layout{tensor,       sequence,      data,      zero,
                                    microbatches, small_buckets, data_first};
                if (layout.is_valid(most_ranks)) layouts.push_back(layout);
              }
            }
          }
        }
      }
    }
  }
  return layouts;
}

// Every valid row with a pipeline.
inline std::vector<Layout> all_pipelines(int most_ranks) {
  using config::PipelineSchedule;
  std::vector<Layout> layouts;
  Layout layout;
  layout.size = kDeep;
  for (layout.pipeline = 2; layout.pipeline <= 4; ++layout.pipeline) {
    for (layout.chunks = 1; layout.chunks <= 3; ++layout.chunks) {
      for (const PipelineSchedule schedule :
           {PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble,
            PipelineSchedule::gpipe}) {
        layout.schedule = schedule;
        for (layout.uneven = 0; layout.uneven <= 2; ++layout.uneven) {
          for (const int recompute : {0, -1, 1, 100}) {
            layout.recompute = recompute;
            for (const int microbatches : {1, 2, 3, 4, 6}) {
              layout.microbatches = microbatches;
              for (layout.tensor = 1; layout.tensor <= 2; ++layout.tensor) {
                for (layout.sequence = 0; layout.sequence <= 1; ++layout.sequence) {
                  for (layout.data = 1; layout.data <= 2; ++layout.data) {
                    for (layout.zero = 0; layout.zero <= 3; ++layout.zero) {
                      for (const int last_axes : {0, 1, 2, 3}) {
                        layout.data_first = last_axes % 2;
                        layout.small_buckets = last_axes / 2;
                        if (layout.is_valid(most_ranks)) layouts.push_back(layout);
                      }
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return layouts;
}

// Rows of BERT or T5, with pipelines and without, and of the axes that the kind has of
// its own: every combination of the others has one of those of its own, in turn.
std::vector<Layout> all_rows_of(model::ModelKind kind, int most_ranks);

// The first row of each grid, which takes longer to make than a small model.
inline std::vector<Layout> one_of_each_grid(const std::vector<Layout>& layouts) {
  std::vector<Layout> firsts;
  for (const Layout& layout : layouts) {
    const auto is_same = [&](const Layout& that) { return that.is_on_grid_of(layout); };
    if (std::none_of(firsts.begin(), firsts.end(), is_same)) firsts.push_back(layout);
  }
  return firsts;
}

// Every combination of what a pipeline is, each with another combination of the other
// axes in turn.
std::vector<Layout> one_of_each_pipeline(const std::vector<Layout>& all);

// Some rows, in which every pair, or every triple (so every pair), of values that a valid
// row has stands at least once: the row that adds most comes next.
enum class Meet { pairs, triples };
std::vector<Layout> covering(const std::vector<Layout>& all, Meet meet = Meet::triples);

// A micro-batch with every field of a kind's batch, whose elements are functions of the
// global sample and of what the field holds.
class MatrixSamples {
 public:
  MatrixSamples(const model::Blueprint& blueprint, index_t micro);
  HostBatch batch(index_t first);
  // How much of the samples [first, end) counts by a field of weights.
  double counted(const std::string& field, index_t first, index_t end) const;

 private:
  double element(const FieldSpec& field, index_t sample, index_t position) const;

  FilledBatch filled_;
  std::set<std::string> labels_;  // fields of words that are to be predicted
};

// A training in one layout, on the ranks of `world`, that computes in T.
template <class T>
class MatrixRunOf {
 public:
  MatrixRunOf(const std::shared_ptr<comm::Communicator>& world, const Layout& layout)
      : layout_(layout),
        grid_(KeptGrids::grid(world, layout.grid())),
        state_(own_groups(*grid_), matrix_blueprint(layout.size), layout.sharing(),
               matrix_maker<T>(layout.size)),
        step_((state_.allocate(ParamBuffer<T>::Use::training), exec_), state_,
              layout.step_shape(), timers_),
        optimizer_(exec_, state_.params, state_.groups, {.weight_decay = 0.1}, 1.0),
        samples_(state_.blueprint, layout.micro()) {
    state_.params.initialize(exec_, kSeedOfWeights);
    step_.share_weights();
  }

  void accumulate(int step) {
    optimizer_.begin_step(exec_, step_.state_view(), step + 1, 1e-3, kLossScale);
    const index_t samples = layout_.size.samples, share = samples / layout_.data;
    const index_t first = step * samples + grid_->coordinates().data * share;
    const auto counted = [&](const std::string& mask) {
      return samples_.counted(mask, first, first + share);
    };
    step_.accumulate_gradients(
        [&](int m) { return samples_.batch(first + m * layout_.micro()); },
        std::ref(counted));  // small enough for std::function to keep without memory
  }
  // Every weight changes by this part of itself, up or down as `turn` and its place say.
  void shift_weights(double part, std::uint32_t turn) {
    std::minstd_rand random(turn + 1);
    for (std::size_t p = 0; p < state_.registry.size(); ++p) {
      const View1<float> weights = state_.params.slice(Slab::weight, p);
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, weights);
      for (std::size_t i = 0; i < host.extent(0); ++i) {
        const double sign = random() % 2 == 0 ? 1.0 : -1.0;
        host(i) = static_cast<float>(host(i) * (1.0 + sign * part));
      }
      Kokkos::deep_copy(weights, host);
    }
    step_.share_weights();
  }
  // Loss sums, counts and gradient norm.
  optim::StepReport finish() {
    optimizer_.prepare(exec_, step_.state_view(), step_.totals());
    const optim::StepReport report = optimizer_.read_report();
    step_.update(optimizer_);
    return report;
  }

  // This rank's share of a parameter's gradient, and what it is a share of.
  std::vector<float> gradient(std::size_t param, IndexRange& range) const {
    range = state_.params.updated(param);
    exec_.fence("test");
    const auto host = Kokkos::create_mirror_view_and_copy(
        Kokkos::HostSpace{}, state_.params.updated(Slab::gradient, param));
    std::vector<float> values(host.data(), host.data() + host.extent(0));
    for (float& value : values) value /= kLossScale;  // a power of two
    return values;
  }
  std::vector<std::vector<float>> gradients() const {
    std::vector<std::vector<float>> all;
    for (std::size_t p = 0; p < state_.registry.size(); ++p) {
      IndexRange unused;
      all.push_back(gradient(p, unused));
    }
    return all;
  }
  // What this rank has of a parameter: all of its slice, or with ZeRO 3 its share.
  std::vector<float> weights(std::size_t param) {
    step_.settle();
    exec_.fence("test");
    const auto values = state_.params.is_whole(Slab::weight)
                            ? state_.params.slice(Slab::weight, param)
                            : state_.params.share(Slab::weight, param).values;
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, values);
    return {host.data(), host.data() + host.extent(0)};
  }
  // The compute copy of a parameter, where it is not lent to those in use (ZeRO 3).
  std::vector<T> compute_copy(std::size_t param) {
    if (!state_.params.is_compute_whole()) return {};
    step_.settle();
    exec_.fence("test");
    const auto host = Kokkos::create_mirror_view_and_copy(
        Kokkos::HostSpace{}, state_.params.compute_slice(param));
    return {host.data(), host.data() + host.extent(0)};
  }
  // What is not zero in all slabs, and in what they have of parameters: padding is zero.
  std::array<index_t, 2> non_zeros() {
    step_.settle();
    exec_.fence("test");
    const auto count = [](const View1<float>& view) {
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
      return static_cast<index_t>(host.extent(0)) -
             std::count(host.data(), host.data() + host.extent(0), 0.0f);
    };
    std::array<index_t, 2> counts{};
    for (const Slab slab :
         {Slab::weight, Slab::gradient, Slab::exp_avg, Slab::exp_avg_sq}) {
      counts[0] += count(state_.params.slab(slab));
      for (std::size_t p = 0; p < state_.registry.size(); ++p) {
        counts[1] += count(state_.params.share(slab, p).values);
      }
    }
    return counts;
  }
  // Mean loss of twice as many micro-batches as a step has, from sample `first` on.
  double evaluated_loss(index_t first) {
    const index_t samples = 2 * layout_.size.samples, share = samples / layout_.data;
    const index_t mine = first + grid_->coordinates().data * share;
    step::LossSums sums =
        step_.evaluate([&](int m) { return samples_.batch(mine + m * layout_.micro()); },
                       2 * layout_.microbatches);
    std::vector<double> numbers;
    for (const kernels::LossSum& of : sums) {
      numbers.insert(numbers.end(), {of.sum, of.count});
    }
    groups().gradient->control().all_reduce(numbers);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] = {numbers[2 * i], numbers[2 * i + 1]};
    }
    return model::losses_of(blueprint().objectives, sums).total;
  }
  bool has_whole_weights() const { return state_.params.is_whole(Slab::weight); }
  // Logits (rows, words of this rank) of micro() samples from `first` on.
  std::vector<double> logits(index_t first) {
    step_.evaluate([&](int) { return samples_.batch(first); }, 1);
    return test::rows_of(step_.last_logits());
  }

  // What this rank should send in a step, and what it has sent since reset_traffic().
  std::vector<MessageTally> planned_messages() const;
  std::vector<MessageTally> sent_messages() const;
  void reset_traffic() {
    for (comm::Group* group : groups().all()) group->reset_traffic();
  }

  const model::Blueprint& blueprint() const { return state_.blueprint; }
  const step::TrainStep<T>& step() const { return step_; }
  const ParamBuffer<T>& params() const { return state_.params; }
  const ParamRegistry& registry() const { return state_.registry; }
  const comm::RankGrid& grid() const { return *grid_; }
  const comm::ProcessGroups& groups() const { return state_.groups; }

 private:
  static constexpr auto kLossScale = static_cast<float>(Tolerances<T>::kLossScale);

  Layout layout_;
  Exec exec_;
  Timers timers_;
  std::shared_ptr<const comm::RankGrid> grid_;
  step::ModelState<T> state_;
  step::TrainStep<T> step_;
  optim::Optimizer<T> optimizer_;
  MatrixSamples samples_;
};

using MatrixRun = MatrixRunOf<float>;

// What one rank says.
struct MatrixReference {
  std::vector<double> losses, gradient_norms;           // of each step
  double evaluated_loss = 0.0;                          // after the last
  std::map<std::string, std::vector<float>> gradients;  // of the first step, by parameter
  double gradient_norm = 0.0;
  std::vector<double> logits;  // (s, samples, vocabulary) after the last step
};

// Runs so many steps of every layout against one rank; failures are the test's.
void run_layouts(const std::vector<Layout>& layouts, int steps = kSteps);
// Some steps of layouts that compute in 16 bits: as above, but for what a few steps of
// rounded numbers do not say. Says how far the furthest were apart.
template <class T>
void run_narrow_layouts(const std::vector<Layout>& layouts);
// A few steps of each over a transport that has NCCL's rules, or NCCL; the sites that
// this rank has sent from.
std::set<std::string> run_layouts_strictly(const std::vector<Layout>& layouts);
std::set<std::string> run_layouts_over(const comm::MpiOptions& transport,
                                       const std::vector<Layout>& layouts);
// Rows that differ in what they send, and in when: one of each kind.
std::vector<Layout> of_each_kind(const std::vector<Layout>& layouts);

std::shared_ptr<comm::Communicator> layout_world();
// What is told of each size that layouts train: by one of the ranks, and to all of them.
std::map<MatrixSize, std::string> told_of_sizes(
    comm::Communicator& world, const std::vector<Layout>& layouts,
    const std::function<std::string(const MatrixSize&)>& tell);
// Calls check with every layout and its ranks, as many at a time as there are ranks for.
void for_each_layout(comm::Communicator& world, const std::vector<Layout>& layouts,
                     const std::function<void(const std::shared_ptr<comm::Communicator>&,
                                              const Layout&)>& check);

}  // namespace trireme::test

#endif  // TRIREME_TESTS_LAYOUTS_LAYOUT_MATRIX_HPP_
