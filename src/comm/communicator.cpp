// comm/communicator.cpp — checks and accounting in front of every implementation, and the
// host values, which are built on two host primitives.
#include "comm/communicator.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/plural.hpp"
#include "comm/operation_board.hpp"
#include "comm/rank_list.hpp"

namespace trireme::comm {
namespace {

template <class T>
T combine(T a, T b, Op op) {
  switch (op) {
    case Op::sum:
      return a + b;
    case Op::max:  // a NaN must not be lost
      return a != a || a > b ? a : b;
    case Op::min:
      return a != a || a < b ? a : b;
  }
  throw Error("combine: not an Op");
}

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

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ull;
  }
  return hash;
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
    // The communicator itself says to a trace what it was.
    if (timers != nullptr) {
      region_.emplace(*timers, Section::communication, RegionLabel{.name = ""});
    }
  }

 private:
  std::optional<Region> region_;
};

}  // namespace

// Counts one call, its payload and its time; on the board it stands while it lasts.
class Communicator::Account {
 public:
  Account(Communicator& owner, const char* operation, std::size_t bytes,
          index_t elements = 0, int peer = -1)
      : owner_(owner), operation_(operation), start_(Clock::now()) {
    owner_.traffic_.calls += 1;
    owner_.traffic_.bytes += static_cast<std::int64_t>(bytes);
    if (OperationBoard* board = owner_.board()) {
      board->enter(
          {operation, "", owner_.name_.c_str(), owner_.sequence_, elements, peer},
          start_);
    }
  }
  ~Account() {
    const auto end = Clock::now();
    owner_.traffic_.seconds += seconds_between(start_, end);
    if (OperationBoard* board = owner_.board()) board->leave(end);
    owner_.trace_call(operation_, "", start_, end);
  }
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

 private:
  Communicator& owner_;
  const char* operation_;
  Clock::time_point start_;
};

void Communicator::trace_call(const char* name, Site site, Clock::time_point begin,
                              Clock::time_point end) const {
  // What takes less is not to be seen on a timeline.
  constexpr auto kShortest = std::chrono::microseconds(5);
  Trace* const trace = this->trace();
  if (trace == nullptr || end - begin < kShortest) return;
  trace->add({.name = name, .detail = site, .begin = begin, .end = end});
}

void Communicator::attach(std::shared_ptr<OperationBoard> board) {
  if (recorders_ != nullptr) recorders_->board = std::move(board);
}

void Communicator::charge_to(Timers* timers) {
  if (recorders_ != nullptr) recorders_->timers = timers;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  calls += other.calls;
  elements += other.elements;
  bytes += other.bytes;
  seconds += other.seconds;
  wait_seconds += other.wait_seconds;
  under_way_seconds += other.under_way_seconds;
  progress_seconds += other.progress_seconds;
  return *this;
}

void Communicator::note_completed(Clock::time_point now) {
  // A rank alone counts nothing.
  if (under_way_ == 0 || --under_way_ > 0) return;
  traffic_.under_way_seconds += seconds_between(under_way_since_, now);
}

// Ranks that call different things would exchange garbage, or wait for ever: first they
// tell each other a checksum of the call, and where that differs, the call.
void Communicator::require_same_call(const char* operation, Site site,
                                     const std::string& details) {
  if (size_ == 1 || !checks_calls()) return;
  std::string call = operation;
  if (!details.empty()) call += " " + details;
  if (*site != '\0') call += fmt::format(" ({})", site);
  const std::uint64_t own = hash_of(fmt::format("{}: {}", sequence_, call));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size_));
  host_all_gather(&own, all.data(), sizeof(own), operation, site);
  if (std::all_of(all.begin(), all.end(), [&](auto other) { return other == own; })) {
    return;
  }
  constexpr std::size_t kLongest = 240;
  call = fmt::format("call {}, {}", sequence_, call);
  call.resize(kLongest);
  std::vector<char> texts(kLongest * all.size());
  host_all_gather(call.data(), texts.data(), kLongest, operation, site);
  std::vector<std::string> calls;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const char* text = texts.data() + kLongest * r;
    calls.emplace_back(text, ::strnlen(text, kLongest));
  }
  throw Error(
      fmt::format("the ranks of group '{}' make different calls where all must make the "
                  "same: {}",
                  name_, grouped_by_text(calls)));
}

