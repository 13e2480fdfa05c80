// Several ranks: gradients of micro-batches become one sum, weights are gathered, with
// the messages and the memory that each degree of ZeRO is meant to take. Numbers are
// small and whole, so that sums are exact in any order: those of bf16, up to 256, too.
#include "parallel/data_parallel.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "kernels/accumulate.hpp"
#include "support/allocated_bytes.hpp"
#include "support/arrays.hpp"
#include "support/kept_grids.hpp"

namespace trireme::parallel {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kTied = 0;  // the parameter that the last unit borrows

// Units of a matrix and two vectors each, no two of one size. The last may borrow from
// the first.
ParamRegistry units(int count, bool borrows, Tie tie = Tie::none) {
  ParamRegistry registry;
  for (int u = 0; u < count; ++u) {
    const bool is_borrower = borrows && u == count - 1;
    registry.begin_unit(fmt::format("{}", u),
                        is_borrower ? std::optional<std::size_t>(0) : std::nullopt);
    registry.add({.name = fmt::format("{}/weight", u),
                  .shard = replicated({9 + u, 11}),
                  .init = {},
                  .tie = u == 0 ? tie : Tie::none,
                  .in_sequence_region = u == 1});
    registry.add({fmt::format("{}/bias", u), replicated({3 + 40 * u}), {}});
    registry.add({.name = fmt::format("{}/norm", u),
                  .shard = replicated({5 + 30 * u}),
                  .init = {},
                  .in_sequence_region = true});
  }
  return registry;
}

// How a rank's stage shares the first parameter.
Tie tie_of(const comm::RankGrid& grid) {
  const int stage = grid.coordinates().pipeline;
  const int stages = grid.shape().pipeline;
  if (stages == 1 || (stage > 0 && stage < stages - 1)) return Tie::none;
  return stage == 0 ? Tie::owner : Tie::copy;
}

// What one use of a parameter in the backward pass of a micro-batch adds on a rank.
double gradient(int rank, std::size_t param, bool is_borrowed, int microbatch,
                index_t element) {
  const auto seed = static_cast<int>(param) * 3 + (is_borrowed ? 5 : 0) + microbatch * 7;
  return static_cast<double>((element * 5 + rank * 11 + seed) % 7);
}

double weight(std::size_t param, int update, index_t element) {
  return static_cast<double>((element * 7 + static_cast<int>(param) * 3 + update * 5) %
                             101);
}

template <class V>
auto to_host(const V& view) {
  Kokkos::fence("test");
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
}

template <class T, class Function>
void change(const View1<T>& view, const Function& function) {
  Kokkos::fence("test");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  for (std::size_t i = 0; i < host.extent(0); ++i) {
    host(i) = static_cast<T>(function(static_cast<index_t>(i), host(i)));
  }
  Kokkos::deep_copy(view, host);
}

struct Case {
  comm::GridShape grid;
  int zero = 0;
  index_t bucket_elements = 1;
  bool sequence_parallel = false;
  int units = 5;
  bool borrows = true;
  // Whether the borrower adds its share in the forward pass, and how many micro-batches
  // are in flight.
  bool gradients_in_forward = false;
  int in_flight = 1;
};

std::string to_string(const Case& of) {
  return fmt::format("{}, ZeRO {}, buckets of {}, sequence {}, {} units, borrows {}",
                     comm::to_string(of.grid), of.zero, of.bucket_elements,
                     of.sequence_parallel, of.units, of.borrows);
}

// The narrowest that gradients can be.
template <class T>
using GradientOf = std::conditional_t<has_narrow_gradients<T>, T, Accumulator<T>>;

// A model that has parameters and no layers, trained as TrainStep does it.
template <class T>
class Run {
 public:
  using Master = Accumulator<T>;
  using G = GradientOf<T>;

  Run(const std::shared_ptr<comm::Communicator>& world, const Case& of)
      : case_(of),
        grid_(test::KeptGrids::grid(world, of.grid)),
        groups_(test::own_groups(*grid_)),
        registry_(units(of.units, of.borrows, tie_of(*grid_))) {
    if (of.grid.pipeline > 1) {
      groups_.share({{registry_.spec(kTied).name, {0, of.grid.pipeline - 1}}});
    }
    params_.allocate(registry_, ParamBuffer<T>::Use::training, sharding());
    data_parallel_ =
        std::make_unique<DataParallel<T>>(exec_, groups(), params_, of.sequence_parallel);
    update();
  }

