// config/check.cpp — see check.hpp.
//
// Each check looks at a few keys and adds what it finds to one list, so that all that is
// wrong is said together. A check is left out where one of its keys has an error already,
// as it would only repeat that. Every error comes with values that would do, which are
// searched for: divisors that are near, or grids for the ranks that there are. Example:
// 12 heads over 5 tensor ranks; 4 and 6 divide 12 and are as near to 5.
#include "config/check.hpp"

#include <fmt/ranges.h>

#include <cmath>
#include <initializer_list>
#include <numeric>

#include "base/plural.hpp"
#include "config/check_kind.hpp"
#include "config/enums.hpp"
#include "config/findings.hpp"
#include "config/key_table.hpp"
#include "config/text.hpp"

namespace trireme::config {
namespace {

// The divisor of n that is nearest to k.
index_t nearest_divisor(index_t n, index_t k) {
  index_t best = 1;
  const auto consider = [&](index_t divisor) {
    const index_t nearer = std::abs(best - k) - std::abs(divisor - k);
    if (nearer > 0 || (nearer == 0 && divisor < best)) best = divisor;
  };
  for (index_t i = 1; i <= n / i; ++i) {
    if (n % i != 0) continue;
    consider(i);
    consider(n / i);
  }
  return best;
}

// The multiple of k that is nearest to n, at least k.
index_t nearest_multiple(index_t n, index_t k) {
  const index_t below = n / k * k;
  return below > 0 && n - below <= below + k - n ? below : below + k;
}

// n layers over `parts` chunks as evenly as possible, more to the earlier ones.
std::vector<index_t> spread(index_t n, index_t parts) {
  std::vector<index_t> chunks(static_cast<std::size_t>(parts), n / parts);
  for (index_t i = 0; i < n % parts; ++i) ++chunks[static_cast<std::size_t>(i)];
  return chunks;
}

class Checker : Findings {
 public:
  Checker(Deck& deck, int ranks, const std::set<std::string>& bad,
          std::vector<DeckError>& errors)
      : Findings(deck, bad, errors), deck_(deck), ranks_(ranks) {}

  void run() {
    check_model();
    check_kind(deck_, bad(), errors());
    check_size();
    check_tensor_split();
    check_grid();
    check_stages();
    check_pipeline();
    check_memory();
    check_precision();
    check_attention();
    check_loss_scale();
    check_batch();
    check_data();
    check_optimizer();
    // Last, as grids are tried with what the deck says.
    if (is_split_) deal_by_split();
  }

 private:
  // key % divisor_of must be 0 the other way round: `whole` is a multiple of `key`.
  void divides(const char* key, index_t part, const char* whole_key, index_t whole,
               const char* because) {
    if (!good({key, whole_key}) || part < 1 || whole < 1 || whole % part == 0) return;
    add(key, fmt::format("does not divide {} ({}): {}", whole_key, whole, because),
        fmt::format("a divisor of {}", whole),
        fmt::format("{}: {}, or {}: {}", key, nearest_divisor(whole, part), whole_key,
                    nearest_multiple(whole, part)));
  }

  void check_model() {
    const ModelConfig& m = deck_.model;
    if (!deck_.given("model.head_size")) {
      divides("model.heads", m.heads, "model.hidden", m.hidden,
              "without model.head_size every head has hidden / heads elements");
    }
    divides("model.kv_heads", m.kv_heads, "model.heads", m.heads,
            "every key and value head serves equally many heads");
    if (m.position == Position::rope && good({"model.head_size"}) &&
        m.head_size % 2 != 0) {
      add("model.position", fmt::format("needs an even head size; it is {}", m.head_size),
          "an even model.head_size", fmt::format("model.head_size: {}", m.head_size + 1));
    }
    if (good({"model.vocab", "data.train"}) && m.vocab == 0 && deck_.data.train.empty()) {
      add("model.vocab", "is to be taken from the corpus, but data.train names none",
          "a number, or a corpus in data.train", "data.train: corpus.h5");
    }
  }

