// A node that fails a check, or is much slower than the others, is named on all ranks,
// and listed as sbatch takes it. Ranks of one machine play nodes; what is wrong with one
// of them is put in by the hook.
#include "check/preflight.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "comm/mpi_communicator.hpp"
#include "support/shared_scratch.hpp"

namespace trireme::check {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Preflight : public ::testing::Test {
 protected:
  Preflight() {
    // The run's directory is made later.
    options_.directories = {scratch_ / "runs/a", scratch_.path()};
    options_.host = "node" + std::to_string(world_->rank());
    options_.memory_bytes = 1 << 20;
  }
  // On the last rank, in this check.
  void put_in(const std::string& check, const std::function<void()>& fault) {
    options_.hook = [this, check, fault](std::string_view now) {
      if (now == check && world_->rank() == last_) fault();
    };
  }
  std::string refusal() {
    const std::string text =
        test::message_of<Error>([&] { preflight(*world_, options_); });
    for (const std::string& other : world_->gather(text)) EXPECT_EQ(other, text);
    return text;
  }
  // A machine that others use may make a node that is fit slow, too.
  auto names_the_last(const std::string& what) const {
    const std::string node = "node" + std::to_string(last_);
    return AllOf(StartsWith("preflight: "), HasSubstr("\n  " + node + what),
                 ContainsRegex("\nTo leave (it|them) out, give sbatch: --exclude=(.*,)?" +
                               node + "(,.*)?$"));
  }

  std::shared_ptr<comm::Communicator> world_ = comm::make_mpi_world();
  int last_ = world_->size() - 1;
  test::SharedScratch scratch_{*world_};
  PreflightOptions options_;
};

TEST_F(Preflight, FitNodes) {
  options_.host = "node";
  EXPECT_THAT(
      preflight(*world_, options_),
      ContainsRegex("^preflight: 1 node fit for the run \\(write [0-9.]+[mu]?s, memory "
                    "[0-9.]+[mu]?s, compute [0-9.]+[mu]?s, exchange [0-9.]+[mu]?s\\)$"));
  EXPECT_TRUE(world_->rank() != 0 || std::filesystem::is_empty(scratch_.path()));
}

TEST_F(Preflight, OneThatCannotWrite) {
  if (last_ == 0) return;  // then none can: below
  put_in("write", [] { throw Error("Input/output error"); });
  EXPECT_THAT(refusal(), names_the_last(fmt::format(
                             " (rank {}), write: Input/output error", last_)));
}

TEST_F(Preflight, DirectoryWhereNobodyCanWrite) {
  options_.directories = {"/proc/none/at/all"};
  const std::string text =
      test::message_of<InputError>([&] { preflight(*world_, options_); });
  EXPECT_THAT(text,
              AllOf(HasSubstr("no node can write where the run should"),
                    HasSubstr("node0 (rank 0), write: cannot"),
                    HasSubstr("run.dir, checkpoint.dir"), Not(HasSubstr("exclude"))));
}

TEST_F(Preflight, OneWithoutTheMemory) {
  if (world_->rank() == last_) options_.memory_bytes = std::size_t{1} << 50;
  EXPECT_THAT(refusal(), names_the_last(fmt::format(
                             " (rank {}), memory: the run takes 1.0 PiB of this "
                             "node, where",
                             last_)));
}

TEST_F(Preflight, OneThatIsSlow) {
  if (last_ == 0) return;  // than whom?
  for (const std::string check : {"write", "compute", "exchange"}) {
    put_in(check, [] { std::this_thread::sleep_for(std::chrono::seconds(3)); });
    EXPECT_THAT(refusal(), names_the_last(", " + check + ": "));
  }
}

// sbatch knows nodes by SLURM's names. One name for several hosts is of the node where
// mpiexec was started, whose environment all ranks got.
TEST_F(Preflight, NamesNodesAsTheBatchSystemDoes) {
  put_in("compute", [] { throw Error("no device"); });
  options_.node = "n" + std::to_string(world_->rank());
  EXPECT_THAT(
      refusal(),
      AllOf(HasSubstr(fmt::format("\n  n{} (rank {}), compute: no", last_, last_)),
            ContainsRegex(fmt::format("--exclude=(.*,)?n{}(,.*)?$", last_))));
  if (last_ == 0) return;
  options_.node = "n0";
  EXPECT_THAT(refusal(), names_the_last(""));
  options_.node = world_->rank() == 0 ? "n0" : "";
  EXPECT_THAT(refusal(), names_the_last(""));
}

// Leaves together: all ranks can go on after a refusal.
TEST_F(Preflight, SeveralRanksOnANode) {
  options_.host = "node" + std::to_string(world_->rank() / 2);
  put_in("compute", [] { throw Error("no device"); });
  const std::string text = refusal();
  EXPECT_THAT(text, HasSubstr(fmt::format("node{} (rank {}), compute: no device",
                                          last_ / 2, last_)));
  EXPECT_EQ(world_->all_reduce(std::int64_t{1}), world_->size());
}

}  // namespace
}  // namespace trireme::check
