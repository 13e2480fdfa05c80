// check/inspection_text.cpp — what `trireme inspect` prints of the JSON of
// inspection.cpp.
//
// The text is made from the JSON alone, so that the two cannot say different things. A
// function makes the lines of one part of it, and gives an empty text where that part is
// not there: what a file of this kind may lack is asked for by its key.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "check/inspection.hpp"

namespace trireme::check {

namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

constexpr int kKeyColumns = 20;  // two blanks, the key, a blank

std::string line(const char* key, const std::string& value) {
  return fmt::format("  {:<17} {}\n", key, value);
}
// Broken between its parts where it would be too long.
std::string line(const char* key, const std::vector<std::string>& parts) {
  return line(key, wrap_list(parts, kScreenColumns, kKeyColumns));
}

std::string grouped(const Json& value) {
  return format_grouped(value.get<std::int64_t>());
}

std::string plural(const Json& value, const char* unit) {
  return format_plural(value.get<std::int64_t>(), unit);
}

std::string size(const Json& bytes) {
  return human_bytes(bytes.get<std::uint64_t>());
}

// {"merges.txt": 12345}: names and sizes.
std::vector<std::string> files_of(const Json& object) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : object.items()) {
    parts.push_back(fmt::format("{} ({})", key, size(value)));
  }
  if (parts.empty()) parts.emplace_back("none");
  return parts;
}

// Rows of cells, columns as wide as their widest cell; the last columns to the right. A
// row of one cell is a heading, of any width.
std::string table(const std::vector<Row>& rows, std::size_t left_columns) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; row.size() > 1 && i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    text += ' ';
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row.size() == 1    ? " " + row[0]
              : i < left_columns ? fmt::format(" {:<{}}", row[i], widths[i])
                                 : fmt::format(" {:>{}}", row[i], widths[i]);
    }
    text += '\n';
  }
  return text;
}

std::string shape_of(const Json& entry) {
  std::string text;
  if (!entry.contains("shape")) return text;
  for (const Json& extent : entry["shape"]) {
    text += fmt::format("{}{}", text.empty() ? "" : " x ", extent.get<std::int64_t>());
  }
  return text;
}

std::string loss_text(const Json& loss) {
  return loss.is_number() ? fmt::format("{:.5f}", loss.get<double>()) : "not known";
}

// What of a model the words of model_text() have; of the rest the name is the word.
bool is_said(std::string_view name) {
  constexpr std::array<std::string_view, 8> kSaid = {
      "kind",     "layers",    "hidden",     "heads",
      "kv_heads", "head_size", "ffn_hidden", "parameters"};
  return std::ranges::find(kSaid, name) != kSaid.end();
}

std::string model_text(const Json& json) {
  if (json.contains("deck_problem")) {
    return line("model",
                "its deck cannot be read: " + json["deck_problem"].get<std::string>());
  }
  if (!json.contains("model")) return "";
  const Json& m = json["model"];
  std::vector<std::string> parts = {fmt::format(
      "{}: {} x {} hidden x {}", m["kind"].get<std::string>(),
      plural(m["layers"], "layer"), grouped(m["hidden"]), plural(m["heads"], "head"))};
  if (m["heads"].get<index_t>() * m["head_size"].get<index_t>() != m["hidden"]) {
    parts.back() += " of " + grouped(m["head_size"]);
  }
  if (m["kv_heads"] != m["heads"]) {
    parts.push_back(grouped(m["kv_heads"]) + " of keys and values");
  }
  parts.push_back(grouped(m["ffn_hidden"]) + " in the feed-forward blocks");
  for (const auto& [name, value] : m.items()) {
    if (is_said(name)) continue;
    std::string words = name;
    std::ranges::replace(words, '_', ' ');
    parts.push_back(words + " " +
                    (value.is_string() ? value.get<std::string>() : grouped(value)));
  }
  return line("model", parts) + line("parameters", grouped(m["parameters"]));
}

std::string training_text(const Json& training) {
  std::string text;
  if (training.contains("steps")) {
    text +=
        line("state",
             fmt::format("{}: step {} of {}",
                         training["finished"].get<bool>() ? "finished" : "not finished",
                         grouped(training["step"]), grouped(training["steps"])));
  } else if (training.contains("step")) {
    text += line("step", grouped(training["step"]));
  } else {
    text += line("step", "not known: no manifest can be read");
  }
  if (training.contains("samples")) {
    text +=
        line("trained on", fmt::format("{}, {}", plural(training["samples"], "sample"),
                                       plural(training["tokens"], "token")));
  }
  if (training.contains("loss")) {
    text +=
        line("loss", fmt::format("{} at step {}", loss_text(training["loss"]["value"]),
                                 grouped(training["loss"]["step"])));
  }
  if (training.contains("records_problem")) {
    text += line("losses", "its records cannot be read: " +
                               training["records_problem"].get<std::string>());
  }
  if (training.contains("validation")) {
    std::vector<std::string> parts;
    const Json& sets = training["validation"];
    for (const Json& set : sets) {
      const auto name = set["name"].get<std::string>();
      parts.push_back((sets.size() > 1 ? name + " " : "") + loss_text(set["loss"]));
    }
    parts.back() += " at step " + grouped(sets.back()["step"]);
    text += line("validation loss", parts);
  }
  if (training.contains("best_validation")) {
    const Json& best = training["best_validation"];
    text += line("best validation", fmt::format("{} at step {}", loss_text(best["loss"]),
                                                grouped(best["step"])));
  }
  return text;
}

