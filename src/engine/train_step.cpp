// engine/train_step.cpp — see train_step.hpp.
#include "engine/train_step.hpp"

#include "base/error.hpp"
#include "kernels/initialize.hpp"

namespace trireme::engine {

namespace {

template <class T>
void copy_to_device(const Exec& exec, const T* from, const DeviceArray<T>& to) {
  const Kokkos::View<const T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      host(from, to.extent(0));
  copy(exec, to, host);
}

void set_sample_base(const Exec& exec, View0<kernels::StepState> state,
                     std::uint64_t base) {
  launch(
      exec, "trireme::engine::set_sample_base", 1,
      KOKKOS_LAMBDA(const index_t) { state().sample_base = base; });
}

void set_loss_scale(const Exec& exec, View0<kernels::StepState> state, double scale) {
  launch(
      exec, "trireme::engine::set_loss_scale", 1,
      KOKKOS_LAMBDA(const index_t) { state().loss_gradient_scale = scale; });
}

void set_step(const Exec& exec, View0<kernels::StepState> state, std::uint64_t step,
              double learning_rate, double correction1, double correction2) {
  launch(
      exec, "trireme::engine::set_step", 1, KOKKOS_LAMBDA(const index_t) {
        state().step = step;
        state().learning_rate = learning_rate;
        state().bias_correction1 = correction1;
        state().bias_correction2 = correction2;
      });
}

void set_seed(const Exec& exec, View0<kernels::StepState> state, std::uint64_t seed) {
  launch(
      exec, "trireme::engine::set_seed", 1, KOKKOS_LAMBDA(const index_t) {
        state() = kernels::StepState{};
        state().seed = seed;
      });
}

}  // namespace

template <class T>
TrainStep<T>::TrainStep(const Exec& exec, ModelState<T>& state, const StepShape& shape,
                        Timers& timers)
    : exec_(exec),
      state_(state),
      progress_(*state.groups.world),
      data_parallel_(exec, state.groups, state.params, state.chunk.tied_parameter(),
                     state.sequence_parallel()),
      shape_(shape),
      timers_(timers),
      actions_(schedule::no_pipelining(shape.microbatches)),
      step_state_("step state", 1),
      totals_("step totals", 2) {
  schedule::check(actions_, shape.microbatches, 1);
  const int slots = schedule::slot_count(actions_, 0);
  state_.chunk.set_slot_count(slots);
  plan_ = plan_memory(state_, shape_, slots);
  workspace_ = Workspace(plan_.workspace);
  const auto rows = static_cast<std::size_t>(shape_.rows());
  for (int slot = 0; slot < slots; ++slot) {
    batches_.push_back({DeviceArray<std::int32_t>("batch tokens", rows),
                        DeviceArray<std::int32_t>("batch positions", rows),
                        DeviceArray<std::int32_t>("batch labels", rows),
                        DeviceArray<float>("batch mask", rows)});
  }
  set_seed(exec_, state_view(), shape_.seed);
  state_.use = &data_parallel_;
  if (state_.groups.world->size() > 1) exec_.set_idle_work(&progress_);
  state_.groups.world->charge_to(&timers_);
}

template <class T>
TrainStep<T>::~TrainStep() {
  state_.use = nullptr;
  exec_.set_idle_work(nullptr);
  state_.groups.world->charge_to(nullptr);
}

template <class T>
MemoryPlan TrainStep<T>::measured_memory() const {
  using Master = typename ParamBuffer<T>::Master;
  const ParamBuffer<T>& params = state_.params;
  const auto bytes_of = [&](Slab slab) {
    return params.slab(slab).extent(0) * sizeof(Master);
  };
  MemoryPlan memory;
  memory.gradients = bytes_of(Slab::gradient);
  memory.optimizer = bytes_of(Slab::exp_avg) + bytes_of(Slab::exp_avg_sq);
  memory.weights = params.bytes() - memory.gradients - memory.optimizer;
  for (const SlotBatch& batch : batches_) {
    memory.batch +=
        (batch.tokens.extent(0) + batch.positions.extent(0) + batch.labels.extent(0)) *
            sizeof(std::int32_t) +
        batch.mask.extent(0) * sizeof(float);
  }
  memory.workspace = workspace_.peaks();
  memory.saved_by_category = workspace_.saved_peaks();
  const comm::ProcessGroups& groups = state_.groups;
  memory.buffers = data_parallel_.bytes();
  if (!kHostExecution) return memory;  // copies for messages are no memory of the device
  for (const comm::Communicator* group : groups.of_axes()) {
    memory.buffers += group->staging_bytes();
  }
  return memory;
}

template <class T>
nn::Context TrainStep<T>::context(int slot, nn::Mode mode) {
  return {.exec = exec_,
          .groups = state_.groups,
          .step = kernels::StepStateView(step_state_.data()),
          .saved = workspace_.saved(0, slot),
          .scratch = workspace_.scratch(),
          .held = workspace_.held(),
          .sequence = shape_.sequence,
          .batch = shape_.micro,
          .mode = mode,
          .sequence_parallel = state_.sequence_parallel(),
          .params = &data_parallel_};
}

template <class T>
void TrainStep<T>::load(int slot, const HostBatch& batch) {
  SlotBatch& to = batches_[static_cast<std::size_t>(slot)];
  copy_to_device(exec_, batch.tokens, to.tokens);
  copy_to_device(exec_, batch.positions, to.positions);
  copy_to_device(exec_, batch.labels, to.labels);
  copy_to_device(exec_, batch.mask, to.mask);
  to.first_sample = batch.first_sample;
}

template <class T>
void TrainStep<T>::select_sample(const SlotBatch& batch) {
  set_sample_base(exec_, state_view(), batch.first_sample);
}

template <class T>
void TrainStep<T>::forward(const FetchBatch& fetch, int microbatch, int slot,
                           nn::Mode mode) {
  {
    const Region region(timers_, Section::data);
    load(slot, fetch(microbatch));
  }
  const SlotBatch& batch = batches_[static_cast<std::size_t>(slot)];
  select_sample(batch);
  workspace_.saved(0, slot).reset();
  model::Boundary<T> none;
  state_.chunk.forward(context(slot, mode), slot, batch.view(), none, none, totals_);
}

template <class T>
struct TrainStep<T>::Handler {
  TrainStep& step;
  const FetchBatch& fetch;
  int weight_passes = 0;  // begun

