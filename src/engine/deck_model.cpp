// engine/deck_model.cpp — see deck_model.hpp.
#include "engine/deck_model.hpp"

#include "base/error.hpp"
#include "engine/generation.hpp"

namespace trireme::engine {

model::GptConfig gpt_config(const config::Deck& deck) {
  const config::ModelConfig& m = deck.model;
  return {.layers = m.layers,
          .hidden = m.hidden,
          .heads = m.heads,
          .kv_heads = m.kv_heads,
          .ffn_hidden = m.ffn_hidden,
          .sequence = m.sequence,
          .vocabulary = m.vocab,
          .dropout = m.dropout,
          .attention_dropout = m.attention_dropout,
          .init_std = m.init_std,
          .norm = m.norm,
          .activation = m.activation,
          .position = m.position,
          .bias = m.bias,
          .tie_embeddings = m.tie_embeddings};
}

comm::GridShape grid_shape(const config::Deck& deck) {
  const config::ParallelConfig& p = deck.parallel;
  return {.tensor = p.tensor,
          .context = p.context,
          .data = p.data,
          .pipeline = p.pipeline,
          .order = p.order};
}

Sharing sharing(const config::Deck& deck) {
  return {.sequence_parallel = deck.parallel.sequence, .zero = deck.parallel.zero};
}

kernels::AdamWDesc adamw_desc(const config::Deck& deck) {
  const config::OptimizerConfig& o = deck.optimizer;
  return {.beta1 = o.betas[0],
          .beta2 = o.betas[1],
          .epsilon = o.eps,
          .weight_decay = o.weight_decay};
}

namespace {

optim::LrSchedule::Kind schedule_kind(config::Schedule schedule) {
  using Kind = optim::LrSchedule::Kind;
  switch (schedule) {
    case config::Schedule::cosine:
      return Kind::cosine;
    case config::Schedule::linear:
      return Kind::linear;
    case config::Schedule::constant:
      return Kind::constant;
    case config::Schedule::inverse_sqrt:
      return Kind::inverse_sqrt;
    case config::Schedule::wsd:
      return Kind::wsd;
  }
  throw Error("not a schedule");
}

}  // namespace

optim::LrSchedule lr_schedule(const config::Deck& deck) {
  const config::OptimizerConfig& o = deck.optimizer;
  return {.kind = schedule_kind(o.schedule),
          .lr = o.lr,
          .min_lr = o.min_lr,
          .warmup = o.warmup.steps,
          .decay = o.decay.steps,
          .cooldown = o.cooldown.steps};
}

StepShape step_shape(const config::Deck& deck) {
  return {.micro = deck.batch.micro,
          .sequence = deck.model.sequence,
          .microbatches = static_cast<int>(deck.microbatches()),
          .seed = deck.run.seed};
}

MemoryPlan plan_memory(const ModelState<float>& state, const config::Deck& deck) {
  MemoryPlan plan = plan_memory(state, step_shape(deck), 1);
  if (deck.run.sample_every.steps > 0) {
    plan.generation = Generator<float>::planned_bytes(state);
  }
  return plan;
}

}  // namespace trireme::engine
