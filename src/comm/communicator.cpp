// comm/communicator.cpp — checks and accounting in front of every implementation, and the
// host values, which are built on two host primitives.
#include "comm/communicator.hpp"

#include <chrono>
#include <cstring>

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

bool overlap(ConstSpan a, ConstSpan b) {
  const auto* a0 = static_cast<const std::byte*>(a.data);
  const auto* b0 = static_cast<const std::byte*>(b.data);
  return a0 < b0 + b.bytes() && b0 < a0 + a.bytes();
}

void require_same_type(const char* call, ConstSpan in, ConstSpan out) {
  TRIREME_REQUIRE(in.dtype == out.dtype,
                  "{}: input is {}, output is {}; they must be the same", call,
                  trireme::name_of(in.dtype), trireme::name_of(out.dtype));
}

void require_memory(const char* call, const Exec& exec, ConstSpan span) {
  TRIREME_REQUIRE(span.count >= 0, "{}: a count of {} elements", call, span.count);
  TRIREME_REQUIRE(exec.is_shape_only() || span.count == 0 || span.data != nullptr,
                  "{}: {} elements without memory (a View of a shape-only pass?)", call,
                  span.count);
}

}  // namespace

// Counts one call, its payload and its time.
class Communicator::Account {
 public:
  Account(Traffic& traffic, std::size_t bytes)
      : traffic_(traffic), start_(std::chrono::steady_clock::now()) {
    traffic_.calls += 1;
    traffic_.bytes += static_cast<std::int64_t>(bytes);
  }
  ~Account() {
    const auto spent = std::chrono::steady_clock::now() - start_;
    traffic_.seconds += std::chrono::duration<double>(spent).count();
  }
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

 private:
  Traffic& traffic_;
  std::chrono::steady_clock::time_point start_;
};

void Communicator::require_rank(int rank, const char* what) const {
  TRIREME_REQUIRE(rank >= 0 && rank < size_,
                  "{} of group '{}': rank {} is not one of its {}", what, name_, rank,
                  size_);
}

void Communicator::all_reduce(const Exec& exec, Span data, Op op) {
  require_memory("all_reduce", exec, data);
  if (exec.is_shape_only() || data.count == 0) return;
  const Account account(traffic_, data.bytes());
  do_all_reduce(exec, data, op);
}

void Communicator::reduce_scatter(const Exec& exec, ConstSpan in, Span out, Op op) {
  require_memory("reduce_scatter", exec, in);
  require_memory("reduce_scatter", exec, out);
  require_same_type("reduce_scatter", in, out);
  TRIREME_REQUIRE(
      in.count == out.count * size_,
      "reduce_scatter in group '{}': the input has {} elements; {} ranks times an "
      "output of {} are {}",
      name_, in.count, size_, out.count, out.count * size_);
  if (exec.is_shape_only() || out.count == 0) return;
  const auto* own = static_cast<const std::byte*>(in.data) + out.bytes() * rank_;
  TRIREME_REQUIRE(
      out.data == own || !overlap(in, out),
      "reduce_scatter in group '{}': the output overlaps the input and is not its "
      "block {}",
      name_, rank_);
  const Account account(traffic_, in.bytes());
  do_reduce_scatter(exec, in, out, op);
}

void Communicator::all_gather(const Exec& exec, ConstSpan in, Span out) {
  require_memory("all_gather", exec, in);
  require_memory("all_gather", exec, out);
  require_same_type("all_gather", in, out);
  TRIREME_REQUIRE(
      out.count == in.count * size_,
      "all_gather in group '{}': the output has {} elements; {} ranks times an "
      "input of {} are {}",
      name_, out.count, size_, in.count, in.count * size_);
  if (exec.is_shape_only() || in.count == 0) return;
  const auto* own = static_cast<const std::byte*>(out.data) + in.bytes() * rank_;
  TRIREME_REQUIRE(
      in.data == own || !overlap(in, out),
      "all_gather in group '{}': the input overlaps the output and is not its "
      "block {}",
      name_, rank_);
  const Account account(traffic_, out.bytes());
  do_all_gather(exec, in, out);
}

void Communicator::all_to_all(const Exec& exec, ConstSpan in, Span out) {
  require_memory("all_to_all", exec, in);
  require_memory("all_to_all", exec, out);
  require_same_type("all_to_all", in, out);
  TRIREME_REQUIRE(
      in.count == out.count && in.count % size_ == 0,
      "all_to_all in group '{}': input {} and output {} elements; they must be "
      "equal and divide over {} ranks",
      name_, in.count, out.count, size_);
  if (exec.is_shape_only() || in.count == 0) return;
  TRIREME_REQUIRE(!overlap(in, out), "all_to_all in group '{}': input and output overlap",
                  name_);
  const Account account(traffic_, in.bytes());
  do_all_to_all(exec, in, out);
}

