// run/training_run.cpp — see training_run.hpp.
//
// run() is the loop: a step, then what is due after it. What is due follows from the
// number of the step, which all ranks know, so that they come to the same collective
// calls in the same order. What rank 0 alone has (records, the display, the list of
// starts) is absent on other ranks, and the functions that all ranks call look whether
// it is there. A record covers the steps since the record before: with run.log_every of
// 10 that of step 20 has the mean loss of steps 11 to 20, wherever the run was
// interrupted in between, because the sums are part of a checkpoint.
//
// Where a launched step goes on by itself (a GPU), the next one is launched before its
// report is read, so that the device never waits for the host: progress_ is then one step
// behind newest_step(). What is due after a step (a validation, a checkpoint, a sample,
// the end) needs its report at once, and so do the first step and profiles:
// reads_at_once(). So nothing is ever due while a step is launched and unread.
#include "run/training_run.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <tuple>

#include "base/device.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_name.hpp"
#include "base/machine.hpp"
#include "base/plural.hpp"
#include "base/wall_time.hpp"
#include "base/words.hpp"
#include "check/corpus_checks.hpp"
#include "ckpt/save.hpp"
#include "ckpt/special_token.hpp"
#include "comm/on_ranks.hpp"
#include "config/load.hpp"
#include "config/text.hpp"
#include "data/tokenizer.hpp"
#include "io/files.hpp"
#include "kernels/gemm_tuner.hpp"
#include "model/blueprint.hpp"
#include "report/nominal_peak.hpp"
#include "report/shared_cores.hpp"
#include "run/definitions.hpp"
#include "run/memory_uses.hpp"
#include "run/products.hpp"
#include "run/run_log.hpp"
#include "step/attention_choice.hpp"
#include "step/deck_model.hpp"
#include "step/product_ways.hpp"

