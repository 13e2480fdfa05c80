// step/train_step.cpp — see train_step.hpp.
#include "step/train_step.hpp"

#include "base/error.hpp"
#include "base/plural.hpp"
#include "comm/group.hpp"
#include "kernels/initialize.hpp"
#include "schedule/plan.hpp"
#include "step/shape_pass.hpp"

namespace trireme::step {

namespace {

void copy_to_device(const Exec& exec, const void* from, std::byte* to,
                    std::size_t bytes) {
  const Kokkos::View<const std::byte*, Kokkos::HostSpace,
                     Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      host(static_cast<const std::byte*>(from), bytes);
  copy(exec, View1<std::byte>(to, bytes), host);
}

void set_sample_base(const Exec& exec, View0<kernels::StepState> state,
                     std::uint64_t base) {
  launch(
      exec, "trireme::step::set_sample_base", 1,
      KOKKOS_LAMBDA(const index_t) { state().sample_base = base; });
}

void set_loss_scale(const Exec& exec, View0<kernels::StepState> state, double scale) {
  launch(
      exec, "trireme::step::set_loss_scale", 1,
      KOKKOS_LAMBDA(const index_t) { state().loss_gradient_scale = scale; });
}

void set_seed(const Exec& exec, View0<kernels::StepState> state, std::uint64_t seed) {
  launch(
      exec, "trireme::step::set_seed", 1, KOKKOS_LAMBDA(const index_t) {
        state() = kernels::StepState{};
        state().seed = seed;
      });
}

// Of what goes from stage to stage.
template <class T>
std::vector<BorderElements> border_elements(const ModelState<T>& state,
                                            const StepShape& shape) {
  ModelState<T> shapes = state.without_memory();
  return ShapePass<T>(shapes, shape).border_elements();
}

}  // namespace

template <class T>
TrainStep<T>::TrainStep(const Exec& exec, ModelState<T>& state, const StepShape& shape,
                        Timers& timers)
    : exec_(exec),
      state_(state),
      progress_(*state.groups.world),
      data_parallel_(exec, state.groups, state.params, state.sequence_parallel()),
      shape_(shape),
      timers_(timers),
      plans_(state.sharing.pipeline, state.blueprint, shape),
      needs_(plans_.needs(state.groups.pipeline->rank())),
      work_(training_work(shape.microbatches)),
      params_(state, data_parallel_),
      times_(state.chunks.size()),
      plan_(plan_memory(state, shape, needs_)),
      workspace_(plan_.workspace),
      borders_(border_elements(state, shape)),
      messages_(exec, state.groups, largest(borders_), needs_.buffers,
                state.sequence_parallel()),
      step_state_("step state", 1),
      totals_("step totals", 2) {
  for (std::size_t c = 0; c < state_.chunks.size(); ++c) {
    state_.chunks[c]->set_slot_count(needs_.slots[c]);
  }
  make_batches();
  set_seed(exec_, state_view(), shape_.seed);
  state_.use = &data_parallel_;
  if (state_.groups.world->size() > 1) exec_.set_idle_work(&progress_);
  state_.groups.world->charge_to(&timers_);
}

template <class T>
void TrainStep<T>::make_batches() {
  const BatchSpec spec = shape_.batch_spec(state_.blueprint.batch);
  std::size_t bytes = 0;
  for (const std::size_t index : state_.fields()) {
    const FieldSpec& field = spec.fields[index];
    fields_.push_back(
        {index, bytes, extent(spec.elements(field, shape_.micro)) * size_of(field.type)});
    bytes += bytes_of_field(spec, index, shape_.micro);
  }
  for (int i = 0; i < needs_.batches; ++i) {
    SlotBatch& batch = batches_.emplace_back();
    batch.view = shape_.micro_batch(state_.blueprint.batch);
    batch.memory = DeviceArray<std::byte>("batch", bytes);
    for (const LoadedField& field : fields_) {
      batch.view.set(field.index, batch.memory.data() + field.begin,
                     batch.view.elements(field.index));
    }
  }
}

template <class T>
typename TrainStep<T>::Work TrainStep<T>::training_work(int microbatches) const {
  schedule::StagePlan mine =
      plans_.training(state_.groups.pipeline->rank(), microbatches);
  BatchPlaces batches = batch_places(mine.actions, microbatches);
  return {std::move(mine.actions), std::move(batches)};
}

template <class T>
typename TrainStep<T>::Work TrainStep<T>::evaluation_work(int microbatches) const {
  schedule::StagePlan mine =
      plans_.evaluation(state_.groups.pipeline->rank(), microbatches);
  BatchPlaces batches = batch_places(mine.actions, microbatches);
  TRIREME_REQUIRE(mine.buffers <= needs_.buffers && batches.count <= needs_.batches,
                  "an evaluation of {} takes {} and {} at a time, the step has {} and {}",
                  format_plural(microbatches, "micro-batch", "micro-batches"),
                  format_plural(mine.buffers, "buffer"),
                  format_plural(batches.count, "batch", "batches"), needs_.buffers,
                  needs_.batches);
  return {std::move(mine.actions), std::move(batches)};
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
  for (const SlotBatch& batch : batches_) memory.batch += batch.memory.extent(0);
  memory.workspace = workspace_.peaks();
  memory.saved_by_category = workspace_.saved_peaks();
  memory.buffers = data_parallel_.bytes() + messages_.bytes();
  if constexpr (kHostExecution) {  // else copies for messages are no memory of the device
    for (const comm::Group* group : state_.groups.all()) {
      memory.buffers += group->staging_bytes();
    }
  }
  return memory;
}

template <class T>
void TrainStep<T>::load(SlotBatch& to, const HostBatch& batch) {
  for (const LoadedField& field : fields_) {
    const void* const from = batch.fields.at(field.index);
    TRIREME_REQUIRE(from != nullptr, "field '{}' of a micro-batch was not filled",
                    state_.blueprint.batch.fields[field.index].name);
    copy_to_device(exec_, from, to.memory.data() + field.begin, field.bytes);
  }
  to.first_sample = batch.first_sample;
}

template <class T>
void TrainStep<T>::select_sample(const SlotBatch& batch) {
  set_sample_base(exec_, state_view(), batch.first_sample);
}

template <class T>
struct TrainStep<T>::Handler {
  using Action = schedule::Action;