void Communicator::broadcast(const Exec& exec, Span data, int root) {
  require_memory("broadcast", exec, data);
  require_rank(root, "broadcast: root");
  if (exec.is_shape_only() || data.count == 0) return;
  const Account account(traffic_, data.bytes());
  do_broadcast(exec, data, root);
}

void Communicator::send(const Exec& exec, ConstSpan data, int to) {
  require_memory("send", exec, data);
  require_rank(to, "send: receiver");
  TRIREME_REQUIRE(to != rank_, "send in group '{}': rank {} sends to itself", name_,
                  rank_);
  if (exec.is_shape_only() || data.count == 0) return;
  const Account account(traffic_, data.bytes());
  do_send(exec, data, to);
}

void Communicator::recv(const Exec& exec, Span data, int from) {
  require_memory("recv", exec, data);
  require_rank(from, "recv: sender");
  TRIREME_REQUIRE(from != rank_, "recv in group '{}': rank {} receives from itself",
                  name_, rank_);
  if (exec.is_shape_only() || data.count == 0) return;
  const Account account(traffic_, 0);  // the sender counts the bytes
  do_recv(exec, data, from);
}

void Communicator::group_begin() {
  if (group_depth_++ == 0) do_group_begin();
}

void Communicator::group_end(const Exec& exec) {
  TRIREME_REQUIRE(group_depth_ > 0, "group_end of group '{}' without group_begin", name_);
  if (--group_depth_ > 0) return;
  const Account account(traffic_, 0);
  do_group_end(exec);
}

void Communicator::barrier() {
  const Account account(traffic_, 0);
  do_barrier();
}

std::shared_ptr<Communicator> Communicator::split(int colour, int key,
                                                  const std::string& name) {
  return do_split(colour, key, name);
}

std::vector<std::shared_ptr<Communicator>> Communicator::cartesian(
    const std::vector<int>& extents, const std::vector<SubGrid>& grids) {
  index_t total = 1;
  for (const int extent : extents) {
    TRIREME_REQUIRE(extent >= 1, "a process grid with an extent of {}", extent);
    total *= extent;
  }
  TRIREME_REQUIRE(total == size_, "a process grid of {} ranks over group '{}' of {}",
                  total, name_, size_);
  for (const SubGrid& grid : grids) {
    TRIREME_REQUIRE(grid.keep.size() == extents.size(),
                    "sub-grid '{}' names {} dimensions of a grid that has {}", grid.name,
                    grid.keep.size(), extents.size());
  }
  return do_cartesian(extents, grids);
}

template <class T>
T Communicator::reduce_value(T value, Op op) {
  if (size_ == 1) return value;
  scratch_.resize(sizeof(T) * static_cast<std::size_t>(size_));
  const Account account(traffic_, sizeof(T));
  host_all_gather(&value, scratch_.data(), sizeof(T));
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
  const Account account(traffic_, sizeof(T));
  host_all_gather(&value, all.data(), sizeof(T));
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
  const Account account(traffic_, row);
  host_all_gather(values.data(), scratch_.data(), row);
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

std::vector<std::string> Communicator::gather(const std::string& value) {
  // Texts are padded to the longest: they are few and short (host names, messages).
  const auto length = static_cast<std::int64_t>(value.size());
  const std::vector<std::int64_t> lengths = gather(length);
  std::int64_t longest = 0;
  for (const std::int64_t other : lengths) longest = std::max(longest, other);
  std::vector<std::string> texts(lengths.size());
  if (longest == 0) return texts;
  const auto row = static_cast<std::size_t>(longest);
  std::string padded = value;
  padded.resize(row);
  std::string all(row * lengths.size(), '\0');
  const Account account(traffic_, row);
  host_all_gather(padded.data(), all.data(), row);
  for (std::size_t r = 0; r < texts.size(); ++r) {
    texts[r] = all.substr(row * r, static_cast<std::size_t>(lengths[r]));
  }
  return texts;
}

void Communicator::broadcast(std::string& value, int root) {
  auto length = static_cast<std::int64_t>(value.size());
  broadcast(length, root);
  value.resize(static_cast<std::size_t>(length));
  if (length == 0 || size_ == 1) return;
  const Account account(traffic_, value.size());
  host_broadcast(value.data(), value.size(), root);
}

void Communicator::broadcast(std::int64_t& value, int root) {
  require_rank(root, "broadcast: root");
  if (size_ == 1) return;
  const Account account(traffic_, sizeof(value));
  host_broadcast(&value, sizeof(value), root);
}

}  // namespace trireme::comm
