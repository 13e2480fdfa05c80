// comm/group.cpp — the one front of all transports: it checks arguments, keeps accounts
// by site, and notes on the board and the trace what this rank does.
//
// Every call goes start() -> Transport::start(), and later Request::wait() -> finish() ->
// Transport::wait(). All that users and reports see of a message is said here, so that a
// transport has nothing to do but to carry.
#include "comm/group.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/plural.hpp"
#include "base/timers.hpp"
#include "comm/on_ranks.hpp"
#include "comm/operation_board.hpp"

namespace trireme::comm {
namespace {

using Kind = Transfer::Kind;

const std::byte* at(ConstSpan span, index_t element) {
  return static_cast<const std::byte*>(span.data) +
         static_cast<std::size_t>(element) * size_of(span.dtype);
}

// Spans of a shape-only pass have no memory that could overlap.
bool overlap(ConstSpan a, ConstSpan b) {
  if (a.data == nullptr || b.data == nullptr) return false;
  return at(a, 0) < at(b, b.count) && at(b, 0) < at(a, a.count);
}

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

const char* name_of_op(Op op) {
  return op == Op::sum ? "sum" : op == Op::max ? "maximum" : "minimum";
}

void require_same_type(const char* call, ConstSpan in, ConstSpan out) {
  TRIREME_REQUIRE(in.dtype == out.dtype,
                  "{}: input is {}, output is {}; they must be the same", call,
                  trireme::name_of(in.dtype), trireme::name_of(out.dtype));
}

void require_memory(const char* call, const Exec& exec, ConstSpan span) {
  TRIREME_REQUIRE(span.count >= 0, "{}: a count of {}", call,
                  format_plural(span.count, "element"));
  TRIREME_REQUIRE(exec.is_shape_only() || span.count == 0 || span.data != nullptr,
                  "{}: {} without memory (a View of a shape-only pass?)", call,
                  format_plural(span.count, "element"));
}

// Charges its lifetime to the communication of a run that is timed.
class Timed {
 public:
  explicit Timed(Timers* timers) {
    // The group itself says to a trace what it was.
    if (timers != nullptr) {
      region_.emplace(*timers, Section::communication, RegionLabel{.name = ""});
    }
  }

