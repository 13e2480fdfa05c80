// apps/inspect.cpp — `trireme inspect`: what a corpus, a checkpoint or a run holds, and
// whether it is whole. ckpt/describe.hpp finds out; here it is shown.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "base/error.hpp"
#include "ckpt/describe.hpp"
#include "comm/on_ranks.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::apps {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kDamaged = 2;

struct InspectOptions {
  std::string path;
  std::string json;
  bool verify = false;
};

// 1234567 -> "1,234,567".
std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0);
       at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

void line(const char* key, const std::string& value) {
  fmt::print("  {:<18}{}\n", key, value);
}

void count(const char* key, const Json& value) {
  line(key, grouped(value.get<std::int64_t>()));
}

std::string size(const Json& bytes) {
  return io::human_bytes(bytes.get<std::uint64_t>());
}

std::string list_of(const Json& object) {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", key, size(value));
  }
  return text.empty() ? "none" : text;
}

// Rows of cells, columns as wide as their widest cell; the last columns to the right.
void table(const std::vector<std::vector<std::string>>& rows, std::size_t left_columns) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const auto& row : rows) {
    std::string text = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += i < left_columns ? fmt::format(" {:<{}}", row[i], widths[i])
                               : fmt::format(" {:>{}}", row[i], widths[i]);
    }
    fmt::print("{}\n", text);
  }
}

std::string shape_of(const Json& entry) {
  std::string text;
  if (!entry.contains("shape")) return text;
  for (const Json& extent : entry["shape"]) {
    text += fmt::format("{}{}", text.empty() ? "" : " x ", extent.get<std::int64_t>());
  }
  return text;
}

void show_tensors(const Json& tensors) {
  std::vector<std::vector<std::string>> rows = {
      {"tensor", "dtype", "shape", "size", "blocks"}};
  std::uint64_t others = 0;
  std::uint64_t other_bytes = 0;
  for (const Json& tensor : tensors) {
    const auto name = tensor["name"].get<std::string>();
    if (!name.starts_with("model/")) {
      ++others;
      other_bytes += tensor["bytes"].get<std::uint64_t>();
      continue;
    }
    rows.push_back({name, tensor["dtype"], shape_of(tensor), size(tensor["bytes"]),
                    std::to_string(tensor["blocks"].get<int>())});
  }
  fmt::print("\n");
  table(rows, 3);
  if (others > 0) {
    fmt::print("  and {} tensors of optimizer state, {}\n", others,
               io::human_bytes(other_bytes));
  }
}

void show_checkpoint(const Json& json) {
  fmt::print("Checkpoint {}\n", json["path"].get<std::string>());
  if (json.contains("step")) {
    count("step", json["step"]);
    line("contents",
         json["contents"] == "training" ? "weights and optimizer state" : "weights only");
    count("parameters", json["parameters"]);
  }
  line("size", fmt::format("{} in {} files", size(json["bytes"]),
                           json.contains("files") ? json["files"].size() + 1 : 0));
  if (json.contains("state")) {
    const Json& state = json["state"];
    count("samples", state["samples"]);
    count("tokens", state["tokens"]);
    line("seeds", fmt::format("{} (run), {} (data)", state["seed"].get<std::uint64_t>(),
                              state["data_seed"].get<std::uint64_t>()));
    line("loss scale", fmt::format("{}", state["loss_scale"].get<double>()));
    if (state.contains("best_step")) {
      line("best validation",
           fmt::format("{:.5f} at step {}", state["best_loss"].get<double>(),
                       state["best_step"].get<std::int64_t>()));
    }
    std::string grid;
    for (const auto& [axis, ranks] : json["grid"].items()) {
      grid += fmt::format("{}{} {}", grid.empty() ? "" : ", ", axis,
                          ranks.get<std::int64_t>());
    }
    line("written by",
         fmt::format("version {}, grid: {}", state["version"].get<std::string>(),
                     grid.empty() ? "not said" : grid));
    line("tokenizer", list_of(json["tokenizer"]));
  }
  if (json.contains("tensors")) show_tensors(json["tensors"]);
}