namespace trireme::run {

namespace {

constexpr index_t kSampleTokens = 64;
// Seconds of a loop. After a shorter one, probing for a peak would be felt.
constexpr double kLongEnoughToProbe = 10.0;

constexpr const char* kProfileName = "profile.json";
// The account of the run's time, as a checkpoint has it.
constexpr const char* kAccountText = "report_account";

ckpt::TrainingState initial_state(comm::Communicator& world, const config::Deck& deck,
                                  const data::Datasets& datasets) {
  const data::Corpus& corpus = datasets.first();
  ckpt::TrainingState state;
  state.run = comm::on_first_rank(world, ckpt::random_id);
  state.texts[check::kCorporaText] = datasets.identity();
  adopt_dropout_words(state, false);
  adopt_sample_rules(state, datasets);
  state.seed = deck.run.seed;
  state.data_seed = deck.data.seed;
  state.tokenizer = corpus.tokenizer_files();
  state.tokenizer_attributes[ckpt::attribute_of(data::Special::end_of_document)] =
      std::to_string(corpus.end_of_document());
  return state;
}

// The grid as checkpoints keep it.
decltype(ckpt::TrainingState::grid) named_extents(const comm::GridShape& shape) {
  return {{"tensor", shape.tensor},
          {"context", shape.context},
          {"data", shape.data},
          {"pipeline", shape.pipeline}};
}

}  // namespace

TrainingRun::TrainingRun(const config::Deck& deck, const comm::RankGrid& grid,
                         step::Replica& replica, const data::Datasets& datasets,
                         RunDirectory& directory, report::PeakMeter& peak, Log& log,
                         FaultPlan& faults, const Exec& exec)
    : deck_(deck),
      grid_(grid),
      replica_(replica),
      datasets_(datasets),
      directory_(directory),
      log_(log),
      faults_(faults),
      exec_(exec),
      timers_(replica.timers()),
      schedule_(step::lr_schedule(deck)),
      progress_(initial_state(*grid.groups().world, deck, datasets)),
      products_(step::product_ways(*grid.groups().world, exec, deck).names),
      loss_scaling_(deck, progress_),
      names_loss_scale_(grid.groups().world->any(
          grid.rank() == 0 && deck.given("precision.loss_scale.initial"))),
      validation_(deck, grid, replica, model_batch()),
      checkpoints_(
          deck, *grid.groups().world, host_name(), exec, replica.parts(),
          {.say = [this](const std::string& text) { say(text); },
           .warn = [this](const std::string& text) { log_.warning("{}", text); },
           .prepare = [this] { prepare_save(); },
           .saved =
               [this](std::int64_t step, double step_seconds, double save_seconds) {
                 note_published(step, step_seconds, save_seconds);
               },
           .ended =
               [this](std::int64_t step, bool is_published, double own_seconds) {
                 if (accounting_) accounting_->note_saving(own_seconds);
                 note_save(step, is_published);
               },
           .before_publish =
               [this] {
                 directory_.require_held();
                 if (first_rank_.metrics) first_rank_.metrics->sync();
               },
           .hook =
               [this](std::string_view phase) {
                 return faults_.at(phase, checkpoints_.step_under_way());
               }}),
      peak_(peak) {
  const index_t expected = replica.part().blueprint.parameter_count();
  const index_t there = grid.groups().pipeline->control().all_reduce(
      replica.part().registry.global_element_count());
  TRIREME_REQUIRE(there == expected, "the layers have {}, the blueprint says {}",
                  format_plural(there, "parameter"), expected);
  progress_.deck = config::resolved_text(deck);
  progress_.grid = named_extents(grid.shape());
  replica.begin_training(
      exec_, step::step_shape(deck),
      {.adamw = step::adamw_desc(deck), .clip_norm = deck.optimizer.clip_norm});
  hardware_flops_ = grid.groups().world->all_reduce(replica.flops()) /
                    static_cast<double>(deck.batch.global);
  adopt_ways_of_products();
  replica.initialize(deck.run.seed);
  interval_.losses.resize(objectives().size());
}

void TrainingRun::resume(const ckpt::CheckpointReader& reader) {
  replica_.load(reader, ckpt::Content::training);
  // The deck and the grid are this start's; everything that moves on is the checkpoint's.
  const std::string deck = std::move(progress_.deck);
  const std::string run = std::move(progress_.run);
  const auto grid = std::move(progress_.grid);
  progress_ = reader.state();
  if (progress_.run.empty()) progress_.run = run;  // of a format that had none
  progress_.deck = deck;
  progress_.grid = grid;
  visit_interval([&](const std::string& name, double& number) {
    const auto found = progress_.numbers.find(name);
    number = found == progress_.numbers.end() ? 0.0 : found->second;
  });
  const bool drops = deck_.model.dropout > 0.0 || deck_.model.attention_dropout > 0.0;
  std::vector<std::string> changes = adopt_ways_of_products();
  changes.push_back(adopt_dropout_words(progress_, drops));
  changes.push_back(adopt_sample_rules(progress_, datasets_));
  for (const std::string& changed : changes) {
    if (!changed.empty() && grid_.rank() == 0) log_.warning("{}", changed);
  }
  const std::string scale = loss_scaling_.resume(
      config::parse_resolved(reader.state().deck), names_loss_scale_, progress_);
  if (!scale.empty() && grid_.rank() == 0) say(scale);
  checkpoints_.set_saved_step(progress_.step);
  // A run that branched off, or that has another checkpoint.dir, does not have the best
  // checkpoint here to keep.
  const io::Path best =
      io::Path(deck_.checkpoint.dir) / ckpt::step_name(progress_.best_step);
  if (progress_.best_step >= 0 && !std::filesystem::exists(best)) {
    progress_.best_step = -1;
    progress_.best_loss = 0.0;
  }
}

std::string TrainingRun::names_of_attention() const {
  return step::attention_ways(*grid_.groups().world, deck_).names;
}

// Keeps on record how this start computes; what to say of changes, where there are any.
std::vector<std::string> TrainingRun::adopt_ways_of_products() {
  return {adopt_products(progress_, deck_, products_),
          adopt_gemm_table(progress_, deck_, kernels::gemm_table(exec_)),
          adopt_attention(progress_, attention_)};
}

void TrainingRun::init_from(const ckpt::CheckpointReader& reader) {
  replica_.load(reader, ckpt::Content::weights, ckpt::Conversion::floating);
}

void TrainingRun::start_loader() {
  start_.first_step = progress_.step;
  start_.first_sample = progress_.samples;
  if (deck_.run.stop_after) {
    start_.stop_step =
        start_.first_step + config::steps_of(*deck_.run.stop_after, deck_.batch,
                                             deck_.model.sequence, start_.first_sample);
  }
  batches_.emplace(deck_, progress_.step, progress_.samples, grid_.coordinates().data);
  loader_ = std::make_unique<data::BatchLoader>(
      *datasets_.train, [this](index_t n) { return batches_->columns(n); },
      data::BatchLoader::Options{.spec = replica_.part().blueprint.batch,
                                 .fields = replica_.part().fields(),
                                 .max_columns = deck_.batch.micro,
                                 .summed = replica_.part().objective_masks(),
                                 .most_summed = batches_->most_microbatches()});
}

template <class Visit>
void TrainingRun::visit_interval(const Visit& visit) {
  for (std::size_t i = 0; i < objectives().size(); ++i) {
    const std::string of = i == 0 ? "" : "/" + objectives()[i].name;
    visit("loss_sum_since_record" + of, interval_.losses[i].sum);
    visit("tokens_since_record" + of, interval_.losses[i].count);
  }
  visit("skipped_since_record", interval_.skipped);
}

index_t TrainingRun::samples_of_started() const {
  index_t samples = progress_.samples;
  for (const Started& step : started_) samples += step.samples;
  return samples;
}

// The update that it is to make has the number that follows if no unread step is left
// out, or the one before: the device will know.
void TrainingRun::start_step() {
  const std::int64_t step = newest_step() + 1;
  const std::int64_t update =
      next_update(progress_) + static_cast<std::int64_t>(started_.size());
  faults_.set_step(step);
  const Fault fault = faults_.at("step");
  const index_t before = samples_of_started();
  const int microbatches = batches_->microbatches(before);
  started_.push_back({step, batches_->samples_of_step(before), timers_.total_seconds()});
  replica_.start(
      {.number = update,
       .learning_rate = schedule_.at(update),
       .learning_rate_before = schedule_.at(std::max<std::int64_t>(update - 1, 1)),
       .loss_scale = loss_scaling_.rules(),
       .microbatches = microbatches,
       .fetch =
           [&](int) {
             faults_.at("input");
             return loader_->next().view();
           },
       .sum =
           [&](const std::string& field) {
             return loader_->sum_ahead(microbatches, field);
           },
       .state_copied = &checkpoints_.state_copied(),
       .overflows = fault == Fault::overflow});
}

// The step that it is of is done from here on.
optim::StepReport TrainingRun::take_report() {
  const std::size_t ready = replica_.ready_reports();
  const optim::StepReport report = replica_.read_report();
  const std::int64_t update = next_update(progress_);
  TRIREME_REQUIRE(report.update == update && report.loss_scale == loss_scaling_.scale(),
                  "step {} was update {} with the loss scale {} on the device, and is "
                  "update {} with {} on the host",
                  progress_.step + 1, report.update, report.loss_scale, update,
                  loss_scaling_.scale());
  accounting_->note_report(started_.front().samples,
                           started_.front().samples * deck_.model.sequence,
                           !report.is_finite());
  if (!report.is_finite()) {
    if (!loss_scaling_.can_skip(report)) stop_on_non_finite(report);
    ++progress_.skipped_steps;
    interval_.skipped += 1.0;
  }
  progress_.step = started_.front().step;
  progress_.samples += started_.front().samples;
  progress_.tokens += started_.front().samples * deck_.model.sequence;
  account_for(report, std::max<std::size_t>(ready, 1));
  started_.pop_front();
  const std::string told = loss_scaling_.note_step(report, progress_);
  if (!told.empty() && grid_.rank() == 0) say(told);
  return report;
}

// Validation, saving and samples of text are no part of a step's time: a rate with them
// in it says how often they happen, and not how fast the training is. Of two steps that
// overlap, the second begins when the report of the first is there. Of reports that were
// there together nobody knows when each came: their steps have equal parts of the time.
void TrainingRun::account_for(const optim::StepReport& report, std::size_t ready) {
  const Started& step = started_.front();
  const double all = timers_.total_seconds() - std::max(step.begin, last_report_);
  const double seconds = all / static_cast<double>(ready);
  of_later_steps_ = all - seconds;
  start_.step_times.add(seconds);
  interval_.times.add(seconds);
  interval_.samples += step.samples;
  for (std::size_t i = 0; i < interval_.losses.size(); ++i) {
    interval_.losses[i].sum += report.losses[i].sum;
    interval_.losses[i].count += report.losses[i].count;
  }
}

// Whether something is to follow the step that was launched last.
bool TrainingRun::reads_at_once() const {
  const std::int64_t step = newest_step();
  return !replica_.is_asynchronous() || step == start_.first_step + 1 ||
         step >= last_step() || profile_->is_in_step() ||
         due(deck_.run.validate_every, step) || due(deck_.run.sample_every, step) ||
         due(deck_.checkpoint.every, step);
}

void TrainingRun::settle_steps(std::size_t left, const job::StopRequest& stop) {
  while (started_.size() > left) {
    const optim::StepReport report = take_report();
    if (started_.empty()) profile_->end_step();
    log_step(report, stop);
    last_report_ = timers_.total_seconds() - of_later_steps_;
  }
}

void TrainingRun::stop_on_non_finite(const optim::StepReport& report) {
  // Weights are those before the step: keep them for study, and find out where it began.
  const std::int64_t step = progress_.step + 1;
  data::Batch batch = model_batch();
  const auto maker = data::make_sample_maker(*datasets_.train);
  const step::BatchPlan plan(deck_, progress_.step, progress_.samples,
                             grid_.coordinates().data);
  const std::string mine = replica_.locate_non_finite([&](int m) {
    const data::ColumnRange columns = plan.columns(m);
    batch.fill(*maker, columns.first_sample, columns.columns);
    return batch.view();
  });
  // Data ranks see different samples: the first that found something says where.
  std::string place = fmt::format(
      "in the gradients, which have {}",
      format_plural(static_cast<std::int64_t>(report.non_finite), "such number"));
  const std::vector<std::string> places = grid_.groups().world->gather(mine);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank].empty()) continue;
    place = places.size() == 1 ? places[rank]
                               : fmt::format("rank {}, {}", rank, places[rank]);
    break;
  }
  std::string state;
  try {
    checkpoints_.wait();
    comm::on_first_rank(*grid_.groups().world, [&] { directory_.require_held(); });
    const ckpt::Saved saved =
        ckpt::save_checkpoint(exec_, *grid_.groups().world, directory_.path() / "failed",
                              progress_, replica_.parts());
    state = fmt::format("The state before the step is in '{}'", saved.path.string());
  } catch (const Error& error) {
    state =
        fmt::format("The state before the step could not be saved ({})", error.what());
  }
  std::string advice = loss_scaling_.advice(report);
  if (!advice.empty()) advice += ". ";
  throw Error(fmt::format(
      "step {}: the loss is {}, the gradient norm {}. First number that is not finite: "
      "{}. {}. {}Often the learning rate is too high (it is {:.3g}) or the warm-up too "
      "short; samples {} to {} made this step.",
      step, model::losses_of(objectives(), report.losses).total, report.grad_norm, place,
      state, advice, schedule_.at(next_update(progress_)), progress_.samples,
      progress_.samples + plan.samples_of_step(progress_.samples) - 1));
}

