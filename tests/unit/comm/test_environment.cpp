// What the environment says about launchers and waiting.
#include "comm/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace trireme::comm {
namespace {

int ranks_with(const std::map<std::string, std::string>& variables) {
  return launcher_ranks([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(EnvironmentLauncher, SaysHowManyItStarted) {
  EXPECT_EQ(ranks_with({}), 0);
  EXPECT_EQ(ranks_with({{"SLURM_STEP_NUM_TASKS", "4"}}), 4);
  EXPECT_EQ(ranks_with({{"SLURM_NTASKS", "4"}}),
            0);  // a batch script, not a launched step
  EXPECT_EQ(ranks_with({{"PMI_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "1"}}), 2);
  EXPECT_EQ(ranks_with({{"OMPI_COMM_WORLD_SIZE", "3"}}), 3);
  EXPECT_EQ(ranks_with({{"PMI_SIZE", "junk"}}), 0);
}

// "none" where none is known.
TEST(EnvironmentLauncher, IsKnownByWhatItSets) {
  const auto words = [](const std::map<std::string, std::string>& variables, int ranks) {
    const auto get = [&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    };
    std::string text;
    for (const std::string& word : launcher_words(get, ranks, "pmi2")) {
      text += (text.empty() ? "" : " ") + word;
    }
    return text.empty() ? "none" : text;
  };
  EXPECT_EQ(words({}, 1), "none");
  EXPECT_EQ(words({}, 2), "none");
  EXPECT_EQ(words({{"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}}, 1), "none");
  EXPECT_EQ(words({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}}, 4), "mpiexec -n 4");
  EXPECT_EQ(words({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMMAND", "trireme"}}, 4),
            "mpiexec -n 4");
  EXPECT_EQ(words({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "4"}}, 4),
            "srun --mpi=pmi2 -n 4");
  // In a job: one helper on each of four nodes, and one rank.
  EXPECT_EQ(
      words({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "1"}},
            4),
      "mpiexec -n 4");
  EXPECT_EQ(words({{"SLURM_STEP_NUM_TASKS", "2"}}, 4), "none");
}

// As the libraries describe themselves.
TEST(EnvironmentLauncher, SpeaksTheDialectOfTheLibrary) {
  EXPECT_EQ(srun_mpi_type("MPICH Version:\t4.0.2\nMPICH configure:\t--prefix=/usr "
                          "--with-slurm=/usr --without-pmix --with-pm=hydra"),
            "pmi2");
  EXPECT_EQ(srun_mpi_type("MPICH Version: 4.2.1\nMPICH configure: --with-pmix=/opt/pmix"),
            "pmix");
  EXPECT_EQ(srun_mpi_type("MPICH Version: 4.2.1\nMPICH configure: --with-pmi=pmix"),
            "pmix");
  EXPECT_EQ(srun_mpi_type("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"),
            "pmix");
  EXPECT_EQ(srun_mpi_type("MVAPICH2 Version : 2.3.7"), "pmi2");
  EXPECT_EQ(srun_mpi_type("Intel(R) MPI Library 2021.10 for Linux* OS"), "pmi2");
  EXPECT_EQ(
      srun_mpi_type("MPI VERSION    : CRAY MPICH version 8.1.28.15 (ANL base 3.4a2)"),
      "");
  EXPECT_EQ(srun_mpi_type("Another MPI 1.0"), "");
}

TEST(EnvironmentWaitPolicy, ByCoresAndOverride) {
  EXPECT_EQ(choose_wait_policy({2, 2}, nullptr), WaitPolicy::adaptive);
  EXPECT_EQ(choose_wait_policy({1, 64}, nullptr), WaitPolicy::adaptive);
  EXPECT_EQ(choose_wait_policy({3, 2}, nullptr), WaitPolicy::yield);
  EXPECT_EQ(choose_wait_policy({3, 2}, ""), WaitPolicy::yield);
  EXPECT_EQ(choose_wait_policy({3, 2}, "spin"), WaitPolicy::spin);
  EXPECT_EQ(choose_wait_policy({1, 2}, "yield"), WaitPolicy::yield);
  EXPECT_EQ(choose_wait_policy({3, 2}, "adaptive"), WaitPolicy::adaptive);
  try {
    choose_wait_policy({1, 2}, "sleep");
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(
        error.what(),
        ::testing::AllOf(::testing::HasSubstr("TRIREME_WAIT is 'sleep'"),
                         ::testing::HasSubstr("spin"), ::testing::HasSubstr("yield")));
  }
}

// MPI is up already (the test's main): the environment neither starts nor ends it.
TEST(EnvironmentStart, Alone) {
  int argc = 0;
  char** argv = nullptr;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Environment environment(argc, argv);
    EXPECT_EQ(environment.world_size(), 1);
    EXPECT_EQ(environment.world_rank(), 0);
    EXPECT_FALSE(environment.host_name().empty());
    EXPECT_EQ(environment.node().ranks, 1);
    EXPECT_GE(environment.node().cores, 1);
    EXPECT_FALSE(environment.library().empty());
    EXPECT_EQ(environment.world()->native_handle(), nullptr);
  }
}

}  // namespace
}  // namespace trireme::comm