  // Numbers of elements and bytes are counted in 64 bits.
  void check_size() {
    constexpr double kMost = 1e15;
    const ModelConfig& m = deck_.model;
    if (!good({"model.layers", "model.decoder_layers", "model.hidden", "model.heads",
               "model.head_size", "model.ffn_hidden", "model.vocab", "model.sequence",
               "model.decoder_sequence", "batch.micro"})) {
      return;
    }
    const auto hidden = static_cast<double>(m.hidden);
    const auto layers = static_cast<double>(m.total_layers());
    const auto queries = static_cast<double>(m.heads) * static_cast<double>(m.head_size);
    const auto inner = static_cast<double>(m.ffn_hidden);
    const auto sequence = static_cast<double>(m.sequence);
    const auto vocabulary = static_cast<double>(m.vocab);
    const auto written = static_cast<double>(m.decoder_sequence);
    // A decoder's layers have attention to what the encoder has read, too.
    const double attention =
        4.0 * (layers + static_cast<double>(m.decoder_layers)) * queries;
    const double parameters =
        hidden * (attention + 3.0 * layers * inner) + hidden * (vocabulary + sequence);
    if (parameters > kMost) {
      add("model.hidden", fmt::format("gives a model of {:.2g} parameters", parameters),
          "a model of at most 1e15", "");
    }
    const double rows =
        static_cast<double>(deck_.batch.micro) * std::max(sequence, written);
    const double activations =
        rows * (layers * (4.0 * hidden + 4.0 * queries + 2.0 * inner) + vocabulary);
    if (activations > kMost) {
      add("batch.micro",
          fmt::format("samples give {:.2g} activations at a time", activations),
          "a micro-batch of at most 1e15", "");
    }
  }

  void check_tensor_split() {
    const ModelConfig& m = deck_.model;
    const ParallelConfig& p = deck_.parallel;
    // One error for all that the tensor ranks cannot share, with a degree that suits all.
    std::string what;
    index_t common = 0;
    const auto share = [&](const char* key, index_t whole, const char* things) {
      if (!good({"parallel.tensor", key}) || whole < 1) return;
      common = std::gcd(common, whole);
      if (whole % p.tensor == 0) return;
      what += fmt::format("{} {} ({}): tensor ranks hold {}",
                          what.empty() ? "does not divide" : "; nor", key, whole, things);
    };
    share("model.heads", m.heads, "whole heads");
    if (m.kv_heads != m.heads)
      share("model.kv_heads", m.kv_heads, "whole key and value heads");
    share("model.ffn_hidden", m.ffn_hidden, "equal parts of the feed-forward block");
    if (p.sequence) {
      share("model.sequence", m.sequence, "equal parts of a sample (parallel.sequence)");
      check_decoder_split();
    }
    if (!what.empty()) {
      add("parallel.tensor", what, fmt::format("a divisor of {}", common),
          fmt::format("parallel.tensor: {}", nearest_divisor(common, p.tensor)));
    }
    divides("parallel.context", p.context, "model.sequence", m.sequence,
            "context ranks hold equal parts of a sample");
    if (good({"model.vocab", "parallel.tensor"}) && m.vocab > 0 && m.vocab < p.tensor) {
      add("model.vocab",
          fmt::format("is smaller than parallel.tensor ({}): a rank would hold no "
                      "token",
                      p.tensor),
          fmt::format("at least {}", p.tensor),
          fmt::format("parallel.tensor: {}", m.vocab));
    }
  }

  // A decoder's length is free to be more than is needed, so that this is an error of
  // its.
  void check_decoder_split() {
    const index_t length = deck_.model.decoder_sequence;
    const int tensor = deck_.parallel.tensor;
    if (!good({"parallel.tensor", "model.decoder_sequence"}) || length % tensor == 0) {
      return;
    }
    add("model.decoder_sequence",
        fmt::format("is not a multiple of parallel.tensor ({}): tensor ranks hold equal "
                    "parts of a sample (parallel.sequence)",
                    tensor),
        fmt::format("a multiple of {}", tensor),
        fmt::format("model.decoder_sequence: {}", (length / tensor + 1) * tensor));
  }