bool TrainingRun::due(const config::Length& every, std::int64_t step) const {
  return every.steps > 0 && step % every.steps == 0;
}

void TrainingRun::begin_interval() {
  interval_.times.clear();
  interval_.began = timers_.total_seconds();
  interval_.samples = 0;
}

report::StepRecord TrainingRun::record_of(const optim::StepReport& report) const {
  const report::StepTimes& times = interval_.times;
  const double seconds = times.median();
  const double samples =
      static_cast<double>(interval_.samples) / static_cast<double>(times.count());
  const double tokens = samples * static_cast<double>(deck_.model.sequence);
  // Floating-point operations of a sample to 10^12 of them per second and device.
  const double tera = samples / seconds / 1e12 / deck_.parallel.ranks();
  const model::Losses losses = model::losses_of(objectives(), report.losses);
  return {.step = progress_.step,
          .loss = losses.total,
          .grad_norm = report.grad_norm,
          .lr = schedule_.at(next_update(progress_) - (report.is_finite() ? 1 : 0)),
          .samples = progress_.samples,
          .tokens = progress_.tokens,
          .seconds = times.mean(),
          .tokens_per_second = tokens / seconds,
          .model_tflops = tera * replica_.part().blueprint.model_flops(),
          .hardware_tflops = tera * hardware_flops_,
          .loss_scale = progress_.loss_scale,
          .skipped = static_cast<std::int64_t>(interval_.skipped),
          .seconds_median = seconds,
          .other_seconds = timers_.total_seconds() - interval_.began - times.sum(),
          .loss_mean = model::losses_of(objectives(), interval_.losses).total,
          .time = {},
          .losses = losses.parts};
}

