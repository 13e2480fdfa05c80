// comm/communicator.hpp — what a group of ranks can do together, on device memory and on
// small host values.
//
// Operations on Spans are ordered on the Exec as kernels are: they see what was launched
// before, and what is launched after sees their result. Where messages pass through the
// host they are complete on return; begun by start_...(), they are complete after
// Request::wait(), and what is launched in between runs beside them. On a shape-only Exec
// they check arguments and do nothing else. Every rank of a group makes the same calls in
// the same order.
//
// Reductions have a fixed order: the same group (size and placement on nodes) gives the
// same bits for the same call, and every rank the same bits. Values on the host are
// combined in rank order whatever the placement. docs: mpi_communicator.hpp says what MPI
// guarantees.
#ifndef TRIREME_COMM_COMMUNICATOR_HPP_
#define TRIREME_COMM_COMMUNICATOR_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/timers.hpp"
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
  // Not size(), which is 0 for a View without memory (a shape-only pass).
  index_t count = 1;
  for (std::size_t r = 0; r < ViewType::rank(); ++r) {
    count *= static_cast<index_t>(view.extent(r));
  }
  if constexpr (std::is_const_v<T>) {
    return ConstSpan(view.data(), count, type);
  } else {
    return Span{view.data(), count, type};
  }
}

// Names the place in the program that sends, for accounts and messages: a
// literal, e.g. "column-parallel input gradient".
using Site = const char*;

// Blocks of unequal size that lie side by side: block r is the elements [cuts[r],
// cuts[r + 1]) of the whole. size() + 1 numbers from 0, the same on every rank; they must
// stay where they are until the operation is complete.
using Cuts = const index_t*;

using Clock = std::chrono::steady_clock;

// What a group has sent so far, and what one site of it has: calls, payload of this rank
// (of the whole buffer, for collectives), host seconds in the calls.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  double seconds = 0.0;       // beginning and waiting
  double wait_seconds = 0.0;  // of these, waiting: what was not hidden behind other work
  // Of a group, not of its sites: how long at least one operation was under way, and how
  // long progress() took meanwhile.
  double under_way_seconds = 0.0;
  double progress_seconds = 0.0;

  Traffic& operator+=(const Traffic& other);
};
struct SiteTraffic {
  Site site = "";
  const char* operation = "";
  Traffic traffic;
};

class Communicator;
class OperationBoard;

// Held by all groups of one world together: where this rank notes what it is doing, and
// for how long.
struct Recorders {
  std::shared_ptr<OperationBoard> board;
  Timers* timers = nullptr;
};

// An operation under way. Until wait() its input must not be written and its output not
// touched. One that was never waited for is abandoned (only an error does that).
class Request {
 public:
  Request() = default;  // nothing under way
  Request(Request&& other) noexcept { *this = std::move(other); }
  Request& operator=(Request&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(operation_, other.operation_);
    std::swap(account_, other.account_);
    std::swap(elements_, other.elements_);
    std::swap(peer_, other.peer_);
    std::swap(sequence_, other.sequence_);
    return *this;
  }
  bool under_way() const { return owner_ != nullptr; }
  // The result is there for what is launched from now on.
  void wait();

 private:
  friend class Communicator;
  Communicator* owner_ = nullptr;
  int operation_ = 0;
  std::size_t account_ = 0;
  index_t elements_ = 0;
  int peer_ = -1;  // of a message between two ranks
  std::int64_t sequence_ = 0;
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
  // The same by site, in the order of their first calls; host values are not in it.
  const std::vector<SiteTraffic>& traffic_by_site() const { return sites_; }
  void reset_traffic();
  // From now on every group of this group's world notes on the board what it does; null:
  // no more. Groups of one rank send nothing and note nothing.
  void attach(std::shared_ptr<OperationBoard> board);
  // The same for the time in operations on device memory, which is Section::communication
  // of these timers.
  void charge_to(Timers* timers);
  // Host memory that operations keep for themselves: copies of what is sent and received.
  virtual std::size_t staging_bytes() const { return 0; }

  // data = op over ranks of data; in place.
  void all_reduce(const Exec& exec, Span data, Op op = Op::sum, Site site = "") {
    start_all_reduce(exec, data, op, site).wait();
  }
  // out = block `rank` of (op over ranks of in); in holds size() blocks of out.count, or
  // those of `cuts`. out may be that block of in itself.
  void reduce_scatter(const Exec& exec, ConstSpan in, Span out, Op op = Op::sum,
                      Site site = "", Cuts cuts = nullptr) {
    start_reduce_scatter(exec, in, out, op, site, cuts).wait();
  }
  // out holds the in of every rank, in rank order; in may be block `rank` of out itself.
  void all_gather(const Exec& exec, ConstSpan in, Span out, Site site = "",
                  Cuts cuts = nullptr) {
    start_all_gather(exec, in, out, site, cuts).wait();
  }
  // Block r of in goes to rank r, whose out gets it as block `rank`; no overlap of in and
  // out.
  void all_to_all(const Exec& exec, ConstSpan in, Span out, Site site = "");
  void broadcast(const Exec& exec, Span data, int root, Site site = "");

