// ckpt/reader.cpp — see reader.hpp.
//
// A reader knows from the manifest where every block of a tensor lies, and a caller says
// which regions of which tensor it wants and where they go. For each block that touches a
// wanted region, the chunks that touch it are read, summed and checked; rows that lie in
// the target as they are stored are read straight into it, and all others are taken apart
// by Placing. Device memory is filled through a copy on the host. Files are opened when
// they are first needed and few are kept open, since a process may have a low limit of
// descriptors and a checkpoint thousands of shards.
#include "ckpt/reader.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/numbers.hpp"
#include "ckpt/verify.hpp"
#include "comm/on_ranks.hpp"
#include "io/element_types.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

namespace {

using ConstHostBytes = Kokkos::View<const std::byte*, Kokkos::HostSpace,
                                    Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
using DeviceBytes = DeviceView<std::byte*>;

template <class From, class To>
void convert_elements(const std::byte* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof value);
    To result;
    if constexpr (std::is_arithmetic_v<From>) {
      result = std::is_arithmetic_v<To> ? To(value) : To(static_cast<float>(value));
    } else {
      result = To(static_cast<float>(value));
    }
    std::memcpy(to + i * sizeof(To), &result, sizeof result);
  }
}

void convert(DType from_type, const std::byte* from, DType to_type, std::byte* to,
             std::size_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, count * size_of(to_type));
    return;
  }
  io::with_real(from_type, [&](auto stored) {
    io::with_real(to_type, [&](auto wanted) {
      convert_elements<decltype(stored), decltype(wanted)>(from, to, count);
    });
  });
}

// Puts rows of a block where they belong in the target.
class Scatter {
 public:
  Scatter(const Exec& exec, const TensorTarget& target, DType stored)
      : exec_(exec), target_(target), stored_(stored) {}

  // The memory where the rows of `place` belong, if they lie there without gaps and as
  // they are stored; else null.
  std::byte* direct(const Rectangle& place) {
    if (!(kHostExecution || target_.on_host) || stored_ != target_.dtype) return nullptr;
    for (const Region& region : target_.regions) {
      const auto common = intersection(place, region.global);
      if (!common || *common != place) continue;
      if (place.rows > 1 && place.columns != region.local_stride) return nullptr;
      filled_ += place.elements();
      return target_.data + size_of(stored_) * offset_in(region, place);
    }
    return nullptr;
  }

  // `rows` holds the rows of `place` without gaps.
  void put(const Rectangle& place, const std::byte* rows) {
    for (const Region& region : target_.regions) {
      const auto common = intersection(place, region.global);
      if (!common) continue;
      filled_ += common->elements();
      const std::size_t size = size_of(target_.dtype);
      std::byte* to = target_.data + size * offset_in(region, *common);
      const std::byte* from =
          rows + size_of(stored_) *
                     static_cast<std::size_t>((common->row - place.row) * place.columns +
                                              common->column - place.column);
      copy_rows(to, from, *common, region.local_stride, place.columns);
    }
  }

  index_t filled() const { return filled_; }

 private:
  static std::size_t offset_in(const Region& region, const Rectangle& place) {
    return static_cast<std::size_t>(
        region.local_offset + (place.row - region.global.row) * region.local_stride +
        place.column - region.global.column);
  }

  void copy_rows(std::byte* to, const std::byte* from, const Rectangle& what,
                 index_t to_stride, index_t from_stride) {
    const auto row_bytes =
        static_cast<std::size_t>(what.columns) * size_of(target_.dtype);
    const auto to_bytes = static_cast<std::size_t>(to_stride) * size_of(target_.dtype);
    const auto from_bytes = static_cast<std::size_t>(from_stride) * size_of(stored_);
    const auto rows = static_cast<std::size_t>(what.rows);
    const auto columns = static_cast<std::size_t>(what.columns);
    const bool direct = kHostExecution || target_.on_host;
    if (!direct) packed_.resize(rows * row_bytes);
    for (std::size_t i = 0; i < rows; ++i) {
      std::byte* row = direct ? to + i * to_bytes : packed_.data() + i * row_bytes;
      convert(stored_, from + i * from_bytes, target_.dtype, row, columns);
    }
    if (direct) return;
    // One copy to the device is enough where the rows lie one after another there.
    const std::size_t copies = to_bytes == row_bytes ? 1 : rows;
    const std::size_t bytes = packed_.size() / copies;
    for (std::size_t i = 0; i < copies; ++i) {
      Kokkos::deep_copy(exec_.space(), DeviceBytes(to + i * to_bytes, bytes),
                        ConstHostBytes(packed_.data() + i * bytes, bytes));
    }
    exec_.fence("trireme::ckpt::scatter");
  }

