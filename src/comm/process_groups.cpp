// comm/process_groups.cpp — see process_groups.hpp.
#include "comm/process_groups.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/plural.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::comm {
namespace {

constexpr Axis kAxes[] = {Axis::tensor, Axis::context, Axis::data, Axis::pipeline};

// MPI's dimensions have the last one fastest; the order has the first one fastest.
std::size_t dimension_of(const AxisOrder& order, Axis axis) {
  const auto position = std::find(order.begin(), order.end(), axis) - order.begin();
  return order.size() - 1 - static_cast<std::size_t>(position);
}

void check_shape(const GridShape& shape, int ranks) {
  for (const Axis axis : kAxes) {
    TRIREME_REQUIRE(shape.extent(axis) >= 1, "process grid: the {} axis has extent {}",
                    config::name_of(axis), shape.extent(axis));
    TRIREME_REQUIRE(std::count(shape.order.begin(), shape.order.end(), axis) == 1,
                    "process grid: the order of axes must name {} once",
                    config::name_of(axis));
  }
  TRIREME_REQUIRE(shape.size() == ranks, "process grid {} has {}; there are {}",
                  to_string(shape), format_plural(shape.size(), "rank"), ranks);
}

}  // namespace

const std::vector<GroupAxes>& group_axes() {
  static const std::vector<GroupAxes> groups = {{"tensor", {Axis::tensor}},
                                                {"context", {Axis::context}},
                                                {"gradient", {Axis::data, Axis::context}},
                                                {"pipeline", {Axis::pipeline}},
                                                {"model", {Axis::tensor, Axis::pipeline}},
                                                {kTied, {Axis::pipeline}}};
  return groups;
}

std::string to_string(const GridShape& shape) {
  return fmt::format("tensor {} x context {} x data {} x pipeline {}", shape.tensor,
                     shape.context, shape.data, shape.pipeline);
}

Group& ProcessGroups::tied(const std::string& parameter) const {
  const std::shared_ptr<Group> group = tied_if_held(parameter);
  TRIREME_REQUIRE(group != nullptr,
                  "no group of stages shares '{}' with stage {}: it must be among the "
                  "tied parameters that the groups are told of",
                  parameter, pipeline->rank());
  return *group;
}

std::shared_ptr<Group> ProcessGroups::tied_if_held(const std::string& parameter) const {
  const auto found = tied_.find(parameter);
  return found == tied_.end() ? nullptr : found->second;
}

std::vector<int> ProcessGroups::tied_stages() const {
  std::set<int> stages;
  for (const TiedParameter& parameter : tied_parameters_) {
    stages.insert(parameter.stages.begin(), parameter.stages.end());
  }
  return {stages.begin(), stages.end()};
}

void ProcessGroups::share(const std::vector<TiedParameter>& parameters) {
  for (const TiedParameter& parameter : parameters) {
    if (tied_.count(parameter.name) > 0) continue;
    tied_parameters_.push_back(parameter);
    auto control = pipeline->control().subset(parameter.stages, kTied);
    tied_[parameter.name] =
        control == nullptr ? nullptr : std::make_shared<Group>(std::move(control));
  }
}

std::vector<Group*> ProcessGroups::all() const {
  std::vector<Group*> groups = {tensor.get(), context.get(), gradient.get(),
                                pipeline.get(), model.get()};
  for (const auto& [name, group] : tied_) {
    if (group != nullptr) groups.push_back(group.get());
  }
  return groups;
}

std::vector<std::pair<std::string, Traffic>> ProcessGroups::traffic() const {
  std::vector<std::pair<std::string, Traffic>> sent;
  for (const Group* group :
       {tensor.get(), context.get(), gradient.get(), pipeline.get(), model.get()}) {
    sent.emplace_back(group->name(), group->traffic());
  }
  Traffic of_tied;
  for (const auto& [name, group] : tied_) {
    if (group != nullptr) of_tied += group->traffic();
  }
  if (!tied_.empty()) sent.emplace_back(kTied, of_tied);
  return sent;
}

ProcessGroups make_process_groups(std::shared_ptr<Communicator> world,
                                  const GridShape& shape) {
  check_shape(shape, world->size());
  std::vector<int> extents(shape.order.size());
  for (const Axis axis : kAxes) {
    extents[dimension_of(shape.order, axis)] = shape.extent(axis);
  }
  std::vector<Communicator::SubGrid> grids;
  for (const GroupAxes& group : group_axes()) {
    if (std::string_view(group.name) == kTied) continue;  // share() makes those
    Communicator::SubGrid grid{group.name, std::vector<bool>(extents.size(), false)};
    for (const Axis axis : group.within) {
      grid.keep[dimension_of(shape.order, axis)] = true;
    }
    grids.push_back(std::move(grid));
  }
  auto made = world->cartesian(extents, grids);
  ProcessGroups groups;
  groups.tensor = std::make_shared<Group>(made[0]);
  groups.context = std::make_shared<Group>(made[1]);
  groups.gradient = std::make_shared<Group>(made[2]);
  groups.pipeline = std::make_shared<Group>(made[3]);
  groups.model = std::make_shared<Group>(made[4]);
  groups.world = std::move(world);
  return groups;
}

ProcessGroups make_groups_of_one() {
  return make_process_groups(make_self_communicator("world"), {});
}

}  // namespace trireme::comm
