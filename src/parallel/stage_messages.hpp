// parallel/stage_messages.hpp — activations that go from one pipeline stage to the next,
// and their gradients back, beside the passes.
//
// They lie in buffers of one size, which the schedule numbers (schedule/plan.hpp). Where
// every rank of a tensor group has the same values, each sends its slice to the rank of
// its number on the other stage, where the slices are put together (scatter/gather
// optimisation, Narayanan et al. 2021, 4.1). Slices are equal: a buffer that the ranks do
// not divide has a few unused elements behind it. With sequence parallelism ranks have
// slices anyway.
#ifndef TRIREME_PARALLEL_STAGE_MESSAGES_HPP_
#define TRIREME_PARALLEL_STAGE_MESSAGES_HPP_

#include <vector>

#include "base/exec.hpp"
#include "comm/process_groups.hpp"

namespace trireme::parallel {

// Which way a message goes; messages of one way between two stages keep their order.
enum class Way { forward, backward };

template <class T>
class StageMessages {
 public:
  // Buffers of `elements` each; no memory where `exec` is shape-only.
  StageMessages(const Exec& exec, const comm::ProcessGroups& groups, index_t elements,
                int buffers, bool sequence_parallel);
  ~StageMessages();
  StageMessages(const StageMessages&) = delete;
  StageMessages& operator=(const StageMessages&) = delete;

  // Begins to receive into a buffer (send from it); `stage` is the other end's rank in
  // the pipeline group.
  void begin_recv(int buffer, int stage, Way way);
  void begin_send(int buffer, int stage, Way way);
  // The buffer, when what it receives is there, whole.
  View1<T> received(int buffer);
  // The buffer, when what was sent from it has gone.
  View1<T> to_fill(int buffer);
  // Waits for all that is under way.
  void finish();

  std::size_t bytes() const { return memory_.span() * sizeof(T); }

 private:
  struct Buffer {
    comm::Request request;
    bool is_in_slices = false;  // received, and not put together yet
  };
  View1<T> part(int buffer, index_t begin, index_t count) const;
  View1<T> slice(int buffer) const;  // that this rank sends
  bool is_sliced() const { return slice_ != padded_; }

  Exec exec_;
  comm::ProcessGroups groups_;
  index_t elements_;
  index_t slice_ = 0, padded_ = 0;  // a slice, and all slices of a buffer
  std::vector<Buffer> buffers_;
  DeviceArray<T> memory_;
};

}  // namespace trireme::parallel

#endif  // TRIREME_PARALLEL_STAGE_MESSAGES_HPP_
