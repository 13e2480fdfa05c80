// comm/rank_grid.hpp — the process grid (tensor x context x data x pipeline) and its
// groups, as an MPI Cartesian topology (MPI_Cart_create, MPI_Cart_sub).
//
// Ranks are never reordered: rank = sum over axes of coordinate x stride, the first axis
// of the order having stride 1. With the default order neighbouring ranks form tensor
// groups. Example: of tensor 2 x data 3 rank 5 has the coordinates 1 and 2, as 1 x 1 + 2
// x 2 = 5; its tensor group is ranks 4 and 5, its data group ranks 1, 3 and 5.
#ifndef TRIREME_COMM_RANK_GRID_HPP_
#define TRIREME_COMM_RANK_GRID_HPP_

#include <memory>
#include <utility>
#include <vector>

#include "comm/process_groups.hpp"

namespace trireme::comm {

struct Coordinates {
  int tensor = 0, context = 0, data = 0, pipeline = 0;

  int along(Axis axis) const { return on_axis(*this, axis); }
  bool operator==(const Coordinates&) const = default;
};

// The coordinates of a rank, and the rank at coordinates.
Coordinates coordinates_of(const GridShape& shape, int rank);
int rank_of(const GridShape& shape, const Coordinates& coordinates);
// The ranks that differ from `rank` in these axes only, itself included, in the order of
// their numbers: the members of its group. No ranks need be there.
std::vector<int> members_of(const GridShape& shape, const std::vector<Axis>& axes,
                            int rank);

class RankGrid {
 public:
  // Collective over world, whose size must be the shape's.
  RankGrid(std::shared_ptr<Communicator> world, const GridShape& shape)
      : shape_(shape), groups_(make_process_groups(std::move(world), shape)) {
    coordinates_ = comm::coordinates_of(shape, groups_.world->rank());
  }

  const GridShape& shape() const { return shape_; }
  const Coordinates& coordinates() const { return coordinates_; }
  const ProcessGroups& groups() const { return groups_; }
  int rank() const { return groups_.world->rank(); }

  Coordinates coordinates_of(int rank) const {
    return comm::coordinates_of(shape_, rank);
  }
  int rank_of(const Coordinates& coordinates) const {
    return comm::rank_of(shape_, coordinates);
  }

 private:
  GridShape shape_;
  ProcessGroups groups_;
  Coordinates coordinates_;
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_RANK_GRID_HPP_
