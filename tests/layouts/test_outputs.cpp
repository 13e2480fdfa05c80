// What a model gives that is made for its output, on one rank and on two, with samples
// whole and split along the sequence: vectors of samples, and numbers of a few rows. The
// reference takes what the blocks before the last hand on, and does the rest on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/process_groups.hpp"
#include "comm/rank_grid.hpp"
#include "layouts/encoder_decoder.hpp"
#include "layouts/layout_matrix.hpp"
#include "step/output_pass.hpp"
#include "support/filled_batch.hpp"
#include "support/rows.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {
namespace {

using model::Use;
using ::testing::HasSubstr;
using Inference = ParamBuffer<double>;

constexpr std::uint64_t kSeed = 4321;
constexpr index_t kShort = 24;  // positions of the source that samples have at most

model::Blueprint blueprint_for(Use use) {
  return encoder_decoder(matrix_model({.layers = 9, .heads = 8, .samples = 0}), use);
}

// The same numbers whatever the length of the streams: a sample has up to kShort
// positions that are real, and the marks are among them.
double element(const FieldSpec& field, index_t sample, index_t position) {
  const index_t length = 5 + (sample * 7 + 3) % (kShort - 4);
  switch (field.holds) {
    case Holds::lengths:
      return static_cast<double>(length);
    case Holds::rows:
      return position == 3 ? -1.0 : static_cast<double>((position + sample) % length);
    default:
      return static_cast<double>((sample * 31 + position * 7 + 3) % 53);
  }
}

// Samples from `first` on, of streams of these lengths.
FilledBatch samples_of(const BatchSpec& of_model, std::vector<index_t> sequences,
                       index_t samples) {
  BatchSpec spec = of_model;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    spec.streams[i].sequence = sequences[i];
  }
  return {spec, samples};
}

// (rows, columns) of the output by another way: on one rank, of full samples.
class Reference {
 public:
  Reference(Use use, index_t samples)
      : use_(use),
        samples_(samples),
        blueprint_(blueprint_for(use)),
        groups_(comm::make_groups_of_one()),
        builder_{registry_, params_, groups_},
        chunk_(builder_, blueprint_, {0, blueprint_.blocks.size() - 1},
               &make_encoder_decoder_block<double>) {
    // The weight of the last block, which is not in the chunk.
    if (use == Use::words) {
      classes_ =
          registry_.add({.name = "marks/classify/weight",
                         .shard = replicated({kMarkClasses, kSourceHidden}),
                         .init = Initializer::normal(blueprint_.architecture.init_std)});
    }
    params_.allocate(registry_, Inference::Use::inference);
    params_.initialize(Exec(), kSeed);
  }

  std::vector<double> output() {
    FilledBatch filled = samples_of(blueprint_.batch, {}, samples_);
    const HostBatch batch = filled.fill(0, element);
    const std::vector<double> rows = rows_before_last(batch);
    return use_ == Use::words ? classes_of(rows) : means_of(rows);
  }

 private:
  // The one tensor that the chunk hands on.
  std::vector<double> rows_before_last(const HostBatch& batch) {
    const Exec exec;
    nn::MicroBatch micro(blueprint_.batch, samples_);
    std::vector<DeviceArray<std::int32_t>> fields;
    for (const std::size_t f : blueprint_.fields_of(blueprint_.whole())) {
      const index_t elements = micro.elements(f);
      fields.emplace_back("field", extent(elements));
      const auto* const from = static_cast<const std::int32_t*>(batch.fields[f]);
      const auto host = Kokkos::create_mirror_view(fields.back());
      std::copy(from, from + elements, host.data());
      Kokkos::deep_copy(fields.back(), host);
      micro.set(f, fields.back().data(), elements);
    }
    Workspace workspace(Workspace::Plan{.saved = {std::size_t{16} << 20},
                                        .slots = {1},
                                        .scratch = std::size_t{16} << 20,
                                        .held = {std::size_t{16} << 20},
                                        .held_slots = {1}});
    const nn::Context context{.exec = exec,
                              .groups = groups_,
                              .step = {},
                              .saved = &workspace.saved(0, 0),
                              .scratch = workspace.scratch(),
                              .held = workspace.held(),
                              .batch = micro,
                              .mode = nn::Mode::evaluation,
                              .gradients = nn::Gradients::none};
    const DeviceArray<double> memory(
        "out", extent(model::elements_of(context, chunk_.border_out())));
    const auto out = model::tensors_of(context, chunk_.border_out(), memory.data());
    chunk_.forward(context, 0, {}, out);
    exec.fence("test");
    return test::rows_of(out[0]);
  }

