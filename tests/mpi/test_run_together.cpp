// What the ranks of a run decide together: stop after the same step, begin the same way,
// throw the same error, show the same table. Ranks differ on purpose; MPI is up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>

#include "base/error.hpp"
#include "ckpt/save.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/on_ranks.hpp"
#include "comm/self_communicator.hpp"
#include "job/stop_request.hpp"
#include "report/section_table.hpp"
#include "run/run_directory.hpp"
#include "run/run_log.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::run {
namespace {

using ::testing::HasSubstr;

class RunTogether : public ::testing::Test {
 protected:
  std::shared_ptr<comm::Communicator> world_ = comm::make_mpi_world();
  int last_ = world_->size() - 1;
};

TEST_F(RunTogether, ASignalOnOneRankStopsAllAfterTheSameStep) {
  job::StopRequest request({.signals = {config::SignalName::usr1}});
  int step = 1;
  for (; step < 100; ++step) {
    if (step == 7 && world_->rank() == last_) std::raise(SIGUSR1);
    if (request.poll(*world_) != job::StopReason::none) break;
  }
  EXPECT_EQ(step, 7);
  EXPECT_EQ(request.description(),
            last_ == 0 ? "signal USR1" : fmt::format("signal USR1 (on rank {})", last_));
}

TEST_F(RunTogether, TheFirstClockToReachTheLimitDecides) {
  job::StopRequest::Options options;
  options.time_limit_seconds = 100.0;
  options.margin_seconds = 10.0;
  const int seconds = world_->rank() == last_ ? 95 : 0;
  options.start = job::StopRequest::Clock::now() - std::chrono::seconds(seconds);
  job::StopRequest request(options);
  EXPECT_EQ(request.poll(*world_), job::StopReason::time_limit);
}

TEST_F(RunTogether, SignalsComeBeforeTheLimit) {
  job::StopRequest::Options options;
  options.signals = {config::SignalName::term};
  options.time_limit_seconds = 100.0;
  options.start = job::StopRequest::Clock::now() - std::chrono::seconds(99);
  job::StopRequest request(options);
  if (world_->rank() == 0) std::raise(SIGTERM);
  EXPECT_EQ(request.poll(*world_), job::StopReason::signal);
  EXPECT_THAT(request.description(), HasSubstr("signal TERM"));
}

TEST_F(RunTogether, ErrorsOfTheFirstRankReachAll) {
  int calls = 0;
  const std::string text = comm::on_first_rank(*world_, [&] {
    ++calls;
    return std::string("found\0it", 8);
  });
  EXPECT_EQ(text, std::string("found\0it", 8));
  EXPECT_EQ(calls, world_->rank() == 0 ? 1 : 0);
  const std::vector<std::string> texts = {"", "1:2:", std::string("\xff\0/", 3), ""};
  EXPECT_EQ(comm::on_first_rank(*world_, [&] { return texts; }), texts);
  EXPECT_TRUE(
      comm::on_first_rank(*world_, [] { return std::vector<std::string>(); }).empty());
  EXPECT_EQ(test::message_of<InputError>([&] {
              comm::on_first_rank(*world_,
                                  []() -> std::string { throw InputError("no"); });
            }),
            "no");
  EXPECT_EQ(world_->all_reduce(std::int64_t{1}), world_->size());  // nobody is lost
}

// Ranks fail in different ways: all throw what the lowest of them did.
TEST_F(RunTogether, TheLowestRanksErrorReachesAll) {
  const auto fail_from = [&](int first) {
    comm::on_every_rank(*world_, [&] {
      if (world_->rank() < first) return;
      if (world_->rank() % 2 == 0) throw InputError(fmt::format("{}", world_->rank()));
      throw Error(fmt::format("{}", world_->rank()));
    });
  };
  EXPECT_EQ(test::message_of<InputError>([&] { fail_from(0); }), "0");
  if (world_->size() > 1) {
    EXPECT_EQ(test::message_of<Error>([&] { fail_from(1); }), "1");
  }
  fail_from(world_->size());  // none
  EXPECT_EQ(world_->all_reduce(std::int64_t{1}), world_->size());
}

TEST_F(RunTogether, ARunBeginsOnceAndIsRefusedByAll) {
  std::unique_ptr<test::Scratch> scratch;
  std::string path;
  if (world_->rank() == 0) {
    scratch = std::make_unique<test::Scratch>();
    path = (*scratch / "run").string();
  }
  world_->broadcast(path);
  const check::RunOptions options{path, path + "/checkpoints", "never", 10};
  {
    RunDirectory directory(*world_, options);
    EXPECT_EQ(directory.start().kind, check::StartKind::afresh);
    directory.begin();
    directory.write_deck("model: {}\n");
    EXPECT_EQ(test::slurp(directory.file("deck.yaml")), "model: {}\n");
    // A second one of the same run, and every rank hears of it.
    EXPECT_THAT(test::message_of<InputError>([&] { RunDirectory(*world_, options); }),
                HasSubstr("another process trains in"));
  }
  EXPECT_THAT(test::message_of<InputError>([&] { RunDirectory(*world_, options); }),
              HasSubstr("holds a run already (deck.yaml)"));
  world_->barrier();
}

// Only rank 0 looks. A path is bytes of no encoding.
TEST_F(RunTogether, AllKnowWhatIsGoneOnFrom) {
  std::unique_ptr<test::Scratch> scratch;
  std::string path;
  if (world_->rank() == 0) {
    scratch = std::make_unique<test::Scratch>();
    path = (*scratch / "r\xff:").string();
    for (const std::int64_t step : {500, 600}) {
      ckpt::TrainingState state;
      state.step = step;
      const float one = 1.0f;
      ckpt::save_checkpoint(Exec(), *comm::make_self_communicator("self"),
                            io::Path(path) / "checkpoints", state,
                            {{"optimizer/exp_avg/one",
                              DType::float32,
                              {1},
                              {{{0, 0, 1, 1}, 0, 1}},
                              reinterpret_cast<const std::byte*>(&one),
                              true}},
                            {.retention = {.keep = 0}});
    }
  }
  world_->broadcast(path);
  const io::Path checkpoints = path + "/checkpoints";
  RunDirectory directory(*world_, {path, checkpoints, "auto", 1000});
  const check::RunStart& start = directory.start();
  EXPECT_EQ(start.kind, check::StartKind::resume);
  EXPECT_EQ(start.step, 600);
  EXPECT_EQ(start.checkpoint.filename(), "step_00000600");
  EXPECT_EQ(start.checkpoint.parent_path().parent_path().filename(), "r\xff:");
  ASSERT_EQ(start.older.size(), 1u);
  EXPECT_EQ(start.older[0].filename(), "step_00000500");
  EXPECT_EQ(directory.take_manifest().has_value(), world_->rank() == 0);
  world_->barrier();
}

TEST_F(RunTogether, RankZeroWarnsForOthers) {
  std::vector<std::string> recorded;
  Log log(world_->rank() == 0);
  log.record_to([&](const std::string& text) { recorded.push_back(text); });
  log.warning("of all");
  if (world_->rank() != 0) log.warning("of others,\nin two lines");
  if (world_->rank() == last_) log.warning("of the last");
  warn_for_others(*world_, log);
  if (world_->rank() != 0) {
    EXPECT_TRUE(recorded.empty());
    return;
  }
  std::vector<std::string> expected = {"warning: of all"};
  if (last_ == 0) {
    expected.emplace_back("warning: of the last");
  } else {
    expected.emplace_back("warning: rank 1: of others,\nin two lines");
    expected.push_back(fmt::format("warning: rank {}: of the last", last_));
  }
  EXPECT_EQ(recorded, expected);
}

TEST_F(RunTogether, TheTableHasTheSlowestAndTheFastestRank) {
  report::RunTimes times;
  const double rank = world_->rank();
  times.seconds = {0, 10 + rank, 20, 0, 0, 0, 0};
  times.loop_seconds = 40 + rank;
  times.steps = 10;
  times.step_seconds = times.loop_seconds;
  times.step_median = times.step_seconds / 10;
  times.tokens = 1000;
  times.model_flops = 1e12;
  times.memory = {{"weights", 0.0, 100 * (rank + 1)}};
  const report::SectionTable table(*world_, times);
  const auto& forward = table.rows()[1];
  EXPECT_EQ(forward.min, 10.0);
  EXPECT_EQ(forward.max, 10.0 + last_);
  EXPECT_DOUBLE_EQ(forward.avg, 10.0 + last_ / 2.0);
  EXPECT_DOUBLE_EQ(forward.share, forward.avg / (40.0 + last_ / 2.0));
  EXPECT_EQ(table.loop_seconds(), 40.0 + last_);
  EXPECT_DOUBLE_EQ(table.model_tflops(), 1.0 / (40.0 + last_) / world_->size());
  const auto texts = world_->gather(table.text());
  for (const std::string& text : texts) EXPECT_EQ(text, texts.front());
}

}  // namespace
}  // namespace trireme::run