void Communicator::gather_on_host(const void* in, void* out, std::size_t bytes) {
  constexpr const char* kName = "gather of host values";
  sequence_ += 1;
  const Account account(*this, kName, bytes);
  if (checks_calls())
    require_same_call(kName, "", fmt::format("of {}", format_plural(bytes, "byte")));
  host_all_gather(in, out, bytes, kName, "");
}

void Communicator::gather_to_first_on_host(const void* in, void* out, std::size_t bytes) {
  constexpr const char* kName = "gather of host values to rank 0";
  sequence_ += 1;
  const Account account(*this, kName, bytes);
  if (checks_calls())
    require_same_call(kName, "", fmt::format("of {}", format_plural(bytes, "byte")));
  host_gather(in, out, bytes, kName);
}

void Communicator::broadcast_on_host(void* data, std::size_t bytes, int root) {
  constexpr const char* kName = "broadcast of a host value";
  sequence_ += 1;
  const Account account(*this, kName, bytes);
  if (checks_calls()) {
    require_same_call(
        kName, "", fmt::format("of {} from rank {}", format_plural(bytes, "byte"), root));
  }
  host_broadcast(data, bytes, root);
}

void Communicator::require_rank(int rank, const char* what) const {
  TRIREME_REQUIRE(rank >= 0 && rank < size_,
                  "{} of group '{}': rank {} is not one of its {}", what, name_, rank,
                  size_);
}

const char* Communicator::name_of(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::all_gather:
      return "all_gather";
    case Kind::all_to_all:
      return "all_to_all";
    case Kind::broadcast:
      return "broadcast";
    case Kind::send:
      return "send";
    case Kind::recv:
      return "recv";
  }
  throw Error("name_of: not a Kind");
}

void Request::wait() {
  if (owner_ == nullptr) return;
  std::exchange(owner_, nullptr)->finish(*this);
}

void Communicator::reset_traffic() {
  traffic_ = {};
  for (SiteTraffic& site : sites_) site.traffic = {};
}

std::size_t Communicator::account_of(Site site, const char* operation) {
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    const SiteTraffic& known = sites_[i];
    const bool same = known.site == site || std::strcmp(known.site, site) == 0;
    if (same && known.operation == operation) return i;
  }
  sites_.push_back({site, operation, {}});
  return sites_.size() - 1;
}

// The payload of a collective is its whole buffer: the larger of its two sides. Of a
// message between two ranks the sender counts it.
Request Communicator::start(const Exec& exec, const Transfer& transfer) {
  Request request;
  const ConstSpan in = transfer.in;
  const ConstSpan out = transfer.out;
  const ConstSpan whole = in.count > out.count ? in : out;
  if (exec.is_shape_only() && !counts_shapes()) return request;
  if (size_ == 1) {  // nothing is sent
    if (exec.is_shape_only() || whole.count == 0) return request;
    const int alone = do_start(exec, transfer);
    if (alone != kComplete) do_wait(alone);
    return request;
  }
  const Timed timed(timers());
  const auto begin = Clock::now();
  const char* name = name_of(transfer.kind);
  const int peer = transfer.is_between_two() ? transfer.peer : -1;
  OperationBoard* const board = exec.is_shape_only() ? nullptr : this->board();
  if (!exec.is_shape_only()) {
    if (!transfer.is_between_two()) sequence_ += 1;
    if (board != nullptr) {
      board->enter({name, transfer.site, name_.c_str(), sequence_, whole.count, peer},
                   begin);
    }
    if (checks_calls() && !transfer.is_between_two()) {
      require_same_call(name, transfer.site, details_of(transfer));
    }
  }
  int operation = kComplete;
  if (!exec.is_shape_only() && whole.count > 0) operation = do_start(exec, transfer);
  if (operation != kComplete && under_way_++ == 0) under_way_since_ = begin;
  const auto end = Clock::now();
  if (board != nullptr) board->leave(end);
  trace_call("begin", transfer.site, begin, end);
  if (whole.count == 0) return request;
  const std::size_t account = account_of(transfer.site, name);
  const bool counts = transfer.kind != Kind::recv;
  const Traffic one{.calls = 1,
                    .elements = counts ? whole.count : 0,
                    .bytes = counts ? static_cast<std::int64_t>(whole.bytes()) : 0,
                    .seconds = seconds_between(begin, end)};
  for (Traffic* traffic : {&traffic_, &sites_[account].traffic}) *traffic += one;
  if (operation == kComplete) return request;
  request.owner_ = this;
  request.operation_ = operation;
  request.account_ = account;
  request.elements_ = whole.count;
  request.peer_ = peer;
  request.sequence_ = sequence_;
  return request;
}

