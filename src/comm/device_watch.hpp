// comm/device_watch.hpp — a thread that looks after the messages which the device
// carries: nobody on the host waits for these, so that nobody would notice that they do
// not end.
//
// Some times a second it asks every communicator how far it is, and notes that on the
// board, where other ranks can read it. An operation that the device has been at for
// longer than the limit, or an error that the library reports, ends the run: what hangs
// and who is late goes to stderr, and the rank's own thread is told so at its next
// message, or while it waits for other ranks; what is under way is aborted then. Where
// that thread does not come to see it, as it waits for the device, this one ends the job.
#ifndef TRIREME_COMM_DEVICE_WATCH_HPP_
#define TRIREME_COMM_DEVICE_WATCH_HPP_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/operation_board.hpp"
#include "comm/transport.hpp"

namespace trireme::comm {

// How far one communicator of a transport is. What it says of an operation is of the
// oldest one that has not ended, where there is one.
struct WatchedLane {
  OperationBoard::DeviceLane progress;
  std::string error;  // that the library reports
};

// A transport, as the watch sees it. All of it may be asked by any thread.
class Watched {
 public:
  virtual ~Watched() = default;
  virtual void look(std::vector<WatchedLane>& lanes) = 0;  // adds its own
  virtual bool is_under_way() = 0;
  virtual void abort() noexcept = 0;
};

class DeviceWatch {
 public:
  struct Options {
    int rank = 0;  // of the world
    // Takes the job down; called where the rank's own thread does not do it.
    std::function<void()> end;
    // How long that thread is given to come to its next message.
    double grace_seconds = 2.0;
  };
  explicit DeviceWatch(Options options);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  void add(Watched& transport);
  void remove(Watched& transport);
  // How long an operation may take on the device, seconds; 0: for ever.
  void set_timeout(double seconds) { timeout_ = seconds; }
  void set_board(std::shared_ptr<OperationBoard> board);

  bool is_under_way();
  bool has_failed() const { return has_failed_; }
  // Throws Error where has_failed(), with what was found.
  void require_whole();

 private:
  struct Running {  // an operation that the device is at
    std::uint64_t key = 0;
    std::int64_t number = 0;
    Clock::time_point since;
  };
  void run();
  bool look();
  void note(WatchedLane& lane, Clock::time_point now);
  std::string problem_of(const WatchedLane& lane, double seconds) const;
  void fail(const WatchedLane& lane, double seconds);

  const Options options_;
  const int device_;
  std::atomic<double> timeout_{0.0};
  std::atomic<bool> has_failed_{false}, is_known_{false};
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool is_ended_ = false;
  std::vector<Watched*> transports_;
  std::shared_ptr<OperationBoard> board_;
  std::string failure_;
  // Of the thread alone.
  std::vector<WatchedLane> lanes_;
  std::vector<OperationBoard::DeviceLane> noted_;
  std::vector<Running> running_, still_running_;
  std::thread thread_;
};

}  // namespace trireme::comm

#endif  // TRIREME_COMM_DEVICE_WATCH_HPP_
