// run/trainer.cpp — see trainer.hpp.
//
// The class Start is the start of a run in its five phases: decide, prepare, open, load,
// train. Above it stand the checks that these make. All of them are collective: what
// only one rank can see (a deck, a lock, memory) becomes the same answer, or the same
// error, on all ranks, because a rank that ended alone would leave the others waiting.
#include "run/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "base/device.hpp"
#include "base/error_message.hpp"
#include "base/format.hpp"
#include "base/host_name.hpp"
#include "base/late_queue.hpp"
#include "base/log.hpp"
#include "base/machine.hpp"
#include "base/version.hpp"
#include "check/checkpoint_check.hpp"
#include "check/deck_check.hpp"
#include "check/preflight.hpp"
#include "ckpt/params.hpp"
#include "ckpt/restore.hpp"
#include "comm/on_ranks.hpp"
#include "comm/operation_board.hpp"
#include "comm/rank_grid.hpp"
#include "comm/rank_list.hpp"
#include "config/check.hpp"
#include "config/compare.hpp"
#include "config/load.hpp"
#include "data/datasets.hpp"
#include "io/atomic_file.hpp"
#include "io/checksum.hpp"
#include "job/stop_request.hpp"
#include "kernels/gemm_tuner.hpp"
#include "kernels/load_products.hpp"
#include "kernels/machine_peaks.hpp"
#include "kernels/narrow_gemm.hpp"
#include "model/blueprint.hpp"
#include "plan/deck_memory.hpp"
#include "plan/device_memory.hpp"
#include "plan/host_memory.hpp"
#include "report/link_probe.hpp"
#include "report/peak_meter.hpp"
#include "report/reference_run.hpp"
#include "report/run_history.hpp"
#include "report/step_profile.hpp"
#include "run/products.hpp"
#include "run/run_commands.hpp"
#include "run/run_log.hpp"
#include "run/shared_directory.hpp"
#include "run/start_report.hpp"
#include "run/training_run.hpp"
#include "step/attention_choice.hpp"
#include "step/block_probe.hpp"
#include "step/deck_model.hpp"
#include "step/gemm_table_text.hpp"
#include "step/product_ways.hpp"
#include "step/settled_products.hpp"

namespace trireme::run {

namespace {

using Json = nlohmann::ordered_json;

// The checksum of a file, or "" where it cannot be read: there is no /proc, or only rank
// 0 can see the deck.
std::string checksum_of(const std::string& file) {
  try {
    return io::to_hex(io::checksum_file(file).checksum);
  } catch (const Error&) {
    return {};
  }
}

// Ranks of different programs or decks (an old file on one node, say) were not meant to
// do the same work. Rank 0's deck is sent to all, so that the others need not see it. No
// variable of the environment changes what is computed; TRIREME_WAIT may differ.
void require_same_files(comm::Communicator& world, const std::string& host,
                        const std::string& deck) {
  if (world.size() == 1) return;
  const std::vector<std::string> hosts = world.gather(host);
  const auto compare = [&](const std::string& name, const std::string& file,
                           const char* what) {
    std::vector<std::string> checksums = world.gather(checksum_of(file));
    for (std::string& checksum : checksums) {
      if (checksum.empty()) checksum = checksums.front();
    }
    const bool same = comm::all_same(checksums);
    for (std::string& checksum : checksums) {
      checksum = fmt::format("{}, its file has checksum {}", name, checksum);
    }
    TRIREME_REQUIRE_INPUT(same, "the ranks {}: {}. Start the same file on all of them",
                          what, comm::grouped_by_text(checksums, hosts));
  };
  compare(fmt::format("trireme {}", program_version()), "/proc/self/exe",
          "run different programs");
  compare(deck, deck, "have different decks");
}

// While this object lives, what the rank does stands on the board in the run directory.
class OnBoard {
 public:
  OnBoard(comm::Communicator& world, const io::Path& directory, const std::string& host,
          Log& log)
      : world_(world), log_(log) {
    comm::OpenedBoard opened = comm::open_board(world, directory, host);
    if (!opened.note.empty()) log.info("{}", wrap_lines(opened.note));
    board_ = std::move(opened.board);
    world_.attach(board_);
  }
  ~OnBoard() { end(std::uncaught_exceptions() == exceptions_); }
  void fail() { end(false); }
  // Called between steps: a rank that is alone sends no messages, and would note nothing
  // without this.
  void look() {
    if (!board_) return;
    board_->give_sign(comm::OperationBoard::Clock::now());
    const std::string loss = board_->take_loss();
    if (loss.empty()) return;
    Log mine;  // of a rank that is the first of its host, and not of all
    (log_.speaks() ? log_ : mine).warning("{}", loss);
  }
  OnBoard(const OnBoard&) = delete;
  OnBoard& operator=(const OnBoard&) = delete;

