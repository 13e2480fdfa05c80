// comm/communicator.cpp — host values, built on three host primitives, and what every
// implementation does before a call that all ranks make: count it, note it on the board,
// and where asked compare it over the ranks.
//
// Reductions of host values gather all of them and combine them in the order of the
// ranks, so that every rank gets the same bits, which MPI only recommends of its own
// reductions. They may be gathered because they are few and small. An implementation has
// only to gather, broadcast and split.
#include "comm/communicator.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/plural.hpp"
#include "base/timers.hpp"
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

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ull;
  }
  return hash;
}

}  // namespace

// Counts one call that all ranks make; on the board it stands while it lasts.
class Communicator::Noted {
 public:
  Noted(Communicator& owner, const char* operation)
      : owner_(owner), operation_(operation), start_(Clock::now()) {
    const std::int64_t number = owner.count_call();
    if (OperationBoard* board = owner_.board()) {
      board->enter({operation, "", owner_.name_.c_str(), number, 0, -1}, start_);
    }
  }
  ~Noted() {
    const auto end = Clock::now();
    if (OperationBoard* board = owner_.board()) board->leave(end);
    owner_.trace_call(operation_, "", start_, end);
  }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  Communicator& owner_;
  const char* operation_;
  Clock::time_point start_;
};

Trace* Communicator::trace() const {
  return timers() == nullptr ? nullptr : timers()->trace();
}

void Communicator::trace_call(const char* name, Site site, Clock::time_point begin,
                              Clock::time_point end) const {
  // Calls that take less could not be seen on a timeline.
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

void Communicator::before_messages(std::function<void(const std::string& group)> call) {
  if (recorders_ != nullptr) recorders_->before_message = std::move(call);
}

// Ranks that call different things would exchange garbage or wait for ever. Therefore
// they first tell each other a checksum of the call, and where these differ, the call
// itself.
void Communicator::require_same_call(const char* operation, Site site,
                                     const std::string& details) {
  if (size_ == 1 || !checks_calls()) return;
  std::string call = operation;
  if (!details.empty()) call += " " + details;
  if (*site != '\0') call += fmt::format(" ({})", site);
  const std::uint64_t own = hash_of(fmt::format("{}: {}", calls_, call));
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size_));
  host_all_gather(&own, all.data(), sizeof(own), operation, site);
  if (std::all_of(all.begin(), all.end(), [&](auto other) { return other == own; })) {
    return;
  }
  constexpr std::size_t kLongest = 240;
  call = fmt::format("call {}, {}", calls_, call);
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
  const Noted noted(*this, kName);
  if (checks_calls())
    require_same_call(kName, "", fmt::format("of {}", format_plural(bytes, "byte")));
  host_all_gather(in, out, bytes, kName, "");
}

void Communicator::gather_to_first_on_host(const void* in, void* out, std::size_t bytes) {
  constexpr const char* kName = "gather of host values to rank 0";
  const Noted noted(*this, kName);
  if (checks_calls())
    require_same_call(kName, "", fmt::format("of {}", format_plural(bytes, "byte")));
  host_gather(in, out, bytes, kName);
}

void Communicator::broadcast_on_host(void* data, std::size_t bytes, int root) {
  constexpr const char* kName = "broadcast of a host value";
  const Noted noted(*this, kName);
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

void Communicator::barrier() {
  const Noted noted(*this, "barrier");
  require_same_call("barrier", "", "");
  do_barrier();
}

std::shared_ptr<Communicator> Communicator::split(int colour, int key,
                                                  const std::string& name) {
  const Noted noted(*this, "split");
  require_same_call("split", "", fmt::format("into groups '{}'", name));
  return do_split(colour, key, name);
}

std::shared_ptr<Communicator> Communicator::subset(const std::vector<int>& ranks,
                                                   const std::string& name) {
  for (const int rank : ranks) require_rank(rank, "subset");
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  const int number = found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
  const Noted noted(*this, "split");
  require_same_call("split", "", fmt::format("into groups '{}'", name));
  return do_subset(number, static_cast<int>(ranks.size()), name);
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
  const Noted noted(*this, "cartesian");
  require_same_call("cartesian", "", fmt::format("of {}", fmt::join(extents, " x ")));
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
