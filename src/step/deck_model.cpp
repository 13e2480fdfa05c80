// step/deck_model.cpp — see deck_model.hpp.
#include "step/deck_model.hpp"

#include "base/error.hpp"
#include "ckpt/manifest.hpp"
#include "kernels/attention.hpp"
#include "kernels/narrow_gemm.hpp"
#include "model/blueprint.hpp"
#include "nn/context.hpp"
#include "step/attention_choice.hpp"

namespace trireme::step {

std::string vocabulary_tensor(const config::Deck& deck) {
  const model::Blueprint blueprint = model::make_blueprint(deck.model);
  return ckpt::kModelGroup + blueprint.vocabulary_table().parameter();
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
  return {.sequence_parallel = deck.parallel.sequence,
          .zero = deck.parallel.zero,
          .pipeline = pipeline_layout(deck),
          .narrow_gradients = deck.precision.gradients != config::Gradients::fp32};
}

PipelineLayout pipeline_layout(const config::Deck& deck) {
  const config::ParallelConfig& p = deck.parallel;
  PipelineLayout layout{.stages = p.pipeline,
                        .chunks = p.virtual_pipeline,
                        .split = {p.stages.begin(), p.stages.end()},
                        .schedule = p.schedule};
  if (layout.split.empty()) {
    layout.split =
        balanced_split(layout, model::make_blueprint(deck.model), step_shape(deck));
  }
  return layout;
}

kernels::AdamWDesc adamw_desc(const config::Deck& deck) {
  const config::OptimizerConfig& o = deck.optimizer;
  return {.beta1 = o.betas[0],
          .beta2 = o.betas[1],
          .epsilon = o.eps,
          .weight_decay = o.weight_decay};
}

optim::LrSchedule lr_schedule(const config::Deck& deck) {
  const config::OptimizerConfig& o = deck.optimizer;
  return {.kind = o.schedule,
          .lr = o.lr,
          .min_lr = o.min_lr,
          .warmup = o.warmup.steps,
          .decay = o.decay.steps,
          .cooldown = o.cooldown.steps};
}

DType compute_type(const config::Deck& deck) {
  switch (deck.precision.compute) {
    case config::Precision::bf16:
      return DType::bfloat16;
    case config::Precision::fp16:
      return DType::float16;
    case config::Precision::fp32:
      break;
  }
  return DType::float32;
}

Exec make_exec(const config::Deck& deck) {
  Exec exec;
  set_kernels(exec, deck);
  return exec;
}

void set_kernels(const Exec& exec, const config::Deck& deck) {
  TRIREME_REQUIRE_INPUT(deck.precision.attention != config::AttentionKernels::cudnn ||
                            kernels::has_cudnn_attention(),
                        "precision.attention: cudnn: this build of trireme has no cuDNN. "
                        "Set it to auto, or build for NVIDIA GPUs where CMake "
                        "finds cudnn_frontend.h (docs/developer/cuda.md)");
  const DType type = compute_type(deck);
  if (type != DType::float32 && deck.precision.gemm != config::Products::automatic) {
    kernels::set_narrow_products(exec, type,
                                 deck.precision.gemm == config::Products::native
                                     ? kernels::NarrowProducts::native
                                     : kernels::NarrowProducts::widened);
  }
}

namespace {

nn::Recompute recompute(const config::Deck& deck) {
  const config::MemoryConfig& memory = deck.memory;
  nn::Recompute result;
  result.selective = memory.recompute == config::Recompute::selective;
  if (memory.recompute == config::Recompute::full) {
    result.layers = memory.recompute_layers == 0 ? nn::Recompute::kAllLayers
                                                 : memory.recompute_layers;
  }
  return result;
}

// Numbers of micro-batches of steps in the ramp, each once.
std::vector<int> ramp_microbatches(const config::Deck& deck) {
  std::vector<int> counts;
  if (!deck.batch.ramp_up) return counts;
  const index_t at_once = deck.batch.micro * deck.parallel.data;
  const config::RampUp& ramp = *deck.batch.ramp_up;
  for (index_t size = ramp.start; size < deck.batch.global; size += ramp.increment) {
    counts.push_back(static_cast<int>(size / at_once));
  }
  return counts;
}

}  // namespace

StepShape step_shape(const config::Deck& deck) {
  return {.micro = deck.batch.micro,
          .sequence = deck.model.sequence,
          .microbatches = static_cast<int>(deck.microbatches()),
          .seed = deck.run.seed,
          .recompute = recompute(deck),
          .attention = attention_library(deck),
          .other_microbatches = ramp_microbatches(deck)};
}

}  // namespace trireme::step
