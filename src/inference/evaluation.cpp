// inference/evaluation.cpp — see evaluation.hpp.
//
// What is to be evaluated (Plan) is known before there is a model, so that mistakes are
// found before anything long. Samples go through the model in pieces, as many as all
// data ranks take between two messages, and sums are added piece by piece in the same
// order whether the evaluation was killed in between or not: that is why the result is
// the same to the bit on the same grid.
#include "inference/evaluation.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.hpp"
#include "base/fault_plan.hpp"
#include "base/format.hpp"
#include "check/corpus_checks.hpp"
#include "ckpt/params.hpp"
#include "ckpt/restore.hpp"
#include "comm/on_ranks.hpp"
#include "comm/rank_grid.hpp"
#include "config/enums.hpp"
#include "data/deck_rules.hpp"
#include "inference/evaluation_deck.hpp"
#include "inference/evaluation_progress.hpp"
#include "inference/model_loader.hpp"
#include "inference/validation.hpp"
#include "io/checksum.hpp"
#include "step/attention_choice.hpp"
#include "step/deck_model.hpp"
#include "step/product_ways.hpp"
#include "step/replica.hpp"
#include "step/settled_products.hpp"

namespace trireme::inference {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr double kSaveSeconds = 10.0;

double seconds_from(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One set, and what is to be known of it besides its samples.
struct Plan {
  data::ValidationSet set;
  data::Corpora corpora;
  std::vector<std::uint32_t> lengths;  // bytes of each token; empty: not known
  index_t samples = 0;                 // to be evaluated
};

// Bytes of the text that each token stands for. The end of a document is none of it.
std::vector<std::uint32_t> token_lengths(const data::Corpus& corpus) {
  if (corpus.tokenizer_files().empty()) return {};
  const auto tokenizer = data::Tokenizer::from_files(corpus.tokenizer_files());
  std::vector<std::uint32_t> lengths(corpus.vocabulary_size(), 0);
  for (data::TokenId id = 0; id < corpus.vocabulary_size(); ++id) {
    if (id >= tokenizer.vocabulary_size() || id == corpus.end_of_document()) continue;
    lengths[id] = static_cast<std::uint32_t>(tokenizer.bytes_of(id).size());
  }
  return lengths;
}

// The corpora that are named, each a set. Their tokenizer is compared before samples are
// made: of one for another kind of model these lack much, and none of that is the
// mistake.
std::vector<Plan> plans_of_files(const EvaluateOptions& options, const config::Deck& deck,
                                 const ckpt::CheckpointReader& checkpoint, Log& log) {
  std::vector<Plan> plans;
  for (const std::string& path : options.data) {
    Plan plan;
    plan.corpora = {std::make_shared<const data::Corpus>(path)};
    const data::Corpus& corpus = *plan.corpora.front();
    check::require_tokenizer_of(checkpoint, corpus, log);
    data::TokenRange range{0, corpus.token_count()};
    if (options.split) range = data::split_range(deck, corpus, *options.split);
    const bool tail = options.tail || !options.split;
    plan.set.name = path;
    plan.set.samples = std::make_unique<data::Dataset>(
        std::vector<data::Dataset::Part>{{plan.corpora.front(), range, 1.0}},
        data::rules_of(deck, plan.corpora), data::Order::sequential, path,
        tail ? data::Tail::counted : data::Tail::left_out);
    plans.push_back(std::move(plan));
  }
  return plans;
}

// The corpora of the run, cut as it cuts them.
std::vector<Plan> plans_of_run(const EvaluateOptions& options, const config::Deck& deck,
                               const ckpt::CheckpointReader& checkpoint, Log& log) {
  TRIREME_REQUIRE_INPUT(
      !deck.data.train.empty(),
      "'{}' names no corpora of its own, as a converted model has none: "
      "give --data CORPUS (made by `trireme tokenize`)",
      checkpoint.path().string());
  const data::Split split = options.split.value_or(data::Split::validation);
  const auto corpora = data::open_corpora(deck);
  check::require_corpora_of(checkpoint, corpora);
  check::require_tokenizer_of(checkpoint, *corpora.front(), log);
  std::vector<Plan> plans;
  for (data::ValidationSet& set :
       data::make_sets(deck, corpora, split,
                       options.tail ? data::Tail::counted : data::Tail::left_out)) {
    Plan plan;
    for (const auto& part : set.samples->parts()) plan.corpora.push_back(part.corpus);
    plan.set = std::move(set);
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<Plan> make_plans(const EvaluateOptions& options, const config::Deck& deck,
                             const ckpt::CheckpointReader& checkpoint, Log& log) {
  std::vector<Plan> plans = options.data.empty()
                                ? plans_of_run(options, deck, checkpoint, log)
                                : plans_of_files(options, deck, checkpoint, log);
  for (Plan& plan : plans) {
    const data::Corpus& corpus = *plan.corpora.front();
    TRIREME_REQUIRE_INPUT(
        corpus.vocabulary_size() <= static_cast<data::TokenId>(deck.model.vocab),
        "corpus '{}' has a vocabulary of {}, and the model one of {}: it was made with "
        "another tokenizer",
        corpus.path().string(), corpus.vocabulary_size(), deck.model.vocab);
    plan.lengths = token_lengths(corpus);
    plan.samples = plan.set.samples->positions_without_repeats();
    if (options.samples > 0) plan.samples = std::min(plan.samples, options.samples);
  }
  return plans;
}

// On every rank, which must have the same corpora; rank 0 looks whether they have
// documents.
std::vector<Plan> make_plans_together(const EvaluateOptions& options,
                                      const config::Deck& deck,
                                      const ckpt::CheckpointReader& checkpoint,
                                      const comm::Environment& environment, Log& log) {
  comm::Communicator& world = *environment.world();
  std::vector<Plan> plans;
  comm::on_every_rank(world, [&] { plans = make_plans(options, deck, checkpoint, log); });
  std::string checksums;
  data::Corpora corpora;
  for (const Plan& plan : plans) {
    checksums += data::identity_of(plan.corpora) + " ";
    corpora.insert(corpora.end(), plan.corpora.begin(), plan.corpora.end());
  }
  check::require_same_corpora(world, environment.host_name(), checksums);
  comm::on_first_rank(world, [&] { check::require_documents(corpora); });
  return plans;
}

// Collective.
std::string manifest_checksum(comm::Communicator& world, const io::Path& checkpoint) {
  return comm::on_first_rank(world, [&] {
    return io::to_hex(io::checksum_file(checkpoint / ckpt::kManifestName).checksum);
  });
}

// What the progress file is of: the same text where the same would be computed.
std::string work_of(const EvaluateOptions& options, const config::Deck& deck,
                    const std::string& manifest, const std::string& products,
                    const std::string& attention, const std::vector<Plan>& plans) {
  Json json = {{"manifest", manifest},
               {"compute", config::name_of(deck.precision.compute)},
               {"product_instructions", products},
               {"sequence", deck.model.sequence},
               {"mask_eod_loss", deck.data.mask_eod_loss},
               {"split", options.split ? std::string(name_of(*options.split)) : "all"},
               {"shares", deck.data.split},
               {"tail", options.tail},
               {"sets", Json::array()}};
  if (!attention.empty()) json["attention"] = attention;
  for (const Plan& plan : plans) {
    json["sets"].push_back({{"corpora", data::identity_of(plan.corpora)},
                            {"windows", plan.set.samples->windows()}});
  }
  return json.dump();
}

// The model on this grid, and what it says of samples.
class Evaluator {
 public:
  Evaluator(const config::Deck& deck, const comm::RankGrid& grid, ckpt::Restore& restore)
      : deck_(deck),
        grid_(grid),
        replica_(step::make_replica(deck, grid.groups(), step::sharing(deck))),
        validation_(deck, grid, *replica_,
                    // All fields: the labels say how many bytes of text were predicted.
                    data::Batch(replica_->part().blueprint.batch, deck.batch.micro)) {
    const ckpt::Restore::Use check = [&](const ckpt::CheckpointReader& reader) {
      ckpt::require_params(reader, replica_->part().registry, ckpt::Content::weights);
    };
    check(restore.reader());
    const Exec exec = step::make_exec(deck);
    step::multiply_as_in(exec, restore.reader().state());
    replica_->begin_evaluation(exec, step::step_shape(deck));
    restore.read(
        [&](const ckpt::CheckpointReader& reader) {
          replica_->load(reader, ckpt::Content::weights, ckpt::Conversion::floating);
        },
        check);
  }

  const model::Blueprint& blueprint() const { return replica_->part().blueprint; }
  std::size_t over_words() const { return blueprint().objective_over_words(); }

  // Adds the next samples of the plan to the sums, as many as go through the model
  // between two messages. Collective.
  void go_on(const Plan& plan, const std::string& checkpoint, EvaluationSums& sums) {
    const auto begin = Clock::now();
    const index_t end =
        std::min(plan.samples, sums.samples + validation_.samples_at_once());
    double bytes = 0.0;
    const step::LossSums mine = validation_.part(
        *plan.set.samples, sums.samples, end,
        [&](const data::Batch& batch) { bytes += bytes_of(batch, plan.lengths); });
    std::vector<double> all = {bytes};
    for (const auto& of : mine) all.insert(all.end(), {of.sum, of.count});
    grid_.groups().gradient->control().all_reduce(all);
    if (!std::ranges::all_of(all, [](double sum) { return std::isfinite(sum); })) {
      stop_on_non_finite(plan, checkpoint, sums.samples, end);
    }
    sums.bytes += all[0];
    sums.objectives.resize(mine.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      sums.objectives[i].sum += all[2 * i + 1];
      sums.objectives[i].count += all[2 * i + 2];
    }
    sums.samples = end;
    sums.seconds += seconds_from(begin);
  }

 private:
  // Bytes of the words that count.
  double bytes_of(const data::Batch& batch,
                  const std::vector<std::uint32_t>& lengths) const {
    if (lengths.empty()) return 0.0;
    const model::Objective& predicts = blueprint().objectives[over_words()];
    const auto labels = batch.field<std::int32_t>(predicts.labels);
    const auto mask = batch.field<float>(predicts.mask);
    std::uint64_t bytes = 0;
    for (std::size_t s = 0; s < labels.extent(0); ++s) {
      for (std::size_t b = 0; b < labels.extent(1); ++b) {
        if (mask(s, b) != 0.0f) bytes += lengths[static_cast<std::size_t>(labels(s, b))];
      }
    }
    return static_cast<double>(bytes);
  }

  [[noreturn]] void stop_on_non_finite(const Plan& plan, const std::string& checkpoint,
                                       index_t first, index_t end) {
    const auto maker = data::make_sample_maker(*plan.set.samples);
    const std::string mine = replica_->locate_non_finite(
        [&](int m) { return validation_.micro_batch(*maker, first, end, m); });
    std::string place = "in the loss itself";
    for (const std::string& found : grid_.groups().world->gather(mine)) {
      if (found.empty()) continue;
      place = found;
      break;
    }
    throw InputError(
        fmt::format("'{}': the loss of samples {} to {} of '{}' is not a finite number. "
                    "First number that is not finite: {}. These are not the weights of a "
                    "healthy model: did its training diverge? An earlier checkpoint may "
                    "be whole",
                    checkpoint, first, end - 1, plan.set.name, place));
  }

  const config::Deck& deck_;
  const comm::RankGrid& grid_;
  std::unique_ptr<step::Replica> replica_;
  Validation validation_;
};

EvaluationStatus status_of(const Plan& plan, const EvaluationSums& before,
                           const EvaluationSums& now,
                           const std::vector<model::Objective>& objectives) {
  const double seconds = now.seconds - before.seconds;
  const auto samples = static_cast<double>(now.samples - before.samples);
  return {.set = plan.set.name,
          .share = static_cast<double>(now.samples) / static_cast<double>(plan.samples),
          .tokens_per_second = (now.tokens() - before.tokens()) / seconds,
          .every_word = objectives.at(now.words).every_word,
          .seconds_left =
              static_cast<double>(plan.samples - now.samples) * seconds / samples};
}

EvaluatedSet result_of(const Plan& plan, const EvaluationSums& sums,
                       const std::vector<model::Objective>& objectives) {
  EvaluatedSet result;
  result.name = plan.set.name;
  for (const auto& corpus : plan.corpora) {
    result.corpora.push_back(corpus->path().string());
    result.checksums.push_back(data::identity_of({corpus}));
  }
  result.windows = plan.set.samples->positions_without_repeats();
  result.left_out = plan.set.samples->left_out();
  result.sums = sums;
  result.losses = model::losses_of(objectives, sums.objectives);
  result.has_bytes = !plan.lengths.empty();
  result.every_word = objectives.at(sums.words).every_word;
  return result;
}

// All but its sets.
Evaluation evaluation_of(const config::Deck& deck, const comm::GridShape& grid,
                         const ckpt::Restore& restore, const std::string& products) {
  return {
      .checkpoint = restore.reader().path(),
      .step = restore.step(),
      .sequence = deck.model.sequence,
      .compute = std::string(config::name_of(deck.precision.compute)),
      .products = products,
      .grid = {{"tensor", grid.tensor}, {"data", grid.data}, {"pipeline", grid.pipeline}},
      .mask_end_of_document = deck.data.mask_eod_loss,
      .sets = {}};
}

// Why no token of a set counts.
std::string_view reason_of_none(config::ModelKind kind) {
  switch (kind) {
    case config::ModelKind::gpt:
      return "data.mask_eod_loss is true, and each input is the end of a document";
    case config::ModelKind::bert:
      return "no document has text there";
    case config::ModelKind::t5:
      return "no text there has two tokens, of which one can be hidden";
  }
  throw Error("reason_of_none: no ModelKind");
}

// Where ranks compute in unlike ways.
void warn_of(const std::vector<step::ProductWays>& ways, Log& log) {
  for (const step::ProductWays& one : ways) {
    if (!one.warning.empty()) log.warning("{}", one.warning);
  }
}

}  // namespace

Evaluation evaluate(const EvaluateOptions& options, comm::Environment& environment,
                    Log& log, const EvaluationProgress& progress) {
  comm::Communicator& world = *environment.world();
  FaultPlan faults(options.fault, world.rank(), world.size(), {{"piece"}});

  // 1. The checkpoint, the grid, and the corpora: all that can be wrong is found first.
  ckpt::Restore restore(
      world, ckpt::Restore::candidates_of(world, options.checkpoint, log), log);
  const config::Deck deck = evaluation_deck(world, restore.reader(), options.overrides);
  world.set_timeout(deck.run.hang_timeout.value_or(0.0));
  environment.set_deterministic(deck.run.deterministic);
  const std::vector<Plan> plans =
      make_plans_together(options, deck, restore.reader(), environment, log);
  const step::ProductWays products =
      step::product_ways(world, step::make_exec(deck), deck);
  const step::ProductWays attention = step::attention_ways(world, deck);
  warn_of({products, attention}, log);

  // 2. The model.
  const comm::RankGrid grid(environment.world(), step::grid_shape(deck));
  Evaluator evaluator(deck, grid, restore);
  const std::vector<model::Objective>& objectives = evaluator.blueprint().objectives;
  const io::Path path = restore.reader().path();
  const std::string manifest = manifest_checksum(world, path);
  ProgressFile file(
      world, options.progress_file,
      work_of(options, deck, manifest, products.names, attention.names, plans),
      plans.size(), objectives.size());

  // 3. Set by set, piece by piece.
  Evaluation evaluation = evaluation_of(deck, grid.shape(), restore, products.names);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    EvaluationSums sums = file.sums(i);
    sums.words = evaluator.over_words();
    TRIREME_REQUIRE_INPUT(
        sums.samples <= plan.samples,
        "'{}' holds {} of '{}', and {} are asked for: name another file",
        options.progress_file, format_plural(sums.samples, "sample"), plan.set.name,
        plan.samples);
    const EvaluationSums before = sums;
    auto saved = Clock::now() - std::chrono::hours(1);
    while (sums.samples < plan.samples) {
      faults.at("piece");
      evaluator.go_on(plan, path.string(), sums);
      if (world.rank() != 0) continue;
      if (progress) progress(status_of(plan, before, sums, objectives));
      if (sums.samples == plan.samples || seconds_from(saved) >= kSaveSeconds) {
        file.save(i, sums, log);
        saved = Clock::now();
      }
    }
    TRIREME_REQUIRE_INPUT(sums.tokens() > 0.0, "'{}' has no token that counts in {}: {}",
                          plan.set.name, format_plural(plan.samples, "sample"),
                          reason_of_none(deck.model.kind));
    evaluation.sets.push_back(result_of(plan, sums, objectives));
  }
  return evaluation;
}

double EvaluatedSet::perplexity() const {
  return std::exp(sums.objectives.at(sums.words).mean());
}
double EvaluatedSet::bits_per_token() const {
  return sums.objectives.at(sums.words).mean() / std::log(2.0);
}
double EvaluatedSet::bits_per_byte() const {
  return sums.objectives.at(sums.words).sum / std::log(2.0) / sums.bytes;
}

}  // namespace trireme::inference
