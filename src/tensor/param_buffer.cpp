// tensor/param_buffer.cpp — see param_buffer.hpp.
#include "tensor/param_buffer.hpp"

#include "base/error.hpp"
#include "base/random.hpp"
#include "kernels/initialize.hpp"

namespace trireme {

template <class T>
void ParamBuffer<T>::allocate(const ParamRegistry& registry, Use use) {
  registry_ = &registry;
  offsets_.clear();
  total_ = 0;
  for (const ParamSpec& spec : registry.specs()) {
    offsets_.push_back(total_);
    const index_t count = element_count(spec.shard.local_shape);
    total_ += (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  const char* labels[] = {"weight", "gradient", "exp_avg", "exp_avg_sq"};
  const int slabs = use == Use::training ? 4 : 1;
  for (int i = 0; i < slabs; ++i) {
    slabs_[i] = DeviceArray<Master>(labels[i], static_cast<std::size_t>(total_));
  }
  if constexpr (!std::is_same_v<T, Master>) {
    compute_ = DeviceArray<T>("compute", static_cast<std::size_t>(total_));
  }
}

template <class T>
void ParamBuffer<T>::initialize(const Exec& exec, std::uint64_t seed) {
  for (std::size_t i = 0; i < registry_->size(); ++i) {
    const ParamSpec& spec = registry_->spec(i);
    const View1<Master> weight = slice(Slab::weight, i);
    if (spec.init.kind == Initializer::Kind::constant) {
      kernels::fill(exec, weight, static_cast<Master>(spec.init.value));
      continue;
    }
    const random::Generator generator{.seed = seed,
                                      .owner = random::owner_of(spec.name),
                                      .stream = random::Stream::initialisation};
    const Shape& global = spec.shard.global_shape;
    const Shape& local = spec.shard.local_shape;
    TRIREME_REQUIRE(global.size() == 2, "'{}' {}: only matrices are drawn at random",
                    spec.name, to_string(global));
    kernels::fill(exec, weight, Master{0});  // padding rows stay zero
    std::vector<Segment> segments = spec.shard.segments;
    if (spec.shard.is_replicated()) segments = {{0, 0, global[0]}};
    for (const Segment& segment : segments) {
      const bool by_row = spec.shard.dimension != 1;
      const kernels::MatrixWindow window{
          .global_row = by_row ? segment.global_begin : 0,
          .global_column = by_row ? 0 : segment.global_begin,
          .global_columns = global[1],
          .local_row = by_row ? segment.local_begin : 0,
          .local_column = by_row ? 0 : segment.local_begin,
          .local_columns = local[1],
          .rows = by_row ? segment.extent : local[0],
          .columns = by_row ? local[1] : segment.extent};
      kernels::fill_normal(exec, generator, spec.init.value, window, weight);
    }
  }
  refresh_compute(exec);
}

template <class T>
void ParamBuffer<T>::refresh_compute(const Exec& exec) {
  if constexpr (!std::is_same_v<T, Master>) {
    kernels::convert<Master, T>(exec, slab(Slab::weight), View1<T>(compute_));
  } else {
    (void)exec;
  }
}

template <class T>
std::size_t ParamBuffer<T>::bytes() const {
  std::size_t bytes = compute_.span() * sizeof(T);
  for (const auto& slab : slabs_) bytes += slab.span() * sizeof(Master);
  return bytes;
}

template <class T>
View1<typename ParamBuffer<T>::Master> ParamBuffer<T>::slice(Slab slab,
                                                             std::size_t param) const {
  TRIREME_REQUIRE(has(slab), "this run has no such slab (inference keeps weights only)");
  const index_t count = element_count(registry_->spec(param).shard.local_shape);
  return {slabs_[static_cast<int>(slab)].data() + offsets_.at(param),
          static_cast<std::size_t>(count)};
}

template <class T>
View1<const T> ParamBuffer<T>::compute_slice(std::size_t param) const {
  if constexpr (std::is_same_v<T, Master>) {
    return slice(Slab::weight, param);
  } else {
    const index_t count = element_count(registry_->spec(param).shard.local_shape);
    return {compute_.data() + offsets_.at(param), static_cast<std::size_t>(count)};
  }
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
View2<Accumulator<T>> ParamRef<T>::matrix_gradient() const {
  const Shape& shape = local_shape();
  Master* data =
      buffer_->is_allocated() ? buffer_->slice(Slab::gradient, index_).data() : nullptr;
  return {data, static_cast<std::size_t>(shape.at(0)),
          static_cast<std::size_t>(shape.at(1))};
}

template <class T>
View1<Accumulator<T>> ParamRef<T>::vector_gradient() const {
  Master* data =
      buffer_->is_allocated() ? buffer_->slice(Slab::gradient, index_).data() : nullptr;
  return {data, static_cast<std::size_t>(local_shape().at(0))};
}

#define TRIREME_INSTANTIATE(T)   \
  template class ParamBuffer<T>; \
  template class ParamRef<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme
