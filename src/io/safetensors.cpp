// io/safetensors.cpp — parsing and checking the headers, converting elements, writing.
//
// A header is somebody else's data: each tensor's range must lie within the file and be
// as long as its shape and type say. Only then is a tensor's offset believed. Example: a
// tensor F32 of shape [2, 3] with data_offsets [8, 32] has 24 bytes, the first of them at
// byte 8 + n + 8 of the file, n being the length of the header.
#include "io/safetensors.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "io/atomic_file.hpp"
#include "io/element_types.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::io {

namespace {

using Json = nlohmann::json;

// The reference implementation's limit; a larger one is a damaged length.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr index_t kMaxElementBits = 64;

struct Format {
  const char* name;
  std::size_t bits;
  std::optional<DType> dtype;
};

const std::vector<Format>& formats() {
  static const std::vector<Format> table = {{"F64", 64, DType::float64},
                                            {"F32", 32, DType::float32},
                                            {"F16", 16, DType::float16},
                                            {"BF16", 16, DType::bfloat16},
                                            {"I64", 64, DType::int64},
                                            {"I32", 32, DType::int32},
                                            {"U64", 64, DType::uint64},
                                            {"U32", 32, DType::uint32},
                                            {"U16", 16, DType::uint16},
                                            {"U8", 8, DType::uint8},
                                            {"I16", 16, {}},
                                            {"I8", 8, {}},
                                            {"BOOL", 8, {}},
                                            {"F8_E4M3", 8, {}},
                                            {"F8_E5M2", 8, {}}};
  return table;
}

const Format* find_format(const std::string& name) {
  const auto it = std::ranges::find(formats(), name, &Format::name);
  return it == formats().end() ? nullptr : &*it;
}

const char* format_name(DType dtype) {
  const auto it = std::ranges::find(formats(), dtype, &Format::dtype);
  TRIREME_REQUIRE(it != formats().end(), "safetensors has no {}", name_of(dtype));
  return it->name;
}

SafeTensor parse_entry(const std::string& name, const Json& entry, const MappedFile& file,
                       std::uint64_t data_begin) {
  const std::string where = fmt::format("'{}': tensor '{}'", file.path().string(), name);
  SafeTensor tensor;
  tensor.name = name;
  tensor.file = file.path();
  std::vector<std::int64_t> offsets;
  try {
    tensor.format = json_value<std::string>(entry, "dtype");
    tensor.shape = json_value<Shape>(entry, "shape");
    offsets = json_value<std::vector<std::int64_t>>(entry, "data_offsets");
  } catch (const JsonError& error) {
    throw InputError(fmt::format("{}: {}", where, error.what()));
  }
  const auto elements = counted_elements(tensor.shape);
  const auto bits = checked_multiply(elements.value_or(-1), kMaxElementBits);
  TRIREME_REQUIRE_INPUT(elements && bits, "{} has an impossible shape {}", where,
                        json_excerpt(entry["shape"]));
  TRIREME_REQUIRE_INPUT(
      offsets.size() == 2 && 0 <= offsets[0] && offsets[0] <= offsets[1],
      "{} has data_offsets {}; expected [begin, end]", where,
      json_excerpt(entry["data_offsets"]));
  tensor.bytes = static_cast<std::uint64_t>(offsets[1] - offsets[0]);
  const std::uint64_t available = file.size() - data_begin;
  TRIREME_REQUIRE_INPUT(std::cmp_less_equal(offsets[1], available),
                        "{} ends at byte {} of the data, but the file holds {} of data: "
                        "it is truncated; download or copy it again",
                        where, offsets[1], format_plural(available, "byte"));
  if (const Format* format = find_format(tensor.format)) {
    tensor.dtype = format->dtype;
    const std::uint64_t expected =
        static_cast<std::uint64_t>(*elements) * format->bits / 8;
    TRIREME_REQUIRE_INPUT(tensor.bytes == expected,
                          "{}: elements {} of {} take {}, its data_offsets span {}",
                          where, to_string(tensor.shape), tensor.format,
                          format_plural(expected, "byte"), format_grouped(tensor.bytes));
  }
  tensor.data = file.data() + data_begin + offsets[0];
  return tensor;
}

Json parse_header(std::string_view text, const Path& path) {
  try {
    return parse_json<Json>(text, Keys::once);
  } catch (const JsonError& error) {
    throw InputError(
        fmt::format("'{}' is not a safetensors file, or damaged: its header: {}",
                    path.string(), error.what()));
  }
}

// Tensor to file, as an index says.
std::map<std::string, std::string> weight_map_of(const Json& json, const Path& index) {
  TRIREME_REQUIRE_INPUT(
      json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
      "'{}' is not a safetensors index: it has no \"weight_map\"", index.string());
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    TRIREME_REQUIRE_INPUT(file.is_string(), "'{}': tensor '{}' names no file",
                          index.string(), tensor);
    const auto name = file.get<std::string>();
    // An index says nothing of other directories: neither ".." nor "/etc/passwd".
    TRIREME_REQUIRE_INPUT(
        !name.empty() && name != "." && name != ".." && Path(name).filename() == name,
        "'{}': tensor '{}' is in '{}', which is not a file name in the same directory",
        index.string(), tensor, name);
    files[tensor] = name;
  }
  return files;
}

