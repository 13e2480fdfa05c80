// comm/nccl_transport.cpp — see nccl_transport.hpp.
//
// An operation keeps four marks: where its messages' stream stood at the beginning and at
// the end, where the Exec's stream stood when it was begun, and where that came to need
// the result. From these the accounts are made once they are past: how long something was
// under way, and how long an Exec stood still for a result. Nobody waits for that; an
// operation that is not past yet keeps its marks, and the next one takes others. What was
// begun while a trace was recorded is shown there with these times, by one clock for all
// streams of the device, which is read beside the host's before and after.
//
// The messages of one communicator are carried in the order in which they are begun. Each
// channel has its own, as receives are begun long before their messages are sent and
// would hold back all that comes behind them.
#include "comm/nccl_transport.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/device_clock.hpp"
#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/timers.hpp"
#include "base/trace.hpp"
#include "comm/nccl_link.hpp"
#include "comm/under_way_time.hpp"

namespace trireme::comm {
namespace {

constexpr std::chrono::microseconds kNap{50};

constexpr std::int64_t kNotTimed = -1;

struct Lane;

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ull;
  }
  return hash;
}

// From its start until it is in the accounts; its marks are used again.
struct Operation {
  NcclMark ready, begin, end, needed;
  Lane* lane = nullptr;
  const char* name = "";
  Site site = "";
  index_t elements = 0;
  std::int64_t call = 0;  // operations of one group call are issued together
  bool is_waited_for = false;
  bool is_traced = false;           // and its times are still to be taken
  std::int64_t number = kNotTimed;  // of time_as(), the same
};

// When a traced operation was, in seconds of the device's clock.
struct TracedTimes {
  const Lane* lane = nullptr;
  const char* name = "";
  Site site = "";
  index_t elements = 0;
  double begin = 0.0, end = 0.0;
};

// From its construction on the device's clock is that of its marks, beside the host's.
struct Timeline {
  NcclMark zero;
  DeviceClock clock;
};

// When a timed operation was, in seconds of the device's clock.
struct TimedOperation {
  std::int64_t number = kNotTimed;
  double begin = 0.0, needed = 0.0, end = 0.0;
};

// One communicator with its stream.
struct Lane {
  Lane(int peer_, Channel channel_, const NcclLink::Options& options)
      : peer(peer_),
        channel(channel_),
        row(peer < 0 ? options.group : options.group + " " + name_of(channel)),
        key(hash_of(options.id)),
        link(options) {}

  int peer;  // of a channel: the other rank of the group; else -1
  Channel channel;
  std::string row;    // of a trace
  std::uint64_t key;  // the same on all its ranks
  NcclLink link;
  std::vector<Operation*> operations;  // in order, until they are in the accounts
  std::int64_t begun = 0;
  bool has_connected_all = false;  // each rank with each other one, for all_to_all
};

class NcclTransport final : public Transport, private Watched, private TraceSource {
 public:
  NcclTransport(Communicator& group, const NcclTransportOptions& options);
  ~NcclTransport() override {
    if (sources_ != nullptr) sources_->remove(*this);
    options_.watch->remove(*this);
  }

  int start(const Exec& exec, const Transfer& transfer) override;
  void wait(const Exec& exec, int operation) override;
  void open(const std::vector<ChannelEnd>& channels) override;
  void begin_group() override;
  void end_group() override;
  bool is_on_stream() const override { return true; }
  std::optional<TransportSeconds> seconds() const override;
  void begin_timing() override;
  void time_as(int operation, std::int64_t number) override;
  void end_timing(const std::function<void(std::int64_t number,
                                           const OperationTimes& times)>& use) override;

 private:
  Lane& add_lane(int peer, Channel channel, const std::string& id);
  void warm_up(Lane& lane);
  void carry_first(Lane& lane, int peer, const std::vector<Transfer>& transfers) const;
  Lane& lane_of(const Transfer& transfer) const;
  int free_operation();
  void issue(Lane& lane, const Transfer& transfer);
  void issue_group();
  void keep_accounts() const;
  void account(Operation& operation) const;
  void stay_in_touch();
  void note_times(Operation& operation) const;
  void wait_for(const NcclMark& mark);
  void wait_for_times();
  std::unique_ptr<Timeline> begin_timeline();
  double read_clock(const NcclMark& zero);
  void begin_trace() override;
  void end_trace(Trace& trace) override;
  void add_to_lane(Operation& operation);
  // For the watch's thread.
  void look(std::vector<WatchedLane>& lanes) override;
  bool is_under_way() override;
  void abort() noexcept override;

