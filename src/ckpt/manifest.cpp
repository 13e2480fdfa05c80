// ckpt/manifest.cpp — writing and reading manifest.json; see manifest.hpp. What is asked
// of its content is in manifest_check.cpp.
//
// A manifest is text that people read, too, with one line for each entry; a checkpoint of
// 10^12 parameters has some 100,000 of them. Each rank therefore makes the manifest of
// its own shard, these travel as text, and rank 0 merges them (merge()): entries refer to
// files and tensors by number, and merging shifts these numbers. Example: a shard has the
// file 0 and the tensors 0 and 1. Merged behind another shard its file becomes file 1,
// while tensors that the other one names, too, take the numbers that they have there.
#include "ckpt/manifest.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "io/checksum.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

namespace {

using Json = nlohmann::ordered_json;

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

// Each entry of a list; what is wrong with one says which it is, from 0.
template <class Read>
void read_list(const Json& json, const char* key, const Read& read) {
  std::size_t number = 0;
  for (const Json& entry : io::json_list(json, key)) {
    try {
      read(entry);
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}[{}]: {}", key, number, error.what()));
    }
    ++number;
  }
}

FileEntry file_from(const Json& json) {
  FileEntry file{io::json_value<std::string>(json, "name"),
                 io::json_value<std::uint64_t>(json, "bytes"),
                 io::from_hex(io::json_value<std::string>(json, "xxh3"))};
  if (json.contains("stamp")) file.stamp = io::json_value<std::uint64_t>(json, "stamp");
  return file;
}

BlockEntry block_from(const Json& json, const Manifest& manifest) {
  BlockEntry block;
  block.tensor = io::json_value<std::uint64_t>(json, "tensor");
  block.file = io::json_value<std::uint64_t>(json, "file");
  TRIREME_REQUIRE_INPUT(
      block.tensor < manifest.tensors.size() && block.file < manifest.files.size(),
      "it is a block of an unknown tensor or file");
  block.dataset = io::json_value<std::string>(json, "dataset");
  block.offset = io::json_value<std::uint64_t>(json, "offset");
  for (const auto& sum : io::json_value<std::vector<std::string>>(json, "xxh3")) {
    block.checksums.push_back(io::from_hex(sum));
  }
  const TensorEntry& tensor = manifest.tensors[block.tensor];
  const Shape start = io::json_value<std::vector<std::int64_t>>(json, "start");
  const Shape extent = io::json_value<std::vector<std::int64_t>>(json, "shape");
  const auto place = rectangle_of(start, extent, tensor.shape);
  TRIREME_REQUIRE_INPUT(
      place.has_value(),
      "a block of '{}', elements {} from {}, is no part of its shape {}", tensor.name,
      to_string(extent), to_string(start), to_string(tensor.shape));
  block.place = *place;
  return block;
}

int format_from(const Json& json) {
  TRIREME_REQUIRE_INPUT(io::json_value<std::string>(json, "format") == kFormat,
                        "it is of no checkpoint");
  return io::json_value<int>(json, "format_version");
}

Manifest from_json(const Json& json, int format) {
  Manifest manifest;
  manifest.format = format;
  manifest.step = io::json_value<std::int64_t>(json, "step");
  manifest.generation = io::json_value<std::int64_t>(json, "generation");
  if (!manifest.is_old()) {
    manifest.run = io::json_value<std::string>(json, "run");
    manifest.save = io::json_value<std::string>(json, "save");
    manifest.samples = io::json_value<std::int64_t>(json, "samples");
    manifest.tokens = io::json_value<std::int64_t>(json, "tokens");
  }
  read_list(json, "files",
            [&](const Json& file) { manifest.files.push_back(file_from(file)); });
  read_list(json, "tensors", [&](const Json& tensor) {
    manifest.tensors.push_back(
        {io::json_value<std::string>(tensor, "name"),
         dtype_from(io::json_value<std::string>(tensor, "dtype")),
         io::json_value<std::vector<std::int64_t>>(tensor, "shape")});
  });
  read_list(json, "blocks", [&](const Json& block) {
    manifest.blocks.push_back(block_from(block, manifest));
  });
  return manifest;
}

}  // namespace

void Manifest::set_identity(const Identity& identity) {
  run = identity.run;
  save = identity.save;
  step = identity.step;
}

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