// Everything that must be the same on all ranks.
std::string Communicator::details_of(const Transfer& transfer) const {
  const index_t count = std::max(transfer.in.count, transfer.out.count);
  const std::string_view type = trireme::name_of(transfer.in.dtype);
  std::string text = fmt::format("of {} {}", count, type);
  if (transfer.kind == Kind::all_reduce || transfer.kind == Kind::reduce_scatter) {
    text += fmt::format(", {}", name_of_op(transfer.op));
  }
  if (transfer.kind == Kind::broadcast) {
    text += fmt::format(" from rank {}", transfer.peer);
  }
  if (transfer.cuts == nullptr) return text;
  const std::string cuts =
      fmt::format("{}", fmt::join(transfer.cuts, transfer.cuts + size_ + 1, ", "));
  constexpr std::size_t kLongest = 80;
  return text + (cuts.size() <= kLongest
                     ? fmt::format(", cut at {}", cuts)
                     : fmt::format(", cuts of checksum {:016x}", hash_of(cuts)));
}

void Communicator::finish(const Request& request) {
  const Timed timed(timers());
  const auto begin = Clock::now();
  OperationBoard* const board = this->board();
  if (board != nullptr) {
    const SiteTraffic& site = sites_[request.account_];
    board->enter({site.operation, site.site, name_.c_str(), request.sequence_,
                  request.elements_, request.peer_},
                 begin);
  }
  do_wait(request.operation_);
  const auto end = Clock::now();
  if (board != nullptr) board->leave(end);
  trace_call("wait", sites_[request.account_].site, begin, end);
  const double seconds = seconds_between(begin, end);
  const Traffic one{.seconds = seconds, .wait_seconds = seconds};
  for (Traffic* traffic : {&traffic_, &sites_[request.account_].traffic}) *traffic += one;
}

Request Communicator::start_all_reduce(const Exec& exec, Span data, Op op, Site site) {
  require_memory("all_reduce", exec, data);
  return start(exec, {Kind::all_reduce, data, data, op, 0, nullptr, site});
}

void Communicator::require_blocks(const char* call, ConstSpan whole, ConstSpan block,
                                  Cuts cuts) const {
  if (cuts == nullptr) {
    TRIREME_REQUIRE(whole.count == block.count * size_,
                    "{} in group '{}': {} times a block of {} are {}; the whole has {}",
                    call, name_, format_plural(size_, "rank"),
                    format_plural(block.count, "element"), block.count * size_,
                    whole.count);
    return;
  }
  const index_t own = cuts[rank_ + 1] - cuts[rank_];
  TRIREME_REQUIRE(cuts[0] == 0 && cuts[size_] == whole.count && own == block.count,
                  "{} in group '{}': the cuts go from {} to {} with {} for rank {}; the "
                  "whole has {}, its block {}",
                  call, name_, cuts[0], cuts[size_], format_plural(own, "element"), rank_,
                  whole.count, block.count);
}

Request Communicator::start_reduce_scatter(const Exec& exec, ConstSpan in, Span out,
                                           Op op, Site site, Cuts cuts) {
  require_memory("reduce_scatter", exec, in);
  require_memory("reduce_scatter", exec, out);
  require_same_type("reduce_scatter", in, out);
  require_blocks("reduce_scatter", in, out, cuts);
  const index_t place = cuts == nullptr ? out.count * rank_ : cuts[rank_];
  TRIREME_REQUIRE(
      exec.is_shape_only() || out.data == at(in, place) || !overlap(in, out),
      "reduce_scatter in group '{}': the output overlaps the input and is not its "
      "block {}",
      name_, rank_);
  return start(exec, {Kind::reduce_scatter, in, out, op, 0, cuts, site});
}

