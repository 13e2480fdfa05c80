// Several ranks: a vocabulary in shards gives every rank the loss of the whole; sums at
// the borders of tensor-parallel regions; gradients summed over the right groups.
#include <gtest/gtest.h>

#include "comm/mpi_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "comm/self_communicator.hpp"
#include "parallel/cross_entropy.hpp"
#include "parallel/data_parallel.hpp"
#include "support/arrays.hpp"

namespace trireme::parallel {
namespace {

using test::Array;
using Values = std::vector<double>;

std::shared_ptr<comm::Communicator> world() {
  return comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
}

template <class T>
struct Loss {
  Values loss, d_logits, totals;
};

// This rank's columns [begin, begin + valid) of the logits, in `held` columns.
template <class T>
Loss<T> loss_of(comm::Group& group, const Values& logits, index_t rows,
                index_t vocabulary, index_t begin, index_t valid, index_t held,
                const Values& labels, const Values& mask) {
  using A = Accumulator<T>;
  Values mine(rows * held, 9999.0);  // padding, larger than any logit
  for (index_t r = 0; r < rows; ++r) {
    for (index_t j = 0; j < valid; ++j) {
      mine[r * held + j] = logits[r * vocabulary + begin + j];
    }
  }
  const Array<T> shard(mine);
  const Array<std::int32_t> label_array(labels);
  const Array<float> mask_array(mask);
  const Array<A> row_max(rows), sums(2 * rows), loss(rows);
  const Array<double> totals({1.0, 2.0});
  Kokkos::View<kernels::StepState, DeviceMemory> state("state");
  Kokkos::deep_copy(state, kernels::StepState{});
  const kernels::VocabRange range{begin, valid};
  const SoftmaxStatistics<T> statistics{row_max.vector(), sums.matrix(rows, 2)};
  vocab_parallel_softmax_statistics<T>(Exec(), group, range, shard.cmatrix(rows, held),
                                       label_array.cvector(), statistics);
  const auto alone = std::pair(row_max.bytes(), sums.bytes());
  vocab_parallel_cross_entropy_in_place<T>(
      Exec(), group, range, kernels::StepStateView(state.data()), {0, 0.25},
      shard.matrix(rows, held), label_array.cvector(), mask_array.cvector(), statistics);
  EXPECT_EQ(std::pair(row_max.bytes(), sums.bytes()), alone);
  kernels::cross_entropy_loss<T>(Exec(), row_max.cvector(), sums.cmatrix(rows, 2),
                                 mask_array.cvector(), loss.vector(), totals.vector());
  return {loss.values(), shard.values(), totals.values()};
}

template <class T>
class ParallelTogetherOf : public ::testing::Test {};
TYPED_TEST_SUITE(ParallelTogetherOf, test::RealTypes);

TYPED_TEST(ParallelTogetherOf, LossOfAShardedVocabulary) {
  using T = TypeParam;
  const auto ranks = world();
  comm::Group group(ranks), alone(comm::make_self_communicator("alone"));
  const index_t rows = 33, size = group.size(), rank = group.rank();
  // With 5 columns over 4 ranks (parts of 2) the last one holds padding only.
  // Logits around a thousand: only the maximum over all ranks keeps exponentials in
  // range.
  for (const auto& [vocabulary, level] :
       {std::pair<index_t, double>{5, 0}, {37, 0}, {512, 0}, {37, 1000}, {37, -1000}}) {
    SCOPED_TRACE(::testing::Message() << vocabulary << " around " << level);
    const Values logits =
        Array<T>(test::uniform(rows * vocabulary, 1, level - 8, level + 8)).values();
    Values labels = test::uniform(rows, 2, 0, static_cast<double>(vocabulary));
    Values mask(rows, 1.0);
    for (index_t r = 0; r < rows; ++r) {
      labels[r] = std::floor(labels[r]);
      if (r % 4 == 1) mask[r] = 0;
    }
    const index_t held = (vocabulary + size - 1) / size;
    const index_t begin = std::min(vocabulary, rank * held);
    const index_t valid = std::min(held, vocabulary - begin);
    const auto got =
        loss_of<T>(group, logits, rows, vocabulary, begin, valid, held, labels, mask);
    const auto want = loss_of<T>(alone, logits, rows, vocabulary, 0, vocabulary,
                                 vocabulary, labels, mask);
    const double u = test::rounding<T>(),
                 ua = test::rounding<Accumulator<T>>() * (1 + std::abs(level));
    test::expect_close(got.loss, want.loss, 32 * ua, 1, "loss");
    test::expect_close(got.totals, want.totals, 32 * ua, 1, "totals");
    for (index_t r = 0; r < rows; ++r) {
      for (index_t j = 0; j < held; ++j) {
        const double expected =
            j < valid ? want.d_logits[r * vocabulary + begin + j] : 0.0;
        ASSERT_NEAR(got.d_logits[r * held + j], expected,
                    2 * (u + 32 * ua) * std::abs(expected) + 0x1p-24)
            << r << ", " << j;
      }
    }
    // The same bits on every rank.
    for (const double x : got.loss) {
      ASSERT_EQ(group.control().all_reduce(x, comm::Op::min),
                group.control().all_reduce(x, comm::Op::max));
    }
  }
}

TYPED_TEST(ParallelTogetherOf, SumsAtTheBordersOfRegions) {
  using T = TypeParam;
  comm::Group group(world());
  const index_t size = group.size(), rows = 5, h = 7;
  Values mine(rows * h), want(rows * h);
  for (index_t i = 0; i < rows * h; ++i) {
    mine[i] = static_cast<double>((i + 3 * group.rank()) % 8);
    for (index_t rank = 0; rank < size; ++rank) {
      want[i] += static_cast<double>((i + 3 * rank) % 8);
    }
  }
  const Array<T> sums(mine);
  const Exec exec;
  group.all_reduce(exec, comm::span_of(sums.matrix(rows, h)));
  EXPECT_EQ(sums.values(), want);
  EXPECT_EQ(group.traffic().calls, size > 1 ? 1 : 0);
}

// Every rank has two rows of the whole; what goes in comes out.
TYPED_TEST(ParallelTogetherOf, PartsOfTheSequence) {
  using T = TypeParam;
  comm::Group group(world());
  const index_t size = group.size(), rank = group.rank(), rows = 2, h = 7;
  Values all(rows * size * h), partial(rows * size * h);
  for (index_t i = 0; i < rows * size * h; ++i) {
    all[i] = static_cast<double>(i % 61);
    partial[i] = static_cast<double>((i + rank) % 8);
  }
  const auto own = [&](const Values& of) {
    return Values(of.begin() + rank * rows * h, of.begin() + (rank + 1) * rows * h);
  };
  const Exec exec;
  const Array<T> part(own(all)), whole(rows * size * h);
  group.all_gather(exec, comm::span_of(part.cmatrix(rows, h)),
                   comm::span_of(whole.matrix(rows * size, h)));
  EXPECT_EQ(whole.values(), all);

  Values sums(rows * size * h);
  for (index_t i = 0; i < rows * size * h; ++i) {
    for (index_t r = 0; r < size; ++r) sums[i] += static_cast<double>((i + r) % 8);
  }
  const Array<T> summands(partial), reduced(rows * h);
  group.reduce_scatter(exec, comm::span_of(summands.cmatrix(rows * size, h)),
                       comm::span_of(reduced.matrix(rows, h)));
  EXPECT_EQ(reduced.values(), own(sums));
}

// What rank r contributes to element i; small whole numbers, whose sums are exact.
double gradient(int rank, index_t i) {
  return static_cast<double>((i * 5 + rank * 17) % 64);
}

void check_sums(const std::shared_ptr<comm::Communicator>& world,
                const comm::GridShape& shape) {
  SCOPED_TRACE(to_string(shape));
  const comm::RankGrid grid(world, shape);
  comm::ProcessGroups groups = grid.groups();
  if (shape.pipeline > 1) groups.share({{"word", {0, shape.pipeline - 1}}});
  ParamRegistry registry;
  registry.add({.name = "bias", .shard = replicated({3}), .init = {}});
  const int stage = grid.coordinates().pipeline;
  const bool is_shared =
      shape.pipeline > 1 && (stage == 0 || stage == shape.pipeline - 1);
  registry.add({.name = "word",
                .shard = replicated({5, 7}),
                .init = {},
                .tie = !is_shared   ? Tie::none
                       : stage == 0 ? Tie::owner
                                    : Tie::copy});
  registry.add({.name = "fc1", .shard = replicated({9, 8}), .init = {}});
  ParamBuffer<float> params;
  params.allocate(registry, ParamBuffer<float>::Use::training);
  const auto fill = Kokkos::create_mirror_view(params.slab(Slab::gradient));
  for (index_t i = 0; i < params.slab_elements(); ++i) {
    fill(i) = static_cast<float>(gradient(world->rank(), i));
  }
  Kokkos::deep_copy(params.slab(Slab::gradient), fill);
  const Exec exec;
  DataParallel<float> data_parallel(exec, groups, params, false);
  data_parallel.begin_microbatch(true, true);
  data_parallel.begin(0, Pass::backward);
  data_parallel.end(0, Pass::backward);
  data_parallel.finish_gradients();
  exec.fence("test");
  const auto got = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{},
                                                       params.slab(Slab::gradient));
  const comm::Coordinates mine = grid.coordinates();
  const auto is_border = [&](const comm::Coordinates& at) {
    return at.pipeline == 0 || at.pipeline == shape.pipeline - 1;
  };
  for (index_t i = 0; i < params.slab_elements(); ++i) {
    const bool is_tied =
        i >= params.offset(1) && i < params.offset(1) + 5 * 7 && is_border(mine);
    double want = 0;
    for (int rank = 0; rank < world->size(); ++rank) {
      const comm::Coordinates other = grid.coordinates_of(rank);
      if (other.tensor != mine.tensor) continue;  // another shard
      const bool same_stage = other.pipeline == mine.pipeline;
      if (same_stage || (is_tied && is_border(other))) want += gradient(rank, i);
    }
    ASSERT_EQ(got(i), want) << i;
  }
}

TEST(ParallelTogetherGradients, AreSummedOverDataAndTiedOnes) {
  const auto ranks = world();
  const int n = ranks->size();
  check_sums(ranks, {.data = n});
  check_sums(ranks, {.tensor = n});
  check_sums(ranks, {.pipeline = n});
  if (n == 4) {
    check_sums(ranks, {.data = 2, .pipeline = 2});
    check_sums(ranks, {.tensor = 2, .data = 2});
    check_sums(ranks, {.tensor = 2, .pipeline = 2});
  }
}

}  // namespace
}  // namespace trireme::parallel
