// comm/rank_grid.hpp — the process grid (tensor x context x data x pipeline) and its
// groups, as an MPI Cartesian topology (MPI_Cart_create, MPI_Cart_sub).
//
// Ranks are never reordered: rank = sum over axes of coordinate x stride, the first axis
// of the order having stride 1. With the default order neighbouring ranks form tensor
// groups.
#ifndef TRIREME_COMM_RANK_GRID_HPP_
#define TRIREME_COMM_RANK_GRID_HPP_

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "config/axis.hpp"

namespace trireme::comm {

using config::Axis;
using config::AxisOrder;

struct GridShape {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  AxisOrder order = config::kDefaultAxisOrder;

  int extent(Axis axis) const;
  int size() const { return tensor * context * data * pipeline; }
};
// "tensor 2 x context 1 x data 4 x pipeline 2"
std::string to_string(const GridShape& shape);

struct Coordinates {
  int tensor = 0, context = 0, data = 0, pipeline = 0;

  int along(Axis axis) const;
  bool operator==(const Coordinates&) const = default;
};

// The groups a rank is in. A group of one is a self communicator. In an axis' group a
// rank's number is its coordinate on that axis.
struct ProcessGroups {
  std::shared_ptr<Communicator> world;
  std::shared_ptr<Communicator> tensor, context, data, pipeline;
  // All ranks that together hold one copy of the model: tensor x pipeline.
  std::shared_ptr<Communicator> model;
  // First and last stage of a pipeline, which share the tied embedding; on a stage
  // between them, and where first and last are one, a group of one.
  std::shared_ptr<Communicator> embedding;

  // All but the world: those that the passes of a step send along.
  std::vector<Communicator*> of_axes() const {
    return {tensor.get(),   context.get(), data.get(),
            pipeline.get(), model.get(),   embedding.get()};
  }
};

// Where a rank of the grid is, and which rank is at a place.
Coordinates coordinates_of(const GridShape& shape, int rank);
int rank_of(const GridShape& shape, const Coordinates& coordinates);
// The ranks that differ from `rank` in these axes only, itself included, in the order of
// their numbers: the members of its group. No ranks need be there.
std::vector<int> members_of(const GridShape& shape, const std::vector<Axis>& axes,
                            int rank);

class RankGrid {
 public:
  // Collective over world, whose size must be the shape's.
  RankGrid(std::shared_ptr<Communicator> world, const GridShape& shape);

  const GridShape& shape() const { return shape_; }
  const Coordinates& coordinates() const { return coordinates_; }
  const ProcessGroups& groups() const { return groups_; }
  int rank() const { return groups_.world->rank(); }
  bool is_first_stage() const { return coordinates_.pipeline == 0; }
  bool is_last_stage() const { return coordinates_.pipeline == shape_.pipeline - 1; }

  Coordinates coordinates_of(int rank) const {
    return comm::coordinates_of(shape_, rank);
  }
  int rank_of(const Coordinates& coordinates) const {
    return comm::rank_of(shape_, coordinates);
  }

 private:
  GridShape shape_;
  Coordinates coordinates_;
  ProcessGroups groups_;
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_RANK_GRID_HPP_