Request Communicator::start_all_gather(const Exec& exec, ConstSpan in, Span out,
                                       Site site, Cuts cuts) {
  require_memory("all_gather", exec, in);
  require_memory("all_gather", exec, out);
  require_same_type("all_gather", in, out);
  require_blocks("all_gather", out, in, cuts);
  const index_t place = cuts == nullptr ? in.count * rank_ : cuts[rank_];
  TRIREME_REQUIRE(
      exec.is_shape_only() || in.data == at(out, place) || !overlap(in, out),
      "all_gather in group '{}': the input overlaps the output and is not its "
      "block {}",
      name_, rank_);
  return start(exec, {Kind::all_gather, in, out, Op::sum, 0, cuts, site});
}

void Communicator::all_to_all(const Exec& exec, ConstSpan in, Span out, Site site) {
  require_memory("all_to_all", exec, in);
  require_memory("all_to_all", exec, out);
  require_same_type("all_to_all", in, out);
  TRIREME_REQUIRE(in.count == out.count && in.count % size_ == 0,
                  "all_to_all in group '{}': input {} and output {}; they must be equal "
                  "and divide over {}",
                  name_, in.count, format_plural(out.count, "element"),
                  format_plural(size_, "rank"));
  TRIREME_REQUIRE(!overlap(in, out), "all_to_all in group '{}': input and output overlap",
                  name_);
  start(exec, {Kind::all_to_all, in, out, Op::sum, 0, nullptr, site}).wait();
}

void Communicator::broadcast(const Exec& exec, Span data, int root, Site site) {
  require_memory("broadcast", exec, data);
  require_rank(root, "broadcast: root");
  start(exec, {Kind::broadcast, data, data, Op::sum, root, nullptr, site}).wait();
}

Request Communicator::start_send(const Exec& exec, ConstSpan data, int to, Site site,
                                 int tag) {
  require_memory("send", exec, data);
  require_rank(to, "send: receiver");
  TRIREME_REQUIRE(to != rank_, "send in group '{}': rank {} sends to itself", name_,
                  rank_);
  return start(
      exec,
      {.kind = Kind::send, .in = data, .out = {}, .peer = to, .site = site, .tag = tag});
}

Request Communicator::start_recv(const Exec& exec, Span data, int from, Site site,
                                 int tag) {
  require_memory("recv", exec, data);
  require_rank(from, "recv: sender");
  TRIREME_REQUIRE(from != rank_, "recv in group '{}': rank {} receives from itself",
                  name_, rank_);
  return start(exec, {.kind = Kind::recv,
                      .in = {},
                      .out = data,
                      .peer = from,
                      .site = site,
                      .tag = tag});
}

void Communicator::barrier() {
  sequence_ += 1;
  const Account account(*this, "barrier", 0);
  require_same_call("barrier", "", "");
  do_barrier();
}

std::shared_ptr<Communicator> Communicator::split(int colour, int key,
                                                  const std::string& name) {
  sequence_ += 1;
  const Account account(*this, "split", 0);
  require_same_call("split", "", fmt::format("into groups '{}'", name));
  if (size_ > 1) do_barrier();  // MPI's own call would wait for ever for a rank that died
  return do_split(colour, key, name);
}

std::vector<std::shared_ptr<Communicator>> Communicator::cartesian(
    const std::vector<int>& extents, const std::vector<SubGrid>& grids) {
  index_t total = 1;
  for (const int extent : extents) {
    TRIREME_REQUIRE(extent >= 1, "a process grid with an extent of {}", extent);
    total *= extent;
  }
  TRIREME_REQUIRE(total == size_, "a process grid of {} over group '{}' of {}",
                  format_plural(total, "rank"), name_, size_);
  for (const SubGrid& grid : grids) {
    TRIREME_REQUIRE(grid.keep.size() == extents.size(),
                    "sub-grid '{}' names {} of a grid that has {}", grid.name,
                    format_plural(grid.keep.size(), "dimension"), extents.size());
  }
  sequence_ += 1;
  const Account account(*this, "cartesian", 0);
  require_same_call("cartesian", "", fmt::format("of {}", fmt::join(extents, " x ")));
  if (size_ > 1) do_barrier();
  return do_cartesian(extents, grids);
}

