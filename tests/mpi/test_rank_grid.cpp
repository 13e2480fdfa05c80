// The process grid against coordinates computed by hand: every factorisation of the
// ranks, several orders of axes, members of every group.
#include "comm/rank_grid.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/mpi_communicator.hpp"

namespace trireme::comm {
namespace {

std::shared_ptr<Communicator> world() {
  MpiOptions options;
  options.wait = WaitPolicy::yield;
  return make_mpi_world(options);
}

std::vector<GridShape> factorisations(int ranks) {
  std::vector<GridShape> shapes;
  for (int t = 1; t <= ranks; ++t) {
    for (int c = 1; c <= ranks / t; ++c) {
      for (int d = 1; d <= ranks / t / c; ++d) {
        const int p = ranks / (t * c * d);
        if (t * c * d * p == ranks)
          shapes.push_back({t, c, d, p, config::kDefaultAxisOrder});
      }
    }
  }
  return shapes;
}

// World ranks of a group's members, in the group's order.
std::vector<std::int64_t> members(Group& group, int world_rank) {
  return group.control().gather(std::int64_t{world_rank});
}

void check_default_order(const std::shared_ptr<Communicator>& world,
                         const GridShape& shape) {
  const RankGrid grid(world, shape);
  const int rank = world->rank();
  const int t = shape.tensor, c = shape.context, d = shape.data, p = shape.pipeline;
  // Tensor fastest, pipeline slowest.
  const Coordinates expected{rank % t, rank / t % c, rank / (t * c) % d,
                             rank / (t * c * d)};
  ASSERT_EQ(grid.coordinates(), expected);

  const auto line = [&](int count, int stride, int place) {
    std::vector<std::int64_t> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back(rank + (i - place) * stride);
    return ranks;
  };
  ProcessGroups groups = grid.groups();
  EXPECT_EQ(members(*groups.tensor, rank), line(t, 1, expected.tensor));
  EXPECT_EQ(members(*groups.context, rank), line(c, t, expected.context));
  // Neighbours on the grid, as context lies between tensor and data.
  EXPECT_EQ(members(*groups.gradient, rank),
            line(c * d, t, expected.data * c + expected.context));
  EXPECT_EQ(members(*groups.pipeline, rank), line(p, t * c * d, expected.pipeline));
  EXPECT_EQ(groups.tensor->rank(), expected.tensor);
  EXPECT_EQ(groups.pipeline->rank(), expected.pipeline);

  std::vector<std::int64_t> model;
  for (int stage = 0; stage < p; ++stage) {
    for (int i = 0; i < t; ++i) {
      model.push_back(rank - expected.tensor - expected.pipeline * t * c * d + i +
                      stage * t * c * d);
    }
  }
  EXPECT_EQ(members(*groups.model, rank), model);

  if (p > 1) {
    groups.share({{"word", {0, p - 1}}});
    groups.share({{"word", {0, p - 1}}});  // which is there already
    EXPECT_EQ(groups.tied_parameters().size(), 1u);
    EXPECT_EQ(groups.tied_stages(), (std::vector<int>{0, p - 1}));
    EXPECT_EQ(groups.tied_if_held("other"), nullptr);
    const int first = rank - expected.pipeline * t * c * d;
    if (expected.pipeline == 0 || expected.pipeline == p - 1) {
      EXPECT_EQ(members(groups.tied("word"), rank),
                (std::vector<std::int64_t>{first, first + (p - 1) * t * c * d}));
    } else {
      EXPECT_THROW(groups.tied("word"), Error);
    }
  }
  EXPECT_EQ(groups.world->size(), shape.size());
}

TEST(RankGridGroups, EveryFactorisation) {
  const auto all = world();
  const auto shapes = factorisations(all->size());
  // d_4(1) = 1, d_4(4) = 10, d_4(8) = 20 ways to write n as a product of four.
  const int expected = all->size() == 1 ? 1 : (all->size() == 4 ? 10 : 20);
  EXPECT_EQ(static_cast<int>(shapes.size()), expected);
  for (const GridShape& shape : shapes) {
    // Making groups is slow where ranks outnumber cores: of 8 the most telling ones.
    if (all->size() == 8 && shape.context > 1 && shape.data != 2) continue;
    SCOPED_TRACE(to_string(shape));
    check_default_order(all, shape);
  }
}

TEST(RankGridGroups, OrderFromTheDeck) {
  const auto all = world();
  if (all->size() != 8) return;  // written for 8 ranks
  const int rank = all->rank();
  GridShape shape{2, 1, 2, 2, {Axis::pipeline, Axis::data, Axis::tensor, Axis::context}};
  const RankGrid grid(all, shape);
  EXPECT_EQ(grid.coordinates(), (Coordinates{rank / 4, 0, rank / 2 % 2, rank % 2}));
  EXPECT_EQ(members(*grid.groups().pipeline, rank),
            (std::vector<std::int64_t>{rank / 2 * 2, rank / 2 * 2 + 1}));
  EXPECT_EQ(members(*grid.groups().tensor, rank),
            (std::vector<std::int64_t>{rank % 4, rank % 4 + 4}));
  // A group's sum involves its members only.
  const double sum =
      grid.groups().gradient->control().all_reduce(static_cast<double>(rank));
  EXPECT_EQ(sum, 2.0 * (rank - rank / 2 % 2 * 2) + 2.0);
}

TEST(RankGridCoordinates, RoundTrip) {
  const auto all = world();
  const std::vector<AxisOrder> orders = {
      config::kDefaultAxisOrder,
      {Axis::pipeline, Axis::data, Axis::context, Axis::tensor},
      {Axis::data, Axis::tensor, Axis::pipeline, Axis::context}};
  for (const AxisOrder& order : orders) {
    const int n = all->size();
    const RankGrid grid(
        all, {n > 1 ? 2 : 1, 1, n > 4 ? 2 : 1, n > 1 ? n / (n > 4 ? 4 : 2) : 1, order});
    EXPECT_EQ(grid.rank_of(grid.coordinates()), all->rank());
    for (int r = 0; r < n; ++r) EXPECT_EQ(grid.rank_of(grid.coordinates_of(r)), r);
  }
}

TEST(RankGridErrors, AreNamed) {
  const auto all = world();
  const auto message = [&](const GridShape& shape) -> std::string {
    try {
      const RankGrid grid(all, shape);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  GridShape wrong;
  wrong.data = all->size() + 1;
  EXPECT_THAT(message(wrong),
              ::testing::HasSubstr("there are " + std::to_string(all->size())));
  GridShape twice;
  twice.tensor = all->size();
  twice.order = {Axis::tensor, Axis::tensor, Axis::data, Axis::pipeline};
  EXPECT_THAT(message(twice), ::testing::HasSubstr("must name tensor once"));
  GridShape none;
  none.context = 0;
  EXPECT_THAT(message(none), ::testing::HasSubstr("context axis has extent 0"));
  GridShape fits;
  fits.tensor = all->size();
  const RankGrid grid(all, fits);
  EXPECT_THROW(grid.coordinates_of(all->size()), Error);
  EXPECT_THROW(grid.rank_of({0, 0, 1, 0}), Error);
}

}  // namespace
}  // namespace trireme::comm