  Communicator& group_;
  const NcclTransportOptions options_;
  std::vector<std::int64_t> world_ranks_;  // of the group's ranks
  const OperationBoard* board_ = nullptr;  // that the watch was told of
  // Guards the lanes, and the operations in them, against the watch.
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // the first one is for collectives
  std::vector<std::unique_ptr<Operation>> operations_;
  int depth_ = 0;  // of group calls
  std::int64_t call_ = 0;
  std::vector<Operation*> in_call_;  // of the open group call
  // The accounts, which are made when somebody asks. Times are since the first operation;
  // that of the latest in the accounts, which keeps its marks, is what others are
  // measured from.
  mutable std::vector<Operation*> free_;
  mutable Operation* latest_ = nullptr;
  mutable double latest_begin_ = 0.0;
  mutable UnderWayTime under_way_;
  mutable double held_up_ = 0.0;
  // Of traces, and of begin_timing(), while these go on.
  std::shared_ptr<TraceSources> sources_;
  std::unique_ptr<Timeline> trace_time_, timing_;
  mutable std::vector<TracedTimes> traced_;
  mutable std::vector<TimedOperation> timed_;
};

NcclTransport::NcclTransport(Communicator& group, const NcclTransportOptions& options)
    : group_(group),
      options_(options),
      world_ranks_(group.gather(std::int64_t{options.world_rank})) {
  stay_in_touch();
  std::string id = group.rank() == 0 ? make_nccl_id() : std::string();
  group.broadcast(id);
  warm_up(add_lane(-1, Channel::main, id));
  options_.watch->add(*this);
}

Lane& NcclTransport::add_lane(int peer, Channel channel, const std::string& id) {
  NcclLink::Options options{.id = id,
                            .rank = group_.rank(),
                            .size = group_.size(),
                            .has_high_priority = options_.has_high_priority,
                            .group = group_.name(),
                            .limit = options_.timeout()};
  if (peer >= 0) {
    options.rank = group_.rank() < peer ? 0 : 1;
    options.size = 2;
  }
  auto lane = std::make_unique<Lane>(peer, channel, options);
  lane->link.settle(options_.timeout());
  const std::lock_guard<std::mutex> lock(mutex_);
  lanes_.push_back(std::move(lane));
  return *lanes_.back();
}

// One message of each kind that a communicator is for.
void NcclTransport::warm_up(Lane& lane) {
  using Kind = Transfer::Kind;
  const bool is_channel = lane.peer >= 0;
  const index_t size = is_channel ? 2 : group_.size();
  const DeviceArray<float> one("trireme::comm::warm_up", 1),
      all("trireme::comm::warm_up", extent(size));
  Exec().fence("comm");  // the arrays are filled
  const Span single = span_of(one), whole = span_of(all);
  if (is_channel) {
    const int peer = group_.rank() < lane.peer ? 1 : 0;
    carry_first(lane, peer,
                {{.kind = Kind::send, .in = single},
                 {.kind = Kind::recv, .out = {all.data(), 1}}});
    return;
  }
  for (const Transfer& transfer : {Transfer{Kind::all_reduce, single, single},
                                   Transfer{Kind::reduce_scatter, whole, single},
                                   Transfer{Kind::all_gather, single, whole},
                                   Transfer{Kind::broadcast, single, single}}) {
    carry_first(lane, 0, {transfer});
  }
}

void NcclTransport::carry_first(Lane& lane, int peer,
                                const std::vector<Transfer>& transfers) const {
  const double limit = options_.timeout();
  lane.link.start_first(transfers, peer, limit);
  lane.link.settle(limit);
  NcclMark end;
  lane.link.record(end);
  const auto begin = Clock::now();
  while (!end.is_past()) {
    const std::string problem = lane.link.asynchronous_error();
    TRIREME_REQUIRE(problem.empty(), "the first message of group '{}' over NCCL: {}",
                    group_.name(), problem);
    const std::chrono::duration<double> passed = Clock::now() - begin;
    TRIREME_REQUIRE(limit <= 0.0 || passed.count() < limit,
                    "group '{}': the first message over NCCL has not arrived for {:.1f} "
                    "s; the limit is run.hang_timeout",
                    group_.name(), limit);
    std::this_thread::sleep_for(kNap);
  }
}

