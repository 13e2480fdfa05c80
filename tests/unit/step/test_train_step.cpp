// One optimizer step: what it computes (micro-batches, masks, evaluation), that it takes
// the memory that was planned, and that it allocates nothing after the first.
#include "step/train_step.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "comm/process_groups.hpp"
#include "data/batch_loader.hpp"
#include "step/step_plan.hpp"
#include "support/allocation_counter.hpp"
#include "support/arrays.hpp"
#include "support/rows.hpp"
#include "unit/data/fixtures.hpp"
#include "unit/step/random_model.hpp"

namespace trireme::step {
namespace {

using test::uniform;
using Values = std::vector<double>;

constexpr index_t kSequence = 11, kVocabulary = 37;
constexpr int kSamples = 4;

model::Architecture small_gpt(double dropout) {
  return {.layers = 2,
          .hidden = 20,
          .heads = 4,
          .kv_heads = 2,
          .ffn_hidden = 30,
          .sequence = kSequence,
          .vocab = kVocabulary,
          .dropout = dropout,
          .attention_dropout = dropout};
}

template <class T>
Values to_host(const View1<T>& view) {
  Kokkos::fence("tests: read back");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  return Values(host.data(), host.data() + host.extent(0));
}

// Four samples with masks of unequal weight, as micro-batches of any size.
class Samples {
 public:
  Samples() {
    for (int i = 0; i < kSamples; ++i) {
      tokens_.push_back(uniform(kSequence + 1, static_cast<unsigned>(i), 0, kVocabulary));
      masks_.push_back(uniform(kSequence, 50 + static_cast<unsigned>(i), 0, 1));
      // Sample 0 counts half, sample 1 in one place only.
      for (index_t s = 0; s < kSequence; ++s) {
        double& mask = masks_[static_cast<std::size_t>(i)][static_cast<std::size_t>(s)];
        mask = i == 1 ? (s == 3 ? 1 : 0) : i == 0 ? 0.5 : (mask < 0.3 ? 0 : 1);
      }
    }
  }

  std::int32_t token(index_t sample, index_t position) const {
    return static_cast<std::int32_t>(
        tokens_[static_cast<std::size_t>(sample)][static_cast<std::size_t>(position)]);
  }
  double mask(index_t sample, index_t position) const {
    return masks_[static_cast<std::size_t>(sample)][static_cast<std::size_t>(position)];
  }

  // Samples from this one on count nothing; counted() is as before.
  void silence_from(int sample) { silent_from_ = sample; }

  // Sum of all masks.
  double counted() const {
    double sum = 0.0;
    for (const Values& mask : masks_)
      sum = std::accumulate(mask.begin(), mask.end(), sum);
    return sum;
  }

  FetchBatch fetch(index_t micro) {
    return [this, micro](int m) {
      const auto rows = static_cast<std::size_t>(micro * kSequence);
      inputs_.resize(rows);
      labels_ = positions_ = inputs_;
      mask_.resize(rows);
      for (index_t row = 0; row < micro * kSequence; ++row) {
        const auto at = static_cast<std::size_t>(row);
        const index_t sample = m * micro + row % micro, s = row / micro;
        inputs_[at] = token(sample, s);
        labels_[at] = token(sample, s + 1);
        positions_[at] = static_cast<std::int32_t>(s);
        mask_[at] = sample < silent_from_ ? static_cast<float>(mask(sample, s)) : 0.0f;
      }
      return HostBatch{{inputs_.data(), positions_.data(), labels_.data(), mask_.data()},
                       static_cast<std::uint64_t>(1000 + m * micro)};
    };
  }

 private:
  int silent_from_ = kSamples;
  std::vector<Values> tokens_, masks_;
  std::vector<std::int32_t> inputs_, labels_, positions_;
  std::vector<float> mask_;
};

// The four samples as micro-batches of `micro`.
template <class T>
struct StepRun {
  explicit StepRun(index_t micro, double dropout = 0.0, double clip_norm = 1e30,
                   bool narrow_gradients = false)
      : state(comm::make_groups_of_one(), small_gpt(dropout),
              Sharing{.pipeline = {}, .narrow_gradients = narrow_gradients}) {
    state.allocate(ParamBuffer<T>::Use::training);
    test::randomize(state, 0.2);
    step = std::make_unique<TrainStep<T>>(
        exec, state,
        StepShape{.micro = micro,
                  .sequence = kSequence,
                  .microbatches = static_cast<int>(kSamples / micro),
                  .seed = 5},
        timers);
    optimizer = std::make_unique<optim::Optimizer<T>>(exec, state.params, state.groups,
                                                      kernels::AdamWDesc{}, clip_norm);
  }

