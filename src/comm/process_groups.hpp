// comm/process_groups.hpp — the groups of ranks that one rank is in: by axis of the
// process grid for the algorithms that are about these axes, by role for the others.
//
// There is one factory. What its groups can do is what the world it is given can do:
//   make_mpi_world()             real groups that send;
//   make_planned_communicator()  planned ones, that count what a step would send;
//   make_self_communicator()     those of a rank alone.
#ifndef TRIREME_COMM_PROCESS_GROUPS_HPP_
#define TRIREME_COMM_PROCESS_GROUPS_HPP_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/group.hpp"
#include "config/enums.hpp"

namespace trireme::comm {

using config::Axis;
using config::AxisOrder;

// The member of a GridShape or of Coordinates that belongs to an axis.
template <class Four>
auto& on_axis(Four& four, Axis axis) {
  switch (axis) {
    case Axis::tensor:
      return four.tensor;
    case Axis::context:
      return four.context;
    case Axis::data:
      return four.data;
    case Axis::pipeline:
      return four.pipeline;
  }
  throw Error("on_axis: not an Axis");
}

struct GridShape {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  AxisOrder order = config::kDefaultAxisOrder;

  int extent(Axis axis) const { return on_axis(*this, axis); }
  int size() const { return tensor * context * data * pipeline; }
};
// "tensor 2 x context 1 x data 4 x pipeline 2"
std::string to_string(const GridShape& shape);

// The name of the groups of stages that share a tied parameter.
inline constexpr const char* kTied = "tied";

// A parameter that several stages of a pipeline hold, each a copy of its own.
struct TiedParameter {
  std::string name;
  std::vector<int> stages;  // ascending
};

// A group of one sends nothing. In an axis' group a rank's number is its coordinate on
// that axis.
struct ProcessGroups {
  std::shared_ptr<Communicator> world;  // host values of all ranks
  // The groups along one axis of the grid each.
  std::shared_ptr<Group> tensor, context, pipeline;
  // The ranks that hold the same part of the model and see other samples, or other tokens
  // of them: gradients are summed over it, and ZeRO cuts its parts over it. Data x
  // context.
  std::shared_ptr<Group> gradient;
  // All ranks that together hold one copy of the model: tensor x pipeline.
  std::shared_ptr<Group> model;
  // The stages that hold a tied parameter, of this rank's tensor and gradient numbers.
  // Throws Error where this rank's stage does not hold it.
  Group& tied(const std::string& parameter) const;
  // The same, and null there.
  std::shared_ptr<Group> tied_if_held(const std::string& parameter) const;
  // All that share() was told of, on whatever stages.
  const std::vector<TiedParameter>& tied_parameters() const { return tied_parameters_; }
  // The stages that hold a copy of any of them, ascending.
  std::vector<int> tied_stages() const;
  // Makes the groups of these parameters that there are not yet. Collective over the
  // pipeline.
  void share(const std::vector<TiedParameter>& parameters);

  // All but the world: those that the passes of a step send along.
  std::vector<Group*> all() const;
  // What each of these has sent, by name, those of tied parameters in one: the same names
  // on every rank, as ranks compare the figures; a stage in between has no such group.
  std::vector<std::pair<std::string, Traffic>> traffic() const;

 private:
  std::map<std::string, std::shared_ptr<Group>> tied_;  // null on other stages
  std::vector<TiedParameter> tied_parameters_;
};

// A group by its name, and the axes of the grid in which its ranks differ. Those of tied
// parameters have some of the ranks of their pipeline.
struct GroupAxes {
  const char* name;
  std::vector<Axis> within;
};
const std::vector<GroupAxes>& group_axes();

// Collective over the world, whose size must be the shape's.
ProcessGroups make_process_groups(std::shared_ptr<Communicator> world,
                                  const GridShape& shape);
// The groups of a rank alone.
ProcessGroups make_groups_of_one();

}  // namespace trireme::comm

#endif  // TRIREME_COMM_PROCESS_GROUPS_HPP_
