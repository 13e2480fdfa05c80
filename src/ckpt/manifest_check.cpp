// ckpt/manifest_check.cpp — whether what a manifest says can be: Manifest::check().
//
// All in time n log n of its blocks: there are some 100,000 in a checkpoint of 10^12
// parameters, thousands of them in one embedding.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/manifest.hpp"

namespace trireme::ckpt {

namespace {

// Whether any two rectangles share an element. A line sweeps down the rows and meets the
// rectangles that begin in a row; those that it crosses are kept as first column and last
// + 1, in order and apart.
bool overlap(std::vector<Rectangle> places) {
  std::ranges::sort(places, {}, &Rectangle::row);
  std::map<index_t, index_t> crossed;
  std::multimap<index_t, index_t> ends;  // by last row + 1: first column
  for (const Rectangle& place : places) {
    while (!ends.empty() && ends.begin()->first <= place.row) {
      crossed.erase(ends.begin()->second);
      ends.erase(ends.begin());
    }
    const index_t end = place.column + place.columns;
    const auto next = crossed.lower_bound(place.column);
    if (next != crossed.end() && next->first < end) return true;
    if (next != crossed.begin() && std::prev(next)->second > place.column) return true;
    crossed.emplace_hint(next, place.column, end);
    ends.emplace(place.row + place.rows, place.column);
  }
  return false;
}

// Extents of at least one, and fewer bytes in all than an index_t counts.
bool is_possible(const Shape& shape) {
  constexpr std::size_t kMostDimensions = 8;
  const auto elements = counted_elements(shape);
  return !shape.empty() && shape.size() <= kMostDimensions && elements && *elements > 0 &&
         checked_multiply<index_t>(*elements, sizeof(double)).has_value();
}

void check_counters(const Manifest& manifest) {
  const auto check = [&](const char* name, std::int64_t value) {
    TRIREME_REQUIRE_INPUT(value >= 0 && value <= kMaxCount,
                          "it has {} {}; expected 0 to {}", name, value, kMaxCount);
  };
  check("step", manifest.step);
  check("samples", manifest.samples);
  check("tokens", manifest.tokens);
  check("generation", manifest.generation);
  for (const std::string& id : {manifest.run, manifest.save}) {
    TRIREME_REQUIRE_INPUT(manifest.is_old() ? id.empty() : is_id(id),
                          "it is of {}; expected two names of 32 hexadecimal digits",
                          manifest.identity().text());
  }
}

void check_files(const Manifest& manifest) {
  std::set<std::string> names;
  for (const FileEntry& file : manifest.files) {
    TRIREME_REQUIRE_INPUT(!file.name.empty() && Path(file.name).filename() == file.name &&
                              file.name != "." && file.name != "..",
                          "it names a file '{}' outside its directory", file.name);
    TRIREME_REQUIRE_INPUT(names.insert(file.name).second, "it names the file '{}' twice",
                          file.name);
    const bool needs_stamp = !manifest.is_old() && file.name != kIndexName;
    TRIREME_REQUIRE_INPUT(file.stamp.has_value() == needs_stamp,
                          "it names {} stamp of '{}': the other is expected",
                          file.stamp ? "a" : "no", file.name);
    TRIREME_REQUIRE_INPUT(!file.stamp || is_range_within<std::uint64_t>(
                                             *file.stamp, kStampBytes, file.bytes),
                          "the stamp of '{}' lies beyond its end", file.name);
  }
}

void check_tensors(const Manifest& manifest) {
  std::set<std::string> names;
  for (const TensorEntry& tensor : manifest.tensors) {
    TRIREME_REQUIRE_INPUT(
        tensor.name.starts_with(kModelGroup) || tensor.name.starts_with("optimizer/"),
        "it has a tensor '{}'; expected names below model/ and optimizer/", tensor.name);
    TRIREME_REQUIRE_INPUT(names.insert(tensor.name).second,
                          "it has the tensor '{}' twice", tensor.name);
    TRIREME_REQUIRE_INPUT(is_possible(tensor.shape),
                          "it gives '{}' the shape {}, which no tensor has", tensor.name,
                          to_string(tensor.shape));
  }
}

void check_blocks(const Manifest& manifest) {
  for (const BlockEntry& block : manifest.blocks) {
    TRIREME_REQUIRE_INPUT(
        block.tensor < manifest.tensors.size() && block.file < manifest.files.size(),
        "it has a block of an unknown tensor or file");
    const TensorEntry& tensor = manifest.tensors[block.tensor];
    const Rectangle all = whole(tensor.shape);
    const Rectangle& place = block.place;
    TRIREME_REQUIRE_INPUT(place.rows > 0 && place.columns > 0 &&
                              is_range_within(place.row, place.rows, all.rows) &&
                              is_range_within(place.column, place.columns, all.columns),
                          "a block of '{}' lies outside its shape {}", tensor.name,
                          to_string(tensor.shape));
    const FileEntry& file = manifest.files[block.file];
    TRIREME_REQUIRE_INPUT(file.name != kIndexName, "a block of '{}' lies in {}",
                          tensor.name, kIndexName);
    TRIREME_REQUIRE_INPUT(
        is_range_within(block.offset, manifest.bytes_of(block).bytes, file.bytes),
        "a block of '{}' lies beyond the end of '{}'", tensor.name, file.name);
    const std::size_t chunks = chunk_count(place, tensor.dtype);
    TRIREME_REQUIRE_INPUT(block.checksums.size() == chunks,
                          "a block of '{}' has {} for {}", tensor.name,
                          format_plural(block.checksums.size(), "checksum"),
                          format_plural(chunks, "chunk"));
  }
}

// No two blocks of a file share a byte.
void check_ranges(const Manifest& manifest) {
  for (std::vector<std::size_t>& numbers : manifest.blocks_by_file()) {
    std::ranges::sort(numbers, {},
                      [&](std::size_t i) { return manifest.blocks[i].offset; });
    for (std::size_t i = 1; i < numbers.size(); ++i) {
      const BlockEntry& before = manifest.blocks[numbers[i - 1]];
      const BlockEntry& block = manifest.blocks[numbers[i]];
      TRIREME_REQUIRE_INPUT(
          before.offset + manifest.bytes_of(before).bytes <= block.offset,
          "blocks of '{}' and '{}' share bytes of '{}', at offset {}",
          manifest.tensors[before.tensor].name, manifest.tensors[block.tensor].name,
          manifest.files[block.file].name, block.offset);
    }
  }
}

// Blocks that are apart and have as many elements as the tensor cover it.
void check_tiling(const Manifest& manifest) {
  const auto blocks = manifest.blocks_by_tensor();
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    std::vector<Rectangle> places;
    for (const std::size_t number : blocks[i]) {
      places.push_back(manifest.blocks[number].place);
    }
    TRIREME_REQUIRE_INPUT(!overlap(places), "two blocks of '{}' overlap", tensor.name);
    index_t covered = 0;  // apart, they are no more than the tensor has
    for (const Rectangle& place : places) covered += place.elements();
    TRIREME_REQUIRE_INPUT(covered == element_count(tensor.shape),
                          "the blocks of '{}' {} hold {} of its {}", tensor.name,
                          to_string(tensor.shape), covered,
                          format_plural(element_count(tensor.shape), "element"));
  }
}

}  // namespace

void Manifest::check(const std::string& where) const {
  try {
    check_counters(*this);
    check_files(*this);
    check_tensors(*this);
    check_blocks(*this);
    check_ranges(*this);
    check_tiling(*this);
  } catch (const InputError& error) {
    throw damaged_manifest(where, error.what());
  }
}

}  // namespace trireme::ckpt
