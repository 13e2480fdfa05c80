// tensor/param_buffer.hpp — the memory of all parameters of a rank: one flat slab each
// for weights, gradients and the two optimizer moments.
//
// Slabs hold Accumulator<T> (float; double in gradient checks). Where T is narrower there
// is one more slab with the compute copy, refreshed once per optimizer step. Every
// parameter starts at a multiple of kAlignment elements; the padding between them stays
// zero.
#ifndef TRIREME_TENSOR_PARAM_BUFFER_HPP_
#define TRIREME_TENSOR_PARAM_BUFFER_HPP_

#include <cstdint>
#include <vector>

#include "base/exec.hpp"
#include "tensor/param_registry.hpp"

namespace trireme {

enum class Slab { weight, gradient, exp_avg, exp_avg_sq };

template <class T>
class ParamBuffer {
 public:
  using Master = Accumulator<T>;
  static constexpr index_t kAlignment = 64;

  // Which slabs exist: generation and evaluation need weights only.
  enum class Use { training, inference };

  ParamBuffer() = default;

  // Allocates and zeroes the slabs.
  void allocate(const ParamRegistry& registry, Use use);
  // Fills the weights as the registry's initializers say: the same values, bitwise, for
  // every grid and on every device.
  void initialize(const Exec& exec, std::uint64_t seed);
  // Refreshes the compute copy from the master weights; nothing to do where they are one.
  void refresh_compute(const Exec& exec);

  const ParamRegistry& registry() const { return *registry_; }
  bool is_allocated() const { return registry_ != nullptr; }
  // Elements of one slab, alignment padding included.
  index_t slab_elements() const { return total_; }
  index_t offset(std::size_t param) const { return offsets_.at(param); }
  std::size_t bytes() const;

  bool has(Slab slab) const { return slabs_[static_cast<int>(slab)].extent(0) > 0; }
  View1<Master> slab(Slab slab) const { return slabs_[static_cast<int>(slab)]; }
  // One parameter's part of a slab, flat.
  View1<Master> slice(Slab slab, std::size_t param) const;
  // One parameter's compute copy, flat.
  View1<const T> compute_slice(std::size_t param) const;

 private:
  const ParamRegistry* registry_ = nullptr;
  std::vector<index_t> offsets_;
  index_t total_ = 0;
  DeviceArray<Master> slabs_[4];
  DeviceArray<T> compute_;  // empty where T is Master
};

// A layer's handle on one of its parameters: never a View of the slab, so that layouts
// (packed, sharded, mixed precision) change no layer.
template <class T>
class ParamRef {
 public:
  using Master = Accumulator<T>;

  ParamRef() = default;
  // Registers the parameter; `buffer` is allocated later, before the views are asked for.
  ParamRef(ParamRegistry& registry, const ParamBuffer<T>& buffer, ParamSpec spec)
      : buffer_(&buffer), index_(registry.add(std::move(spec))), registry_(&registry) {}
  // A second user of a parameter that another layer registered (tied weights).
  ParamRef(const ParamRegistry& registry, const ParamBuffer<T>& buffer, std::size_t index)
      : buffer_(&buffer), index_(index), registry_(&registry) {}

  const ParamSpec& spec() const { return registry_->spec(index_); }
  const std::string& name() const { return spec().name; }
  const Shape& global_shape() const { return spec().shard.global_shape; }
  const Shape& local_shape() const { return spec().shard.local_shape; }
  std::size_t index() const { return index_; }

  // The compute copy, and the gradient it accumulates into; null Views of the right shape
  // while the buffer is not allocated (shape-only passes).
  View2<const T> matrix() const;  // (rows, columns) of a two-dimensional parameter
  View1<const T> vector() const;  // of a one-dimensional one
  View2<Master> matrix_gradient() const;
  View1<Master> vector_gradient() const;

 private:
  const ParamBuffer<T>* buffer_ = nullptr;
  std::size_t index_ = 0;
  const ParamRegistry* registry_ = nullptr;
};

}  // namespace trireme

#endif  // TRIREME_TENSOR_PARAM_BUFFER_HPP_
