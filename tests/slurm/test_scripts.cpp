// The scripts of slurm/ without a SLURM: what a cluster would meet once in a thousand
// jobs, or has other nodes for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "restart/training_runs.hpp"
#include "slurm/stand_in.hpp"

namespace trireme::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string script(const std::string& name) {
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  return (io::Path(source != nullptr ? source : ".") / "slurm" / name).string();
}

// A job of train.sbatch, its commands and its ranks played by scripts. These begin to
// listen after two seconds, as long as programs take to start; USR1 ends them before.
void prepare(const Scratch& place, const std::string& machine,
             const std::string& at_first) {
  spill(place / "machine.sh", "launcher=(env)\n" + machine);
  spill_program(place / "ranks", "[[ $1 != --version ]] || exit 0\n" + at_first +
                                     "sleep 2\n"
                                     "trap 'exit 75' USR1\n"
                                     "for ((i = 0; i < 200; ++i)); do sleep 0.1; done\n");
  for (const std::string name : {"scontrol", "scancel"}) {
    spill_program(place / name, "echo \"" + name + " $*\"\n");
  }
}

RunResult job(const Scratch& place, const std::string& chain) {
  return run({"bash", script("train.sbatch"), "my.yaml"},
             {.environment = {{"PATH", place.path().string() + ":" + std::getenv("PATH")},
                              {"SLURM_JOB_ID", "4711"},
                              {"SLURM_JOB_NAME", "job"},
                              {"SLURM_JOB_NODELIST", "node7"},
                              {"TRIREME_CHAIN", chain},
                              {"TRIREME_HOME", script("..")},
                              {"TRIREME_MACHINE", (place / "machine.sh").string()},
                              {"TRIREME", (place / "ranks").string()}},
              .directory = place.path().string()});
}

// The script gets USR1 before this command of its own.
std::string warned_before(const std::string& command) {
  return "trap 'if [[ $BASH_COMMAND == *\"" + command +
         "\"* ]]; then kill -s USR1 $$; :; fi' DEBUG\n";
}

// Jobs that run at once are all prepared first: where one of them forks while the script
// of another is still open for writing, that script is "busy" for whoever starts it.
std::vector<std::future<RunResult>> start(const std::vector<Scratch>& places,
                                          const std::string& chain = "") {
  std::vector<std::future<RunResult>> jobs;
  for (const Scratch& place : places) {
    jobs.push_back(std::async(std::launch::async, job, std::cref(place), chain));
  }
  return jobs;
}

// However early: it is neither lost, nor does it end ranks that do not listen yet.
TEST(Scripts, PassOnAWarningAtAnyInstant) {
  const std::vector<Scratch> places(3);
  prepare(places[0], warned_before("pass_on TERM"), "");
  prepare(places[1], warned_before("step=\\$!"), "");
  prepare(places[2], "", "kill -s USR1 $PPID\n");
  for (auto& each : start(places)) {
    const RunResult result = each.get();
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("got USR1: telling the ranks"));
    EXPECT_THAT(result.out, HasSubstr("back into the queue"));
    EXPECT_THAT(result.out, HasSubstr("scontrol requeue 4711"));
  }
}

// A TERM is SLURM's own affair where the ranks stop or die of it; no more is an error of
// the run, which nothing of the chain would survive.
TEST(Scripts, TellAnErrorFromSlurmsEnd) {
  const std::vector<int> statuses = {75, 137, 143, 1, 2};
  const std::vector<Scratch> places(statuses.size());
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    const std::string status = std::to_string(statuses[i]);
    prepare(places[i], "",
            "trap 'exit " + status + "' USR1\nkill -s TERM $PPID\n" +
                "for ((i = 0; i < 200; ++i)); do sleep 0.1; done\n");
  }
  std::vector<std::future<RunResult>> jobs = start(places, "chain");
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    const RunResult result = jobs[i].get();
    EXPECT_EQ(result.status, statuses[i]) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("got TERM: telling the ranks"));
    const bool is_error = statuses[i] < 3;
    EXPECT_EQ(result.out.find("SLURM ends this job") == std::string::npos, is_error)
        << result.out;
    EXPECT_EQ(result.out.find("ended with status") != std::string::npos, is_error)
        << result.out;
    EXPECT_EQ(result.out.find("scancel --state=PENDING") != std::string::npos, is_error)
        << result.out;
  }
}

