// support/strict_transport.cpp — a transport of the host that works only for programs
// that would work over NCCL; for tests (strict_transport.hpp has the rules).
//
// Poisoned outputs. An operation works on copies: its input is copied at start(), its
// output is filled with bytes of 0xFF (NaN in every floating-point type) and written at
// wait(). Whoever reads an output too early computes with NaN, whoever changes an input
// too early is found by comparing it with its copy, and whoever writes to an output too
// early by looking for the poison, which must be whole at wait().
//
// Crossing sends. What carries the copies buffers as it likes, so that a wrong program
// would work. Therefore the two ends of a channel tell each other what they begin, call
// by call, and each goes through both lists as NCCL would: the calls at their heads are
// under way, a send there meets a receive there, and both go. Where neither head has
// anything for the other, the ranks would wait for ever. For example rank 0 begins (a)
// send to 1, (b) recv from 1, and rank 1 the same, each by itself: the heads are two
// sends. Begun together() each list has one call of both, and they meet.
#include "support/strict_transport.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <ranges>
#include <utility>
#include <vector>

#include "base/exec.hpp"

namespace trireme::comm {
namespace {

constexpr std::byte kPoison{0xFF};

// What one end of a channel tells the other of an operation that it begins.
struct Notice {
  std::int64_t call = 0;   // operations of one call are begun together
  std::int64_t sends = 0;  // 0: it receives
  std::int64_t more = 0;   // operations of the call on this channel that follow
};

class StrictTransport final : public Transport {
 public:
  StrictTransport(std::unique_ptr<Transport> carrier, const Communicator& group)
      : carrier_(std::move(carrier)), group_(group) {
    TRIREME_REQUIRE(kHostExecution, "the strict transport is for kernels on the host");
    TRIREME_REQUIRE(
        group.checks_calls(),
        "group '{}': the strict transport is for ranks that compare what they "
        "call (MpiOptions::check_calls)",
        group.name());
  }

  int start(const Exec& exec, const Transfer& transfer) override;
  void wait(const Exec& exec, int number) override;
  void open(const std::vector<ChannelEnd>& channels) override {
    carrier_->open(channels);
  }
  void begin_group() override {
    if (depth_++ == 0) ++call_;
  }
  void end_group() override {
    if (--depth_ == 0) tell(std::exchange(in_call_, {}));
  }
  bool is_on_stream() const override { return true; }
  std::optional<TransportSeconds> seconds() const override { return carrier_->seconds(); }
  std::size_t staging_bytes() const override { return carrier_->staging_bytes(); }

 private:
  using Bytes = std::vector<std::byte>;
  struct Operation {
    Exec exec;
    Transfer transfer;
    Bytes in, out;  // copies
    int carried = kComplete;
    Notice notice;  // told by the carrier's operation `told`
    int told = kComplete;
    bool is_busy = false;
    std::int64_t number = 0;  // of a message on its channel, else of the group's calls
  };
  // A channel to one other rank, as this end knows it: what was begun there and has not
  // met its other half.
  struct Lane {
    std::vector<const Operation*> mine;
    std::vector<Notice> theirs;
    std::int64_t begun = 0;  // messages, by this end
  };

  int free_operation();
  std::string text_of(const Operation& operation) const;
  Lane& lane_of(const Transfer& transfer) {
    return lanes_[{transfer.peer, transfer.channel}];
  }
  void tell(const std::vector<int>& operations);
  void meet(const Operation& operation);
  static bool go_on(Lane& lane);
  void read_notice(const Operation& operation, Lane& lane);
  [[noreturn]] void refuse(const Operation& operation, const Lane& lane) const;
  void require_same_input(const Operation& operation) const;
  void require_poisoned_output(const Operation& operation) const;

