// support/kept_grids.hpp — grids that several trainings of a test share: to make the
// groups of one takes several ranks on few cores longer than a small training.
#ifndef TRIREME_TESTS_SUPPORT_KEPT_GRIDS_HPP_
#define TRIREME_TESTS_SUPPORT_KEPT_GRIDS_HPP_

#include <cstddef>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "comm/group.hpp"
#include "comm/rank_grid.hpp"

namespace trireme::test {

// While one lives, grid() makes each grid of each world once. It ends before MPI does.
class KeptGrids {
 public:
  KeptGrids() {
    TRIREME_REQUIRE(current_ == nullptr, "KeptGrids: there is one already");
    current_ = this;
  }
  ~KeptGrids() { current_ = nullptr; }
  KeptGrids(const KeptGrids&) = delete;

  // Collective over world where there is no such grid yet.
  static std::shared_ptr<const comm::RankGrid> grid(
      const std::shared_ptr<comm::Communicator>& world, const comm::GridShape& shape) {
    if (current_ != nullptr) {
      for (const auto& grid : current_->grids_) {
        if (grid->groups().world == world && is_same(grid->shape(), shape)) return grid;
      }
    }
    auto grid = std::make_shared<const comm::RankGrid>(world, shape);
    // Of what carries messages on a stream, communicators would be made twice.
    const bool is_on_stream = grid->groups().model->is_on_stream();
    if (current_ != nullptr && !is_on_stream) current_->grids_.push_back(grid);
    return grid;
  }

 private:
  static bool is_same(const comm::GridShape& a, const comm::GridShape& b) {
    return a.tensor == b.tensor && a.context == b.context && a.data == b.data &&
           a.pipeline == b.pipeline && a.order == b.order;
  }

  static inline KeptGrids* current_ = nullptr;
  std::vector<std::shared_ptr<const comm::RankGrid>> grids_;
};

// A grid's groups for one training, whose accounts of messages, and what messages keep in
// memory, are that training's alone. The grid outlives them.
inline comm::ProcessGroups own_groups(const comm::RankGrid& grid) {
  comm::ProcessGroups groups = grid.groups();
  for (std::shared_ptr<comm::Group>* const group :
       {&groups.tensor, &groups.context, &groups.gradient, &groups.pipeline,
        &groups.model}) {
    *group = std::make_shared<comm::Group>((*group)->control());
  }
  const std::vector<comm::Group*> own = groups.all(), kept = grid.groups().all();
  for (std::size_t i = 0; i < own.size(); ++i) {
    TRIREME_REQUIRE(own[i] != kept[i], "own_groups: a group is shared with the grid");
  }
  return groups;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_KEPT_GRIDS_HPP_
