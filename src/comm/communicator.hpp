// comm/communicator.hpp — what a group of ranks can do together, on device memory and on
// small host values.
//
// Operations on Spans are ordered on the Exec as kernels are: they see what was launched
// before, and what is launched after sees their result. Where messages pass through the
// host they are complete on return. On a shape-only Exec they check arguments and do
// nothing else. Every rank of a group makes the same calls in the same order.
//
// Reductions have a fixed order: the same group (size and placement on nodes) gives the
// same bits for the same call, and every rank the same bits. Values on the host are
// combined in rank order whatever the placement. docs: mpi_communicator.hpp says what MPI
// guarantees.
#ifndef TRIREME_COMM_COMMUNICATOR_HPP_
#define TRIREME_COMM_COMMUNICATOR_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/types.hpp"

namespace trireme::comm {

enum class Op { sum, max, min };

// Contiguous elements in device memory.
struct Span {
  void* data = nullptr;
  index_t count = 0;
  DType dtype = DType::float32;
  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
};
struct ConstSpan {
  const void* data = nullptr;
  index_t count = 0;
  DType dtype = DType::float32;
  ConstSpan() = default;
  ConstSpan(const void* data_, index_t count_, DType dtype_)
      : data(data_), count(count_), dtype(dtype_) {}
  ConstSpan(const Span& span) : data(span.data), count(span.count), dtype(span.dtype) {}
  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
};

// All elements of a contiguous View: Span, or ConstSpan where they are const.
template <class ViewType>
auto span_of(const ViewType& view) {
  using T = typename ViewType::value_type;
  constexpr DType type = dtype_of<std::remove_const_t<T>>;
  TRIREME_REQUIRE(view.span_is_contiguous(),
                  "messages are made of contiguous memory; view '{}' has gaps",
                  view.label());
  const auto count = static_cast<index_t>(view.size());
  if constexpr (std::is_const_v<T>) {
    return ConstSpan(view.data(), count, type);
  } else {
    return Span{view.data(), count, type};
  }
}

// What a group has sent so far: calls, payload bytes of this rank, host seconds spent.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  double seconds = 0.0;
};

class Communicator {
 public:
  // One communicator for each subset of axes of a Cartesian grid, see cartesian().
  struct SubGrid {
    std::string name;
    std::vector<bool> keep;  // per dimension: ranks of the group differ in these
  };

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  const Traffic& traffic() const { return traffic_; }
  void reset_traffic() { traffic_ = {}; }

  // data = op over ranks of data; in place.
  void all_reduce(const Exec& exec, Span data, Op op = Op::sum);
  // out = block `rank` of (op over ranks of in); in holds size() blocks of out.count. out
  // may be that block of in itself.
  void reduce_scatter(const Exec& exec, ConstSpan in, Span out, Op op = Op::sum);
  // out holds the in of every rank, in rank order; in may be block `rank` of out itself.
  void all_gather(const Exec& exec, ConstSpan in, Span out);
  // Block r of in goes to rank r, whose out gets it as block `rank`; no overlap of in and
  // out.
  void all_to_all(const Exec& exec, ConstSpan in, Span out);
  void broadcast(const Exec& exec, Span data, int root);
  // Point to point: messages between two ranks arrive in the order they were sent.
  // Between group_begin and group_end they progress together, so that neighbours may
  // exchange without an order between them; results are there after group_end.
  void send(const Exec& exec, ConstSpan data, int to);
  void recv(const Exec& exec, Span data, int from);
  void group_begin();
  void group_end(const Exec& exec);

  // Host side: all ranks have come here.
  void barrier();
  // Ranks of one colour form a group, ordered by key, then by rank. A negative colour:
  // this rank is in none, and gets nullptr.
  std::shared_ptr<Communicator> split(int colour, int key, const std::string& name);
  // Lays a Cartesian grid over the ranks without reordering them, the last extent
  // fastest, and returns for each sub-grid the group this rank is in.
  std::vector<std::shared_ptr<Communicator>> cartesian(const std::vector<int>& extents,
                                                       const std::vector<SubGrid>& grids);

  // Small values on the host, for setup and metrics; combined in rank order.
  double all_reduce(double value, Op op = Op::sum);
  std::int64_t all_reduce(std::int64_t value, Op op = Op::sum);
  // Element by element over vectors of one length.
  void all_reduce(std::vector<double>& values, Op op = Op::sum);
  // Sum of the values of the ranks before this one.
  std::int64_t exclusive_scan(std::int64_t value);
  std::vector<std::int64_t> gather(std::int64_t value);       // on every rank
  std::vector<double> gather(double value);                   // on every rank
  std::vector<std::string> gather(const std::string& value);  // on every rank
  void broadcast(std::string& value, int root = 0);
  void broadcast(std::int64_t& value, int root = 0);
  // True on every rank where it is true on any (all) of them.
  bool any(bool value) { return all_reduce(std::int64_t{value}, Op::max) != 0; }
  bool all(bool value) { return all_reduce(std::int64_t{value}, Op::min) != 0; }

  // A wait longer than this many seconds throws and says in which call; 0: wait for ever.
  virtual void set_timeout(double seconds) = 0;
  // Address of the MPI_Comm for libraries that want one (parallel HDF5); null without
  // MPI.
  virtual const void* native_handle() const = 0;

 protected:
  Communicator(int rank, int size, std::string name)
      : rank_(rank), size_(size), name_(std::move(name)) {}

  // The implementations; arguments have been checked and are not empty.
  virtual void do_all_reduce(const Exec& exec, Span data, Op op) = 0;
  virtual void do_reduce_scatter(const Exec& exec, ConstSpan in, Span out, Op op) = 0;
  virtual void do_all_gather(const Exec& exec, ConstSpan in, Span out) = 0;
  virtual void do_all_to_all(const Exec& exec, ConstSpan in, Span out) = 0;
  virtual void do_broadcast(const Exec& exec, Span data, int root) = 0;
  virtual void do_send(const Exec& exec, ConstSpan data, int to) = 0;
  virtual void do_recv(const Exec& exec, Span data, int from) = 0;
  virtual void do_group_begin() = 0;
  virtual void do_group_end(const Exec& exec) = 0;
  virtual void do_barrier() = 0;
  virtual std::shared_ptr<Communicator> do_split(int colour, int key,
                                                 const std::string& name) = 0;
  virtual std::vector<std::shared_ptr<Communicator>> do_cartesian(
      const std::vector<int>& extents, const std::vector<SubGrid>& grids) = 0;
  // Host memory: bytes from every rank, in rank order.
  virtual void host_all_gather(const void* in, void* out, std::size_t bytes) = 0;
  virtual void host_broadcast(void* data, std::size_t bytes, int root) = 0;

  int group_depth() const { return group_depth_; }

 private:
  class Account;
  template <class T>
  T reduce_value(T value, Op op);
  template <class T>
  std::vector<T> gather_value(T value);
  void require_rank(int rank, const char* what) const;

  int rank_, size_;
  std::string name_;
  Traffic traffic_;
  int group_depth_ = 0;
  std::vector<std::byte> scratch_;  // for host values; grown once
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_COMMUNICATOR_HPP_
