// tensor/param_buffer.cpp — see param_buffer.hpp.
//
// Where a parameter lies in whole slabs, and which range of it is this rank's, are the
// Partition's to say; here these ranges become Views. A slab that is whole has a
// parameter at offset(); one that is cut has this rank's parts of all buckets one behind
// the other. Example with 2 ranks and buckets [0, 256) and [256, 512) of a slab: rank 1's
// cut slab has 256 elements, [128, 256) of the first bucket and behind it [384, 512) of
// the second. A parameter at offset 320 with 128 elements ends at 448, so that rank 1 has
// its elements [64, 128), from 128 on in its own slab.
#include "tensor/param_buffer.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "kernels/initialize.hpp"

namespace trireme {

namespace {

// The address of an element; null where the slab is only planned and has no memory to
// point into.
template <class T>
T* element_of(T* data, index_t offset) {
  return data == nullptr ? nullptr : data + offset;
}

}  // namespace

template <class T>
index_t ParamBuffer<T>::extent(bool whole) const {
  return whole ? partition_.slab_elements() : partition_.shard_elements();
}

template <class T>
void ParamBuffer<T>::require(Slab slab) const {
  TRIREME_REQUIRE(has(slab) || !is_allocated(),
                  "this run has no such slab (inference keeps weights only)");
}

template <class T>
template <class G>
G* ParamBuffer<T>::data_of(Slab slab) const {
  TRIREME_REQUIRE(dtype_of<G> == type_of(slab), "a slab of {} is asked for as one of {}",
                  name_of(type_of(slab)), name_of(dtype_of<G>));
  if constexpr (std::is_same_v<G, Master>) {
    return slabs_[static_cast<int>(slab)].data();
  } else {
    return narrow_gradients_.data();
  }
}

template <class T>
bool ParamBuffer<T>::is_whole(Slab slab) const {
  switch (slab) {
    case Slab::weight:
      return sharding_.zero < (kHasCopy ? 1 : 3);
    case Slab::gradient:
      return sharding_.zero < 2;
    case Slab::exp_avg:
    case Slab::exp_avg_sq:
      return sharding_.zero < 1;
  }
  throw Error("not a slab");
}

template <class T>
void ParamBuffer<T>::plan(const ParamRegistry& registry, const Sharding& sharding) {
  TRIREME_REQUIRE(sharding.zero >= 0 && sharding.zero <= 3, "there is no ZeRO {}",
                  sharding.zero);
  TRIREME_REQUIRE(!sharding.narrow_gradients || has_narrow_gradients<T>,
                  "gradients of a model in {} are kept in {}", name_of(dtype_of<T>),
                  name_of(dtype_of<Master>));
  registry_ = &registry;
  sharding_ = sharding;
  if (sharding.zero == 0) {  // nothing is cut, and nothing is padded for it
    sharding_.parts = 1;
    sharding_.part = 0;
  }
  partition_ = Partition(registry, sharding_.parts, sharding.bucket_elements);
  lent_compute_.assign(partition_.buckets().size(), nullptr);
  lent_gradient_.assign(partition_.buckets().size(), nullptr);
  is_unwritten_.assign(registry.size(), 0);
}

template <class T>
void ParamBuffer<T>::allocate(const ParamRegistry& registry, Use use,
                              const Sharding& sharding) {
  plan(registry, sharding);
  const char* labels[] = {"weight", "gradient", "exp_avg", "exp_avg_sq"};
  slab_count_ = use == Use::training ? 4 : 1;
  for (int i = 0; i < slab_count_; ++i) {
    const auto count = static_cast<std::size_t>(extent(is_whole(static_cast<Slab>(i))));
    if (type_of(static_cast<Slab>(i)) == dtype_of<Master>) {
      slabs_[i] = DeviceArray<Master>(labels[i], count);
    } else {
      narrow_gradients_ = DeviceArray<T>(labels[i], count);
    }
  }
  if constexpr (kHasCopy) {
    compute_ =
        DeviceArray<T>("compute", static_cast<std::size_t>(extent(is_compute_whole())));
  }
}

template <class T>
std::size_t ParamBuffer<T>::slab_bytes(Slab slab) const {
  return static_cast<std::size_t>(extent(is_whole(slab))) * size_of(type_of(slab));
}

template <class T>
std::size_t ParamBuffer<T>::compute_bytes() const {
  if constexpr (!kHasCopy) return 0;
  return static_cast<std::size_t>(extent(is_compute_whole())) * sizeof(T);
}

template <class T>
void ParamBuffer<T>::initialize(const Exec& exec, std::uint64_t seed) {
  for (std::size_t i = 0; i < registry_->size(); ++i) fill_share(exec, seed, i);
  refresh_compute(exec);
}

// Draws the initial values of all that this rank has of a parameter's weights.
template <class T>
void ParamBuffer<T>::fill_share(const Exec& exec, std::uint64_t seed,
                                std::size_t param) const {
  const ParamSpec& spec = registry_->spec(param);
  const Share<> share = this->share(Slab::weight, param);
  if (share.range.size() == 0) return;
  if (spec.init.kind == Initializer::Kind::constant) {
    kernels::fill(exec, share.values, static_cast<Master>(spec.init.value));
    return;
  }
  const random::Generator generator{.seed = seed,
                                    .owner = random::owner_of(spec.name),
                                    .stream = random::Stream::initialisation};
  const Shape& global = spec.shard.global_shape;
  const Shape& local = spec.shard.local_shape;
  TRIREME_REQUIRE(global.size() == 2, "'{}' {}: only matrices are drawn at random",
                  spec.name, to_string(global));
  std::vector<Segment> segments = spec.shard.segments;
  if (spec.shard.is_replicated()) segments = {{0, 0, global[0]}};
  const bool by_row = spec.shard.dimension != 1;
  for (const Segment& segment : segments) {
    const index_t first = by_row ? segment.global_begin : 0;
    const index_t rows = by_row ? segment.extent : local[0];
    const auto fill = [&](index_t begin, index_t end, double std) {
      const kernels::MatrixWindow window{
          .global_row = begin,
          .global_column = by_row ? 0 : segment.global_begin,
          .global_columns = global[1],
          .local_row = begin - first + (by_row ? segment.local_begin : 0),
          .local_column = by_row ? 0 : segment.local_begin,
          .local_columns = local[1],
          .rows = end - begin,
          .columns = by_row ? local[1] : segment.extent,
          .begin = share.range.begin,
          .end = share.range.end};
      kernels::fill_normal(exec, generator, std, window, share.values);
    };
    spec.init.visit_rows(first, first + rows, fill);
  }
}

template <class T>
void ParamBuffer<T>::refresh_compute(const Exec& exec, std::size_t bucket) {
  if constexpr (kHasCopy) {
    const IndexRange range = partition_.buckets().at(bucket).range;
    if (is_whole(Slab::weight)) {
      const View1<const Master> all(slab(Slab::weight).data() + range.begin,
                                    static_cast<std::size_t>(range.size()));
      kernels::convert<Master, T>(exec, all, compute_bucket(bucket));
    } else {
      kernels::convert<Master, T>(exec, shard(Slab::weight, bucket),
                                  compute_shard(bucket));
    }
  } else {
    (void)exec;
    (void)bucket;
  }
}

template <class T>
void ParamBuffer<T>::refresh_compute(const Exec& exec) {
  for (std::size_t b = 0; b < partition_.buckets().size(); ++b) refresh_compute(exec, b);
}

template <class T>
std::size_t ParamBuffer<T>::bytes() const {
  std::size_t bytes = (compute_.span() + narrow_gradients_.span()) * sizeof(T);
  for (const auto& slab : slabs_) bytes += slab.span() * sizeof(Master);
  return bytes;
}

template <class T>
template <class G>
View1<G> ParamBuffer<T>::slice(Slab slab, std::size_t param) const {
  require(slab);
  TRIREME_REQUIRE(is_whole(slab), "of '{}' only this rank's share is here (ZeRO {})",
                  registry_->spec(param).name, sharding_.zero);
  const index_t count = registry_->spec(param).shard.real_elements();
  return {element_of(data_of<G>(slab), offset(param)), static_cast<std::size_t>(count)};
}

template <class T>
template <class G>
typename ParamBuffer<T>::template Share<G> ParamBuffer<T>::share(
    Slab slab, std::size_t param) const {
  if (is_whole(slab)) {
    const View1<G> all = slice<G>(slab, param);
    return {{0, static_cast<index_t>(all.extent(0))}, all};
  }
  const IndexRange range = updated(param);
  const std::size_t bucket = partition_.bucket_of_param(param);
  // The elements from the start of this rank's part of the bucket to the start of its
  // share of the parameter.
  const index_t before = offset(param) + range.begin -
                         partition_.buckets()[bucket].part(sharding_.part).begin;
  const View1<G> mine = shard<G>(slab, bucket);
  return {range, View1<G>(element_of(mine.data(), range.size() == 0 ? 0 : before),
                          static_cast<std::size_t>(range.size()))};
}

template <class T>
template <class G>
View1<G> ParamBuffer<T>::updated(Slab slab, std::size_t param) const {
  const Share<G> here = share<G>(slab, param);
  const IndexRange range = updated(param);
  return {element_of(here.values.data(), range.begin - here.range.begin),
          static_cast<std::size_t>(range.size())};
}

template <class T>
View1<T> ParamBuffer<T>::updated_compute(std::size_t param) const {
  const IndexRange range = updated(param);
  const std::size_t bucket = partition_.bucket_of_param(param);
  const index_t before = offset(param) + range.begin -
                         partition_.buckets()[bucket].part(sharding_.part).begin;
  const View1<T> mine = compute_shard(bucket);
  return {element_of(mine.data(), range.size() == 0 ? 0 : before),
          static_cast<std::size_t>(range.size())};
}

// Where this rank's part of a bucket lies: in an array of all parts, or in one of its own
// parts alone.
template <class T>
IndexRange ParamBuffer<T>::shard_range(std::size_t bucket, bool is_whole) const {
  const Bucket& cut = partition_.buckets().at(bucket);
  if (is_whole) return cut.part(sharding_.part);
  const index_t begin = partition_.shard_offset(bucket);
  return {begin, begin + cut.part_size};
}

template <class T>
template <class G>
View1<G> ParamBuffer<T>::shard(Slab slab, std::size_t bucket) const {
  require(slab);
  const IndexRange mine = shard_range(bucket, is_whole(slab));
  return {element_of(data_of<G>(slab), mine.begin),
          static_cast<std::size_t>(mine.size())};
}

template <class T>
View1<T> ParamBuffer<T>::compute_bucket(std::size_t bucket) const {
  const IndexRange range = partition_.buckets().at(bucket).range;
  T* data = lent_compute_.at(bucket);
  if (is_compute_whole()) {
    if constexpr (!kHasCopy) {
      data = element_of(slabs_[static_cast<int>(Slab::weight)].data(), range.begin);
    } else {
      data = element_of(compute_.data(), range.begin);
    }
  }
  TRIREME_REQUIRE(data != nullptr || !is_allocated(),
                  "weights are asked for that were not gathered");
  return {data, static_cast<std::size_t>(range.size())};
}

template <class T>
View1<T> ParamBuffer<T>::compute_shard(std::size_t bucket) const {
  if constexpr (!kHasCopy) {
    return shard(Slab::weight, bucket);
  } else {
    const IndexRange mine = shard_range(bucket, is_compute_whole());
    return {element_of(compute_.data(), mine.begin),
            static_cast<std::size_t>(mine.size())};
  }
}

template <class T>
template <class G>
View1<G> ParamBuffer<T>::gradient_bucket(std::size_t bucket) const {
  const IndexRange range = partition_.buckets().at(bucket).range;
  G* const whole = data_of<G>(Slab::gradient);
  G* data = is_whole(Slab::gradient) ? element_of(whole, range.begin)
                                     : static_cast<G*>(lent_gradient_.at(bucket));
  TRIREME_REQUIRE(data != nullptr || !is_allocated(),
                  "gradients are asked for that have no memory");
  return {data, static_cast<std::size_t>(range.size())};
}

// The parameters of a bucket, by number.
template <class T>
IndexRange ParamBuffer<T>::params_of(std::size_t bucket) const {
  const Bucket& of = partition_.buckets().at(bucket);
  return {static_cast<index_t>(registry_->units()[of.first_unit].begin),
          static_cast<index_t>(registry_->units()[of.end_unit - 1].end)};
}

template <class T>
void ParamBuffer<T>::forget_gradients(std::size_t bucket) {
  if (!is_allocated()) return;
  const IndexRange params = params_of(bucket);
  std::fill(is_unwritten_.begin() + params.begin, is_unwritten_.begin() + params.end, 1);
}

template <class T>
kernels::Accumulate ParamBuffer<T>::begin_gradient(std::size_t param) const {
  if (!is_allocated()) return kernels::Accumulate::yes;
  const bool is_first = std::exchange(is_unwritten_.at(param), 0) != 0;
  return is_first ? kernels::Accumulate::no : kernels::Accumulate::yes;
}

template <class T>
void ParamBuffer<T>::zero_unwritten_gradients(const Exec& exec, std::size_t bucket) {
  const IndexRange params = params_of(bucket);
  for (index_t p = params.begin; p < params.end; ++p) {
    const auto param = static_cast<std::size_t>(p);
    if (begin_gradient(param) == kernels::Accumulate::yes) continue;
    visit_gradient_type([&]<class G>(std::type_identity<G>) {
      kernels::fill(exec, gradient_slice<G>(param), static_cast<G>(Master{0}));
    });
  }
}

template <class T>
void ParamBuffer<T>::zero_gradient_padding(const Exec& exec, std::size_t bucket) const {
  visit_gradient_type([&]<class G>(std::type_identity<G>) {
    zero_padding_of(exec, bucket, gradient_bucket<G>(bucket));
  });
}

template <class T>
template <class G>
void ParamBuffer<T>::zero_padding_of(const Exec& exec, std::size_t bucket,
                                     View1<G> all) const {
  const index_t first = partition_.buckets()[bucket].range.begin;
  kernels::Runs gaps;
  index_t end = 0;  // of the parameter before
  const auto add_gap_to = [&](index_t begin) {
    if (begin > end) gaps.add({end, begin - end});
    if (gaps.is_full()) kernels::zero_runs(exec, std::exchange(gaps, {}), all);
  };
  const IndexRange params = params_of(bucket);
  for (index_t p = params.begin; p < params.end; ++p) {
    const auto param = static_cast<std::size_t>(p);
    add_gap_to(offset(param) - first);
    end = offset(param) - first + registry_->spec(param).shard.real_elements();
  }
  add_gap_to(static_cast<index_t>(all.extent(0)));
  kernels::zero_runs(exec, gaps, all);
}

template <class T>
View1<const T> ParamBuffer<T>::compute_slice(std::size_t param) const {
  const std::size_t bucket = partition_.bucket_of_param(param);
  const index_t begin = offset(param) - partition_.buckets()[bucket].range.begin;
  return {element_of(compute_bucket(bucket).data(), begin),
          static_cast<std::size_t>(registry_->spec(param).shard.real_elements())};
}

template <class T>
template <class G>
View1<G> ParamBuffer<T>::gradient_slice(std::size_t param) const {
  require(Slab::gradient);
  const std::size_t bucket = partition_.bucket_of_param(param);
  const index_t begin = offset(param) - partition_.buckets()[bucket].range.begin;
  return {element_of(gradient_bucket<G>(bucket).data(), begin),
          static_cast<std::size_t>(registry_->spec(param).shard.real_elements())};
}

template <class T>
View2<const T> ParamRef<T>::matrix() const {
  const Shape& shape = local_shape();
  const T* data =
      buffer_->is_allocated() ? buffer_->compute_slice(index_).data() : nullptr;
  return {data, static_cast<std::size_t>(shape.at(0)),
          static_cast<std::size_t>(shape.at(1))};
}

template <class T>
View1<const T> ParamRef<T>::vector() const {
  const T* data =
      buffer_->is_allocated() ? buffer_->compute_slice(index_).data() : nullptr;
  return {data, static_cast<std::size_t>(local_shape().at(0))};
}

template <class T>
template <class G>
View2<G> ParamRef<T>::matrix_gradient() const {
  const Shape& shape = local_shape();
  G* data = buffer_->is_allocated() ? buffer_->template gradient_slice<G>(index_).data()
                                    : nullptr;
  return {data, static_cast<std::size_t>(shape.at(0)),
          static_cast<std::size_t>(shape.at(1))};
}

template <class T>
template <class G>
View1<G> ParamRef<T>::vector_gradient() const {
  G* data = buffer_->is_allocated() ? buffer_->template gradient_slice<G>(index_).data()
                                    : nullptr;
  return {data, static_cast<std::size_t>(local_shape().at(0))};
}

#define TRIREME_INSTANTIATE(T)   \
  template class ParamBuffer<T>; \
  template class ParamRef<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
#define TRIREME_INSTANTIATE(T, G)                                                      \
  template G* ParamBuffer<T>::data_of<G>(Slab) const;                                  \
  template View1<G> ParamBuffer<T>::slice<G>(Slab, std::size_t) const;                 \
  template ParamBuffer<T>::Share<G> ParamBuffer<T>::share<G>(Slab, std::size_t) const; \
  template View1<G> ParamBuffer<T>::updated<G>(Slab, std::size_t) const;               \
  template View1<G> ParamBuffer<T>::shard<G>(Slab, std::size_t) const;                 \
  template View1<G> ParamBuffer<T>::gradient_slice<G>(std::size_t) const;              \
  template View1<G> ParamBuffer<T>::gradient_bucket<G>(std::size_t) const;             \
  template View2<G> ParamRef<T>::matrix_gradient<G>() const;                           \
  template View1<G> ParamRef<T>::vector_gradient<G>() const;
TRIREME_FOR_EACH_GRADIENT(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme
