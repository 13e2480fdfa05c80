// How long threads of a team poll before they sleep, as libgomp itself says it, for the
// subcommands that compute; what the environment says goes first.
#include <filesystem>
#include <regex>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

// The last GOMP_SPINCOUNT that a program of this command says it uses.
std::string spin_count(std::vector<std::string> settings,
                       const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"env",
                                      "-u",
                                      "GOMP_SPINCOUNT",
                                      "-u",
                                      "OMP_WAIT_POLICY",
                                      "OMP_NUM_THREADS=2",
                                      "OMP_DISPLAY_ENV=verbose"};
  command.insert(command.end(), settings.begin(), settings.end());
  command.push_back(std::getenv("TRIREME_BINARY"));
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::string err = run(command).err;
  const std::regex line("GOMP_SPINCOUNT = '([^']*)'");
  std::string last;
  for (std::sregex_iterator it(err.begin(), err.end(), line), end; it != end; ++it) {
    last = (*it)[1];
  }
  return last;
}

TEST(BriefSpinning, IsAboutAHundredMicroseconds) {
  const std::string count = spin_count({}, {"train", "no_such_deck.yaml"});
  ASSERT_FALSE(count.empty());
  // A pause takes 3 to 70 nanoseconds; without this it is 300,000 polls.
  EXPECT_GE(std::stol(count), 1000);
  EXPECT_LE(std::stol(count), 50000);
}

TEST(BriefSpinning, LeavesTheUsersWordAlone) {
  EXPECT_EQ(spin_count({"GOMP_SPINCOUNT=777"}, {"train", "no_such_deck.yaml"}), "777");
  EXPECT_EQ(spin_count({"OMP_WAIT_POLICY=PASSIVE"}, {"generate", "--help"}), "0");
  const std::string one = spin_count({"OMP_NUM_THREADS=1"}, {"train", "none.yaml"});
  EXPECT_EQ(one, spin_count({"OMP_NUM_THREADS=1"}, {"--version"}));
}

// The kernel knows the loader alone, and that would be started with the wrong arguments.
TEST(BriefSpinning, LeavesAProgramToItsLoader) {
  const char* loader = "/lib64/ld-linux-x86-64.so.2";
  if (!std::filesystem::exists(loader)) return;  // another system has another name for it
  const RunResult result =
      run({"env", "-u", "GOMP_SPINCOUNT", "OMP_NUM_THREADS=2", loader,
           std::getenv("TRIREME_BINARY"), "train", "none.yaml"});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err, testing::HasSubstr("'none.yaml'"));
}

// The new start is the same program with the same arguments.
TEST(BriefSpinning, ChangesNothingElse) {
  const std::vector<std::string> command = {"env",
                                            "-u",
                                            "GOMP_SPINCOUNT",
                                            std::getenv("TRIREME_BINARY"),
                                            "train",
                                            "no such deck.yaml"};
  const RunResult result = run(command);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, testing::HasSubstr("'no such deck.yaml'"));
}

}  // namespace
}  // namespace trireme::test
