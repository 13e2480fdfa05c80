// comm/nccl_link.hpp — NCCL in our own terms: communicators with a stream each, and marks
// in streams.
//
// Which source stands behind it is a matter of CMake: nccl_link_nccl.cpp where nccl.h was
// found, else nccl_link_none.cpp, which refuses. Marks are not base's Event: NCCL's
// streams are no Execs, and tests put a library in NCCL's place that carries messages
// late (tests/support/fake_nccl.hpp). A call that fails throws Error with the library's
// words.
#ifndef TRIREME_COMM_NCCL_LINK_HPP_
#define TRIREME_COMM_NCCL_LINK_HPP_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/exec.hpp"
#include "comm/transport.hpp"

namespace trireme::comm {

bool has_nccl();
std::string nccl_version();  // "2.28.9"; empty without it
// What the ranks of a new communicator have to know, some bytes that one of them makes.
std::string make_nccl_id();
// The device that calls of this thread are of.
int device_of_thread();
// Before a thread other than the main one asks marks and communicators: of this device,
// and without harm to graphs that the main thread captures.
void enter_nccl_thread(int device);
// What is started between the two, on any communicators, is issued together. May be
// nested.
void begin_nccl_group();
void end_nccl_group();

// A mark in a stream, with its time. Any thread may ask whether it is past.
class NcclMark {
 public:
  NcclMark();
  ~NcclMark();
  NcclMark(const NcclMark&) = delete;
  NcclMark& operator=(const NcclMark&) = delete;

  void record(const Exec& exec);
  bool is_past() const;                  // never waits
  void hold_up(const Exec& exec) const;  // what is launched there from now on waits
  double seconds_since(const NcclMark& begin) const;  // both past; may be negative

 private:
  friend class NcclLink;
  void* event_ = nullptr;
};

// One communicator of NCCL's and the stream that its operations run on, one after the
// other.
class NcclLink {
 public:
  struct Options {
    std::string id;  // make_nccl_id(), of one rank
    int rank = 0, size = 1;
    bool has_high_priority = false;
    std::string group;   // for messages
    double limit = 0.0;  // seconds that it may take to make it; 0: for ever
  };
  // Collective over the ranks of the communicator. Error where others do not come.
  explicit NcclLink(const Options& options);
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // What is begun from now on waits for the mark.
  void hold_up(const NcclMark& mark);
  void record(NcclMark& mark);
  // Issues an operation. `peer` is a rank of this communicator.
  void start(const Transfer& transfer, int peer);
  // The same for operations of which each is the first of its kind, together: NCCL makes
  // connections for them and waits for other ranks, here for `limit` seconds at most (0:
  // for ever). Not within a group call.
  void start_first(const std::vector<Transfer>& transfers, int peer, double limit);
  // While this is held nobody aborts the communicator: for the end of a group call.
  std::unique_lock<std::timed_mutex> hold() const;
  // Waits until what was started lies on the stream, for `limit` seconds at most. It does
  // already unless NCCL_COMM_BLOCKING=0 is in the environment.
  void settle(double limit);
  // What has gone wrong since; empty: nothing. For any thread.
  std::string asynchronous_error() const;
  // Ends what is under way, and every use of this but its destruction. For any thread.
  // Nothing happens where another thread is in a call that does not come back.
  void abort() noexcept;

 private:
  // Runs what waits for other ranks, within a limit.
  void wait_for_others(double limit, std::function<void()> call);

  struct State;
  // A call that was left behind has it, too.
  std::shared_ptr<State> state_;
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_NCCL_LINK_HPP_