  typename ParamBuffer<T>::Sharding sharding() const {
    return {.zero = case_.zero,
            .parts = groups().gradient->size(),
            .part = groups().gradient->rank(),
            .bucket_elements = case_.bucket_elements,
            .narrow_gradients = has_narrow_gradients<T>};
  }
  const comm::ProcessGroups& groups() const { return groups_; }
  const ParamRegistry& registry() const { return registry_; }
  ParamBuffer<T>& params() { return params_; }
  DataParallel<T>& data_parallel() { return *data_parallel_; }

  // Of a micro-batch, or of an evaluation.
  void forward(std::optional<int> microbatch = {}) {
    for (std::size_t u = 0; u < registry_.units().size(); ++u) {
      const bool adds = microbatch && case_.gradients_in_forward &&
                        registry_.units()[u].borrows.has_value();
      const Pass pass = adds ? Pass::forward_with_gradients : Pass::forward;
      data_parallel_->begin(u, pass);
      expect_weights_in_use(u);
      if (adds) add(kTied, true, *microbatch);
      data_parallel_->end(u, pass);
    }
  }
  void backward(int microbatch) {
    for (std::size_t u = registry_.units().size(); u-- > 0;) {
      data_parallel_->begin(u, Pass::backward);
      expect_weights_in_use(u);
      expect_padding_is_zero(params_.partition().bucket_of_unit(u));
      const ParamUnit& unit = registry_.units()[u];
      // Borrowers write first, as the head's product does before the embedding.
      if (unit.borrows && !case_.gradients_in_forward) add(kTied, true, microbatch);
      for (std::size_t p = unit.begin; p < unit.end; ++p) add(p, false, microbatch);
      data_parallel_->end(u, Pass::backward);
    }
  }
  void accumulate(int microbatches) {
    data_parallel_->begin_step();
    int next = 0;
    for (int m = 0; m < microbatches; ++m) {
      while (next < std::min(microbatches, m + case_.in_flight)) forward(next++);
      data_parallel_->begin_microbatch(m == 0, m == microbatches - 1);
      backward(m);
    }
    data_parallel_->finish_gradients();
  }
  // Gradients of the step before, as they would be if they were not finite.
  void spoil_gradients() {
    for (std::size_t p = 0; p < registry_.size(); ++p) {
      change(own<G>(Slab::gradient, p).values, [](index_t, G) { return NAN; });
    }
  }
  // From now on no pass writes this one.
  void leave_out(std::size_t param) { left_out_ = param; }
  // New weights, of what is this rank's.
  void update() {
    ++updates_;
    for (std::size_t b = 0; b < params_.partition().buckets().size(); ++b) {
      for (std::size_t p = 0; p < registry_.size(); ++p) {
        if (params_.partition().bucket_of_param(p) != b) continue;
        const auto mine = own<Master>(Slab::weight, p);
        change(mine.values, [&](index_t i, Master) {
          return weight(p, updates_, mine.range.begin + i);
        });
      }
      params_.refresh_compute(exec_, b);
      data_parallel_->start_gather(b);
    }
  }

  void expect_gradients(int microbatches) {
    for (std::size_t p = 0; p < registry_.size(); ++p) {
      const auto mine = own<G>(Slab::gradient, p);
      const auto got = to_host(mine.values);
      for (index_t i = 0; i < mine.range.size(); ++i) {
        ASSERT_EQ(got(i), expected_gradient(p, mine.range.begin + i, microbatches))
            << registry_.spec(p).name << " " << mine.range.begin + i;
      }
    }
  }
  void expect_weights(std::size_t param) {
    const auto got = to_host(params_.compute_slice(param));
    for (std::size_t i = 0; i < got.extent(0); ++i) {
      ASSERT_EQ(got(i), weight(param, updates_, static_cast<index_t>(i)))
          << registry_.spec(param).name << " " << i;
    }
  }
  // Units for whose weights (or gradients) there is memory.
  std::vector<std::size_t> with_weights() {
    return units_with([&](std::size_t param) { params_.compute_slice(param); });
  }
  std::vector<std::size_t> with_gradients() {
    return units_with(
        [&](std::size_t param) { params_.template gradient_slice<G>(param); });
  }

 private:
  template <class A>
  struct Part {
    IndexRange range;
    View1<A> values;
  };

