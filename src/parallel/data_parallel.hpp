// parallel/data_parallel.hpp — ranks that hold the same model on other samples: their
// gradients become one, and ZeRO (Rajbhandari et al. 2020) keeps of optimizer state,
// gradients and weights one part on each.
//
//   ZeRO 0  gradients of the last micro-batch's backward pass are all-reduced bucket by
//            bucket, while the layers below go on
//   ZeRO 1  reduce-scattered in the same way; each rank updates its part of the weights,
//            which are gathered bucket by bucket while the next ones are updated, until
//            the forward pass needs them
//   ZeRO 2  every micro-batch reduce-scatters each bucket, and adds the result to this
//            rank's part; whole gradients exist for two buckets at a time
//   ZeRO 3  and weights are gathered in every pass that reads them, the next bucket's
//            while this one is in use; whole weights exist for two buckets at a time
// A bucket that others borrow from, or that has a tied parameter (the word embedding),
// has memory of its own for as long as it is in use, with ZeRO 3 until the weights
// change. A bucket that several chunks of this stage use is reduced once, at the end of
// the step.
//
// Gradients are added to each other, within a rank and between ranks, in the type that
// they are kept in (ParamBuffer); each sum of two of 16 bits is taken in float.
//
// With sequence parallelism what is used on local rows (ParamSpec::in_sequence_region) is
// summed over the tensor group as well: one message, after all others.
#ifndef TRIREME_PARALLEL_DATA_PARALLEL_HPP_
#define TRIREME_PARALLEL_DATA_PARALLEL_HPP_

#include <cstddef>
#include <optional>
#include <vector>

#include "base/types.hpp"
#include "comm/process_groups.hpp"
#include "tensor/param_buffer.hpp"
#include "tensor/param_use.hpp"

namespace trireme::parallel {

template <class T>
class DataParallel final : public ParamUse {
 public:
  // The site of messages that gather weights while passes run (ZeRO 3).
  static constexpr comm::Site kGatherInPass = "weights (ZeRO 3)";

  // params must be allocated, or planned where `exec` is shape-only; all of it outlives
  // this object. Collective over the groups of tied parameters, who must cut these alike.
  DataParallel(const Exec& exec, const comm::ProcessGroups& groups,
               ParamBuffer<T>& params, bool sequence_parallel);

  // Waits for what is under way, unless an error ends the run: messages must not outlive
  // the memory they go to.
  ~DataParallel() override;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Bytes that it allocates for a buffer that is planned at least, and that its messages
  // keep beside it where kernels run on the host (Group::staging_bytes).
  static std::size_t planned_bytes(const ParamBuffer<T>& params, bool sequence_parallel);
  static std::size_t planned_staging_bytes(const ParamBuffer<T>& params);
  // Bytes that it has allocated.
  std::size_t bytes() const;

  // A step: begin_step(); for each micro-batch begin_microbatch(), then its passes, which
  // call begin() and end(); finish_gradients(); then the optimizer, bucket by bucket,
  // each followed by start_gather().
  void begin_step();
  // The first gradient that is reduced next, of those that this rank counts in the norm,
  // is made infinite before.
  void plant_overflow() { overflows_ = true; }
  // Called before a pass that adds to gradients, with whether it is the first and whether
  // it is the last such pass of its chunk in the step.
  void begin_microbatch(bool is_first, bool is_last);
  // Called before a pass that reads weights: what it reads, and the next such pass, so
  // that the right weights are fetched ahead (ZeRO 3). Where nobody says, all units may
  // be read, and no pass comes next.
  void begin_pass(const PassUnits& units, const std::optional<PassUnits>& next);
  void end_passes();
  void begin(std::size_t unit, Pass pass) override;
  void end(std::size_t unit, Pass pass) override;
  // Gradients (or this rank's part of them) are summed over all data ranks; those
  // of tied parameters over the stages that share them, too.
  void finish_gradients();
  // A bucket's weights were changed: the other ranks' parts are fetched.
  void start_gather(std::size_t bucket);
  // Waits for all that is under way; whole weights are then everywhere (ZeRO 0 to 2).
  void settle();

 private:
  struct BucketState {
    comm::Request reduction;
    comm::Request gather;
    bool has_weights = false;    // ZeRO 3: gathered, or being gathered
    int weight_slot = -1;        // which of the lent buffers
    int gradient_slot = -1;      // the same for gradients
    bool is_reducing = false;    // from reduce() to finish_reduction()
    bool adds_to_shard = false;  // what the reduction leaves, at its end
  };
  // Memory for one bucket's weights and gradients (ZeRO 3; ZeRO 2 and 3).
  struct Slot {
    DeviceArray<T> weights;
    DeviceArray<std::byte> gradients;
    DeviceArray<std::byte> part;  // a reduced part on its way to the shard
    std::optional<std::size_t> weights_of, gradients_of;  // buckets
  };
  static constexpr int kRotating = 2;

  int zero() const { return params_.sharding().zero; }
  const std::vector<Bucket>& buckets() const { return params_.partition().buckets(); }
  bool is_dedicated(std::size_t bucket) const { return buckets()[bucket].stands_alone; }
  int slot_of_dedicated(std::size_t bucket) const;

  void need_weights(std::size_t bucket, std::optional<std::size_t> keep);
  void start_weights(std::size_t bucket, std::optional<std::size_t> keep);
  void fetch_ahead(std::size_t bucket, Pass pass);
  bool fetch_first(const PassUnits& units, std::optional<std::size_t> after,
                   std::size_t keep);
  void need_gradients(std::size_t bucket);
  bool is_used_by_chunks(std::size_t bucket) const {
    return params_.registry().units()[buckets()[bucket].first_unit].is_used_by_chunks;
  }
  // G is the type of gradients, in memory and in messages; those without it find it.
  void reduce(std::size_t bucket, bool adds_to_shard);
  template <class G>
  void start_reduction(std::size_t bucket, bool adds_to_shard);
  template <class G>
  void overflow_in(std::size_t bucket);
  void finish_reduction(std::size_t bucket);
  template <class G>
  void add_part_to_shard(std::size_t bucket);
  template <class G>
  void sum_over_tensor();
  template <class G>
  void sum_tied();

  Exec exec_;
  comm::ProcessGroups groups_;
  ParamBuffer<T>& params_;
  std::vector<std::size_t> tied_;  // parameters
  bool is_first_microbatch_ = true, is_last_microbatch_ = true;
  bool overflows_ = false;
  std::optional<PassUnits> pass_units_, next_pass_units_;
  std::vector<BucketState> state_;
  std::vector<std::size_t> reducing_;  // buckets, in the order in which they began
  std::vector<Slot> slots_;  // two that rotate, then one for each dedicated bucket
  int next_weight_slot_ = 0, next_gradient_slot_ = 0;
  index_t sequence_elements_ = 0;  // 0 without sequence parallelism
  DeviceArray<std::byte> sequence_sums_;
};

}  // namespace trireme::parallel

#endif  // TRIREME_PARALLEL_DATA_PARALLEL_HPP_
