// plan/message_plan.hpp — what a training step sends, known before there are ranks: the
// code of a step is run on shapes alone, on groups that are only planned and that count.
#ifndef TRIREME_PLAN_MESSAGE_PLAN_HPP_
#define TRIREME_PLAN_MESSAGE_PLAN_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "comm/process_groups.hpp"
#include "step/memory_plan.hpp"

namespace trireme::plan {

// Of one rank, in one step. The payload is the whole buffer of a collective, as counted
// by comm::Communicator.
struct MessageCount {
  std::string axis;  // the group's name
  std::string site;
  std::string operation;
  std::int64_t calls = 0;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  bool operator==(const MessageCount&) const = default;
};

// What a rank has sent since Group::reset_traffic(), by group and site.
std::vector<MessageCount> counted_messages(const comm::ProcessGroups& groups);

// state.groups: planned (make_planned_communicator).
// `plans`: of the state's pipeline; who asks for several stages has them searched once.
template <class T>
std::vector<MessageCount> plan_messages(const step::ModelState<T>& state,
                                        const step::StepShape& shape,
                                        const step::PipelinePlans& plans);
template <class T>
std::vector<MessageCount> plan_messages(const step::ModelState<T>& state,
                                        const step::StepShape& shape);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_MESSAGE_PLAN_HPP_
