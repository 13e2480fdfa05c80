// A model shared out over ranks against the whole one, which every rank computes as well:
// initial weights to the bit; loss and every gradient to rounding, dropout on, for each
// way to lay the ranks out over the tensor and data axes.
#include <gmock/gmock.h>

#include <algorithm>

#include "comm/mpi_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "unit/model/gpt_pass.hpp"

namespace trireme::model {
namespace {

using test::Gpt;
using test::Values;

constexpr index_t kSamples = 8;

std::shared_ptr<comm::Communicator> world() {
  return comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
}

void check_layout(const std::shared_ptr<comm::Communicator>& world, int tensor,
                  int data) {
  SCOPED_TRACE(::testing::Message() << "tensor " << tensor << ", data " << data);
  const comm::RankGrid grid(world, {.tensor = tensor, .data = data});
  Gpt<double> whole(test::small_gpt());
  Gpt<double> part(test::small_gpt(), grid.groups());
  ASSERT_EQ(part.registry.size(), whole.registry.size());
  for (std::size_t p = 0; p < whole.registry.size(); ++p) {
    EXPECT_EQ(test::values_of(part.params.slice(Slab::weight, p)),
              test::part_of(test::values_of(whole.params.slice(Slab::weight, p)),
                            part.registry.spec(p).shard))
        << whole.registry.spec(p).name;
  }

  const Values want = test::accumulate(whole, 0, kSamples, kSamples);
  const index_t share = kSamples / data;
  Values got = test::accumulate(part, grid.coordinates().data * share, share,
                                std::min<index_t>(share, 2));
  // Every rank of a tensor group has the loss of the group's samples.
  EXPECT_EQ(grid.groups().tensor->control().all_reduce(got[0], comm::Op::max),
            grid.groups().tensor->control().all_reduce(got[0], comm::Op::min));
  grid.groups().gradient->control().all_reduce(got);
  EXPECT_NEAR(got[0], want[0], 1e-12 * want[0]);
  EXPECT_EQ(got[1], want[1]);

  const Exec exec;
  grid.groups().gradient->all_reduce(exec,
                                     comm::span_of(part.params.slab(Slab::gradient)));
  exec.fence("test");
  for (std::size_t p = 0; p < whole.registry.size(); ++p) {
    test::expect_close_in_norm(
        test::gradient_of(part, p),
        test::part_of(test::gradient_of(whole, p), part.registry.spec(p).shard), 1e-12,
        1e-3, whole.registry.spec(p).name);
  }
  // Words of the next rank leave nothing in this one's rows of padding.
  const auto non_zeros = [](const Values& values) {
    return std::ssize(values) - std::count(values.begin(), values.end(), 0.0);
  };
  index_t in_parameters = 0;
  for (std::size_t p = 0; p < part.registry.size(); ++p) {
    in_parameters += non_zeros(test::gradient_of(part, p));
  }
  EXPECT_EQ(non_zeros(test::values_of(part.params.slab(Slab::gradient))), in_parameters);
}

TEST(GptLayoutsTogether, HaveOneAnswer) {
  const auto ranks = world();
  for (int tensor = 1; tensor <= ranks->size(); ++tensor) {
    if (ranks->size() % tensor == 0) {
      check_layout(ranks, tensor, ranks->size() / tensor);
    }
  }
}

}  // namespace
}  // namespace trireme::model
