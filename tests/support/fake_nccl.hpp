// tests/support/fake_nccl.hpp — NCCL, and the part of CUDA's runtime that is called
// beside it, on a host: for tests of comm/nccl_link_nccl.cpp and all that stands on it
// where there is no GPU. It stands in the place of both libraries when a test is linked.
//
// Real ranks, which are processes of one machine, exchange real messages through a file
// that they map. A stream is a thread, which begins what it is given late; the default
// stream is the host's thread, where kernels of a host have run when their launch
// returns. It holds programs to what the manual asks for:
//   - an output is not defined before its operation has ended: it is filled with NaN;
//   - an input is not written before that, nor is an output;
//   - the ranks of a communicator make the same collective calls in one order, and the
//     messages between two are matched in theirs; what does not match waits for ever, as
//     over NCCL, and is noted as a violation;
//   - operations in place have their block where NCCL wants it;
//   - a communicator that does not block has issued nothing before it says so: events are
//     recorded after that;
//   - of one that blocks, what waits for other ranks (its making, the first message with
//   a
//     rank, its end) is not called on the main thread;
//   - nothing is called after abort.
// What breaks one of these fails the test, unless that expects it. It says nothing of how
// fast NCCL is, nor of the order in which it adds.
#ifndef TRIREME_TESTS_SUPPORT_FAKE_NCCL_HPP_
#define TRIREME_TESTS_SUPPORT_FAKE_NCCL_HPP_

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace trireme::test {

// Of ncclResult_t.
inline constexpr int kInvalidUsage = 5, kRemoteError = 6;

class FakeNccl {
 public:
  // Violations are kept for the test that asks for them, and fail no other.
  std::atomic<bool> expects_violations{false};
  // An ncclResult_t that every communicator of this rank reports from now on.
  std::atomic<int> asynchronous_error{0};
  // Making a communicator fails with this ncclResult_t.
  std::atomic<int> failing_start{0};
  // How often a communicator that does not block says that it is not done yet, after each
  // call.
  std::atomic<int> busy_answers{2};
  // That the library made for calls of such communicators.
  std::atomic<int> threads{0};
  // What was made so far, and not ended.
  std::atomic<int> communicators{0}, streams{0}, high_streams{0}, events{0};
  std::atomic<int> aborted{0};
  // How often what was asked was not there yet.
  std::atomic<int> not_ready{0};

  // Of the runtime's calls of this thread, kept until somebody forgets it; 0 for none.
  static int last_error();

  void note(const std::string& violation);
  std::vector<std::string> take_violations();

 private:
  std::mutex mutex_;
  std::vector<std::string> violations_;
};
FakeNccl& fake_nccl();

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_FAKE_NCCL_HPP_
