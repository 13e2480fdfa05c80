// step/train_step.cpp — see train_step.hpp.
//
// schedule::execute calls a Handler for each action of this stage's order, and every pass
// goes through Handler::pass: it waits for what the pass reads, tells who lends
// parameters what comes, runs the chunk, and notes what that took. That is also the one
// function where a step on shapes differs: PassRecords runs each kind of pass once, in
// the first slot and held slot, whose arenas then have the peaks of all of them.
#include "step/train_step.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <ranges>

#include "base/error.hpp"
#include "base/event.hpp"
#include "base/plural.hpp"
#include "base/queue.hpp"
#include "comm/group.hpp"
#include "kernels/initialize.hpp"
#include "kernels/narrow_gemm.hpp"
#include "model/chunk.hpp"
#include "nn/context.hpp"
#include "schedule/plan.hpp"
#include "tensor/arena.hpp"

namespace trireme::step {

namespace {

// Of a span that is no single pass, beside those of Pass.
constexpr int kAllPasses = -1;

void set_sample_base(const Exec& exec, View0<kernels::StepState> state,
                     std::uint64_t base) {
  launch(
      exec, "trireme::step::set_sample_base", 1,
      KOKKOS_LAMBDA(const index_t) { state().sample_base = base; });
}

void set_objective_count(const Exec& exec, View0<kernels::StepState> state, int objective,
                         double count) {
  launch(
      exec, "trireme::step::set_objective_count", 1,
      KOKKOS_LAMBDA(const index_t) { state().objective_count[objective] = count; });
}

void set_seed(const Exec& exec, View0<kernels::StepState> state, std::uint64_t seed) {
  launch(
      exec, "trireme::step::set_seed", 1, KOKKOS_LAMBDA(const index_t) {
        state() = kernels::StepState{};
        state().seed = seed;
      });
}

}  // namespace

template <class T>
TrainStep<T>::TrainStep(const Exec& exec, ModelState<T>& state, const StepShape& shape,
                        Timers& timers, PipelinePlans plans)
    : exec_(exec),
      state_(state),
      progress_(*state.groups.world),
      data_parallel_(exec, state.groups, state.params, state.sequence_parallel()),
      shape_(shape),
      timers_(timers),
      plans_(std::move(plans)),
      needs_(plans_.needs(state.groups.pipeline->rank())),
      work_(training_work(shape.microbatches)),
      params_(state, data_parallel_),
      spans_(exec, "kernels"),
      times_(state.chunks.size()),
      workspace_(make_workspace()),
      borders_(find_borders()),
      messages_(exec, state.groups, longest_message(), needs_.buffers,
                state.sequence_parallel(), state.sharing.pipeline.chunks > 1) {
  if (!is_on_shapes()) {
    step_state_ = DeviceArray<kernels::StepState>("step state", 1);
    totals_ = DeviceArray<double>("step totals", totals().extent(0));
    host_totals_ = PinnedArray<double>("step totals on the host", totals().extent(0));
  }
  for (std::size_t c = 0; c < state_.chunks.size(); ++c) {
    state_.chunks[c]->set_slot_count(needs_.slots[c]);
  }
  make_batches();
  set_seed(exec_, state_view(), shape_.seed);
  state_.use = &data_parallel_;
  if (is_on_shapes()) return;
  if (state_.groups.world->size() > 1) exec_.set_idle_work(&progress_);
  state_.groups.world->charge_to(&timers_);
  spans_.show_in(timers_.trace_sources());
}

// There is a held slot for each micro-batch whose weight gradients are still to come, and
// one more, for passes that leave nothing in it: where weight gradients come at once it
// is the only one, for all chunks.
template <class T>
Workspace TrainStep<T>::make_workspace() {
  if (!is_on_shapes()) {
    plan_ = plan_step(state_, shape_, plans_);
    plan_.memory.products = kernels::product_workspace_bytes(exec_, dtype_of<T>);
    return Workspace(plan_.memory.workspace);
  }
  std::vector<int> held_slots;
  if (needs_.has_weight_passes) held_slots = needs_.held_slots;
  held_slots.push_back(1);
  return Workspace(needs_.slots, held_slots);
}

template <class T>
nn::Context TrainStep<T>::plain_context(Arena& saved, Arena& scratch, Arena& held) const {
  return {.exec = exec_,
          .groups = state_.groups,
          .step = {},
          .saved = &saved,
          .scratch = scratch,
          .held = held,
          .batch = shape_.micro_batch(state_.blueprint.batch),
          .mode = nn::Mode::evaluation,
          .splits_sequence = state_.sequence_parallel(),
          .params = state_.use};
}

template <class T>
View2<T> TrainStep<T>::last_logits() {
  const model::Chunk<T>& chunk = *state_.chunks.back();
  const nn::Context context =
      plain_context(workspace_.saved(static_cast<int>(state_.chunks.size()) - 1, 0),
                    workspace_.scratch(), spare_held());
  const int stream = state_.blueprint.blocks.back().stream;
  const std::size_t rows = extent(context.on_stream(stream).rows());
  const std::size_t columns = extent(chunk.logit_columns());
  logits_ = DeviceArray<T>("logits", rows * columns);
  return chunk.logits_again(context, 0, View2<T>(logits_.data(), rows, columns));
}

template <class T>
auto TrainStep<T>::find_borders() const -> std::vector<BorderElements> {
  Arena none;
  const nn::Context context = plain_context(none, none, none);
  std::vector<BorderElements> all;
  for (const auto& chunk : state_.chunks) {
    all.push_back({model::elements_of(context, chunk->border_in()),
                   model::elements_of(context, chunk->border_out())});
  }
  return all;
}

template <class T>
index_t TrainStep<T>::longest_message() const {
  index_t most = 0;
  for (const BorderElements& chunk : borders_) {
    most = std::max({most, chunk.in, chunk.out});
  }
  return most;
}

template <class T>
std::size_t TrainStep<T>::staging_buffers() const {
  if constexpr (kHostExecution) return BatchStaging::kFewest;
  int most = shape_.microbatches;
  for (const int other : shape_.other_microbatches) most = std::max(most, other);
  return BatchStaging::buffers_of_steps(most, batch_bytes_);
}

template <class T>
void TrainStep<T>::make_batches() {
  const BatchSpec spec = shape_.batch_spec(state_.blueprint.batch);
  for (const std::size_t index : state_.fields()) {
    const FieldSpec& field = spec.fields[index];
    fields_.push_back(
        {index, batch_bytes_,
         extent(spec.elements(field, shape_.micro)) * size_of(field.type())});
    batch_bytes_ += bytes_of_field(spec, index, shape_.micro);
  }
  if (!is_on_shapes()) staging_ = BatchStaging(batch_bytes_, staging_buffers());
  for (int i = 0; i < needs_.batches; ++i) {
    DeviceBatch& batch = batches_.emplace_back();
    batch.view = shape_.micro_batch(state_.blueprint.batch);
    if (is_on_shapes()) continue;
    batch.memory = DeviceArray<std::byte>("batch", batch_bytes_);
    for (const LoadedField& field : fields_) {
      batch.view.set(field.index, batch.memory.data() + field.begin,
                     batch.view.elements(field.index));
    }
  }
}

template <class T>
typename TrainStep<T>::Work TrainStep<T>::training_work(int microbatches) const {
  auto plan = plans_.training(state_.groups.pipeline->rank(), microbatches);
  BatchSlots batches = batch_slots(plan->actions, microbatches);
  return {std::move(plan), std::move(batches)};
}

template <class T>
typename TrainStep<T>::Work TrainStep<T>::evaluation_work(int microbatches) const {
  auto plan = plans_.evaluation(state_.groups.pipeline->rank(), microbatches);
  BatchSlots batches = batch_slots(plan->actions, microbatches);
  TRIREME_REQUIRE(plan->buffers <= needs_.buffers && batches.count <= needs_.batches,
                  "an evaluation of {} takes {} and {} at a time, the step has {} and {}",
                  format_plural(microbatches, "micro-batch", "micro-batches"),
                  format_plural(plan->buffers, "buffer"),
                  format_plural(batches.count, "batch", "batches"), needs_.buffers,
                  needs_.batches);
  return {std::move(plan), std::move(batches)};
}

template <class T>
TrainStep<T>::~TrainStep() {
  state_.use = nullptr;
  if (is_on_shapes()) return;
  exec_.set_idle_work(nullptr);
  state_.groups.world->charge_to(nullptr);
}

template <class T>
MemoryPlan TrainStep<T>::memory() const {
  const ParamBuffer<T>& params = state_.params;
  const auto bytes_of = [&](Slab slab) {
    return is_on_shapes() || params.has(slab) ? params.slab_bytes(slab) : 0;
  };
  MemoryPlan memory;
  memory.gradients = bytes_of(Slab::gradient);
  memory.optimizer = bytes_of(Slab::exp_avg) + bytes_of(Slab::exp_avg_sq);
  memory.weights = is_on_shapes() ? bytes_of(Slab::weight) + params.compute_bytes()
                                  : params.bytes() - memory.gradients - memory.optimizer;
  memory.batch = batches_.size() * batch_bytes_;
  memory.workspace = workspace_.peaks();
  memory.saved_by_category = workspace_.saved_peaks();
  if (!is_on_shapes()) memory.products = kernels::kept_by_products(exec_);
  memory.buffers = messages_.bytes();
  memory.buffers += is_on_shapes() ? parallel::DataParallel<T>::planned_bytes(
                                         params, state_.sequence_parallel())
                                   : data_parallel_.bytes();
  if constexpr (!kHostExecution) return memory;
  // Copies of messages and of batches; where there is a device they are no memory of it.
  memory.batch += staging_buffers() * batch_bytes_;
  if (is_on_shapes()) {
    memory.buffers += parallel::DataParallel<T>::planned_staging_bytes(params);
    return memory;
  }
  for (const comm::Group* group : state_.groups.all()) {
    memory.buffers += group->staging_bytes();
  }
  return memory;
}

template <class T>
void TrainStep<T>::load(DeviceBatch& to, const HostBatch& batch) {
  std::byte* const staged = staging_.next();
  for (const LoadedField& field : fields_) {
    const void* const from = batch.fields.at(field.index);
    TRIREME_REQUIRE(from != nullptr, "field '{}' of a micro-batch was not filled",
                    state_.blueprint.batch.fields[field.index].name);
    std::memcpy(staged + field.begin, from, field.bytes);
  }
  staging_.send(exec_, View1<std::byte>(to.memory.data(), batch_bytes_));
  to.first_sample = batch.first_sample;
}

template <class T>
struct TrainStep<T>::Handler {
  using Action = schedule::Action;
  using Border = model::Border;
  using Tensors = model::Tensors<T>;