  FetchBatch fetch() { return samples.fetch(step->shape().micro); }
  void accumulate() {
    step->accumulate_gradients(fetch(),
                               [this](const auto&) { return samples.counted(); });
  }
  optim::StepReport report() {
    optimizer->prepare(exec, step->state_view(), step->totals());
    return optimizer->read_report();
  }
  double gradient_scale() const {
    kernels::StepState host;
    const View0<kernels::StepState> view = step->state_view();
    const Kokkos::View<kernels::StepState, Kokkos::HostSpace,
                       Kokkos::MemoryTraits<Kokkos::Unmanaged>>
        to(&host);
    Kokkos::deep_copy(to, view);
    return host.gradient_scale;
  }
  Values gradient() const { return to_host(state.params.slab(Slab::gradient)); }
  double mean_loss() {
    return step->evaluate(fetch(), step->shape().microbatches)[0].mean();
  }

  Exec exec;
  Timers timers;
  Samples samples;
  ModelState<T> state;
  std::unique_ptr<TrainStep<T>> step;
  std::unique_ptr<optim::Optimizer<T>> optimizer;
};

double norm_of(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return norm_of(a);
}

// Dropout on: masks belong to samples, not to micro-batches.
template <class T>
void expect_grouping_does_not_matter(double relative) {
  StepRun<T> one(kSamples, 0.2), two(2, 0.2), four(1, 0.2);
  one.accumulate();
  const Values gradient = one.gradient(), totals = to_host(one.step->totals());
  ASSERT_GT(norm_of(gradient), 0.0);
  for (StepRun<T>* run : {&two, &four}) {
    run->accumulate();
    EXPECT_LE(distance(run->gradient(), gradient), relative * norm_of(gradient));
    const Values theirs = to_host(run->step->totals());
    EXPECT_NEAR(theirs[0], totals[0], relative * totals[0]);
    EXPECT_EQ(theirs[1], totals[1]);
  }
}

TEST(TrainStepGradients, DoNotDependOnMicroBatches) {
  expect_grouping_does_not_matter<float>(1e-6);
  expect_grouping_does_not_matter<double>(1e-14);
}

// Gradients kept in bf16 differ from those in fp32 by a rounding of each partial sum: u
// |S_k| after micro-batch k. The table of words is written twice for each micro-batch, by
// the head and by the embedding, with the head's alone between them.
TEST(TrainStepGradients, InBf16AreRoundedOnceForEachMicroBatch) {
  constexpr double kU = test::rounding<bf16>();
  for (const index_t micro : {kSamples, 2, 1}) {
    SCOPED_TRACE(testing::Message() << "micro-batches of " << micro);
    StepRun<bf16> wide(micro, 0.2), narrow(micro, 0.2, 1e30, true);
    const ParamRegistry& registry = wide.state.registry;
    std::vector<double> bounds(registry.size());
    for (int end = static_cast<int>(micro); end <= kSamples;
         end += static_cast<int>(micro)) {
      wide.samples.silence_from(end);
      wide.accumulate();
      for (std::size_t p = 0; p < registry.size(); ++p) {
        const bool is_table = registry.spec(p).name == "embedding/word/weight";
        bounds[p] += (is_table ? 3 : 1) * kU *
                     norm_of(to_host(wide.state.params.slice(Slab::gradient, p)));
      }
    }
    narrow.accumulate();
    double distances = 0;
    for (std::size_t p = 0; p < registry.size(); ++p) {
      const auto rounded = narrow.state.params.slice<bf16>(Slab::gradient, p);
      const double d =
          distance(to_host(rounded), to_host(wide.state.params.slice(Slab::gradient, p)));
      EXPECT_LE(d, bounds[p]) << registry.spec(p).name;
      distances += d;
    }
    EXPECT_GT(distances, 0.0);
    // What the norm and the update see of them: the same, but for that.
    const double norm = wide.report().grad_norm;
    EXPECT_NEAR(narrow.report().grad_norm, norm, kU * norm);
  }
}

TEST(TrainStepGradients, StartAnewAndRepeatBitwise) {
  StepRun<float> run(2, 0.2), other(2, 0.2);
  run.accumulate();
  const Values first = run.gradient(), totals = to_host(run.step->totals());
  // Nothing is left of what the step before had, even if that was not finite.
  for (std::size_t p = 0; p < run.state.registry.size(); ++p) {
    Kokkos::deep_copy(run.state.params.slice(Slab::gradient, p), NAN);
  }
  run.accumulate();
  EXPECT_EQ(run.gradient(), first);
  EXPECT_EQ(to_host(run.step->totals()), totals);
  other.accumulate();
  EXPECT_EQ(other.gradient(), first);
}

TEST(TrainStepGradients, OfTheMeanOverTheTokensThatCount) {
  // The gradient against differences of the mean loss.
  StepRun<double> run(2);
  run.accumulate();
  const optim::StepReport report = run.report();
  const Values gradient = run.gradient();
  EXPECT_NEAR(report.grad_norm, norm_of(gradient), 1e-12 * report.grad_norm);

  const View1<double> weights = run.state.params.slab(Slab::weight);
  const Values at = to_host(weights);
  const Values direction = uniform(at.size(), 9, -1, 1);
  double expected = 0;
  for (std::size_t i = 0; i < at.size(); ++i) expected += gradient[i] * direction[i];
  const auto loss_at = [&](double h) {
    const auto host = Kokkos::create_mirror(Kokkos::HostSpace{}, weights);
    for (std::size_t i = 0; i < at.size(); ++i) host(i) = at[i] + h * direction[i];
    Kokkos::deep_copy(weights, host);
    return run.mean_loss();
  };
  const double h = 2e-4;
  const double coarse = (loss_at(h) - loss_at(-h)) / (2 * h);
  const double fine = (loss_at(h / 2) - loss_at(-h / 2)) / h;
  EXPECT_NEAR((4 * fine - coarse) / 3, expected, 1e-7 * std::abs(expected));
}

TEST(TrainStepLoss, IsWeightedByTokens) {
  StepRun<double> run(1);  // every micro-batch with another number of tokens
  run.accumulate();
  const optim::StepReport report = run.report();
  // Directly: log softmax of the logits of each sample.
  double sum = 0, tokens = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    run.step->evaluate([&](int) { return run.fetch()(sample); }, 1);
    const Values values = test::rows_of(run.step->last_logits());
    for (index_t s = 0; s < kSequence; ++s) {
      const double* row = values.data() + s * kVocabulary;
      double exponentials = 0;
      for (index_t v = 0; v < kVocabulary; ++v) exponentials += std::exp(row[v]);
      const double loss = std::log(exponentials) - row[run.samples.token(sample, s + 1)];
      sum += run.samples.mask(sample, s) * loss;
      tokens += run.samples.mask(sample, s);
    }
  }
  EXPECT_EQ(report.losses[0].count, tokens);
  EXPECT_NEAR(report.losses[0].sum, sum, 1e-12 * sum);
}

TEST(TrainStepLoss, OfEvaluationIsThatOfTrainingWithoutDropout) {
  StepRun<float> without(2), with(2, 0.3);
  without.accumulate();
  const Values trained = to_host(without.step->totals());
  const LossSums evaluated = without.step->evaluate(without.fetch(), 2);
  EXPECT_EQ(evaluated[0].sum, trained[0]);
  EXPECT_EQ(evaluated[0].count, trained[1]);
  EXPECT_EQ(with.step->evaluate(with.fetch(), 2)[0].sum, trained[0]);
  with.accumulate();
  EXPECT_NE(to_host(with.step->totals())[0], trained[0]);
  // Between the two, weights and gradients are left alone.
  const Values gradient = with.gradient();
  with.step->evaluate(with.fetch(), 2);
  EXPECT_EQ(with.gradient(), gradient);
}

TEST(TrainStepNonFinite, NamesMicroBatchAndLayer) {
  StepRun<float> run(1);
  run.accumulate();
  const Values gradient = run.gradient();
  EXPECT_EQ(run.step->locate_non_finite(run.fetch()), "");
  EXPECT_EQ(run.gradient(), gradient) << "the search takes gradients";
  // A position that micro-batches 0 and 1 do not have.
  const std::size_t position = run.state.registry.find("embedding/position/weight");
  const auto slice = run.state.params.slice(Slab::weight, position);
  const View1<float> last_row(slice.data() + (kSequence - 1) * 20, 1);
  Kokkos::deep_copy(last_row, NAN);
  std::vector<std::int32_t> positions;
  const FetchBatch whole = run.fetch();
  const FetchBatch fetch = [&](int m) {
    HostBatch batch = whole(m);
    const auto* const right = static_cast<const std::int32_t*>(batch.fields[1]);
    positions.assign(right, right + kSequence);
    if (m < 2) positions.back() = 0;
    batch.fields[1] = positions.data();
    return batch;
  };
  EXPECT_EQ(run.step->locate_non_finite(fetch), "micro-batch 2: embedding");
}

// What Kokkos allocates, by label.
class AllocatedBytes {
 public:
  AllocatedBytes() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    table_ = &bytes;
    Kokkos::Tools::Experimental::set_allocate_data_callback(
        [](Kokkos::Tools::SpaceHandle, const char* label, const void*,
           std::uint64_t size) { (*table_)[label] += size; });
  }
  ~AllocatedBytes() { Kokkos::Tools::Experimental::set_callbacks(before_); }
  AllocatedBytes(const AllocatedBytes&) = delete;
  AllocatedBytes& operator=(const AllocatedBytes&) = delete;

