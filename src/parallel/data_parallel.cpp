// parallel/data_parallel.cpp — see data_parallel.hpp.
//
// Passes say which units they use (begin, end); here that becomes messages. A reduction
// begins when the first unit of its bucket is done with, as backward passes go from the
// last unit to the first, and its result is fetched as late as possible: when its memory
// is needed, or at the end of the step. Two are under way at a time, unless messages are
// on streams of a device and reduced in place: there a wait would only hold up kernels.
//
// With ZeRO 2 and 3 buckets take turns in two slots of memory, those that stand alone
// have one each. Example of ZeRO 3, a forward pass through the buckets 0 to 3, of which
// 0 stands alone: slots 0 and 1 rotate, slot 2 is that of bucket 0.
//
//   in use       0          1          2          3
//   slot         2          0          1          0
//   fetched      1 to 0     2 to 1     3 to 0     the next pass' first to 1
//
// What is fetched ahead may never go to the slot of the bucket in use (`keep`).
#include "parallel/data_parallel.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "comm/rank_list.hpp"
#include "kernels/initialize.hpp"

namespace trireme::parallel {

namespace {

template <class T>
void add_to(const Exec& exec, View1<const T> from, View1<T> to) {
  launch(
      exec, {"trireme::parallel::add_to_shard", {.bytes = bytes_of(from, to, to)}},
      static_cast<index_t>(to.extent(0)), KOKKOS_LAMBDA(const index_t i) {
        using A = Accumulator<T>;
        to(i) = static_cast<T>(static_cast<A>(to(i)) + static_cast<A>(from(i)));
      });
}

// `count` elements from number `begin` on; none of those where there is no memory.
template <class G>
View1<G> elements_of(const DeviceArray<std::byte>& memory, std::size_t begin,
                     std::size_t count) {
  G* const data = reinterpret_cast<G*>(memory.data());
  return {data == nullptr ? nullptr : data + begin, count};
}

// Bytes of one gradient.
template <class T>
std::size_t gradient_bytes(const ParamBuffer<T>& params) {
  return size_of(params.type_of(Slab::gradient));
}

// That of a unit which borrows all that it reads has no gradients, and no turn.
bool is_empty(const Bucket& bucket) {
  return bucket.range.size() == 0;
}

// How many elements the buffers must hold: those that buckets use in turns, and those
// that one bucket has to itself.
struct BufferSizes {
  index_t whole = 0;                   // of the largest bucket that takes turns
  index_t part = 0;                    // of one rank
  std::vector<std::size_t> dedicated;  // buckets
};

BufferSizes buffer_sizes(const Partition& partition) {
  BufferSizes sizes;
  const std::vector<Bucket>& buckets = partition.buckets();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].stands_alone) {
      sizes.dedicated.push_back(b);
      continue;
    }
    sizes.whole = std::max(sizes.whole, buckets[b].range.size());
    sizes.part = std::max(sizes.part, buckets[b].part_size);
  }
  return sizes;
}

// How many elements this rank updates of the parameters that are used on local rows: each
// tensor rank has a part of the sum of their gradients.
template <class T>
index_t sequence_elements(const ParamBuffer<T>& params) {
  index_t elements = 0;
  for (std::size_t p = 0; p < params.registry().size(); ++p) {
    if (!params.registry().spec(p).in_sequence_region) continue;
    elements += params.updated(p).size();
  }
  return elements;
}

