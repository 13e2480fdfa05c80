// comm/communicator.hpp — control of a group of ranks: who is in it, small values on the
// host, new groups, and how long they wait for each other.
//
// Device messages of the same ranks are the Group's (group.hpp), over the transport that
// make_transport() gives. Every rank of a group makes the same calls in the same order.
// Values on the host are combined in rank order whatever the placement.
#ifndef TRIREME_COMM_COMMUNICATOR_HPP_
#define TRIREME_COMM_COMMUNICATOR_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/timers.hpp"
#include "comm/transport.hpp"

namespace trireme {
class Timers;
class Trace;
}  // namespace trireme

namespace trireme::comm {

using Clock = std::chrono::steady_clock;

class OperationBoard;

// Held by all groups of one world together: where this rank notes what it is doing, and
// for how long.
struct Recorders {
  std::shared_ptr<OperationBoard> board;
  Timers* timers = nullptr;
  // Called with the group's name before a message on device memory begins.
  std::function<void(const std::string& group)> before_message = {};
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
  // What carries device messages among these ranks. Collective; it may not outlive this.
  virtual std::unique_ptr<Transport> make_transport() = 0;

  // From now on every group of this group's world notes on the board what it does; null:
  // no more. Groups of one rank send nothing and note nothing.
  void attach(std::shared_ptr<OperationBoard> board);
  // From now on the time in operations on device memory is charged to these timers, as
  // Section::communication.
  void charge_to(Timers* timers);
  // From now on this is called before each of these operations, with the group's name: a
  // link that is slow on purpose. Empty: nothing.
  void before_messages(std::function<void(const std::string& group)> call);

  // Gives messages under way, of any group of the world, a moment. Never waits.
  virtual void progress() {}
  // Whether messages that this rank has begun are under way: their memory must stay.
  virtual bool is_under_way() const { return false; }
  // Whether a wait ended by its limit: what it waited for may still arrive, in memory
  // that its callers have left. Nothing but the end of the process is safe then.
  virtual bool has_given_up() const { return false; }

  // Returns when all ranks have come here.
  void barrier();
  // Ranks of one colour form a group, ordered by key, then by rank. A negative colour:
  // this rank is in none, and gets nullptr.
  std::shared_ptr<Communicator> split(int colour, int key, const std::string& name);
  // A group of these ranks of this group, in this order; nullptr on the others. Every
  // rank calls.
  std::shared_ptr<Communicator> subset(const std::vector<int>& ranks,
                                       const std::string& name);
  // Lays a Cartesian grid over the ranks without reordering them, the last extent
  // fastest, and returns for each sub-grid the group this rank is in.
  std::vector<std::shared_ptr<Communicator>> cartesian(const std::vector<int>& extents,
                                                       const std::vector<SubGrid>& grids);

  // Small values, for setup and metrics; combined in rank order.
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

  // ---- for who carries messages among these ranks ----

  // Calls so far that all ranks of the group make, and one more of them.
  std::int64_t calls() const { return calls_; }
  std::int64_t count_call() { return ++calls_; }
  // Whether the ranks compare what they call before each call that all must make. Such a
  // comparison waits for all, as the call's own wait does.
  virtual bool checks_calls() const { return false; }
  void require_same_call(const char* operation, Site site, const std::string& details);
  void require_rank(int rank, const char* what) const;
  // Null where nobody wants to know.
  OperationBoard* board() const {
    return recorders_ == nullptr ? nullptr : recorders_->board.get();
  }
  Timers* timers() const { return recorders_ == nullptr ? nullptr : recorders_->timers; }
  Trace* trace() const;
  void begin_message() const {
    if (recorders_ != nullptr && recorders_->before_message) {
      recorders_->before_message(name_);
    }
  }
  // Notes a call that took long enough to be seen.
  void trace_call(const char* name, Site site, Clock::time_point begin,
                  Clock::time_point end) const;

 protected:
  Communicator(int rank, int size, std::string name,
               std::shared_ptr<Recorders> recorders = nullptr)
      : rank_(rank),
        size_(size),
        name_(std::move(name)),
        recorders_(std::move(recorders)) {}

  // The implementations; arguments have been checked and are not empty.
  virtual void do_barrier() = 0;
  virtual std::shared_ptr<Communicator> do_split(int colour, int key,
                                                 const std::string& name) = 0;
  // `size` ranks are in the new group; this one has `number` there, or -1.
  virtual std::shared_ptr<Communicator> do_subset(int number, int size,
                                                  const std::string& name) = 0;
  virtual std::vector<std::shared_ptr<Communicator>> do_cartesian(
      const std::vector<int>& extents, const std::vector<SubGrid>& grids) = 0;
  // Bytes from every rank, in rank order. `call` and site name it in messages.
  virtual void host_all_gather(const void* in, void* out, std::size_t bytes,
                               const char* call, Site site) = 0;
  // Gathers as host_all_gather() does, to rank 0 alone, where `out` is; it is null
  // elsewhere.
  virtual void host_gather(const void* in, void* out, std::size_t bytes,
                           const char* call) = 0;
  virtual void host_broadcast(void* data, std::size_t bytes, int root) = 0;

 private:
  class Noted;
  void gather_on_host(const void* in, void* out, std::size_t bytes);
  void gather_to_first_on_host(const void* in, void* out, std::size_t bytes);
  void broadcast_on_host(void* data, std::size_t bytes, int root);
  template <class T>
  T reduce_value(T value, Op op);
  template <class T>
  std::vector<T> gather_value(T value);
  template <class Gather>
  std::vector<std::string> gather_texts(const std::string& value, bool is_mine,
                                        const Gather& gather_rows);

  int rank_, size_;
  std::string name_;
  std::int64_t calls_ = 0;
  std::vector<std::byte> scratch_;  // for host values; grown once
  std::shared_ptr<Recorders> recorders_;
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_COMMUNICATOR_HPP_