// By `nvidia-smi topo -m` of a DGX A100: GPU r is on this NUMA domain; a domain has
// sixteen cores, and the second threads of these 128 further on.
TEST(Scripts, BindRanksOfADgxBesideTheirGpus) {
  const std::vector<int> domains = {3, 3, 1, 1, 7, 7, 5, 5};
  const RunResult result =
      run({"bash", "-c", "source \"$0\" && printf '%s\\n' \"${launcher[@]}\"",
           script("machines/selene.sh")});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string option = "--cpu-bind=mask_cpu:";
  const std::size_t at = result.out.find(option);
  ASSERT_NE(at, std::string::npos) << result.out;
  const std::size_t first = at + option.size();
  std::istringstream masks(result.out.substr(first, result.out.find('\n', at) - first));
  std::size_t rank = 0;
  std::set<int> taken;
  for (std::string mask; std::getline(masks, mask, ','); ++rank) {
    ASSERT_LT(rank, domains.size());
    std::set<int> cpus;
    for (int digit = 0; digit < static_cast<int>(mask.size()) - 2; ++digit) {
      const char hex = mask[mask.size() - 1 - static_cast<std::size_t>(digit)];
      const int bits = std::stoi(std::string(1, hex), nullptr, 16);
      for (int bit = 0; bit < 4; ++bit) {
        if ((bits >> bit) & 1) cpus.insert(4 * digit + bit);
      }
    }
    EXPECT_EQ(cpus.size(), 16u) << mask;
    for (const int cpu : cpus) {
      EXPECT_EQ(cpu % 128 / 16, domains[rank]) << mask;
      EXPECT_EQ(cpus.count((cpu + 128) % 256), 1u) << mask;
      EXPECT_TRUE(taken.insert(cpu).second) << cpu << " is another rank's, too";
    }
  }
  EXPECT_EQ(rank, domains.size());
}

// A machine's file as a job sources it, where every module is there; then a command.
RunResult with_machine(const std::string& machine, const std::string& command,
                       const std::map<std::string, std::string>& environment = {}) {
  return run({"bash", "-c", "set -u; module() { :; }; source \"$0\" && " + command,
              script("machines/" + machine + ".sh")},
             {.environment = environment});
}

// One domain of sixteen cores to a rank, and the GPU of that domain: rank r has the GPU
// that counts from the other end.
TEST(Scripts, BindRanksOfPerlmutterBesideTheirGpus) {
  const std::string text = slurp(script("machines/perlmutter.sh"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --ntasks-per-node=4\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --gpus-per-node=4\n#SBATCH --gpu-bind=none\n"));
  const Scratch place;
  spill_program(place / "srun",
                "echo \"options: $1 $2\"\nshift 2\n"
                "for SLURM_LOCALID in 0 1 2 3; do SLURM_LOCALID=$SLURM_LOCALID \"$@\"; "
                "done\n");
  spill_program(place / "ranks", "echo \"$1 on $CUDA_VISIBLE_DEVICES\"\n");
  const RunResult result =
      with_machine("perlmutter", "\"${launcher[@]}\" ranks 'a b'",
                   {{"PATH", place.path().string() + ":" + std::getenv("PATH")}});
  EXPECT_EQ(result.out,
            "options: --kill-on-bad-exit=1 --cpu-bind=cores\n"
            "a b on 3\na b on 2\na b on 1\na b on 0\n")
      << result.err;
  for (int rank = 0; rank < 4; ++rank) {  // as the table says
    const int first = 16 * rank;
    EXPECT_THAT(text, ContainsRegex(fmt::format("# +{} +{}-{}, {}-{} +{} +{} ", rank,
                                                first, first + 15, first + 64, first + 79,
                                                rank, 3 - rank)));
  }
}

// What a file sets for NCCL, libfabric and MPI it explains, and a person's own value
// stays where it says that it may be another.
TEST(Scripts, ExplainTheVariablesOfMessages) {
  for (const std::string machine : {"perlmutter", "selene"}) {
    SCOPED_TRACE(machine);
    const std::string text = slurp(script("machines/" + machine + ".sh"));
    const RunResult set =
        with_machine(machine, "compgen -e | grep -E '^(NCCL|FI|MPICH|UCX|OMPI)_' | sort");
    ASSERT_EQ(set.status, 0) << set.err;
    std::istringstream names(set.out);
    int count = 0;
    for (std::string name; std::getline(names, name); ++count) {
      EXPECT_THAT(text, ContainsRegex("\n#   ([A-Z_]+, )?" + name + "[ ,\n]"));
    }
    EXPECT_GE(count, 6);
    const RunResult own = with_machine(machine, "echo \"$NCCL_SOCKET_IFNAME\"",
                                       {{"NCCL_SOCKET_IFNAME", "ib0"}});
    EXPECT_EQ(own.out, "ib0\n");
  }
  const RunResult aware = with_machine(
      "perlmutter", "echo \"$MPICH_GPU_SUPPORT_ENABLED\"", {{"TRIREME_MPI_DEVICE", "1"}});
  EXPECT_EQ(aware.out, "1\n");
  EXPECT_EQ(with_machine("perlmutter", "echo \"$MPICH_GPU_SUPPORT_ENABLED\"").out, "0\n");
}

// Cards of messages, and none of those for storage.
TEST(Scripts, NameTheCardsOfADgx) {
  const RunResult result =
      with_machine("selene", "printf '%s\\n%s\\n' \"$NCCL_IB_HCA\" \"$UCX_NET_DEVICES\"");
  EXPECT_EQ(result.out,
            "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_6,mlx5_7,mlx5_8,mlx5_9\n"
            "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_6:1,mlx5_7:1,mlx5_8:1,mlx5_9:1\n");
}

// train.sbatch with modules: `site` defines the command, as a file for login shells does.
struct ModulesJob {
  std::string machine = "module load gcc/12 mpich hdf5\n";
  std::string site = kModern;
  std::string version = "trireme 0.9\n  launcher        srun --mpi=pmi9\n";
  std::map<std::string, std::string> environment = {};

  // `module` as Lmod and Tcl's of today have it: its status says what came of it.
  static constexpr const char* kModern =
      "module() {\n"
      "  [[ $2 != no-* ]] || { echo \"cannot find $2\" >&2; return 1; }\n"
      "  LOADEDMODULES=${LOADEDMODULES:+$LOADEDMODULES:}$2/1\n"
      "}\n";
  RunResult operator()(const Scratch& place) const {
    spill(place / "machine.sh", machine + "launcher=(env)\n");
    spill(place / "init", site);
    spill_program(place / "ranks",
                  "[[ $1 != --version ]] || { printf '%s' \"$SAYS\"; exit 0; }\n"
                  "echo \"ranks with ${SLURM_MPI_TYPE:-no type}\"\n");
    spill_program(place / "scontrol", "[[ $1 != show ]] || printf 'node7\\nnode8\\n'\n");
    spill_program(place / "srun",
                  "echo 'MPI plugin types are... none pmi9 pmix_v4 pmix'\n");
    spill_program(place / "nvidia-smi", "[[ $* != *csv* ]] || echo '0, A100, 535.1'\n");
    std::map<std::string, std::string> all = {
        {"PATH", place.path().string() + ":" + std::getenv("PATH")},
        {"SLURM_JOB_ID", "4711"},
        {"SLURM_JOB_NAME", "job"},
        {"SLURM_JOB_NODELIST", "node[7-8]"},
        {"TRIREME_HOME", script("..")},
        {"TRIREME_MACHINE", (place / "machine.sh").string()},
        {"TRIREME_MODULES_INIT", (place / "init").string()},
        {"SAYS", version},
        {"TRIREME", (place / "ranks").string()}};
    for (const auto& [name, value] : environment) all[name] = value;
    return run({"bash", script("train.sbatch"), "my.yaml"},
               {.environment = all, .directory = place.path().string()});
  }
};

TEST(Scripts, LoadTheModulesOfTheMachineAndRecordTheJob) {
  const Scratch place;
  const RunResult result = ModulesJob{}(place);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  for (const char* line :
       {": nodes: node7 node8\n", ": modules: gcc/12/1 mpich/1 hdf5/1\n",
        "\ntrireme 0.9\n", ": srun: --mpi=pmi9 where the launcher has none\n",
        "\n0, A100, 535.1\n", "\nranks with pmi9\n"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST(Scripts, EndWhereAModuleIsMissing) {
  const Scratch place;
  RunResult result = ModulesJob{.machine = "module load gcc no-such hdf5\n"}(place);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot find no-such"));
  EXPECT_THAT(result.err,
              HasSubstr("'module load no-such' of the machine's file failed"));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("ranks with")));
  // Modules 3 says nothing by its status. What is loaded already is no failure.
  const std::string old =
      "module() { [[ $2 == no-* || :$LOADEDMODULES == *:$2* ]] || "
      "LOADEDMODULES=${LOADEDMODULES:-}:$2; }\n";
  result = ModulesJob{.machine = "module load gcc gcc\n", .site = old}(place);
  EXPECT_EQ(result.status, 0) << result.err;
  result = ModulesJob{.machine = "module load gcc no-such\n", .site = old}(place);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err,
              HasSubstr("'module load no-such' of the machine's file failed"));
  // No command at all.
  result = ModulesJob{.site = "",
                      .environment = {{"MODULESHOME", ""}, {"LMOD_PKG", ""}}}(place);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err,
              HasSubstr("has 'module load gcc/12 mpich hdf5', and this node has "
                        "no module command"));
  EXPECT_THAT(result.err, HasSubstr("TRIREME_MODULES_INIT"));
}

// As a shell that has it hands it on, in a variable of bash.
TEST(Scripts, TakeTheModuleCommandOfTheSubmitter) {
  const Scratch place;
  const RunResult result =
      ModulesJob{.site = "echo not needed >&2\n",
                 .environment = {{"BASH_FUNC_module%%",
                                  "() { LOADEDMODULES=${LOADEDMODULES:-}:$2; }"}}}(place);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(": modules:  gcc/12 mpich hdf5\n"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("not needed")));
}