// Buckets in the order in which their gradients are complete: backwards through the
// units; the copy of a tied parameter behind the first unit that borrows it; at the end
// what several chunks use.
std::vector<std::size_t> reduction_order(const ParamRegistry& registry,
                                         const Partition& partition) {
  const std::vector<ParamUnit>& units = registry.units();
  std::vector<std::pair<std::ptrdiff_t, std::size_t>> order;  // behind a unit: a bucket
  for (std::size_t b = 0; b < partition.buckets().size(); ++b) {
    const std::size_t first = partition.buckets()[b].first_unit;
    const ParamUnit& unit = units[first];
    const bool is_copy =
        unit.begin < unit.end && registry.spec(unit.begin).tie == Tie::copy;
    const auto borrower =
        std::ranges::find(units, std::optional(first), &ParamUnit::borrows);
    auto behind = static_cast<std::ptrdiff_t>(first);
    if (is_copy) behind = borrower - units.begin();
    order.push_back({unit.is_used_by_chunks ? -1 : behind, b});
  }
  std::ranges::sort(order, std::greater());
  std::vector<std::size_t> buckets;
  for (const auto& [behind, bucket] : order) buckets.push_back(bucket);
  return buckets;
}

}  // namespace

template <class T>
DataParallel<T>::DataParallel(const Exec& exec, const comm::ProcessGroups& groups,
                              ParamBuffer<T>& params, bool sequence_parallel)
    : exec_(exec), groups_(groups), params_(params), tied_(params.registry().tied()) {
  const auto& sharding = params.sharding();
  TRIREME_REQUIRE(zero() == 0 || (sharding.parts == groups.gradient->size() &&
                                  sharding.part == groups.gradient->rank()),
                  "parameters are cut in {}, of which this is {}; the gradient group has "
                  "{}, this is {}",
                  format_plural(sharding.parts, "part"), sharding.part,
                  format_plural(groups.gradient->size(), "rank"),
                  groups.gradient->rank());
  for (const std::size_t tied : tied_) {
    if (exec.is_shape_only()) break;
    const std::string& name = params.registry().spec(tied).name;
    comm::Communicator& sharers = groups.tied(name).control();
    const IndexRange mine = params.updated(tied);
    TRIREME_REQUIRE(
        comm::all_same(sharers.gather(mine.begin)) &&
            comm::all_same(sharers.gather(mine.end)),
        "'{}' is cut differently on the stages that share it: elements {} to {} here",
        name, mine.begin, mine.end);
  }
  state_.resize(buckets().size());
  reducing_.reserve(buckets().size());
  if (zero() >= 2) {
    const BufferSizes sizes = buffer_sizes(params.partition());
    const auto add_slot = [&](index_t whole, index_t part) {
      Slot& slot = slots_.emplace_back();
      if (!params.is_allocated()) return;
      if (zero() >= 3) slot.weights = DeviceArray<T>("gathered weights", extent(whole));
      const std::size_t each = gradient_bytes(params);
      slot.gradients =
          DeviceArray<std::byte>("bucket of gradients", extent(whole) * each);
      slot.part = DeviceArray<std::byte>("reduced part of a bucket", extent(part) * each);
    };
    for (int i = 0; i < kRotating; ++i) add_slot(sizes.whole, sizes.part);
    for (const std::size_t b : sizes.dedicated) {
      add_slot(buckets()[b].range.size(), buckets()[b].part_size);
    }
  }
  if (sequence_parallel && groups.tensor->size() > 1) {
    sequence_elements_ = sequence_elements(params);
    if (params.is_allocated()) {
      sequence_sums_ =
          DeviceArray<std::byte>("gradients of the sequence region",
                                 extent(sequence_elements_) * gradient_bytes(params));
    }
  }
}

template <class T>
DataParallel<T>::~DataParallel() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    settle();
  } catch (const std::exception&) {
    // Whoever waits for this rank says so; a destructor cannot.
  }
}

