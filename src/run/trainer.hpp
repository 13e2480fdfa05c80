// run/trainer.hpp — a training run from deck to last checkpoint.
#ifndef TRIREME_RUN_TRAINER_HPP_
#define TRIREME_RUN_TRAINER_HPP_

#include <string>

#include "check/deck_check.hpp"
#include "comm/environment.hpp"

namespace trireme::run {

// What the command line says of the deck, and of what becomes of its run.
struct TrainOptions : check::DeckCheckOptions {
  std::string fault;                // what shall go wrong: base/fault_plan.hpp
  std::string trace;                // file for a timeline; empty: none
  std::string trace_steps = "2-4";  // the steps of this start that it shows
  std::string profile;              // how many steps to profile; empty: none
  bool late = false;                // on a host, too: base/late_queue.hpp; for tests
  std::string program = "trireme";  // as it was called
  std::string command_line;         // for environment.json
};

// Exit status (design of the command line): 0 done, 75 stopped early with a checkpoint
// published. Everything else is thrown. Collective over the environment's world.
int train(const TrainOptions& options, comm::Environment& environment);

}  // namespace trireme::run

#endif  // TRIREME_RUN_TRAINER_HPP_