TEST(Scripts, LetTheMachineChooseTheDialect) {
  const Scratch place;
  RunResult result = ModulesJob{.machine = "export SLURM_MPI_TYPE=pmix\n"}(place);
  EXPECT_THAT(result.out, HasSubstr("\nranks with pmix\n"));
  // What SLURM has not is not asked for.
  result = ModulesJob{.machine = "",
                      .version = "trireme\n  launcher  srun --mpi=pmi\n"}(place);
  EXPECT_THAT(result.out,
              HasSubstr("goes with srun --mpi=pmi, which this SLURM has not"));
  EXPECT_THAT(result.out, HasSubstr("\nranks with no type\n"));
  result = ModulesJob{.machine = "", .version = "trireme 0.9\n"}(place);
  EXPECT_THAT(result.out, HasSubstr("\nranks with no type\n"));
  EXPECT_EQ(result.status, 0) << result.err;
}

// Where sbatch was called has no slurm/: it is found beside the program.
TEST(Scripts, FindWhatComesWithTheProgram) {
  const Scratch place;
  std::filesystem::create_directories(place / "up/share/trireme");
  std::filesystem::create_directory_symlink(std::filesystem::absolute(script(".")),
                                            place / "up/share/trireme/slurm");
  std::filesystem::create_directories(place / "up/bin");
  std::filesystem::create_directory_symlink(place / "up/bin", place / "bin");
  spill_program(place / "up/bin/trireme", "[[ $1 == --version ]] || echo \"ran $*\"\n");
  spill_program(place / "up/bin/srun", "while [[ $1 == -* ]]; do shift; done\n\"$@\"\n");
  const std::string bin = (place / "bin").string();
  const RunResult result =
      run({"bash", script("train.sbatch"), "my.yaml"},
          {.environment = {{"PATH", bin + ":" + std::getenv("PATH")},
                           {"SLURM_JOB_ID", "4711"},
                           {"SLURM_JOB_NAME", "job"},
                           {"SLURM_JOB_NODELIST", "node7"},
                           {"SLURM_SUBMIT_DIR", place.path().string()}},
           .directory = place.path().string()});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("ran train my.yaml --resume auto"));
}

