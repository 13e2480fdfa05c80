// io/safetensors.hpp — the tensor files of the Hugging Face ecosystem.
//
// A file is 8 bytes (little-endian length of the header), a JSON header {name: {dtype,
// shape, data_offsets: [begin, end]}, "__metadata__": {string: string}}, then the data. A
// model may be cut into several files named by model.safetensors.index.json
// ({"weight_map": {tensor: file}, "metadata": {"total_size": bytes}}). The header is
// checked against the file's size before any tensor is handed out. Reference:
// github.com/huggingface/safetensors, README, "Format".
#ifndef TRIREME_IO_SAFETENSORS_HPP_
#define TRIREME_IO_SAFETENSORS_HPP_

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/shape.hpp"
#include "io/mapped_file.hpp"

namespace trireme::io {

struct SafeTensor {
  std::string name;
  std::string format;          // as in the file: "F32", "BF16", "BOOL", "F8_E4M3" ...
  std::optional<DType> dtype;  // empty for those Trireme does not compute with
  Shape shape;
  const std::byte* data = nullptr;  // in the mapping, perhaps unaligned
  std::uint64_t bytes = 0;
  Path file;
};

// One file or all files of a sharded model, mapped. All errors are InputErrors that name
// the file and tensor.
class SafetensorsReader {
 public:
  // path: a .safetensors file, a .safetensors.index.json, or a directory that holds
  // model.safetensors or model.safetensors.index.json.
  explicit SafetensorsReader(const Path& path);

  bool has(const std::string& name) const { return tensors_.contains(name); }
  // InputError when there is none; it names the nearest.
  const SafeTensor& at(const std::string& name) const;
  const std::map<std::string, SafeTensor>& tensors() const { return tensors_; }
  // What is odd in the files, and no error.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Converts any floating-point element type to float; integers are refused.
  std::vector<float> read_float(const std::string& name) const;

 private:
  void read_one(const Path& path);
  void read_index(const Path& index);
  // Whether the files' tensors are those that an index says.
  void check_placement(const std::map<std::string, std::string>& files,
                       const Path& index) const;
  void require_uncut() const;

  std::vector<MappedFile> files_;
  std::map<std::string, SafeTensor> tensors_;
  std::vector<std::string> warnings_;
};

// Collects what shall be written; nothing is copied until write().
class SafetensorsWriter {
 public:
  // Fills a buffer with a tensor's bytes (element_count * size_of(dtype)).
  using Source = std::function<void(std::span<std::byte>)>;

  void add(std::string name, DType dtype, Shape shape, Source source);

  // One file, under its final name only when whole.
  void write(const Path& path) const;
  // A directory's model: model.safetensors; or, where the tensors take more than
  // `most_bytes` together, files model-00001-of-0000n.safetensors of at most so many (a
  // larger tensor has one to itself) and, written when they are there, the index that
  // names them. Tensors keep their order. Returns how many files hold tensors.
  std::size_t write_model(const Path& directory, std::uint64_t most_bytes) const;

 private:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    Source source;

    std::uint64_t bytes() const;
  };
  using Entries = std::vector<const Entry*>;  // of one file
  Entries all() const;
  std::vector<Entries> divided(std::uint64_t most_bytes) const;
  static void write_entries(const Path& path, Entries entries);

  std::vector<Entry> entries_;
};

}  // namespace trireme::io

#endif  // TRIREME_IO_SAFETENSORS_HPP_