  void check_grid() {
    ParallelConfig& p = deck_.parallel;
    if (!good({"parallel.tensor", "parallel.pipeline", "parallel.context",
               "parallel.data"})) {
      return;
    }
    const index_t model = index_t{p.tensor} * p.pipeline * p.context;
    if (p.data_auto) p.data = 1;
    if (model > (1 << 24) || model * p.data > (1 << 24)) {
      add("parallel.tensor", "times the other axes makes too many ranks",
          "grids of up to 16777216 ranks", "");
      return;
    }
    if (ranks_ == 0) return;
    if (p.data_auto) {
      if (ranks_ % model == 0) {
        p.data = static_cast<int>(ranks_ / model);
        return;
      }
      const index_t copies = std::max<index_t>(1, ranks_ / model);
      add("parallel.data",
          fmt::format("cannot be chosen: {} cannot divide into copies of the model of {} "
                      "(tensor {} × pipeline {} × context {})",
                      format_plural(ranks_, "rank"), model, p.tensor, p.pipeline,
                      p.context),
          fmt::format("a multiple of {}", format_plural(model, "rank")),
          ranks_or_grids(copies * model, copies));
      return;
    }
    if (model * p.data != ranks_) {
      add("parallel.data",
          fmt::format("makes a grid of {} (tensor {} × pipeline {} × context {} × data "
                      "{}); there are {}",
                      format_plural(model * p.data, "rank"), p.tensor, p.pipeline,
                      p.context, p.data, ranks_),
          "tensor × pipeline × context × data = ranks",
          ranks_ % model == 0 && suits(ranks_, p.tensor, ranks_ / model, p.pipeline)
              ? "parallel.data: auto, or " + grids()
              : ranks_or_grids(model * p.data, p.data));
    }
  }

  // What to do about ranks that the axes do not have: others, or other axes.
  std::string ranks_or_grids(index_t ranks, index_t data) const {
    const ParallelConfig& p = deck_.parallel;
    if (!suits(ranks, p.tensor, data, p.pipeline)) return grids();
    return fmt::format("start {}, or {}", format_plural(ranks, "rank"), grids());
  }

  // Whether the deck would do with so many ranks, these along its axes.
  bool suits(index_t ranks, index_t tensor, index_t data, index_t pipeline) const {
    if (is_trial_) return true;  // nobody reads the error that it is asked for
    Deck deck = deck_;
    deck.parallel.tensor = static_cast<int>(tensor);
    deck.parallel.data = static_cast<int>(data);
    deck.parallel.data_auto = false;
    deck.parallel.pipeline = static_cast<int>(pipeline);
    std::vector<DeckError> errors;
    Checker checker(deck, static_cast<int>(ranks), bad(), errors);
    checker.is_trial_ = true;
    checker.check_tensor_split();
    checker.check_grid();
    checker.check_stages();
    checker.check_pipeline();
    checker.check_batch();
    return errors.empty();
  }

  // The grids of all ranks that the model and the batch allow: without a pipeline, or
  // with one.
  std::vector<std::string> grids(bool with_pipeline) const {
    const ParallelConfig& p = deck_.parallel;
    std::vector<std::string> grids;
    for (int tensor = 1; tensor <= ranks_; ++tensor) {
      if (ranks_ % (tensor * p.context) != 0) continue;
      const int rest = ranks_ / (tensor * p.context);
      const int most = with_pipeline ? rest : 1;
      for (int pipeline = with_pipeline ? 2 : 1; pipeline <= most; ++pipeline) {
        if (rest % pipeline != 0 || !suits(ranks_, tensor, rest / pipeline, pipeline)) {
          continue;
        }
        grids.push_back(fmt::format("tensor {} data {}", tensor, rest / pipeline));
        if (with_pipeline) grids.back() += fmt::format(" pipeline {}", pipeline);
      }
    }
    return grids;
  }

  // The grids in words; those with pipelines where the deck has one, or nothing else will
  // do.
  std::string grids() const {
    if (is_trial_) return {};
    constexpr std::size_t kMost = 12;
    std::vector<std::string> grids = this->grids(false);
    if (grids.empty() || deck_.parallel.pipeline > 1) {
      for (std::string& grid : this->grids(true)) grids.push_back(std::move(grid));
    }
    if (grids.empty()) {
      return fmt::format(
          "start another number of ranks: no grid of {} suits the model and batch.global",
          ranks_);
    }
    const std::size_t more = grids.size() - std::min(grids.size(), kMost);
    grids.resize(grids.size() - more);
    return fmt::format("take one of the grids of {}: {}{}", format_plural(ranks_, "rank"),
                       fmt::join(grids, "; "),
                       more > 0 ? fmt::format("; and {} more", more) : "");
  }

