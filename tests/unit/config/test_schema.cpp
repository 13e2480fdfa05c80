// The table of keys and the page that is made from it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "config/key_table.hpp"

namespace trireme::config {
namespace {

// Text in a table: a bar would end the cell.
std::string cell(const std::string& text) {
  if (text.empty()) return "–";
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

const char* const kIntroduction = R"(# The deck: every key

<!-- Written by the program from its own table of keys (src/config/key_table.cpp). After a
     change there: TRIREME_UPDATE_DOCS=1 ctest --test-dir build/release -R unit.config.schema -->

A run is described by one YAML file. All keys are listed here with type, unit, default and what
is allowed; `inputs/` has commented decks. The whole deck is checked before any work, with its corpora
and the checkpoint it goes on from, and everything that is wrong is shown at once. Keys that are not
listed are errors.

- **`--set key=value`** on the command line replaces a value: `--set model.layers=2`,
  `--set optimizer.lr=1e-4 --set run.steps="2e9 tokens"`. Lists and maps are written as in YAML:
  `--set 'batch.ramp_up={start: 8, increment: 8, samples: 10000}'`.
- **Lengths** are a whole number (steps) or carry a unit: `100 steps`, `51200 samples`,
  `2e9 tokens`. They are rounded up to whole steps.
- **Times** carry a unit: `90s`, `10m`, `1h30m`, `2d`.
- **Paths** (corpora, `run.dir`, `checkpoint.dir`) are relative to the working directory, not to the
  deck. `~`, `~user`, `$NAME` and `${NAME}` (in quotes) are filled in when the deck is read, also those
  of `--set`; a variable that is not set is an error. `$$` is a dollar sign. What `--run-dir` says is
  taken as it is: the shell has filled it in. Variables of a job (`$SLURM_TMPDIR`, `$SLURM_JOB_ID`, all
  that begin with `SLURM_`) may be missing outside of one: `--dry-run` and `trireme jobscript` do not
  check such a path, and say so.
- **Not yet**: a deck may have such a value, and `--dry-run` tells of it what it can; this version
  cannot train it. `trireme train` and `trireme jobscript` refuse it.
- **Kinds**: a key whose meaning begins with kinds of models, `bert, t5:`, is theirs alone; in a
  deck of another `model.kind` it is an error.
- **The resolved deck**, with every default written out, is stored in the run directory
  (`deck.yaml`) and in each checkpoint, with paths as they were filled in. Given back, it makes the
  same run, in whatever environment.
- **Between starts** of a run `parallel`, `precision`, `batch.micro`, `memory`, `checkpoint`,
  `run.steps` and the rest of `run` except `run.seed` may change; the learning rate and its schedule
  with `--set`; paths of corpora, where those of training have the same content. Everything else must
  stay as the checkpoint has it.
- **`parallel`**: [Many ranks](parallelism.md) says what each axis does and costs, and which to choose.
)";

// The page docs/deck.md.
std::string page_of_keys() {
  std::string page = kIntroduction;
  std::string section;
  for (const Key& key : key_table()) {
    const KeyInfo& info = key.info;
    const std::string first = info.path.substr(0, info.path.find('.'));
    if (first != section) {
      section = first;
      page += fmt::format(
          "\n## {}\n\n| Key | Type | Unit | Default | Allowed | Meaning |\n", first);
      page += "|---|---|---|---|---|---|\n";
    }
    page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", info.path, cell(info.type),
                        cell(info.unit), cell(info.default_value), cell(info.allowed),
                        cell(info.description));
  }
  return page;
}

TEST(SchemaKeys, AreDescribed) {
  std::set<std::string> paths;
  for (const Key& key : key_table()) {
    const KeyInfo& info = key.info;
    EXPECT_TRUE(paths.insert(info.path).second) << info.path << " stands there twice";
    EXPECT_FALSE(info.type.empty()) << info.path;
    EXPECT_FALSE(info.default_value.empty()) << info.path;
    EXPECT_FALSE(info.allowed.empty()) << info.path;
    EXPECT_FALSE(info.description.empty()) << info.path;
  }
  // The contract's keys.
  for (const char* path : {"model.kind",
                           "model.layers",
                           "model.decoder_layers",
                           "model.hidden",
                           "model.heads",
                           "model.ffn_hidden",
                           "model.sequence",
                           "model.decoder_sequence",
                           "model.vocab",
                           "model.dropout",
                           "model.attention_dropout",
                           "model.init_std",
                           "model.kv_heads",
                           "model.head_size",
                           "model.norm",
                           "model.norm_epsilon",
                           "model.norm_placement",
                           "model.activation",
                           "model.position",
                           "model.relative_attention_num_buckets",
                           "model.relative_attention_max_distance",
                           "model.bias",
                           "model.tie_embeddings",
                           "model.type_vocab_size",
                           "model.binary_head",
                           "model.max_predictions",
                           "data.train",
                           "data.validation",
                           "data.split",
                           "data.seed",
                           "data.mask_eod_loss",
                           "data.mask_prob",
                           "data.max_ngrams",
                           "data.whole_words",
                           "data.mean_noise_span_length",
                           "data.pairs",
                           "data.short_seq_prob",
                           "data.pack",
                           "data.reset_attention_mask",
                           "data.reset_position_ids",
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
                           "parallel.split",
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
                           "run.reference",
                           "run.preflight",
                           "run.tensorboard",
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

// docs/deck.md is written from the table. TRIREME_UPDATE_DOCS=1 writes it anew.
TEST(SchemaPage, IsWhatTheTableSays) {
  const char* root = std::getenv("TRIREME_SOURCE_DIR");
  ASSERT_NE(root, nullptr);
  const std::string path = std::string(root) + "/docs/deck.md";
  if (std::getenv("TRIREME_UPDATE_DOCS") != nullptr)
    std::ofstream(path) << page_of_keys();
  std::ostringstream page;
  page << std::ifstream(path).rdbuf();
  EXPECT_EQ(page.str(), page_of_keys())
      << "docs/deck.md is out of date: TRIREME_UPDATE_DOCS=1 ctest -R unit.config.schema";
}

}  // namespace
}  // namespace trireme::config
