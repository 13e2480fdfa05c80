// ckpt/reader.cpp — see reader.hpp.
#include "ckpt/reader.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "io/checksum.hpp"

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

template <class From>
void convert_from(const std::byte* from, DType to_type, std::byte* to,
                  std::size_t count) {
  if (to_type == DType::float32) return convert_elements<From, float>(from, to, count);
  if (to_type == DType::float64) return convert_elements<From, double>(from, to, count);
  if (to_type == DType::bfloat16) return convert_elements<From, bf16>(from, to, count);
  return convert_elements<From, fp16>(from, to, count);
}

bool is_floating(DType type) {
  return type == DType::float32 || type == DType::float64 || type == DType::bfloat16 ||
         type == DType::float16;
}

void convert(DType from_type, const std::byte* from, DType to_type, std::byte* to,
             std::size_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, count * size_of(to_type));
    return;
  }
  if (from_type == DType::float32) return convert_from<float>(from, to_type, to, count);
  if (from_type == DType::float64) return convert_from<double>(from, to_type, to, count);
  if (from_type == DType::bfloat16) return convert_from<bf16>(from, to_type, to, count);
  return convert_from<fp16>(from, to_type, to, count);
}

// Puts rows of a block where they belong in the target.
class Scatter {
 public:
  Scatter(const Exec& exec, const TensorTarget& target, DType stored)
      : exec_(exec), target_(target), stored_(stored) {}

  // `rows` holds the rows of `place` without gaps.
  void put(const Rectangle& place, const std::byte* rows) {
    for (const Region& region : target_.regions) {
      const auto common = intersection(place, region.global);
      if (!common) continue;
      filled_ += common->elements();
      const std::size_t size = size_of(target_.dtype);
      const index_t offset = region.local_offset +
                             (common->row - region.global.row) * region.local_stride +
                             common->column - region.global.column;
      std::byte* to = target_.data + size * static_cast<std::size_t>(offset);
      const std::byte* from =
          rows + size_of(stored_) *
                     static_cast<std::size_t>((common->row - place.row) * place.columns +
                                              common->column - place.column);
      copy_rows(to, from, *common, region.local_stride, place.columns);
    }
  }

  index_t filled() const { return filled_; }

 private:
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
    // One copy to the device where the rows lie one after another there.
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

bool touches(const Rectangle& place, const std::vector<Region>& regions) {
  return std::any_of(regions.begin(), regions.end(), [&](const Region& region) {
    return intersection(place, region.global).has_value();
  });
}

// Reads a block a few rows at a time (or a part of a row that is longer than the buffer).
void read_block(const io::FileReader& file, const BlockEntry& block,
                const TensorEntry& tensor, Scatter& scatter) {
  const std::size_t size = size_of(tensor.dtype);
  const auto most = static_cast<index_t>(kStagingBytes / size);
  const index_t rows_at_once = std::max<index_t>(1, most / block.place.columns);
  const index_t columns_at_once =
      rows_at_once > 1 ? block.place.columns : std::min(most, block.place.columns);
  std::vector<std::byte> buffer;
  io::Checksum sum;
  std::uint64_t at = block.offset;
  for (index_t row = 0; row < block.place.rows; row += rows_at_once) {
    const index_t rows = std::min(rows_at_once, block.place.rows - row);
    for (index_t column = 0; column < block.place.columns; column += columns_at_once) {
      const index_t columns = std::min(columns_at_once, block.place.columns - column);
      buffer.resize(size * static_cast<std::size_t>(rows * columns));
      file.read_at(at, buffer.data(), buffer.size());
      at += buffer.size();
      sum.update(buffer.data(), buffer.size());
      scatter.put({block.place.row + row, block.place.column + column, rows, columns},
                  buffer.data());
    }
  }
  TRIREME_REQUIRE_INPUT(
      sum.value() == block.checksum,
      "'{}' is damaged: {} bytes of '{}' at offset {} should have XXH3 {}, "
      "found {}",
      file.path().string(), at - block.offset, tensor.name, block.offset,
      io::to_hex(block.checksum), io::to_hex(sum.value()));
}

}  // namespace

