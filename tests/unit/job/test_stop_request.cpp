// Signals and the wall-time limit: noticed at the next poll, kept, and the old handlers
// put back.
#include "job/stop_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/signal_thread.hpp"
#include "base/wall_time.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::job {
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

std::atomic<int> others_calls{0};
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

TEST_F(StopRequestTest, WhatComesBeforeItIsKeptForIt) {
  std::signal(SIGUSR1, others_handler);
  others_calls = 0;
  StopRequest::listen_early();
  std::raise(SIGUSR1);
  {
    StopRequest request({.signals = {SignalName::usr1, SignalName::term}});
    EXPECT_EQ(request.poll(*world_), StopReason::signal);
    EXPECT_EQ(request.description(), "signal USR1");
  }
  EXPECT_EQ(others_calls, 0);
  std::raise(SIGUSR1);
  EXPECT_EQ(others_calls, 1) << "whoever listened before does again";

  StopRequest::listen_early();
  std::raise(SIGUSR1);
  StopRequest request({.signals = {SignalName::term}});  // it is another's, after all
  EXPECT_EQ(others_calls, 2);
  EXPECT_EQ(request.poll(*world_), StopReason::none);
  std::signal(SIGUSR1, SIG_DFL);
}

TEST_F(StopRequestTest, AWarningAfterTheEndEndsNothing) {
  std::signal(SIGUSR1, SIG_DFL);
  { const StopRequest request({.signals = {SignalName::usr1, SignalName::term}}); }
  std::raise(SIGUSR1);  // by default the death of this process
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), SIG_DFL) << "TERM still ends what hangs";
  std::signal(SIGUSR1, SIG_DFL);
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
  others_calls = 0;
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

// As in the program, where this thread blocks signals.
TEST_F(StopRequestTest, SignalsMayComeToAnotherThread) {
  const auto old = std::signal(SIGUSR2, others_handler);
  others_calls = 0;
  {
    const SignalThread signals;
    StopRequest request({.signals = {SignalName::usr1, SignalName::usr2}});
    ::kill(::getpid(), SIGUSR2);
    for (int tries = 0; tries < 300; ++tries) nap(0.001);
    request.change({.signals = {SignalName::usr1}});  // raised anew: not to be lost
    for (int tries = 0; tries < 3000 && others_calls == 0; ++tries) nap(0.01);
    EXPECT_EQ(others_calls, 1);
    EXPECT_EQ(request.poll(*world_), StopReason::none);
    ::kill(::getpid(), SIGUSR1);
    for (int tries = 0; tries < 3000; ++tries) {
      if (request.poll(*world_) != StopReason::none) break;
      nap(0.01);
    }
    EXPECT_EQ(request.description(), "signal USR1");
  }
  std::signal(SIGUSR2, old);
}

TEST_F(StopRequestTest, OnlyOneAtATime) {
  StopRequest request({});
  EXPECT_THROW(StopRequest({}), Error);
  std::raise(SIGINT);  // the refused one has not taken the handler away
  EXPECT_EQ(request.poll(*world_), StopReason::signal);
}

// What a process does that gets signals, one now and one a while later, each twice within
// milliseconds (a launcher and the terminal both passed it on): its status and what it
// said. 3: it goes on and will save.
class StopRequestSecondSignal : public StopRequestTest {
 protected:
  struct Ended {
    int status = -1;
    std::string said;
  };
  // In a child process, for it is ended.
  template <class Prepare>
  Ended end_of(int first, int second, bool speaks, const Prepare& prepare) {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(pipe[1], 2);
      StopRequest request(
          {.signals = {SignalName::usr1, SignalName::term}, .speaks = speaks});
      prepare(request);
      std::raise(first);
      std::raise(first);
      if (request.poll(*world_) != StopReason::signal) ::_exit(4);
      nap(1.1);
      std::raise(second);
      std::raise(second);
      ::_exit(request.poll(*world_) == StopReason::signal ? 3 : 4);
    }
    ::close(pipe[1]);
    Ended ended;
    char text[512];
    for (ssize_t n = 0; (n = ::read(pipe[0], text, sizeof(text))) > 0;) {
      ended.said.append(text, static_cast<std::size_t>(n));
    }
    ::close(pipe[0]);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
    return ended;
  }
};

// ^C twice: a person who does not want to wait any longer.
TEST_F(StopRequestSecondSignal, EndsAtOnceWhereAPersonAsksForIt) {
  const Ended ended = end_of(SIGINT, SIGINT, true, [](StopRequest&) {});
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(
      ended.said,
      "trireme: a second ^C (INT): stopped at once, status 1. No checkpoint of this "
      "run is published\n");
}