template <class Record>
void TrainingRun::write_record(const Record& record) {
  if (!first_rank_.metrics) return;
  directory_.require_held();
  first_rank_.metrics->write(record);
}

std::int64_t TrainingRun::next_checkpoint() const {
  const index_t every = deck_.checkpoint.every.steps;
  const std::int64_t last = last_step();
  return every > 0 ? std::min<std::int64_t>((progress_.step / every + 1) * every, last)
                   : last;
}

void TrainingRun::log_step(const optim::StepReport& report,
                           const job::StopRequest& stop) {
  const bool is_record = due(deck_.run.log_every) || is_last();
  if (first_rank_.display) {
    report::StepRecord record = record_of(report);
    first_rank_.display->update(
        {.step = record.step,
         .loss = record.loss,
         .losses = record.losses,
         .tokens_per_second = record.tokens_per_second,
         .peak_share = record.model_tflops / peak_.peak().best,
         .other_share =
             record.other_seconds / (timers_.total_seconds() - interval_.began),
         .next_checkpoint = next_checkpoint(),
         .time_limit = stop.seconds_to_limit()});
    if (is_record) {
      if (datasets_.corpora.size() > 1) {
        record.epochs = datasets_.train->epochs(progress_.samples);
      }
      record.time = iso_time(wall_seconds());
      write_record(record);
    }
  }
  if (!is_record) return;
  begin_interval();
  visit_interval([](const std::string&, double& number) { number = 0.0; });
  const double now = timers_.total_seconds();
  // While a step runs, the probe would measure that.
  if (!started_.empty() || !peak_.is_due(now)) return;
  const Accounting::Beside beside(*accounting_, Phase::other);
  peak_.probe(exec_, now);
}

void TrainingRun::validate(job::StopRequest& stop) {
  const Accounting::Beside beside(*accounting_, Phase::validation);
  faults_.at("validation");
  if (first_rank_.display) first_rank_.display->note("validating");
  const auto stops = [&] {
    return stop.poll(*grid_.groups().world) != job::StopReason::none;
  };
  for (const data::ValidationSet& set : datasets_.validation) {
    const double start = timers_.total_seconds();
    const auto found = validation_.loss_of(set, stops);
    if (!found) {
      if (log_.speaks()) {  // ranks may describe the reason each in its way
        log_.warning("step {}: the validation was left early: {}", progress_.step,
                     stop.description());
      }
      return;
    }
    const model::Losses losses = model::losses_of(objectives(), *found);
    const auto& words = found->at(replica_.part().blueprint.objective_over_words());
    const report::ValidationRecord record{
        .step = progress_.step,
        .name = set.name,
        .loss = losses.total,
        .perplexity = std::exp(words.mean()),
        .tokens = static_cast<std::int64_t>(words.count),
        .seconds = timers_.total_seconds() - start,
        .time = iso_time(wall_seconds()),
        .losses = losses.parts};
    write_record(record);
    if (first_rank_.display) {
      const std::string perplexity =
          std::isfinite(record.loss)
              ? fmt::format(", perplexity {:.2f}", record.perplexity)
              : "";
      say(fmt::format("step {}: {} loss {}{}{}", record.step, record.name,
                      model::text_of_loss(record.loss, 4), model::text_of(record.losses),
                      perplexity));
    }
    if (&set == &datasets_.validation.front()) {
      validated_.step = progress_.step;
      validated_.loss = record.loss;
    }
  }
}