// train.sbatch with the program itself as its one rank.
class ScriptsTrain : public TrainingRuns {
 protected:
  ScriptsTrain() {
    spill(scratch_ / "machine.sh", "launcher=(env)\nexport OMP_NUM_THREADS=1\n");
    for (const std::string name : {"scontrol", "scancel"}) {
      spill_program(scratch_ / name, "echo \"" + name + " $*\"\n");
    }
  }
  RunResult job(const Arguments& more, const std::string& chain = "") {
    Arguments command = {"bash", script("train.sbatch"), "deck.yaml", "--run-dir", "run"};
    command.insert(command.end(), more.begin(), more.end());
    const std::string here = scratch_.path().string();
    return test::run(command,
                     {.environment = {{"PATH", here + ":" + std::getenv("PATH")},
                                      {"SLURM_JOB_ID", "77"},
                                      {"SLURM_JOB_NAME", "job"},
                                      {"SLURM_JOB_NODELIST", "node7"},
                                      {"TMPDIR", here},
                                      {"TRIREME", std::getenv("TRIREME_BINARY")},
                                      {"TRIREME_CHAIN", chain},
                                      {"TRIREME_HOME", script("..")},
                                      {"TRIREME_MACHINE", scratch_ / "machine.sh"}},
                      .directory = here});
  }
};

// Status 0 of a start that run.stop_after ended is no "done": the rest is not trained by
// a chain that ends in silence.
TEST_F(ScriptsTrain, SaysThatItStoppedAsAsked) {
  const Arguments part = {"--set", "run.stop_after=3"};
  const RunResult first = job(part, "chain");
  EXPECT_EQ(first.status, 0) << first.out << first.err;
  EXPECT_THAT(first.out, HasSubstr("stopped as asked (run.stop_after): the run is not at "
                                   "its last step"));
  EXPECT_THAT(first.out, HasSubstr("--set run.stop_after=never"));
  EXPECT_THAT(first.out, HasSubstr("the jobs of the chain that wait are taken out"));
  EXPECT_THAT(first.out, HasSubstr("scancel --state=PENDING"));
  EXPECT_THAT(first.out, ::testing::Not(HasSubstr(": done\n")));
  const RunResult second = job(part);
  EXPECT_THAT(second.out, HasSubstr("stopped as asked (run.stop_after)"));
  EXPECT_THAT(second.out, ::testing::Not(HasSubstr("of the chain")));
  // As it says: for all that is left.
  for (int i = 0; i < 2; ++i) {  // the second finds it finished
    const RunResult last = job({part[0], part[1], "--set", "run.stop_after=never"});
    EXPECT_EQ(last.status, 0) << last.out << last.err;
    EXPECT_THAT(last.out, HasSubstr(": done\n"));
    EXPECT_THAT(last.out, ::testing::Not(HasSubstr("stopped as asked")));
  }
  EXPECT_EQ(ckpt::CheckpointReader(newest("run")).state().step, 13);
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("tmp."))
        << entry << " was left";
  }
}