 private:
  std::optional<Region> region_;
};

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                    "all_to_all", "broadcast",      "send",
                                    "recv"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Kind::recv) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

const char* name_of(Channel channel) {
  constexpr const char* kNames[] = {"main", "forward", "backward", "forward_round",
                                    "backward_round"};
  static_assert(std::size(kNames) ==
                static_cast<std::size_t>(Channel::backward_round) + 1);
  return kNames[static_cast<std::size_t>(channel)];
}

Traffic& Traffic::operator+=(const Traffic& other) {
  calls += other.calls;
  elements += other.elements;
  bytes += other.bytes;
  has_seconds = has_seconds && other.has_seconds;
  seconds += other.seconds;
  wait_seconds += other.wait_seconds;
  under_way_seconds += other.under_way_seconds;
  progress_seconds += other.progress_seconds;
  return *this;
}

void Request::wait(const Exec& exec) {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->finish(exec, *this);
}

Group::Group(std::shared_ptr<Communicator> control)
    : control_(std::move(control)), transport_(control_->make_transport()) {
  const std::optional<TransportSeconds> seconds = transport_->seconds();
  times_calls_ = seconds && !seconds->held_up;
}

Group::Group(Communicator& control)
    : Group(std::shared_ptr<Communicator>(std::shared_ptr<void>(), &control)) {}

Traffic Group::traffic() const {
  Traffic traffic = traffic_;
  const std::optional<TransportSeconds> now = transport_->seconds();
  traffic.has_seconds = now.has_value();
  if (!now) return traffic;
  traffic.under_way_seconds = now->under_way - before_.under_way;
  traffic.progress_seconds = now->progress - before_.progress;
  if (now->held_up) {
    traffic.wait_seconds = *now->held_up - before_.held_up.value_or(0.0);
    traffic.seconds = traffic.wait_seconds;
  }
  return traffic;
}

void Group::reset_traffic() {
  traffic_ = {};
  before_ = transport_->seconds().value_or(TransportSeconds{});
  sent_ = {};
}

// The payload of a message between two ranks is counted by its sender.
MessageTally Group::count_of(const Transfer& transfer) const {
  const ConstSpan whole = transfer.kind == Kind::recv ? ConstSpan() : transfer.whole();
  return {name(), transfer.site, name_of(transfer.kind),
          1,      whole.count,   static_cast<index_t>(whole.bytes())};
}

void Group::record_to(MessageTimes* times) {
  if (times_ != nullptr) {
    transport_->end_timing([this](std::int64_t number, const OperationTimes& of) {
      times_->set(number, of.begin, of.needed, of.end);
    });
  }
  times_ = times;
  if (times_ != nullptr) transport_->begin_timing();
}

Request Group::start(const Exec& exec, const Transfer& transfer) {
  Request request;
  const ConstSpan whole = transfer.whole();
  if (exec.is_shape_only()) {
    if (size() == 1 || whole.count == 0) return request;  // nothing is sent
    if (exec.tally() != nullptr) exec.tally()->add(count_of(transfer));
    return request;
  }
  if (size() == 1) {  // nothing is sent
    if (whole.count == 0) return request;
    const int alone = transport_->start(exec, transfer);
    if (alone != Transport::kComplete) transport_->wait(exec, alone);
    return request;
  }
  const Timed timed(control_->timers());
  const auto begin = Clock::now();
  control_->begin_message();
  request.site_ = transfer.site;
  request.name_ = name_of(transfer.kind);
  request.peer_ = transfer.is_between_two() ? transfer.peer : -1;
  request.elements_ = whole.count;
  request.sequence_ =
      transfer.is_between_two() ? control_->calls() : control_->count_call();
  OperationBoard* const board = control_->board();
  if (board != nullptr) {
    board->enter({request.name_, transfer.site, name().c_str(), request.sequence_,
                  whole.count, request.peer_},
                 begin);
  }
  if (control_->checks_calls() && !transfer.is_between_two()) {
    control_->require_same_call(request.name_, transfer.site, details_of(transfer));
  }
  const int started =
      whole.count > 0 ? transport_->start(exec, transfer) : Transport::kComplete;
  const auto end = Clock::now();
  if (board != nullptr) board->leave(end);
  control_->trace_call("begin", transfer.site, begin, end);
  const MessageTally one = count_of(transfer);
  if (times_ != nullptr && times_->has_room()) {
    request.record_ = times_->add({.peer = request.peer_,
                                   .channel = static_cast<int>(transfer.channel),
                                   .sends = transfer.kind == Kind::send,
                                   .bytes = static_cast<std::size_t>(one.bytes),
                                   .begin = begin,
                                   .begun = end,
                                   .wait = end,
                                   .end = end});
    if (started != Transport::kComplete) transport_->time_as(started, request.record_);
  }
  if (whole.count == 0) return request;
  sent_.add(one);
  traffic_ += {.calls = one.calls, .elements = one.elements, .bytes = one.bytes};
  if (times_calls_) traffic_.seconds += seconds_between(begin, end);
  request.operation_ = started;
  if (started != Transport::kComplete) request.owner_ = this;
  return request;
}

// Everything that must be the same on all ranks.
std::string Group::details_of(const Transfer& transfer) const {
  const std::string_view type = trireme::name_of(transfer.in.dtype);
  std::string text = fmt::format("of {} {}", transfer.whole().count, type);
  if (transfer.kind == Kind::all_reduce || transfer.kind == Kind::reduce_scatter) {
    text += fmt::format(", {}", name_of_op(transfer.op));
  }
  if (transfer.kind == Kind::broadcast) {
    text += fmt::format(" from rank {}", transfer.peer);
  }
  return text;
}

void Group::finish(const Exec& exec, const Request& request) {
  const Timed timed(control_->timers());
  const auto begin = Clock::now();
  OperationBoard* const board = control_->board();
  if (board != nullptr) {
    board->enter({request.name_, request.site_, name().c_str(), request.sequence_,
                  request.elements_, request.peer_},
                 begin);
  }
  transport_->wait(exec, request.operation_);
  const auto end = Clock::now();
  if (board != nullptr) board->leave(end);
  control_->trace_call("wait", request.site_, begin, end);
  if (times_ != nullptr) times_->note_wait(request.record_, begin, end);
  if (!times_calls_) return;
  const double seconds = seconds_between(begin, end);
  traffic_ += {.seconds = seconds, .wait_seconds = seconds};
}

Request Group::start_all_reduce(const Exec& exec, Span data, Op op, Site site) {
  require_memory("all_reduce", exec, data);
  return start(exec, {Kind::all_reduce, data, data, op, 0, site});
}

void Group::require_blocks(const char* call, ConstSpan whole, ConstSpan block) const {
  TRIREME_REQUIRE(whole.count == block.count * size(),
                  "{} in group '{}': {} times a block of {} are {}; the whole has {}",
                  call, name(), format_plural(size(), "rank"),
                  format_plural(block.count, "element"), block.count * size(),
                  whole.count);
}

Request Group::start_reduce_scatter(const Exec& exec, ConstSpan in, Span out, Op op,
                                    Site site) {
  require_memory("reduce_scatter", exec, in);
  require_memory("reduce_scatter", exec, out);
  require_same_type("reduce_scatter", in, out);
  require_blocks("reduce_scatter", in, out);
  const index_t offset = out.count * rank();
  TRIREME_REQUIRE(
      exec.is_shape_only() || out.data == at(in, offset) || !overlap(in, out),
      "reduce_scatter in group '{}': the output overlaps the input and is not its "
      "block {}",
      name(), rank());
  return start(exec, {Kind::reduce_scatter, in, out, op, 0, site});
}

Request Group::start_all_gather(const Exec& exec, ConstSpan in, Span out, Site site) {
  require_memory("all_gather", exec, in);
  require_memory("all_gather", exec, out);
  require_same_type("all_gather", in, out);
  require_blocks("all_gather", out, in);
  const index_t offset = in.count * rank();
  TRIREME_REQUIRE(
      exec.is_shape_only() || in.data == at(out, offset) || !overlap(in, out),
      "all_gather in group '{}': the input overlaps the output and is not its "
      "block {}",
      name(), rank());
  return start(exec, {Kind::all_gather, in, out, Op::sum, 0, site});
}

void Group::all_to_all(const Exec& exec, ConstSpan in, Span out, Site site) {
  require_memory("all_to_all", exec, in);
  require_memory("all_to_all", exec, out);
  require_same_type("all_to_all", in, out);
  TRIREME_REQUIRE(in.count == out.count && in.count % size() == 0,
                  "all_to_all in group '{}': input {} and output {}; they must be equal "
                  "and divide over {}",
                  name(), in.count, format_plural(out.count, "element"),
                  format_plural(size(), "rank"));
  TRIREME_REQUIRE(!overlap(in, out), "all_to_all in group '{}': input and output overlap",
                  name());
  start(exec, {Kind::all_to_all, in, out, Op::sum, 0, site}).wait(exec);
}

void Group::broadcast(const Exec& exec, Span data, int root, Site site) {
  require_memory("broadcast", exec, data);
  control_->require_rank(root, "broadcast: root");
  start(exec, {Kind::broadcast, data, data, Op::sum, root, site}).wait(exec);
}

bool Group::is_open(const ChannelEnd& end) const {
  return std::find(open_.begin(), open_.end(), end) != open_.end();
}

void Group::open(const std::vector<ChannelEnd>& channels) {
  // " 3.1 4.1 ": the other ranks of this one's ends, and the numbers of the channels.
  const auto text_of = [](int peer, Channel channel) {
    return fmt::format(" {}.{} ", peer, static_cast<int>(channel));
  };
  if (size() == 1) return;
  std::string mine;
  for (const auto& [peer, channel] : channels) mine += text_of(peer, channel);
  const std::vector<std::string> all = control_->gather(mine);
  on_every_rank(*control_, [&] {
    for (const auto& [peer, channel] : channels) {
      control_->require_rank(peer, "channel: other end");
      TRIREME_REQUIRE(peer != rank(), "group '{}': a channel of rank {} to itself",
                      name(), rank());
      const std::string& theirs = all[static_cast<std::size_t>(peer)];
      TRIREME_REQUIRE(theirs.find(text_of(rank(), channel)) != std::string::npos,
                      "group '{}': of the channel '{}' between ranks {} and {} only the "
                      "first opens its end",
                      name(), name_of(channel), rank(), peer);
    }
  });
  std::vector<ChannelEnd> fresh;
  for (const ChannelEnd& end : channels) {
    if (is_open(end)) continue;
    open_.push_back(end);
    fresh.push_back(end);
  }
  transport_->open(fresh);
}

void Group::require_open(const char* call, const Exec& exec, const ChannelEnd& end,
                         Site site) const {
  TRIREME_REQUIRE(exec.is_shape_only() || is_open(end),
                  "{} in group '{}' ({}): rank {} has no open channel '{}' to rank {}; "
                  "both ends open() it first",
                  call, name(), site, rank(), name_of(end.channel), end.peer);
}

Request Group::start_send(const Exec& exec, ConstSpan data, int to, Site site,
                          Channel channel) {
  require_memory("send", exec, data);
  control_->require_rank(to, "send: receiver");
  TRIREME_REQUIRE(to != rank(), "send in group '{}': rank {} sends to itself", name(),
                  rank());
  require_open("send", exec, {to, channel}, site);
  return start(
      exec,
      {.kind = Kind::send, .in = data, .peer = to, .site = site, .channel = channel});
}

Request Group::start_recv(const Exec& exec, Span data, int from, Site site,
                          Channel channel) {
  require_memory("recv", exec, data);
  control_->require_rank(from, "recv: sender");
  TRIREME_REQUIRE(from != rank(), "recv in group '{}': rank {} receives from itself",
                  name(), rank());
  require_open("recv", exec, {from, channel}, site);
  return start(
      exec,
      {.kind = Kind::recv, .out = data, .peer = from, .site = site, .channel = channel});
}

}  // namespace trireme::comm