  // "pipeline 2 × virtual_pipeline 3 = 6 chunks"
  std::string chunks_text() const {
    const ParallelConfig& p = deck_.parallel;
    return fmt::format("pipeline {} × virtual_pipeline {} = {}", p.pipeline,
                       p.virtual_pipeline, format_plural(p.chunks(), "chunk"));
  }

  void check_stages() {
    const ParallelConfig& p = deck_.parallel;
    if (good({"parallel.virtual_pipeline", "parallel.pipeline"}) &&
        p.virtual_pipeline > 1 && p.pipeline == 1) {
      add("parallel.virtual_pipeline",
          "needs a pipeline: chunks of one stage are one chunk",
          "1 where parallel.pipeline is 1", "parallel.virtual_pipeline: 1");
      return;
    }
    if (!good({"model.kind", "model.layers", "model.decoder_layers", "parallel.pipeline",
               "parallel.virtual_pipeline", "parallel.stages", "parallel.split"})) {
      return;
    }
    if (!p.stages.empty()) {
      check_given_stages();
    } else if (p.chunks() > deck_.model.total_layers() + 2) {
      add_too_many_chunks();
    } else if (p.split > 0) {
      check_split();
    }
  }

  void add_too_many_chunks() {
    const ParallelConfig& p = deck_.parallel;
    const index_t layers = deck_.model.total_layers();
    const index_t most = layers + 2;
    add("parallel.pipeline",
        fmt::format("makes {}; with {} some would have nothing at all in them",
                    chunks_text(), format_plural(layers, "layer")),
        fmt::format(
            "at most {}: the first may have the embedding alone, the last the head",
            format_plural(most, "chunk")),
        p.pipeline <= most
            ? fmt::format("parallel.virtual_pipeline: {}", most / p.pipeline)
            : fmt::format(
                  "parallel.pipeline: {}{}", most,
                  p.virtual_pipeline > 1 ? ", parallel.virtual_pipeline: 1" : ""));
  }

  void check_given_stages() {
    const ParallelConfig& p = deck_.parallel;
    const index_t layers = deck_.model.total_layers();
    const index_t chunks = p.chunks();
    const auto given = static_cast<index_t>(p.stages.size());
    index_t sum = 0;  // each is at most 2^40, the list at most 100000 long
    for (const index_t stage : p.stages) sum += stage;
    const std::string fix = chunks <= layers && chunks <= 64
                                ? fmt::format("parallel.stages: [{}]",
                                              fmt::join(spread(layers, chunks), ", "))
                                : std::string("parallel.stages: auto");
    if (p.split > 0) {
      add("parallel.stages",
          fmt::format(
              "says which layers each chunk has, and parallel.split ({}) does, too",
              p.split),
          "one of the two", "parallel.stages: auto");
    } else if (given != chunks) {
      add("parallel.stages",
          fmt::format("has {}; there are {}", format_plural(given, "number"),
                      chunks_text()),
          format_plural(chunks, "number"), fix);
    } else if (sum != layers) {
      add("parallel.stages",
          fmt::format("places {}; the model has {}", format_plural(sum, "layer"), layers),
          fmt::format("numbers with sum {}", layers), fix);
    } else if (chunks > 2 && std::find(p.stages.begin() + 1, p.stages.end() - 1, 0) !=
                                 p.stages.end() - 1) {
      add("parallel.stages", "has a chunk with nothing at all in it",
          "0 for the first chunk, which has the embedding, and the last, which has the "
          "head",
          fix);
    }
  }

  // Of chunks of the encoder, and of those of the decoder, one may have no layer: the
  // first, which has the embedding, and the last, which has the head.
  void check_split() {
    const ParallelConfig& p = deck_.parallel;
    const ModelConfig& m = deck_.model;
    const index_t chunks = p.chunks(), of_decoder = chunks - p.split;
    if (chunks == 1) {
      add("parallel.split", "is of a pipeline; there is none",
          "left out where parallel.pipeline is 1", "remove parallel.split");
      return;
    }
    const index_t least = std::max<index_t>(1, chunks - m.decoder_layers - 1);
    const index_t most = std::min(chunks - 1, m.layers + 1);
    std::string what;
    if (of_decoder < 1) {
      what = "leaves no chunk for the decoder";
    } else if (p.split > most) {
      what =
          fmt::format("gives the encoder {} for {}: one would have nothing at all in it",
                      format_plural(p.split, "chunk"), format_plural(m.layers, "layer"));
    } else if (p.split < least) {
      what = fmt::format(
          "gives the decoder {} for {}: one would have nothing at all in it",
          format_plural(of_decoder, "chunk"), format_plural(m.decoder_layers, "layer"));
    } else {
      is_split_ = true;
      return;
    }
    add("parallel.split", fmt::format("{}; there are {}", what, chunks_text()),
        least == most ? std::to_string(most) : fmt::format("{} to {}", least, most),
        fmt::format("parallel.split: {}", std::clamp(p.split, least, most)));
  }

