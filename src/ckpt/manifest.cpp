// ckpt/manifest.cpp — writing, reading and checking manifest.json; see manifest.hpp.
#include "ckpt/manifest.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "io/checksum.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "trireme-checkpoint";

DType dtype_from(const std::string& name) {
  for (const DType dtype :
       {DType::float32, DType::float64, DType::bfloat16, DType::float16, DType::int32,
        DType::int64, DType::uint8, DType::uint16, DType::uint32, DType::uint64}) {
    if (name == name_of(dtype)) return dtype;
  }
  throw InputError(fmt::format("unknown element type '{}'", name));
}

// One line per entry: a manifest is read by people, too.
template <class Entries, class ToJson>
std::string list_of(const char* key, const Entries& entries, const ToJson& to_json) {
  std::string text = fmt::format("\"{}\": [", key);
  const char* separator = "\n  ";
  for (const auto& entry : entries) {
    text += separator + io::exact_json_text(to_json(entry));
    separator = ",\n  ";
  }
  return text + "\n]";
}

Manifest from_json(const Json& json, const std::string& where) {
  TRIREME_REQUIRE_INPUT(json.at("format") == kFormat,
                        "'{}' is not the manifest of a checkpoint", where);
  const int version = json.at("format_version").get<int>();
  TRIREME_REQUIRE_INPUT(
      version == kFormatVersion,
      "'{}' has checkpoint format {}; this program reads {}. Use the version "
      "of Trireme that wrote it, or a newer one",
      where, version, kFormatVersion);
  Manifest manifest;
  manifest.step = json.at("step").get<std::int64_t>();
  manifest.generation = json.at("generation").get<std::int64_t>();
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({file.at("name").get<std::string>(),
                              file.at("bytes").get<std::uint64_t>(),
                              io::from_hex(file.at("xxh3").get<std::string>())});
  }
  for (const Json& tensor : json.at("tensors")) {
    manifest.tensors.push_back({tensor.at("name").get<std::string>(),
                                dtype_from(tensor.at("dtype").get<std::string>()),
                                tensor.at("shape").get<Shape>()});
  }
  for (const Json& block : json.at("blocks")) {
    BlockEntry entry;
    entry.tensor = block.at("tensor").get<std::size_t>();
    entry.file = block.at("file").get<std::size_t>();
    entry.dataset = block.at("dataset").get<std::string>();
    entry.offset = block.at("offset").get<std::uint64_t>();
    for (const Json& sum : block.at("xxh3")) {
      entry.checksums.push_back(io::from_hex(sum.get<std::string>()));
    }
    entry.place =
        rectangle_of(block.at("start").get<Shape>(), block.at("shape").get<Shape>());
    manifest.blocks.push_back(std::move(entry));
  }
  return manifest;
}

// Whether any two share an element, by a line that sweeps down the rows and meets those
// that begin in a row; what it crosses, by first column, is in order and apart. There are
// thousands of blocks in an embedding of many ranks.
bool overlap(std::vector<Rectangle> places) {
  std::sort(places.begin(), places.end(),
            [](const Rectangle& a, const Rectangle& b) { return a.row < b.row; });
  std::map<index_t, Rectangle> crossed;
  std::multimap<index_t, index_t> ends;  // by last row + 1: first column
  for (const Rectangle& place : places) {
    while (!ends.empty() && ends.begin()->first <= place.row) {
      crossed.erase(ends.begin()->second);
      ends.erase(ends.begin());
    }
    const auto next = crossed.lower_bound(place.column);
    if (next != crossed.end() && next->first < place.column + place.columns) return true;
    if (next != crossed.begin()) {
      const Rectangle& before = std::prev(next)->second;
      if (before.column + before.columns > place.column) return true;
    }
    crossed.emplace_hint(next, place.column, place);
    ends.emplace(place.row + place.rows, place.column);
  }
  return false;
}

}  // namespace

bool Manifest::has_optimizer_state() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const TensorEntry& tensor) {
    return tensor.name.starts_with(kExpAvgGroup);
  });
}

void require_optimizer_state(const Manifest& manifest, const Path& path) {
  TRIREME_REQUIRE_INPUT(
      manifest.has_optimizer_state(),
      "'{}' holds weights only, no optimizer state: training cannot be continued from "
      "it. Start a new run with --init-from, or use it for generate",
      path.string());
}

