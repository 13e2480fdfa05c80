// ckpt/params.hpp — between checkpoints and the parameter slabs of a rank.
#ifndef TRIREME_CKPT_PARAMS_HPP_
#define TRIREME_CKPT_PARAMS_HPP_

#include <vector>

#include "base/exec.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/shard_writer.hpp"
#include "comm/process_groups.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::ckpt {

// This rank among those that hold the same model stage: tensor-parallel ranks share what
// is replicated, data-parallel ranks share everything. They divide the writing.
struct Replicas {
  int tensor_rank = 0;
  int tensor_size = 1;
  int data_rank = 0;
  int data_size = 1;
};
Replicas replicas_of(const comm::ProcessGroups& groups);

enum class Content { weights, training };

// What this rank writes of a parameter: large tensors are divided by rows among the ranks
// that hold them, small ones go to one rank each.
std::vector<Region> owned_regions(const ShardSpec& shard, std::size_t param,
                                  const Replicas& replicas);

// What this rank writes of its slabs. Tied copies are left to their owner.
template <class T>
std::vector<TensorPart> parts_of(const ParamBuffer<T>& buffer, Content content,
                                 const Replicas& replicas = {});

// InputError where load_params() would miss a tensor or find one of another shape, with
// all of them. Reads no tensor: for before a run begins.
void require_params(const CheckpointReader& reader, const ParamRegistry& registry,
                    Content content);

// Fills the slabs, and the compute copy; padding stays as it is.
template <class T>
void load_params(const CheckpointReader& reader, const Exec& exec, ParamBuffer<T>& buffer,
                 Content content, Conversion conversion = Conversion::exact);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_PARAMS_HPP_