  void deal_by_split() {
    const ModelConfig& m = deck_.model;
    ParallelConfig& p = deck_.parallel;
    p.stages = stages_of_split(m.layers, m.decoder_layers, p.chunks(), p.split);
    p.split = 0;  // it is said now, as the resolved deck says it
  }

  void check_memory() {
    if (!good({"memory.recompute", "memory.recompute_layers"})) return;
    const MemoryConfig& memory = deck_.memory;
    if (memory.recompute_layers == 0 || memory.recompute == Recompute::full) return;
    add("memory.recompute_layers",
        "counts the layers that memory.recompute: full makes again; without that it says "
        "nothing",
        "0 unless memory.recompute is full", "memory.recompute: full");
  }

  void check_precision() {
    if (!good({"precision.compute", "precision.gradients"})) return;
    const PrecisionConfig& precision = deck_.precision;
    if (precision.gradients == Gradients::fp32 || precision.compute == Precision::bf16) {
      return;
    }
    add("precision.gradients",
        precision.compute == Precision::fp16 ? "goes with precision.compute: bf16 alone; "
                                               "the loss scale of fp16 needs sums "
                                               "of more digits and range"
                                             : "goes with precision.compute: bf16 alone; "
                                               "it would round what fp32 computes",
        "fp32 unless precision.compute is bf16",
        "precision.gradients: fp32, or precision.compute: bf16");
  }

  // cuDNN draws masks that are not Trireme's, and has no fp32. It is not called for
  // padding, documents or a bias by distance.
  void check_attention() {
    if (!good({"precision.attention", "precision.compute", "model.attention_dropout",
               "model.kind"})) {
      return;
    }
    if (deck_.precision.attention != AttentionKernels::cudnn) return;
    if (deck_.model.kind != ModelKind::gpt) {
      add("precision.attention",
          fmt::format("has no attention with padding, as that of model.kind: {} is",
                      name_of(deck_.model.kind)),
          "own or auto unless model.kind is gpt", "precision.attention: own");
    }
    if (deck_.precision.compute == Precision::fp32) {
      add("precision.attention", "goes with elements of 16 bits, and compute is fp32",
          "own unless precision.compute is bf16 or fp16",
          "precision.attention: own, or precision.compute: bf16");
    }
    if (deck_.model.attention_dropout > 0.0) {
      add("precision.attention",
          fmt::format("has no dropout of Trireme's masks, and model.attention_dropout is "
                      "{}",
                      deck_.model.attention_dropout),
          "own unless model.attention_dropout is 0",
          "precision.attention: own, or model.attention_dropout: 0");
    }
  }

  // What pipelines cannot be combined with.
  void check_pipeline() {
    const ParallelConfig& p = deck_.parallel;
    if (!good({"parallel.pipeline", "parallel.schedule"})) return;
    if (p.pipeline == 1) {
      const auto add_unless = [&](const char* key, const char* without, bool is_default) {
        if (is_default) return;
        add(key, "is of a pipeline; there is none",
            fmt::format("{} where parallel.pipeline is 1", without),
            fmt::format("{}: {}", key, without));
      };
      add_unless("parallel.schedule", "1f1b",
                 p.schedule == PipelineSchedule::one_f_one_b);
      add_unless("parallel.balance", "modelled", p.balance == Balance::modelled);
      return;
    }
    if (deck_.run.sample_every.steps > 0) {
      add("run.sample_every", "takes text from a whole model; stages have parts",
          "0 with a pipeline (trireme generate reads any checkpoint)",
          "run.sample_every: 0");
    }
  }

