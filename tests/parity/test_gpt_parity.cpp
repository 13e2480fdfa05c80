// GPT against Hugging Face's GPT-2, which ran in fp64 (make_gpt_fixtures.py): logits,
// loss, every gradient, and 20 AdamW steps with clipping, decay and schedule.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "ckpt/hugging_face.hpp"
#include "comm/process_groups.hpp"
#include "comm/self_communicator.hpp"
#include "io/safetensors.hpp"
#include "optim/lr_schedule.hpp"
#include "step/train_step.hpp"
#include "support/safetensors.hpp"

namespace trireme {
namespace {

std::string fixture(const std::string& name) {
  return std::string(std::getenv("TRIREME_SOURCE_DIR")) + "/tests/parity/fixtures/" +
         name;
}

// A fixture's model in precision T, and its oracle.
template <class T>
class Case {
 public:
  using Master = Accumulator<T>;

  explicit Case(const std::string& name)
      : huggingface_(fixture(name), log_),
        oracle_(fixture(name) + "/oracle.safetensors"),
        state_(comm::make_groups_of_one(), config()) {
    state_.params.allocate(state_.registry, ParamBuffer<T>::Use::training);
    for (const ckpt::ForeignTensor& tensor : huggingface_.tensors()) {
      const std::vector<float> values = huggingface_.read(tensor);
      const auto slice =
          state_.params.slice(Slab::weight, state_.registry.find(tensor.name));
      ASSERT_SAME(values.size(), slice.extent(0));
      const auto host = Kokkos::create_mirror_view(slice);
      for (std::size_t i = 0; i < values.size(); ++i) host(i) = values[i];
      Kokkos::deep_copy(slice, host);
    }
    state_.params.refresh_compute(exec_);
    tokens_ = test::elements<std::int32_t>(oracle_.at("tokens"));
    const Shape shape = oracle_.at("tokens").shape;  // (batches, b, s + 1)
    shape_ = {.micro = shape[1], .sequence = shape[2] - 1, .microbatches = 1};
    batches_ = shape[0];
    step_ = std::make_unique<step::TrainStep<T>>(exec_, state_, shape_, timers_);
  }

  static void ASSERT_SAME(std::size_t a, std::size_t b) {
    if (a != b) throw Error("fixture and model disagree about a shape");
  }

  model::Architecture config() const {
    const auto& c = huggingface_.config();
    return {.layers = c.layers,
            .hidden = c.hidden,
            .heads = c.heads,
            .kv_heads = c.heads,
            .ffn_hidden = c.ffn_hidden,
            .sequence = c.sequence,
            .vocab = c.vocab};
  }

  // Batch n of the oracle, (b, s + 1) rows of tokens, as (s, b) inputs and labels.
  HostBatch batch(index_t n) {
    const index_t b = shape_.micro;
    const index_t s = shape_.sequence;
    inputs_.resize(static_cast<std::size_t>(b * s));
    labels_ = positions_ = inputs_;
    mask_.assign(inputs_.size(), 1.0f);
    for (index_t i = 0; i < b; ++i) {
      for (index_t p = 0; p < s; ++p) {
        const auto row = static_cast<std::size_t>(p * b + i);
        const auto at = static_cast<std::size_t>((n * b + i) * (s + 1) + p);
        inputs_[row] = tokens_[at];
        labels_[row] = tokens_[at + 1];
        positions_[row] = static_cast<std::int32_t>(p);
      }
    }
    return {{inputs_.data(), positions_.data(), labels_.data(), mask_.data()}, 0};
  }

  double gradients_of(index_t n) {
    step_->accumulate_gradients(
        [&](int) { return batch(n); },
        [this](const auto&) { return static_cast<double>(shape_.rows()); });
    exec_.fence("test");
    return step_->totals()(0) / step_->totals()(1);
  }

