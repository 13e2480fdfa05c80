// The second kind of model on one rank: its gradients are those of its loss, in double,
// recomputed or not; positions behind the end of a ragged sample take no part in it.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "comm/process_groups.hpp"
#include "layouts/layout_matrix.hpp"
#include "support/gradcheck.hpp"

namespace trireme::test {
namespace {

constexpr index_t kFirst = 7, kSamples = 2;  // samples

using Values = std::vector<double>;

model::Blueprint without_dropout() {
  model::Architecture text = matrix_model({.layers = 6, .heads = 8, .samples = 0});
  text.dropout = text.attention_dropout = 0.0;  // so that an evaluation gives the loss
  return encoder_decoder(text);
}

class GradientRun {
 public:
  explicit GradientRun(const nn::Recompute& recompute = {})
      : state_(comm::make_groups_of_one(), without_dropout(), {},
               &make_encoder_decoder_block<double>),
        step_(
            (state_.allocate(ParamBuffer<double>::Use::training), exec_), state_,
            {.micro = kSamples, .sequence = kSequence, .seed = 7, .recompute = recompute},
            timers_),
        samples_(state_.blueprint, kSamples) {
    state_.params.initialize(exec_, 4321);
  }

  void take_gradients() {
    step_.accumulate_gradients([&](int) { return batch(); },
                               [&](const auto& mask) {
                                 return samples_.counted(mask, kFirst, kFirst + kSamples);
                               });
  }
  double loss() {
    return model::losses_of(blueprint().objectives,
                            step_.evaluate([&](int) { return batch(); }, 1))
        .total;
  }
  double loss_at(std::size_t param, const Values& weights) {
    const View1<double> slice = state_.params.slice(Slab::weight, param);
    const auto host = Kokkos::create_mirror_view(slice);
    for (std::size_t i = 0; i < weights.size(); ++i) host(i) = weights[i];
    Kokkos::deep_copy(slice, host);
    return loss();
  }
  Values values_of(Slab slab, std::size_t param) const {
    return values(state_.params.slice(slab, param));
  }
  const ParamRegistry& registry() const { return state_.registry; }
  const model::Blueprint& blueprint() const { return state_.blueprint; }
  // Of the source, from so many positions on behind the end of each sample: another word.
  void change_source(std::int32_t behind_end) { changed_ = behind_end; }

 private:
  HostBatch batch() {
    HostBatch batch = samples_.batch(kFirst);
    const BatchSpec& spec = state_.blueprint.batch;
    const auto field = [&](const char* name) -> const void*& {
      return batch.fields.at(spec.field(name));
    };
    const auto* const ids = static_cast<const std::int32_t*>(field("source"));
    const auto* const lengths = static_cast<const std::int32_t*>(field("source_lengths"));
    source_.assign(ids, ids + kSamples * kSourceSequence);
    for (index_t row = 0; changed_ && row < std::ssize(source_); ++row) {
      if (row / kSamples >= lengths[row % kSamples] + *changed_) source_[extent(row)] = 0;
    }
    field("source") = source_.data();
    return batch;
  }
  static Values values(const View1<double>& view) {
    Kokkos::fence("test");
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
    return {host.data(), host.data() + host.extent(0)};
  }

  Exec exec_;
  Timers timers_;
  step::ModelState<double> state_;
  step::TrainStep<double> step_;
  MatrixSamples samples_;
  std::optional<std::int32_t> changed_;
  std::vector<std::int32_t> source_;
};

TEST(EncoderDecoderGradients, AreThoseOfItsLoss) {
  for (const nn::Recompute& recompute : {nn::Recompute{}, nn::Recompute{.layers = 100}}) {
    GradientRun run(recompute);
    EXPECT_EQ(run.registry().global_element_count(), run.blueprint().parameter_count());
    for (std::size_t p = 0; p < run.registry().size(); ++p) {
      run.take_gradients();
      const Values gradient = run.values_of(Slab::gradient, p);
      const Values weights = run.values_of(Slab::weight, p);
      const auto loss = [&](const Values& at) { return run.loss_at(p, at); };
      EXPECT_TRUE(check_gradient(loss, weights, gradient, {.components = 2}))
          << run.registry().spec(p).name;
      run.loss_at(p, weights);
    }
  }
}

TEST(EncoderDecoderGradients, TakeNothingFromPadding) {
  GradientRun run;
  const double loss = run.loss();
  run.change_source(0);
  EXPECT_EQ(run.loss(), loss);
  run.change_source(-1);  // the last that is real
  EXPECT_NE(run.loss(), loss);
}

}  // namespace
}  // namespace trireme::test