// What batch systems and job scripts send, one after the other: USR1 and TERM by SLURM at
// the limit, TERM and TERM by a preemption with a grace time, TERM and a script's USR1;
// USR1 and INT by LSF. Each would lose the save that the first one asked for.
TEST_F(StopRequestSecondSignal, IsNoReasonToLoseASave) {
  for (const auto& [first, second] : {std::pair{SIGUSR1, SIGTERM},
                                      {SIGTERM, SIGTERM},
                                      {SIGTERM, SIGUSR1},
                                      {SIGUSR1, SIGUSR1},
                                      {SIGUSR1, SIGINT},
                                      {SIGINT, SIGTERM}}) {
    const Ended ended = end_of(first, second, true, [](StopRequest&) {});
    EXPECT_EQ(ended.status, 3) << first << " and " << second;
    EXPECT_EQ(ended.said, "");
  }
}

TEST_F(StopRequestSecondSignal, IsToBeRequeuedWhereACheckpointIsPublished) {
  const Ended resumed = end_of(SIGINT, SIGINT, true,
                               [](StopRequest& request) { request.note_published(); });
  EXPECT_EQ(resumed.status, 75);
  EXPECT_THAT(resumed.said, ::testing::StartsWith("trireme: a second ^C (INT): "));
  EXPECT_THAT(resumed.said, ::testing::EndsWith("--resume auto goes on from it\n"));
  const Ended saved = end_of(SIGINT, SIGINT, true,
                             [](StopRequest& request) { request.note_checkpoint(1.0); });
  EXPECT_EQ(saved.status, 75);
}

// A rank that is not the first leaves it to that one, where their parent sent the signal
// to all of them. (Here the process itself did: nobody else will say so.)
TEST_F(StopRequestSecondSignal, OfOneRankAloneIsSaidByIt) {
  const Ended ended = end_of(SIGINT, SIGINT, false, [](StopRequest&) {});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.said, ::testing::HasSubstr("a second ^C"));
}

// A start that got TERM and does not come to its first step. Its timer is played by one
// that does not take ten seconds.
class StopRequestAtStart : public StopRequestTest {
 protected:
  // As waitpid(2) has it; exit status 3 of a start that goes on.
  template <class Prepare>
  int end_of(const Prepare& prepare) {
    const pid_t child = ::fork();
    if (child == 0) {
      StopRequest request({.signals = {SignalName::term}, .speaks = false});
      prepare(request);
      sigevent event = {};
      event.sigev_notify = SIGEV_SIGNAL;
      event.sigev_signo = SIGTERM;
      timer_t timer{};
      if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) ::_exit(4);
      itimerspec soon = {};
      soon.it_value.tv_nsec = 1000000;
      if (::timer_settime(timer, 0, &soon, nullptr) != 0) ::_exit(4);
      nap(0.2);
      ::_exit(3);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }
};

TEST_F(StopRequestAtStart, EndsByTerm) {
  const int status = end_of([](StopRequest&) {});
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST_F(StopRequestAtStart, IsToBeRequeuedWhereItReadsItsCheckpoint) {
  const int status = end_of([&](StopRequest& request) {
    request.note_published();
    if (request.poll_start(*world_) != StopReason::none) ::_exit(4);
  });
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 75);
}

TEST_F(StopRequestAtStart, GoesOnWhereItHasComeToItsFirstStep) {
  const int at_first_step = end_of([&](StopRequest& request) {
    request.note_published();
    if (request.poll_signals(*world_) != StopReason::none) ::_exit(4);
  });
  ASSERT_TRUE(WIFEXITED(at_first_step)) << at_first_step;
  EXPECT_EQ(WEXITSTATUS(at_first_step), 3);
  // The signal was heard before: what is left is to end in order.
  const int heard = end_of([&](StopRequest& request) {
    request.note_published();
    std::raise(SIGTERM);
    if (request.poll_start(*world_) != StopReason::signal) ::_exit(4);
  });
  ASSERT_TRUE(WIFEXITED(heard)) << heard;
  EXPECT_EQ(WEXITSTATUS(heard), 3);
}

