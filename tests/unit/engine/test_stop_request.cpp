// Signals and the wall-time limit: noticed at the next poll, kept, and the old handlers
// put back.
#include "engine/stop_request.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::engine {
namespace {

using config::SignalName;
using namespace std::chrono_literals;

class StopRequestTest : public ::testing::Test {
 protected:
  static void nap(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  std::shared_ptr<comm::Communicator> world_ = comm::make_self_communicator("world");
};

int others_calls = 0;
void others_handler(int) {
  ++others_calls;
}

TEST_F(StopRequestTest, SignalsAreNoticedAndKept) {
  StopRequest request({.signals = {SignalName::usr1, SignalName::term}});
  EXPECT_EQ(request.poll(*world_), StopReason::none);
  EXPECT_EQ(request.description(), "");
  std::raise(SIGTERM);
  EXPECT_EQ(request.description(), "");  // not before it is asked
  EXPECT_EQ(request.poll(*world_), StopReason::signal);
  EXPECT_EQ(request.description(), "signal TERM");
  std::raise(SIGUSR1);
  EXPECT_EQ(request.poll(*world_), StopReason::signal);
  EXPECT_EQ(request.description(), "signal TERM");
}

TEST_F(StopRequestTest, EarlierSignalsDoNotCount) {
  {
    StopRequest request({.signals = {SignalName::usr1}});
    std::raise(SIGUSR1);
  }
  StopRequest request({.signals = {SignalName::usr1}});
  EXPECT_EQ(request.poll(*world_), StopReason::none);
}

TEST_F(StopRequestTest, OldHandlersComeBack) {
  const auto old = std::signal(SIGUSR2, others_handler);
  {
    StopRequest request({.signals = {SignalName::usr2, SignalName::usr2}});
    std::raise(SIGUSR2);
    EXPECT_EQ(others_calls, 0);
  }
  std::raise(SIGUSR2);
  EXPECT_EQ(others_calls, 1);
  std::signal(SIGUSR2, old);
}

TEST_F(StopRequestTest, OnlyOneAtATime) {
  StopRequest request({});
  EXPECT_THROW(StopRequest({}), Error);
  std::raise(SIGINT);  // the refused one has not taken the handler away
  EXPECT_EQ(request.poll(*world_), StopReason::signal);
}

// In a child process, for the second ^C ends it.
TEST_F(StopRequestTest, SecondInterruptDoesWhatItAlwaysDoes) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    StopRequest request({});
    std::raise(SIGINT);
    if (request.poll(*world_) != StopReason::signal) ::_exit(3);
    if (request.description() != "signal INT") ::_exit(4);
    std::raise(SIGINT);
    ::_exit(5);  // still there: it was not the default
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "exit status " << WEXITSTATUS(status);
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST_F(StopRequestTest, ReadsGoOnWhereASignalHitThem) {
  StopRequest request({.signals = {SignalName::usr1}});
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pthread_t reader = ::pthread_self();
  std::thread other([&] {
    nap(0.05);
    ::pthread_kill(reader, SIGUSR1);
    nap(0.05);
    EXPECT_EQ(::write(pipe[1], "x", 1), 1);
  });
  char byte = 0;
  EXPECT_EQ(::read(pipe[0], &byte, 1), 1);  // no EINTR
  other.join();
  EXPECT_EQ(request.poll(*world_), StopReason::signal);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(StopRequestTest, TimeLimit) {
  StopRequest::Options options;
  options.time_limit_seconds = 100.0;
  options.margin_seconds = 30.0;
  options.start = StopRequest::Clock::now() - 60s;
  {
    StopRequest request(options);
    EXPECT_EQ(request.poll(*world_), StopReason::none);
    EXPECT_NEAR(*request.seconds_to_limit(), 10.0, 1.0);
  }
  options.start = StopRequest::Clock::now() - 71s;
  StopRequest request(options);
  EXPECT_EQ(request.poll(*world_), StopReason::time_limit);
  EXPECT_EQ(request.description(), "wall-time limit of 1m40s (29s left)");
  EXPECT_EQ(*request.seconds_to_limit(), 0.0);
}

TEST_F(StopRequestTest, AnotherStepMustFit) {
  StopRequest::Options options;
  options.time_limit_seconds = 10.0;
  options.margin_seconds = 1.0;
  options.start = StopRequest::Clock::now() - 8700ms;  // 0.3 s until the margin
  StopRequest request(options);
  EXPECT_EQ(request.poll(*world_), StopReason::none);
  nap(0.2);  // one such step more would end in the margin
  EXPECT_EQ(request.poll(*world_), StopReason::time_limit);
}

TEST_F(StopRequestTest, AutomaticMarginIsTwiceTheLongestCheckpoint) {
  StopRequest::Options options;
  options.time_limit_seconds = 1000.0;
  StopRequest request(options);
  EXPECT_NEAR(*request.seconds_to_limit(), 990.0, 1.0);
  request.note_checkpoint(40.0);
  request.note_checkpoint(10.0);
  EXPECT_NEAR(*request.seconds_to_limit(), 920.0, 1.0);
}

TEST_F(StopRequestTest, WithoutALimit) {
  StopRequest request({});
  EXPECT_FALSE(request.seconds_to_limit());
  request.note_checkpoint(1e9);
  EXPECT_EQ(request.poll(*world_), StopReason::none);
}

// Each that the deck knows is listened to and called by its name there.
TEST_F(StopRequestTest, EverySignalOfTheDeck) {
  for (const auto& [signal, name] : config::choices<SignalName>()) {
    StopRequest request({.signals = {signal}});
    std::raise(signal == SignalName::usr1   ? SIGUSR1
               : signal == SignalName::usr2 ? SIGUSR2
               : signal == SignalName::term ? SIGTERM
               : signal == SignalName::intr ? SIGINT
                                            : SIGHUP);
    EXPECT_EQ(request.poll(*world_), StopReason::signal) << name;
    EXPECT_EQ(request.description(), "signal " + std::string(name));
  }
}

}  // namespace
}  // namespace trireme::engine