  void check_batch() {
    const BatchConfig& b = deck_.batch;
    const ParallelConfig& p = deck_.parallel;
    if (!good({"batch.micro", "batch.global", "parallel.data"})) return;
    const index_t at_once = b.micro * p.data;
    if (b.global % at_once != 0) {
      std::string fix =
          fmt::format("batch.global: {}", nearest_multiple(b.global, at_once));
      if (b.global % p.data == 0) {
        fix += fmt::format(", or batch.micro: {}",
                           nearest_divisor(b.global / p.data, b.micro));
      }
      if (ranks_ > 1) fix += ", or " + grids();
      add("batch.global",
          fmt::format("is not a multiple of micro × data = {} × {} = {}", b.micro, p.data,
                      at_once),
          fmt::format("a multiple of {}", at_once), fix);
      return;
    }
    if (!b.ramp_up || !good({"batch.ramp_up"})) return;
    const RampUp& ramp = *b.ramp_up;
    if (ramp.start > b.global) {
      add("batch.ramp_up",
          fmt::format("starts at {}, above batch.global ({})", ramp.start, b.global),
          fmt::format("start: 1 to {}", b.global), fmt::format("start: {}", b.global));
    } else if ((b.global - ramp.start) % ramp.increment != 0) {
      add("batch.ramp_up",
          fmt::format("never reaches batch.global: {} - {} is not a multiple of {}",
                      b.global, ramp.start, ramp.increment),
          "increment: a divisor of global - start",
          fmt::format("increment: {}",
                      nearest_divisor(b.global - ramp.start, ramp.increment)));
    }
    for (const auto& [word, size] : {std::pair<const char*, index_t>{"start", ramp.start},
                                     {"increment", ramp.increment}}) {
      if (size % at_once == 0) continue;
      add("batch.ramp_up",
          fmt::format("{}: {} is not a multiple of micro × data = {}", word, size,
                      at_once),
          fmt::format("a multiple of {}", at_once),
          fmt::format("{}: {}", word, nearest_multiple(size, at_once)));
    }
  }

  void check_loss_scale() {
    const LossScaleConfig& scale = deck_.precision.loss_scale;
    if (!good({"precision.loss_scale.initial", "precision.loss_scale.minimum",
               "precision.loss_scale.dynamic"})) {
      return;
    }
    if (!scale.dynamic || scale.initial >= scale.minimum) return;
    const std::string initial = number_text(scale.initial);
    const std::string minimum = number_text(scale.minimum);
    add("precision.loss_scale.initial",
        fmt::format("is below precision.loss_scale.minimum ({})", minimum),
        "precision.loss_scale.minimum or more",
        fmt::format(
            "precision.loss_scale.initial: {}, or precision.loss_scale.minimum: {}",
            minimum, initial));
  }

  void check_data() {
    const DataConfig& d = deck_.data;
    if (!good({"data.split", "data.validation"})) return;
    if (!d.validation.empty()) {
      if (deck_.given("data.split")) {
        add("data.split",
            "cuts validation from train, but data.validation names corpora for it",
            "one of the two", "remove data.split");
      }
      return;
    }
    const double sum = d.split[0] + d.split[1] + d.split[2];
    if (std::abs(sum - 1.0) > 1e-6) {
      std::string fix;
      if (sum > 0.0) {
        fix = fmt::format("data.split: [{:.6g}, {:.6g}, {:.6g}]", d.split[0] / sum,
                          d.split[1] / sum, d.split[2] / sum);
      }
      add("data.split", fmt::format("has the sum {:.9g}", sum), "fractions with sum 1",
          fix);
    } else if (d.split[0] <= 0.0) {
      add("data.split", "leaves nothing to train on", "a first fraction above 0",
          "data.split: [0.98, 0.02, 0.0]");
    }
  }