template <class T>
T Communicator::reduce_value(T value, Op op) {
  if (size_ == 1) return value;
  scratch_.resize(sizeof(T) * static_cast<std::size_t>(size_));
  gather_on_host(&value, scratch_.data(), sizeof(T));
  T result;
  std::memcpy(&result, scratch_.data(), sizeof(T));
  for (int r = 1; r < size_; ++r) {
    T other;
    std::memcpy(&other, scratch_.data() + sizeof(T) * r, sizeof(T));
    result = combine(result, other, op);
  }
  return result;
}

template <class T>
std::vector<T> Communicator::gather_value(T value) {
  std::vector<T> all(static_cast<std::size_t>(size_));
  gather_on_host(&value, all.data(), sizeof(T));
  return all;
}

double Communicator::all_reduce(double value, Op op) {
  return reduce_value(value, op);
}

std::int64_t Communicator::all_reduce(std::int64_t value, Op op) {
  return reduce_value(value, op);
}

void Communicator::all_reduce(std::vector<double>& values, Op op) {
  if (size_ == 1 || values.empty()) return;
  const std::size_t row = sizeof(double) * values.size();
  scratch_.resize(row * static_cast<std::size_t>(size_));
  gather_on_host(values.data(), scratch_.data(), row);
  std::memcpy(values.data(), scratch_.data(), row);
  for (int r = 1; r < size_; ++r) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      double other;
      std::memcpy(&other, scratch_.data() + row * r + sizeof(double) * i, sizeof(double));
      values[i] = combine(values[i], other, op);
    }
  }
}

std::int64_t Communicator::exclusive_scan(std::int64_t value) {
  std::int64_t before = 0;
  const std::vector<std::int64_t> all = gather(value);
  for (int r = 0; r < rank_; ++r) before += all[static_cast<std::size_t>(r)];
  return before;
}

std::vector<std::int64_t> Communicator::gather(std::int64_t value) {
  return gather_value(value);
}

std::vector<double> Communicator::gather(double value) {
  return gather_value(value);
}

// Texts are padded to the longest. `is_mine`: this rank gets them.
template <class Gather>
std::vector<std::string> Communicator::gather_texts(const std::string& value,
                                                    bool is_mine,
                                                    const Gather& gather_rows) {
  const auto length = static_cast<std::int64_t>(value.size());
  const std::vector<std::int64_t> lengths = gather(length);
  std::int64_t longest = 0;
  for (const std::int64_t other : lengths) longest = std::max(longest, other);
  std::vector<std::string> texts(is_mine ? lengths.size() : 0);
  if (longest == 0) return texts;
  const auto row = static_cast<std::size_t>(longest);
  std::string padded = value;
  padded.resize(row);
  std::string all(row * texts.size(), '\0');
  gather_rows(padded.data(), is_mine ? all.data() : nullptr, row);
  for (std::size_t r = 0; r < texts.size(); ++r) {
    texts[r] = all.substr(row * r, static_cast<std::size_t>(lengths[r]));
  }
  return texts;
}

std::vector<std::string> Communicator::gather(const std::string& value) {
  return gather_texts(value, true, [&](const void* in, void* out, std::size_t bytes) {
    gather_on_host(in, out, bytes);
  });
}

std::vector<std::string> Communicator::gather_to_first(const std::string& value) {
  return gather_texts(value, rank_ == 0,
                      [&](const void* in, void* out, std::size_t bytes) {
                        gather_to_first_on_host(in, out, bytes);
                      });
}

void Communicator::broadcast(std::string& value, int root) {
  auto length = static_cast<std::int64_t>(value.size());
  broadcast(length, root);
  value.resize(static_cast<std::size_t>(length));
  if (length == 0 || size_ == 1) return;
  broadcast_on_host(value.data(), value.size(), root);
}

void Communicator::broadcast(std::int64_t& value, int root) {
  require_rank(root, "broadcast: root");
  if (size_ == 1) return;
  broadcast_on_host(&value, sizeof(value), root);
}

}  // namespace trireme::comm