  template <class Ask>
  std::vector<std::size_t> units_with(const Ask& ask) {
    std::vector<std::size_t> units;
    for (std::size_t u = 0; u < registry_.units().size(); ++u) {
      try {
        ask(registry_.units()[u].begin);
      } catch (const Error&) {
        continue;  // has none
      }
      units.push_back(u);
    }
    return units;
  }
  // What the optimizer updates here: without ZeRO all, else a part of every parameter.
  template <class A>
  Part<A> own(Slab slab, std::size_t param) {
    const auto share = params_.template share<A>(slab, param);
    if (case_.zero == 0 || !params_.is_whole(slab)) return {share.range, share.values};
    const IndexRange range = params_.updated(param);
    return {range, View1<A>(share.values.data() + range.begin,
                            static_cast<std::size_t>(range.size()))};
  }
  void add(std::size_t param, bool is_borrowed, int microbatch) {
    if (param == left_out_) return;
    const bool adds = params_.begin_gradient(param) == kernels::Accumulate::yes;
    change(params_.template gradient_slice<G>(param), [&](index_t i, G before) {
      const double sum = adds ? static_cast<double>(static_cast<Master>(before)) : 0.0;
      return static_cast<Master>(
          sum + gradient(grid_->rank(), param, is_borrowed, microbatch, i));
    });
  }
  void expect_padding_is_zero(std::size_t bucket) {
    const auto all = to_host(params_.template gradient_bucket<G>(bucket));
    std::vector<bool> is_padding(all.extent(0), true);
    for (std::size_t p = 0; p < registry_.size(); ++p) {
      if (params_.partition().bucket_of_param(p) != bucket) continue;
      const index_t begin =
          params_.offset(p) - params_.partition().buckets()[bucket].range.begin;
      std::fill_n(is_padding.begin() + begin, registry_.spec(p).shard.real_elements(),
                  false);
    }
    for (std::size_t i = 0; i < is_padding.size(); ++i) {
      ASSERT_TRUE(!is_padding[i] || all(i) == 0) << "bucket " << bucket << ", " << i;
    }
  }
  void expect_weights_in_use(std::size_t u) {
    const ParamUnit& unit = registry_.units()[u];
    for (std::size_t p = unit.begin; p < unit.end; ++p) expect_weights(p);
    if (unit.borrows) expect_weights(kTied);
  }
  // Over the gradient group; what is tied over the stages that share it, and what is used
  // on parts of the sequence over the tensor group.
  double expected_gradient(std::size_t param, index_t element, int microbatches) {
    const comm::Coordinates mine = grid_->coordinates();
    const auto is_border = [&](const comm::Coordinates& at) {
      return at.pipeline == 0 || at.pipeline == case_.grid.pipeline - 1;
    };
    const bool in_sequence =
        case_.sequence_parallel && registry_.spec(param).in_sequence_region;
    double sum = 0;
    if (param == left_out_) return sum;
    for (int rank = 0; rank < groups().world->size(); ++rank) {
      const comm::Coordinates other = grid_->coordinates_of(rank);
      if (other.tensor != mine.tensor && !in_sequence) continue;
      const bool is_shared = param == kTied && is_border(mine) && is_border(other);
      if (other.pipeline != mine.pipeline && !is_shared) continue;
      for (int m = 0; m < microbatches; ++m) {
        sum += gradient(rank, param, false, m, element);
        if (param == kTied && case_.borrows) {
          sum += gradient(rank, param, true, m, element);
        }
      }
    }
    return sum;
  }