void TrainingRun::write_sample() {
  const Accounting::Beside beside(*accounting_, Phase::sample);
  const data::Corpus& corpus = datasets_.first();
  const inference::GenerationConfig config{
      .sampling = {.temperature = 0.8, .top_k = 50, .seed = deck_.run.seed},
      .max_tokens = kSampleTokens,
      .usable_vocabulary = std::min<index_t>(replica_.part().architecture().vocab,
                                             corpus.vocabulary_size()),
      .end_of_document = corpus.end_of_document()};
  const auto generations = generator_->run(
      {{.prompt = {}, .number = static_cast<std::uint64_t>(progress_.step)}}, config);
  if (!first_rank_.display) return;
  const auto tokenizer = data::Tokenizer::from_files(corpus.tokenizer_files());
  say(fmt::format("step {}: sample: {}", progress_.step,
                  plain_text(tokenizer.decode(generations.front().tokens))));
}

void TrainingRun::say(const std::string& text) {
  if (first_rank_.display) {
    first_rank_.display->message(wrap_lines(text));
  } else {
    log_.info("{}", wrap_lines(text));
  }
}

// A micro-batch of what this rank's part of the model reads.
data::Batch TrainingRun::model_batch() const {
  const step::ModelPart& part = replica_.part();
  return {part.blueprint.batch, deck_.batch.micro, part.fields()};
}

// Seconds in steps of this start so far, without validation, saving and whatever else is
// no step.
double TrainingRun::step_seconds() {
  const auto seconds = timers_.seconds();
  double sum = 0.0;
  for (const Section section : {Section::data, Section::forward, Section::backward,
                                Section::optimizer, Section::communication}) {
    sum += seconds[static_cast<std::size_t>(section)];
  }
  return sum;
}

void TrainingRun::note_first_step(double seconds) {
  if (first_rank_.history == nullptr) return;
  start_.restart_times.first_step = seconds;
  note(first_rank_.history->note_restart(start_.restart_times));
  if (start_.first_step > 0) say(start_.restart_times.text());
}

void TrainingRun::prepare_save() {
  comm::on_first_rank(*grid_.groups().world, [&] { directory_.require_held(); });
  last_save_ = timers_.total_seconds();
  if (accounting_) {
    accounting_->gather();
    accounting_->replay();
    saved_peak_ = mean_peak();
    progress_.texts[kAccountText] = accounting_->text(saved_peak_);
  }
  visit_interval([this](const std::string& name, double number) {
    progress_.numbers[name] = number;
  });
  // Only what is saved can be kept: the best of the checkpoints that were validated.
  if (validated_.step == progress_.step && std::isfinite(validated_.loss) &&
      (progress_.best_step < 0 || validated_.loss < progress_.best_loss)) {
    validated_.best_before = {progress_.best_step, progress_.best_loss};
    progress_.best_loss = validated_.loss;
    progress_.best_step = progress_.step;
  }
  if (timers_.trace() != nullptr) save_begin_ = TraceEvent::Clock::now();
}

// Rank 0.
void TrainingRun::note_published(std::int64_t step, double step_seconds,
                                 double save_seconds) {
  if (first_rank_.history == nullptr) return;
  note(first_rank_.history->note_saved(step, step_seconds, save_seconds));
  if (!accounting_) return;
  note(first_rank_.history->note_devices(grid_.shape().size(), saved_peak_));
  write_efficiency(accounting_->facts(saved_peak_));
}

void TrainingRun::note_save(std::int64_t step, bool is_published) {
  if (!is_published && progress_.best_step == step) {  // it is not there to be kept
    std::tie(progress_.best_step, progress_.best_loss) = validated_.best_before;
  }
  if (Trace* trace = timers_.trace(); trace != nullptr && save_begin_) {
    trace->add({.name = "write",
                .detail = "",
                .group = "checkpoint",
                .begin = *save_begin_,
                .end = TraceEvent::Clock::now()});
    save_begin_.reset();
  }
}

void TrainingRun::note(const std::string& problem) {
  if (!problem.empty()) log_.warning("{}", problem);
}

void TrainingRun::begin_save() {
  const Region region(timers_, Section::checkpoint);
  if (first_rank_.display) first_rank_.display->note("writing a checkpoint");
  checkpoints_.begin(exec_, replica_.parts(), progress_, step_seconds());
}

void TrainingRun::finish_save() {
  const Region region(timers_, Section::checkpoint);
  if (first_rank_.display) first_rank_.display->note("writing the last checkpoint");
  checkpoints_.finish(exec_, replica_.parts(), progress_, step_seconds());
}

// A start whose steps are all done has finished, whatever was asked for meanwhile.
report::StartEnd TrainingRun::ended() const {
  if (is_last()) return report::StartEnd::finished;
  return is_stop() ? report::StartEnd::as_asked : report::StartEnd::stopped_early;
}