  TrainStep& step;
  const Work& work;
  const FetchBatch& fetch;
  nn::Mode mode = nn::Mode::training;
  NonFinite* bad = nullptr;  // to look for one
  int fetched = 0;           // micro-batches: their first pass on a stage is in order

  void forward(const Action& action) {
    const model::Chunk<T>& chunk = chunk_of(action);
    pass(action, Pass::forward, chunk.border_in(), chunk.border_out(),
         [&](const nn::Context& context, const Tensors& in, const Tensors& out) {
           context.saved->reset();
           chunk_of(action).forward(context, slot_of(action), in, out);
         });
  }
  void backward(const Action& action) {
    backward(action, Pass::backward, model::WeightPass::now);
  }
  void backward_input(const Action& action) {
    backward(action, Pass::backward_input, model::WeightPass::later);
  }
  void backward_weight(const Action& action) {
    pass(action, Pass::backward_weight, {}, {},
         [&](const nn::Context& context, const Tensors&, const Tensors&) {
           chunk_of(action).backward_weight(context, slot_of(action));
         });
  }
  void begin_message(const Action& action) {
    const auto begin = PassTimes::Clock::now();
    const int other =
        schedule::route_of(step.state_.sharing.pipeline.shape(step.shape_.microbatches),
                           step.state_.groups.pipeline->rank(), action)
            .stage;
    const bool is_forward = action.kind == Action::Kind::recv_forward ||
                            action.kind == Action::Kind::send_forward;
    const auto way = is_forward ? parallel::Way::forward : parallel::Way::backward;
    const bool is_received = action.in == Action::kNone;
    const BorderElements& chunk = step.borders_[extent(action.chunk)];
    const index_t elements = is_received == is_forward ? chunk.in : chunk.out;
    if (is_received) {
      step.messages_.begin_recv(action.out, other, way, elements);
    } else {
      step.messages_.begin_send(action.in, other, way, elements);
    }
    // Beside a device the host's calls take nobody's time.
    if (counts() && !is_asynchronous(step.exec_)) {
      step.times_.add_message(PassTimes::Clock::now() - begin);
    }
  }

