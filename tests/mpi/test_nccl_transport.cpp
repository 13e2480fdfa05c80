// The NCCL transport over a library of this test's (tests/support/fake_nccl.hpp): every
// operation in every type, in place and not, channels, several under way, what the
// accounts say, and what it refuses.
#include "comm/nccl_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nccl.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/timers.hpp"
#include "base/trace.hpp"
#include "comm/group.hpp"
#include "comm/message_times.hpp"
#include "comm/mpi_communicator.hpp"
#include "comm/nccl_environment.hpp"
#include "comm/nccl_link.hpp"
#include "comm/process_groups.hpp"
#include "support/fake_nccl.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

MpiOptions nccl_options() {
  MpiOptions options;
  options.wait = WaitPolicy::yield;
  options.transport = TransportKind::nccl;
  options.check_calls = false;  // as ranks of some tests make different calls
  return options;
}

template <class T>
using Values = std::vector<T>;

template <class T>
T value(int rank, index_t i) {
  return T(static_cast<float>((rank * 7 + i * 3) % 13));
}
template <class T>
Values<T> filled(int rank, index_t count) {
  Values<T> data(static_cast<std::size_t>(count));
  for (index_t i = 0; i < count; ++i) data[extent(i)] = value<T>(rank, i);
  return data;
}
template <class T>
Span span(Values<T>& data) {
  return {data.data(), static_cast<index_t>(data.size()), dtype_of<T>};
}
template <class T>
bool is_same(const Values<T>& a, const Values<T>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

class NcclTransportOfRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    world_ = make_mpi_world(nccl_options());
    world_->set_timeout(60.0);
    rank_ = world_->rank();
    size_ = world_->size();
  }
  void TearDown() override {
    world_->barrier();
    EXPECT_THAT(test::fake_nccl().take_violations(), IsEmpty());
    world_.reset();
    EXPECT_EQ(test::fake_nccl().communicators, 0);
    EXPECT_EQ(test::fake_nccl().streams, 0);
    EXPECT_EQ(test::fake_nccl().events, 0);
    // Which the next launch of a kernel would take for its own.
    EXPECT_EQ(test::fake_nccl().last_error(), 0);
  }

  template <class T>
  void check_reductions(Group& group, index_t n);
  template <class T>
  void check_movements(Group& group, index_t n);

  std::shared_ptr<Communicator> world_;
  int rank_ = 0, size_ = 1;
  const Exec exec_;
};

template <class T>
void NcclTransportOfRanks::check_reductions(Group& group, index_t n) {
  for (const Op op : {Op::sum, Op::max, Op::min}) {
    SCOPED_TRACE(static_cast<int>(op));
    const index_t all = n * size_;
    Values<T> want(extent(all));
    for (index_t i = 0; i < all; ++i) {
      auto result = static_cast<float>(value<T>(0, i));
      for (int r = 1; r < size_; ++r) {
        const auto other = static_cast<float>(value<T>(r, i));
        result = op == Op::sum   ? result + other
                 : op == Op::max ? std::max(result, other)
                                 : std::min(result, other);
      }
      want[extent(i)] = T(result);
    }
    auto data = filled<T>(rank_, all);
    group.all_reduce(exec_, span(data), op);
    EXPECT_TRUE(is_same(data, want));
    auto in = filled<T>(rank_, all);
    Values<T> part(extent(n));
    group.reduce_scatter(exec_, span(in), span(part), op);
    const auto block = want.begin() + n * rank_;
    EXPECT_TRUE(is_same(part, Values<T>(block, block + n)));
    group.reduce_scatter(exec_, span(in), {in.data() + n * rank_, n, dtype_of<T>}, op);
    EXPECT_TRUE(std::equal(block, block + n, in.begin() + n * rank_, [](T a, T b) {
      return static_cast<float>(a) == static_cast<float>(b);
    }));
  }
}

