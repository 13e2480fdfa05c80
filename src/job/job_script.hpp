// job/job_script.hpp — an sbatch script for one deck and one machine (`trireme
// jobscript`): slurm/train.sbatch with its settings filled in, and the machine's file in
// the place where that reads it. What happens in a job is written once, there.
#ifndef TRIREME_JOB_JOB_SCRIPT_HPP_
#define TRIREME_JOB_JOB_SCRIPT_HPP_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/exec.hpp"
#include "io/files.hpp"

namespace trireme::job {

struct JobScriptOptions {
  std::string deck;
  std::vector<std::string> overrides = {};  // --set key=value
  std::string run_dir = {};                 // empty: the deck's
  std::string machine;  // a file, or the name of one in slurm/machines
  std::int64_t nodes = 1;
  std::string time;                          // of the job: 4:00:00, 1-12, 90m
  std::string name = {};                     // of the job; empty: the deck's
  std::string account = {}, partition = {};  // empty: none
  // Modules that are loaded now ("gcc/12:mpich/4.1", as LOADEDMODULES has them): those of
  // the job where the machine's file leaves them to TRIREME_MODULES.
  std::string modules = {};
  io::Path program;                  // that the job runs
  io::Path slurm;                    // directory of train.sbatch, ...
  io::Path directory;                // that the job runs in
  bool uses_gpus = !kHostExecution;  // the program, as it was built
  // Who is told what may be meant otherwise; nobody where it is empty.
  std::function<void(const std::string&)> warn = {};
};

// The script: whatever bytes the options have, they reach sbatch and `trireme train` as
// they are, and none is a command. Throws config::DeckErrors for a deck that does not fit
// the ranks, its corpora or the run that is there already, or that this version cannot
// train, InputError for all else that the user can
// mend, control characters included, which a line for sbatch cannot hold.
std::string job_script(const JobScriptOptions& options);

}  // namespace trireme::job

#endif  // TRIREME_JOB_JOB_SCRIPT_HPP_
