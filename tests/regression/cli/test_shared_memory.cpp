// A /dev/shm that is too small for MPI, as containers have it. Labelled `mount`: needs to
// mount one that nobody else sees.
#include <unistd.h>

#include <cstdlib>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using ::testing::HasSubstr;

class SharedMemory : public Workplace {
 protected:
  // `line` in a shell, where "$0" is the program.
  static RunResult shell(const std::string& line) {
    return run({"/bin/sh", "-c", line, std::getenv("TRIREME_BINARY")});
  }
  // Who is not root mounts as the root of a place where that is nobody.
  static std::string unshare() {
    return ::geteuid() == 0 ? "unshare -m " : "unshare -rm ";
  }
  static bool may_mount() {
    return shell(unshare() + "mount -t tmpfs -o size=64k tmpfs /dev/shm").status == 0;
  }
  static RunResult with_shared_memory(const std::string& size, const std::string& line) {
    return shell("exec " + unshare() + "/bin/sh -c 'mount -t tmpfs -o size=" + size +
                 " tmpfs /dev/shm && " + line + "' \"$0\"");
  }
};

TEST_F(SharedMemory, ThatIsTooSmallIsNamed) {
  if (!may_mount()) GTEST_SKIP() << "this user may not mount a file system";
  const std::string inspect = "exec \"$0\" inspect \"" + corpus().string() + "\"";
  expect_error(with_shared_memory("64k", inspect), 1,
               {"/dev/shm has 0.1 MiB", "4.2 MiB for a rank", "--shm-size"});
  EXPECT_EQ(with_shared_memory("6m", inspect).status, 0);
  const std::string ranks = "exec \"" + std::string(std::getenv("TRIREME_MPIEXEC")) +
                            "\" -n 2 \"$0\" inspect \"" + corpus().string() + "\"";
  const RunResult result = with_shared_memory("6m", ranks);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("8.5 MiB for 2 ranks"));
}

}  // namespace
}  // namespace trireme::test