  TrainStep& step;
  const Work& work;
  const FetchBatch& fetch;
  nn::Mode mode = nn::Mode::training;
  BadPlace* bad = nullptr;  // to look for one
  int fetched = 0;          // micro-batches: their first pass on a stage is in order

  void forward(const Action& action) {
    const Region region(
        step.timers_, Section::forward,
        label(action, mode == nn::Mode::training ? "forward" : "evaluation"));
    SlotBatch& batch = batch_of(action);
    if (action.microbatch == fetched) {
      const Region data(step.timers_, Section::data);
      step.load(batch, fetch(fetched++));
    }
    step.select_sample(batch);
    const nn::Context context = this->context(action);
    context.saved->reset();
    model::Chunk<T>& chunk = step.state_.chunk(action.chunk);
    const model::Tensors<T> in = input(action, context, chunk.border_in());
    const model::Tensors<T> out = output(action, context, chunk.border_out());
    step.params_.begin_pass(action);
    const auto begin = PassTimes::Clock::now();
    chunk.forward(context, action.slot, in, out);
    note(action, PassTimes::Pass::forward, begin);
    if (bad != nullptr && bad->part.empty()) look(action, context);
  }
  void backward(const Action& action) { backward(action, model::WeightPass::now); }
  void backward_input(const Action& action) {
    backward(action, model::WeightPass::later);
  }
  void backward_weight(const Action& action) {
    const Region region(step.timers_, Section::backward,
                        label(action, "weight gradients"));
    const SlotBatch& batch = batch_of(action);
    step.select_sample(batch);
    step.params_.begin_pass(action);
    const auto begin = PassTimes::Clock::now();
    step.state_.chunk(action.chunk).backward_weight(context(action), action.slot);
    note(action, PassTimes::Pass::weight, begin);
  }
  void begin_message(const Action& action) {
    const auto begin = PassTimes::Clock::now();
    step::begin_message(step.messages_,
                        step.state_.sharing.pipeline.shape(step.shape_.microbatches),
                        step.state_.groups.pipeline->rank(), step.borders_, action);
    if (counts()) step.times_.add_message(PassTimes::Clock::now() - begin);
  }