  const Exec& exec_;
  const TensorTarget& target_;
  DType stored_;
  index_t filled_ = 0;
  std::vector<std::byte> packed_;
};

// More open files than this would run into the limit of the process.
constexpr std::size_t kOpenFiles = 64;

bool touches(const Rectangle& place, const std::vector<Region>& regions) {
  return std::any_of(regions.begin(), regions.end(), [&](const Region& region) {
    return intersection(place, region.global).has_value();
  });
}

// Reads a chunk a few rows at a time (or a part of a row that is longer than a piece),
// straight to where the rows belong where that is possible. Returns its checksum.
std::uint64_t read_chunk(const io::FileReader& file, std::uint64_t at, DType stored,
                         const Rectangle& chunk, Scatter& scatter, BadNumbers& numbers,
                         std::vector<std::byte>& buffer) {
  const std::size_t size = size_of(stored);
  const auto most = static_cast<index_t>(kPieceBytes / size);
  const index_t rows_at_once = std::max<index_t>(1, most / chunk.columns);
  const index_t columns_at_once =
      rows_at_once > 1 ? chunk.columns : std::min(most, chunk.columns);
  io::Checksum sum;
  for (index_t row = 0; row < chunk.rows; row += rows_at_once) {
    const index_t rows = std::min(rows_at_once, chunk.rows - row);
    for (index_t column = 0; column < chunk.columns; column += columns_at_once) {
      const index_t columns = std::min(columns_at_once, chunk.columns - column);
      const Rectangle piece{chunk.row + row, chunk.column + column, rows, columns};
      const std::size_t bytes = size * static_cast<std::size_t>(rows * columns);
      std::byte* const to = scatter.direct(piece);
      if (to == nullptr) buffer.resize(std::max(buffer.size(), bytes));
      std::byte* const read = to == nullptr ? buffer.data() : to;
      file.read_at(at, read, bytes);
      sum.update(read, bytes);
      numbers.look_at(piece, 0, read, bytes);
      if (to == nullptr) scatter.put(piece, read);
      at += bytes;
    }
  }
  return sum.value();
}

// Reads the chunks of a block in which there is something to keep. Returns how many bytes
// that were.
std::uint64_t read_block(const io::FileReader& file, const Manifest& manifest,
                         const BlockEntry& block, const std::vector<Region>& regions,
                         Scatter& scatter, BadNumbers& numbers) {
  const DType stored = manifest.tensors[block.tensor].dtype;
  const index_t rows = chunk_rows(block.place, stored);
  const std::uint64_t row_bytes =
      size_of(stored) * static_cast<std::uint64_t>(block.place.columns);
  std::vector<std::byte> buffer;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < block.checksums.size(); ++i) {
    Rectangle chunk = block.place;
    const index_t skipped = static_cast<index_t>(i) * rows;
    chunk.row += skipped;
    chunk.rows = std::min(rows, chunk.rows - skipped);
    if (!touches(chunk, regions)) continue;
    const std::uint64_t at =
        block.offset + static_cast<std::uint64_t>(skipped) * row_bytes;
    const std::uint64_t found =
        read_chunk(file, at, stored, chunk, scatter, numbers, buffer);
    if (found != block.checksums[i]) {
      throw InputError(damaged_chunk(file.path(), manifest, block, i, found));
    }
    bytes += static_cast<std::uint64_t>(chunk.rows) * row_bytes;
  }
  return bytes;
}

}  // namespace

CheckpointReader::CheckpointReader(const Path& directory,
                                   std::optional<Manifest> manifest)
    : path_(directory) {
  open(std::move(manifest));
  number_tensors();
}

CheckpointReader::CheckpointReader(comm::Communicator& comm, const Path& directory,
                                   std::optional<Manifest> manifest)
    : path_(directory) {
  std::string state;
  const std::string text = comm::on_first_rank(comm, [&] {
    open(std::move(manifest));
    state = bytes_of(state_);
    return manifest_.to_text();
  });
  comm.broadcast(state);
  if (comm.rank() != 0) {
    manifest_ = Manifest::from_text(text, (path_ / kManifestName).string());
    state_ = state_from_bytes(state);
  }
  number_tensors();
}

