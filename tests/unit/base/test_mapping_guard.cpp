// Files that are cut under their mapping: with a guard, without, and signals of others.
#include "base/mapping_guard.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace trireme {
namespace {

// A file that has no name any more, and its bytes as memory.
class Mapped {
 public:
  explicit Mapped(std::size_t pages)
      : bytes_(pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    std::string name = "mapping_guard_XXXXXX";
    descriptor_ = ::mkstemp(name.data());
    EXPECT_GE(descriptor_, 0);
    ::unlink(name.c_str());
    const std::string content(bytes_, 'x');
    EXPECT_EQ(::write(descriptor_, content.data(), bytes_), static_cast<ssize_t>(bytes_));
    void* data =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    EXPECT_NE(data, MAP_FAILED);
    data_ = static_cast<volatile char*>(data);
  }
  ~Mapped() {
    ::munmap(const_cast<char*>(data_), bytes_);
    ::close(descriptor_);
  }
  MappingGuard guard() const { return {const_cast<const char*>(data_), bytes_}; }
  void cut(std::size_t pages) const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    ASSERT_EQ(::ftruncate(descriptor_, static_cast<off_t>(pages * page)), 0);
  }
  volatile char& first() const { return data_[0]; }
  volatile char& last() const { return data_[bytes_ - 1]; }

 private:
  std::size_t bytes_;
  int descriptor_ = -1;
  volatile char* data_ = nullptr;
};

TEST(MappingGuard, ReadsZerosWhereAFileWasCut) {
  const Mapped mapped(3);
  const MappingGuard guard = mapped.guard();
  EXPECT_EQ(mapped.last(), 'x');
  mapped.cut(1);
  EXPECT_FALSE(guard.is_cut());
  EXPECT_EQ(mapped.last(), '\0');
  EXPECT_TRUE(guard.is_cut());
  EXPECT_EQ(mapped.first(), 'x');
  mapped.last() = 'y';
  EXPECT_EQ(mapped.last(), 'y');
}

TEST(MappingGuard, OfAnyThreadAndAnyNumber) {
  std::vector<std::unique_ptr<Mapped>> files;
  std::vector<MappingGuard> guards;
  for (int i = 0; i < 8; ++i) {
    files.push_back(std::make_unique<Mapped>(2));
    guards.push_back(files.back()->guard());
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (i == 3) continue;
    threads.emplace_back([&file = *files[i]] {
      file.cut(0);
      file.first() = file.last();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < files.size(); ++i) EXPECT_EQ(guards[i].is_cut(), i != 3);
}

TEST(MappingGuard, IsGoneWithItsObject) {
  const Mapped mapped(1);
  {
    const MappingGuard guard = mapped.guard();
    mapped.cut(0);
    EXPECT_EQ(mapped.first(), '\0');
  }
  EXPECT_FALSE(mapped.guard().is_cut());  // another, of the same memory
}

// In processes of their own: a handler is put in place once.
class MappingGuardOfOthers : public testing::Test {
 protected:
  MappingGuardOfOthers() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(MappingGuardOfOthers, LeavesTheirEndToThem) {
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        const Mapped mine(1);
        const Mapped theirs(1);
        const MappingGuard guard = mine.guard();
        theirs.cut(0);
        theirs.first() = 'y';
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST_F(MappingGuardOfOthers, LeavesTheirHandlerToThem) {
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, [](int) { ::_exit(7); });
        const Mapped mine(1);
        const Mapped theirs(1);
        const MappingGuard guard = mine.guard();
        mine.cut(0);
        mine.first() = 'y';
        theirs.cut(0);
        theirs.first() = 'y';
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(MappingGuardOfOthers, LeavesSentSignalsToThem) {
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);
        const Mapped mine(1);
        const MappingGuard guard = mine.guard();
        ::raise(SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace trireme
