// Signals from outside come to one thread: those made since block them, a handler runs on
// that one's stack, and programs that are started block nothing.
#include "base/signal_thread.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/child_process.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using namespace std::chrono_literals;

// In a process of its own, where no library has threads: what does not hold there, or "".
std::string in_a_process(const std::function<std::string()>& test) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = test();
    [[maybe_unused]] const ssize_t count = ::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t n = 0; (n = ::read(ends[0], part, sizeof(part))) > 0;) {
    text.append(part, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? text : text + "it was killed";
}

bool blocks(const std::filesystem::path& task, int number) {
  const std::string status = test::slurp(task / "status");
  const auto mask = std::stoull(status.substr(status.find("SigBlk:") + 8), nullptr, 16);
  return (mask >> (number - 1)) & 1;
}

TEST(SignalThread, IsTheOnlyOneThatBlocksNothing) {
  EXPECT_EQ(in_a_process([]() -> std::string {
              const SignalThread signals;
              std::atomic<bool> ends{false};
              std::thread other([&] {
                while (!ends) std::this_thread::sleep_for(1ms);
              });
              std::string problem;
              for (int tries = 0; tries < 3000; ++tries) {  // until it has begun
                problem.clear();
                int tasks = 0, takers = 0;
                for (const auto& task :
                     std::filesystem::directory_iterator("/proc/self/task")) {
                  ++tasks;
                  const bool takes = test::slurp(task.path() / "comm") == "signals\n";
                  takers += takes ? 1 : 0;
                  for (const int number : kOutsideSignals) {
                    if (blocks(task.path(), number) == takes) problem = "a wrong mask";
                  }
                }
                if (tasks != 3 || takers != 1) problem = "not one of three threads";
                if (problem.empty()) break;
                std::this_thread::sleep_for(1ms);
              }
              ends = true;
              other.join();
              return problem;
            }),
            "");
}

std::atomic<bool> handled{false};
pthread_t handled_by;
const void* handlers_frame = nullptr;
void note_handler(int) {
  handled_by = ::pthread_self();
  handlers_frame = __builtin_frame_address(0);
  handled = true;
}

TEST(SignalThread, RunsTheHandlers) {
  EXPECT_EQ(in_a_process([]() -> std::string {
              const SignalThread signals;
              for (const int number : kOutsideSignals) {
                handled = false;
                std::signal(number, note_handler);
                ::kill(::getpid(), number);
                for (int tries = 0; tries < 3000 && !handled; ++tries) {
                  std::this_thread::sleep_for(1ms);
                }
                if (!handled) return "not handled";
                if (::pthread_equal(handled_by, ::pthread_self())) return "handled here";
                pthread_attr_t attributes;
                void* stack = nullptr;
                std::size_t size = 0;
                ::pthread_getattr_np(handled_by, &attributes);
                ::pthread_attr_getstack(&attributes, &stack, &size);
                const auto* const frame = static_cast<const char*>(handlers_frame);
                const auto* const first = static_cast<const char*>(stack);
                if (frame < first || frame >= first + size) return "on another stack";
              }
              return "";
            }),
            "");
}

// Nothing else changes: what kills goes on to kill, and what came meanwhile is not lost.
TEST(SignalThread, LeavesTheirEffect) {
  EXPECT_EQ(in_a_process([]() -> std::string {
              std::signal(SIGTERM, SIG_DFL);
              const SignalThread signals;
              ::kill(::getpid(), SIGTERM);
              std::this_thread::sleep_for(30s);
              return "still there, ";
            }),
            "it was killed");
}

TEST(SignalThread, PutsTheMaskBack) {
  sigset_t before, after;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  { const SignalThread signals; }
  ::pthread_sigmask(SIG_BLOCK, nullptr, &after);
  for (int number = 1; number < 32; ++number) {
    EXPECT_EQ(sigismember(&before, number), sigismember(&after, number)) << number;
  }
}

TEST(SignalThread, IsNotInherited) {
  const SignalThread signals;
  ChildProcess child({"grep", "SigBlk", "/proc/self/status"});
  std::optional<ChildProcess::Ended> ended;
  for (int tries = 0; tries < 3000 && !ended; ++tries) {
    std::this_thread::sleep_for(10ms);
    ended = child.poll();
  }
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->output, "SigBlk:\t0000000000000000\n");
}

}  // namespace
}  // namespace trireme