void require_files(const std::set<Path>& paths, const Path& index) {
  std::vector<std::string> missing;
  for (const Path& path : paths) {
    std::error_code unknown;  // whoever opens it says why
    if (!std::filesystem::exists(path, unknown) && !unknown) {
      missing.push_back(fmt::format("'{}'", path.filename().string()));
    }
  }
  TRIREME_REQUIRE_INPUT(
      missing.empty(),
      "'{}' names {} of which {} not exist there: {}. Download or copy "
      "the whole model",
      index.string(), format_plural(std::ssize(paths), "file"),
      missing.size() == 1 ? "one does" : fmt::format("{} do", missing.size()),
      fmt::join(missing, ", "));
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const Path& path) {
  if (!std::filesystem::is_directory(path)) {
    path.extension() == ".json" ? read_index(path) : read_one(path);
    return;
  }
  const Path single = path / kSingleName;
  const Path index = path / kIndexName;
  // Where both forms are there the single file wins, as it does in transformers.
  if (std::filesystem::exists(single)) {
    read_one(single);
  } else if (std::filesystem::exists(index)) {
    read_index(index);
  } else {
    const bool pickled = std::filesystem::exists(path / "pytorch_model.bin");
    throw InputError(fmt::format(
        "'{}' holds neither model.safetensors nor {}{}", path.string(), kIndexName,
        pickled
            ? "; it has pytorch_model.bin: load it with transformers and save it with "
              "save_pretrained(..., safe_serialization=True)"
            : ""));
  }
}

void SafetensorsReader::read_one(const Path& path) {
  MappedFile file(path, MappedFile::Access::sequential, "safetensors file");
  const std::byte* length = file.range(0, 8, "the header's length");
  const auto header_bytes = load<std::uint64_t>(length);
  TRIREME_REQUIRE_INPUT(
      header_bytes <= kMaxHeaderBytes && header_bytes <= file.size() - 8,
      "'{}' is not a safetensors file, or damaged: its header is said to have {}, the "
      "file has {}",
      path.string(), format_plural(header_bytes, "byte"), format_grouped(file.size()));
  const auto* text =
      reinterpret_cast<const char*>(file.range(8, header_bytes, "the header"));
  const Json header = parse_header({text, header_bytes}, path);
  TRIREME_REQUIRE_INPUT(header.is_object(),
                        "'{}' is not a safetensors file, or damaged: its header is not a "
                        "JSON object",
                        path.string());
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto [place, is_new] =
        tensors_.emplace(name, parse_entry(name, entry, file, 8 + header_bytes));
    TRIREME_REQUIRE_INPUT(
        is_new,
        "'{}': tensor '{}' is in '{}' too. Take the index and its files "
        "as one program wrote them",
        path.string(), name, place->second.file.filename().string());
  }
  files_.push_back(std::move(file));
}

void SafetensorsReader::read_index(const Path& index) {
  const Json json = parse_json_file<Json>(read_file(index, "safetensors index"),
                                          index.string(), Keys::once);
  const std::map<std::string, std::string> files = weight_map_of(json, index);
  std::set<Path> paths;
  for (const auto& [tensor, file] : files) paths.insert(index.parent_path() / file);
  require_files(paths, index);
  for (const Path& path : paths) read_one(path);
  check_placement(files, index);

  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += tensor.bytes;
  const Json::json_pointer total("/metadata/total_size");
  // Programs count differently what several tensors share, so that this is no error.
  if (json.contains(total) && json[total] != bytes) {
    warnings_.push_back(fmt::format("'{}': total_size is {}, and the tensors take {}",
                                    index.string(), json_excerpt(json[total]), bytes));
  }
}

void SafetensorsReader::check_placement(const std::map<std::string, std::string>& files,
                                        const Path& index) const {
  std::vector<std::string> wrong;
  for (const auto& [tensor, file] : files) {
    const auto it = tensors_.find(tensor);
    if (it == tensors_.end() || it->second.file.filename() != file) {
      wrong.push_back(fmt::format("tensor '{}' in '{}'", tensor, file));
    }
  }
  TRIREME_REQUIRE_INPUT(
      wrong.empty(),
      "'{}' places {}, which does not hold it{}. Take the index and its "
      "files as one program wrote them",
      index.string(), wrong.front(),
      wrong.size() == 1
          ? ""
          : fmt::format(" (and so with {})",
                        format_plural(std::ssize(wrong) - 1, "other tensor")));
}