  void check_optimizer() {
    const OptimizerConfig& o = deck_.optimizer;
    if (good({"optimizer.lr", "optimizer.min_lr"}) && o.min_lr > o.lr) {
      add("optimizer.min_lr",
          fmt::format("is above optimizer.lr ({})", number_text(o.lr)),
          "0 to optimizer.lr", fmt::format("optimizer.min_lr: {:.15g}", 0.1 * o.lr));
    }
    if (!good({"optimizer.warmup", "optimizer.decay", "optimizer.cooldown",
               "batch.global", "model.sequence", "batch.ramp_up"})) {
      return;
    }
    if (o.schedule == Schedule::constant || o.schedule == Schedule::inverse_sqrt) return;
    if (o.warmup.steps >= o.decay.steps) {
      const bool by_default = !deck_.given("optimizer.decay");
      add("optimizer.warmup",
          fmt::format("takes {}; the schedule ends at {} (optimizer.decay{})",
                      format_plural(o.warmup.steps, "step"),
                      format_grouped(o.decay.steps),
                      by_default ? ", by default run.steps" : ""),
          fmt::format("below {}", format_plural(o.decay.steps, "step")),
          fmt::format("optimizer.warmup: {}", o.decay.steps / 10));
    } else if (o.schedule == Schedule::wsd &&
               o.warmup.steps + o.cooldown.steps > o.decay.steps) {
      add("optimizer.cooldown",
          fmt::format(
              "takes {} and the warm-up {}; the schedule has {} (optimizer.decay)",
              format_plural(o.cooldown.steps, "step"), format_grouped(o.warmup.steps),
              format_grouped(o.decay.steps)),
          fmt::format("at most {}",
                      format_plural(o.decay.steps - o.warmup.steps, "step")),
          fmt::format("optimizer.cooldown: {}", o.decay.steps - o.warmup.steps));
    }
  }

  Deck& deck_;
  int ranks_;
  bool is_trial_ = false;  // of a grid that may be listed
  bool is_split_ = false;  // by parallel.split, which is right
};

}  // namespace

DeckError error_at(const Deck& deck, const std::string& key, std::string what,
                   std::string allowed, std::string fix) {
  const auto origin = deck.origins.find(key);
  const Key* entry = find_key(key);
  return {key,
          origin == deck.origins.end() ? std::string("default") : origin->second,
          entry == nullptr ? std::string() : entry->write(deck),
          std::move(what),
          std::move(allowed),
          std::move(fix)};
}

std::vector<index_t> stages_of_split(index_t layers, index_t decoder_layers,
                                     index_t chunks, index_t split) {
  // The rest of the encoder's layers goes to its last chunks, that of the decoder's to
  // its first ones.
  std::vector<index_t> stages = spread(layers, split);
  std::ranges::reverse(stages);
  const std::vector<index_t> decoder = spread(decoder_layers, chunks - split);
  stages.insert(stages.end(), decoder.begin(), decoder.end());
  return stages;
}

void check_across(Deck& deck, int ranks, const std::set<std::string>& bad,
                  std::vector<DeckError>& errors) {
  Checker(deck, ranks, bad, errors).run();
}

std::vector<std::string> idle_keys(const Deck& deck) {
  const std::string_view type = name_of(deck.precision.compute);
  const auto sentence = [&](std::string_view prefix, std::string_view why) {
    const Deck defaults;
    std::vector<std::string> idle;
    for (const Key& key : key_table()) {
      const std::string& path = key.info.path;
      if (path.starts_with(prefix) && deck.given(path) &&
          key.write(deck) != key.write(defaults)) {
        idle.push_back(path);
      }
    }
    return idle.empty()
               ? std::string()
               : fmt::format("without effect: {}. {}, and precision.compute is {}",
                             fmt::join(idle, ", "), why, type);
  };
  std::vector<std::string> sentences;
  if (deck.precision.compute == Precision::fp32) {
    sentences.push_back(
        sentence("precision.gemm", "It is about products of 16-bit elements"));
  }
  if (deck.precision.compute != Precision::fp16) {
    sentences.push_back(sentence("precision.loss_scale.", "Only fp16 scales its loss"));
  }
  std::erase(sentences, "");
  return sentences;
}

std::vector<DeckError> set_vocabulary(Deck& deck, index_t corpus_vocabulary,
                                      const std::string& corpus_path) {
  if (deck.model.vocab == 0) deck.model.vocab = corpus_vocabulary;
  if (deck.model.vocab >= corpus_vocabulary) return {};
  return {error_at(deck, "model.vocab",
                   fmt::format("is smaller than the vocabulary of {} ({})", corpus_path,
                               format_plural(corpus_vocabulary, "token")),
                   fmt::format("at least {}, or corpus", corpus_vocabulary),
                   "model.vocab: corpus")};
}

}  // namespace trireme::config