  // The same, begun only. Messages move on in progress() and in every call of the group's
  // world.
  Request start_all_reduce(const Exec& exec, Span data, Op op = Op::sum, Site site = "");
  Request start_reduce_scatter(const Exec& exec, ConstSpan in, Span out, Op op = Op::sum,
                               Site site = "", Cuts cuts = nullptr);
  Request start_all_gather(const Exec& exec, ConstSpan in, Span out, Site site = "",
                           Cuts cuts = nullptr);
  // Gives messages under way, of any group of the world, a moment. Never waits.
  virtual void progress() {}
  // Whether there are such, begun by this rank: their memory must stay.
  virtual bool is_under_way() const { return false; }
  // Whether a wait ended by its limit: what it waited for may still arrive, in memory
  // that its callers have left. Nothing but the end of the process is safe then.
  virtual bool has_given_up() const { return false; }
  // Point to point: messages of one tag between two ranks arrive in the order they were
  // sent, and must be as long as their receiver expects. Neighbours that send to each
  // other begin both before they wait.
  void send(const Exec& exec, ConstSpan data, int to, Site site = "", int tag = 0) {
    start_send(exec, data, to, site, tag).wait();
  }
  void recv(const Exec& exec, Span data, int from, Site site = "", int tag = 0) {
    start_recv(exec, data, from, site, tag).wait();
  }
  Request start_send(const Exec& exec, ConstSpan data, int to, Site site = "",
                     int tag = 0);
  Request start_recv(const Exec& exec, Span data, int from, Site site = "", int tag = 0);

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
  // On rank 0; empty elsewhere. For texts that are long, or of many ranks.
  std::vector<std::string> gather_to_first(const std::string& value);
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
  Communicator(int rank, int size, std::string name,
               std::shared_ptr<Recorders> recorders = nullptr)
      : rank_(rank),
        size_(size),
        name_(std::move(name)),
        recorders_(std::move(recorders)) {}

  enum class Kind {
    all_reduce,
    reduce_scatter,
    all_gather,
    all_to_all,
    broadcast,
    send,
    recv
  };
  static const char* name_of(Kind kind);
  // What is sent, in device memory. all_reduce and broadcast are in place: in is out.
  struct Transfer {
    Kind kind;
    ConstSpan in;
    Span out;
    Op op = Op::sum;
    int peer = 0;         // root of a broadcast; the other rank of send and recv
    Cuts cuts = nullptr;  // reduce_scatter, all_gather; null: equal blocks
    Site site = "";
    int tag = 0;  // of send and recv
    bool is_between_two() const { return kind == Kind::send || kind == Kind::recv; }
  };

  // The implementations; arguments have been checked and are not empty. do_start returns
  // a number for do_wait, or kComplete where nothing is left to wait for.
  static constexpr int kComplete = -1;
  virtual int do_start(const Exec& exec, const Transfer& transfer) = 0;
  // Says note_completed() if that was not said before.
  virtual void do_wait(int operation) = 0;
  // One operation that do_start() began is complete; this rank has seen it now.
  void note_completed(Clock::time_point now);
  void note_progress(double seconds) { traffic_.progress_seconds += seconds; }
  // The number of the call that was begun last, as the board has it.
  std::int64_t sequence() const { return sequence_; }
  // Null where nobody wants to know.
  Timers* timers() const { return recorders_ == nullptr ? nullptr : recorders_->timers; }
  // Null where nothing is recorded.
  Trace* trace() const { return timers() == nullptr ? nullptr : timers()->trace(); }
  // Whether calls on a shape-only Exec are counted (groups that are only planned).
  virtual bool counts_shapes() const { return false; }
  // Whether the ranks compare what they call before each call that all must make. Such a
  // comparison waits for all, as the call's own wait does.
  virtual bool checks_calls() const { return false; }
  virtual void do_barrier() = 0;
  virtual std::shared_ptr<Communicator> do_split(int colour, int key,
                                                 const std::string& name) = 0;
  virtual std::vector<std::shared_ptr<Communicator>> do_cartesian(
      const std::vector<int>& extents, const std::vector<SubGrid>& grids) = 0;
  // Host memory: bytes from every rank, in rank order. `call` and site name it in
  // messages.
  virtual void host_all_gather(const void* in, void* out, std::size_t bytes,
                               const char* call, Site site) = 0;
  // The same to rank 0 alone, where `out` is; null elsewhere.
  virtual void host_gather(const void* in, void* out, std::size_t bytes,
                           const char* call) = 0;
  virtual void host_broadcast(void* data, std::size_t bytes, int root) = 0;

  // Null where none is attached.
  OperationBoard* board() const {
    return recorders_ == nullptr ? nullptr : recorders_->board.get();
  }

 private:
  friend class Request;
  class Account;
  Request start(const Exec& exec, const Transfer& transfer);
  void finish(const Request& request);
  void trace_call(const char* name, Site site, Clock::time_point begin,
                  Clock::time_point end) const;
  void require_same_call(const char* operation, Site site, const std::string& details);
  std::string details_of(const Transfer& transfer) const;
  void gather_on_host(const void* in, void* out, std::size_t bytes);
  void gather_to_first_on_host(const void* in, void* out, std::size_t bytes);
  void broadcast_on_host(void* data, std::size_t bytes, int root);
  std::size_t account_of(Site site, const char* operation);
  void require_blocks(const char* call, ConstSpan whole, ConstSpan block,
                      Cuts cuts) const;
  template <class T>
  T reduce_value(T value, Op op);
  template <class T>
  std::vector<T> gather_value(T value);
  template <class Gather>
  std::vector<std::string> gather_texts(const std::string& value, bool is_mine,
                                        const Gather& gather_rows);
  void require_rank(int rank, const char* what) const;

  int rank_, size_;
  std::string name_;
  Traffic traffic_;
  std::vector<SiteTraffic> sites_;
  int under_way_ = 0;  // operations, as far as this rank has seen
  Clock::time_point under_way_since_;
  std::int64_t sequence_ = 0;       // calls so far that all ranks of the group make
  std::vector<std::byte> scratch_;  // for host values; grown once
  std::shared_ptr<Recorders> recorders_;
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_COMMUNICATOR_HPP_
