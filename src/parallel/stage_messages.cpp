// parallel/stage_messages.cpp — see stage_messages.hpp.
#include "parallel/stage_messages.hpp"

#include <exception>

#include "base/error.hpp"

namespace trireme::parallel {

namespace {

comm::Site site_of(Way way) {
  return way == Way::forward ? "activations" : "activation gradients";
}

// What goes each way between two stages has a channel of its own, and so has what goes
// round between the last stage and the first (virtual pipelines): with two stages that is
// the opposite way between the same two.
comm::Channel channel_of(Way way, int from, int to) {
  const bool is_forward = way == Way::forward;
  const bool is_round = is_forward ? from > to : from < to;
  if (is_round) {
    return is_forward ? comm::Channel::forward_round : comm::Channel::backward_round;
  }
  return is_forward ? comm::Channel::forward : comm::Channel::backward;
}

}  // namespace

template <class T>
StageMessages<T>::StageMessages(const Exec& exec, const comm::ProcessGroups& groups,
                                index_t elements, int buffers, bool sequence_parallel)
    : exec_(exec), groups_(groups), elements_(elements), buffers_(extent(buffers)) {
  const index_t ranks = sequence_parallel ? 1 : groups.tensor->size();
  slice_ = (elements + ranks - 1) / ranks;
  padded_ = slice_ * ranks;
  if (exec.is_shape_only() || buffers == 0) return;
  memory_ = DeviceArray<T>("messages between stages", extent(padded_ * buffers));
}

template <class T>
StageMessages<T>::~StageMessages() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    finish();
  } catch (const std::exception&) {
    // Whoever waits for this rank says so; a destructor cannot.
  }
}

template <class T>
View1<T> StageMessages<T>::part(int buffer, index_t begin, index_t count) const {
  T* const data =
      memory_.data() == nullptr ? nullptr : memory_.data() + padded_ * buffer + begin;
  return {data, extent(count)};
}

template <class T>
View1<T> StageMessages<T>::slice(int buffer) const {
  return part(buffer, is_sliced() ? slice_ * groups_.tensor->rank() : 0, slice_);
}

template <class T>
void StageMessages<T>::begin_recv(int number, int stage, Way way) {
  Buffer& buffer = buffers_.at(extent(number));
  buffer.request.wait(exec_);
  buffer.request = groups_.pipeline->start_recv(
      exec_, comm::span_of(slice(number)), stage, site_of(way),
      channel_of(way, stage, groups_.pipeline->rank()));
  buffer.is_in_slices = is_sliced();
}

template <class T>
void StageMessages<T>::begin_send(int number, int stage, Way way) {
  Buffer& buffer = buffers_.at(extent(number));
  buffer.request = groups_.pipeline->start_send(
      exec_, comm::span_of(View1<const T>(slice(number))), stage, site_of(way),
      channel_of(way, groups_.pipeline->rank(), stage));
}

template <class T>
View1<T> StageMessages<T>::received(int number) {
  Buffer& buffer = buffers_.at(extent(number));
  buffer.request.wait(exec_);
  if (buffer.is_in_slices) {
    buffer.is_in_slices = false;
    groups_.tensor->all_gather(exec_, comm::span_of(View1<const T>(slice(number))),
                               comm::span_of(part(number, 0, padded_)),
                               "slices of stage messages");
  }
  return part(number, 0, elements_);
}

template <class T>
View1<T> StageMessages<T>::to_fill(int number) {
  buffers_.at(extent(number)).request.wait(exec_);
  return part(number, 0, elements_);
}

template <class T>
void StageMessages<T>::finish() {
  for (Buffer& buffer : buffers_) buffer.request.wait(exec_);
}

#define TRIREME_INSTANTIATE(T) template class StageMessages<T>;
TRIREME_FOR_EACH_MODEL_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::parallel