  std::vector<double> means_of(const std::vector<double>& rows) const {
    std::vector<double> means;
    const FieldSpec lengths{.name = "lengths", .holds = Holds::lengths};
    for (index_t sample = 0; sample < samples_; ++sample) {
      const auto length = static_cast<index_t>(element(lengths, sample, 0));
      for (index_t j = 0; j < kSourceHidden; ++j) {
        double sum = 0.0;
        for (index_t p = 0; p < length; ++p) {
          sum += rows[extent((p * samples_ + sample) * kSourceHidden + j)];
        }
        means.push_back(sum / static_cast<double>(length));
      }
    }
    return means;
  }
  std::vector<double> classes_of(const std::vector<double>& rows) const {
    const std::vector<double> weight = values(params_.slice(Slab::weight, classes_));
    std::vector<double> logits;
    for (std::size_t r = 0; r < rows.size() / kSourceHidden; ++r) {
      for (std::size_t c = 0; c < kMarkClasses; ++c) {
        double sum = 0.0;
        for (std::size_t j = 0; j < kSourceHidden; ++j) {
          sum += rows[r * kSourceHidden + j] * weight[c * kSourceHidden + j];
        }
        logits.push_back(sum);
      }
    }
    return logits;
  }
  static std::vector<double> values(const View1<double>& view) {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
    return {host.data(), host.data() + host.extent(0)};
  }

  Use use_;
  index_t samples_;
  model::Blueprint blueprint_;
  comm::ProcessGroups groups_;
  ParamRegistry registry_;
  ParamBuffer<double> params_;
  nn::Builder<double> builder_;
  model::Chunk<double> chunk_;
  std::size_t classes_ = 0;
};

step::ModelState<double> state_on(const comm::ProcessGroups& groups, Use use,
                                  bool is_split) {
  return {groups,
          blueprint_for(use),
          {.sequence_parallel = is_split, .pipeline = {}},
          &make_encoder_decoder_block<double>};
}

double largest_difference(std::span<const float> got, const std::vector<double>& want,
                          std::size_t begin = 0) {
  double most = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(got[i]) - want.at(begin + i)));
  }
  return most;
}

class Outputs : public ::testing::TestWithParam<Use> {};

TEST_P(Outputs, AreWhatTheBlocksBeforeTheLastSay) {
  constexpr index_t kSamples = 3;
  const std::vector<double> want = Reference(GetParam(), kSamples).output();
  double largest = 0.0;
  for (const double x : want) largest = std::max(largest, std::abs(x));
  ASSERT_GT(largest, 0.01);
  const auto world = comm::make_mpi_world();
  const comm::RankGrid grid(world, {.tensor = world->size()});
  for (const bool is_split : {false, true}) {
    step::ModelState<double> state = state_on(grid.groups(), GetParam(), is_split);
    state.allocate(Inference::Use::inference);
    state.params.initialize(Exec(), kSeed);
    EXPECT_GT(step::plan_output_pass(state, kSamples), 10000u);
    const auto pass = step::make_output_pass(Exec(), state, kSamples);
    const BatchSpec& spec = state.blueprint.batch;
    for (const index_t source : {kSourceSequence, kShort}) {
      const std::vector<index_t> sequences = {kSequence, source, kMarkCount};
      FilledBatch filled = samples_of(spec, sequences, kSamples);
      const auto got = pass->run(filled.fill(0, element), kSamples, sequences);
      ASSERT_EQ(got.size(), want.size());
      EXPECT_LT(largest_difference(got, want), 1e-6 * largest) << source;
      // The last sample alone: of rows, each third one.
      FilledBatch one = samples_of(spec, sequences, 1);
      const auto alone = pass->run(one.fill(kSamples - 1, element), 1, sequences);
      ASSERT_EQ(alone.size(), want.size() / kSamples);
      std::vector<double> of_last;
      const auto columns = extent(pass->columns());
      for (std::size_t i = 0; i < want.size(); ++i) {
        if (i / columns % kSamples == kSamples - 1) of_last.push_back(want[i]);
      }
      EXPECT_LT(largest_difference(alone, of_last), 1e-6 * largest) << source;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(OutputsOf, Outputs, ::testing::Values(Use::vectors, Use::words));

TEST(OutputsRefused, OfWrongSizes) {
  step::ModelState<double> state =
      state_on(comm::make_groups_of_one(), Use::vectors, false);
  state.allocate(Inference::Use::inference);
  const auto pass = step::make_output_pass(Exec(), state, 2);
  const auto refusal = [&](index_t samples, const std::vector<index_t>& sequences) {
    return test::message_of<Error>([&] { pass->run({}, samples, sequences); });
  };
  const std::vector<index_t> full = {kSequence, kSourceSequence, kMarkCount};
  EXPECT_THAT(refusal(3, full), HasSubstr("the output of 3 samples of 3 streams"));
  EXPECT_THAT(refusal(2, {kSequence}), HasSubstr("of 1 stream;"));
  EXPECT_THAT(refusal(2, {kSequence, kSourceSequence + 1, kMarkCount}),
              HasSubstr("samples of 49 positions of stream 'source'"));
  EXPECT_THAT(refusal(2, full), HasSubstr("field 'source' of a micro-batch was not"));
}

TEST(OutputsRefused, OfAModelThatHasNone) {
  step::ModelState<double> state =
      state_on(comm::make_groups_of_one(), Use::training, false);
  EXPECT_THAT(test::message_of<Error>([&] { step::make_output_pass(Exec(), state, 1); }),
              HasSubstr("the model gives no output"));
}

}  // namespace
}  // namespace trireme::test