void show_run(const Json& json) {
  fmt::print("Checkpoints of {}\n", json["path"].get<std::string>());
  std::vector<std::vector<std::string>> rows = {{"", "", "size"}};
  for (const Json& entry : json["checkpoints"]) {
    std::string note = entry["problems"].empty() ? "whole" : "damaged";
    if (entry["latest"].get<bool>()) note += ", latest";
    rows.push_back({entry["name"], note, size(entry["bytes"])});
  }
  table(rows, 2);
  if (json.contains("newest")) {
    fmt::print("\n");
    show_checkpoint(json["newest"]);
  }
}

void show_corpus(const Json& json) {
  fmt::print("Corpus {}\n", json["path"].get<std::string>());
  line("size", size(json["bytes"]));
  line("tokens", fmt::format("{} ({})", grouped(json["tokens"].get<std::int64_t>()),
                             json["dtype"].get<std::string>()));
  count("documents", json["documents"]);
  count("vocabulary", json["vocabulary_size"]);
  count("end of document", json["end_of_document"]);
  if (json.contains("unigram_entropy")) {
    line("unigram entropy",
         fmt::format("{:.4f} nats per token", json["unigram_entropy"].get<double>()));
  }
  line("checksum", json["checksum"]);
  line("tokenizer", list_of(json["tokenizer"]));
}

void show_hdf5(const Json& json) {
  fmt::print("HDF5 file {}\n", json["path"].get<std::string>());
  line("size", size(json["bytes"]));
  if (!json.contains("datasets")) return;
  for (const auto& [name, value] : json["attributes"].items()) {
    line(name.c_str(), value.get<std::string>());
  }
  std::vector<std::vector<std::string>> rows = {{"dataset", "dtype", "shape"}};
  for (const Json& entry : json["datasets"]) {
    rows.push_back({entry["name"], entry["dtype"], shape_of(entry)});
  }
  table(rows, 3);
}

int inspect(const InspectOptions& options) {
  const auto depth = options.verify ? ckpt::Depth::checksums : ckpt::Depth::sizes;
  const std::string text = ckpt::describe(options.path, depth);
  const Json json = io::parse_json<Json>(text);
  if (json["kind"] == "checkpoint") show_checkpoint(json);
  if (json["kind"] == "run") show_run(json);
  if (json["kind"] == "corpus") show_corpus(json);
  if (json["kind"] == "hdf5") show_hdf5(json);
  if (!options.json.empty()) io::write_file(options.json, text);

  const Json& problems = json["problems"];
  fmt::print("\n");
  if (!problems.empty()) {
    std::fflush(stdout);
    for (const Json& problem : problems) {
      fmt::print(stderr, "Damaged: {}\n", problem.get<std::string>());
    }
    return kDamaged;
  }
  // A single HDF5 file of another kind carries no checksum to hold it against.
  if (!options.verify) {
    fmt::print(
        "  All files have their sizes; --verify reads them and checks their content.\n");
  } else if (json["kind"] == "hdf5") {
    fmt::print("  It can be read. Only corpora and checkpoints carry checksums.\n");
  } else {
    fmt::print("  Verified: all checksums hold.\n");
  }
  return 0;
}

}  // namespace

void add_inspect(CommandLine& line) {
  Command command = line.add_command(
      "inspect",
      "Show what a corpus, a checkpoint or a run holds, and whether it is whole");
  const auto options = std::make_shared<InspectOptions>();
  command
      .add("path", options->path,
           "corpus (.h5), checkpoint (step_*, latest), or run directory")
      .required();
  command.add_flag("--verify", options->verify,
                   "read everything and check its checksums; status 2 where one fails");
  command.add("--json", options->json, "also write what is shown to this file");
  command.does([options](comm::Environment& environment) {
    const std::string status = comm::on_first_rank(*environment.world(), [&] {
      require_output(options->json, {options->path});
      try {
        return std::to_string(inspect(*options));
      } catch (const std::system_error& error) {
        if (std::ferror(stdout) == 0) throw;  // not of fmt::print
        throw Error(fmt::format("cannot write the output to stdout: {}", error.what()));
      }
    });
    return std::stoi(status);
  });
}

}  // namespace trireme::apps
