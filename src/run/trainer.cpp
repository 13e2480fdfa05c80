// run/trainer.cpp — see trainer.hpp.
#include "run/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error_message.hpp"
#include "base/format.hpp"
#include "base/host_name.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "check/checkpoint_check.hpp"
#include "check/deck_check.hpp"
#include "check/preflight.hpp"
#include "ckpt/params.hpp"
#include "ckpt/restore.hpp"
#include "comm/on_ranks.hpp"
#include "comm/operation_board.hpp"
#include "comm/rank_list.hpp"
#include "config/check.hpp"
#include "config/compare.hpp"
#include "config/load.hpp"
#include "io/atomic_file.hpp"
#include "io/checksum.hpp"
#include "model/formulae.hpp"
#include "plan/deck_memory.hpp"
#include "report/peak_meter.hpp"
#include "report/run_history.hpp"
#include "run/run_commands.hpp"
#include "run/run_log.hpp"
#include "run/shared_directory.hpp"
#include "run/start_report.hpp"
#include "run/training_run.hpp"
#include "step/deck_model.hpp"

namespace trireme::run {

namespace {

// "" where it cannot be read: no /proc, or a deck that only rank 0 can see.
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

// What this rank does stands in the run directory while this lives.
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
  // Between steps: a rank that is alone sends no messages, and would note nothing else.
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

struct LoadedDeck {
  config::Deck deck;
  data::Corpora corpora;  // of data.train; of rank 0, which has checked them
};

check::DeckCheckOptions check_options(const TrainOptions& options, int ranks) {
  return {.deck = options.deck,
          .overrides = options.overrides,
          .run_dir = options.run_dir,
          .ranks = ranks,
          .resume = options.resume,
          .init_from = options.init_from,
          .purpose = check::Purpose::train};
}

// Rank 0 reads and checks the deck; the others get the resolved text.
LoadedDeck load_deck(const TrainOptions& options, comm::Communicator& world) {
  check::CheckedDeck checked;  // of rank 0
  const std::string text = comm::on_first_rank(world, [&] {
    checked = check::check_deck(check_options(options, world.size()));
    return config::resolved_text(checked.deck);
  });
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

// What the checkpoint's deck and this one may not differ in. `corpora`: rank 0's, none of
// a finished run, which trains on none.
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

// Rather than of another run, that this one branches off from.
bool is_of_run(const io::Path& checkpoint, const config::Deck& deck) {
  std::error_code ignored;
  return std::filesystem::equivalent(checkpoint.parent_path(), deck.checkpoint.dir,
                                     ignored);
}

// Of a run that could never fit, before anything is made for it. Collective: ranks of a
// node may be of different stages.
void require_memory(const config::Deck& deck, const step::ModelState<float>& shapes,
                    const Machine& machine, const comm::Environment& environment) {
  if constexpr (!kHostExecution) return;  // the device's memory says so itself
  comm::Communicator& world = *environment.world();
  const step::MemoryPlan plan = plan::plan_memory(shapes, deck);
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
std::string title_of(const RunEnvironment& environment, const std::string& host,
                     std::int64_t start) {
  const auto more = static_cast<std::int64_t>(environment.hosts.size()) - 1;
  std::string hosts = host;
  if (more > 0) hosts += fmt::format(" and {}", format_plural(more, "more host"));
  return fmt::format("start {}, {}, {}, {}", start, environment.started, hosts,
                     format_plural(environment.ranks, "rank"));
}

void record_error(Log& log, const std::exception& error) {
  log.record(fmt::format("error: {}", message_of(error)));
}

// All phases of a run, for --fault.
std::vector<FaultPhase> fault_phases() {
  std::vector<FaultPhase> phases = {{"start"}, {"load"}, {"step"}, {"validation"}};
  const auto& saves = ckpt::save_phases();
  phases.insert(phases.end(), saves.begin(), saves.end());
  return phases;
}

int train_with(const TrainOptions& options, comm::Environment& environment, Log& log,
               std::optional<RunLog>& run_log) {
  comm::Communicator& world = *environment.world();
  // Whoever read the output may go; the run and its records do not end with them.
  std::signal(SIGPIPE, SIG_IGN);
  const auto start_time = job::StopRequest::Clock::now();
  report::RestartTimes restart_times;
  restart_times.launch = report::process_age();

  const report::Terminal terminal = report::find_terminal(stdout, std::getenv);
  FaultPlan faults(options.fault, world.rank(), world.size(), fault_phases());
  if (!faults.empty()) {
    log.warning("faults are made to happen in this run: {}", options.fault);
  }
  faults.at("start");
  std::optional<report::TraceOptions> trace;
  if (!options.trace.empty()) {
    trace = report::parse_trace_steps(options.trace_steps, options.trace);
  }
  world.set_timeout(comm::Environment::kStartSeconds);
  // Signals count from here on; which of them, and the limit, the deck says.
  job::JobClock job({.asks = world.rank() == 0});
  job::StopRequest::Options stops{.signals = config::CheckpointConfig().on_signal,
                                  .start = start_time,
                                  .job = &job,
                                  .speaks = world.rank() == 0};
  job::StopRequest stop(stops);
  require_same_files(world, environment.host_name(), options.deck);
  if (trace) {
    comm::on_first_rank(world, [&] { io::require_writable(trace->path); });
    require_seen_by_all(world, trace->path.parent_path(), "directory of --trace");
  }

  // 1. What to do.
  LoadedDeck loaded = load_deck(options, world);
  const config::Deck& deck = loaded.deck;
  world.set_timeout(deck.run.hang_timeout.value_or(0.0));
  stops.signals = deck.checkpoint.on_signal;
  stops.time_limit_seconds = deck.run.time_limit.value_or(0.0);
  stops.margin_seconds = deck.checkpoint.wall_time_margin;
  stop.change(stops);
  const TrainCommand typed = typed_command(options, environment, deck.run.dir);
  const auto held = hold_directory(options, deck, world);
  RunDirectory& directory = *held;
  const check::RunStart& start = directory.start();
  for (const std::string& note : start.notes) log.info("{}", wrap_lines(note));
  const bool resumes = start.kind != check::StartKind::afresh;
  std::optional<ckpt::Restore> restore;  // of the first weights
  if (resumes) {
    std::vector<io::Path> candidates = start.older;
    candidates.insert(candidates.begin(), start.checkpoint);
    restore.emplace(
        world,
        ckpt::Restore::Candidates{std::move(candidates), directory.take_manifest()}, log);
    // A finished run, too: "nothing to train" would be wrong for another model.
    const bool is_finished = start.kind == check::StartKind::finished;
    check_checkpoint(restore->reader(), deck,
                     is_finished ? data::Corpora() : loaded.corpora, world, log);
  } else if (!options.init_from.empty()) {
    restore.emplace(world, ckpt::Restore::candidates_of(world, options.init_from, log),
                    log);
    comm::on_first_rank(world, [&] {
      std::vector<config::DeckError> errors = check::errors_of_weights(
          restore->reader(), {.deck = deck, .corpora = loaded.corpora},
          options.init_from);
      if (!errors.empty()) throw config::DeckErrors(std::move(errors));
    });
  }
  if (start.kind == check::StartKind::finished) {
    restore->verify();
    if (restore->step() >= deck.run.steps.steps) {
      log.info(
          "{}\n{}",
          wrap_lines(fmt::format(
              "nothing to train: '{}' is of step {}, and run.steps is {}.",
              restore->reader().path().string(), restore->step(), deck.run.steps.steps)),
          advice_to_train_on(typed, restore->step()));
      return kExitDone;
    }
  }

  // 2. Corpora, process grid; then the run directory. What is wrong with the checkpoint
  // is known before anything stays there: a mistake leaves nothing behind.
  const data::Datasets datasets = data::make_datasets(
      deck, world.rank() == 0 ? loaded.corpora : data::open_corpora(deck));
  check::require_same_corpora(world, environment.host_name(), datasets.identity_of_all());
  const comm::RankGrid grid(environment.world(), step::grid_shape(deck));
  step::ModelState<float> shapes(grid.groups(), step::architecture_of(deck),
                                 step::sharing(deck));  // allocates no slab
  const ckpt::Restore::Use check = [&](const ckpt::CheckpointReader& checkpoint) {
    if (resumes) {
      check::require_corpora_of(checkpoint, datasets.corpora);
    } else {
      check::require_tokenizer_of(checkpoint, datasets.first(), log);
    }
    ckpt::require_params(checkpoint, shapes.registry,
                         resumes ? ckpt::Content::training : ckpt::Content::weights);
  };
  if (restore) check(restore->reader());
  const Machine machine = find_machine();
  require_memory(deck, shapes, machine, environment);
  const job::Placement placement = job::Placement::gather(environment, machine);
  if (deck.run.preflight) {
    const step::MemoryPlan plan = plan::plan_memory(shapes, deck);
    log.info("{}",
             wrap_lines(check::preflight(
                 world, {.host = environment.host_name(),
                         .node = node_name(),
                         .directories = {deck.run.dir, deck.checkpoint.dir},
                         .memory_bytes = plan.total() +
                                         (kHostExecution ? plan.checkpoint_copy : 0)})));
  }
  directory.begin();
  OnBoard on_board(world, directory.path(), environment.host_name(), log);
  directory.write_deck(config::resolved_text(deck));
  const RunEnvironment surroundings = describe_environment(
      environment, grid.shape(), machine, placement, options.command_line);
  directory.write_environment(surroundings);
  report::RunHistory history(directory.path());
  if (options.resume == "auto") {
    require_progress(world, deck, history, resumes ? restore->step() : 0);
  }
  if (world.rank() == 0) {
    stop.expect_save(report::expected_save(history.starts()));  // rank 0's word is enough
    warn(log, history.begin(report::process_age(), resumes ? restore->step() : 0,
                            surroundings.job));
    restart_times.down = history.seconds_down();
    run_log.emplace(
        directory.path(),
        title_of(surroundings, environment.host_name(), history.starts().back().number),
        [&log](const std::string& problem) { log.warning("{}", problem); });
    run_log->write(options.command_line);
    log.record_to([&run_log](const std::string& text) { run_log->write(text); });
  }
  if (resumes && world.all(is_of_run(start.checkpoint, deck))) stop.note_published();
  // While nothing is lost by it, and reading takes long.
  if (stop.is_published() && stop.poll_start(world) != job::StopReason::none) {
    log.info("{}\n{}",
             wrap_lines(fmt::format(
                 "stopped before the first step: {}. Step {} is saved as it was.",
                 stop.description(), restore->step())),
             advice_to_go_on(typed));
    if (world.rank() == 0) warn(log, history.end(kExitStoppedEarly));
    return kExitStoppedEarly;
  }

  // 3. The model, and where it starts from.
  report::PeakMeter peak(world, Exec());
  TrainingRun<float> run(deck, grid, datasets, directory, peak, log, faults);
  run.after_each_step([&] { on_board.look(); });
  if (trace) run.record(*trace);
  faults.at("load");
  if (restore) {
    restore->read(
        [&](const ckpt::CheckpointReader& checkpoint) {
          if (resumes) {
            run.resume(checkpoint);
          } else {
            run.init_from(checkpoint);
          }
        },
        check);
  }
  const std::int64_t first_step = resumes ? restore->step() : 0;
  if (world.rank() == 0) {
    if (resumes && first_step != history.starts().back().first_step) {
      warn(log, history.note_first_step(first_step));
    }
    if (restore) {
      restart_times.read = restore->seconds();
      restart_times.bytes = restore->bytes();
    }
    const std::chrono::duration<double> passed =
        job::StopRequest::Clock::now() - start_time;
    restart_times.set_up = passed.count() - restart_times.read;
    run.record(history, restart_times);
  }
  restore.reset();  // its manifest may be large
  report::BannerInfo about = describe_run(
      deck, datasets, machine, placement,
      model::parameter_count(step::architecture_of(deck)), first_step, peak.peak().best);
  if (world.size() > 1) about.wait_policy = name_of(environment.wait_policy());
  log.info("{}", report::banner(about));
  for (const std::string& warning : placement.warnings(grid.shape())) {
    log.warning("{}", warning);
  }
  if (!resumes) {
    for (const auto& corpus : datasets.corpora) {
      const std::string which = datasets.corpora.size() == 1
                                    ? "the corpus"
                                    : fmt::format("'{}'", corpus->path().string());
      log.info("{}",
               wrap_lines(fmt::format(
                   "unigram entropy of {}: {:.3f} nats per token{}", which,
                   corpus->unigram_entropy(),
                   datasets.corpora.size() == 1 ? ", what a model must beat" : "")));
    }
  }

  // 4. Train. What goes wrong from here on is no mistake of the command line: a file that
  // was damaged meanwhile, say. Status 2 would tell scripts that nothing was begun.
  try {
    return run.run(stop, terminal, typed);
  } catch (const std::exception& error) {
    if (world.rank() == 0) warn(log, history.end(1));
    const bool is_input = dynamic_cast<const InputError*>(&error) != nullptr;
    const Error as_error(error.what());
    if (world.is_under_way() || run.has_given_up()) {
      on_board.fail();
      if (world.size() > 1) record_error(log, error);  // there is no coming back
      environment.end_with(is_input ? as_error : error);
    }
    if (is_input) throw as_error;
    throw;
  }
}

}  // namespace

int train(const TrainOptions& options, comm::Environment& environment) {
  std::optional<RunLog> run_log;  // the log's record as long as that lives
  Log log(environment.world_rank() == 0);
  try {
    return train_with(options, environment, log, run_log);
  } catch (const std::exception& error) {
    record_error(log, error);
    throw;
  }
}

}  // namespace trireme::run
