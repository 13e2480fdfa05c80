// Several ranks as a pipeline, with and without a tensor group: what a stage sends is
// what the next one finds in its buffer, whole; each rank sends its slice only, and of
// each message no more than it has.
#include "parallel/stage_messages.hpp"

#include <gmock/gmock.h>

#include "comm/mpi_communicator.hpp"
#include "comm/rank_grid.hpp"
#include "support/arrays.hpp"

namespace trireme::parallel {
namespace {

constexpr index_t kElements = 1003;  // which no tensor group divides
// Of each message.
constexpr index_t kSizes[] = {kElements, 357, 601};

std::shared_ptr<comm::Communicator> world() {
  return comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
}

float value(int stage, int message, index_t i) {
  return static_cast<float>((i * 7 + stage * 1013 + message * 31) % 4093);
}

void fill(const View1<float>& view, int stage, int message) {
  const auto host = Kokkos::create_mirror_view(view);
  for (index_t i = 0; i < kSizes[message]; ++i) host(i) = value(stage, message, i);
  Kokkos::deep_copy(view, host);
}

void expect(const View1<float>& view, int stage, int message) {
  Kokkos::fence("test");
  ASSERT_EQ(view.extent(0), extent(kSizes[message]));
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  index_t wrong = 0;
  for (std::size_t i = 0; i < host.extent(0); ++i) {
    wrong += host(i) != value(stage, message, static_cast<index_t>(i));
  }
  EXPECT_EQ(wrong, 0) << "message " << message << " of stage " << stage;
}

// Two messages to the next stage, then the buffer that was sent from is filled anew; and
// one back, which the other end waits for first.
void exchange(const comm::RankGrid& grid, bool sequence_parallel) {
  const comm::ProcessGroups& groups = grid.groups();
  const int stages = groups.pipeline->size(), stage = groups.pipeline->rank();
  const bool has_before = stage > 0, has_after = stage + 1 < stages;
  StageMessages<float> messages(Exec(), groups, kElements, 4, sequence_parallel, false);
  // Slices are equal: the last one ends in elements that nobody uses.
  const index_t ranks = sequence_parallel ? 1 : groups.tensor->size();
  const auto slice = [&](int message) { return (kSizes[message] + ranks - 1) / ranks; };
  EXPECT_EQ(messages.bytes(), 4 * slice(0) * ranks * sizeof(float));
  groups.pipeline->reset_traffic();
  if (has_after) messages.begin_recv(3, stage + 1, Way::backward, kSizes[2]);
  if (has_before) {
    messages.begin_recv(0, stage - 1, Way::forward, kSizes[0]);
    messages.begin_recv(1, stage - 1, Way::forward, kSizes[1]);
  }
  for (int message = 0; has_after && message < 2; ++message) {
    fill(messages.to_fill(2), stage, message);
    messages.begin_send(2, stage + 1, Way::forward, kSizes[message]);
  }
  if (has_before) {
    expect(messages.received(1), stage - 1, 1);
    fill(messages.to_fill(1), stage, 2);
    messages.begin_send(1, stage - 1, Way::backward, kSizes[2]);
    expect(messages.received(0), stage - 1, 0);
  }
  if (has_after) expect(messages.received(3), stage + 1, 2);
  messages.finish();

  const index_t sent =
      (has_after ? slice(0) + slice(1) : 0) + (has_before ? slice(2) : 0);
  EXPECT_EQ(groups.pipeline->traffic().elements, sent);
}

TEST(StageMessages, ArriveWhole) {
  const auto ranks = world();
  const int n = ranks->size();
  std::vector<comm::GridShape> grids = {{.pipeline = n}};
  if (n == 4) grids.push_back({.tensor = 2, .pipeline = 2});
  if (n == 4) grids.push_back({.data = 2, .pipeline = 2});
  for (const comm::GridShape& shape : grids) {
    const comm::RankGrid grid(ranks, shape);
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(comm::to_string(shape));
      exchange(grid, sequence_parallel);
    }
  }
}

std::string text_of(const std::vector<comm::ChannelEnd>& ends) {
  std::string text;
  for (const auto& [peer, channel] : ends) {
    text += fmt::format("{} {}, ", comm::name_of(channel), peer);
  }
  return text;
}

TEST(StageMessages, ChannelsAreThoseOfTheNeighbours) {
  EXPECT_EQ(text_of(channels_of_stage(0, 1, true)), "");
  EXPECT_EQ(text_of(channels_of_stage(0, 2, false)), "forward 1, backward 1, ");
  EXPECT_EQ(text_of(channels_of_stage(1, 3, true)),
            "forward 0, backward 0, forward 2, backward 2, ");
  EXPECT_EQ(text_of(channels_of_stage(2, 3, true)),
            "forward 1, backward 1, forward_round 0, backward_round 0, ");
  EXPECT_EQ(text_of(channels_of_stage(0, 2, true)),
            text_of({{1, comm::Channel::forward},
                     {1, comm::Channel::backward},
                     {1, comm::Channel::forward_round},
                     {1, comm::Channel::backward_round}}));
  for (const int stages : {2, 3, 7}) {
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_LE(channels_of_stage(stage, stages, true).size(), 4u);
      for (const auto& [peer, channel] : channels_of_stage(stage, stages, true)) {
        const auto theirs = channels_of_stage(peer, stages, true);
        EXPECT_THAT(theirs, ::testing::Contains(comm::ChannelEnd{stage, channel}));
      }
    }
  }
}

// On shapes alone: counted, without memory.
TEST(StageMessages, AreCountedWithoutMemory) {
  const auto ranks = world();
  const comm::RankGrid grid(ranks, {.pipeline = ranks->size()});
  StageMessages<float> messages(Exec::shape_only(), grid.groups(), kElements, 3, false,
                                false);
  const StageMessages<float> real(Exec(), grid.groups(), kElements, 3, false, false);
  EXPECT_EQ(messages.bytes(), real.bytes());
  EXPECT_EQ(messages.to_fill(2).data(), nullptr);
  EXPECT_EQ(messages.received(1).data(), nullptr);
}

}  // namespace
}  // namespace trireme::parallel