  std::unique_ptr<Transport> carrier_;
  const Communicator& group_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::map<std::pair<int, Channel>, Lane> lanes_;
  int depth_ = 0;  // of group calls
  std::int64_t call_ = 0;
  std::vector<int> in_call_;  // between two ranks, begun in the open group call
};

// Notices have channels of their own beside those of the messages.
Channel channel_of_notices(Channel channel) {
  constexpr int kFirst = 16;
  return static_cast<Channel>(static_cast<int>(channel) + kFirst);
}

int StrictTransport::free_operation() {
  const auto is_free = [](const auto& operation) { return !operation->is_busy; };
  auto found = std::find_if(operations_.begin(), operations_.end(), is_free);
  if (found == operations_.end()) {
    found = operations_.insert(found, std::make_unique<Operation>());
  }
  return static_cast<int>(found - operations_.begin());
}

// "all_gather in group 'gradient' (weights, number 17)"
std::string StrictTransport::text_of(const Operation& operation) const {
  const Transfer& transfer = operation.transfer;
  return fmt::format("{} in group '{}' ({}, number {})", name_of(transfer.kind),
                     group_.name(), transfer.site, operation.number);
}

int StrictTransport::start(const Exec& exec, const Transfer& transfer) {
  const int number = free_operation();
  Operation& operation = *operations_[static_cast<std::size_t>(number)];
  operation.exec = exec;
  operation.transfer = transfer;
  operation.number =
      transfer.is_between_two() ? ++lane_of(transfer).begun : group_.calls();
  TRIREME_REQUIRE(transfer.whole().dtype != DType::uint16,
                  "{}: NCCL has no 16-bit integers", text_of(operation));
  operation.is_busy = true;
  exec.fence("comm");
  const ConstSpan in = transfer.in;
  const Span out = transfer.out;
  const auto* const input = static_cast<const std::byte*>(in.data);
  operation.in.assign(input, input + in.bytes());
  operation.out.assign(out.bytes(), std::byte{0});
  Transfer copied = transfer;
  copied.in.data = operation.in.data();
  copied.out.data = operation.out.data();
  if (in.data == out.data) {  // in place
    operation.out = operation.in;
    operation.out.resize(std::max(in.bytes(), out.bytes()));
    copied.out.data = operation.out.data();
    copied.in.data = copied.out.data;
  }
  if (out.count > 0) std::memset(out.data, std::to_integer<int>(kPoison), out.bytes());
  operation.carried = carrier_->start(exec, copied);
  operation.notice.call = depth_ > 0 ? call_ : ++call_;
  if (!transfer.is_between_two()) return number;
  in_call_.push_back(number);
  if (depth_ == 0) tell(std::exchange(in_call_, {}));
  return number;
}

// Tells the other end of each operation's channel that it begins, and how many of the
// same call follow on that channel.
void StrictTransport::tell(const std::vector<int>& operations) {
  for (std::size_t i = 0; i < operations.size(); ++i) {
    Operation& operation = *operations_[static_cast<std::size_t>(operations[i])];
    const Transfer& transfer = operation.transfer;
    Lane& lane = lane_of(transfer);
    lane.mine.push_back(&operation);
    operation.notice.sends = transfer.kind == Transfer::Kind::send ? 1 : 0;
    operation.notice.more =
        std::count_if(operations.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                      operations.end(), [&](int other) {
                        const auto o = static_cast<std::size_t>(other);
                        return &lane_of(operations_[o]->transfer) == &lane;
                      });
    operation.told = carrier_->start(
        operation.exec, {.kind = Transfer::Kind::send,
                         .in = {&operation.notice, sizeof(Notice), DType::uint8},
                         .peer = transfer.peer,
                         .site = transfer.site,
                         .channel = channel_of_notices(transfer.channel)});
  }
}

// Waits until the other end has begun the operation's other half.
void StrictTransport::meet(const Operation& operation) {
  Lane& lane = lane_of(operation.transfer);
  const auto has_met = [&] {
    return std::find(lane.mine.begin(), lane.mine.end(), &operation) == lane.mine.end();
  };
  while (!has_met()) {
    if (go_on(lane)) continue;
    const bool knows_their_call = !lane.theirs.empty() && lane.theirs.back().more == 0;
    if (knows_their_call) refuse(operation, lane);
    read_notice(operation, lane);
  }
}

// Lets a send and a receive of the calls at the two heads of a lane meet, which are done
// then. False where there is no such pair.
bool StrictTransport::go_on(Lane& lane) {
  for (auto mine = lane.mine.begin(); mine != lane.mine.end(); ++mine) {
    if ((*mine)->notice.call != lane.mine.front()->notice.call) break;
    for (auto theirs = lane.theirs.begin(); theirs != lane.theirs.end(); ++theirs) {
      if (theirs->call != lane.theirs.front().call) break;
      if (theirs->sends == (*mine)->notice.sends) continue;
      lane.mine.erase(mine);
      lane.theirs.erase(theirs);
      return true;
    }
  }
  return false;
}

void StrictTransport::read_notice(const Operation& operation, Lane& lane) {
  Notice notice;
  const Transfer& transfer = operation.transfer;
  const int arriving =
      carrier_->start(operation.exec, {.kind = Transfer::Kind::recv,
                                       .out = {&notice, sizeof(Notice), DType::uint8},
                                       .peer = transfer.peer,
                                       .site = transfer.site,
                                       .channel = channel_of_notices(transfer.channel)});
  carrier_->wait(operation.exec, arriving);
  lane.theirs.push_back(notice);
}

void StrictTransport::refuse(const Operation& operation, const Lane& lane) const {
  const bool sends = lane.theirs.front().sends != 0;
  throw Error(fmt::format(
      "{}: ranks {} and {} both {} first on one channel. Buffers may hide it; over NCCL "
      "they wait for each other for ever. Begin the send and the receive together(), or "
      "give them channels of their own",
      text_of(operation), group_.rank(), operation.transfer.peer,
      sends ? "send" : "receive"));
}

void StrictTransport::require_same_input(const Operation& operation) const {
  const ConstSpan in = operation.transfer.in;
  const Span out = operation.transfer.out;
  const auto* const input = static_cast<const std::byte*>(in.data);
  const auto* const output = static_cast<const std::byte*>(out.data);
  // Where the output lies in the input, that is poisoned, and what is left is compared.
  const auto is_output = [&](const std::byte* at) {
    return out.count > 0 && output <= at && at < output + out.bytes();
  };
  const auto is_same = [&](std::size_t i) {
    return is_output(input + i) || input[i] == operation.in[i];
  };
  TRIREME_REQUIRE(
      std::ranges::all_of(std::views::iota(std::size_t{0}, in.bytes()), is_same),
      "{}: its input was written while it was under way", text_of(operation));
}

void StrictTransport::require_poisoned_output(const Operation& operation) const {
  const Span out = operation.transfer.out;
  const auto* const output = static_cast<const std::byte*>(out.data);
  TRIREME_REQUIRE(std::all_of(output, output + out.bytes(),
                              [](std::byte byte) { return byte == kPoison; }),
                  "{}: its output was written while it was under way",
                  text_of(operation));
}

void StrictTransport::wait(const Exec& exec, int number) {
  Operation& operation = *operations_.at(static_cast<std::size_t>(number));
  TRIREME_REQUIRE(depth_ == 0 || operation.notice.call != call_,
                  "{} is waited for within the group call that begins it",
                  text_of(operation));
  exec.fence("comm");
  if (operation.transfer.is_between_two()) {
    meet(operation);
    carrier_->wait(exec, operation.told);
  }
  carrier_->wait(exec, operation.carried);
  require_same_input(operation);
  require_poisoned_output(operation);
  const Span out = operation.transfer.out;
  if (out.count > 0) std::memcpy(out.data, operation.out.data(), out.bytes());
  operation.is_busy = false;
}

}  // namespace

std::unique_ptr<Transport> make_strict_transport(std::unique_ptr<Transport> carrier,
                                                 const Communicator& group) {
  return std::make_unique<StrictTransport>(std::move(carrier), group);
}

MpiOptions strict_options() {
  return {.wait = WaitPolicy::yield,
          .check_calls = true,
          .wrap_transport = make_strict_transport};
}

}  // namespace trireme::comm