const SafeTensor& SafetensorsReader::at(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it != tensors_.end()) return it->second;
  const auto nearest = std::ranges::min_element(tensors_, {}, [&](const auto& tensor) {
    return edit_distance(name, tensor.first);
  });
  throw InputError(fmt::format(
      "'{}' has no tensor '{}' ({}{})",
      files_.empty() ? "" : files_.front().path().string(), name,
      format_plural(tensors_.size(), "tensor"),
      nearest == tensors_.end() ? ""
                                : fmt::format("; the nearest is '{}'", nearest->first)));
}

void SafetensorsReader::require_uncut() const {
  for (const MappedFile& file : files_) file.require_uncut();
}

std::vector<float> SafetensorsReader::read_float(const std::string& name) const {
  const SafeTensor& tensor = at(name);
  std::vector<float> values(static_cast<std::size_t>(element_count(tensor.shape)));
  TRIREME_REQUIRE_INPUT(tensor.dtype && is_real(*tensor.dtype),
                        "'{}': tensor '{}' holds {}; expected F32, F64, F16 or BF16",
                        tensor.file.string(), name, tensor.format);
  with_real(*tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(load<T>(tensor.data + i * sizeof(T)));
    }
  });
  require_uncut();
  return values;
}

void SafetensorsWriter::add(std::string name, DType dtype, Shape shape, Source source) {
  const bool known = std::ranges::find(entries_, name, &Entry::name) != entries_.end();
  TRIREME_REQUIRE(!known && name != "__metadata__",
                  "safetensors: tensor '{}' is added twice, or its name is reserved",
                  name);
  entries_.push_back({std::move(name), dtype, std::move(shape), std::move(source)});
}

std::uint64_t SafetensorsWriter::Entry::bytes() const {
  return static_cast<std::uint64_t>(element_count(shape)) * size_of(dtype);
}

SafetensorsWriter::Entries SafetensorsWriter::all() const {
  Entries all;
  for (const Entry& entry : entries_) all.push_back(&entry);
  return all;
}

void SafetensorsWriter::write(const Path& path) const {
  write_entries(path, all());
}

std::vector<SafetensorsWriter::Entries> SafetensorsWriter::divided(
    std::uint64_t most_bytes) const {
  std::vector<Entries> files(1);
  std::uint64_t taken = 0;  // of the last file
  for (const Entry* entry : all()) {
    const std::uint64_t bytes = entry->bytes();
    if (!files.back().empty() && (taken > most_bytes || bytes > most_bytes - taken)) {
      files.emplace_back();
      taken = 0;
    }
    files.back().push_back(entry);
    taken += bytes;
  }
  return files;
}

std::size_t SafetensorsWriter::write_model(const Path& directory,
                                           std::uint64_t most_bytes) const {
  const std::vector<Entries> files = divided(most_bytes);
  if (files.size() == 1) {
    write_entries(directory / kSingleName, files.front());
    return 1;
  }
  Json index;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name =
        fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    write_entries(directory / name, files[i]);
    for (const Entry* entry : files[i]) {
      index["weight_map"][entry->name] = name;
      total += entry->bytes();
    }
  }
  index["metadata"]["total_size"] = total;
  write_file(directory / kIndexName, exact_json_text(index, 2) + "\n");
  return files.size();
}

void SafetensorsWriter::write_entries(const Path& path, Entries order) {
  // The widest elements first, as the reference implementation does: everything is
  // aligned.
  std::ranges::stable_sort(order, std::greater(),
                           [](const Entry* entry) { return size_of(entry->dtype); });
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::uint64_t end = 0;
  std::uint64_t largest = 0;
  for (const Entry* entry : order) {
    const std::uint64_t bytes = entry->bytes();
    header[entry->name] = {{"dtype", format_name(entry->dtype)},
                           {"shape", entry->shape},
                           {"data_offsets", {end, end + bytes}}};
    end += bytes;
    largest = std::max(largest, bytes);
  }
  std::string text = exact_json_text(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t header_bytes = text.size();
  AtomicFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(text);
  std::vector<std::byte> buffer(largest);
  for (const Entry* entry : order) {
    const std::size_t bytes = entry->bytes();
    entry->source(std::span(buffer.data(), bytes));
    file.write(buffer.data(), bytes);
  }
  file.commit();
}

}  // namespace trireme::io
