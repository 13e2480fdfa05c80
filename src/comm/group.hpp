// comm/group.hpp — what a group of ranks does together on device memory: the one front
// that stands over every transport.
//
// Operations are ordered on the Exec as kernels are: they see what was launched before,
// and what is launched after sees their result. Begun by start_...(), they are complete
// for what is launched after Request::wait(), and what is launched in between runs beside
// them. On a shape-only Exec they check arguments and do nothing else. Every rank of a
// group makes the same calls in the same order. Host values of the same ranks are asked
// of control().
//
// Reductions have a fixed order: the same group (size and placement on nodes) gives the
// same bits for the same call, and every rank the same bits (mpi_communicator.hpp says
// what MPI guarantees).
#ifndef TRIREME_COMM_GROUP_HPP_
#define TRIREME_COMM_GROUP_HPP_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/exec.hpp"
#include "base/tally.hpp"
#include "comm/communicator.hpp"
#include "comm/message_times.hpp"
#include "comm/transport.hpp"

namespace trireme::comm {

// What a group has sent so far: calls, payload of this rank (of the whole buffer, for
// collectives), and seconds: of the host in the calls, or where the device carries
// messages those in which its queues stood still for a result.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  bool has_seconds = true;    // else the transport does not know them, and they are 0
  double seconds = 0.0;       // beginning and waiting
  double wait_seconds = 0.0;  // of these, waiting: what was not hidden behind other work
  // How long at least one operation was under way, and how long Communicator::progress()
  // took meanwhile.
  double under_way_seconds = 0.0;
  double progress_seconds = 0.0;

  Traffic& operator+=(const Traffic& other);
};
class Group;

// An operation under way. Until wait() its input must not be written and its output not
// touched. One that was never waited for is abandoned (only an error does that).
class Request {
 public:
  Request() = default;  // nothing under way
  Request(Request&& other) noexcept { *this = std::move(other); }
  Request& operator=(Request&& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(operation_, other.operation_);
    std::swap(site_, other.site_);
    std::swap(name_, other.name_);
    std::swap(elements_, other.elements_);
    std::swap(peer_, other.peer_);
    std::swap(sequence_, other.sequence_);
    std::swap(record_, other.record_);
    return *this;
  }
  bool under_way() const { return owner_ != nullptr; }
  // The result is there for what is launched on this Exec from now on.
  void wait(const Exec& exec);

 private:
  friend class Group;
  Group* owner_ = nullptr;
  int operation_ = 0;
  Site site_ = "";
  const char* name_ = "";  // of the operation
  index_t elements_ = 0;
  int peer_ = -1;  // of a message between two ranks
  std::int64_t sequence_ = 0;
  std::int64_t record_ = -1;  // in MessageTimes
};

class Group {
 public:
  // The ranks of `control`, and the transport that their world was started with.
  // Collective.
  explicit Group(std::shared_ptr<Communicator> control);
  explicit Group(Communicator& control);  // which outlives it
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return control_->rank(); }
  int size() const { return control_->size(); }
  const std::string& name() const { return control_->name(); }
  // Where the same ranks exchange host values.
  Communicator& control() const { return *control_; }

  Traffic traffic() const;
  // What each site has sent, in the order of the first calls.
  const Tally& sent() const { return sent_; }
  void reset_traffic();
  // From now on operations are noted there, too, until null is given: when this rank
  // began them and waited for them or, where a device carries them, when the device did.
  // That is known, and waited for, once null is given.
  void record_to(MessageTimes* times);
  // Memory that operations keep for themselves (Transport::staging_bytes).
  std::size_t staging_bytes() const { return transport_->staging_bytes(); }
  // Transport::is_on_stream.
  bool is_on_stream() const { return transport_->is_on_stream(); }

  // data = op over ranks of data; in place.
  void all_reduce(const Exec& exec, Span data, Op op = Op::sum, Site site = "") {
    start_all_reduce(exec, data, op, site).wait(exec);
  }
  // out = block `rank` of (op over ranks of in); in holds size() blocks of out.count. out
  // may be that block of in itself.
  void reduce_scatter(const Exec& exec, ConstSpan in, Span out, Op op = Op::sum,
                      Site site = "") {
    start_reduce_scatter(exec, in, out, op, site).wait(exec);
  }
  // out holds the in of every rank, in rank order; in may be block `rank` of out itself.
  void all_gather(const Exec& exec, ConstSpan in, Span out, Site site = "") {
    start_all_gather(exec, in, out, site).wait(exec);
  }
  // Block r of in goes to rank r, whose out gets it as block `rank`; no overlap of in and
  // out.
  void all_to_all(const Exec& exec, ConstSpan in, Span out, Site site = "");
  void broadcast(const Exec& exec, Span data, int root, Site site = "");

  // These begin the operations above. Messages that pass through the host move on in
  // Communicator::progress() and in every call of the group's world.
  Request start_all_reduce(const Exec& exec, Span data, Op op = Op::sum, Site site = "");
  Request start_reduce_scatter(const Exec& exec, ConstSpan in, Span out, Op op = Op::sum,
                               Site site = "");
  Request start_all_gather(const Exec& exec, ConstSpan in, Span out, Site site = "");
  // Point to point, on channels that were opened: messages of one channel between two
  // ranks arrive in the order they were sent, and must be as long as their receiver
  // expects. Two ranks that send to each other on one channel begin both together().
  void send(const Exec& exec, ConstSpan data, int to, Site site = "",
            Channel channel = Channel::main) {
    start_send(exec, data, to, site, channel).wait(exec);
  }
  void recv(const Exec& exec, Span data, int from, Site site = "",
            Channel channel = Channel::main) {
    start_recv(exec, data, from, site, channel).wait(exec);
  }
  Request start_send(const Exec& exec, ConstSpan data, int to, Site site = "",
                     Channel channel = Channel::main);
  Request start_recv(const Exec& exec, Span data, int from, Site site = "",
                     Channel channel = Channel::main);
  // Opens channels, unless they are open, for the life of the group. Collective over the
  // group, before the first message on any of them: every rank names its ends, perhaps
  // none. Throws Error on every rank where one end is named without the other.
  void open(const std::vector<ChannelEnd>& channels);
  // What `begin()` begins in this group is issued together: none of it waits for another,
  // so that messages may cross. It waits for nothing itself. The transport's group call
  // ends also where begin() throws: later calls would be taken for a part of it.
  template <class Begin>
  void together(const Begin& begin) {
    transport_->begin_group();
    try {
      begin();
    } catch (...) {
      transport_->end_group();
      throw;
    }
    transport_->end_group();
  }

 private:
  friend class Request;
  Request start(const Exec& exec, const Transfer& transfer);
  void finish(const Exec& exec, const Request& request);
  MessageTally count_of(const Transfer& transfer) const;
  std::string details_of(const Transfer& transfer) const;
  void require_blocks(const char* call, ConstSpan whole, ConstSpan block) const;
  bool is_open(const ChannelEnd& end) const;
  void require_open(const char* call, const Exec& exec, const ChannelEnd& end,
                    Site site) const;

  std::shared_ptr<Communicator> control_;  // outlives the transport
  std::unique_ptr<Transport> transport_;
  std::vector<ChannelEnd> open_;  // few
  Traffic traffic_;
  Tally sent_;
  bool times_calls_ = false;  // what the host takes for a call says something
  MessageTimes* times_ = nullptr;
  TransportSeconds before_;  // what the transport had taken at the last reset
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_GROUP_HPP_
