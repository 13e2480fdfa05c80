// tensor/param_buffer.hpp — the memory of all parameters of a rank: one flat slab each
// for weights, gradients and the two optimizer moments.
//
// Slabs hold Accumulator<T> (float; double in gradient checks). Where T is narrower there
// is one more slab with the compute copy, which the optimizer writes beside them, and the
// gradients may be T, too, if asked for and has_narrow_gradients<T>. Every
// parameter starts at a multiple of kAlignment elements. All padding stays zero: between
// parameters, behind those of a bucket (it makes ZeRO's parts equal), and in the last
// rows of a vocabulary. No share has any of it, so that the optimizer, sums and
// checkpoints do not meet it; passes write zeros to the gradients of padding rows.
//
// Nobody zeroes gradients for a step to add to. A parameter's gradient is marked as not
// written, and the first pass that writes it overwrites what is there (begin_gradient);
// what no pass has written in the end is zeroed then.
//
// ZeRO (Rajbhandari et al. 2020) leaves of some slabs only this rank's shard (Partition):
//   ZeRO 1  the moments (and, where there is a compute copy, the master weights)
//   ZeRO 2  and the gradients: a unit has memory for its own only while it is in use
//   ZeRO 3  and the weights: the same
// Whoever gathers and reduces (parallel::DataParallel) lends that memory to the buckets.
#ifndef TRIREME_TENSOR_PARAM_BUFFER_HPP_
#define TRIREME_TENSOR_PARAM_BUFFER_HPP_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/gemm.hpp"
#include "tensor/partition.hpp"

namespace trireme {

enum class Slab { weight, gradient, exp_avg, exp_avg_sq };

template <class T>
class ParamBuffer {
 public:
  using Master = Accumulator<T>;
  static constexpr index_t kAlignment = Partition::kAlignment;
  // Whether passes read a copy of the weights, narrower than the master weights.
  static constexpr bool kHasCopy = !std::is_same_v<T, Master>;

  // Which slabs exist: generation and evaluation need weights only.
  enum class Use { training, inference };

  // What of them is kept where `parts` ranks hold the same model; this one is `part`.
  // ZeRO 0 cuts nothing: its slabs are those of one part.
  struct Sharding {
    int zero = 0;  // the degree of ZeRO
    int parts = 1;
    int part = 0;
    index_t bucket_elements = index_t{4} << 20;
    bool narrow_gradients = false;  // T, and not Master
  };

  ParamBuffer() = default;

  // Decides where everything lies; sizes are known from then on, and Views have no
  // memory.
  void plan(const ParamRegistry& registry, const Sharding& sharding);
  // Allocates and zeroes the slabs.
  void allocate(const ParamRegistry& registry, Use use, const Sharding& sharding);
  void allocate(const ParamRegistry& registry, Use use) { allocate(registry, use, {}); }
  // Fills the weights as the registry's initializers say: the same values, bitwise, for
  // every grid and on every device.
  void initialize(const Exec& exec, std::uint64_t seed);
  // Refreshes the compute copy from the master weights (of this rank's shard, where that
  // is all there is of them) after these were drawn or read; nothing to do where they are
  // one.
  void refresh_compute(const Exec& exec, std::size_t bucket);
  void refresh_compute(const Exec& exec);

  const ParamRegistry& registry() const { return *registry_; }
  bool is_allocated() const { return slab_count_ > 0; }
  // Elements of one whole slab, padding included.
  index_t slab_elements() const { return partition_.slab_elements(); }
  index_t offset(std::size_t param) const { return partition_.offset(param); }
  const Partition& partition() const { return partition_; }
  const Sharding& sharding() const { return sharding_; }
  // Bytes of a slab and of the compute copy, known once planned, and of all that is
  // allocated.
  std::size_t slab_bytes(Slab slab) const;
  std::size_t compute_bytes() const;
  std::size_t bytes() const;

  bool has(Slab slab) const { return static_cast<int>(slab) < slab_count_; }
  // Whether all of a slab is here, or this rank's shard only.
  bool is_whole(Slab slab) const;
  bool is_compute_whole() const { return sharding_.zero < 3; }
  // Type of a slab's elements: Master, or that of gradients.
  DType type_of(Slab slab) const {
    const bool is_narrow = slab == Slab::gradient && sharding_.narrow_gradients;
    return is_narrow ? dtype_of<T> : dtype_of<Master>;
  }
  // Calls visit(std::type_identity<G>()) with the type of the gradients' elements.
  template <class Visit>
  void visit_gradient_type(const Visit& visit) const {
    if constexpr (has_narrow_gradients<T>) {
      if (sharding_.narrow_gradients) return visit(std::type_identity<T>());
    }
    visit(std::type_identity<Master>());
  }

  // Below, G is the type of the elements, which has to be type_of(slab).
  //
  // All that is here, or would be where it is only planned.
  template <class G = Master>
  View1<G> slab(Slab slab) const {
    const std::size_t bytes = has(slab) || !is_allocated() ? slab_bytes(slab) : 0;
    return {data_of<G>(slab), bytes / sizeof(G)};
  }
  // One parameter's part of a whole slab, flat, and as below without rows of padding.
  template <class G = Master>
  View1<G> slice(Slab slab, std::size_t param) const;
  // One parameter's compute copy, flat; with ZeRO 3 there is one while it is lent.
  View1<const T> compute_slice(std::size_t param) const;
  // Where gradients of a parameter go. With ZeRO 2 and 3 that is memory which is lent to
  // the unit for a while, and there must be some.
  template <class G = Master>
  View1<G> gradient_slice(std::size_t param) const;

