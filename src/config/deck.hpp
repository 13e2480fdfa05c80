// config/deck.hpp — a whole deck as typed values, every default filled in.
//
// docs/deck.md (written from key_table.hpp) describes every key. Read one with load.hpp.
//
// The structs are plain data with the names of the keys, section by section, so that a
// reader of docs/deck.md finds a key here without a table. A key may be given in a form
// that needs other keys to be understood ("2e9 tokens" depends on the batch): the loader
// keeps what was said beside what it means in steps, because the resolved deck has to say
// the former. What depends on the number of ranks is filled in by the loader, too, and
// the vocabulary by who has opened the corpus (set_vocabulary), so that defaults are
// nobody else's affair.
#ifndef TRIREME_CONFIG_DECK_HPP_
#define TRIREME_CONFIG_DECK_HPP_

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "config/enums.hpp"

namespace trireme::config {

// How long something lasts or how often it comes: as the deck says it, and in steps.
struct Length {
  index_t amount = 0;
  LengthUnit unit = LengthUnit::steps;
  index_t steps = 0;  // filled by the loader: rounded up to whole steps

  Length() = default;
  Length(index_t n) : amount(n), steps(n) {}
  bool operator==(const Length&) const = default;
};

// A model's dimensions and variants. What trains, plans or restores a model takes the
// whole of it, and only blocks ask for single dimensions.
struct ModelConfig {
  ModelKind kind = ModelKind::gpt;
  index_t layers = 0;  // L; of an encoder and a decoder: the encoder's
  // The decoder's, behind an encoder's; a model that is one stack has none beside.
  index_t decoder_layers = 0;
  index_t hidden = 0;            // h
  index_t heads = 0;             // a
  index_t kv_heads = 0;          // g
  index_t head_size = 0;         // d; 0: h / a
  index_t ffn_hidden = 0;        // f
  index_t sequence = 0;          // s, also the number of learned positions
  index_t decoder_sequence = 0;  // positions of a decoder behind an encoder
  index_t vocab = 0;             // V, unpadded; 0: the corpus says it
  double dropout = 0.0, attention_dropout = 0.0;
  double init_std = 0.02;
  Norm norm = Norm::layernorm;
  Activation activation = Activation::gelu_tanh;
  Position position = Position::learned;
  bool bias = true;  // of linear layers and norms; the head has none
  bool tie_embeddings = true;
  double norm_epsilon = 1e-5;
  NormPlacement norm_placement = NormPlacement::pre;
  index_t type_vocab_size = 0;  // rows of the table of token types; 0: there is none
  bool binary_head = false;     // says of a pair of segments which kind it is of
  index_t max_predictions = 0;  // masked tokens of a sample that are predicted
  // Whether tokens of a packed sample see their own document alone
  // (data.reset_attention_mask, which is no key of the model).
  bool within_documents = false;
  // Of relative positions: how many distances are told apart, and up to where.
  index_t relative_attention_num_buckets = 32, relative_attention_max_distance = 128;

  // Elements of one head: those of a query, a key or a value.
  index_t head_elements() const { return head_size > 0 ? head_size : hidden / heads; }
  // Whether the heads' size is other than hidden / heads: only then is it worth telling.
  bool has_own_head_size() const { return heads * head_elements() != hidden; }
  // Those that stages of a pipeline are made of.
  index_t total_layers() const { return layers + decoder_layers; }
  // GPT-2 scales the two matrices that write to the residual stream by 1 / sqrt(2 L).
  double output_init_std() const {
    return init_std / std::sqrt(2.0 * static_cast<double>(layers));
  }
  // Whether a third matrix of the feed-forward block gates what its first makes.
  bool is_gated() const {
    return activation == Activation::swiglu || activation == Activation::geglu ||
           activation == Activation::geglu_tanh;
  }
};

struct WeightedPath {
  std::string path;
  double weight = 1.0;
};

struct NamedPath {
  std::string name, path;
};

struct DataConfig {
  std::vector<WeightedPath> train;                  // empty: only for --dry-run and plan
  std::vector<NamedPath> validation;                // empty: `split` cuts it from train
  std::array<double, 3> split = {0.98, 0.02, 0.0};  // train, validation, test
  std::uint64_t seed = 0;
  bool mask_eod_loss = false;
  // How samples are made of text where they are not windows of it.
  double mask_prob = 0.15, short_seq_prob = 0.0;
  bool whole_words = true;
  index_t max_ngrams = 1;
  Pairs pairs = Pairs::none;
  bool pack = false, reset_attention_mask = false, reset_position_ids = false;
  double mean_noise_span_length = 3.0;
};

struct RampUp {
  index_t start = 0, increment = 0, samples = 0;
};

struct BatchConfig {
  index_t micro = 1, global = 32;
  std::optional<RampUp> ramp_up;