index_t Manifest::parameter_count() const {
  index_t count = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.name.starts_with(kModelGroup)) count += element_count(tensor.shape);
  }
  return count;
}

ByteRange Manifest::bytes_of(const BlockEntry& block) const {
  return {block.offset, static_cast<std::uint64_t>(block.place.elements()) *
                            size_of(tensors[block.tensor].dtype)};
}

std::vector<std::vector<std::size_t>> Manifest::blocks_by_file() const {
  std::vector<std::vector<std::size_t>> numbers(files.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) numbers[blocks[i].file].push_back(i);
  return numbers;
}

std::vector<std::vector<std::size_t>> Manifest::blocks_by_tensor() const {
  std::vector<std::vector<std::size_t>> numbers(tensors.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) numbers[blocks[i].tensor].push_back(i);
  return numbers;
}

Manifest Manifest::part(std::size_t first, std::size_t count) const {
  Manifest part;
  part.step = step;
  part.generation = generation;
  std::map<std::size_t, std::size_t> new_tensor, new_file;
  for (std::size_t i = first; i < first + count; ++i) {
    BlockEntry block = blocks.at(i);
    const auto [tensor, is_new] = new_tensor.emplace(block.tensor, part.tensors.size());
    if (is_new) part.tensors.push_back(tensors[block.tensor]);
    const auto [file, is_new_file] = new_file.emplace(block.file, part.files.size());
    if (is_new_file) part.files.push_back(files[block.file]);
    block.tensor = tensor->second;
    block.file = file->second;
    part.blocks.push_back(std::move(block));
  }
  return part;
}

void Manifest::merge(const std::vector<Manifest>& others) {
  std::unordered_map<std::string, std::size_t> known_files, known_tensors;
  for (std::size_t i = 0; i < files.size(); ++i) known_files[files[i].name] = i;
  for (std::size_t i = 0; i < tensors.size(); ++i) known_tensors[tensors[i].name] = i;
  for (const Manifest& other : others) {
    std::vector<std::size_t> new_file, new_tensor;
    for (const FileEntry& file : other.files) {
      const auto [it, is_new] = known_files.emplace(file.name, files.size());
      if (is_new) files.push_back(file);
      TRIREME_REQUIRE(files[it->second] == file, "ranks disagree on what file '{}' holds",
                      file.name);
      new_file.push_back(it->second);
    }
    for (const TensorEntry& tensor : other.tensors) {
      const auto [it, is_new] = known_tensors.emplace(tensor.name, tensors.size());
      if (is_new) tensors.push_back(tensor);
      const TensorEntry& mine = tensors[it->second];
      TRIREME_REQUIRE(mine.shape == tensor.shape && mine.dtype == tensor.dtype,
                      "ranks disagree on tensor '{}': {} {} and {} {}", tensor.name,
                      name_of(mine.dtype), to_string(mine.shape), name_of(tensor.dtype),
                      to_string(tensor.shape));
      new_tensor.push_back(it->second);
    }
    for (BlockEntry block : other.blocks) {
      block.tensor = new_tensor.at(block.tensor);
      block.file = new_file.at(block.file);
      blocks.push_back(std::move(block));
    }
  }
}

void Manifest::check(const std::string& where) const {
  for (const FileEntry& file : files) {
    TRIREME_REQUIRE_INPUT(!file.name.empty() && Path(file.name).filename() == file.name,
                          "'{}' names a file '{}' outside its directory", where,
                          file.name);
  }
  std::vector<std::vector<Rectangle>> places(tensors.size());
  for (const BlockEntry& block : blocks) {
    TRIREME_REQUIRE_INPUT(block.tensor < tensors.size() && block.file < files.size(),
                          "'{}' has a block of an unknown tensor or file", where);
    const TensorEntry& tensor = tensors[block.tensor];
    const Rectangle all = whole(tensor.shape);
    const Rectangle& place = block.place;
    TRIREME_REQUIRE_INPUT(place.row >= 0 && place.column >= 0 && place.rows > 0 &&
                              place.columns > 0 && place.row <= all.rows - place.rows &&
                              place.column <= all.columns - place.columns,
                          "'{}': a block of '{}' lies outside its shape {}", where,
                          tensor.name, to_string(tensor.shape));
    const FileEntry& file = files[block.file];
    TRIREME_REQUIRE_INPUT(
        block.offset <= file.bytes && bytes_of(block).bytes <= file.bytes - block.offset,
        "'{}': a block of '{}' lies beyond the end of '{}'", where, tensor.name,
        file.name);
    const std::size_t chunks = chunk_count(place, tensor.dtype);
    TRIREME_REQUIRE_INPUT(block.checksums.size() == chunks,
                          "'{}': a block of '{}' has {} checksums for {} chunks", where,
                          tensor.name, block.checksums.size(), chunks);
    places[block.tensor].push_back(place);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    index_t covered = 0;
    for (const Rectangle& place : places[i]) covered += place.elements();
    TRIREME_REQUIRE_INPUT(!overlap(std::move(places[i])),
                          "'{}': two blocks of '{}' overlap", where, tensors[i].name);
    TRIREME_REQUIRE_INPUT(covered == element_count(tensors[i].shape),
                          "'{}': the blocks of '{}' {} hold {} of its {} elements", where,
                          tensors[i].name, to_string(tensors[i].shape), covered,
                          element_count(tensors[i].shape));
  }
}

