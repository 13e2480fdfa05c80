// tests/unit/ckpt/sample.hpp — a small model as ranks of any layout see it, with values
// that tell global places apart: element (r, c) of a tensor is seed + r * 1000 + c.
#ifndef TRIREME_TESTS_UNIT_CKPT_SAMPLE_HPP_
#define TRIREME_TESTS_UNIT_CKPT_SAMPLE_HPP_

#include <string>
#include <vector>

#include "base/exec.hpp"
#include "base/version.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/save.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::test {

// The file of one rank.
inline ckpt::Manifest write_shard(const Exec& exec, const ckpt::Staging& staging,
                                  int writer, const std::vector<ckpt::TensorPart>& parts,
                                  const ckpt::FaultHook& hook = {}) {
  exec.fence("trireme::test::write_shard");
  ckpt::Manifest shard =
      ckpt::lay_out_shard(staging, writer, {ckpt::outline_of(parts)}, hook);
  ckpt::write_blocks(exec, staging.path, parts, shard, hook);
  return shard;
}

struct Tensor {
  std::string name;
  ShardSpec shard;
};

// A rank's shards; vocabulary 7 is padded, QKV is [q; k; v] of 6 heads with 2 rows each.
inline std::vector<Tensor> tensors_of(int rank, int ranks) {
  return {{"model/embeddings/word", split({7, 5}, 0, ranks, rank, 1)},
          {"model/qkv/weight", split_blocks({36, 5}, {12, 12, 12}, ranks, rank)},
          {"model/qkv/bias", split_blocks({36}, {12, 12, 12}, ranks, rank)},
          {"model/dense", split({4, 12}, 1, ranks, rank)},
          {"model/norm", replicated({5})},
          {"optimizer/exp_avg/dense", split({4, 12}, 1, ranks, rank)}};
}

inline float value_at(std::size_t tensor, index_t row, index_t column) {
  return static_cast<float>(tensor * 100000 +
                            static_cast<std::size_t>(row * 1000 + column));
}

// The local arrays of a rank; padding is -1.
class RankMemory {
 public:
  RankMemory(int rank, int ranks, bool filled)
      : tensors_(tensors_of(rank, ranks)), rank_(rank), ranks_(ranks) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const ShardSpec& shard = tensors_[i].shard;
      arrays_.emplace_back(static_cast<std::size_t>(element_count(shard.local_shape)),
                           -1.0f);
      if (!filled) continue;
      for (const ckpt::Region& region : ckpt::regions_of(shard)) {
        for (index_t r = 0; r < region.global.rows; ++r) {
          for (index_t c = 0; c < region.global.columns; ++c) {
            arrays_[i][static_cast<std::size_t>(region.local_offset +
                                                r * region.local_stride + c)] =
                value_at(i, region.global.row + r, region.global.column + c);
          }
        }
      }
    }
  }

  // Replicated tensors are written by the last rank.
  std::vector<ckpt::TensorPart> parts() const {
    std::vector<ckpt::TensorPart> parts;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const ShardSpec& shard = tensors_[i].shard;
      const bool mine = !shard.is_replicated() || rank_ == ranks_ - 1;
      parts.push_back({tensors_[i].name, DType::float32, shard.global_shape,
                       mine ? ckpt::regions_of(shard) : std::vector<ckpt::Region>(),
                       reinterpret_cast<const std::byte*>(arrays_[i].data()), true});
    }
    return parts;
  }

  void read(const ckpt::CheckpointReader& reader) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const ShardSpec& shard = tensors_[i].shard;
      reader.read(Exec(), {tensors_[i].name, DType::float32, shard.global_shape,
                           ckpt::regions_of(shard),
                           reinterpret_cast<std::byte*>(arrays_[i].data()), true});
    }
  }

  const std::vector<std::vector<float>>& arrays() const { return arrays_; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::vector<float>> arrays_;
  int rank_, ranks_;
};