// Why the run is not at its end. Empty where it is.
std::string TrainingRun::ending_text(report::StartEnd end,
                                     const job::StopRequest& stop) const {
  const std::int64_t all = deck_.run.steps.steps;
  if (end == report::StartEnd::stopped_early) {
    return fmt::format("stopped early: {}. Step {} of {} is saved.\n", stop.description(),
                       progress_.step, all);
  }
  if (end == report::StartEnd::finished) return {};
  const std::int64_t steps = progress_.step - start_.first_step;
  const std::string where =
      start_.first_step == 0
          ? fmt::format("after {} of {}", steps, format_plural(all, "step"))
          : fmt::format("at step {} of {}, {} further on", progress_.step, all,
                        format_plural(steps, "step"));
  return fmt::format("stopped {}, as asked (run.stop_after: {}).\n", where,
                     config::to_text(*deck_.run.stop_after));
}

// Ends a start that was asked to stop while all was made ready.
int TrainingRun::stopped_at_once(const job::StopRequest& stop,
                                 const TrainCommand& typed) {
  if (!stop.is_published()) checkpoints_.set_saved_step(-1);  // of another run, or none
  finish_save();
  if (first_rank_.history != nullptr) note(first_rank_.history->end(kExitStoppedEarly));
  log_.info("{}{}", wrap_lines(ending_text(report::StartEnd::stopped_early, stop)),
            advice_to_go_on(typed));
  return kExitStoppedEarly;
}

// Rank 0.
void TrainingRun::open_records() {
  const auto restored = progress_.step > 0 ? std::optional(progress_.step) : std::nullopt;
  std::optional<report::EventFileName> events;
  if (deck_.run.tensorboard) events = {wall_seconds(), host_name(), start_number()};
  first_rank_.metrics.emplace(directory_.path(), restored, events);
  const std::int64_t lost = first_rank_.metrics->cut().unreadable;
  if (lost > 1) {  // a kill tears one line
    log_.warning("{} of '{}' could not be read, and went as the file was written anew",
                 format_plural(lost, "line"), first_rank_.metrics->json_path().string());
  }
}

void TrainingRun::begin_loop(const report::Terminal& terminal) {
  if (grid_.rank() == 0) {
    open_records();
    first_rank_.display.emplace(
        stdout, report::Progress::Options{
                    .steps = deck_.run.steps.steps,
                    .log_every = deck_.run.log_every.steps,
                    .terminal = terminal,
                    .record = [this](const std::string& text) { log_.record(text); }});
  }
  if (deck_.run.sample_every.steps > 0) generator_.emplace(replica_.make_decoder());
  start_loader();
  for (comm::Group* group : replica_.part().groups.all()) group->reset_traffic();
  // All begin together: who was ready first would count as training what others set up.
  grid_.groups().world->barrier();
  timers_.reset();
  start_.core_time = read_core_time();
  begin_interval();
  begin_account();
}

// Texts of a checkpoint are on every rank that reads it; the account is rank 0's.
void TrainingRun::begin_account() {
  saved_peak_ = mean_peak();
  report::RunHistory* const history = first_rank_.history;
  if (history != nullptr) {
    note(history->note_devices(grid_.shape().size(), saved_peak_));
  }
  const std::string past = std::exchange(progress_.texts[kAccountText], {});
  accounting_.emplace(
      Accounting::Setting{.grid = grid_,
                          .replica = replica_,
                          .profile = *profile_,
                          .executed_flops = hardware_flops_,
                          .say = [this](const std::string& text) { say(text); }},
      past, history);
  // A start that is killed before its first checkpoint has lost what it did: that is
  // seen.
  if (history != nullptr) write_efficiency(accounting_->facts(saved_peak_));
}

// FLOP/s of a device, the ranks' mean. Collective.
double TrainingRun::mean_peak() {
  comm::Communicator& world = *grid_.groups().world;
  return world.all_reduce(1e12 * peak_.peak().best) / world.size();
}

// One step, the records of those that are known, and a validation where one is due.
void TrainingRun::step_and_validate(job::StopRequest& stop) {
  const std::int64_t number = newest_step() - start_.first_step + 1;  // of this start
  if (trace_) trace_->begin_step(number);
  profile_->begin_step(number);
  if (profile_->is_in_step()) accounting_->record_messages();
  start_step();
  settle_steps(reads_at_once() ? 0 : 1, stop);
  if (number == 1) note_first_step(timers_.total_seconds());
  if (started_.empty() && (due(deck_.run.validate_every) || is_last())) validate(stop);
  if (trace_) trace_->end_step(number);
  look_();
}

// Goes on with the save that is under way, and begins or completes one where it is time.
void TrainingRun::save_where_due(job::StopRequest& stop, bool ends) {
  const Accounting::Beside beside(*accounting_, Phase::checkpoint);
  const int published = checkpoints_.published();
  if (checkpoints_.step_under_way() >= 0) {
    const Region region(timers_, Section::checkpoint);
    checkpoints_.advance();
  }
  if (ends) {
    finish_save();
  } else if (started_.empty() && due(deck_.checkpoint.every)) {
    begin_save();
  }
  if (checkpoints_.published() > published) {
    stop.note_checkpoint(checkpoints_.longest_seconds());
  }
}