std::string Manifest::to_text() const {
  std::string body = fmt::format("\"generation\": {},\n", generation);
  body += fmt::format("\"format\": \"{}\",\n\"format_version\": {},\n\"step\": {},\n",
                      kFormat, kFormatVersion, step);
  body += list_of("files", files, [](const FileEntry& file) {
    return Json{
        {"name", file.name}, {"bytes", file.bytes}, {"xxh3", io::to_hex(file.checksum)}};
  });
  body += ",\n" + list_of("tensors", tensors, [](const TensorEntry& tensor) {
            return Json{{"name", tensor.name},
                        {"dtype", std::string(name_of(tensor.dtype))},
                        {"shape", tensor.shape}};
          });
  body += ",\n" + list_of("blocks", blocks, [&](const BlockEntry& block) {
            const Shape& shape = tensors[block.tensor].shape;
            Json sums = Json::array();
            for (const std::uint64_t sum : block.checksums)
              sums.push_back(io::to_hex(sum));
            return Json{{"tensor", block.tensor},
                        {"file", block.file},
                        {"dataset", block.dataset},
                        {"offset", block.offset},
                        {"start", start_of(block.place, shape)},
                        {"shape", extent_of(block.place, shape)},
                        {"xxh3", std::move(sums)}};
          });
  body += "\n}\n";
  return fmt::format("{{\"xxh3\": \"{}\",\n",
                     io::to_hex(io::checksum(body.data(), body.size()))) +
         body;
}

Manifest Manifest::from_text(const std::string& text, const std::string& where) {
  const std::size_t line_end = text.find('\n');
  const std::string body = line_end == std::string::npos ? "" : text.substr(line_end + 1);
  const std::string found = io::to_hex(io::checksum(body.data(), body.size()));
  const std::string first_line = text.substr(0, line_end);
  TRIREME_REQUIRE_INPUT(
      first_line == fmt::format("{{\"xxh3\": \"{}\",", found),
      "'{}' is damaged: its first line is '{}', its content has XXH3 {}", where,
      first_line.substr(0, 40), found);
  const auto invalid = [&](const std::string& what) {
    return InputError(fmt::format("'{}' is not a valid manifest: {}", where, what));
  };
  try {
    return from_json(io::parse_json<Json>(text), where);
  } catch (const io::JsonError& error) {
    throw invalid(error.what());
  } catch (const Json::exception& error) {
    throw invalid(io::json_problem(error.what()));
  }
}

Manifest read_manifest(const Path& directory) {
  const Path path = directory / kManifestName;
  Manifest manifest = Manifest::from_text(io::read_file(path, "manifest"), path.string());
  manifest.check(path.string());
  return manifest;
}

std::int64_t peek_generation(const Path& directory) {
  try {
    const io::FileReader reader(directory / kManifestName);
    std::string head(
        static_cast<std::size_t>(std::min<std::uint64_t>(reader.size(), 100)), ' ');
    reader.read_at(0, head.data(), head.size());
    const std::string key = "\n\"generation\": ";
    const std::size_t at = head.find(key);
    return at == std::string::npos ? -1 : std::stoll(head.substr(at + key.size()));
  } catch (const Error&) {
    return -1;
  } catch (const std::logic_error&) {  // stoll
    return -1;
  }
}

}  // namespace trireme::ckpt
