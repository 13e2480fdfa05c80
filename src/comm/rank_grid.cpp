// comm/rank_grid.cpp — see rank_grid.hpp.
#include "comm/rank_grid.hpp"

#include <algorithm>
#include <utility>

#include "config/enums.hpp"

namespace trireme::comm {
Coordinates coordinates_of(const GridShape& shape, int rank) {
  TRIREME_REQUIRE(rank >= 0 && rank < shape.size(), "rank {} is not in process grid {}",
                  rank, to_string(shape));
  Coordinates coordinates;
  for (const Axis axis : shape.order) {
    on_axis(coordinates, axis) = rank % shape.extent(axis);
    rank /= shape.extent(axis);
  }
  return coordinates;
}

int rank_of(const GridShape& shape, const Coordinates& coordinates) {
  int rank = 0;
  int stride = 1;
  for (const Axis axis : shape.order) {
    const int coordinate = coordinates.along(axis);
    TRIREME_REQUIRE(coordinate >= 0 && coordinate < shape.extent(axis),
                    "coordinate {} on the {} axis is not in process grid {}", coordinate,
                    config::name_of(axis), to_string(shape));
    rank += coordinate * stride;
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
      for (int coordinate = 0; coordinate < shape.extent(axis); ++coordinate) {
        more.push_back(member);
        on_axis(more.back(), axis) = coordinate;
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