// A tensor's row but for its number of blocks, which depends on who wrote it.
struct TensorRow {
  Row cells;  // name below its layer, dtype, shape, size
  std::int64_t blocks = 0;
};

struct Layer {
  std::string stack;  // encoder/layers/
  std::string name;   // encoder/layers/0; empty: outside of the layers
  std::uint64_t bytes = 0;
  std::vector<TensorRow> rows;

  bool is_like(const Layer& that) const {
    return !name.empty() && stack == that.stack && bytes == that.bytes &&
           std::equal(
               rows.begin(), rows.end(), that.rows.begin(), that.rows.end(),
               [](const TensorRow& a, const TensorRow& b) { return a.cells == b.cells; });
  }
};

constexpr std::string_view kModel = "model/", kLayers = "layers/";

// Where the name of a tensor goes on behind "layers/", in one stack or in that of an
// encoder or decoder; 0 for one outside of the layers.
std::size_t end_of_stack(const std::string& name) {
  const std::size_t at = name.find(kLayers);
  const bool is_in_layer = at == 0 || (at != std::string::npos && name[at - 1] == '/');
  return is_in_layer ? at + kLayers.size() : 0;
}

// The layers in the order of the list, which has the tensors of a layer together.
std::vector<Layer> layers_of(const Json& tensors) {
  std::vector<Layer> layers;
  for (const Json& tensor : tensors) {
    auto name = tensor["name"].get<std::string>();
    if (!name.starts_with(kModel)) continue;
    name.erase(0, kModel.size());
    std::string stack, layer_name;
    if (const std::size_t begin = end_of_stack(name); begin > 0) {
      const std::size_t end = name.find('/', begin);
      stack = name.substr(0, begin);
      layer_name = name.substr(0, end);
      name = end == std::string::npos ? name : "  " + name.substr(end + 1);
    }
    if (layers.empty() || layers.back().name != layer_name) {
      layers.push_back({stack, layer_name, 0, {}});
    }
    Layer& layer = layers.back();
    layer.bytes += tensor["bytes"].get<std::uint64_t>();
    layer.rows.push_back(
        {{name, tensor["dtype"], shape_of(tensor), size(tensor["bytes"])},
         tensor["blocks"].get<std::int64_t>()});
  }
  return layers;
}

// Layers that follow one another and are alike are shown once.
std::string tensors_text(const Json& tensors) {
  const std::vector<Layer> layers = layers_of(tensors);
  std::vector<Row> rows = {{"tensor of model/", "dtype", "shape", "size", "blocks"}};
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t end = first + 1;
    while (end < layers.size() && layers[end].is_like(layers[first])) ++end;
    const Layer& layer = layers[first];
    if (!layer.name.empty()) {
      const std::string bytes = human_bytes(layer.bytes);
      rows.push_back({end - first == 1 ? fmt::format("{}: {}", layer.name, bytes)
                                       : fmt::format("{} to {}, each: {}", layer.name,
                                                     layers[end - 1].name, bytes)});
    }
    for (std::size_t r = 0; r < layer.rows.size(); ++r) {
      std::int64_t least = layer.rows[r].blocks, most = least;
      for (std::size_t l = first; l < end; ++l) {
        least = std::min(least, layers[l].rows[r].blocks);
        most = std::max(most, layers[l].rows[r].blocks);
      }
      rows.push_back(layer.rows[r].cells);
      rows.back().push_back(least == most ? std::to_string(least)
                                          : fmt::format("{}-{}", least, most));
    }
    first = end;
  }
  std::uint64_t others = 0, other_bytes = 0;
  for (const Json& tensor : tensors) {
    if (tensor["name"].get<std::string>().starts_with(kModel)) continue;
    ++others;
    other_bytes += tensor["bytes"].get<std::uint64_t>();
  }
  std::string text = "\n" + table(rows, 3);
  if (others > 0) {
    text += fmt::format("  and {} of optimizer state, {}\n",
                        format_plural(others, "tensor"), human_bytes(other_bytes));
  }
  return text;
}