 private:
  void end(bool clean) {
    // How ranks agree on an error is no part of the run.
    world_.attach(nullptr);
    if (board_) board_->end(clean);
    look();
    board_.reset();
  }

  comm::Communicator& world_;
  Log& log_;
  int exceptions_ = std::uncaught_exceptions();
  std::shared_ptr<comm::OperationBoard> board_;
};

// While this object lives, faults can strike before each message on device memory. Where
// none are planned, none are asked for.
class SlowLinks {
 public:
  SlowLinks(comm::Communicator& world, FaultPlan& faults) : world_(world) {
    if (faults.empty()) return;
    world_.before_messages(
        [&faults](const std::string& group) { faults.at("message." + group); });
  }
  ~SlowLinks() { world_.before_messages({}); }
  SlowLinks(const SlowLinks&) = delete;
  SlowLinks& operator=(const SlowLinks&) = delete;

 private:
  comm::Communicator& world_;
};

struct LoadedDeck {
  config::Deck deck;
  data::Corpora corpora;  // of data.train; of rank 0, which has checked them
};

check::DeckCheckOptions check_options(const TrainOptions& options, int ranks) {
  check::DeckCheckOptions check = options;
  check.ranks = ranks;
  check.purpose = check::Purpose::train;
  return check;
}

// Rank 0 reads and checks the deck; the others get the resolved text.
LoadedDeck load_deck(const TrainOptions& options, comm::Communicator& world, Log& log) {
  check::CheckedDeck checked;  // of rank 0
  const std::string text = comm::on_first_rank(world, [&] {
    checked = check::check_deck(check_options(options, world.size()));
    return config::resolved_text(checked.deck);
  });
  for (const std::string& warning : checked.warnings) log.warning("{}", warning);
  LoadedDeck loaded{config::parse_resolved(text, world.size()),
                    std::move(checked.corpora)};
  // Where each key was given (deck or --set) decides what may change at a restart; only
  // rank 0 asks.
  loaded.deck.origins = std::move(checked.deck.origins);
  return loaded;
}

// Holds the run directory. Where that is refused, the checkpoint that the start names may
// be wrong as well, and would be refused only by the next try.
std::unique_ptr<RunDirectory> hold_directory(const TrainOptions& options,
                                             const config::Deck& deck,
                                             comm::Communicator& world) {
  try {
    return std::make_unique<RunDirectory>(
        world, check::RunOptions{.path = deck.run.dir,
                                 .checkpoints = deck.checkpoint.dir,
                                 .resume = options.resume,
                                 .steps = deck.run.steps.steps});
  } catch (const InputError& refusal) {
    comm::on_first_rank(world, [&] {
      check::DeckCheckOptions check = check_options(options, world.size());
      check.looks_at_start = true;
      std::vector<config::DeckError> all;
      try {
        check::check_deck(check);
      } catch (const config::DeckErrors& errors) {
        all = errors.errors();
      }
      const bool is_said = std::ranges::any_of(all, [](const config::DeckError& error) {
        return error.key == "run.dir" || error.key == "--resume";
      });
      if (!is_said)
        all.push_back(config::error_at(deck, "run.dir", refusal.what(), "", ""));
      if (all.size() > 1) throw config::DeckErrors(std::move(all));
    });
    throw;
  }
}

// Refuses a deck that differs from the checkpoint's where it may not. `corpora` are rank
// 0's; a finished run trains on none, and has none here.
void check_checkpoint(const ckpt::CheckpointReader& checkpoint, const config::Deck& deck,
                      const data::Corpora& corpora, comm::Communicator& world, Log& log) {
  const std::string changes = comm::on_first_rank(world, [&] {
    const config::Comparison comparison =
        check::compare_with_run(checkpoint, {.deck = deck, .corpora = corpora});
    if (!comparison.errors.empty()) throw config::DeckErrors(comparison.errors);
    std::string text;
    for (const std::string& change : comparison.changes) text += "  " + change + "\n";
    return text;
  });
  if (!changes.empty())
    log.info("changed since the checkpoint:\n{}", wrap_lines(changes));
}

// A run that starts again and again, and each time ends before it has saved anything new,
// would do so for ever.
void require_progress(comm::Communicator& world, const config::Deck& deck,
                      report::RunHistory& history, std::int64_t step) {
  const auto most = static_cast<int>(deck.run.max_idle_starts);
  comm::on_first_rank(world, [&] {
    const int idle = report::idle_starts(history.starts(), step);
    if (most == 0 || idle < most) return;
    history.note_refusal();
    throw Error(fmt::format(
        "'{}' has no new step saved in the last {}, or one in a small part of their time "
        "before that was over (run.max_idle_starts). Look into their output first: too "
        "little time for steps and a checkpoint, a full disk, a bad node? What is "
        "started "
        "after this one is not refused.",
        deck.run.dir, format_plural(idle, "start")));
  });
}

void warn(Log& log, const std::string& problem) {
  if (!problem.empty()) log.warning("{}", problem);
}

// Whether the checkpoint is this run's, and not one of another run that it branches off
// from.
bool is_of_run(const io::Path& checkpoint, const config::Deck& deck) {
  std::error_code ignored;
  return std::filesystem::equivalent(checkpoint.parent_path(), deck.checkpoint.dir,
                                     ignored);
}

// Of this rank's device, by whoever is there; 0 without one.
std::size_t bytes_in_use() {
  const DeviceBytes bytes = device_bytes();
  return static_cast<std::size_t>(bytes.total - bytes.free);
}

// Refuses a run that could never fit, before anything is made for it. Collective: ranks
// of a node may be of different stages.
void require_memory(const config::Deck& deck, step::Replica& replica,
                    const Machine& machine, const comm::Environment& environment,
                    const Exec& exec) {
  comm::Communicator& world = *environment.world();
  if constexpr (!kHostExecution) {
    const DeviceBytes usable =
        plan::usable_bytes(device_bytes(), kernels::kept_by_products(exec));
    plan::require_device_memory(world, environment.host_name(), deck, replica,
                                machine.device, usable);
    plan::require_host_memory(world, environment.host_name(),
                              plan::host_need(replica, deck), available_memory_now());
    return;
  }
  const step::MemoryPlan plan = plan::plan_memory(replica, deck);
  const std::vector<std::string> hosts = world.gather(environment.host_name());
  const std::vector<std::int64_t> totals =
      world.gather(static_cast<std::int64_t>(plan.total() + plan.checkpoint_copy));
  double needed = 0.0;
  int ranks = 0;
  for (std::size_t rank = 0; rank < totals.size(); ++rank) {
    if (hosts[rank] != environment.host_name()) continue;
    needed += static_cast<double>(totals[rank]);
    ++ranks;
  }
  const auto there = static_cast<double>(machine.memory_bytes);
  comm::on_every_rank(world, [&] {
    TRIREME_REQUIRE_INPUT(
        there <= 0.0 || needed <= there,
        "the run takes {} on {} (on rank {}, one of {}, {} of weights, gradients and "
        "optimizer state and {} of activations), which has {}: take a smaller "
        "batch.micro, a smaller model, checkpoint.async: false, or a machine with more "
        "memory. --dry-run tells what a deck takes",
        format_bytes(needed), environment.host_name(), world.rank(), ranks,
        format_bytes(static_cast<double>(plan.weights + plan.gradients + plan.optimizer)),
        format_bytes(static_cast<double>(plan.saved())), format_bytes(there));
  });
}

TrainCommand typed_command(const TrainOptions& options,
                           const comm::Environment& environment,
                           const std::string& run_directory) {
  TrainCommand typed{
      .launcher = comm::launcher_words([](const char* name) { return std::getenv(name); },
                                       environment.world_size(), comm::srun_mpi_type()),
      .program = options.program,
      .deck = options.deck,
      .overrides = options.overrides,
      .run_dir = options.run_dir};
  if (io::is_stream(options.deck)) {  // which cannot be read again
    typed.deck = (io::Path(run_directory) / "deck.yaml").string();
    typed.overrides.clear();
  }
  return typed;
}

// "start 2, 2025-03-01T12:30:05.250Z, node1 and 3 more hosts, 16 ranks"
std::string title_of(const Json& environment, const std::string& host,
                     std::int64_t start) {
  const auto more = static_cast<std::int64_t>(environment["hosts"].size()) - 1;
  std::string hosts = host;
  if (more > 0) hosts += fmt::format(" and {}", format_plural(more, "more host"));
  return fmt::format("start {}, {}, {}, {}", start,
                     environment["started"].get<std::string>(), hosts,
                     format_plural(environment["ranks"].get<int>(), "rank"));
}

void record_error(Log& log, const std::exception& error) {
  log.record(fmt::format("error: {}", message_of(error)));
}

// All phases of a run, for --fault.
std::vector<FaultPhase> fault_phases() {
  std::vector<FaultPhase> phases = {{"start"},
                                    {"load"},
                                    {.name = "step", .has_gradients = true},
                                    {"input"},
                                    {"validation"}};
  for (const comm::GroupAxes& group : comm::group_axes()) {
    phases.push_back({fmt::format("message.{}", group.name)});
  }
  const auto& saves = ckpt::save_phases();
  phases.insert(phases.end(), saves.begin(), saves.end());
  return phases;
}

std::optional<report::TraceOptions> trace_of(const TrainOptions& options) {
  if (options.trace.empty()) return {};
  return report::parse_trace_steps(options.trace_steps, options.trace);
}

std::optional<report::ProfileOptions> profile_of(const TrainOptions& options) {
  if (options.profile.empty()) return {};
  return report::parse_profile_steps(options.profile);
}

// What a model must beat: the entropy of its corpora's tokens without their order.
void say_entropy(const data::Corpora& corpora, Log& log) {
  const bool is_one = corpora.size() == 1;
  for (const auto& corpus : corpora) {
    log.info("{}",
             wrap_lines(fmt::format(
                 "unigram entropy of {}: {:.3f} nats per token{}",
                 is_one ? "the corpus" : fmt::format("'{}'", corpus->path().string()),
                 corpus->unigram_entropy(), is_one ? ", what a model must beat" : "")));
  }
}

// One start of a run, phase by phase in the order of the functions. What a phase makes
// stays until the start ends, and then goes in the reverse order of the members: the
// model before the board that shows what ranks do, that before the run directory is let
// go, and the handlers of signals last. A mistake leaves nothing behind, because the
// phases before open() only look.
class Start {
 public:
  Start(const TrainOptions& options, comm::Environment& environment, Log& log,
        std::optional<RunLog>& run_log);
  // The deck, the run directory and the checkpoint: an exit status where there is nothing
  // to train.
  std::optional<int> decide();
  // Corpora, process grid, memory, nodes: what the model will be made of.
  void prepare();
  // The run directory begins: an exit status where a signal has come already.
  std::optional<int> open();
  // The model, and the weights that it starts from.
  void load();
  // Goes through the loop, and returns the exit status.
  int train();

