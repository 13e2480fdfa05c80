// A program run beside this one: what it prints and how it ends, what it does not
// inherit, and that nobody waits for it.
#include "base/child_process.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ChildProcess::Ended end_of(ChildProcess& child) {
  for (int tries = 0; tries < 3000; ++tries) {
    if (const auto ended = child.poll()) return *ended;
    std::this_thread::sleep_for(10ms);
  }
  ADD_FAILURE() << "it does not end";
  return {};
}

ChildProcess::Ended run(const std::string& script) {
  ChildProcess child({"sh", "-c", script});
  return end_of(child);
}

// Not as a zombie, where nobody adopts it.
bool is_running(pid_t process) {
  const std::string status = test::slurp("/proc/" + std::to_string(process) + "/status");
  return !status.empty() && status.find("State:\tZ") == std::string::npos;
}

TEST(ChildProcess, SaysHowItEndedAndWhatItPrinted) {
  ChildProcess::Ended ended = run("echo out; echo err >&2; exit 3");
  EXPECT_EQ(ended.status, 3);
  EXPECT_EQ(ended.output, "out\nerr\n");
  ended = run("kill -TERM $$");
  EXPECT_EQ(ended.status, 128 + SIGTERM);
  ended = run("yes | head -c 1000000");  // more than a pipe holds: all of it is read
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.output.size(), std::size_t{1} << 16);
  ChildProcess child({"true"});
  end_of(child);
  EXPECT_FALSE(child.poll());  // once
}

TEST(ChildProcess, IsNotWaitedFor) {
  const auto start = std::chrono::steady_clock::now();
  ChildProcess child({"sleep", "30"});
  EXPECT_FALSE(child.poll());
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST(ChildProcess, IsKilledWithItsOwnChildren) {
  const test::Scratch scratch;
  const auto file = scratch / "process";
  pid_t inner = 0;
  {
    ChildProcess child(
        {"sh", "-c", "sleep 300 & echo $! > '" + file.string() + "'; wait"});
    for (int tries = 0; tries < 3000 && inner == 0; ++tries) {
      std::this_thread::sleep_for(10ms);
      inner = std::atoi(test::slurp(file).c_str());
    }
    ASSERT_TRUE(is_running(inner));
  }
  for (int tries = 0; tries < 3000 && is_running(inner); ++tries) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_FALSE(is_running(inner));
}

// A zombie would stay as long as this process, and a long run asks thousands of times.
TEST(ChildProcess, LeavesNoZombie) {
  { ChildProcess child({"sleep", "300"}); }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  ChildProcess child({"sleep", "300"});
  child.kill();
  EXPECT_EQ(end_of(child).status, 128 + SIGKILL);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  child.kill();  // nobody else's process by now
}

// No lock of ours lives on in it, ^C at the terminal and our handlers are not for it.
TEST(ChildProcess, InheritsNothing) {
  const int file = ::open("/dev/null", O_RDONLY);  // without close-on-exec
  ASSERT_GE(file, 3);
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const ChildProcess::Ended ended =
      run("ls /proc/self/fd | tr '\\n' ' '; grep -E 'SigBlk|SigIgn' /proc/self/status; "
          "set -- $(cat /proc/self/stat); echo group $5 of $$");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  ::close(file);
  // 3 is the listing's own.
  EXPECT_THAT(ended.output, StartsWith("0 1 2 3 Sig"));
  EXPECT_THAT(ended.output, HasSubstr("SigBlk:\t0000000000000000"));
  const std::string ignored = ended.output.substr(ended.output.find("SigIgn:") + 8);
  EXPECT_EQ(std::stoull(ignored, nullptr, 16) & (1ull << (SIGPIPE - 1)), 0u) << ignored;
  const std::string group = ended.output.substr(ended.output.find("group") + 6);
  EXPECT_EQ(std::stoi(group), std::stoi(group.substr(group.find("of") + 3)));
}

TEST(ChildProcess, ThatCannotBeStarted) {
  try {
    ChildProcess child({"no-such-program"});
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot run 'no-such-program': No such file or directory");
  }
}

}  // namespace
}  // namespace trireme
