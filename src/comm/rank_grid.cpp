// comm/rank_grid.cpp — see rank_grid.hpp.
#include "comm/rank_grid.hpp"

#include <algorithm>
#include <utility>

#include "base/plural.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::comm {
namespace {

constexpr Axis kAxes[] = {Axis::tensor, Axis::context, Axis::data, Axis::pipeline};

int& along(Coordinates& coordinates, Axis axis) {
  switch (axis) {
    case Axis::tensor:
      return coordinates.tensor;
    case Axis::context:
      return coordinates.context;
    case Axis::data:
      return coordinates.data;
    case Axis::pipeline:
      return coordinates.pipeline;
  }
  throw Error("along: not an Axis");
}

// MPI's dimensions have the last one fastest; the order has the first one fastest.
std::size_t dimension_of(const AxisOrder& order, Axis axis) {
  const auto place = std::find(order.begin(), order.end(), axis) - order.begin();
  return order.size() - 1 - static_cast<std::size_t>(place);
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

int GridShape::extent(Axis axis) const {
  return Coordinates{tensor, context, data, pipeline}.along(axis);
}

std::string to_string(const GridShape& shape) {
  return fmt::format("tensor {} x context {} x data {} x pipeline {}", shape.tensor,
                     shape.context, shape.data, shape.pipeline);
}

int Coordinates::along(Axis axis) const {
  return comm::along(const_cast<Coordinates&>(*this), axis);
}

RankGrid::RankGrid(std::shared_ptr<Communicator> world, const GridShape& shape)
    : shape_(shape) {
  check_shape(shape, world->size());
  coordinates_ = comm::coordinates_of(shape, world->rank());

  std::vector<int> extents(shape.order.size());
  for (const Axis axis : kAxes) {
    extents[dimension_of(shape.order, axis)] = shape.extent(axis);
  }
  const auto sub_grid = [&](const std::string& name, std::initializer_list<Axis> axes) {
    Communicator::SubGrid grid{name, std::vector<bool>(extents.size(), false)};
    for (const Axis axis : axes) grid.keep[dimension_of(shape.order, axis)] = true;
    return grid;
  };
  auto made = world->cartesian(
      extents, {sub_grid("tensor", {Axis::tensor}), sub_grid("context", {Axis::context}),
                sub_grid("data", {Axis::data}), sub_grid("pipeline", {Axis::pipeline}),
                sub_grid("model", {Axis::tensor, Axis::pipeline})});
  groups_.tensor = made[0];
  groups_.context = made[1];
  groups_.data = made[2];
  groups_.pipeline = made[3];
  groups_.model = made[4];
  // Every stage takes part in the split, those in the middle without joining.
  const bool at_an_end = is_first_stage() || is_last_stage();
  groups_.embedding =
      groups_.pipeline->split(at_an_end ? 0 : -1, coordinates_.pipeline, "embedding");
  if (!groups_.embedding) groups_.embedding = make_self_communicator("embedding");
  groups_.world = std::move(world);
}

Coordinates coordinates_of(const GridShape& shape, int rank) {
  TRIREME_REQUIRE(rank >= 0 && rank < shape.size(), "rank {} is not in process grid {}",
                  rank, to_string(shape));
  Coordinates coordinates;
  for (const Axis axis : shape.order) {
    along(coordinates, axis) = rank % shape.extent(axis);
    rank /= shape.extent(axis);
  }
  return coordinates;
}

int rank_of(const GridShape& shape, const Coordinates& coordinates) {
  int rank = 0;
  int stride = 1;
  for (const Axis axis : shape.order) {
    const int place = coordinates.along(axis);
    TRIREME_REQUIRE(place >= 0 && place < shape.extent(axis),
                    "coordinate {} on the {} axis is not in process grid {}", place,
                    config::name_of(axis), to_string(shape));
    rank += place * stride;
    stride *= shape.extent(axis);
  }
  return rank;
}

std::vector<int> members_of(const GridShape& shape, const std::vector<Axis>& axes,
                            int rank) {
  std::vector<Coordinates> members = {coordinates_of(shape, rank)};
  for (const Axis axis : axes) {
    std::vector<Coordinates> more;
    for (const Coordinates& member : members) {
      for (int place = 0; place < shape.extent(axis); ++place) {
        more.push_back(member);
        along(more.back(), axis) = place;
      }
    }
    members = std::move(more);
  }
  std::vector<int> ranks;
  ranks.reserve(members.size());
  for (const Coordinates& member : members) ranks.push_back(rank_of(shape, member));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace trireme::comm