  Log log_{false};
  Exec exec_;
  Timers timers_;
  ckpt::HuggingFaceModel huggingface_;
  io::SafetensorsReader oracle_;
  step::ModelState<T> state_;
  step::StepShape shape_;
  index_t batches_ = 0;
  std::unique_ptr<step::TrainStep<T>> step_;
  std::vector<std::int32_t> tokens_, inputs_, labels_, positions_;
  std::vector<float> mask_;
};

template <class T>
void expect_logits_and_loss(const std::string& name, double logit_bound,
                            double loss_bound) {
  Case<T> test(name);
  const double loss = test.gradients_of(0);
  const double expected_loss = test::elements<double>(test.oracle_.at("loss"))[0];
  EXPECT_LE(std::abs(loss - expected_loss) / expected_loss, loss_bound);

  // The backward pass turned the logits into their gradient: evaluate again.
  test.step_->evaluate([&](int) { return test.batch(0); }, 1);
  const auto expected = test::elements<double>(test.oracle_.at("logits"));  // (b, s, v)
  const auto logits = test.step_->last_logits();                            // (s * b, v)
  const index_t b = test.shape_.micro;
  const index_t s = test.shape_.sequence;
  const auto v = static_cast<index_t>(logits.extent(1));
  double worst = 0;
  for (index_t i = 0; i < b; ++i) {
    for (index_t p = 0; p < s; ++p) {
      for (index_t t = 0; t < v; ++t) {
        const double difference = static_cast<double>(logits(p * b + i, t)) -
                                  expected[static_cast<std::size_t>((i * s + p) * v + t)];
        worst = std::max(worst, std::abs(difference));
      }
    }
  }
  EXPECT_LE(worst, logit_bound);
  ::testing::Test::RecordProperty("logit_error", fmt::format("{:.2e}", worst));
}

template <class T>
void expect_gradients(const std::string& name, double bound) {
  Case<T> test(name);
  test.gradients_of(0);
  const auto& registry = test.state_.registry;
  double global = 0;
  for (const ParamSpec& spec : registry.specs()) {
    for (const double g :
         test::elements<double>(test.oracle_.at("gradient/" + spec.name))) {
      global += g * g;
    }
  }
  global = std::sqrt(global);
  for (std::size_t i = 0; i < registry.size(); ++i) {
    const auto expected =
        test::elements<double>(test.oracle_.at("gradient/" + registry.spec(i).name));
    const auto gradient = test.state_.params.slice(Slab::gradient, i);
    ASSERT_EQ(expected.size(), gradient.extent(0));
    double error = 0;
    double norm = 0;
    for (std::size_t n = 0; n < expected.size(); ++n) {
      error += std::pow(static_cast<double>(gradient(n)) - expected[n], 2);
      norm += expected[n] * expected[n];
    }
    EXPECT_LE(std::sqrt(error), bound * std::max(std::sqrt(norm), 1e-4 * global))
        << registry.spec(i).name;
  }
}

template <class T>
void expect_training(const std::string& name, double bound) {
  Case<T> test(name);
  const kernels::AdamWDesc adamw{
      .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  optim::Optimizer<T> optimizer(test.exec_, test.state_.params, test.state_.groups, adamw,
                                1.0);
  const optim::LrSchedule schedule{.kind = optim::LrSchedule::Kind::cosine,
                                   .lr = 1e-3,
                                   .min_lr = 1e-4,
                                   .warmup = 4,
                                   .decay = test.batches_};
  const auto losses = test::elements<double>(test.oracle_.at("train/loss"));
  const auto norms = test::elements<double>(test.oracle_.at("train/grad_norm"));
  const auto rates = test::elements<double>(test.oracle_.at("train/learning_rate"));
  ASSERT_EQ(losses.size(), 20u);
  for (index_t k = 1; k <= test.batches_; ++k) {
    const auto n = static_cast<std::size_t>(k - 1);
    const double lr = schedule.at(k);
    EXPECT_NEAR(lr, rates[n], 1e-12) << "update " << k;
    const double loss = test.gradients_of(k - 1);
    EXPECT_LE(std::abs(loss - losses[n]) / losses[n], bound) << "update " << k;
    optimizer.begin_step(test.exec_, test.step_->state_view(), k, lr);
    optimizer.prepare(test.exec_, test.step_->state_view(), test.step_->totals());
    const optim::StepReport report = optimizer.read_report();
    EXPECT_LE(std::abs(report.grad_norm - norms[n]) / norms[n], bound) << "update " << k;
    optimizer.apply(test.exec_, test.step_->state_view());
  }
}

TEST(GptParity, LogitsAndLossFloat) {
  expect_logits_and_loss<float>("gpt2_tiny", 2e-5, 1e-6);
  expect_logits_and_loss<float>("gpt2_odd", 2e-5, 1e-6);
}

TEST(GptParity, LogitsAndLossDouble) {
  expect_logits_and_loss<double>("gpt2_tiny", 1e-12, 1e-13);
  expect_logits_and_loss<double>("gpt2_odd", 1e-12, 1e-13);
}

TEST(GptParity, GradientsFloat) {
  expect_gradients<float>("gpt2_tiny", 1e-5);
  expect_gradients<float>("gpt2_odd", 1e-5);
}

TEST(GptParity, GradientsDouble) {
  expect_gradients<double>("gpt2_tiny", 1e-12);
  expect_gradients<double>("gpt2_odd", 1e-12);
}

TEST(GptParity, TrainingFloat) {
  expect_training<float>("gpt2_tiny", 1e-5);
}
TEST(GptParity, TrainingDouble) {
  expect_training<double>("gpt2_tiny", 1e-11);
}

}  // namespace
}  // namespace trireme