 private:
  bool counts() const { return mode == nn::Mode::training && !step.is_first_step_; }
  static RegionLabel label(const Action& action, const char* name) {
    return {.name = name, .microbatch = action.microbatch, .chunk = action.chunk};
  }
  void note(const Action& action, PassTimes::Pass pass,
            PassTimes::Clock::time_point begin) const {
    // On a GPU a pass has to end with its region where that is recorded.
    if (step.timers_.trace() != nullptr) step.exec_.fence("trace");
    if (counts()) step.times_.add(action.chunk, pass, PassTimes::Clock::now() - begin);
  }
  void look(const Action& action, const nn::Context& context) const {
    const auto& layout = step.state_.sharing.pipeline;
    bad->part = step.state_.chunk(action.chunk).locate_non_finite(context, action.slot);
    bad->piece = layout.shape(1).piece(step.state_.groups.pipeline->rank(), action.chunk);
  }
  SlotBatch& batch_of(const Action& action) const {
    const auto m = static_cast<std::size_t>(action.microbatch);
    return step.batches_[static_cast<std::size_t>(work.batches.of_microbatch[m])];
  }
  nn::Context context(const Action& action) const {
    Workspace& workspace = step.workspace_;
    const int shared =  // by passes that leave nothing in it
        step.needs_.has_weight_passes ? step.state_.sharing.pipeline.chunks : 0;
    Arena& held = action.held == Action::kNone
                      ? workspace.held(shared)
                      : workspace.held(action.chunk, action.held);
    return {.exec = step.exec_,
            .groups = step.state_.groups,
            .step = kernels::StepStateView(step.step_state_.data()),
            .saved = &workspace.saved(action.chunk, action.slot),
            .scratch = workspace.scratch(),
            .held = held,
            .batch = batch_of(action).view,
            .totals = step.totals_,
            .mode = mode,
            .sequence_parallel = step.state_.sequence_parallel(),
            .params = &step.data_parallel_,
            .recompute = step.shape_.recompute};
  }
  model::Tensors<T> input(const Action& action, const nn::Context& context,
                          const model::Border& border) const {
    if (action.in == Action::kNone) return {};
    return model::tensors_of(context, border, step.messages_.received(action.in).data());
  }
  model::Tensors<T> output(const Action& action, const nn::Context& context,
                           const model::Border& border) const {
    if (action.out == Action::kNone) return {};
    return model::tensors_of(context, border, step.messages_.to_fill(action.out).data());
  }
  void backward(const Action& action, model::WeightPass weight_pass) {
    const Region region(
        step.timers_, Section::backward,
        label(action,
              weight_pass == model::WeightPass::now ? "backward" : "input gradients"));
    const SlotBatch& batch = batch_of(action);
    step.select_sample(batch);
    const nn::Context context = this->context(action);
    model::Chunk<T>& chunk = step.state_.chunk(action.chunk);
    const model::Tensors<T> d_out = input(action, context, chunk.border_out());
    const model::Tensors<T> d_in = output(action, context, chunk.border_in());
    step.params_.begin_pass(action);
    const auto begin = PassTimes::Clock::now();
    chunk.backward(context, action.slot, d_out, d_in, weight_pass);
    note(action, PassTimes::Pass::backward, begin);
  }
};

template <class T>
void TrainStep<T>::run(const Work& work, const FetchBatch& fetch, nn::Mode mode,
                       BadPlace* bad) {
  params_.begin(work.actions, shape_.microbatches);
  Handler handler{*this, work, fetch, mode, bad};
  schedule::execute(work.actions, handler);
  params_.end();
  messages_.finish();
}

template <class T>
void TrainStep<T>::set_microbatches(int count) {
  if (count == shape_.microbatches) return;
  work_ = training_work(count);
  shape_.microbatches = count;
  times_ = PassTimes(state_.chunks.size());  // those of steps like these
}

template <class T>
void TrainStep<T>::accumulate_gradients(const FetchBatch& fetch, index_t global_samples) {
  data_parallel_.begin_step();
  kernels::fill(exec_, View1<double>(totals_), 0.0);
  set_loss_scale(exec_, state_view(),
                 1.0 / static_cast<double>(global_samples * shape_.sequence));
  const auto begin = PassTimes::Clock::now();
  run(work_, fetch, nn::Mode::training);
  if (!is_first_step_) times_.add_step(PassTimes::Clock::now() - begin);
  is_first_step_ = false;
  const Region region(timers_, Section::communication, {.name = "finish gradients"});
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
  run(evaluation_work(microbatches), fetch, nn::Mode::evaluation);
  state_.groups.pipeline->all_reduce(exec_, comm::span_of(View1<double>(totals_)),
                                     comm::Op::sum, "loss of the last stage");
  const auto host = Kokkos::create_mirror_view(totals_);
  Kokkos::deep_copy(exec_.space(), host, totals_);
  exec_.fence("evaluate");
  return {host(0), host(1)};
}

// What a piece hands on is not finite from then on: the first one tells.
template <class T>
typename TrainStep<T>::BadPlace TrainStep<T>::first_of_pipeline(
    const BadPlace& mine) const {
  comm::Communicator& pipeline = state_.groups.pipeline->control();
  const std::vector<std::int64_t> pieces = pipeline.gather(std::int64_t{mine.piece});
  const std::vector<std::string> parts = pipeline.gather(mine.part);
  BadPlace first;
  for (std::size_t stage = 0; stage < parts.size(); ++stage) {
    const auto piece = static_cast<int>(pieces[stage]);
    if (parts[stage].empty() || (!first.part.empty() && piece > first.piece)) continue;
    first = {piece, parts[stage]};
  }
  return first;
}

template <class T>
std::string TrainStep<T>::locate_non_finite(const FetchBatch& fetch) {
  const Work one = evaluation_work(1);
  for (int m = 0; m < shape_.microbatches; ++m) {
    BadPlace mine;
    run(
        one, [&](int) { return fetch(m); }, nn::Mode::training, &mine);
    const std::string place = first_of_pipeline(mine).part;
    // Passes are made together: all ranks stop where one has found it.
    if (!state_.groups.world->any(!place.empty())) continue;
    return place.empty() ? std::string() : fmt::format("micro-batch {}: {}", m, place);
  }
  return {};
}

#define TRIREME_INSTANTIATE(T) template class TrainStep<T>;
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::step