  Case case_;
  Exec exec_;
  std::shared_ptr<const comm::RankGrid> grid_;
  comm::ProcessGroups groups_;
  ParamRegistry registry_;
  ParamBuffer<T> params_;
  std::unique_ptr<DataParallel<T>> data_parallel_;
  int updates_ = 0;
  std::optional<std::size_t> left_out_;
};

std::vector<comm::GridShape> grids_of(int ranks) {
  std::vector<comm::GridShape> grids = {{.data = ranks}};
  if (ranks > 1) grids.push_back({.tensor = ranks});
  if (ranks > 1) grids.push_back({.pipeline = ranks});
  if (ranks == 4) {
    grids.push_back({.tensor = 2, .data = 2});
    grids.push_back({.data = 2, .pipeline = 2});
  }
  return grids;
}

template <class T>
class DataParallelOf : public ::testing::Test {
 protected:
  std::shared_ptr<comm::Communicator> world_ =
      comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
  test::KeptGrids kept_;
};
using Types = ::testing::Types<float, double, bf16>;
TYPED_TEST_SUITE(DataParallelOf, Types);

// In double, which is float's code, on one and two ranks.
TYPED_TEST(DataParallelOf, StepsSumGradientsAndGatherWeights) {
  if (std::is_same_v<TypeParam, double> && this->world_->size() > 2) return;
  for (const comm::GridShape& grid : grids_of(this->world_->size())) {
    for (const int zero : {0, 1, 2, 3}) {
      // A bucket for every unit, for two or three, and for all that nobody borrows.
      for (const index_t bucket_elements : {1, 600, 1 << 20}) {
        const Case of{grid, zero, bucket_elements, grid.tensor > 1};
        SCOPED_TRACE(to_string(of));
        Run<TypeParam> run(this->world_, of);
        for (const int microbatches : {1, 3, 2}) {
          ASSERT_NO_FATAL_FAILURE(run.accumulate(microbatches));
          ASSERT_NO_FATAL_FAILURE(run.expect_gradients(microbatches));
          run.update();
          run.spoil_gradients();
          if (microbatches == 3) run.forward();  // an evaluation between steps
        }
        if (zero == 3) continue;
        run.data_parallel().settle();
        for (std::size_t p = 0; p < run.registry().size(); ++p) run.expect_weights(p);
      }
    }
  }
}

// The head of a model takes its share of the table's gradient in the forward pass: there
// is memory for that, and for nothing else, and it stays until the table's own unit is
// done with, whatever micro-batches are in flight.
TYPED_TEST(DataParallelOf, BorrowersMayAddInTheForwardPass) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const int in_flight : {1, 2, 3}) {
      Case of{{.data = this->world_->size()}, zero, 1, false};
      of.gradients_in_forward = true;
      of.in_flight = in_flight;
      SCOPED_TRACE(to_string(of) + fmt::format(", {} in flight", in_flight));
      Run<TypeParam> run(this->world_, of);
      for (const int microbatches : {1, 4, 2}) {
        ASSERT_NO_FATAL_FAILURE(run.accumulate(microbatches));
        ASSERT_NO_FATAL_FAILURE(run.expect_gradients(microbatches));
        run.update();
        run.forward();  // an evaluation
        EXPECT_EQ(run.with_gradients().empty(), zero >= 2);
      }
      run.data_parallel().begin_step();
      run.forward(0);
      EXPECT_EQ(run.with_gradients().size(), zero >= 2 ? 1u : 5u);
      run.data_parallel().settle();
    }
  }
}

// A parameter that no pass of a step writes has no gradient, whatever it had before.
TYPED_TEST(DataParallelOf, WhatIsNotUsedHasZeroGradients) {
  for (const comm::GridShape& grid : grids_of(this->world_->size())) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const std::size_t param : {0, 4}) {
        const Case of{grid, zero, 1, grid.tensor > 1};
        SCOPED_TRACE(to_string(of));
        Run<TypeParam> run(this->world_, of);
        run.accumulate(2);
        run.spoil_gradients();
        run.leave_out(param);
        run.accumulate(2);
        run.expect_gradients(2);
        run.data_parallel().settle();
      }
    }
  }
}

// Each rank of a tensor group has the whole gradient where the sequence is not split.
TYPED_TEST(DataParallelOf, TensorRanksSumNothingWithoutSequenceParallelism) {
  for (const comm::GridShape& grid : grids_of(this->world_->size())) {
    for (const int zero : {0, 3}) {
      const Case of{grid, zero, 1, false};
      SCOPED_TRACE(to_string(of));
      Run<TypeParam> run(this->world_, of);
      run.accumulate(2);
      run.expect_gradients(2);
      run.data_parallel().settle();
      EXPECT_EQ(run.groups().tensor->traffic().calls, 0);
    }
  }
}

TYPED_TEST(DataParallelOf, UnitsThatNobodyBorrows) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const int units : {1, 2, 3}) {
      const Case of{{.data = this->world_->size()}, zero, 1, false, units, false};
      SCOPED_TRACE(to_string(of));
      Run<TypeParam> run(this->world_, of);
      for (const int microbatches : {2, 1}) {
        run.accumulate(microbatches);
        run.expect_gradients(microbatches);
        run.update();
      }
      run.data_parallel().settle();
    }
  }
}