template <class T>
std::size_t DataParallel<T>::planned_bytes(const ParamBuffer<T>& params,
                                           bool sequence_parallel) {
  const auto& sharding = params.sharding();
  std::size_t bytes =
      sequence_parallel ? gradient_bytes(params) * extent(sequence_elements(params)) : 0;
  const BufferSizes sizes = buffer_sizes(params.partition());
  if (sharding.zero < 2) return bytes;
  const std::size_t each = gradient_bytes(params);
  const std::size_t whole_bytes = each + (sharding.zero >= 3 ? sizeof(T) : 0);
  const auto slot = [&](index_t whole, index_t part) {
    return extent(whole) * whole_bytes + extent(part) * each;
  };
  bytes += kRotating * slot(sizes.whole, sizes.part);
  for (const std::size_t b : sizes.dedicated) {
    const Bucket& bucket = params.partition().buckets()[b];
    bytes += slot(bucket.range.size(), bucket.part_size);
  }
  return bytes;
}

// With ZeRO 1 a bucket is reduced into its own memory, by way of a copy of the part. Two
// reductions are under way at a time and take turns in two copies.
template <class T>
std::size_t DataParallel<T>::planned_staging_bytes(const ParamBuffer<T>& params) {
  const auto& sharding = params.sharding();
  if (sharding.zero != 1 || sharding.parts == 1) return 0;
  std::array<index_t, kRotating> copies{};
  std::size_t turn = 0;
  for (const std::size_t b : reduction_order(params.registry(), params.partition())) {
    const Bucket& bucket = params.partition().buckets()[b];
    if (is_empty(bucket)) continue;
    index_t& copy = copies[turn++ % kRotating];
    copy = std::max(copy, bucket.part_size);
  }
  return extent(copies[0] + copies[1]) * gradient_bytes(params);
}

template <class T>
std::size_t DataParallel<T>::bytes() const {
  std::size_t bytes = sequence_sums_.span();
  for (const Slot& slot : slots_) {
    bytes += slot.weights.span() * sizeof(T) + slot.gradients.span() + slot.part.span();
  }
  return bytes;
}

template <class T>
int DataParallel<T>::slot_of_dedicated(std::size_t bucket) const {
  int slot = kRotating;
  for (std::size_t b = 0; b < bucket; ++b) slot += is_dedicated(b) ? 1 : 0;
  return slot;
}

template <class T>
void DataParallel<T>::begin_step() {
  // With ZeRO 2 and 3 the first micro-batch overwrites the shard, and whole gradients are
  // those of the micro-batch that memory is lent for.
  for (std::size_t b = 0; b < state_.size() && zero() < 2; ++b) {
    params_.forget_gradients(b);
  }
}

template <class T>
void DataParallel<T>::begin_microbatch(bool is_first, bool is_last) {
  is_first_microbatch_ = is_first;
  is_last_microbatch_ = is_last;
}

template <class T>
void DataParallel<T>::begin_pass(const PassUnits& units,
                                 const std::optional<PassUnits>& next) {
  pass_units_ = units;
  next_pass_units_ = next;
}

template <class T>
void DataParallel<T>::end_passes() {
  pass_units_.reset();
  next_pass_units_.reset();
}

template <class T>
void DataParallel<T>::begin(std::size_t unit, Pass pass) {
  groups_.world->progress();
  const std::size_t bucket = params_.partition().bucket_of_unit(unit);
  const auto borrowed = params_.registry().units()[unit].borrows;
  if (reads_weights(pass)) {
    if (borrowed) need_weights(params_.partition().bucket_of_unit(*borrowed), {});
    need_weights(bucket, {});
    if (zero() >= 3) fetch_ahead(bucket, pass);  // beside this one's kernels
  }
  if (borrowed && adds_to_borrowed_gradients(pass)) {
    need_gradients(params_.partition().bucket_of_unit(*borrowed));
  }
  if (adds_to_gradients(pass)) need_gradients(bucket);
}

template <class T>
void DataParallel<T>::end(std::size_t unit, Pass pass) {
  groups_.world->progress();
  if (!adds_to_gradients(pass)) return;
  const std::size_t bucket = params_.partition().bucket_of_unit(unit);
  const bool is_complete = buckets()[bucket].first_unit == unit &&
                           !is_used_by_chunks(bucket) &&
                           (zero() >= 2 || is_last_microbatch_);
  if (is_complete) reduce(bucket, zero() >= 2 && !is_first_microbatch_);
}