  // What a slab has of a parameter here: which elements of its flat local array, and
  // where they are. All of it where the slab is whole.
  template <class G = Master>
  struct Share {
    IndexRange range;
    View1<G> values;
  };
  template <class G = Master>
  Share<G> share(Slab slab, std::size_t param) const;
  // What this rank's optimizer changes of a parameter (its part; without ZeRO all of it),
  // and where a slab has that.
  IndexRange updated(std::size_t param) const {
    return partition_.share(param, sharding_.part);
  }
  template <class G = Master>
  View1<G> updated(Slab slab, std::size_t param) const;
  // This rank's part of a bucket of a slab.
  template <class G = Master>
  View1<G> shard(Slab slab, std::size_t bucket) const;
  // The compute copy of a bucket: of all parts where it is whole, and of this rank's.
  View1<T> compute_bucket(std::size_t bucket) const;
  View1<T> compute_shard(std::size_t bucket) const;
  // All that is here of the compute copy, where there is one, and where it has what this
  // rank's optimizer changes of a parameter.
  View1<T> compute_copy() const { return {compute_.data(), compute_.extent(0)}; }
  View1<T> updated_compute(std::size_t param) const;
  // The whole bucket of the gradient slab (ZeRO 0 and 1).
  template <class G = Master>
  View1<G> gradient_bucket(std::size_t bucket) const;

  // The gradients of a bucket's parameters are not written from now on: what is in their
  // memory counts for nothing.
  void forget_gradients(std::size_t bucket);
  // To be asked, once, by what is about to write a parameter's gradient: whether to
  // overwrite, because nothing has been written since they were forgotten, or to add. On
  // shapes, where nobody writes, one adds.
  kernels::Accumulate begin_gradient(std::size_t param) const;
  // Zeroes the gradients that nobody has written since.
  void zero_unwritten_gradients(const Exec& exec, std::size_t bucket);
  // Zeroes what no parameter has of a bucket's gradients. For lent memory, in which
  // another bucket may have had a parameter there.
  void zero_gradient_padding(const Exec& exec, std::size_t bucket) const;

  // Memory for all of a bucket, from now on; null: none any more. Of gradients, in the
  // type that they have.
  void lend_compute(std::size_t bucket, T* memory) { lent_compute_.at(bucket) = memory; }
  void lend_gradient(std::size_t bucket, void* memory) {
    lent_gradient_.at(bucket) = memory;
  }

 private:
  index_t extent(bool whole) const;
  IndexRange shard_range(std::size_t bucket, bool is_whole) const;
  IndexRange params_of(std::size_t bucket) const;
  void require(Slab slab) const;
  template <class G>
  G* data_of(Slab slab) const;
  template <class G>
  void zero_padding_of(const Exec& exec, std::size_t bucket, View1<G> all) const;
  void fill_share(const Exec& exec, std::uint64_t seed, std::size_t param) const;

  const ParamRegistry* registry_ = nullptr;
  Sharding sharding_;
  Partition partition_;
  int slab_count_ = 0;  // that are allocated; of some a rank's shard may be empty
  DeviceArray<Master> slabs_[4];
  DeviceArray<T> narrow_gradients_;  // in the place of that slab
  DeviceArray<T> compute_;           // empty where T is Master
  std::vector<T*> lent_compute_;
  std::vector<void*> lent_gradient_;
  // Of each parameter: 1 where its gradient is not written. Like what the Views show it
  // is no part of what a const buffer promises to keep.
  mutable std::vector<std::uint8_t> is_unwritten_;
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

  // The compute copy, and the gradient; null Views of the right shape while the buffer is
  // not allocated (shape-only passes).
  View2<const T> matrix() const;  // (rows, columns) of a two-dimensional parameter
  View1<const T> vector() const;  // of a one-dimensional one
  // The matrix as products take it.
  kernels::WeightOperand<T> operand() const {
    return kernels::WeightOperand<T>(matrix());
  }
  template <class G = Master>
  View2<G> matrix_gradient() const;
  template <class G = Master>
  View1<G> vector_gradient() const;
  // To be asked once before each time that the gradient is written: whether to add to it.
  kernels::Accumulate begin_gradient() const { return buffer_->begin_gradient(index_); }
  // Both for who writes the gradient, whatever its type: write(accumulate, gradient).
  template <class Write>
  void write_matrix_gradient(const Write& write) const {
    visit_gradient_type([&]<class G>(std::type_identity<G>) {
      write(begin_gradient(), matrix_gradient<G>());
    });
  }
  template <class Write>
  void write_vector_gradient(const Write& write) const {
    visit_gradient_type([&]<class G>(std::type_identity<G>) {
      write(begin_gradient(), vector_gradient<G>());
    });
  }
  // Calls visit(std::type_identity<G>()) with the type of the gradient's elements.
  template <class Visit>
  void visit_gradient_type(const Visit& visit) const {
    buffer_->visit_gradient_type(visit);
  }

 private:
  const ParamBuffer<T>* buffer_ = nullptr;
  std::size_t index_ = 0;
  const ParamRegistry* registry_ = nullptr;
};

}  // namespace trireme

#endif  // TRIREME_TENSOR_PARAM_BUFFER_HPP_