// Stage 3: a unit's weights and the next one's, and none that are out of date.
TYPED_TEST(DataParallelOf, WeightsComeAheadAndAreForgotten) {
  Run<TypeParam> run(this->world_, {{.data = this->world_->size()}, 3, 1, false, 6});
  const auto here = [&] { return run.with_weights(); };
  using Units = std::vector<std::size_t>;
  auto& use = run.data_parallel();
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(here(), Units());
    use.begin(0, Pass::forward);  // which stays, as the last unit borrows it
    EXPECT_EQ(here(), (Units{0, 1}));
    use.begin(1, Pass::forward);
    EXPECT_EQ(here(), (Units{0, 1, 2}));
    use.begin(2, Pass::forward);
    EXPECT_EQ(here(), (Units{0, 2, 3}));
    use.begin(3, Pass::forward);
    use.begin(4, Pass::forward);
    use.begin(5, Pass::forward);
    EXPECT_EQ(here(), (Units{0, 4, 5}));
    use.begin_microbatch(true, true);
    for (const auto& [unit, held] :
         std::map<std::size_t, Units, std::greater<>>{{5, {0, 4, 5}},
                                                      {4, {0, 3, 4}},
                                                      {3, {0, 2, 3}},
                                                      {2, {0, 1, 2}},
                                                      {1, {0, 1, 2}},
                                                      {0, {0, 1, 2}}}) {
      use.begin(unit, Pass::backward);
      EXPECT_EQ(here(), held) << unit;
      use.end(unit, Pass::backward);
    }
    use.finish_gradients();
    run.update();
  }
  // An update of one bucket leaves the others.
  use.begin(0, Pass::forward);
  use.begin(1, Pass::forward);
  use.start_gather(1);
  EXPECT_EQ(here(), (Units{0, 2}));
  use.settle();
}

// ZeRO 3, passes of two chunks of a stage: at the end of one the first unit of the next
// pass comes ahead, whichever that is.
TYPED_TEST(DataParallelOf, WeightsOfTheNextPassComeAhead) {
  using Units = std::vector<std::size_t>;
  constexpr PassUnits kFirst{0, 3, Pass::forward}, kLast{3, 7, Pass::forward};
  constexpr PassUnits kFirstBack{1, 3, Pass::backward}, kLastBack{3, 7, Pass::backward};
  struct Turn {
    PassUnits pass;
    std::optional<PassUnits> next;
    Units here;  // at the end of the pass
  };
  for (const Turn& turn :
       {Turn{kFirst, kFirst, {0, 2}}, Turn{kFirst, kLast, {2, 3}},
        Turn{kFirst, kFirstBack, {1, 2}}, Turn{kFirst, kLastBack, {2, 6}},
        Turn{kFirst, {}, {1, 2}}, Turn{kLast, kFirst, {0, 6}},
        Turn{kLast, kLastBack, {5, 6}}, Turn{kFirstBack, kFirst, {0, 1}},
        Turn{kFirstBack, kFirstBack, {1, 2}}, Turn{kLastBack, kFirst, {0, 3}},
        Turn{kLastBack, kLast, {3, 4}}, Turn{kLastBack, PassUnits{}, {3, 4}}}) {
    Run<TypeParam> run(this->world_,
                       {{.data = this->world_->size()}, 3, 1, false, 7, false});
    auto& use = run.data_parallel();
    use.begin_step();
    use.begin_microbatch(true, true);
    use.begin_pass(turn.pass, turn.next);
    const bool forward = turn.pass.pass == Pass::forward;
    for (std::size_t i = turn.pass.begin; i < turn.pass.end; ++i) {
      const std::size_t unit = forward ? i : turn.pass.begin + turn.pass.end - 1 - i;
      use.begin(unit, turn.pass.pass);
      use.end(unit, turn.pass.pass);
    }
    EXPECT_EQ(run.with_weights(), turn.here);
    // Nobody says any more what comes.
    use.end_passes();
    use.begin(2, Pass::forward);
    EXPECT_EQ(run.with_weights(), (Units{2, 3}));
    use.settle();
  }
}

// With a unit comes what it borrows, which stays.
TYPED_TEST(DataParallelOf, WhatIsBorrowedComesAheadToo) {
  using Units = std::vector<std::size_t>;
  Run<TypeParam> run(this->world_, {{.data = this->world_->size()}, 3, 1, false, 7});
  auto& use = run.data_parallel();
  use.begin_pass({4, 7, Pass::forward}, PassUnits{4, 7, Pass::backward});
  use.begin(4, Pass::forward);
  EXPECT_EQ(run.with_weights(), (Units{4, 5}));
  use.begin(5, Pass::forward);
  EXPECT_EQ(run.with_weights(), (Units{0, 5, 6}));
  use.settle();
}