void CheckpointReader::open(std::optional<Manifest> manifest) {
  manifest_ = manifest ? std::move(*manifest) : read_manifest(path_);
  for (const FileEntry& file : manifest_.files) {
    const std::uint64_t bytes = io::file_size(path_ / file.name);
    TRIREME_REQUIRE_INPUT(
        bytes == file.bytes,
        "'{}' is damaged: expected {}, found {}; take an older checkpoint",
        (path_ / file.name).string(), format_plural(file.bytes, "byte"),
        format_grouped(bytes));
    if (file.name != kIndexName) continue;
    const std::uint64_t found = io::checksum_file(path_ / kIndexName).checksum;
    TRIREME_REQUIRE_INPUT(
        found == file.checksum,
        "'{}' is damaged: expected XXH3 {}, found {}; take an older checkpoint",
        (path_ / kIndexName).string(), io::to_hex(file.checksum), io::to_hex(found));
  }
  state_ = read_index(path_, manifest_);
}

void CheckpointReader::number_tensors() {
  for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) {
    numbers_.emplace(manifest_.tensors[i].name, i);
  }
  blocks_ = manifest_.blocks_by_tensor();
  blocks_of_files_ = manifest_.blocks_by_file();
}

const TensorEntry& CheckpointReader::tensor(const std::string& name) const {
  return manifest_.tensors[number_of(name)];
}

std::size_t CheckpointReader::number_of(const std::string& tensor) const {
  const auto it = numbers_.find(tensor);
  TRIREME_REQUIRE_INPUT(
      it != numbers_.end(), "'{}' has no tensor '{}': it is of another model ({}, {})",
      path_.string(), tensor, format_plural(manifest_.tensors.size(), "tensor"),
      format_plural(manifest_.parameter_count(), "parameter"));
  return it->second;
}

const io::FileReader& CheckpointReader::file(std::size_t number) const {
  const auto it = open_files_.find(number);
  if (it != open_files_.end()) return it->second;
  io::FileReader reader(path_ / manifest_.files[number].name);
  const std::string problem =
      stamp_problem(reader, manifest_, number, blocks_of_files_[number]);
  TRIREME_REQUIRE_INPUT(problem.empty(), "{}", problem);
  if (open_files_.size() >= kOpenFiles) open_files_.clear();
  return open_files_.emplace(number, std::move(reader)).first->second;
}

void CheckpointReader::require_optimizer_state() const {
  ckpt::require_optimizer_state(manifest_, path_);
}

void CheckpointReader::read(const Exec& exec, const TensorTarget& target,
                            Conversion conversion) const {
  const std::size_t number = number_of(target.name);
  const TensorEntry& tensor = manifest_.tensors[number];
  TRIREME_REQUIRE_INPUT(tensor.shape == target.global_shape,
                        "'{}': tensor '{}' has shape {}; the model expects {}",
                        path_.string(), target.name, to_string(tensor.shape),
                        to_string(target.global_shape));
  const bool convertible = conversion == Conversion::floating &&
                           io::is_real(tensor.dtype) && io::is_real(target.dtype);
  TRIREME_REQUIRE_INPUT(tensor.dtype == target.dtype || convertible,
                        "'{}': tensor '{}' holds {}; expected {}", path_.string(),
                        target.name, name_of(tensor.dtype), name_of(target.dtype));
  index_t wanted = 0;
  for (const Region& region : target.regions) wanted += region.global.elements();
  Scatter scatter(exec, target, tensor.dtype);
  BadNumbers numbers(tensor);
  for (const std::size_t i : blocks_[number]) {
    const BlockEntry& block = manifest_.blocks[i];
    if (!touches(block.place, target.regions)) continue;
    bytes_read_ +=
        read_block(file(block.file), manifest_, block, target.regions, scatter, numbers);
  }
  TRIREME_REQUIRE_INPUT(
      numbers.count() == 0,
      "the checkpoint '{}' cannot be used: {}. Training had failed before it was saved, "
      "or "
      "another program wrote it so: take an older one (`trireme inspect --verify` names "
      "all such numbers)",
      path_.string(), numbers.text());
  TRIREME_REQUIRE(scatter.filled() == wanted, "'{}': found {} of {} of '{}'",
                  path_.string(), scatter.filled(), format_plural(wanted, "element"),
                  target.name);
}

std::vector<float> CheckpointReader::read_whole(const std::string& name) const {
  const Shape& shape = tensor(name).shape;
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  const TensorTarget target{name,
                            DType::float32,
                            shape,
                            regions_of(replicated(shape)),
                            reinterpret_cast<std::byte*>(values.data()),
                            true};
  // Nothing is launched: this may be asked where nothing could run.
  read(Exec::shape_only(), target, Conversion::floating);
  return values;
}

}  // namespace trireme::ckpt