void NcclTransport::open(const std::vector<ChannelEnd>& channels) {
  // "forward, 3: id": the lower rank of each pair makes the identity, and all learn all.
  constexpr std::size_t kNumber = 8;
  std::string mine;
  std::size_t bytes = 0;
  for (const auto& [peer, channel] : channels) {
    if (peer < group_.rank()) continue;
    const std::string id = make_nccl_id();
    bytes = id.size();
    mine += fmt::format("{:4}{:4}", static_cast<int>(channel), peer) + id;
  }
  bytes = static_cast<std::size_t>(
      group_.all_reduce(static_cast<std::int64_t>(bytes), Op::max));
  const std::vector<std::string> all = group_.gather(mine);
  const auto id_of = [&](int lower, int upper, Channel channel) {
    const std::string name = fmt::format("{:4}{:4}", static_cast<int>(channel), upper);
    const std::string& theirs = all[static_cast<std::size_t>(lower)];
    for (std::size_t at = 0; at < theirs.size(); at += kNumber + bytes) {
      if (theirs.compare(at, kNumber, name) == 0) {
        return theirs.substr(at + kNumber, bytes);
      }
    }
    throw Error("open: no identity for a channel that both ends have named");
  };
  // All ranks go through the pairs in one order, so that none wait in a circle: even
  // lower ranks come first, and pairs of neighbours are made side by side.
  using Key = std::tuple<Channel, int, int, int>;
  std::vector<std::pair<Key, ChannelEnd>> ordered;
  for (const ChannelEnd& end : channels) {
    const int lower = std::min(group_.rank(), end.peer);
    const int upper = std::max(group_.rank(), end.peer);
    ordered.push_back({Key(end.channel, lower % 2, lower, upper), end});
  }
  std::ranges::sort(ordered, {}, [](const auto& pair) { return pair.first; });
  for (const auto& [key, end] : ordered) {
    const auto& [channel, parity, lower, upper] = key;
    warm_up(add_lane(end.peer, channel, id_of(lower, upper, channel)));
  }
}

Lane& NcclTransport::lane_of(const Transfer& transfer) const {
  if (!transfer.is_between_two()) return *lanes_.front();
  const auto found = std::ranges::find_if(lanes_, [&](const auto& lane) {
    return lane->peer == transfer.peer && lane->channel == transfer.channel;
  });
  TRIREME_REQUIRE(found != lanes_.end(), "{} in group '{}': no channel to rank {}",
                  name_of(transfer.kind), group_.name(), transfer.peer);
  return **found;
}

int NcclTransport::free_operation() {
  if (free_.empty()) keep_accounts();
  if (free_.empty()) {
    operations_.push_back(std::make_unique<Operation>());
    free_.reserve(operations_.size());
    free_.push_back(operations_.back().get());
  }
  Operation* const operation = free_.back();
  free_.pop_back();
  const auto is_it = [&](const auto& one) { return one.get() == operation; };
  return static_cast<int>(std::ranges::find_if(operations_, is_it) - operations_.begin());
}

void NcclTransport::begin_group() {
  if (depth_++ > 0) return;
  ++call_;
  begin_nccl_group();
}

void NcclTransport::issue_group() {
  std::vector<const Lane*> lanes;
  std::vector<std::unique_lock<std::timed_mutex>> held;
  for (const Operation* operation : in_call_) {
    if (std::ranges::find(lanes, operation->lane) != lanes.end()) continue;
    lanes.push_back(operation->lane);
    held.push_back(operation->lane->link.hold());
  }
  end_nccl_group();
}

// NCCL issues here, and what is recorded behind it is recorded now.
void NcclTransport::end_group() {
  if (--depth_ > 0) return;
  issue_group();
  for (Operation* operation : in_call_) {
    Lane& lane = *operation->lane;
    lane.link.settle(options_.timeout());
    lane.link.record(operation->end);
    add_to_lane(*operation);
  }
  in_call_.clear();
}

// Ends here where the watch has found that something hangs, and tells it of a new board;
// is there for traces.
void NcclTransport::stay_in_touch() {
  options_.watch->require_whole();
  const Timers* const timers = group_.timers();
  if (timers != nullptr && timers->trace_sources() != sources_ && !lanes_.empty()) {
    if (sources_ != nullptr) sources_->remove(*this);
    sources_ = timers->trace_sources();
    sources_->add(*this);
  }
  if (group_.board() == board_) return;
  board_ = group_.board();
  options_.watch->set_board(options_.board());
}