// A backward pass in two: inputs' gradients need weights alone, weights' none of them.
TYPED_TEST(DataParallelOf, InputAndWeightPassesHaveWhatTheyUse) {
  using Units = std::vector<std::size_t>;
  const Units all{0, 1, 2, 3, 4, 5};
  for (const int zero : {0, 1, 2, 3}) {
    Run<TypeParam> run(this->world_,
                       {{.data = this->world_->size()}, zero, 1, false, 6, false});
    auto& use = run.data_parallel();
    use.settle();
    const auto expect = [&](const Units& weights, const Units& gradients) {
      EXPECT_EQ(run.with_weights(), zero >= 3 ? weights : all) << "ZeRO " << zero;
      EXPECT_EQ(run.with_gradients(), zero >= 2 ? gradients : all) << "ZeRO " << zero;
    };
    use.begin_step();
    use.begin_pass({1, 6, Pass::backward}, {});
    for (const std::size_t unit : {5, 4, 3}) {
      use.begin(unit, Pass::backward_input);
      expect({unit - 1, unit}, {});
      use.end(unit, Pass::backward_input);
    }
    use.begin_microbatch(true, true);
    use.begin(5, Pass::backward_weight);
    expect({2, 3}, {5});
    use.end(5, Pass::backward_weight);
    use.begin(4, Pass::backward_weight);
    expect({2, 3}, {4, 5});  // of unit 5 under way
    use.end(4, Pass::backward_weight);
    use.begin(3, Pass::backward_weight);
    expect({2, 3}, {3, 4});
    use.end(3, Pass::backward_weight);
    use.finish_gradients();
    use.settle();
  }
}

// Sums of gradients and new weights are on their way while other units are at work: what
// ranks wait for at once would be no longer under way.
TYPED_TEST(DataParallelOf, MessagesGoBesideTheWork) {
  const int ranks = this->world_->size();
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(fmt::format("ZeRO {}", zero));
    Run<TypeParam> run(this->world_, {{.data = ranks}, zero, 1, false, 5, false});
    auto& use = run.data_parallel();
    use.settle();
    use.begin_step();
    for (std::size_t u = 0; u < 5; ++u) {
      use.begin(u, Pass::forward);
      const bool prefetches = zero == 3 && u < 4;
      EXPECT_EQ(this->world_->is_under_way(), prefetches && ranks > 1) << "forward " << u;
      use.end(u, Pass::forward);
    }
    use.begin_microbatch(true, true);
    for (std::size_t u = 5; u-- > 0;) {
      use.begin(u, Pass::backward);
      use.end(u, Pass::backward);
      EXPECT_EQ(this->world_->is_under_way(), ranks > 1) << "backward " << u;
    }
    use.finish_gradients();
    EXPECT_FALSE(this->world_->is_under_way());
    if (zero == 0 || zero == 3) continue;
    use.start_gather(0);
    EXPECT_EQ(this->world_->is_under_way(), ranks > 1);
    use.settle();
  }
}

// Reductions that a transport has under way, now and at most. It says of itself that it
// is on a stream, or on the host.
struct UnderWay {
  bool is_on_stream = false;
  int now = 0, most = 0;
};
class CountedReductions final : public comm::Transport {
 public:
  CountedReductions(std::unique_ptr<comm::Transport> carrier, UnderWay& under_way)
      : carrier_(std::move(carrier)), under_way_(under_way) {}

  int start(const Exec& exec, const comm::Transfer& transfer) override {
    using Kind = comm::Transfer::Kind;
    const int operation = carrier_->start(exec, transfer);
    if (transfer.kind == Kind::all_reduce || transfer.kind == Kind::reduce_scatter) {
      reductions_.insert(operation);
      under_way_.most = std::max(under_way_.most, ++under_way_.now);
    }
    return operation;
  }
  void wait(const Exec& exec, int operation) override {
    carrier_->wait(exec, operation);
    under_way_.now -= static_cast<int>(reductions_.erase(operation));
  }
  void open(const std::vector<comm::ChannelEnd>& channels) override {
    carrier_->open(channels);
  }
  void begin_group() override { carrier_->begin_group(); }
  void end_group() override { carrier_->end_group(); }
  bool is_on_stream() const override { return under_way_.is_on_stream; }

 private:
  std::unique_ptr<comm::Transport> carrier_;
  UnderWay& under_way_;
  std::set<int> reductions_;
};