// What a checkpoint holds, and who wrote it; how many weights, where no model above says
// it.
std::string contents_text(const Json& json, bool has_model) {
  std::string text;
  if (json.contains("contents")) {
    text +=
        line("contents", json["contents"] == "training" ? "weights and optimizer state"
                                                        : "weights only");
    if (!has_model) text += line("parameters", grouped(json["parameters"]));
  }
  if (json.contains("note")) {
    text += line("note", "an old format: that its parts belong together is not known");
  } else if (json.contains("run")) {
    text += line("run", json["run"].get<std::string>());
    text += line("save", json["save"].get<std::string>());
  }
  std::string bytes = size(json["bytes"]);
  if (json.contains("files")) {
    bytes += " in " + format_plural(json["files"].size() + 1, "file");
  }
  text += line("size", bytes);
  if (!json.contains("state")) return text;
  const Json& state = json["state"];
  text +=
      line("seeds", fmt::format("{} (run), {} (data)", state["seed"].get<std::uint64_t>(),
                                state["data_seed"].get<std::uint64_t>()));
  text += line("loss scale", fmt::format("{}", state["loss_scale"].get<double>()));
  std::vector<std::string> written = {"version " + state["version"].get<std::string>()};
  for (const auto& [axis, ranks] : json["grid"].items()) {
    written.push_back(fmt::format("{} {}", axis, ranks.get<std::int64_t>()));
  }
  return text + line("written by", written) +
         line("tokenizer", files_of(json["tokenizer"]));
}

std::string checkpoint_text(const Json& json) {
  std::string text = fmt::format("Checkpoint {}\n", json["path"].get<std::string>());
  text += model_text(json) + training_text(json["training"]) +
          contents_text(json, json.contains("model"));
  if (json.contains("tensors")) text += tensors_text(json["tensors"]);
  return text;
}

std::string run_text(const Json& json) {
  std::string text = fmt::format("Run {}\n", json["path"].get<std::string>());
  text += model_text(json) + training_text(json["training"]);
  std::vector<Row> rows = {{"checkpoint", "", "size"}};
  for (const Json& entry : json["checkpoints"]) {
    std::string note = entry["problems"].empty()                  ? "whole"
                       : entry["problems"] == entry["unreadable"] ? "cannot be read"
                                                                  : "damaged";
    if (entry["latest"].get<bool>()) note += ", latest";
    rows.push_back({entry["name"], note, size(entry["bytes"])});
  }
  if (rows.size() > 1) {
    text += "\n" + table(rows, 2);
  } else if (json["problems"].empty()) {
    text += "\n  no checkpoint yet\n";
  }
  if (!json.contains("newest")) return text;
  const Json& newest = json["newest"];
  text += "\nNewest whole checkpoint\n" + contents_text(newest, json.contains("model"));
  if (newest.contains("tensors")) text += tensors_text(newest["tensors"]);
  return text;
}

std::string corpus_text(const Json& json) {
  std::string text = fmt::format("Corpus {}\n", json["path"].get<std::string>());
  text += line("size", size(json["bytes"]));
  text += line("tokens", fmt::format("{} ({})", grouped(json["tokens"]),
                                     json["dtype"].get<std::string>()));
  text += line("documents", grouped(json["documents"]));
  if (json.contains("sentences")) {
    text +=
        line("sentences", fmt::format("{} (rules of '{}')", grouped(json["sentences"]),
                                      json["sentence_language"].get<std::string>()));
  }
  text += line("vocabulary", grouped(json["vocabulary_size"]));
  text += line("end of document", grouped(json["end_of_document"]));
  if (json.contains("unigram_entropy")) {
    text += line("unigram entropy", fmt::format("{:.4f} nats per token",
                                                json["unigram_entropy"].get<double>()));
  }
  return text + line("checksum", json["checksum"].get<std::string>()) +
         line("tokenizer", files_of(json["tokenizer"]));
}

std::string hdf5_text(const Json& json) {
  std::string text = fmt::format("HDF5 file {}\n", json["path"].get<std::string>());
  text += line("size", size(json["bytes"]));
  if (!json.contains("datasets")) return text;
  for (const auto& [name, value] : json["attributes"].items()) {
    text += line(name.c_str(), value.get<std::string>());
  }
  std::vector<Row> rows = {{"dataset", "dtype", "shape"}};
  for (const Json& entry : json["datasets"]) {
    rows.push_back({entry["name"], entry["dtype"], shape_of(entry)});
  }
  return text + table(rows, 3);
}

}  // namespace

std::string inspection_text(const Json& json) {
  if (json["kind"] == "checkpoint") return checkpoint_text(json);
  if (json["kind"] == "run") return run_text(json);
  if (json["kind"] == "corpus") return corpus_text(json);
  return hdf5_text(json);
}

}  // namespace trireme::check
