// The table of keys and the page that is made from it.
#include "config/schema.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace trireme::config {
namespace {

TEST(SchemaKeys, AreDescribed) {
  std::set<std::string> paths;
  for (const KeyInfo& info : schema()) {
    EXPECT_TRUE(paths.insert(info.path).second) << info.path << " stands there twice";
    EXPECT_FALSE(info.type.empty()) << info.path;
    EXPECT_FALSE(info.default_value.empty()) << info.path;
    EXPECT_FALSE(info.allowed.empty()) << info.path;
    EXPECT_FALSE(info.description.empty()) << info.path;
  }
  // The contract's keys.
  for (const char* path : {"model.kind",
                           "model.layers",
                           "model.hidden",
                           "model.heads",
                           "model.ffn_hidden",
                           "model.sequence",
                           "model.vocab",
                           "model.dropout",
                           "model.attention_dropout",
                           "model.init_std",
                           "model.kv_heads",
                           "model.head_size",
                           "model.norm",
                           "model.activation",
                           "model.position",
                           "model.bias",
                           "model.tie_embeddings",
                           "data.train",
                           "data.validation",
                           "data.split",
                           "data.seed",
                           "data.mask_eod_loss",
                           "batch.micro",
                           "batch.global",
                           "batch.ramp_up",
                           "parallel.tensor",
                           "parallel.pipeline",
                           "parallel.virtual_pipeline",
                           "parallel.context",
                           "parallel.data",
                           "parallel.sequence",
                           "parallel.zero",
                           "parallel.order",
                           "parallel.schedule",
                           "parallel.stages",
                           "precision.compute",
                           "memory.recompute",
                           "memory.recompute_layers",
                           "optimizer.kind",
                           "optimizer.lr",
                           "optimizer.min_lr",
                           "optimizer.schedule",
                           "optimizer.warmup",
                           "optimizer.decay",
                           "optimizer.betas",
                           "optimizer.eps",
                           "optimizer.weight_decay",
                           "optimizer.clip_norm",
                           "run.steps",
                           "run.stop_after",
                           "run.seed",
                           "run.dir",
                           "run.log_every",
                           "run.validate_every",
                           "run.validate_samples",
                           "run.sample_every",
                           "run.deterministic",
                           "run.time_limit",
                           "run.hang_timeout",
                           "run.max_idle_starts",
                           "run.probe",
                           "run.preflight",
                           "checkpoint.every",
                           "checkpoint.keep",
                           "checkpoint.keep_every",
                           "checkpoint.keep_best",
                           "checkpoint.async",
                           "checkpoint.writers",
                           "checkpoint.max_misses",
                           "checkpoint.dir",
                           "checkpoint.on_signal",
                           "checkpoint.wall_time_margin"}) {
    EXPECT_EQ(paths.count(path), 1u) << path;
  }
}

// docs/deck.md is this program's own output. TRIREME_UPDATE_DOCS=1 writes it anew.
TEST(SchemaPage, IsWhatTheTableSays) {
  const char* root = std::getenv("TRIREME_SOURCE_DIR");
  ASSERT_NE(root, nullptr);
  const std::string path = std::string(root) + "/docs/deck.md";
  if (std::getenv("TRIREME_UPDATE_DOCS") != nullptr)
    std::ofstream(path) << schema_markdown();
  std::ostringstream page;
  page << std::ifstream(path).rdbuf();
  EXPECT_EQ(page.str(), schema_markdown())
      << "docs/deck.md is out of date: TRIREME_UPDATE_DOCS=1 ctest -R unit.config.schema";
}

}  // namespace
}  // namespace trireme::config
