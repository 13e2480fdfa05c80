// step/output_pass.cpp — see output_pass.hpp.
//
// It is as a decoder is beside the training step, and not a use of that: micro-batches
// differ in length from call to call, no stage waits for another, and whoever asks wants
// the numbers at once. Nothing is kept for a backward pass: layers save what they save to
// memory that is given back at once, as those do that are made again in training.
// Memory is that of the largest micro-batch, found on shapes before any is taken.
#include "step/output_pass.hpp"

#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/step_state.hpp"
#include "model/chunk.hpp"
#include "nn/context.hpp"
#include "nn/micro_batch.hpp"
#include "step/batch_staging.hpp"
#include "step/step_shape.hpp"
#include "tensor/arena.hpp"

namespace trireme::step {

namespace {

template <class T>
const model::BlockSpec& giver_of(const ModelState<T>& state) {
  const model::BlockSpec* const giver = state.blueprint.output();
  TRIREME_REQUIRE(giver != nullptr, "the model gives no output");
  return *giver;
}

template <class T>
class OutputPassOf final : public OutputPass {
 public:
  // On a shape-only Exec it finds what it would take, and can do no more.
  OutputPassOf(const Exec& exec, ModelState<T>& state, index_t samples)
      : OutputPass(samples, giver_of(state).output->columns),
        exec_(exec),
        state_(state),
        giver_(giver_of(state)) {
    TRIREME_REQUIRE(samples >= 1, "an output of {}", format_plural(samples, "sample"));
    const BatchSpec& spec = state.blueprint.batch;
    for (const std::size_t field : state.fields()) {
      fields_.push_back({field, batch_bytes_});
      batch_bytes_ += bytes_of_field(spec, field, samples);
    }
    const index_t elements = rows_of(spec, samples) * columns();
    bytes_ = batch_bytes_ + sizeof(kernels::StepState) + extent(elements) * sizeof(float);
    if (exec.is_shape_only()) {
      find_workspace();
      return;
    }
    ModelState<T> shapes = state.without_memory();
    const OutputPassOf planned(Exec::shape_only(), shapes, samples);
    workspace_ = Workspace(planned.workspace_.peaks());
    staging_ = BatchStaging(batch_bytes_, BatchStaging::kFewest);
    batch_ = DeviceArray<std::byte>("output batch", batch_bytes_);
    step_ = DeviceArray<kernels::StepState>("output step", 1);
    output_ = DeviceArray<float>("output", extent(elements));
    host_output_ = HostArray<float>("output (host)", extent(elements));
  }

  std::size_t planned_bytes() const { return bytes_ + workspace_.peaks().total(); }

  std::span<const float> run(const HostBatch& batch, index_t samples,
                             std::span<const index_t> sequences) override {
    const BatchSpec spec = checked_spec(samples, sequences);
    nn::MicroBatch micro(spec, samples);
    std::byte* const staged = staging_.next();
    for (const LoadedField& field : fields_) {
      const FieldSpec& of = spec.fields[field.index];
      const void* const from = batch.fields.at(field.index);
      TRIREME_REQUIRE(from != nullptr, "field '{}' of a micro-batch was not filled",
                      of.name);
      const index_t elements = spec.elements(of, samples);
      std::memcpy(staged + field.begin, from, extent(elements) * size_of(of.type()));
      micro.set(field.index, batch_.data() + field.begin, elements);
    }
    staging_.send(exec_, View1<std::byte>(batch_.data(), batch_bytes_));
    const index_t rows = rows_of(spec, samples);
    run_model(micro, View2<float>(output_.data(), extent(rows), extent(columns())));
    const auto part = Kokkos::make_pair(index_t{0}, rows * columns());
    copy(exec_, Kokkos::subview(host_output_, part), Kokkos::subview(output_, part));
    exec_.fence("trireme::step::OutputPass");
    return {host_output_.data(), extent(rows * columns())};
  }

 private:
  // A field of the batch, and where the device has it.
  struct LoadedField {
    std::size_t index = 0;
    std::size_t begin = 0;
  };

  index_t rows_of(const BatchSpec& spec, index_t samples) const {
    const bool is_of_sample = giver_.output->per == Per::sample;
    return is_of_sample ? samples
                        : samples * spec.streams.at(extent(giver_.stream)).sequence;
  }

  BatchSpec checked_spec(index_t count, std::span<const index_t> sequences) const {
    BatchSpec spec = state_.blueprint.batch;
    TRIREME_REQUIRE(
        count >= 1 && count <= samples() && sequences.size() == spec.streams.size(),
        "the output of {} of {}; there is room for {}, and the model has {}",
        format_plural(count, "sample"), format_plural(sequences.size(), "stream"),
        samples(), spec.streams.size());
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      StreamSpec& stream = spec.streams[i];
      const bool is_split = state_.sequence_parallel() && stream.is_split;
      const index_t parts = is_split ? state_.groups.tensor->size() : index_t{1};
      TRIREME_REQUIRE(
          sequences[i] >= 1 && sequences[i] <= stream.sequence &&
              sequences[i] % parts == 0,
          "samples of {} of stream '{}', the model has {}, and they are split "
          "into {}",
          format_plural(sequences[i], "position"), stream.name, stream.sequence, parts);
      stream.sequence = sequences[i];
    }
    return spec;
  }

  void find_workspace() {
    workspace_ = Workspace({1}, {1});
    const BatchSpec& spec = state_.blueprint.batch;
    run_model(nn::MicroBatch(spec, samples()),
              View2<float>(nullptr, extent(rows_of(spec, samples())), extent(columns())));
  }

  void run_model(const nn::MicroBatch& batch, const View2<float>& output) {
    Arena& saved = workspace_.saved(0, 0);
    saved.reset();
    const nn::Context context{.exec = exec_,
                              .groups = state_.groups,
                              .step = kernels::StepStateView(step_.data()),
                              .saved = &saved,
                              .scratch = workspace_.scratch(),
                              .held = workspace_.held(),
                              .batch = batch,
                              .mode = nn::Mode::evaluation,
                              .gradients = nn::Gradients::none,
                              .splits_sequence = state_.sequence_parallel(),
                              .params = state_.use,
                              .recompute = {.layers = nn::Recompute::kAllLayers},
                              .output = output};
    state_.whole().forward(context, 0, {}, {});
  }

  Exec exec_;
  ModelState<T>& state_;
  const model::BlockSpec& giver_;
  std::vector<LoadedField> fields_;
  std::size_t batch_bytes_ = 0;
  std::size_t bytes_ = 0;  // of device memory beside the workspace
  Workspace workspace_;
  BatchStaging staging_;
  DeviceArray<std::byte> batch_;
  DeviceArray<kernels::StepState> step_;  // unused values; layers ask for one
  DeviceArray<float> output_;
  HostArray<float> host_output_;
};

}  // namespace

template <class T>
std::unique_ptr<OutputPass> make_output_pass(const Exec& exec, ModelState<T>& state,
                                             index_t samples) {
  return std::make_unique<OutputPassOf<T>>(exec, state, samples);
}

template <class T>
std::size_t plan_output_pass(const ModelState<T>& state, index_t samples) {
  ModelState<T> shapes = state.without_memory();
  return OutputPassOf<T>(Exec::shape_only(), shapes, samples).planned_bytes();
}

#define TRIREME_INSTANTIATE(T)                                                          \
  template std::unique_ptr<OutputPass> make_output_pass<T>(const Exec&, ModelState<T>&, \
                                                           index_t);                    \
  template std::size_t plan_output_pass<T>(const ModelState<T>&, index_t);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::step