int NcclTransport::start(const Exec& exec, const Transfer& transfer) {
  stay_in_touch();
  const int number = free_operation();
  Operation& operation = *operations_[static_cast<std::size_t>(number)];
  Lane& lane = lane_of(transfer);
  operation.lane = &lane;
  operation.name = name_of(transfer.kind);
  operation.site = transfer.site;
  operation.elements = transfer.whole().count;
  operation.is_waited_for = false;
  operation.is_traced = trace_time_ != nullptr && group_.size() > 1;
  operation.number = kNotTimed;
  operation.call = depth_ > 0 ? call_ : ++call_;
  operation.ready.record(exec);
  lane.link.hold_up(operation.ready);
  lane.link.record(operation.begin);
  issue(lane, transfer);
  if (depth_ > 0) {
    in_call_.push_back(&operation);
    return number;
  }
  lane.link.settle(options_.timeout());
  lane.link.record(operation.end);
  add_to_lane(operation);
  return number;
}

void NcclTransport::issue(Lane& lane, const Transfer& transfer) {
  // A channel has two ranks, in the order of the group's.
  const int peer = !transfer.is_between_two()      ? transfer.peer
                   : transfer.peer > group_.rank() ? 1
                                                   : 0;
  // NCCL has no such collective: it is made of messages, whose connections between all
  // pairs of ranks take memory that groups without it are spared.
  const bool is_first =
      transfer.kind == Transfer::Kind::all_to_all && !lane.has_connected_all;
  if (!is_first) return lane.link.start(transfer, peer);
  TRIREME_REQUIRE(
      depth_ == 0,
      "group '{}': the first all_to_all makes connections, and cannot be part "
      "of a group call",
      group_.name());
  lane.link.start_first({transfer}, peer, options_.timeout());
  lane.has_connected_all = true;
}

void NcclTransport::add_to_lane(Operation& operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++operation.lane->begun;
  operation.lane->operations.push_back(&operation);
}

void NcclTransport::wait(const Exec& exec, int number) {
  Operation& operation = *operations_.at(static_cast<std::size_t>(number));
  TRIREME_REQUIRE(depth_ == 0 || operation.call != call_,
                  "group '{}': an operation is waited for within the group call that "
                  "begins it",
                  group_.name());
  stay_in_touch();
  operation.needed.record(exec);
  operation.end.hold_up(exec);
  operation.is_waited_for = true;
}

// Takes the operations that are over into the accounts.
void NcclTransport::keep_accounts() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& lane : lanes_) {
    auto& operations = lane->operations;
    std::size_t past = 0;
    for (; past < operations.size(); ++past) {
      Operation& operation = *operations[past];
      if (!operation.is_waited_for || !operation.end.is_past() ||
          !operation.needed.is_past()) {
        break;
      }
      account(operation);
    }
    operations.erase(operations.begin(),
                     operations.begin() + static_cast<std::ptrdiff_t>(past));
  }
}

void NcclTransport::account(Operation& operation) const {
  note_times(operation);
  if (latest_ != nullptr) {
    latest_begin_ += operation.begin.seconds_since(latest_->begin);
    free_.push_back(latest_);
  }
  latest_ = &operation;
  if (group_.size() > 1) {
    const double taken = operation.end.seconds_since(operation.begin);
    under_way_.add(latest_begin_, latest_begin_ + taken);
  }
  held_up_ += std::max(0.0, operation.end.seconds_since(operation.needed));
}

std::optional<TransportSeconds> NcclTransport::seconds() const {
  keep_accounts();
  return TransportSeconds{.under_way = under_way_.seconds(), .held_up = held_up_};
}

void NcclTransport::note_times(Operation& operation) const {
  if (std::exchange(operation.is_traced, false)) {
    const NcclMark& zero = trace_time_->zero;
    traced_.push_back({.lane = operation.lane,
                       .name = operation.name,
                       .site = operation.site,
                       .elements = operation.elements,
                       .begin = operation.begin.seconds_since(zero),
                       .end = operation.end.seconds_since(zero)});
  }
  const std::int64_t number = std::exchange(operation.number, kNotTimed);
  if (number == kNotTimed || timing_ == nullptr) return;
  // What nobody has needed so far nobody has waited for.
  const NcclMark& needed = operation.is_waited_for ? operation.needed : operation.end;
  timed_.push_back({.number = number,
                    .begin = operation.begin.seconds_since(timing_->zero),
                    .needed = needed.seconds_since(timing_->zero),
                    .end = operation.end.seconds_since(timing_->zero)});
}