 private:
  bool resumes() const { return directory_->start().kind != check::StartKind::afresh; }
  // The step that this start goes on from.
  std::int64_t first_step() const { return resumes() ? restore_->step() : 0; }
  bool is_first_rank() const { return world_.rank() == 0; }
  void listen();
  void open_checkpoint();
  void check_checkpoint_with_corpora(const ckpt::CheckpointReader& checkpoint);
  void find_reference();
  void try_nodes();
  void begin_records(const Json& surroundings);
  void settle_products();
  void note_restored();
  void say_what_begins();
  kernels::NarrowProducts products() const {
    return kernels::narrow_products(*exec_, step::compute_type(deck_));
  }
  [[noreturn]] void fail(const std::exception& error);

  const TrainOptions& options_;
  comm::Environment& environment_;
  comm::Communicator& world_;
  Log& log_;
  std::optional<RunLog>& run_log_;
  job::StopRequest::Clock::time_point start_time_ = job::StopRequest::Clock::now();
  report::RestartTimes restart_times_;
  report::Terminal terminal_ = report::find_terminal(stdout, std::getenv);
  FaultPlan faults_;
  SlowLinks slow_links_{world_, faults_};
  std::optional<report::TraceOptions> trace_;
  std::optional<report::ProfileOptions> profile_;
  std::optional<job::JobClock> job_;
  job::StopRequest::Options stops_;
  std::optional<job::StopRequest> stop_;
  LoadedDeck loaded_;
  const config::Deck& deck_ = loaded_.deck;
  TrainCommand typed_;
  std::unique_ptr<RunDirectory> directory_;
  std::optional<ckpt::Restore> restore_;  // of the first weights
  data::Datasets datasets_;
  std::optional<comm::RankGrid> grid_;
  plan::LibraryBytes libraries_;  // before the model is there
  Machine machine_;
  std::optional<job::Placement> placement_;
  std::optional<OnBoard> on_board_;
  std::optional<report::RunHistory> history_;
  std::optional<report::PeakMeter> peak_;
  std::optional<report::ReferenceRun> reference_;  // on rank 0
  std::optional<Exec> exec_;
  step::ProductWays ways_, attention_;
  std::unique_ptr<step::Replica> replica_;  // made early, to be planned
  std::optional<TrainingRun> run_;
};

Start::Start(const TrainOptions& options, comm::Environment& environment, Log& log,
             std::optional<RunLog>& run_log)
    : options_(options),
      environment_(environment),
      world_(*environment.world()),
      log_(log),
      run_log_(run_log),
      faults_(options.fault, world_.rank(), world_.size(), fault_phases()) {
  restart_times_.launch = report::process_age();
  if (!faults_.empty()) {
    log_.warning("faults are made to happen in this run: {}", options_.fault);
  }
  faults_.at("start");
  trace_ = trace_of(options_);
  profile_ = profile_of(options_);
  world_.set_timeout(comm::Environment::kStartSeconds);
  listen();
  require_same_files(world_, environment_.host_name(), options_.deck);
  if (trace_) {
    comm::on_first_rank(world_, [&] { io::require_writable(trace_->path); });
    require_seen_by_all(world_, trace_->path.parent_path(), "directory of --trace");
  }
}

// Signals count from here on; which of them, and the limit, the deck will say.
void Start::listen() {
  // Whoever read the output may go; the run and its records do not end with them.
  std::signal(SIGPIPE, SIG_IGN);
  job_.emplace(job::JobClock::Options{.asks = is_first_rank()});
  stops_.signals = config::CheckpointConfig().on_signal;
  stops_.start = start_time_;
  stops_.job = &*job_;
  stops_.speaks = is_first_rank();
  stop_.emplace(stops_);
}

std::optional<int> Start::decide() {
  loaded_ = load_deck(options_, world_, log_);
  world_.set_timeout(deck_.run.hang_timeout.value_or(0.0));
  environment_.set_deterministic(deck_.run.deterministic);
  stops_.signals = deck_.checkpoint.on_signal;
  stops_.time_limit_seconds = deck_.run.time_limit.value_or(0.0);
  stops_.margin_seconds = deck_.checkpoint.wall_time_margin;
  stop_->change(stops_);
  typed_ = typed_command(options_, environment_, deck_.run.dir);
  directory_ = hold_directory(options_, deck_, world_);
  for (const std::string& note : directory_->start().notes) {
    log_.info("{}", wrap_lines(note));
  }
  open_checkpoint();
  if (directory_->start().kind != check::StartKind::finished) return {};
  restore_->verify();
  if (restore_->step() < deck_.run.steps.steps) return {};
  log_.info(
      "{}\n{}",
      wrap_lines(fmt::format("nothing to train: '{}' is of step {}, and run.steps is {}.",
                             restore_->reader().path().string(), restore_->step(),
                             deck_.run.steps.steps)),
      advice_to_train_on(typed_, restore_->step()));
  return kExitDone;
}

// The checkpoint that the run goes on from or begins with, where there is one.
void Start::open_checkpoint() {
  const check::RunStart& start = directory_->start();
  if (resumes()) {
    std::vector<io::Path> candidates = start.older;
    candidates.insert(candidates.begin(), start.checkpoint);
    restore_.emplace(
        world_,
        ckpt::Restore::Candidates{std::move(candidates), directory_->take_manifest()},
        log_);
    config::take_measured_stages(config::parse_resolved(restore_->reader().state().deck),
                                 loaded_.deck);
    // A finished run, too: "nothing to train" would be wrong for another model.
    const bool is_finished = start.kind == check::StartKind::finished;
    check_checkpoint(restore_->reader(), deck_,
                     is_finished ? data::Corpora() : loaded_.corpora, world_, log_);
  } else if (!options_.init_from.empty()) {
    restore_.emplace(
        world_, ckpt::Restore::candidates_of(world_, options_.init_from, log_), log_);
    comm::on_first_rank(world_, [&] {
      std::vector<config::DeckError> errors = check::errors_of_weights(
          restore_->reader(), {.deck = deck_, .corpora = loaded_.corpora},
          options_.init_from);
      if (!errors.empty()) throw config::DeckErrors(std::move(errors));
    });
  }
}

void Start::prepare() {
  datasets_ = data::make_datasets(
      deck_, is_first_rank() ? loaded_.corpora : data::open_corpora(deck_));
  check::require_same_corpora(world_, environment_.host_name(),
                              datasets_.identity_of_all());
  exec_ = step::make_exec(deck_);
  // Nobody can plan what the kernels of a library take: they are there before the rest is
  // compared with what is free.
  kernels::load_products(*exec_, step::compute_type(deck_));
  const std::size_t kept = kernels::kept_by_products(*exec_);
  const std::size_t before_groups = bytes_in_use();
  libraries_.context = before_groups - std::min(before_groups, kept);
  grid_.emplace(environment_.world(), step::grid_shape(deck_));
  libraries_.messages = std::max(bytes_in_use(), before_groups) - before_groups;
  if (deck_.parallel.is_to_be_measured()) {
    log_.info("{}",
              wrap_lines(step::deal_by_measured_costs(grid_->groups(), loaded_.deck)));
  }
  replica_ = step::make_replica(deck_, grid_->groups(), step::sharing(deck_));
  if (restore_) check_checkpoint_with_corpora(restore_->reader());
  if (!deck_.run.reference.empty()) find_reference();
  machine_ = find_machine();
  require_memory(deck_, *replica_, machine_, environment_, *exec_);
  placement_ = job::Placement::gather(environment_, machine_);
  if (deck_.run.preflight) try_nodes();
}

// What is only reported keeps no run from going on: where the file of a run that goes on
// is there no more, that is said, and nothing is compared.
void Start::find_reference() {
  const double flops = replica_->part().blueprint.model_flops();
  const std::string problem = comm::on_first_rank(world_, [&]() -> std::string {
    try {
      reference_ = report::read_reference(deck_.run.reference, flops);
    } catch (const InputError& error) {
      if (!resumes()) throw;
      return error.what();
    }
    return {};
  });
  warn(log_, problem);
}

void Start::check_checkpoint_with_corpora(const ckpt::CheckpointReader& checkpoint) {
  if (resumes()) {
    check::require_corpora_of(checkpoint, datasets_.corpora);
  } else {
    check::require_tokenizer_of(checkpoint, datasets_.first(), log_);
  }
  ckpt::require_params(checkpoint, replica_->part().registry,
                       resumes() ? ckpt::Content::training : ckpt::Content::weights);
}

void Start::try_nodes() {
  const step::MemoryPlan plan = plan::plan_memory(*replica_, deck_);
  log_.info("{}",
            wrap_lines(check::preflight(
                world_, {.host = environment_.host_name(),
                         .node = node_name(),
                         .directories = {deck_.run.dir, deck_.checkpoint.dir},
                         .memory_bytes = plan.total() +
                                         (kHostExecution ? plan.checkpoint_copy : 0)})));
}

std::optional<int> Start::open() {
  if (options_.late) make_late(*exec_);
  ways_ = step::product_ways(world_, *exec_, deck_);
  attention_ = step::attention_ways(world_, deck_);
  directory_->begin();
  on_board_.emplace(world_, directory_->path(), environment_.host_name(), log_);
  directory_->write_deck(config::resolved_text(deck_));
  Json surroundings = describe_environment(grid_->shape(), products(), ways_.names,
                                           machine_, *placement_, options_.command_line);
  if (world_.size() > 1) {
    surroundings["messages"] = describe_messages(environment_.transport());
  }
  if (!attention_.names.empty()) surroundings["attention"] = attention_.names;
  directory_->write_environment(surroundings);
  history_.emplace(directory_->path());
  if (options_.resume == "auto") {
    require_progress(world_, deck_, *history_, first_step());
  }
  if (is_first_rank()) begin_records(surroundings);
  if (resumes() && world_.all(is_of_run(directory_->start().checkpoint, deck_))) {
    stop_->note_published();
  }
  // A start that is to stop does so before the weights are read, which takes long, if
  // nothing is lost by it: the checkpoint is there as it was.
  if (!stop_->is_published() || stop_->poll_start(world_) == job::StopReason::none) {
    return {};
  }
  log_.info("{}\n{}",
            wrap_lines(fmt::format(
                "stopped before the first step: {}. Step {} is saved as it was.",
                stop_->description(), restore_->step())),
            advice_to_go_on(typed_));
  if (is_first_rank()) warn(log_, history_->end(kExitStoppedEarly));
  return kExitStoppedEarly;
}

// Begins what rank 0 writes: starts.jsonl and log.txt.
void Start::begin_records(const Json& surroundings) {
  // Rank 0's word is enough for all.
  stop_->expect_save(report::expected_save(history_->starts()));
  warn(log_, history_->begin(report::process_age(), first_step(),
                             surroundings.value("job", "")));
  restart_times_.down = history_->seconds_down();
  run_log_.emplace(
      directory_->path(),
      title_of(surroundings, environment_.host_name(), history_->starts().back().number),
      [&log = log_](const std::string& problem) { log.warning("{}", problem); });
  run_log_->write(options_.command_line);
  log_.record_to(
      [&run_log = run_log_](const std::string& text) { run_log->write(text); });
}

// By which algorithms products are computed, where there is a choice. They are timed
// before the model takes its memory, when there is room for operands beside it, and after
// the peak was measured, when the device is warm.
void Start::settle_products() {
  const auto tuner = kernels::make_gemm_tuner(*exec_);
  const step::SettledProducts settled = step::settle_products(
      world_, *tuner,
      {.stored = resumes() ? step::stored_gemm_table(restore_->reader().state()) : "",
       .times = !deck_.run.deterministic,
       .occurring = [this] {
         return step::products_of(*replica_, step::step_shape(deck_));
       }});
  if (!settled.note.empty()) log_.info("{}", wrap_lines(settled.note));
  warn(log_, settled.warning);
  if (settled.table.library.is_empty()) return;
  kernels::use_gemm_table(*exec_, settled.table);
  directory_->write_gemm_table(step::text_of(settled.table));
}

void Start::load() {
  const index_t samples = config::samples_of(deck_.run.steps.steps, deck_.batch);
  peak_.emplace(world_, *exec_, step::compute_type(deck_),
                static_cast<double>(samples) * replica_->part().blueprint.model_flops() /
                    world_.size());
  settle_products();
  double bandwidth = 0.0;
  std::vector<report::LinkSpeed> links;
  if (profile_ || deck_.run.probe) {  // ranks that share a memory have parts of it
    world_.barrier();
    bandwidth = kernels::measured_memory_bandwidth(*exec_);
  }
  if (deck_.run.probe) links = report::probe_links(*exec_, replica_->part().groups);
  run_.emplace(deck_, *grid_, *replica_, datasets_, *directory_, *peak_, log_, faults_,
               *exec_);
  run_->record(libraries_);
  run_->record(bandwidth, std::move(links));
  if (reference_) run_->record(*reference_);
  run_->after_each_step([this] { on_board_->look(); });
  if (trace_) run_->record(*trace_);
  if (profile_) run_->record(*profile_);
  faults_.at("load");
  if (restore_) {
    restore_->read(
        [this](const ckpt::CheckpointReader& checkpoint) {
          if (resumes()) {
            run_->resume(checkpoint);
          } else {
            run_->init_from(checkpoint);
          }
        },
        [this](const ckpt::CheckpointReader& checkpoint) {
          check_checkpoint_with_corpora(checkpoint);
        });
  }
  if (is_first_rank()) note_restored();
  say_what_begins();
  restore_.reset();  // its manifest may be large
}

void Start::note_restored() {
  if (resumes() && first_step() != history_->starts().back().first_step) {
    warn(log_, history_->note_first_step(first_step()));
  }
  if (restore_) {
    restart_times_.read = restore_->seconds();
    restart_times_.bytes = restore_->bytes();
  }
  const std::chrono::duration<double> passed =
      job::StopRequest::Clock::now() - start_time_;
  restart_times_.set_up = passed.count() - restart_times_.read;
  run_->record(*history_, restart_times_);
}

void Start::say_what_begins() {
  report::BannerInfo about = describe_run(deck_, datasets_, machine_, *placement_,
                                          replica_->part().blueprint.parameter_count(),
                                          first_step(), peak_->peak().best);
  if (world_.size() > 1) about.wait_policy = name_of(environment_.wait_policy());
  about.attention = attention_.names;
  log_.info("{}", report::banner(about));
  const std::string widened = say_products(deck_, products());
  if (!widened.empty()) log_.info("{}", widened);
  warn(log_, ways_.warning);
  warn(log_, attention_.warning);
  const std::string own = step::own_attention_note(deck_);
  if (!own.empty()) log_.info("{}", wrap_lines(own));
  for (const std::string& idle : config::idle_keys(deck_)) {
    log_.info("{}", wrap_lines(idle));
  }
  for (const std::string& warning : placement_->warnings(grid_->shape())) {
    log_.warning("{}", warning);
  }
  if (!resumes()) say_entropy(datasets_.corpora, log_);
}

int Start::train() {
  try {
    return run_->run(*stop_, terminal_, typed_);
  } catch (const std::exception& error) {
    fail(error);
  }
}

// What goes wrong in the loop is no mistake of the command line (a file that was damaged
// meanwhile, say): status 2 would tell scripts that nothing was begun.
void Start::fail(const std::exception& error) {
  if (is_first_rank()) warn(log_, history_->end(1));
  const bool is_input = dynamic_cast<const InputError*>(&error) != nullptr;
  const Error as_error(error.what());
  if (world_.is_under_way() || run_->has_given_up()) {
    on_board_->fail();
    if (world_.size() > 1) record_error(log_, error);  // there is no coming back
    environment_.end_with(is_input ? as_error : error);
  }
  if (is_input) throw as_error;
  throw;
}

}  // namespace

int train(const TrainOptions& options, comm::Environment& environment) {
  std::optional<RunLog> run_log;  // the log's record as long as that lives
  Log log(environment.world_rank() == 0);
  try {
    Start start(options, environment, log, run_log);
    if (const std::optional<int> status = start.decide()) return *status;
    start.prepare();
    if (const std::optional<int> status = start.open()) return *status;
    start.load();
    return start.train();
  } catch (const std::exception& error) {
    record_error(log, error);
    throw;
  }
}

}  // namespace trireme::run