 private:
  void backward(const Action& action, Pass pass_of, model::WeightPass weight_pass) {
    const model::Chunk<T>& chunk = chunk_of(action);
    pass(action, pass_of, chunk.border_out(), chunk.border_in(),
         [&](const nn::Context& context, const Tensors& d_out, const Tensors& d_in) {
           chunk_of(action).backward(context, slot_of(action), d_out, d_in, weight_pass);
         });
  }

  // What every pass does around run(context, in, out).
  template <class Run>
  void pass(const Action& action, Pass pass, const Border& border_in,
            const Border& border_out, const Run& run) {
    if (step.is_on_shapes()) {
      select_sample(action);
      await_messages(action);
      step.params_.begin_pass(action);
      step.records_.pass(action.chunk, pass, step.data_parallel_,
                         [&](const Exec& exec, ParamUse& use) {
                           const nn::Context context = context_of(action, exec, use);
                           run(context, input(action, context, border_in),
                               output(action, context, border_out));
                         });
      return;
    }
    const bool is_forward = pass == Pass::forward;
    const Region region(
        step.timers_, is_forward ? Section::forward : Section::backward,
        {.name = name_of(pass), .microbatch = action.microbatch, .chunk = action.chunk});
    if (is_forward) fetch_first(action);
    select_sample(action);
    await_messages(action);
    const nn::Context context = context_of(action, step.exec_, step.data_parallel_);
    step.params_.begin_pass(action);
    const std::int64_t span = step.spans_.begin({.name = name_of(pass),
                                                 .microbatch = action.microbatch,
                                                 .chunk = action.chunk,
                                                 .kind = static_cast<int>(pass),
                                                 .is_counted = counts()});
    run(context, input(action, context, border_in), output(action, context, border_out));
    step.spans_.end(span);
    if (is_forward && bad != nullptr && bad->part.empty()) look(action, context);
  }
  void select_sample(const Action& action) const {
    set_sample_base(step.exec_, step.state_view(), batch_of(action).first_sample);
  }
  // Waits until what the pass reads is there and what it writes is free.
  void await_messages(const Action& action) const {
    if (action.in != Action::kNone) step.messages_.received(action.in);
    if (action.out != Action::kNone) step.messages_.to_fill(action.out);
  }
  // The first pass of a micro-batch on this stage brings its fields.
  void fetch_first(const Action& action) {
    if (action.microbatch != fetched) return;
    ++fetched;
    const Region data(step.timers_, Section::data);
    step.load(batch_of(action), fetch(action.microbatch));
  }
  bool counts() const { return mode == nn::Mode::training && !step.is_first_step_; }
  const char* name_of(Pass pass) const {
    if (pass == Pass::forward && mode == nn::Mode::evaluation) return "evaluation";
    constexpr std::array kNames = {"forward", "backward", "input gradients",
                                   "weight gradients"};
    return kNames.at(static_cast<std::size_t>(pass));
  }
  void look(const Action& action, const nn::Context& context) const {
    const auto& layout = step.state_.sharing.pipeline;
    bad->part = chunk_of(action).locate_non_finite(context, action.slot);
    bad->piece = layout.shape(1).piece(step.state_.groups.pipeline->rank(), action.chunk);
  }
  model::Chunk<T>& chunk_of(const Action& action) const {
    return step.state_.chunk(action.chunk);
  }
  int slot_of(const Action& action) const {
    return step.is_on_shapes() ? 0 : action.slot;
  }
  DeviceBatch& batch_of(const Action& action) const {
    const auto m = static_cast<std::size_t>(action.microbatch);
    return step.batches_[static_cast<std::size_t>(work.batches.of_microbatch[m])];
  }
  Arena& held_of(const Action& action) const {
    if (action.held != Action::kNone) {
      return step.workspace_.held(action.chunk, step.is_on_shapes() ? 0 : action.held);
    }
    return step.spare_held();
  }
  nn::Context context_of(const Action& action, const Exec& exec, ParamUse& use) const {
    return {.exec = exec,
            .groups = step.state_.groups,
            .step = kernels::StepStateView(step.step_state_.data()),
            .saved = &step.workspace_.saved(action.chunk, slot_of(action)),
            .scratch = step.workspace_.scratch(),
            .held = held_of(action),
            .batch = batch_of(action).view,
            .totals = step.totals(),
            .objective_counts = &step.counts_,
            .mode = mode,
            .gradients = bad == nullptr ? nn::Gradients::taken : nn::Gradients::none,
            .splits_sequence = step.state_.sequence_parallel(),
            .params = &use,
            .recompute = step.shape_.recompute,
            .attention = step.shape_.attention};
  }
  // Time in messages that were waited for.
  Tensors input(const Action& action, const nn::Context& context,
                const Border& border) const {
    if (action.in == Action::kNone) return {};
    return model::tensors_of(context, border, step.messages_.received(action.in).data());
  }
  Tensors output(const Action& action, const nn::Context& context,
                 const Border& border) const {
    if (action.out == Action::kNone) return {};
    return model::tensors_of(context, border, step.messages_.to_fill(action.out).data());
  }
};

template <class T>
void TrainStep<T>::run(const Work& work, const FetchBatch& fetch, nn::Mode mode,
                       NonFinite* bad) {
  spans_.take([this](const auto& label, double seconds) { add_time(label, seconds); });
  params_.begin(work.plan->actions, shape_.microbatches);
  Handler handler{*this, work, fetch, mode, bad};
  schedule::execute(work.plan->actions, handler);
  params_.end();
  messages_.finish();
  if (exec_.tally() != nullptr) records_.add_to(*exec_.tally(), plan_.passes);
}

template <class T>
void TrainStep<T>::set_microbatches(int count) {
  if (count == shape_.microbatches) return;
  work_ = training_work(count);
  shape_.microbatches = count;
  spans_.settle([this](const auto& label, double seconds) { add_time(label, seconds); });
  times_ = PassTimes(state_.chunks.size());  // those of steps like these
}

template <class T>
void TrainStep<T>::add_time(const QueueSpans::Label& label, double seconds) {
  if (!label.is_counted) return;
  const auto duration = std::chrono::duration_cast<PassTimes::Clock::duration>(
      std::chrono::duration<double>(seconds));
  if (label.kind == kAllPasses) {
    times_.add_step(duration);
  } else {
    times_.add(label.chunk, static_cast<Pass>(label.kind), duration);
    pass_seconds_ += seconds;
  }
}

// Replicas of a stage make the same objectives: no other stage takes part. The sum is
// waited for by the first block that makes one.
template <class T>
void TrainStep<T>::start_counts(const SumField& sum) {
  const auto& objectives = state_.blueprint.objectives;
  const int count = static_cast<int>(objectives.size());
  const auto makes = [&](int i) { return state_.makes_objective(i); };
  if (std::ranges::none_of(std::views::iota(0, count), makes)) return;
  for (int i = 0; i < count; ++i) {
    const Region data(timers_, Section::data);
    set_objective_count(exec_, state_view(), i,
                        makes(i) ? sum(objectives[extent(i)].mask) : 0.0);
  }
  kernels::StepState* const state = step_state_.data();
  const View1<double> counts(state == nullptr ? nullptr : state->objective_count,
                             extent(count));
  counts_ = state_.groups.gradient->start_all_reduce(exec_, comm::span_of(counts),
                                                     comm::Op::sum, "objective counts");
}

template <class T>
void TrainStep<T>::accumulate_gradients(const FetchBatch& fetch, const SumField& sum) {
  data_parallel_.begin_step();
  kernels::fill(exec_, totals(), 0.0);
  start_counts(sum);
  const std::int64_t span =
      spans_.begin({.kind = kAllPasses, .is_counted = !is_first_step_});
  run(work_, fetch, nn::Mode::training);
  spans_.end(span);
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
void TrainStep<T>::share_weights() {
  const ParamBuffer<T>& params = state_.params;
  if (params.is_whole(Slab::weight) || !params.is_compute_whole()) return;
  for (std::size_t b = 0; b < params.partition().buckets().size(); ++b) {
    data_parallel_.start_gather(b);
  }
  settle();
}

template <class T>
LossSums TrainStep<T>::evaluate(const FetchBatch& fetch, int microbatches) {
  kernels::fill(exec_, totals(), 0.0);
  run(evaluation_work(microbatches), fetch, nn::Mode::evaluation);
  state_.groups.pipeline->all_reduce(exec_, comm::span_of(totals()), comm::Op::sum,
                                     "objectives of all stages");
  copy_to_host(exec_, host_totals_.data(), totals());
  Event copied;
  copied.record(exec_);
  copied.wait();
  LossSums sums;
  for (std::size_t i = 0; i < host_totals_.extent(0); i += 2) {
    sums.push_back({host_totals_(i), host_totals_(i + 1)});
  }
  return sums;
}

// What a piece hands on is not finite from then on: the first one tells.
template <class T>
typename TrainStep<T>::NonFinite TrainStep<T>::first_of_pipeline(
    const NonFinite& mine) const {
  comm::Communicator& pipeline = state_.groups.pipeline->control();
  const std::vector<std::int64_t> pieces = pipeline.gather(std::int64_t{mine.piece});
  const std::vector<std::string> parts = pipeline.gather(mine.part);
  NonFinite first;
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
    NonFinite mine;
    run(
        one, [&](int) { return fetch(m); }, nn::Mode::training, &mine);
    const std::string part = first_of_pipeline(mine).part;
    // Passes are made together: all ranks stop where one has found it.
    if (!state_.groups.world->any(!part.empty())) continue;
    return part.empty() ? std::string() : fmt::format("micro-batch {}: {}", m, part);
  }
  return {};
}

#define TRIREME_INSTANTIATE(T) template class TrainStep<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::step