  std::map<std::string, std::uint64_t> bytes;

 private:
  static inline std::map<std::string, std::uint64_t>* table_ = nullptr;
  Kokkos::Tools::Experimental::EventSet before_;
};

TEST(TrainStepMemory, IsWhatThePlanSays) {
  const Exec exec;
  Timers timers;
  ModelState<float> state(comm::make_groups_of_one(), small_gpt(0.1));
  const StepShape shape{.micro = 2, .sequence = kSequence, .microbatches = 2};
  const MemoryPlan plan = plan_step(state, shape).memory;  // before there is any
  AllocatedBytes allocated;
  state.params.allocate(state.registry, ParamBuffer<float>::Use::training);
  const TrainStep<float> step(exec, state, shape, timers);
  const auto& bytes = allocated.bytes;
  EXPECT_EQ(bytes.at("weight"), plan.weights);
  EXPECT_EQ(bytes.at("gradient"), plan.gradients);
  EXPECT_EQ(bytes.at("exp_avg") + bytes.at("exp_avg_sq"), plan.optimizer);
  EXPECT_EQ(bytes.at("workspace"), plan.workspace.total());
  // A GPU's batches are put together in the host's memory.
  const std::uint64_t staged = bytes.at("staged batch");
  const std::uint64_t beside = kHostExecution ? 0 : staged;
  EXPECT_EQ(bytes.at("batch") + staged - beside, plan.batch);
  std::uint64_t all = 0;
  for (const auto& [label, size] : bytes) all += size;
  all -= beside;
  EXPECT_EQ(all, plan.total() + sizeof(kernels::StepState) + 4 * sizeof(double));
  std::size_t saved = 0;
  for (const std::size_t category : plan.saved_by_category) saved += category;
  EXPECT_EQ(saved, plan.saved());
}

