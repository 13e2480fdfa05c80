// parallel/stage_messages.hpp — activations that go from one pipeline stage to the next,
// and their gradients back, beside the passes.
//
// They lie in buffers, which the schedule numbers (schedule/plan.hpp); any buffer may
// hold any message, and a message is as long as its border, not as its buffer. Where
// every rank of a tensor group has the same values, each sends its slice to the rank of
// its number on the other stage, where the slices are put together (scatter/gather
// optimisation, Narayanan et al. 2021, 4.1). Slices are equal: a message that the ranks
// do not divide has a few unused elements behind it. For example 10 elements over 4 ranks
// are slices of 3, the last of which has one element and two unused ones. With sequence
// parallelism ranks have slices anyway.
//
// A stage has two channels with each of its neighbours, one for each way; in a virtual
// pipeline the last stage and the first are neighbours too.
#ifndef TRIREME_PARALLEL_STAGE_MESSAGES_HPP_
#define TRIREME_PARALLEL_STAGE_MESSAGES_HPP_

#include <vector>

#include "base/exec.hpp"
#include "comm/process_groups.hpp"
#include "comm/transport.hpp"

namespace trireme::parallel {

// Which way a message goes; messages of one way between two stages keep their order.
enum class Way { forward, backward };

// The channels of a stage. `goes_round`: whether messages go from the last stage to the
// first and back (virtual pipelines).
std::vector<comm::ChannelEnd> channels_of_stage(int stage, int stages, bool goes_round);

template <class T>
class StageMessages {
 public:
  // Buffers of `elements` each, those of the longest message; no memory where `exec` is
  // shape-only. Else it opens the channels, and is collective over the pipeline.
  StageMessages(const Exec& exec, const comm::ProcessGroups& groups, index_t elements,
                int buffers, bool sequence_parallel, bool goes_round);
  ~StageMessages();
  StageMessages(const StageMessages&) = delete;
  StageMessages& operator=(const StageMessages&) = delete;

  // Begins to receive so many elements into a buffer (to send them from it); `stage` is
  // the other end's rank in the pipeline group.
  void begin_recv(int buffer, int stage, Way way, index_t elements);
  void begin_send(int buffer, int stage, Way way, index_t elements);
  // The message that a buffer receives, when it is there, whole.
  View1<T> received(int buffer);
  // All of the buffer, when what was sent from it has gone.
  View1<T> to_fill(int buffer);
  // Waits for all that is under way.
  void finish();

  // Bytes that it allocates, or would allocate where `exec` is not shape-only.
  std::size_t bytes() const {
    return buffers_.size() * extent(slice_size(elements_) * ranks_) * sizeof(T);
  }

 private:
  struct Buffer {
    comm::Request request;
    index_t elements = 0;       // of the message received last
    bool is_in_slices = false;  // received, and not put together yet
  };
  View1<T> part(int buffer, index_t begin, index_t count) const;
  // Elements of each slice of a message; the slice that this rank sends.
  index_t slice_size(index_t elements) const { return (elements + ranks_ - 1) / ranks_; }
  View1<T> slice(int buffer, index_t elements) const;

  Exec exec_;
  comm::ProcessGroups groups_;
  index_t ranks_;     // how many share a message, each with a slice
  index_t elements_;  // of a buffer, without what slices add
  std::vector<Buffer> buffers_;
  DeviceArray<T> memory_;
};

}  // namespace trireme::parallel

#endif  // TRIREME_PARALLEL_STAGE_MESSAGES_HPP_