int TrainingRun::run(job::StopRequest& stop, const report::Terminal& terminal,
                     const TrainCommand& typed) {
  comm::Communicator& world = *grid_.groups().world;
  if (stop.poll_signals(world) != job::StopReason::none) {
    return stopped_at_once(stop, typed);
  }
  begin_loop(terminal);
  stop.begin_interval();
  job::StopReason reason = job::StopReason::none;
  while (!is_last() && !is_stop() && reason == job::StopReason::none) {
    {
      const Accounting::InSteps in_steps(*accounting_);
      step_and_validate(stop);
      stop.set_saving(checkpoints_.step_under_way() >= 0);
      stop.set_steps_under_way(static_cast<int>(started_.size()));
      reason = accounting_->wait_for_all([&] { return stop.poll(world); });
      if (reason != job::StopReason::none) settle_steps(0, stop);
    }
    accounting_->end_step(newest_step());
    if (first_rank_.history != nullptr) first_rank_.history->show_life();
    save_where_due(stop, is_last() || is_stop() || reason != job::StopReason::none);
    if (const std::string said = stop.take_note(); first_rank_.display && !said.empty())
      say(said);
    note(stop.take_warning());
    // The time that is kept for ending is not spent on samples.
    const bool goes_on = reason == job::StopReason::none && started_.empty();
    if (goes_on && due(deck_.run.sample_every)) write_sample();
  }
  return end_loop(stop, reason, typed);
}

int TrainingRun::end_loop(const job::StopRequest& stop, job::StopReason reason,
                          const TrainCommand& typed) {
  if (first_rank_.display) first_rank_.display->finish();
  if (shows_profile_) finish_profile();
  if (trace_) trace_->finish();
  if (first_rank_.metrics) first_rank_.metrics->close();
  const report::StartEnd end = ended();
  const bool is_early = end == report::StartEnd::stopped_early;
  const int status = is_early ? kExitStoppedEarly : kExitDone;
  if (first_rank_.history != nullptr) {
    const bool is_over = is_early && reason == job::StopReason::time_limit;
    note(first_rank_.history->end(status,
                                  end == report::StartEnd::as_asked
                                      ? report::Ending::as_asked
                                  : is_over ? report::Ending::of_time
                                            : report::Ending::of_status,
                                  timers_.total_seconds() - last_save_));
  }
  finish_report(end, stop, typed);
  return status;
}

void TrainingRun::finish_report(report::StartEnd end, const job::StopRequest& stop,
                                const TrainCommand& typed) {
  report::RunReport report{
      .end = end,
      .reason = end == report::StartEnd::stopped_early ? stop.description() : "",
      .start = start_number(),
      .time = iso_time(wall_seconds()),
      .step = progress_.step,
      .steps = deck_.run.steps.steps,
      .run_directory = deck_.run.dir};
  const report::SectionTable table = report_times(report);
  report_efficiency(report, table);
  warn_for_others(*grid_.groups().world, log_);
  if (!first_rank_.metrics) return;  // of rank 0
  report.training = first_rank_.metrics->training();
  report.validations = first_rank_.metrics->validations();
  report.corpora = corpus_epochs(datasets_, progress_.samples);
  write_report(report, table);
  log_.info("\n{}{}{}", wrap_lines(ending_text(end, stop)), report.text(),
            end == report::StartEnd::finished ? advice_to_train_on(typed, report.steps)
                                              : advice_to_go_on(typed));
  say_use(typed);
}

// Says how to use the model: as it was trained, a kind that fills in what is missing.
void TrainingRun::say_use(const TrainCommand& typed) {
  const model::Blueprint& blueprint = replica_.part().blueprint;
  const bool has_tokenizer = !progress_.tokenizer.empty();
  if (model::has_use(blueprint.architecture, model::Use::words)) {
    if (!has_tokenizer) return;
    std::string blank = fmt::format("{}0>", data::kSentinelBegin);
    if (!blueprint.decoded.has_source()) {
      const auto tokenizer = data::Tokenizer::from_files(progress_.tokenizer);
      blank = trimmed(tokenizer.bytes_of(tokenizer.special(data::Special::mask)));
    }
    log_.info("To fill in what is missing in a text:\n{}",
              fill_command(typed, deck_.run.dir, blank));
  } else if (blueprint.generates_text()) {
    log_.info("To generate text:\n{}",
              generate_command(typed, deck_.run.dir, has_tokenizer));
  }
}

// Says a text of several lines, apart from what was said before.
void TrainingRun::say_block(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  log_.info("\n{}", wrap_lines(text));
}

