// optim/optimizer.cpp — see optimizer.hpp.
#include "optim/optimizer.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "kernels/initialize.hpp"
#include "kernels/reductions.hpp"

namespace trireme::optim {

namespace {

std::vector<kernels::AdamWChunk> cut_in_chunks(const ParamRegistry& registry,
                                               const auto& offset_of) {
  std::vector<kernels::AdamWChunk> chunks;
  for (std::size_t i = 0; i < registry.size(); ++i) {
    const ParamSpec& spec = registry.spec(i);
    const index_t begin = offset_of(i);
    const index_t end = begin + element_count(spec.shard.local_shape);
    for (index_t at = begin; at < end; at += kernels::kAdamWChunk) {
      chunks.push_back(
          {at, static_cast<std::int32_t>(std::min(kernels::kAdamWChunk, end - at)),
           spec.decay ? 1 : 0});
    }
  }
  return chunks;
}

// One thread: the factor every gradient is multiplied with, and the norm for the log.
void finish_scale(const Exec& exec, View0<kernels::StepState> state,
                  View1<const double> totals, View1<const double> square_sum,
                  double nominal_tokens, double clip_norm, View1<StepReport> report) {
  launch(
      exec, "trireme::optim::finish_scale", 1, KOKKOS_LAMBDA(const index_t) {
        const double tokens = totals(1);
        const double correction = tokens > 0.0 ? nominal_tokens / tokens : 0.0;
        const double norm = correction * Kokkos::sqrt(square_sum(0));
        double clip = 1.0;
        if (clip_norm > 0.0) {
          const double ratio = clip_norm / (norm + 1e-6);
          clip = ratio < 1.0 ? ratio : 1.0;
        }
        state().gradient_scale = correction * clip;
        report(0) = {totals(0), tokens, norm};
      });
}

}  // namespace

template <class T>
Optimizer<T>::Optimizer(const Exec& exec, ParamBuffer<T>& params,
                        const comm::ProcessGroups& groups,
                        const kernels::AdamWDesc& adamw, double clip_norm)
    : params_(params),
      groups_(groups),
      adamw_(adamw),
      clip_norm_(clip_norm),
      square_sum_("optimizer square sum", 1),
      report_("optimizer report", 1),
      host_report_("optimizer host report", 1),
      scratch_("optimizer scratch",
               static_cast<std::size_t>(
                   kernels::square_sum_scratch_elements(params.slab_elements()))) {
  const auto chunks =
      cut_in_chunks(params.registry(), [&](std::size_t i) { return params.offset(i); });
  chunks_ = DeviceArray<kernels::AdamWChunk>("optimizer chunks", chunks.size());
  const Kokkos::View<const kernels::AdamWChunk*, Kokkos::HostSpace,
                     Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      host(chunks.data(), chunks.size());
  Kokkos::deep_copy(exec.space(), chunks_, host);
  exec.fence("optimizer chunks");
}

template <class T>
void Optimizer<T>::prepare(const Exec& exec, View0<kernels::StepState> state,
                           View1<double> totals, double nominal_tokens) {
  if (groups_.data->size() > 1) groups_.data->all_reduce(exec, comm::span_of(totals));
  const View1<double> square_sum = square_sum_;
  kernels::fill(exec, square_sum, 0.0);
  kernels::square_sum<Master>(exec, params_.slab(Slab::gradient), scratch_,
                              View0<double>(square_sum.data()));
  if (groups_.model->size() > 1)
    groups_.model->all_reduce(exec, comm::span_of(square_sum));
  finish_scale(exec, state, totals, square_sum, nominal_tokens, clip_norm_, report_);
}

template <class T>
StepReport Optimizer<T>::read_report(const Exec& exec) {
  if constexpr (kHostExecution) {
    exec.fence("optimizer report");
    return report_(0);
  } else {
    Kokkos::deep_copy(exec.space(), host_report_, report_);
    exec.fence("optimizer report");
    return host_report_(0);
  }
}

template <class T>
void Optimizer<T>::apply(const Exec& exec, View0<kernels::StepState> state) {
  kernels::adamw<Master>(exec, adamw_, kernels::StepStateView(state.data()), chunks_,
                         params_.slab(Slab::gradient), params_.slab(Slab::weight),
                         params_.slab(Slab::exp_avg), params_.slab(Slab::exp_avg_sq));
  params_.refresh_compute(exec);
}

#define TRIREME_INSTANTIATE(T) template class Optimizer<T>;
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::optim
