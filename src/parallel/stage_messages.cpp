// parallel/stage_messages.cpp — see stage_messages.hpp.
#include "parallel/stage_messages.hpp"

#include <exception>

#include "base/error.hpp"

namespace trireme::parallel {

namespace {

comm::Site site_of(Way way) {
  return way == Way::forward ? "activations" : "activation gradients";
}

int tag_of(Way way) {
  return way == Way::forward ? 1 : 2;
}

}  // namespace

template <class T>
StageMessages<T>::StageMessages(const Exec& exec, const comm::ProcessGroups& groups,
                                index_t elements, int buffers, bool sequence_parallel)
    : exec_(exec), groups_(groups), elements_(elements), buffers_(extent(buffers)) {
  const index_t ranks = groups.tensor->size();
  if (ranks > 1 && !sequence_parallel) {
    for (index_t r = 0; r <= ranks; ++r) cuts_.push_back(elements * r / ranks);
  }
  if (exec.is_shape_only() || buffers == 0) return;
  memory_ = DeviceArray<T>("messages between stages", extent(elements * buffers));
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
View1<T> StageMessages<T>::view(int buffer) const {
  T* const data =
      memory_.data() == nullptr ? nullptr : memory_.data() + elements_ * buffer;
  return {data, extent(elements_)};
}

template <class T>
View1<T> StageMessages<T>::slice(int buffer) const {
  const View1<T> whole = view(buffer);
  if (cuts_.empty()) return whole;
  const auto rank = extent(groups_.tensor->rank());
  T* const data = whole.data() == nullptr ? nullptr : whole.data() + cuts_[rank];
  return {data, extent(cuts_[rank + 1] - cuts_[rank])};
}

template <class T>
void StageMessages<T>::begin_recv(int number, int stage, Way way) {
  Buffer& buffer = buffers_.at(extent(number));
  buffer.request.wait();
  buffer.request = groups_.pipeline->start_recv(exec_, comm::span_of(slice(number)),
                                                stage, site_of(way), tag_of(way));
  buffer.is_in_slices = !cuts_.empty();
}

template <class T>
void StageMessages<T>::begin_send(int number, int stage, Way way) {
  Buffer& buffer = buffers_.at(extent(number));
  buffer.request =
      groups_.pipeline->start_send(exec_, comm::span_of(View1<const T>(slice(number))),
                                   stage, site_of(way), tag_of(way));
}

template <class T>
View1<T> StageMessages<T>::received(int number) {
  Buffer& buffer = buffers_.at(extent(number));
  buffer.request.wait();
  if (buffer.is_in_slices) {
    buffer.is_in_slices = false;
    groups_.tensor->all_gather(exec_, comm::span_of(View1<const T>(slice(number))),
                               comm::span_of(view(number)), "slices of stage messages",
                               cuts_.data());
  }
  return view(number);
}

template <class T>
View1<T> StageMessages<T>::to_fill(int number) {
  buffers_.at(extent(number)).request.wait();
  return view(number);
}

template <class T>
void StageMessages<T>::finish() {
  for (Buffer& buffer : buffers_) buffer.request.wait();
}

#define TRIREME_INSTANTIATE(T) template class StageMessages<T>;
TRIREME_FOR_EACH_MODEL_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::parallel