// Says and writes the profile. Collective. That it is not written stops no run.
void TrainingRun::finish_profile() {
  const std::int64_t first =
      start_.first_step + report::ProfileOptions::kLeftOut + 1;  // of the run
  if (profile_->steps() == 0) {
    log_.warning(
        "--profile: the run ended before step {}, the first to be profiled; there is no "
        "profile",
        first);
    return;
  }
  const DType type = step::compute_type(deck_);
  const index_t elements = deck_.batch.micro * deck_.model.sequence * deck_.model.hidden;
  const report::ProfileTable::Title title{.start = start_number(),
                                          .first_step = first,
                                          .last_step = first + profile_->steps() - 1,
                                          .type = type};
  const auto table = report::table_of_ranks(
      *grid_.groups().world, title,
      profile_->of_rank(
          {.flops = 1e12 * peak_.peak().best, .bytes = bytes_per_second_},
          static_cast<double>(elements) * static_cast<double>(size_of(type))));
  if (!table) return;
  say_block(table->text());
  try {
    directory_.require_held();
    io::write_file(directory_.file(kProfileName), table->json());
  } catch (const Error& error) {
    log_.warning("the profile of this start was not written: {}", error.what());
  }
}

// A report that cannot be written is no error: the run has all that it needs without it.
void TrainingRun::write_report(const report::RunReport& report,
                               const report::SectionTable& table) {
  try {
    directory_.require_held();
    io::write_file(directory_.file(report::kReportName), report.json(table));
  } catch (const Error& error) {
    log_.warning("the report of this start was not written: {}", error.what());
  }
  try {
    report::tell_job_script(report.end);
  } catch (const Error& error) {
    log_.warning("the job script is not told how this start ended: {}", error.what());
  }
}

// Collective.
void TrainingRun::report_efficiency(report::RunReport& report,
                                    const report::SectionTable& table) {
  auto facts = accounting_->finish(
      {.flops = 1e12 * peak_.peak().best, .bytes = bytes_per_second_});
  if (!facts) return;
  facts->pipeline = report.pipeline;
  facts->links = links_;
  facts->reference = reference_;
  facts->memory = table.memory();
  say_block(write_efficiency(std::move(*facts)).text());
}

// That it is not written stops no run.
report::Efficiency TrainingRun::write_efficiency(report::EfficiencyFacts facts) {
  facts.type = step::compute_type(deck_);
  if (const std::optional<Device> device = current_device()) {
    facts.nominal_peak = report::nominal_peak(device->name, facts.type);
  }
  facts.step = progress_.step;
  facts.steps = deck_.run.steps.steps;
  facts.run_directory = deck_.run.dir;
  report::Efficiency efficiency(facts);
  try {
    directory_.require_held();
    io::write_file(directory_.file(report::kEfficiencyName), efficiency.json());
  } catch (const Error& error) {
    log_.warning("the efficiency of this run was not written: {}", error.what());
  }
  return efficiency;
}

report::SectionTable TrainingRun::report_times(report::RunReport& report) {
  const std::int64_t steps = progress_.step - start_.first_step;
  const index_t samples = progress_.samples - start_.first_sample;
  const double flops =
      replica_.part().blueprint.model_flops() * static_cast<double>(samples);
  report::RunTimes times;
  times.seconds = timers_.seconds();
  times.loop_seconds = timers_.total_seconds();
  times.step_seconds = start_.step_times.sum();
  times.step_median = steps > 0 ? start_.step_times.median() : 0.0;
  times.steps = steps;
  times.samples = samples;
  times.tokens = samples * deck_.model.sequence;
  // Of the host: a device has some hundred thousand.
  times.threads = kHostExecution ? static_cast<int>(exec_.space().concurrency()) : 1;
  times.model_flops = flops;
  times.hardware_flops = hardware_flops_ * static_cast<double>(samples);
  step::MemoryUse use = replica_.memory_use();
  times.memory = memory_uses(use);
  if (generator_) {
    use.planned.generation = replica_.plan_decoder().total;
    const auto bytes = static_cast<double>(use.planned.generation);
    times.memory.push_back({"generation", bytes, bytes});
  }
  if (deck_.checkpoint.async) {
    times.memory.push_back(
        {"snapshot", static_cast<double>(ckpt::Snapshot::bytes_of(replica_.parts())),
         static_cast<double>(checkpoints_.copy_bytes())});
  }
  // The device is idle again, and may be less busy with others' work than it was before.
  if (times.loop_seconds > kLongEnoughToProbe) peak_.probe(exec_, times.loop_seconds);
  times.peak = peak_.peak();
  times.memory.push_back({"process", 0.0, static_cast<double>(peak_process_bytes())});
  const comm::ProcessGroups& groups = replica_.part().groups;
  std::ranges::move(
      device_uses(plan::library_bytes(groups, plan::carrier_of(groups), deck_),
                  libraries_, use.planned.total(), device_bytes()),
      std::back_inserter(times.memory));
  for (const auto& [name, traffic] : groups.traffic()) {
    times.traffic.push_back({name, traffic});
  }
  const report::SectionTable table(*grid_.groups().world, times);
  say_block(table.text());
  if (first_rank_.history != nullptr) {
    report.effective = report::effective_time(first_rank_.history->starts());
    say_block(report.effective.text());
  }
  report.pipeline = accounting_->replay();
  if (report.pipeline) say_block(report.pipeline->text());
  const std::string shared = report::shared_cores_note(
      *grid_.groups().world, read_core_time() - start_.core_time);
  if (!shared.empty()) say_block(shared);
  return table;
}

}  // namespace trireme::run