// Begins to gather the bucket that comes into use after this one, in this pass or in the
// next.
template <class T>
void DataParallel<T>::fetch_ahead(std::size_t bucket, Pass pass) {
  const PassUnits all{0, params_.registry().units().size(), pass};
  if (fetch_first(pass_units_.value_or(all), bucket, bucket)) return;
  if (next_pass_units_) fetch_first(*next_pass_units_, {}, bucket);
}

// The first bucket of a pass (behind `after`) that takes turns, and those on the way to
// it and borrowed by it that stay. False where there is none.
template <class T>
bool DataParallel<T>::fetch_first(const PassUnits& units,
                                  std::optional<std::size_t> after, std::size_t keep) {
  if (units.empty()) return false;
  const Partition& partition = params_.partition();
  const std::size_t first = partition.bucket_of_unit(units.begin);
  const std::size_t last = partition.bucket_of_unit(units.end - 1);
  const bool forward = goes_forward(units.pass);
  for (std::size_t i = 0; i <= last - first; ++i) {
    const std::size_t bucket = forward ? first + i : last - i;
    if (after && (forward ? bucket <= *after : bucket >= *after)) continue;
    for (std::size_t u = buckets()[bucket].first_unit; u < buckets()[bucket].end_unit;
         ++u) {
      const auto borrowed = params_.registry().units()[u].borrows;
      if (borrowed) start_weights(partition.bucket_of_unit(*borrowed), {});
    }
    start_weights(bucket, keep);
    if (!is_dedicated(bucket)) return true;
  }
  return false;
}

// Weights of all parts, for kernels that are launched from now on.
template <class T>
void DataParallel<T>::need_weights(std::size_t bucket, std::optional<std::size_t> keep) {
  start_weights(bucket, keep);
  state_[bucket].gather.wait(exec_);
}

// With ZeRO 3, begins to gather a bucket's weights into a buffer other than the one that
// `keep` is in.
template <class T>
void DataParallel<T>::start_weights(std::size_t bucket, std::optional<std::size_t> keep) {
  BucketState& state = state_[bucket];
  if (zero() < 3 || state.has_weights) return;
  int number = slot_of_dedicated(bucket);
  if (!is_dedicated(bucket)) {
    number = next_weight_slot_;
    if (keep && slots_[extent(number)].weights_of == keep) number = 1 - number;
    next_weight_slot_ = 1 - number;
  }
  Slot& slot = slots_[extent(number)];
  if (slot.weights_of && *slot.weights_of != bucket) {
    BucketState& former = state_[*slot.weights_of];
    former.gather.wait(exec_);  // that nobody came for
    former.has_weights = false;
    params_.lend_compute(*slot.weights_of, nullptr);
  }
  slot.weights_of = bucket;
  state.has_weights = true;
  state.weight_slot = number;
  params_.lend_compute(bucket, slot.weights.data());
  state.gather = groups_.gradient->start_all_gather(
      exec_, comm::span_of(params_.compute_shard(bucket)),
      comm::span_of(params_.compute_bucket(bucket)), kGatherInPass);
}

// With ZeRO 2 and 3, gives a bucket whose gradients come now memory, of which nothing but
// the padding is zeroed.
template <class T>
void DataParallel<T>::need_gradients(std::size_t bucket) {
  if (zero() < 2) return;
  BucketState& state = state_[bucket];
  if (state.is_reducing) finish_reduction(bucket);  // of the micro-batch before
  if (state.gradient_slot >= 0) return;
  int number = slot_of_dedicated(bucket);
  if (!is_dedicated(bucket)) {
    number = next_gradient_slot_;
    next_gradient_slot_ = 1 - next_gradient_slot_;
  }
  Slot& slot = slots_[extent(number)];
  if (slot.gradients_of) {
    TRIREME_REQUIRE(state_[*slot.gradients_of].is_reducing,
                    "ZeRO {} has memory for the gradients of {} at a time: a pass "
                    "must be done with a unit before it begins the next but one",
                    zero(), format_plural(kRotating, "unit"));
    finish_reduction(*slot.gradients_of);
  }
  slot.gradients_of = bucket;
  state.gradient_slot = number;
  params_.lend_gradient(bucket, slot.gradients.data());
  params_.forget_gradients(bucket);
  params_.zero_gradient_padding(exec_, bucket);
}