// On the stream of the collectives, where nothing is under way.
double NcclTransport::read_clock(const NcclMark& zero) {
  NcclMark now;
  lanes_.front()->link.record(now);
  wait_for(now);
  return now.seconds_since(zero);
}

std::unique_ptr<Timeline> NcclTransport::begin_timeline() {
  auto timeline = std::make_unique<Timeline>();
  lanes_.front()->link.record(timeline->zero);
  wait_for(timeline->zero);
  timeline->clock.begin([&] { return read_clock(timeline->zero); });
  return timeline;
}

void NcclTransport::begin_trace() {
  traced_.clear();
  trace_time_ = begin_timeline();
}

// Times of what has begun are known then, whether its result was needed or not.
void NcclTransport::wait_for_times() {
  for (const auto& lane : lanes_) {
    for (Operation* operation : lane->operations) {
      if (!operation->is_traced && operation->number == kNotTimed) continue;
      wait_for(operation->end);
      if (operation->is_waited_for) wait_for(operation->needed);
      note_times(*operation);
    }
  }
}

void NcclTransport::end_trace(Trace& trace) {
  wait_for_times();
  const NcclMark& zero = trace_time_->zero;
  DeviceClock& clock = trace_time_->clock;
  clock.end([&] { return read_clock(zero); });
  for (const TracedTimes& times : traced_) {
    trace.add({.name = times.name,
               .detail = times.site,
               .group = times.lane->row.c_str(),
               .begin = clock.host_time(times.begin),
               .end = clock.host_time(times.end),
               .elements = times.elements});
  }
  traced_.clear();
  trace_time_.reset();
}

void NcclTransport::begin_timing() {
  timed_.clear();
  timing_ = begin_timeline();
}

void NcclTransport::time_as(int operation, std::int64_t number) {
  operations_.at(static_cast<std::size_t>(operation))->number = number;
}

void NcclTransport::end_timing(
    const std::function<void(std::int64_t number, const OperationTimes& times)>& use) {
  if (timing_ == nullptr) return;
  wait_for_times();
  DeviceClock& clock = timing_->clock;
  clock.end([&] { return read_clock(timing_->zero); });
  for (const TimedOperation& times : timed_) {
    use(times.number, {.begin = clock.host_time(times.begin),
                       .needed = clock.host_time(times.needed),
                       .end = clock.host_time(times.end)});
  }
  timed_.clear();
  timing_.reset();
}

void NcclTransport::wait_for(const NcclMark& mark) {
  while (!mark.is_past()) {
    options_.watch->require_whole();
    std::this_thread::yield();
  }
}

void NcclTransport::look(std::vector<WatchedLane>& lanes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& lane : lanes_) {
    const auto& operations = lane->operations;
    const auto oldest = std::ranges::find_if(
        operations, [](const Operation* operation) { return !operation->end.is_past(); });
    WatchedLane& seen = lanes.emplace_back();
    OperationBoard::DeviceLane& progress = seen.progress;
    progress.key = lane->key;
    progress.group = group_.name().c_str();
    progress.begun = lane->begun;
    progress.ended = lane->begun - (operations.end() - oldest);
    if (lane->peer >= 0) {
      progress.peer =
          static_cast<int>(world_ranks_[static_cast<std::size_t>(lane->peer)]);
    }
    if (oldest != operations.end()) {
      progress.operation = (*oldest)->name;
      progress.site = (*oldest)->site;
      progress.elements = (*oldest)->elements;
      progress.is_running = (*oldest)->begin.is_past();
    }
    seen.error = lane->link.asynchronous_error();
  }
}

bool NcclTransport::is_under_way() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::ranges::any_of(lanes_, [](const auto& lane) {
    return !lane->operations.empty() && !lane->operations.back()->end.is_past();
  });
}

void NcclTransport::abort() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& lane : lanes_) lane->link.abort();
}

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(Communicator& group,
                                               const NcclTransportOptions& options) {
  return std::make_unique<NcclTransport>(group, options);
}

}  // namespace trireme::comm