CheckpointReader::CheckpointReader(const Path& directory)
    : path_(directory), manifest_(read_manifest(directory)) {
  for (const FileEntry& file : manifest_.files) {
    const std::uint64_t bytes = io::file_size(path_ / file.name);
    TRIREME_REQUIRE_INPUT(bytes == file.bytes,
                          "'{}' is damaged: expected {} bytes, found {}; take an older "
                          "checkpoint",
                          (path_ / file.name).string(), file.bytes, bytes);
  }
  const auto index =
      std::find_if(manifest_.files.begin(), manifest_.files.end(),
                   [](const FileEntry& file) { return file.name == kIndexName; });
  TRIREME_REQUIRE_INPUT(index != manifest_.files.end(), "'{}' lists no {}",
                        (path_ / kManifestName).string(), kIndexName);
  const Path index_path = path_ / kIndexName;
  const std::uint64_t found = io::checksum_file(index_path).checksum;
  TRIREME_REQUIRE_INPUT(
      found == index->checksum,
      "'{}' is damaged: expected XXH3 {}, found {}; take an older checkpoint",
      index_path.string(), io::to_hex(index->checksum), io::to_hex(found));
  state_ = read_state(index_path);
}

bool CheckpointReader::has(const std::string& tensor) const {
  return std::any_of(manifest_.tensors.begin(), manifest_.tensors.end(),
                     [&](const TensorEntry& entry) { return entry.name == tensor; });
}

void CheckpointReader::require_optimizer_state() const {
  ckpt::require_optimizer_state(manifest_, path_);
}

void CheckpointReader::read(const Exec& exec, const TensorTarget& target,
                            Conversion conversion) const {
  TRIREME_REQUIRE_INPUT(has(target.name),
                        "'{}' has no tensor '{}': it is of another model ({} tensors, {} "
                        "parameters)",
                        path_.string(), target.name, manifest_.tensors.size(),
                        manifest_.parameter_count());
  const std::size_t index = manifest_.find(target.name);
  const TensorEntry& tensor = manifest_.tensors[index];
  TRIREME_REQUIRE_INPUT(tensor.shape == target.global_shape,
                        "'{}': tensor '{}' has shape {}; the model expects {}",
                        path_.string(), target.name, to_string(tensor.shape),
                        to_string(target.global_shape));
  const bool convertible = conversion == Conversion::floating &&
                           is_floating(tensor.dtype) && is_floating(target.dtype);
  TRIREME_REQUIRE_INPUT(tensor.dtype == target.dtype || convertible,
                        "'{}': tensor '{}' holds {}; expected {}", path_.string(),
                        target.name, name_of(tensor.dtype), name_of(target.dtype));
  index_t wanted = 0;
  for (const Region& region : target.regions) wanted += region.global.elements();
  Scatter scatter(exec, target, tensor.dtype);
  for (const BlockEntry& block : manifest_.blocks) {
    if (block.tensor != index || !touches(block.place, target.regions)) continue;
    const io::FileReader file(path_ / manifest_.files[block.file].name);
    read_block(file, block, tensor, scatter);
  }
  TRIREME_REQUIRE(scatter.filled() == wanted, "'{}': found {} of {} elements of '{}'",
                  path_.string(), scatter.filled(), wanted, target.name);
}

std::vector<float> CheckpointReader::read_whole(const std::string& tensor) const {
  const TensorEntry& entry = manifest_.tensors[manifest_.find(tensor)];
  std::vector<float> values(static_cast<std::size_t>(element_count(entry.shape)));
  const TensorTarget target{tensor,
                            DType::float32,
                            entry.shape,
                            regions_of(replicated(entry.shape)),
                            reinterpret_cast<std::byte*>(values.data()),
                            true};
  read(Exec(), target, Conversion::floating);
  return values;
}

}  // namespace trireme::ckpt