// On the host each keeps a copy of its result, with ZeRO 2 and 3 the memory it is taken
// from. On a stream a wait before the end would only hold up the backward pass.
TYPED_TEST(DataParallelOf, ReductionsInPlaceHaveNoLimitOnAStream) {
  constexpr int kUnits = 5;
  for (const bool is_on_stream : {false, true}) {
    UnderWay under_way{.is_on_stream = is_on_stream};
    const auto world = comm::make_mpi_world(
        {.wait = comm::WaitPolicy::yield,
         .wrap_transport = [&](auto carrier, const comm::Communicator&) {
           return std::make_unique<CountedReductions>(std::move(carrier), under_way);
         }});
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("ZeRO {}, on a stream {}", zero, is_on_stream));
      under_way.most = 0;
      Run<TypeParam> run(world, {{.data = world->size()}, zero, 1, false, kUnits, false});
      ASSERT_NO_FATAL_FAILURE(run.accumulate(1));
      ASSERT_NO_FATAL_FAILURE(run.expect_gradients(1));
      EXPECT_EQ(under_way.now, 0);
      const int most = is_on_stream && zero < 2 ? kUnits : 2;
      EXPECT_EQ(under_way.most, world->size() == 1 ? 0 : most);
    }
  }
}

// What is borrowed is there although its own unit was not in use since the update.
TYPED_TEST(DataParallelOf, ABorrowerHasTheWeightsItBorrows) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      Run<TypeParam> run(this->world_, {{.data = this->world_->size()}, zero, 1, false});
      run.data_parallel().begin(4, pass);
      run.expect_weights(kTied);
      if (pass == Pass::backward) {
        using G = GradientOf<TypeParam>;
        EXPECT_NE(run.params().template gradient_slice<G>(kTied).data(), nullptr);
      }
      run.data_parallel().settle();
    }
  }
}

// A pass that leaves units open needs more memory for gradients than there is.
TYPED_TEST(DataParallelOf, ThreeUnitsWithoutAnEndAreRefused) {
  for (const int zero : {0, 1, 2, 3}) {
    Run<TypeParam> run(this->world_, {{.data = this->world_->size()}, zero, 1, false});
    auto& use = run.data_parallel();
    use.begin_step();
    use.begin_microbatch(true, true);
    use.begin(4, Pass::backward);
    use.begin(3, Pass::backward);
    const auto third = [&] { use.begin(2, Pass::backward); };
    if (zero < 2) {
      EXPECT_NO_THROW(third());
    } else {
      EXPECT_THAT(third, ThrowsMessage<Error>(
                             AllOf(HasSubstr(fmt::format("ZeRO {}", zero)),
                                   HasSubstr("gradients of 2 units at a time"),
                                   HasSubstr("must be done with a unit before"))));
    }
    use.settle();
  }
}

TYPED_TEST(DataParallelOf, PartsAreThoseOfTheDataGroup) {
  const comm::RankGrid grid(this->world_, {.data = this->world_->size()});
  const ParamRegistry registry = units(2, false);
  ParamBuffer<TypeParam> params;
  params.allocate(registry, ParamBuffer<TypeParam>::Use::training,
                  {.zero = 1, .parts = 7, .part = 2});
  EXPECT_THAT([&] { DataParallel<TypeParam>(Exec(), grid.groups(), params, false); },
              ThrowsMessage<Error>(AllOf(
                  HasSubstr("cut in 7 parts, of which this is 2"),
                  HasSubstr("the gradient group has " +
                            format_plural(grid.groups().gradient->size(), "rank")))));
}

// Messages of one site and operation of a group.
std::int64_t calls(const comm::Group& group, const char* site, const char* operation) {
  for (const MessageTally& of : group.sent().messages()) {
    if (of.site == site && of.operation == operation) return of.calls;
  }
  return 0;
}

TYPED_TEST(DataParallelOf, EachUnitIsGatheredOnceAPass) {
  const int ranks = this->world_->size();
  const int sends = ranks > 1 ? 1 : 0;  // one rank has nobody to tell
  for (const bool borrows : {false, true}) {
    for (int rotating = 1; rotating <= 5; ++rotating) {
      for (const int microbatches : {1, 2, 3}) {
        const int units = rotating + (borrows ? 1 : 0);
        const Case of{{.data = ranks}, 3, 1, false, units, borrows};
        SCOPED_TRACE(to_string(of));
        Run<TypeParam> run(this->world_, of);
        // At the turns between passes two units are there already.
        const int each = rotating == 1 ? 1 : microbatches * 2 * (rotating - 2) + 2;
        const int gathers = sends * (each + (borrows ? 1 : 0));
        const int reductions = sends * microbatches * units;
        const comm::Group& data = *run.groups().gradient;
        for (int step = 1; step <= 2; ++step) {
          run.accumulate(microbatches);
          EXPECT_EQ(calls(data, "weights (ZeRO 3)", "all_gather"), step * gathers);
          EXPECT_EQ(calls(data, "gradients", "reduce_scatter"), step * reductions);
          run.update();
        }
        EXPECT_EQ(data.traffic().calls, 2 * (gathers + reductions));
      }
    }
  }
}

