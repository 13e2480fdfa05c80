// The resolved deck of a GPT, to the byte: what is new for other kinds of models is not
// written there, and a checkpoint's deck is what it was.
#include <gtest/gtest.h>

#include "deck_testing.hpp"

namespace trireme::config {
namespace {

// As versions wrote it that had no other kind.
const char* const kResolved = R"(# Resolved deck: every default is written out.
model:
  kind: gpt
  layers: 4
  hidden: 64
  heads: 4
  head_size: 16
  ffn_hidden: 256
  sequence: 32
  vocab: 211
  dropout: 0.1
  attention_dropout: 0.1
  init_std: 0.02
  kv_heads: 4
  norm: layernorm
  activation: gelu_tanh
  position: learned
  bias: true
  tie_embeddings: true
data:
  train: corpus.h5
  validation: none
  split: [0.98, 0.02, 0]
  seed: 1234
  mask_eod_loss: false
batch:
  micro: 1
  global: 32
  ramp_up: none
parallel:
  tensor: 1
  pipeline: 1
  virtual_pipeline: 1
  context: 1
  data: auto
  sequence: false
  zero: 1
  order: [tensor, context, data, pipeline]
  schedule: 1f1b
  stages: auto
  balance: modelled
precision:
  compute: fp32
  gradients: fp32
  gemm: auto
  attention: auto
  loss_scale:
    dynamic: true
    initial: 65536
    minimum: 1
    window: 1000
    hysteresis: 2
memory:
  recompute: none
  recompute_layers: 0
optimizer:
  kind: adamw
  lr: 0.0003
  min_lr: 3e-05
  schedule: cosine
  warmup: 0
  decay: 1000
  cooldown: 100
  betas: [0.9, 0.95]
  eps: 1e-08
  weight_decay: 0.1
  clip_norm: 1
run:
  steps: 1000
  stop_after: never
  seed: 1234
  dir: runs/test
  log_every: 10
  validate_every: 100
  validate_samples: 4096
  sample_every: 0
  deterministic: true
  time_limit: none
  hang_timeout: 10m
  max_idle_starts: 3
  probe: false
  reference: none
  preflight: false
  tensorboard: false
checkpoint:
  every: 500
  keep: 3
  keep_every: 0
  keep_best: true
  async: true
  writers: per_rank
  max_misses: 3
  dir: runs/test/checkpoints
  on_signal: [USR1, TERM]
  wall_time_margin: auto
)";

TEST(ResolvedDeck, GptIsUnchanged) {
  EXPECT_EQ(resolved_text(small_with({})), kResolved);
  EXPECT_EQ(resolved_text(small_with({"model.kind=gpt"})), kResolved);
  EXPECT_EQ(resolved_text(parse_resolved(kResolved)), kResolved);
}

}  // namespace
}  // namespace trireme::config