// Begins the reduction of a bucket: all gradients are there, of the step, or of a
// micro-batch whose sums are added to those of the micro-batches before it.
template <class T>
void DataParallel<T>::reduce(std::size_t bucket, bool adds_to_shard) {
  // (With ZeRO 2 and 3 it has been lent a slot, which reductions give back.)
  if (zero() < 2 && is_empty(buckets()[bucket])) return;
  // Each keeps memory until it is complete: on the host a copy of its result, with ZeRO 2
  // and 3 the slot that it was reduced from.
  const bool keeps_memory = zero() >= 2 || !groups_.gradient->is_on_stream();
  if (keeps_memory && reducing_.size() == kRotating) finish_reduction(reducing_.front());
  params_.zero_unwritten_gradients(exec_, bucket);
  params_.visit_gradient_type([&]<class G>(std::type_identity<G>) {
    if (overflows_) overflow_in<G>(bucket);
    start_reduction<G>(bucket, adds_to_shard);
  });
}

template <class T>
template <class G>
void DataParallel<T>::start_reduction(std::size_t bucket, bool adds_to_shard) {
  BucketState& state = state_[bucket];
  state.is_reducing = true;
  reducing_.push_back(bucket);
  const View1<G> all = params_.template gradient_bucket<G>(bucket);
  if (zero() == 0) {
    state.reduction = groups_.gradient->start_all_reduce(exec_, comm::span_of(all),
                                                         comm::Op::sum, "gradients");
    return;
  }
  View1<G> part = params_.template shard<G>(Slab::gradient, bucket);
  state.adds_to_shard = adds_to_shard;
  if (adds_to_shard) {
    part = elements_of<G>(slots_[extent(state.gradient_slot)].part, 0, part.extent(0));
  }
  state.reduction = groups_.gradient->start_reduce_scatter(
      exec_, comm::span_of(View1<const G>(all)), comm::span_of(part), comm::Op::sum,
      "gradients");
}

// A gradient that several ranks have alike would overflow on all of them: it is planted
// where the norm counts it, or in another bucket.
template <class T>
template <class G>
void DataParallel<T>::overflow_in(std::size_t bucket) {
  const ParamRegistry& registry = params_.registry();
  const Bucket& of = buckets()[bucket];
  const std::size_t end = registry.units()[of.end_unit - 1].end;
  for (std::size_t p = registry.units()[of.first_unit].begin; p < end; ++p) {
    const ParamSpec& spec = registry.spec(p);
    const View1<G> gradient = params_.template gradient_slice<G>(p);
    if (!spec.counts_on(groups_.tensor->rank()) || gradient.extent(0) == 0) continue;
    kernels::fill(exec_, View1<G>(gradient.data(), 1),
                  static_cast<G>(std::numeric_limits<Accumulator<G>>::infinity()));
    overflows_ = false;
    return;
  }
}

template <class T>
void DataParallel<T>::finish_reduction(std::size_t bucket) {
  BucketState& state = state_[bucket];
  state.reduction.wait(exec_);
  state.is_reducing = false;
  std::erase(reducing_, bucket);
  if (zero() < 2 || state.gradient_slot < 0) return;
  Slot& slot = slots_[extent(state.gradient_slot)];
  if (state.adds_to_shard) {
    params_.visit_gradient_type(
        [&]<class G>(std::type_identity<G>) { add_part_to_shard<G>(bucket); });
  }
  slot.gradients_of.reset();
  state.gradient_slot = -1;
  params_.lend_gradient(bucket, nullptr);
}