  // Samples of the step that starts after `samples` samples: `global`, or less in the
  // ramp.
  index_t size_at(index_t samples) const;
};

struct ParallelConfig {
  int tensor = 1, pipeline = 1, virtual_pipeline = 1, context = 1;
  int data = 1;
  bool data_auto = true;  // data was chosen by the number of ranks
  bool sequence = false;
  int zero = 1;
  AxisOrder order = kDefaultAxisOrder;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  // Layers of each chunk, in order of the model; empty: auto, by `balance`.
  std::vector<index_t> stages;
  // Chunks that have the encoder's layers, from which the loader makes `stages`; 0: it is
  // not said.
  index_t split = 0;
  Balance balance = Balance::modelled;

  // What is measured stands in `stages` from then on, here and in checkpoints.
  bool is_to_be_measured() const {
    return pipeline > 1 && stages.empty() && balance == Balance::measured;
  }
  index_t chunks() const { return index_t{pipeline} * virtual_pipeline; }
  int ranks() const { return tensor * pipeline * context * data; }
};

struct LossScaleConfig {
  bool dynamic = true;
  double initial = 65536.0, minimum = 1.0;
  index_t window = 1000;
  index_t hysteresis = 2;
};

struct PrecisionConfig {
  Precision compute = Precision::fp32;
  Gradients gradients = Gradients::fp32;
  Products gemm = Products::automatic;
  AttentionKernels attention = AttentionKernels::automatic;
  LossScaleConfig loss_scale;
};

struct MemoryConfig {
  Recompute recompute = Recompute::none;
  index_t recompute_layers = 0;  // of each chunk; 0: all
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 3.0e-4, min_lr = 0.0;
  Schedule schedule = Schedule::cosine;
  Length warmup, decay, cooldown;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1.0e-8, weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: no clipping
};

struct RunConfig {
  Length steps = 1000;
  std::optional<Length>
      stop_after;  // of each start; its steps depend on where that begins
  std::uint64_t seed = 1234;
  std::string dir;
  Length log_every = 10, validate_every = 100, sample_every;  // 0: never
  index_t validate_samples = 4096;                            // 0: all
  bool deterministic = true;
  std::optional<double> time_limit;  // seconds
  std::optional<double> hang_timeout = 600.0;
  index_t max_idle_starts = 3;  // 0: any number
  bool probe = false, preflight = false;
  bool tensorboard = false;
  std::string reference;  // a run's directory or efficiency.json; empty: none
};

// How many ranks share a shard file: checkpoint.writers.
inline constexpr index_t kWriterPerRank = 0;
inline constexpr index_t kWriterPerNode = -1;

struct CheckpointConfig {
  Length every = 500;
  index_t keep = 3;  // 0: all
  Length keep_every;
  bool keep_best = true, async = true;
  index_t writers = kWriterPerRank;  // or the number of files
  index_t max_misses = 3;            // 0: any number
  std::string dir;
  std::vector<SignalName> on_signal = {SignalName::usr1, SignalName::term};
  std::optional<double> wall_time_margin;  // seconds; none: auto
};

struct Deck {
  ModelConfig model{.dropout = 0.1, .attention_dropout = 0.1};
  DataConfig data;
  BatchConfig batch;
  ParallelConfig parallel;
  PrecisionConfig precision;
  MemoryConfig memory;
  OptimizerConfig optimizer;
  RunConfig run;
  CheckpointConfig checkpoint;

  std::string name;  // of the file, without directory and ending
  // Where each key that was given came from ("gpt2.yaml:12", "--set"); others are
  // defaults.
  std::map<std::string, std::string> origins;

  bool given(const std::string& key) const { return origins.count(key) > 0; }
  // Micro-batches of one full step on each pipeline.
  index_t microbatches() const { return batch.global / (batch.micro * parallel.data); }
};

// Steps that consume this length (rounded up), with the ramp-up of the batch; the first
// of them begins after `begin` samples.
index_t steps_of(const Length& length, const BatchConfig& batch, index_t sequence,
                 index_t begin = 0);
// Samples that so many steps from the beginning of a run take, with the ramp-up.
index_t samples_of(index_t steps, const BatchConfig& batch);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_DECK_HPP_