template <class T>
void NcclTransportOfRanks::check_movements(Group& group, index_t n) {
  const auto own = filled<T>(rank_, n);
  Values<T> want, all(extent(n * size_));
  for (int r = 0; r < size_; ++r) {
    const auto theirs = filled<T>(r, n);
    want.insert(want.end(), theirs.begin(), theirs.end());
  }
  group.all_gather(exec_, {own.data(), n, dtype_of<T>}, span(all));
  EXPECT_TRUE(is_same(all, want));
  Values<T> both(all.size());
  std::ranges::copy(own, both.begin() + n * rank_);
  group.all_gather(exec_, {both.data() + n * rank_, n, dtype_of<T>}, span(both));
  EXPECT_TRUE(is_same(both, want));
  auto in = filled<T>(rank_, n * size_);
  group.all_to_all(exec_, span(in), span(all));
  for (index_t i = 0; i < n * size_; ++i) {
    const T expected = value<T>(static_cast<int>(i / n), n * rank_ + i % n);
    ASSERT_EQ(std::memcmp(&all[extent(i)], &expected, sizeof(T)), 0);
  }
  for (int root = 0; root < size_; ++root) {
    auto data = filled<T>(rank_, n);
    group.broadcast(exec_, span(data), root);
    EXPECT_TRUE(is_same(data, filled<T>(root, n)));
  }
}

TEST_F(NcclTransportOfRanks, CarriesEveryTypeAndSize) {
  Group group(world_);
  EXPECT_TRUE(group.is_on_stream());
  for (const index_t n : {1, 33, 257}) {
    SCOPED_TRACE(n);
    const auto check = [&]<class T>(T) {
      SCOPED_TRACE(name_of(dtype_of<T>));
      check_movements<T>(group, n);
      if constexpr (!std::is_same_v<T, std::uint16_t>) check_reductions<T>(group, n);
    };
    check(float{});
    check(double{});
    check(bf16{});
    check(fp16{});
    check(std::int32_t{});
    check(std::int64_t{});
    check(std::uint8_t{});
    check(std::uint16_t{});
    check(std::uint32_t{});
    check(std::uint64_t{});
  }
  // Longer than anything that a queue between two ranks holds.
  check_reductions<float>(group, 100'000);
}

TEST_F(NcclTransportOfRanks, RefusesSumsOfShortIntegers) {
  Group group(world_);
  Values<std::uint16_t> data(8, 1);
  EXPECT_THAT([&] { group.all_reduce(exec_, span(data)); },
              ThrowsMessage<Error>(AllOf(HasSubstr("16-bit integers"),
                                         HasSubstr("TRIREME_TRANSPORT=mpi"))));
}

// What the host does before it waits sees no result, and what is launched after sees it.
TEST_F(NcclTransportOfRanks, ResultsAreThereAfterTheWait) {
  Group group(world_), other(world_->split(0, rank_, "other"));
  if (size_ == 1) return;
  constexpr int kMessages = 6;
  std::vector<Values<float>> data(kMessages, Values<float>(5000, 1.0f));
  std::vector<Request> requests;
  for (std::size_t m = 0; m < kMessages; ++m) {
    Group& over = m % 2 == 0 ? group : other;
    requests.push_back(over.start_all_reduce(exec_, span(data[m])));
  }
  EXPECT_TRUE(std::isnan(data[kMessages - 1][4999]));
  for (std::size_t m = kMessages; m-- > 0;) {  // in another order
    requests[m].wait(exec_);
    EXPECT_THAT(data[m], Each(static_cast<float>(size_)));
  }
}

TEST_F(NcclTransportOfRanks, FindsWhatTouchesMemoryUnderWay) {
  if (size_ == 1) return;
  Group group(world_);
  test::fake_nccl().expects_violations = true;
  Values<float> in(100, 1.0f), out(extent(100 * size_));
  Request request =
      group.start_all_gather(exec_, {in.data(), 100, DType::float32}, span(out));
  in[7] = 2.0f;
  out[3] = 0.0f;
  request.wait(exec_);
  EXPECT_THAT(test::fake_nccl().take_violations(),
              ::testing::UnorderedElementsAre(
                  HasSubstr("the input of AllGather of 100 elements was written"),
                  HasSubstr("the output of AllGather of 100 elements was written")));
  test::fake_nccl().expects_violations = false;
}

// A row of stages: each receives what comes back long before it is sent.
TEST_F(NcclTransportOfRanks, ChannelsDoNotWaitForOneAnother) {
  if (size_ == 1) return;
  Group group(world_);
  const bool has_next = rank_ + 1 < size_, has_previous = rank_ > 0;
  std::vector<ChannelEnd> ends;
  for (const Channel channel : {Channel::forward, Channel::backward}) {
    if (has_next) ends.push_back({rank_ + 1, channel});
    if (has_previous) ends.push_back({rank_ - 1, channel});
  }
  group.open(ends);
  EXPECT_EQ(test::fake_nccl().communicators, 1 + static_cast<int>(ends.size()));
  Values<float> from_previous(1000), from_next(1000);
  auto forward = filled<float>(rank_, 1000), backward = filled<float>(rank_ + 50, 1000);
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    Request sent, got_back, sent_back;
    if (has_next) {
      got_back =
          group.start_recv(exec_, span(from_next), rank_ + 1, "row", Channel::backward);
    }
    if (has_previous) {
      group.recv(exec_, span(from_previous), rank_ - 1, "row", Channel::forward);
      EXPECT_TRUE(is_same(from_previous, filled<float>(rank_ - 1, 1000)));
    }
    if (has_next) {
      sent = group.start_send(exec_, span(forward), rank_ + 1, "row", Channel::forward);
    }
    got_back.wait(exec_);
    EXPECT_TRUE(!has_next || is_same(from_next, filled<float>(rank_ + 51, 1000)));
    if (has_previous) {
      sent_back =
          group.start_send(exec_, span(backward), rank_ - 1, "row", Channel::backward);
    }
    sent.wait(exec_);
    sent_back.wait(exec_);
  }
}

