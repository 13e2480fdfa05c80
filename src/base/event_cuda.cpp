// base/event_cuda.cpp — marks of an NVIDIA GPU's streams: CUDA events.
#include <cuda_runtime.h>

#include "base/cuda_status.hpp"
#include "base/error.hpp"
#include "base/event.hpp"

namespace trireme {

struct Event::Mark {
  explicit Mark(bool has_time_) : has_time(has_time_) {}
  // An event under way may be destroyed: CUDA frees it once it is past.
  ~Mark() {
    if (event != nullptr) cudaEventDestroy(event);
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  // Made by the first record: what is only planned has no device to make it on.
  void make() {
    if (event != nullptr) return;
    require_cuda(cudaGetDevice(&device), "cudaGetDevice");
    require_cuda(cudaEventCreateWithFlags(
                     &event, has_time ? cudaEventDefault : cudaEventDisableTiming),
                 "cudaEventCreateWithFlags");
  }

  cudaEvent_t event = nullptr;
  int device = 0;
  bool has_time = false;
  bool is_recorded = false;
};

Event::Event(Time time) : mark_(std::make_unique<Mark>(time == Time::kept)) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(const Exec& exec) {
  if (exec.is_shape_only()) return;
  mark_->make();
  require_cuda(cudaEventRecord(mark_->event, exec.space().cuda_stream()),
               "cudaEventRecord");
  mark_->is_recorded = true;
}

bool Event::is_recorded() const {
  return mark_->is_recorded;
}

bool Event::is_past() const {
  if (!mark_->is_recorded) return true;
  const cudaError_t status = cudaEventQuery(mark_->event);
  if (is_not_ready(status)) return false;
  require_cuda(status, "work on the device failed, as cudaEventQuery reports");
  return true;
}

void Event::hold_up(const Exec& exec) const {
  if (!mark_->is_recorded || exec.is_shape_only()) return;
  require_cuda(cudaStreamWaitEvent(exec.space().cuda_stream(), mark_->event, 0),
               "cudaStreamWaitEvent");
}

void Event::wait() const {
  if (!mark_->is_recorded) return;
  // A thread begins with the first device, where CUDA would make a context for it.
  require_cuda(cudaSetDevice(mark_->device), "cudaSetDevice");
  require_cuda(cudaEventSynchronize(mark_->event),
               "work on the device failed, as cudaEventSynchronize reports");
}

double Event::seconds_since(const Event& begin) const {
  TRIREME_REQUIRE(
      mark_->has_time && begin.mark_->has_time && is_recorded() && begin.is_recorded(),
      "seconds are between two recorded events that keep their time");
  float milliseconds = 0.0f;
  require_cuda(cudaEventElapsedTime(&milliseconds, begin.mark_->event, mark_->event),
               "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace trireme