template <class T>
template <class G>
void DataParallel<T>::add_part_to_shard(std::size_t bucket) {
  const Slot& slot = slots_[extent(state_[bucket].gradient_slot)];
  const View1<G> shard = params_.template shard<G>(Slab::gradient, bucket);
  add_to<G>(exec_, elements_of<G>(slot.part, 0, shard.extent(0)), shard);
}

template <class T>
void DataParallel<T>::finish_gradients() {
  for (std::size_t b = state_.size(); b-- > 0;) {
    if (is_used_by_chunks(b)) reduce(b, false);
    if (zero() < 2) params_.zero_unwritten_gradients(exec_, b);  // of units not used
  }
  for (std::size_t b = state_.size(); b-- > 0;) finish_reduction(b);
  params_.visit_gradient_type([&]<class G>(std::type_identity<G>) {
    sum_tied<G>();
    if (sequence_elements_ > 0) sum_over_tensor<G>();
  });
}

// Sums this rank's part of each tied parameter's gradient over the stages that share it.
// That is done at the end of the step, because the stages come to the end of their
// backward passes one after the other and would wait for each other before.
template <class T>
template <class G>
void DataParallel<T>::sum_tied() {
  for (const std::size_t tied : tied_) {
    groups_.tied(params_.registry().spec(tied).name)
        .all_reduce(exec_,
                    comm::span_of(params_.template updated<G>(Slab::gradient, tied)),
                    comm::Op::sum, "tied gradient");
  }
}

template <class T>
template <class G>
void DataParallel<T>::sum_over_tensor() {
  const ParamRegistry& registry = params_.registry();
  const auto each = [&](const auto& move) {
    std::size_t at = 0;
    for (std::size_t p = 0; p < registry.size() && !exec_.is_shape_only(); ++p) {
      if (!registry.spec(p).in_sequence_region) continue;
      const View1<G> values = params_.template updated<G>(Slab::gradient, p);
      if (values.extent(0) == 0) continue;
      move(values, elements_of<G>(sequence_sums_, at, values.extent(0)));
      at += values.extent(0);
    }
  };
  each([&](const View1<G>& values, const View1<G>& packed) {
    copy(exec_, packed, values);
  });
  const View1<G> sums = elements_of<G>(sequence_sums_, 0, extent(sequence_elements_));
  groups_.tensor->all_reduce(exec_, comm::span_of(sums), comm::Op::sum,
                             "gradients of the sequence region");
  each([&](const View1<G>& values, const View1<G>& packed) {
    copy(exec_, values, packed);
  });
}

template <class T>
void DataParallel<T>::start_gather(std::size_t bucket) {
  BucketState& state = state_[bucket];
  if (zero() >= 3) {  // what was gathered is no longer true
    state.gather.wait(exec_);
    state.has_weights = false;
    if (state.weight_slot >= 0) {
      Slot& slot = slots_[extent(state.weight_slot)];
      if (slot.weights_of == bucket) slot.weights_of.reset();
      state.weight_slot = -1;
    }
    params_.lend_compute(bucket, nullptr);
    return;
  }
  if (zero() == 0) return;
  state.gather = groups_.gradient->start_all_gather(
      exec_, comm::span_of(params_.compute_shard(bucket)),
      comm::span_of(params_.compute_bucket(bucket)), "weights (ZeRO)");
}

template <class T>
void DataParallel<T>::settle() {
  for (std::size_t b = state_.size(); b-- > 0;) {
    finish_reduction(b);
    state_[b].gather.wait(exec_);
  }
}

#define TRIREME_INSTANTIATE(T) template class DataParallel<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::parallel
