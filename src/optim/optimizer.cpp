// optim/optimizer.cpp — see optimizer.hpp.
//
// Norm and update go over the parameters in chunks of kernels::kAdamWChunk elements,
// listed once: one launch then works on parameters of any number and size, and its
// threads have equal work. A chunk lies within one parameter, because weight decay and
// the part in the norm are properties of a parameter; chunks are in the order of the
// buckets, so that a bucket is a range of them. The squares are summed over each chunk by
// itself and then over all chunks by one team of threads, so that the norm does not
// depend on which chunk is done first.
//
// An element counts in the norm once, however many ranks have it: of a parameter that all
// tensor ranks hold only the first one's counts, and of a tied one its owner's.
#include "optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/initialize.hpp"

namespace trireme::optim {

namespace {

// An objective is made by one stage, and its totals are zero on the others.
void sum_totals(const Exec& exec, const comm::ProcessGroups& groups,
                View1<double> totals) {
  constexpr comm::Site kSite = "loss totals";
  groups.pipeline->all_reduce(exec, comm::span_of(totals), comm::Op::sum, kSite);
  groups.gradient->all_reduce(exec, comm::span_of(totals), comm::Op::sum, kSite);
}

void sum_over_ranks(const Exec& exec, const comm::ProcessGroups& groups, int zero,
                    View1<double> gradient_sums) {
  constexpr comm::Site kSite = "gradient norm";
  if (zero >= 1) {
    groups.gradient->all_reduce(exec, comm::span_of(gradient_sums), comm::Op::sum, kSite);
  }
  groups.model->all_reduce(exec, comm::span_of(gradient_sums), comm::Op::sum, kSite);
}

// What one update takes, of the two that a step may turn out to be.
struct Rates {
  double learning_rate, bias_correction1, bias_correction2;
};

// One thread. The host is `behind` where it has not read all reports: then the device
// knows better which update it is, and with which loss scale.
void set_step(const Exec& exec, View0<kernels::StepState> state, View1<StepCourse> course,
              const StepStart& start, bool is_behind, const Rates& rates,
              const Rates& rates_before) {
  const std::int64_t update = start.update;
  const LossScale loss_scale = start.loss_scale;
  launch(
      exec, "trireme::optim::set_step", 1, KOKKOS_LAMBDA(const index_t) {
        if (!is_behind) course(0) = {loss_scale, update, 0};
        const Rates& now = course(0).update == update ? rates : rates_before;
        state().step = static_cast<std::uint64_t>(course(0).update);
        state().loss_scale = course(0).loss_scale.scale();
        state().learning_rate = now.learning_rate;
        state().bias_correction1 = now.bias_correction1;
        state().bias_correction2 = now.bias_correction2;
      });
}

// One thread: the factor every gradient is multiplied with, the report, whether the
// weights are to be updated, and what the next step begins with.
void finish_scale(const Exec& exec, View0<kernels::StepState> state,
                  View1<StepCourse> course, View1<const double> totals,
                  View1<const double> gradient_sums, double clip_norm,
                  View1<StepReport> report) {
  launch(
      exec, "trireme::optim::finish_scale", 1, KOKKOS_LAMBDA(const index_t) {
        const double loss_scale = state().loss_scale;
        const double norm = Kokkos::sqrt(gradient_sums(0)) / loss_scale;
        double clip = 1.0;
        if (clip_norm > 0.0) {
          const double ratio = clip_norm / (norm + 1e-6);
          clip = ratio < 1.0 ? ratio : 1.0;
        }
        state().gradient_scale = clip / loss_scale;
        report(0).grad_norm = norm;
        report(0).non_finite = gradient_sums(1);
        report(0).loss_scale = loss_scale;
        report(0).update = course(0).update;
        for (std::size_t i = 0; 2 * i < totals.extent(0); ++i) {
          report(0).losses[i] = {totals(2 * i), totals(2 * i + 1)};
        }
        const bool is_finite = report(0).is_finite();
        state().skips_update = is_finite && course(0).has_ended == 0 ? 0 : 1;
        if (course(0).has_ended != 0) return;
        if (!is_finite &&
            !(report(0).has_finite_losses() && course(0).loss_scale.can_skip())) {
          course(0).has_ended = 1;
          return;
        }
        course(0).loss_scale.update(!is_finite);
        if (is_finite) ++course(0).update;
      });
}

}  // namespace

template <class T>
Optimizer<T>::Optimizer(const Exec& exec, ParamBuffer<T>& params,
                        const comm::ProcessGroups& groups,
                        const kernels::AdamWDesc& adamw, double clip_norm)
    : params_(params), groups_(groups), adamw_(adamw), clip_norm_(clip_norm) {
  find_chunks(exec);
  if (exec.is_shape_only()) return;
  partial_sums_ = DeviceArray<double>("optimizer partial sums", 2 * chunks_.extent(0));
  gradient_sums_ = DeviceArray<double>("optimizer gradient sums", 2);
  report_ = DeviceArray<StepReport>("optimizer report", 1);
  course_ = DeviceArray<StepCourse>("optimizer course", 1);
  host_reports_ = PinnedArray<StepReport>("optimizer reports on the host", kReports);
}

// On shapes the chunks are only counted: the list of a large model takes gigabytes.
template <class T>
void Optimizer<T>::find_chunks(const Exec& exec) {
  const ParamRegistry& registry = params_.registry();
  std::vector<kernels::AdamWChunk> chunks;
  std::size_t chunk_count = 0;
  for (const Bucket& bucket : params_.partition().buckets()) {
    first_chunk_.push_back(chunk_count);
    elements_.push_back(0);
    const std::size_t begin = registry.units()[bucket.first_unit].begin;
    const std::size_t end = registry.units()[bucket.end_unit - 1].end;
    for (std::size_t i = begin; i < end; ++i) {
      const ParamSpec& spec = registry.spec(i);
      const index_t elements = params_.updated(i).size();
      const bool is_in_norm = spec.counts_on(groups_.tensor->rank());
      elements_.back() += elements;
      if (is_in_norm) elements_in_norm_ += elements;
      chunk_count += extent((elements + kernels::kAdamWChunk - 1) / kernels::kAdamWChunk);
      if (exec.is_shape_only()) continue;
      const auto place = [&]<class G>(Slab slab, std::type_identity<G>) -> index_t {
        return params_.template updated<G>(slab, i).data() -
               params_.template slab<G>(slab).data();
      };
      constexpr std::type_identity<Master> kMaster{};
      index_t gradient = 0;
      params_.visit_gradient_type(
          [&](auto type) { gradient = place(Slab::gradient, type); });
      index_t compute = 0;
      if constexpr (ParamBuffer<T>::kHasCopy) {
        compute = params_.updated_compute(i).data() - params_.compute_copy().data();
      }
      for (index_t at = 0; at < elements; at += kernels::kAdamWChunk) {
        const index_t count = std::min(kernels::kAdamWChunk, elements - at);
        chunks.push_back({.weight = place(Slab::weight, kMaster) + at,
                          .gradient = gradient + at,
                          .moment = place(Slab::exp_avg, kMaster) + at,
                          .count = static_cast<std::int32_t>(count),
                          .decays = static_cast<std::int16_t>(spec.decay ? 1 : 0),
                          .in_norm = static_cast<std::int16_t>(is_in_norm ? 1 : 0),
                          .compute = ParamBuffer<T>::kHasCopy ? compute + at : 0});
      }
    }
  }
  first_chunk_.push_back(chunk_count);
  if (exec.is_shape_only()) return;
  chunks_ = DeviceArray<kernels::AdamWChunk>("optimizer chunks", chunks.size());
  const Kokkos::View<const kernels::AdamWChunk*, Kokkos::HostSpace,
                     Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      host(chunks.data(), chunks.size());
  Kokkos::deep_copy(exec.space(), chunks_, host);
  exec.fence("optimizer chunks");
}

template <class T>
View1<const kernels::AdamWChunk> Optimizer<T>::chunks(std::size_t begin,
                                                      std::size_t end) const {
  const kernels::AdamWChunk* const all = chunks_.data();
  return {all == nullptr ? nullptr : all + begin, end - begin};
}

template <class T>
void Optimizer<T>::begin_step(const Exec& exec, View0<kernels::StepState> state,
                              const StepStart& start) {
  const auto rates = [&](std::int64_t update, double learning_rate) {
    const auto k = static_cast<double>(update);
    return Rates{learning_rate, 1.0 - std::pow(adamw_.beta1, k),
                 1.0 - std::pow(adamw_.beta2, k)};
  };
  set_step(exec, state, course_, start, unread_ > 0,
           rates(start.update, start.learning_rate),
           rates(start.update - 1, start.learning_rate_before));
}

template <class T>
void Optimizer<T>::prepare(const Exec& exec, View0<kernels::StepState> state,
                           View1<double> totals) {
  sum_totals(exec, groups_, totals);
  const View1<double> gradient_sums(gradient_sums_.data(), 2);
  const std::size_t count = first_chunk_.back();
  kernels::fill(exec, gradient_sums, 0.0);
  params_.visit_gradient_type([&]<class G>(std::type_identity<G>) {
    kernels::square_sum_of_chunks<G>(exec, chunks(0, count), elements_in_norm_,
                                     params_.template slab<G>(Slab::gradient),
                                     View1<double>(partial_sums_.data(), 2 * count),
                                     gradient_sums);
  });
  sum_over_ranks(exec, groups_, params_.sharding().zero, gradient_sums);
  finish_scale(exec, state, course_, totals, gradient_sums, clip_norm_, report_);
  send_report(exec);
}

template <class T>
void Optimizer<T>::send_report(const Exec& exec) {
  if (exec.is_shape_only()) return;
  TRIREME_REQUIRE(unread_ < kReports, "{} are not read, and there is room for no more",
                  format_plural(unread_, "step report"));
  const std::size_t slot = (next_report_ + unread_) % kReports;
  copy_to_host(exec, &host_reports_(slot), report_);
  copied_[slot].record(exec);
  ++unread_;
}

template <class T>
std::size_t Optimizer<T>::ready() const {
  std::size_t count = 0;
  while (count < unread_ && copied_[(next_report_ + count) % kReports].is_past()) ++count;
  return count;
}

template <class T>
StepReport Optimizer<T>::read_report() {
  TRIREME_REQUIRE(unread_ > 0, "all step reports are read");
  copied_[next_report_].wait();
  const StepReport report = host_reports_(next_report_);
  next_report_ = (next_report_ + 1) % kReports;
  --unread_;
  return report;
}

template <class T>
void Optimizer<T>::apply_bucket(const Exec& exec, View0<kernels::StepState> state,
                                std::size_t bucket) {
  params_.visit_gradient_type([&]<class G>(std::type_identity<G>) {
    kernels::adamw<T, G>(exec, adamw_, kernels::StepStateView(state.data()),
                         chunks(first_chunk_.at(bucket), first_chunk_.at(bucket + 1)),
                         elements_[bucket], params_.template slab<G>(Slab::gradient),
                         params_.slab(Slab::weight), params_.slab(Slab::exp_avg),
                         params_.slab(Slab::exp_avg_sq), params_.compute_copy());
  });
}

template <class T>
void Optimizer<T>::apply(const Exec& exec, View0<kernels::StepState> state) {
  for (std::size_t b = 0; b + 1 < first_chunk_.size(); ++b) apply_bucket(exec, state, b);
}

#define TRIREME_INSTANTIATE(T) template class Optimizer<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::optim