// slurm/scaling.sbatch with mpiexec in the place of srun.
class ScriptsSweep : public TrainingRuns {
 protected:
  ScriptsSweep() {
    spill(scratch_ / "machine.sh", "launcher=(" + (scratch_ / "srun").string() +
                                       " --mpi=pmi2)\nexport OMP_NUM_THREADS=1\n");
    const char* mpiexec = std::getenv("TRIREME_MPIEXEC");
    spill_program(scratch_ / "srun",
                  "while [[ $1 == -* ]]; do\n"
                  "  [[ $1 != --ntasks=* ]] || ranks=${1#*=}\n"
                  "  shift\n"
                  "done\n"
                  "exec " +
                      std::string(mpiexec == nullptr ? "mpiexec" : mpiexec) +
                      " -n \"$ranks\" \"$@\"\n");
    // As inputs/quickstart.yaml: the warm-up is longer than what is measured, and the
    // decay is that of run.steps.
    std::string text = slurp(scratch_ / "deck.yaml");
    const std::string schedule = "warmup: 3, decay: 13}";
    text.replace(text.find(schedule), schedule.size(), "warmup: 300}");
    text.replace(text.find("steps: 13"), 9, "steps: 1000");
    text.replace(text.find("micro: 2"), 8, "micro: 1");
    spill(scratch_ / "long.yaml", text);
  }
  RunResult sweep(const Arguments& decks, const std::string& ranks) {
    Arguments command = {"bash", script("scaling.sbatch")};
    command.insert(command.end(), decks.begin(), decks.end());
    return test::run(command,
                     {.environment = {{"SLURM_JOB_ID", "77"},
                                      {"SLURM_JOB_NUM_NODES", "1"},
                                      {"SLURM_NTASKS", "2"},
                                      {"SLURM_SUBMIT_DIR", script("..")},
                                      {"TRIREME", std::getenv("TRIREME_BINARY")},
                                      {"TRIREME_MACHINE", scratch_ / "machine.sh"},
                                      {"TRIREME_RANKS", ranks},
                                      {"TRIREME_REPEATS", "1"}},
                      .directory = scratch_.path().string()});
  }
};

TEST_F(ScriptsSweep, LeavesTheScheduleOfADeckAlone) {
  const RunResult result = sweep({"long.yaml"}, "1 2");
  ASSERT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(
      result.out,
      ::testing::AllOf(
          HasSubstr("strong scaling: a batch of 6 on every number of ranks"),
          ContainsRegex(" 1 +[0-9.]+ +[0-9.]+ +1.00 +100.0%  scaling-77/long-1\n"),
          ContainsRegex(" 2 +[0-9.]+ +[0-9.]+ +[0-9.%]+ +[0-9.%]+  [^ ]+/long-2")));
  EXPECT_THAT(result.out, HasSubstr("stopped after 20 of 1,000 steps, as asked"));
  EXPECT_THAT(slurp(scratch_ / "scaling-77/report.html"), HasSubstr("Strong scaling"));
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "scaling-77/tables/runs.runs.csv"));
  const auto steps = metrics("scaling-77/long-2").steps;
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps.back().step, 20);
  EXPECT_DOUBLE_EQ(steps.back().lr, 2e-3 * 20 / 300);
}

// What fails is left out; where all does, there is no table of nothing.
TEST_F(ScriptsSweep, SaysWhichRunsFailed) {
  const std::filesystem::path second = scratch_ / "more/long.yaml";
  std::filesystem::create_directories(second.parent_path());
  std::filesystem::copy_file(scratch_ / "long.yaml", second);
  RunResult result = sweep({"none.yaml", "long.yaml", second.string()}, "2");
  EXPECT_EQ(result.status, 1) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("none.yaml on 2 ranks: status 2, left out of the "));
  EXPECT_THAT(result.out, ContainsRegex(" 2 .* scaling-77/long-2\n"));
  EXPECT_THAT(result.out, ContainsRegex(" 2 .* scaling-77/long_2-2\n"));
  result = sweep({"none.yaml"}, "1 2");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("no run was measured: there is no table\n"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("report:")));
}

}  // namespace
}  // namespace trireme::test