TYPED_TEST(DataParallelOf, MessagesOfTheOtherStages) {
  const int ranks = this->world_->size();
  const int microbatches = 3, units = 5;
  const int each = ranks > 1 ? units : 0;  // one rank has nobody to tell
  for (const int zero : {0, 1, 2}) {
    Run<TypeParam> run(this->world_, {{.data = ranks}, zero, 1, false, units});
    run.data_parallel().settle();
    const comm::Group& data = *run.groups().gradient;
    const std::int64_t before = data.traffic().calls;  // of the first weights
    EXPECT_EQ(before, zero == 0 ? 0 : each);
    run.accumulate(microbatches);
    run.update();
    run.data_parallel().settle();
    EXPECT_EQ(calls(data, "gradients", "all_reduce"), zero == 0 ? each : 0);
    EXPECT_EQ(calls(data, "gradients", "reduce_scatter"),
              zero == 0 ? 0 : each * (zero == 2 ? microbatches : 1));
    EXPECT_EQ(calls(data, "weights (ZeRO)", "all_gather") - before, zero == 0 ? 0 : each);
    for (const MessageTally& of : data.sent().messages()) {
      if (of.site != "gradients") continue;
      EXPECT_EQ(of.bytes, of.elements * index_t{sizeof(GradientOf<TypeParam>)});
    }
  }
}

TYPED_TEST(DataParallelOf, TheSequenceRegionIsOneMessage) {
  const int ranks = this->world_->size();
  for (const int zero : {0, 1, 2, 3}) {
    comm::GridShape grid{.tensor = ranks};
    if (ranks == 4) grid = {.tensor = 2, .data = 2};
    Run<TypeParam> run(this->world_, {grid, zero, 1, true});
    run.accumulate(2);
    const int expected = ranks > 1 ? 1 : 0;
    const comm::Group& tensor = *run.groups().tensor;
    EXPECT_EQ(calls(tensor, "gradients of the sequence region", "all_reduce"), expected);
    EXPECT_EQ(tensor.traffic().calls, expected);
    run.data_parallel().settle();
  }
}

TYPED_TEST(DataParallelOf, BytesAreThosePlanned) {
  using T = TypeParam;
  for (const comm::GridShape& shape : grids_of(this->world_->size())) {
    const comm::RankGrid grid(this->world_, shape);
    const comm::ProcessGroups& groups = grid.groups();
    for (const int zero : {0, 1, 2, 3}) {
      for (const index_t bucket_elements : {1, 600, 1 << 20}) {
        for (const bool borrows : {false, true}) {
          const bool sequence_parallel = shape.tensor > 1;
          SCOPED_TRACE(to_string(
              Case{shape, zero, bucket_elements, sequence_parallel, 5, borrows}));
          const ParamRegistry registry = units(5, borrows);
          const typename ParamBuffer<T>::Sharding sharding{
              .zero = zero,
              .parts = groups.gradient->size(),
              .part = groups.gradient->rank(),
              .bucket_elements = bucket_elements,
              .narrow_gradients = has_narrow_gradients<T>};
          ParamBuffer<T> params;
          params.allocate(registry, ParamBuffer<T>::Use::training, sharding);
          const test::AllocatedBytes allocated;
          const DataParallel<T> data_parallel(Exec(), groups, params, sequence_parallel);
          const std::uint64_t sum = allocated.total();
          const std::uint64_t planned =
              DataParallel<T>::planned_bytes(params, sequence_parallel);
          // Kokkos rounds each allocation up to 8 bytes.
          EXPECT_GE(sum, planned);
          EXPECT_LE(sum, planned + (8 - sizeof(T)) * allocated.count);
          EXPECT_EQ(data_parallel.bytes(), planned);
          const auto& bytes = allocated.bytes;
          EXPECT_EQ(bytes.contains("bucket of gradients"), zero >= 2);
          EXPECT_EQ(bytes.contains("gathered weights"), zero >= 3);
          EXPECT_TRUE(sequence_parallel ||
                      !bytes.contains("gradients of the sequence region"));
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
