// parallel/stage_messages.cpp — see stage_messages.hpp.
#include "parallel/stage_messages.hpp"

#include <exception>

#include "base/plural.hpp"

namespace trireme::parallel {

namespace {

comm::Site site_of(Way way) {
  return way == Way::forward ? "activations" : "activation gradients";
}

// What goes round between the last stage and the first has channels of its own: with two
// stages that is the opposite way between the same two.
comm::Channel channel_of(Way way, int from, int to) {
  const bool is_forward = way == Way::forward;
  const bool is_round = is_forward ? from > to : from < to;
  if (is_round) {
    return is_forward ? comm::Channel::forward_round : comm::Channel::backward_round;
  }
  return is_forward ? comm::Channel::forward : comm::Channel::backward;
}

}  // namespace

std::vector<comm::ChannelEnd> channels_of_stage(int stage, int stages, bool goes_round) {
  std::vector<comm::ChannelEnd> ends;
  const auto add = [&](int from, int to) {  // forward from one piece to the next
    const int other = stage == from ? to : from;
    ends.push_back({other, channel_of(Way::forward, from, to)});
    ends.push_back({other, channel_of(Way::backward, to, from)});
  };
  if (stage > 0) add(stage - 1, stage);
  if (stage + 1 < stages) add(stage, stage + 1);
  const bool is_end = stage == 0 || stage == stages - 1;
  if (goes_round && stages > 1 && is_end) add(stages - 1, 0);
  return ends;
}

template <class T>
StageMessages<T>::StageMessages(const Exec& exec, const comm::ProcessGroups& groups,
                                index_t elements, int buffers, bool sequence_parallel,
                                bool goes_round)
    : exec_(exec),
      groups_(groups),
      ranks_(sequence_parallel ? 1 : groups.tensor->size()),
      elements_(elements),
      buffers_(extent(buffers)) {
  if (exec.is_shape_only()) return;
  groups.pipeline->open(
      channels_of_stage(groups.pipeline->rank(), groups.pipeline->size(), goes_round));
  if (buffers == 0) return;
  memory_ = DeviceArray<T>("messages between stages",
                           extent(slice_size(elements) * ranks_ * buffers));
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
  const index_t stride = slice_size(elements_) * ranks_;
  T* const data =
      memory_.data() == nullptr ? nullptr : memory_.data() + stride * buffer + begin;
  return {data, extent(count)};
}

template <class T>
View1<T> StageMessages<T>::slice(int buffer, index_t elements) const {
  TRIREME_REQUIRE(elements <= elements_,
                  "a message of {} in a buffer between stages, which has room for {}",
                  format_plural(elements, "element"), elements_);
  const index_t size = slice_size(elements);
  return part(buffer, ranks_ > 1 ? size * groups_.tensor->rank() : 0, size);
}

template <class T>
void StageMessages<T>::begin_recv(int number, int stage, Way way, index_t elements) {
  Buffer& buffer = buffers_.at(extent(number));
  buffer.request.wait(exec_);
  buffer.request = groups_.pipeline->start_recv(
      exec_, comm::span_of(slice(number, elements)), stage, site_of(way),
      channel_of(way, stage, groups_.pipeline->rank()));
  buffer.elements = elements;
  buffer.is_in_slices = ranks_ > 1;
}

template <class T>
void StageMessages<T>::begin_send(int number, int stage, Way way, index_t elements) {
  Buffer& buffer = buffers_.at(extent(number));
  buffer.request = groups_.pipeline->start_send(
      exec_, comm::span_of(View1<const T>(slice(number, elements))), stage, site_of(way),
      channel_of(way, groups_.pipeline->rank(), stage));
}

template <class T>
View1<T> StageMessages<T>::received(int number) {
  Buffer& buffer = buffers_.at(extent(number));
  buffer.request.wait(exec_);
  if (buffer.is_in_slices) {
    buffer.is_in_slices = false;
    const View1<const T> mine = slice(number, buffer.elements);
    groups_.tensor->all_gather(
        exec_, comm::span_of(mine),
        comm::span_of(part(number, 0, slice_size(buffer.elements) * ranks_)),
        "slices of stage messages");
  }
  return part(number, 0, buffer.elements);
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
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::parallel