TEST(TrainStepMemory, IsUsedToTheLastByte) {
  const Exec exec;
  ModelState<float> state(comm::make_groups_of_one(), small_gpt(0.1));
  test::randomize(state);
  const StepShape shape{.micro = 2, .sequence = kSequence, .microbatches = 1};
  const MemoryPlan plan = plan_step(state, shape).memory;
  Workspace workspace(plan.workspace);
  const DeviceArray<kernels::StepState> step("step state", 1);
  const test::Array<std::int32_t> ids(2 * kSequence);
  const test::Array<float> mask(2 * kSequence, 1.0);
  const test::Array<double> totals(2);
  nn::MicroBatch batch = shape.micro_batch(state.blueprint.batch);
  for (const std::size_t field : {0, 1, 2}) {
    batch.set(field, ids.vector().data(), 2 * kSequence);
  }
  batch.set(3, mask.vector().data(), 2 * kSequence);
  const nn::Context context{.exec = exec,
                            .groups = state.groups,
                            .step = kernels::StepStateView(step.data()),
                            .saved = &workspace.saved(0, 0),
                            .scratch = workspace.scratch(),
                            .held = workspace.held(),
                            .batch = batch,
                            .totals = totals.vector()};
  for (int pass = 0; pass < 2; ++pass) {
    context.saved->reset();
    state.whole().forward(context, 0, {}, {});
    EXPECT_EQ(context.saved->used(), plan.workspace.saved[0]);
    state.whole().backward(context, 0, {}, {}, model::WeightPass::now);
    EXPECT_EQ(context.saved->peak(), plan.workspace.saved[0]);
    EXPECT_EQ(context.scratch.peak(), plan.workspace.scratch);
    EXPECT_EQ(context.held.peak(), plan.workspace.held_bytes());
    EXPECT_EQ(context.saved->peak_by_category(), plan.saved_by_category);
  }
}