std::string Manifest::stamp_of(const std::vector<std::size_t>& numbers) const {
  std::vector<std::size_t> in_order = numbers;
  std::ranges::sort(in_order, {}, [&](std::size_t i) { return blocks[i].offset; });
  io::Checksum places;
  for (const std::size_t i : in_order) {
    const BlockEntry& block = blocks[i];
    const TensorEntry& tensor = tensors[block.tensor];
    const std::string text = fmt::format(
        "{}\n{}\n{}\n{}\n{}\n{}\n{}\n", tensor.name, name_of(tensor.dtype),
        to_string(tensor.shape), to_string(start_of(block.place, tensor.shape)),
        to_string(extent_of(block.place, tensor.shape)), block.dataset, block.offset);
    places.update(text.data(), text.size());
  }
  std::string stamp = fmt::format("run {} save {} step {:020} blocks {}\n", run, save,
                                  step, io::to_hex(places.value()));
  stamp.resize(kStampBytes, ' ');
  return stamp;
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
  part.format = format;
  part.set_identity(identity());
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

std::string Manifest::to_text() const {
  std::string body = fmt::format("\"generation\": {},\n", generation);
  body += fmt::format("\"format\": \"{}\",\n\"format_version\": {},\n\"step\": {},\n",
                      kFormat, format, step);
  if (!is_old()) {
    body += fmt::format(
        "\"samples\": {},\n\"tokens\": {},\n\"run\": \"{}\",\n\"save\": \"{}\",\n",
        samples, tokens, run, save);
  }
  body += list_of("files", files, [](const FileEntry& file) {
    Json json = {
        {"name", file.name}, {"bytes", file.bytes}, {"xxh3", io::to_hex(file.checksum)}};
    if (file.stamp) json["stamp"] = *file.stamp;
    return json;
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
  Json json;
  int format = 0;
  try {
    json = io::parse_json<Json>(text);
    format = format_from(json);
  } catch (const InputError& error) {
    throw damaged_manifest(where, error.what());
  }
  // A format of another version is no damage.
  TRIREME_REQUIRE_INPUT(
      format == kFormatVersion || format == kOldFormatVersion,
      "'{}' has checkpoint format {}; this program reads {} and {}. Use the version of "
      "Trireme that wrote it, or a newer one",
      where, format, kOldFormatVersion, kFormatVersion);
  try {
    return from_json(json, format);
  } catch (const InputError& error) {
    throw damaged_manifest(where, error.what());
  }
}

InputError damaged_manifest(const std::string& where, const std::string& problem) {
  return InputError(
      fmt::format("'{}' is damaged: {}; take another checkpoint", where, problem));
}

Manifest read_manifest(const Path& directory) {
  const Path path = directory / kManifestName;
  Manifest manifest = Manifest::from_text(io::read_file(path, "manifest"), path.string());
  manifest.check(path.string());
  if (std::ranges::count(manifest.files, kIndexName, &FileEntry::name) == 0) {
    throw damaged_manifest(path.string(), fmt::format("it lists no {}", kIndexName));
  }
  std::error_code ignored;  // `latest` is a link
  const std::string name =
      std::filesystem::weakly_canonical(directory, ignored).filename();
  const auto step = step_of(name);
  TRIREME_REQUIRE_INPUT(
      !step || *step == manifest.step,
      "'{}' is of step {}, and its directory is called '{}': one of them was renamed or "
      "put in the place of another. Give it its own name again, or take another "
      "checkpoint",
      path.string(), manifest.step, name);
  return manifest;
}

std::string format_note(const Manifest& manifest, const Path& directory) {
  if (!manifest.is_old()) return "";
  return fmt::format(
      "'{}' has checkpoint format {}, whose parts do not say which save they are of: "
      "that "
      "they belong together cannot be checked (format {} says it)",
      directory.string(), manifest.format, kFormatVersion);
}

std::int64_t peek_generation(const Path& directory) {
  try {
    const io::FileReader reader(directory / kManifestName);
    std::string head(
        static_cast<std::size_t>(std::min<std::uint64_t>(reader.size(), 100)), ' ');
    reader.read_at(0, head.data(), head.size());
    const std::string key = "\n\"generation\": ";
    const std::size_t at = head.find(key);
    if (at == std::string::npos) return -1;
    const std::int64_t generation = std::stoll(head.substr(at + key.size()));
    return generation <= kMaxCount ? generation : -1;  // no program wrote such a one
  } catch (const Error&) {
    return -1;
  } catch (const std::logic_error&) {  // stoll
    return -1;
  }
}

}  // namespace trireme::ckpt