  void forward(const schedule::Action& action) {
    const Region region(step.timers_, Section::forward);
    step.forward(fetch, action.microbatch, action.slot, nn::Mode::training);
  }
  void backward(const schedule::Action& action) {
    backward(action, model::WeightPass::now);
  }
  void backward_input(const schedule::Action& action) {
    backward(action, model::WeightPass::later);
  }
  void backward_weight(const schedule::Action& action) {
    const Region region(step.timers_, Section::backward);
    count_weight_pass();
    const SlotBatch& batch = step.batches_[static_cast<std::size_t>(action.slot)];
    step.select_sample(batch);
    step.state_.chunk.backward_weight(step.context(action.slot, nn::Mode::training),
                                      action.slot, batch.view());
  }
  void begin_message(const schedule::Action& action) {
    throw Error(
        fmt::format("a pipeline of one stage has no {}", schedule::name_of(action.kind)));
  }

 private:
  void count_weight_pass() {
    const int last = step.shape_.microbatches;
    step.data_parallel_.begin_microbatch(weight_passes == 0, weight_passes == last - 1);
    ++weight_passes;
  }
  void backward(const schedule::Action& action, model::WeightPass weight_pass) {
    const Region region(step.timers_, Section::backward);
    if (weight_pass == model::WeightPass::now) count_weight_pass();
    const SlotBatch& batch = step.batches_[static_cast<std::size_t>(action.slot)];
    step.select_sample(batch);
    const model::Boundary<T> none;
    step.state_.chunk.backward(step.context(action.slot, nn::Mode::training), action.slot,
                               batch.view(), none, none, weight_pass);
  }
};

template <class T>
void TrainStep<T>::set_microbatches(int count) {
  if (count == shape_.microbatches) return;
  shape_.microbatches = count;
  actions_ = schedule::no_pipelining(count);
  schedule::check(actions_, count, 1);
}

template <class T>
void TrainStep<T>::accumulate_gradients(const FetchBatch& fetch, index_t global_samples) {
  data_parallel_.begin_step();
  kernels::fill(exec_, View1<double>(totals_), 0.0);
  set_loss_scale(exec_, state_view(),
                 1.0 / static_cast<double>(global_samples * shape_.sequence));
  Handler handler{*this, fetch};
  schedule::execute(actions_, handler);
  const Region region(timers_, Section::communication);
  data_parallel_.finish_gradients();
}

template <class T>
void TrainStep<T>::update(optim::Optimizer<T>& optimizer) {
  for (std::size_t b = 0; b < state_.params.partition().buckets().size(); ++b) {
    optimizer.apply_bucket(exec_, state_view(), b);
    data_parallel_.start_gather(b);
  }
}

template <class T>
LossTotals TrainStep<T>::evaluate(const FetchBatch& fetch, int microbatches) {
  kernels::fill(exec_, View1<double>(totals_), 0.0);
  for (int m = 0; m < microbatches; ++m) forward(fetch, m, 0, nn::Mode::evaluation);
  const auto host = Kokkos::create_mirror_view(totals_);
  Kokkos::deep_copy(exec_.space(), host, totals_);
  exec_.fence("evaluate");
  return {host(0), host(1)};
}

template <class T>
std::string TrainStep<T>::locate_non_finite(const FetchBatch& fetch) {
  for (int m = 0; m < shape_.microbatches; ++m) {
    forward(fetch, m, 0, nn::Mode::training);
    const std::string place =
        state_.chunk.locate_non_finite(context(0, nn::Mode::training), 0);
    // Passes are made together: all ranks stop where one has found it.
    if (!state_.groups.world->any(!place.empty())) continue;
    return place.empty() ? place : fmt::format("micro-batch {}: {}", m, place);
  }
  return {};
}

template <class T>
void TrainStep<T>::begin_step(std::uint64_t step, double learning_rate,
                              double bias_correction1, double bias_correction2) {
  set_step(exec_, state_view(), step, learning_rate, bias_correction1, bias_correction2);
}

#define TRIREME_INSTANTIATE(T) template class TrainStep<T>;
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::engine
