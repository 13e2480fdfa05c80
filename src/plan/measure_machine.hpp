// plan/measure_machine.hpp — a machine file of this machine, measured in some seconds:
// for the hosts that decks are tried on, to plan for what is there.
//
// Peaks are those of kernels/machine_peaks.hpp. The shares of them that a model reaches
// are set so that the kernel model gives the times of two layers that are really run: one
// whose attention is little, and one that is mostly attention.
#ifndef TRIREME_PLAN_MEASURE_MACHINE_HPP_
#define TRIREME_PLAN_MEASURE_MACHINE_HPP_

#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "plan/machine.hpp"

namespace trireme::plan {

// Collective over the world, whose ranks are the machine's devices: each has its threads,
// and they exchange messages with each other. InputError in a build for GPUs.
Machine measure_machine(const std::shared_ptr<comm::Communicator>& world);

// The machine as a file that parse_machine() reads; numbers in their shortest exact form.
std::string machine_text(const Machine& machine);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_MEASURE_MACHINE_HPP_