// Steps as the trainer does them, with tokens from a corpus through the loader's thread.
class TrainStepAllocations : public ::testing::Test {
 protected:
  static constexpr index_t kMicro = 3, kMicrobatches = 2,
                           kGlobal = kMicro * kMicrobatches;
  static constexpr index_t kLength = 24;

  TrainStepAllocations() {
    const std::string text = io::read_file(test::fixture("sample.txt"));
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < 40; ++i) texts.push_back(text.substr(i * 150, 150));
    test::make_corpus(scratch_, "c.h5", texts, test::trained_tokenizer());
    const auto corpus = std::make_shared<const data::Corpus>(scratch_ / "c.h5");
    dataset_ = std::make_unique<data::Dataset>(
        std::vector<data::Dataset::Part>{{corpus, {0, corpus->token_count()}, 1.0}},
        data::sample_rules(data::NextTokenRules{kLength, true}, 11),
        data::Order::shuffled, "train");
    model::Architecture config = small_gpt(0.1);
    config.sequence = kLength;
    config.vocab = corpus->vocabulary_size();
    state_ = std::make_unique<ModelState<float>>(comm::make_groups_of_one(), config);
    state_->params.allocate(state_->registry, ParamBuffer<float>::Use::training);
    state_->params.initialize(exec_, 1);
    step_ = std::make_unique<TrainStep<float>>(
        exec_, *state_,
        StepShape{.micro = kMicro, .sequence = kLength, .microbatches = kMicrobatches},
        timers_);
    optimizer_ = std::make_unique<optim::Optimizer<float>>(
        exec_, state_->params, state_->groups, kernels::AdamWDesc{.weight_decay = 0.1},
        1.0);
    loader_ = std::make_unique<data::BatchLoader>(
        *dataset_,
        [](index_t n) {
          return data::ColumnRange{n * kMicro, kMicro};
        },
        data::BatchLoader::Options{.spec = state_->blueprint.batch,
                                   .fields = state_->fields(),
                                   .max_columns = kMicro,
                                   .summed = state_->objective_masks(),
                                   .most_summed = kMicrobatches});
  }

  template <class Fetch>
  double one_step(const Fetch& fetch) {
    ++update_;
    step_->accumulate_gradients(fetch, [this](const std::string& field) {
      return loader_->sum_ahead(kMicrobatches, field);
    });
    const Region region(timers_, Section::optimizer);
    optimizer_->begin_step(exec_, step_->state_view(), update_, 1e-3);
    optimizer_->prepare(exec_, step_->state_view(), step_->totals());
    const optim::StepReport report = optimizer_->read_report();
    optimizer_->apply(exec_, step_->state_view());
    return report.losses[0].mean();
  }
  HostBatch next() { return loader_->next().view(); }

  test::Scratch scratch_;
  Exec exec_;
  Timers timers_;
  std::unique_ptr<data::Dataset> dataset_;
  std::unique_ptr<ModelState<float>> state_;
  std::unique_ptr<TrainStep<float>> step_;
  std::unique_ptr<optim::Optimizer<float>> optimizer_;
  std::unique_ptr<data::BatchLoader> loader_;
  int update_ = 0;
};

TEST_F(TrainStepAllocations, NoneAfterTheFirstSteps) {
  const auto fetch = [this](int) { return next(); };
  double losses[10] = {};
  for (int k = 0; k < 2; ++k) losses[k] = one_step(fetch);
  test::AllocationCounter counter;
  for (int k = 2; k < 10; ++k) losses[k] = one_step(fetch);
  counter.stop();
  EXPECT_EQ(counter.of_trireme(kHostExecution), 0) << counter.report();
  RecordProperty("allocations_of_onednn", static_cast<int>(counter.vendor()));
  EXPECT_LT(losses[9], losses[0]);  // it did train
}

TEST_F(TrainStepAllocations, AreSeenWhereverTheyAre) {
  const auto fetch = [this](int) { return next(); };
  one_step(fetch);
  {  // one vector in each micro-batch
    test::AllocationCounter counter;
    one_step([this](int) {
      const std::vector<char> copy(100);
      return next();
    });
    counter.stop();
    EXPECT_GE(counter.host(), 2);
  }
  {  // one View
    test::AllocationCounter counter;
    one_step([this](int) {
      const DeviceArray<float> copy("copy", 100);
      return next();
    });
    counter.stop();
    EXPECT_GE(counter.kokkos(), 4);
    EXPECT_THAT(counter.report(), ::testing::HasSubstr("'copy'"));
  }
}

}  // namespace
}  // namespace trireme::step
