// ckpt/params.cpp — see params.hpp.
//
// The bytes of a checkpoint do not depend on the layout that wrote it, so both directions
// go through regions of the global tensor. A rank holds a rectangle of a tensor (its
// tensor-parallel shard) and of that a run of elements (its ZeRO part); the run is cut
// into rectangles, of a matrix three at most, and these are what is written. Example:
// elements 3 to 9 of a shard of 4 columns are row 0 from column 3 on, row 1 whole and the
// first two elements of row 2. Ranks that hold the same elements divide the writing among
// themselves.
#include "ckpt/params.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"

namespace trireme::ckpt {

namespace {

// Below this many elements a tensor is not worth dividing.
constexpr index_t kDivide = 1 << 16;
// More of what does not fit says nothing new (another width changes every tensor).
constexpr std::size_t kListed = 12;

struct Kept {
  Slab slab;
  const char* group;
};

std::vector<Kept> kept_slabs(Content content) {
  std::vector<Kept> slabs = {{Slab::weight, kModelGroup}};
  if (content == Content::training) {
    slabs.push_back({Slab::exp_avg, kExpAvgGroup});
    slabs.push_back({Slab::exp_avg_sq, kExpAvgSqGroup});
  }
  return slabs;
}

// What this rank has of a parameter in a slab, as regions of the global tensor.
template <class T>
struct LocalPart {
  std::vector<Region> regions;
  std::byte* data = nullptr;

  LocalPart(const ParamBuffer<T>& buffer, Slab slab, std::size_t param) {
    const auto share = buffer.share(slab, param);
    if (share.range.size() == 0) return;
    regions = regions_of(buffer.registry().spec(param).shard, share.range.begin,
                         share.range.end);
    for (Region& region : regions) region.local_offset -= share.range.begin;
    data = reinterpret_cast<std::byte*>(share.values.data());
  }
};

}  // namespace

Replicas replicas_of(const comm::ProcessGroups& groups) {
  return {.tensor_rank = groups.tensor->rank(),
          .tensor_size = groups.tensor->size(),
          .data_rank = groups.gradient->rank(),
          .data_size = groups.gradient->size()};
}

std::vector<Region> owned_regions(const ShardSpec& shard, std::size_t param,
                                  const Replicas& replicas) {
  int copies = replicas.data_size;
  int mine = replicas.data_rank;
  if (shard.is_replicated()) {
    copies *= replicas.tensor_size;
    mine = mine * replicas.tensor_size + replicas.tensor_rank;
  }
  const std::vector<Region> regions = regions_of(shard);
  if (element_count(shard.local_shape) >= kDivide) return share_of(regions, mine, copies);
  const bool is_owner =
      param % static_cast<std::size_t>(copies) == static_cast<std::size_t>(mine);
  return is_owner ? regions : std::vector<Region>();
}

template <class T>
std::vector<TensorPart> parts_of(const ParamBuffer<T>& buffer, Content content,
                                 const Replicas& replicas) {
  std::vector<TensorPart> parts;
  for (const Kept& kept : kept_slabs(content)) {
    for (std::size_t i = 0; i < buffer.registry().size(); ++i) {
      const ParamSpec& spec = buffer.registry().spec(i);
      if (spec.tie == Tie::copy) continue;
      const LocalPart<T> part(buffer, kept.slab, i);
      const bool is_written_here = !spec.shard.is_replicated() ||
                                   i % static_cast<std::size_t>(replicas.tensor_size) ==
                                       static_cast<std::size_t>(replicas.tensor_rank);
      std::vector<Region> regions;
      if (buffer.is_whole(kept.slab)) {
        regions = owned_regions(spec.shard, i, replicas);
      } else if (is_written_here) {
        regions = part.regions;
      }
      parts.push_back({kept.group + spec.name, dtype_of<Accumulator<T>>,
                       spec.shard.global_shape, std::move(regions), part.data, false});
    }
  }
  return parts;
}

void require_params(const CheckpointReader& reader, const ParamRegistry& registry,
                    Content content) {
  if (content == Content::training) reader.require_optimizer_state();
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < registry.size(); ++i) {
    const ParamSpec& spec = registry.spec(i);
    const std::string name = kModelGroup + spec.name;
    const Shape& expected = spec.shard.global_shape;
    if (!reader.has(name)) {
      problems.push_back(fmt::format("{} {}: missing", name, to_string(expected)));
      continue;
    }
    const Shape& found = reader.tensor(name).shape;
    if (found != expected) {
      problems.push_back(fmt::format("{}: the deck makes it {}, the checkpoint has {}",
                                     name, to_string(expected), to_string(found)));
    }
  }
  if (problems.empty()) return;
  const std::size_t count = problems.size();
  problems.resize(std::min(count, kListed));
  if (count > kListed) {
    problems.push_back(fmt::format("... and {} more", count - kListed));
  }
  throw InputError(
      fmt::format("'{}' is a checkpoint of another model than the deck's:\n  {}\nIts "
                  "own deck is shown by `trireme inspect {} --deck`.",
                  reader.path().string(), fmt::join(problems, "\n  "),
                  shell_word(reader.path().string())));
}

template <class T>
void load_params(const CheckpointReader& reader, const Exec& exec, ParamBuffer<T>& buffer,
                 Content content, Conversion conversion) {
  if (content == Content::training) reader.require_optimizer_state();
  exec.fence("trireme::ckpt::load_params");
  for (const Kept& kept : kept_slabs(content)) {
    for (std::size_t i = 0; i < buffer.registry().size(); ++i) {
      const ParamSpec& spec = buffer.registry().spec(i);
      const LocalPart<T> part(buffer, kept.slab, i);
      if (part.regions.empty()) continue;  // others have it
      const TensorTarget target{kept.group + spec.name,
                                dtype_of<Accumulator<T>>,
                                spec.shard.global_shape,
                                part.regions,
                                part.data,
                                false};
      reader.read(exec, target, conversion);
    }
  }
  buffer.refresh_compute(exec);
}

#define TRIREME_INSTANTIATE(T)                                                     \
  template std::vector<TensorPart> parts_of(const ParamBuffer<T>&, Content,        \
                                            const Replicas&);                      \
  template void load_params(const CheckpointReader&, const Exec&, ParamBuffer<T>&, \
                            Content, Conversion);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ckpt
