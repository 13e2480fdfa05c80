// plan/measure_machine.hpp — a machine file of this machine, measured in a minute:
// for the hosts that decks are tried on, to plan for what is there.
//
// Peaks are those of kernels/machine_peaks.hpp. The shares of them that a model reaches
// are set so that the kernel model gives the times of two layers that are really run: one
// whose attention is little, and one that is mostly attention.
#ifndef TRIREME_PLAN_MEASURE_MACHINE_HPP_
#define TRIREME_PLAN_MEASURE_MACHINE_HPP_

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/enums.hpp"
#include "plan/machine.hpp"

namespace trireme::plan {

// What a host was found to do of a type, in FLOP/s, bytes/s and seconds.
struct TypeTimes {
  double peak = 0.0, layer_products = 0.0;  // products: the fastest, a layer's
  double update = 0.0;                      // of weights and moments
  double shallow = 0.0, deep = 0.0;         // the two layers
};
// Sets the device's peak of a type and all shares of it so that the kernel model gives
// these times. The names of shares that come out beyond what a share may be.
std::vector<std::string> set_shares(Device& device, const TypeTimes& times,
                                    config::Precision compute);

// All that was measured, to three digits: repeated measurements agree in no more.
void round_measured(Machine& machine);

// What a rank has of its host's memory, which all ranks there share alike. `hosts`: of
// all ranks.
double memory_of_rank(double bytes, const std::vector<std::string>& hosts, int rank);

struct MeasuredMachine {
  Machine machine;
  std::vector<std::string> doubts;  // numbers that cannot be right
};
// Collective over the world, whose ranks are the machine's devices: each has its threads
// and its part of its host's memory (the least counts), and they exchange messages with
// each other, on several hosts as on one in a single level. Of so many rounds, each of
// ten seconds, the median counts. InputError in a build for GPUs.
MeasuredMachine measure_machine(const std::shared_ptr<comm::Communicator>& world,
                                int rounds = 5);

// The machine as a file that parse_machine() reads; numbers in their shortest exact form.
std::string machine_text(const Machine& machine,
                         const std::vector<std::string>& doubts = {});

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_MEASURE_MACHINE_HPP_