// The same in device memory, to be changed by what is launched behind a save.
class DeviceMemory {
 public:
  DeviceMemory(int rank, int ranks) : memory_(rank, ranks, true) {
    for (const std::vector<float>& array : memory_.arrays()) {
      DeviceArray<float>& copy = arrays_.emplace_back("array", array.size());
      const Kokkos::View<const float*, Kokkos::HostSpace,
                         Kokkos::MemoryTraits<Kokkos::Unmanaged>>
          host(array.data(), array.size());
      Kokkos::deep_copy(copy, host);
    }
  }
  std::vector<ckpt::TensorPart> parts() const {
    std::vector<ckpt::TensorPart> parts = memory_.parts();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].data = reinterpret_cast<const std::byte*>(arrays_[i].data());
      parts[i].on_host = false;
    }
    return parts;
  }
  // What an optimizer's step does to them.
  void overwrite(const Exec& exec) {
    for (const auto& array : arrays_) Kokkos::deep_copy(exec.space(), array, -2.0f);
  }

 private:
  RankMemory memory_;
  std::vector<DeviceArray<float>> arrays_;
};

inline ckpt::TrainingState sample_state(std::int64_t step) {
  ckpt::TrainingState state;
  state.run = "00112233445566778899aabbccddeeff";
  state.step = step;
  state.samples = step * 32;
  state.tokens = step * 32 * 128;
  state.seed = 0xfedcba9876543210ull;
  state.data_seed = 7;
  state.loss_scale = 65536.0;
  state.loss_scale_steps = 3;
  state.best_loss = 0.1;
  state.best_step = step - 1;
  state.deck = "model: {layers: 2}  # é\n";
  state.version = program_version();
  state.grid = {{"tensor", 1}, {"pipeline", 2}};
  state.tokenizer = {{"merges.txt", std::string("a b\n\0", 5)}, {"vocab.json", ""}};
  state.tokenizer_attributes = {{"kind", "bpe"}};
  state.numbers = {{"warmup", 12.5}};
  state.texts = {{"note", "two\nlines"}};
  return state;
}

// All ranks of a layout save, one after another, in this process. `save`: the name of the
// save, where it is not to be drawn.
inline ckpt::Saved save_as(int ranks, const ckpt::Path& directory, std::int64_t step,
                           const ckpt::SaveOptions& options = {},
                           const std::string& save = "") {
  if (options.hook) options.hook("ckpt.stage");  // nothing to copy: each rank has its own
  io::create_directories(directory);
  const ckpt::TrainingState state = sample_state(step);
  ckpt::Staging staging = ckpt::begin_save(directory, state, options.hook);
  if (!save.empty()) staging.identity.save = save;
  ckpt::remove_stale(directory, staging.path);
  std::vector<ckpt::Manifest> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    const RankMemory memory(rank, ranks, true);
    shards.push_back(
        test::write_shard(Exec(), staging, rank, memory.parts(), options.hook));
  }
  return ckpt::publish(directory, staging, state, shards, options);
}

// The same into one file, which the first lays out for all.
inline ckpt::Saved save_together(int ranks, const ckpt::Path& directory,
                                 std::int64_t step) {
  io::create_directories(directory);
  const ckpt::TrainingState state = sample_state(step);
  const ckpt::Staging staging = ckpt::begin_save(directory, state);
  std::vector<RankMemory> memories;
  std::vector<ckpt::Manifest> outlines, shards;
  for (int rank = 0; rank < ranks; ++rank) {
    memories.emplace_back(rank, ranks, true);
    outlines.push_back(ckpt::outline_of(memories.back().parts()));
  }
  const ckpt::Manifest all = ckpt::lay_out_shard(staging, 0, outlines);
  std::size_t first = 0;
  for (std::size_t rank = 0; rank < memories.size(); ++rank) {
    shards.push_back(all.part(first, outlines[rank].blocks.size()));
    first += outlines[rank].blocks.size();
    ckpt::write_blocks(Exec(), staging.path, memories[rank].parts(), shards.back());
  }
  return ckpt::publish(directory, staging, state, shards);
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_CKPT_SAMPLE_HPP_