// Signals count before the deck is read; then the deck says which.
TEST_F(StopRequestTest, OptionsMayChange) {
  const auto old = std::signal(SIGUSR2, others_handler);
  others_calls = 0;
  {
    StopRequest request({.signals = {SignalName::usr1, SignalName::usr2}});
    std::raise(SIGUSR2);
    EXPECT_EQ(others_calls, 0);
    request.change({.signals = {SignalName::usr1}, .time_limit_seconds = 100.0});
    EXPECT_EQ(others_calls, 1);  // raised anew
    EXPECT_EQ(request.poll(*world_), StopReason::none);
    EXPECT_TRUE(request.seconds_to_limit());
    std::raise(SIGUSR1);
    request.change({.signals = {SignalName::usr1, SignalName::term}});
    EXPECT_EQ(request.poll(*world_), StopReason::signal);
    EXPECT_EQ(request.description(), "signal USR1");
    std::raise(SIGUSR2);
    EXPECT_EQ(others_calls, 2);
  }
  std::signal(SIGUSR2, old);
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

// A step that was begun is waited for before the end, whether there is another or not.
TEST_F(StopRequestTest, StepsUnderWayMustFit) {
  StopRequest::Options options;
  options.time_limit_seconds = 10.0;
  options.margin_seconds = 1.0;
  options.start = StopRequest::Clock::now() - 6s;  // 3 s until the margin
  StopRequest request(options);
  EXPECT_EQ(request.poll(*world_), StopReason::none);
  nap(1.2);
  EXPECT_EQ(request.poll(*world_), StopReason::none);  // one fits into 1.8 s
  request.set_steps_under_way(1);
  EXPECT_EQ(request.poll(*world_), StopReason::time_limit);
}

TEST_F(StopRequestTest, SavesAreNoIntervals) {
  StopRequest::Options options;
  options.time_limit_seconds = 10.0;
  options.margin_seconds = 1.0;
  options.start = StopRequest::Clock::now() - 8s;  // 1 s until the margin
  StopRequest request(options);
  EXPECT_EQ(request.poll(*world_), StopReason::none);
  nap(0.6);
  request.note_checkpoint(0.6);
  EXPECT_EQ(request.poll(*world_), StopReason::none);
}

// The last save waits for the one that is being written beside the steps.
TEST_F(StopRequestTest, ASaveUnderWayTakesItsTime) {
  StopRequest::Options options;
  options.time_limit_seconds = 100.0;
  options.margin_seconds = 60.0;
  options.start = StopRequest::Clock::now() - 20s;  // 20 s until the margin
  StopRequest request(options);
  request.note_checkpoint(30.0);
  EXPECT_EQ(request.poll(*world_), StopReason::none);
  request.set_saving(true);
  EXPECT_EQ(request.poll(*world_), StopReason::time_limit);
}

// Before a save was measured a tenth of the time, at most five minutes; then half as much
// again as the longest, and what it takes to end.
TEST_F(StopRequestTest, AutomaticMargin) {
  StopRequest::Options options;
  options.time_limit_seconds = 1000.0;
  {
    StopRequest request(options);
    EXPECT_NEAR(*request.seconds_to_limit(), 900.0, 1.0);
    request.note_checkpoint(40.0);
    request.note_checkpoint(10.0);
    EXPECT_NEAR(*request.seconds_to_limit(), 940.0, 1.0);
  }
  {
    StopRequest request(options);
    request.note_checkpoint(0.1);
    EXPECT_NEAR(*request.seconds_to_limit(), 995.0, 1.0);
  }
  {
    StopRequest request(options);
    request.expect_save(60.0);  // as an earlier start measured, maybe on more ranks
    EXPECT_NEAR(*request.seconds_to_limit(), 900.0, 1.0);
    request.expect_save(200.0);
    EXPECT_NEAR(*request.seconds_to_limit(), 700.0, 1.0);
    EXPECT_FALSE(request.is_published());
    request.note_checkpoint(10.0);
    EXPECT_NEAR(*request.seconds_to_limit(), 985.0, 1.0);
  }
  options.time_limit_seconds = 86400.0;
  {
    StopRequest request(options);
    EXPECT_NEAR(*request.seconds_to_limit(), 86100.0, 1.0);
  }
  options.time_limit_seconds = 20.0;
  StopRequest request(options);
  request.note_checkpoint(0.1);
  EXPECT_NEAR(*request.seconds_to_limit(), 18.0, 1.0);
}

// Whichever comes first.
TEST_F(StopRequestTest, TheEndOfTheJob) {
  const std::string end = std::to_string(static_cast<long>(wall_seconds()) + 50);
  JobClock job({.variable = [&](const char* name) {
    return std::string(name) == "SLURM_JOB_END_TIME" ? end.c_str() : nullptr;
  }});
  StopRequest::Options options;
  options.margin_seconds = 20.0;
  options.job = &job;
  {
    StopRequest request(options);
    EXPECT_NEAR(*request.seconds_to_limit(), 30.0, 2.0);
  }
  options.time_limit_seconds = 25.0;
  {
    StopRequest request(options);
    EXPECT_NEAR(*request.seconds_to_limit(), 5.0, 2.0);
  }
  options.time_limit_seconds = 1000.0;
  options.margin_seconds = 60.0;
  StopRequest request(options);
  EXPECT_EQ(request.poll(*world_), StopReason::time_limit);
  EXPECT_THAT(request.description(),
              ::testing::MatchesRegex("the job's end is near \\((49|50)s left\\)"));
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
}  // namespace trireme::job