// Two that send to each other on one channel begin both together.
TEST_F(NcclTransportOfRanks, CrossingMessagesAreBegunTogether) {
  if (size_ == 1) return;
  Group group(world_);
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  group.open({{next}, {previous}});
  auto own = filled<double>(rank_, 50'000);
  Values<double> got(own.size());
  for (int round = 0; round < 3; ++round) {
    Request a, b;
    group.together([&] {
      a = group.start_send(exec_, span(own), next);
      b = group.start_recv(exec_, span(got), previous);
    });
    b.wait(exec_);
    a.wait(exec_);
    EXPECT_TRUE(is_same(got, filled<double>(previous, 50'000)));
  }
}

// To be asked too early is no error, and leaves none. One of the ranks comes late, so
// that the others ask too early.
TEST_F(NcclTransportOfRanks, MarksMayBeAskedEarly) {
  Group group(world_);
  Values<float> data(200'000, 1.0f), more(200'000, 1.0f);
  const int before = test::fake_nccl().not_ready;
  for (int i = 0; i < 20; ++i) {
    if (rank_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Request request = group.start_all_reduce(exec_, span(data));
    Request another = group.start_all_reduce(exec_, span(more));
    EXPECT_EQ(test::fake_nccl().last_error(), 0);
    another.wait(exec_);
    request.wait(exec_);
    EXPECT_EQ(test::fake_nccl().last_error(), 0);
  }
  const std::int64_t early = test::fake_nccl().not_ready - before;
  const std::int64_t of_all = world_->all_reduce(early);
  if (size_ > 1) {
    EXPECT_GT(of_all, 0);
  }
}

// Marks and operations are used again: a step allocates none.
TEST_F(NcclTransportOfRanks, KeepsItsMarks) {
  Group group(world_);
  Values<float> data(100), more(100);
  int events = 0;
  for (int step = 0; step < 50; ++step) {
    Request a = group.start_all_reduce(exec_, span(data));
    Request b = group.start_all_reduce(exec_, span(more));
    a.wait(exec_);
    b.wait(exec_);
    if (step == 5) events = test::fake_nccl().events;
    if (step > 5) {
      EXPECT_LE(test::fake_nccl().events, events);
    }
  }
}

TEST_F(NcclTransportOfRanks, TellsTheDevicesSeconds) {
  Group group(world_);
  Values<float> data(200'000, 1.0f);
  group.reset_traffic();
  const auto begin = Clock::now();
  Request request = group.start_all_reduce(exec_, span(data));
  request.wait(exec_);
  Request late = group.start_all_reduce(exec_, span(data));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // while it is carried
  late.wait(exec_);
  const double spent = std::chrono::duration<double>(Clock::now() - begin).count();
  const Traffic traffic = group.traffic();
  EXPECT_TRUE(traffic.has_seconds);
  if (size_ == 1) {
    EXPECT_EQ(traffic.calls, 0);
    EXPECT_EQ(traffic.under_way_seconds, 0.0);
    return;
  }
  EXPECT_EQ(traffic.calls, 2);
  EXPECT_GT(traffic.under_way_seconds, 0.0);
  EXPECT_LE(traffic.under_way_seconds, spent);
  // The host's kernels stood still for the first one, and hardly for the second.
  EXPECT_GT(traffic.wait_seconds, 0.0);
  EXPECT_LT(traffic.wait_seconds, traffic.under_way_seconds + 1e-3);
  EXPECT_EQ(traffic.seconds, traffic.wait_seconds);
  group.reset_traffic();
  EXPECT_EQ(group.traffic().under_way_seconds, 0.0);
  EXPECT_EQ(group.traffic().seconds, 0.0);
}

// Each message that was begun is in the trace, when the device was at it: beside what the
// host did meanwhile, waited for or not. The last rank comes late.
TEST_F(NcclTransportOfRanks, ShowsMessagesInATrace) {
  Timers timers;
  world_->charge_to(&timers);
  {
    Group group(world_->split(0, rank_, "gradient")), row(world_);
    const bool has_next = rank_ + 1 < size_, has_previous = rank_ > 0;
    std::vector<ChannelEnd> ends;
    if (has_next) ends.push_back({rank_ + 1, Channel::forward});
    if (has_previous) ends.push_back({rank_ - 1, Channel::forward});
    row.open(ends);
    Values<float> data(1000), sent(50), got(50);
    group.all_reduce(exec_, span(data));  // no part of it
    for (int recording = 0; recording < 2; ++recording) {
      SCOPED_TRACE(recording);
      Trace trace(100);
      timers.begin_trace(trace);
      if (rank_ + 1 == size_) std::this_thread::sleep_for(std::chrono::milliseconds(60));
      Request first = group.start_all_reduce(exec_, span(data), Op::sum, "gradients");
      {
        const Region region(timers, Section::forward);
        std::this_thread::sleep_for(std::chrono::milliseconds(120));
      }
      first.wait(exec_);
      Request received, passed_on;
      if (has_previous) {
        received =
            row.start_recv(exec_, span(got), rank_ - 1, "activations", Channel::forward);
      }
      if (has_next) {
        passed_on =
            row.start_send(exec_, span(sent), rank_ + 1, "activations", Channel::forward);
      }
      timers.end_trace();
      received.wait(exec_);
      passed_on.wait(exec_);
      group.all_reduce(exec_, span(data));  // nor this one
      TraceEvent pass, message;
      int messages = 0, channels = 0;
      for (const TraceEvent& event : trace.events()) {
        if (std::string(event.name) == "forward") pass = event;
        channels += std::string(event.group) == "world forward" ? 1 : 0;
        if (std::string(event.group) != "gradient") continue;
        ++messages;
        message = event;
      }
      EXPECT_EQ(channels, static_cast<int>(ends.size()));
      EXPECT_EQ(messages, size_ > 1 ? 1 : 0);
      if (size_ == 1) continue;
      EXPECT_STREQ(message.name, "all_reduce");
      EXPECT_STREQ(message.detail, "gradients");
      EXPECT_EQ(message.elements, 1000);
      using Seconds = std::chrono::duration<double>;
      EXPECT_LE(message.begin, message.end);
      EXPECT_LT(Seconds(message.end - pass.end).count(), 0.0);
      if (rank_ + 1 < size_) {
        EXPECT_GT(Seconds(message.end - message.begin).count(), 0.02);
        EXPECT_LT(Seconds(message.begin - pass.begin).count(), 0.02);
      }
    }
  }
  world_->charge_to(nullptr);
}

// When the device began an operation, came to need its result, and had it: the last rank
// comes late, so that the result is needed before it is there on all others. What was
// begun outside of the recording is not in it, and a trace may be recorded meanwhile.
TEST_F(NcclTransportOfRanks, TimesOperationsByTheDevice) {
  if (size_ == 1) return;
  Timers timers;
  world_->charge_to(&timers);
  {
    Group group(world_->split(0, rank_, "gradient"));
    Values<float> data(1000), second(1000), third(1000);
    group.all_reduce(exec_, span(data));
    for (int recording = 0; recording < 2; ++recording) {
      SCOPED_TRACE(recording);
      Trace trace(100);
      MessageTimes times(2);
      if (recording == 1) timers.begin_trace(trace);
      group.record_to(&times);
      const bool is_late = rank_ + 1 == size_;
      const auto begun = std::chrono::steady_clock::now();
      if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(80));
      group.all_reduce(exec_, span(data));
      Request unneeded = group.start_all_reduce(exec_, span(second));
      Request beyond_room = group.start_all_reduce(exec_, span(third));
      beyond_room.wait(exec_);
      group.record_to(nullptr);
      if (recording == 1) timers.end_trace();
      unneeded.wait(exec_);
      group.all_reduce(exec_, span(data));
      ASSERT_EQ(times.all().size(), 2u);
      using Seconds = std::chrono::duration<double>;
      const MessageTime& first = times.all()[0];
      EXPECT_EQ(first.begin, first.begun);
      EXPECT_LE(first.begin, first.end);
      EXPECT_LE(first.wait, first.end);
      const double entered = Seconds(first.begin - begun).count();
      const double waited = Seconds(first.end - first.wait).count();
      if (is_late) {
        EXPECT_GT(entered, 0.06);
      } else {
        EXPECT_LT(entered, 0.04);
        EXPECT_GT(waited, 0.03);
      }
      EXPECT_EQ(times.all()[1].wait, times.all()[1].end) << "nobody had needed it";
    }
  }
  world_->charge_to(nullptr);
}

TEST_F(NcclTransportOfRanks, MessagesOfLayersComeFirst) {
  const int before = test::fake_nccl().high_streams;
  const Group gradient(world_->split(0, rank_, "gradient"));
  EXPECT_EQ(test::fake_nccl().high_streams, before);
  const Group tensor(world_->split(0, rank_, "tensor"));
  EXPECT_EQ(test::fake_nccl().high_streams, before + (size_ > 1 ? 1 : 0));
}

// NCCL makes one for each call where communicators do not block.
TEST_F(NcclTransportOfRanks, MessagesMakeNoThreads) {
  const int before = test::fake_nccl().threads;
  Group group(world_);
  Values<float> data(12, 1.0f), other(12);
  group.all_reduce(exec_, span(data));
  group.all_to_all(exec_, span(data), span(other));
  EXPECT_EQ(test::fake_nccl().threads, before);
}

// The limit is over while a call waits for the others: it is left behind.
TEST_F(NcclTransportOfRanks, GivesUpWaitingForARankThatDoesNotCome) {
  if (size_ == 1) return;
  std::string id = rank_ == 0 ? make_nccl_id() : std::string();
  if (rank_ > 0) return;
  EXPECT_THAT(
      [&] {
        const NcclLink link({.id = id, .rank = 0, .size = 2, .group = "g", .limit = 0.2});
      },
      ThrowsMessage<Error>(HasSubstr("group 'g': rank 0 of 2 waited 0.2 s for NCCL")));
  // The other one comes too late, and what was left behind ends.
  NcclLink({.id = id, .rank = 1, .size = 2, .group = "g", .limit = 10.0}).abort();
  for (int i = 0; i < 1000 && test::fake_nccl().streams > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// A library that takes its time to issue: marks are recorded when it has.
TEST_F(NcclTransportOfRanks, WaitsForTheLibraryToIssue) {
  ::setenv("NCCL_COMM_BLOCKING", "0", 1);
  test::fake_nccl().busy_answers = 40;
  const int before = test::fake_nccl().threads;
  Group group(world_);
  Values<float> data(10, 1.0f);
  for (int i = 0; i < 3; ++i) {
    std::ranges::fill(data, 1.0f);
    group.all_reduce(exec_, span(data));
    EXPECT_THAT(data, Each(static_cast<float>(size_)));
  }
  EXPECT_GT(test::fake_nccl().threads, before);
  test::fake_nccl().busy_answers = 2;
  ::unsetenv("NCCL_COMM_BLOCKING");
}

TEST_F(NcclTransportOfRanks, SaysWhatToDoAboutSharedDevices) {
  test::fake_nccl().failing_start = test::kInvalidUsage;
  EXPECT_THAT([&] { Group group(world_); },
              ThrowsMessage<Error>(AllOf(HasSubstr("group 'world'"),
                                         HasSubstr("one rank per GPU"),
                                         HasSubstr("TRIREME_TRANSPORT=mpi"))));
  test::fake_nccl().failing_start = 0;
}

TEST_F(NcclTransportOfRanks, RefusesSettingsThatDifferBetweenRanks) {
  {
    const Group group(world_);  // tells NCCL what to do, where nobody has
    const Variables told = nccl_variables();
    EXPECT_THAT(told,
                ::testing::Contains(Variables::value_type("NCCL_ALGO", "Ring,Tree")));
  }
  ::setenv("NCCL_PROTO", rank_ == 0 ? "LL" : "Simple", 1);
  world_ = make_mpi_world(nccl_options());
  if (size_ > 1) {
    EXPECT_THAT([&] { Group group(world_); },
                ThrowsMessage<InputError>(AllOf(HasSubstr("different settings of NCCL"),
                                                HasSubstr("NCCL_PROTO=LL"),
                                                HasSubstr("NCCL_PROTO=Simple"))));
  }
  ::unsetenv("NCCL_PROTO");
}

// Each tensor group agrees within itself; the groups of gradients would not.
TEST_F(NcclTransportOfRanks, RefusesSettingsThatDifferBetweenGroups) {
  if (size_ != 4) return;
  ::setenv("NCCL_PROTO", rank_ < 2 ? "LL" : "Simple", 1);
  EXPECT_THAT([&] { make_process_groups(world_, {.tensor = 2, .data = 2}); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("different settings of NCCL"),
                                              HasSubstr("NCCL_PROTO=LL"),
                                              HasSubstr("NCCL_PROTO=Simple"))));
  ::unsetenv("NCCL_PROTO");
}

// Where an error ends a group its messages are not waited for.
TEST_F(NcclTransportOfRanks, AnErrorLeavesMessagesBehind) {
  if (size_ == 1) return;
  test::fake_nccl().expects_violations = true;
  const int before = test::fake_nccl().aborted;
  Values<float> data(10, 1.0f);
  try {
    Group group(world_);
    world_->barrier();
    // Another number on each rank: no rank's messages match.
    [[maybe_unused]] const Request request =
        group.start_all_reduce(exec_, {data.data(), 1 + rank_, DType::float32});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    throw Error("an error");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "an error");
  }
  EXPECT_EQ(test::fake_nccl().aborted, before + 1);
  EXPECT_THAT(test::fake_nccl().take_violations(), Each(HasSubstr("is in AllReduce of")));
  test::fake_nccl().expects_violations = false;
}

}  // namespace
}  // namespace trireme::comm
