// ckpt/describe.cpp — see describe.hpp.
//
// Each kind of thing has a function that makes the JSON of it, and describe() finds out
// which kind there is. Everything is read through the same classes as in training, and
// what these throw becomes an entry of `problems`: a damaged checkpoint is exactly what
// one wants to look at. A single HDF5 file has no checksum to vouch for it, and HDF5 can
// crash on damaged headers, so that such a file is opened in a child process.
#include "ckpt/describe.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "base/words.hpp"
#include "ckpt/directory.hpp"
#include "ckpt/training_state.hpp"
#include "data/corpus.hpp"
#include "io/checksum.hpp"
#include "io/guarded_call.hpp"
#include "io/hdf5.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

// Listing what a file holds takes no longer, however large it is.
constexpr int kListSeconds = 120;

const char* name_of_depth(Depth depth) {
  return depth == Depth::checksums ? "checksums" : "sizes";
}

Json sizes_of(const std::map<std::string, std::string>& files) {
  Json sizes = Json::object();
  for (const auto& [name, content] : files) sizes[name] = content.size();
  return sizes;
}

// --- checkpoints ---------------------------------------------------------------------

std::uint64_t total_bytes(const Path& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file(error)) bytes += it->file_size(error);
  }
  return bytes;
}

void add_state(Json& json, const TrainingState& state) {
  json["state"] = {{"samples", state.samples},
                   {"tokens", state.tokens},
                   {"seed", state.seed},
                   {"data_seed", state.data_seed},
                   {"loss_scale", state.loss_scale},
                   {"skipped_steps", state.skipped_steps},
                   {"version", state.version}};
  if (state.best_step >= 0) {
    json["state"]["best_loss"] = state.best_loss;
    json["state"]["best_step"] = state.best_step;
  }
  json["grid"] = state.grid;
  json["tokenizer"] = sizes_of(state.tokenizer);
  json["deck"] = state.deck;
}

// Tensors in the order in which a model uses them: by layer, weight before bias.
bool comes_before(const std::string& a, const std::string& b) {
  static const std::vector<std::string> kOrder = {
      "model", "optimizer",  "exp_avg",  "exp_avg_sq", "embedding",
      "word",  "position",   "layers",   "input_norm", "attention",
      "qkv",   "projection", "mlp_norm", "mlp",        "fc1",
      "fc2",   "final_norm", "head",     "weight",     "bias"};
  // Numbers by value, known words as above, others behind them.
  const auto place = [](std::string_view word) {
    const auto number = number_in<unsigned>(word);
    const auto known = std::find(kOrder.begin(), kOrder.end(), word);
    return std::tuple(number ? std::int64_t{*number} : -1, known - kOrder.begin(), word);
  };
  const auto parts_a = split(a, "/"), parts_b = split(b, "/");
  return std::lexicographical_compare(
      parts_a.begin(), parts_a.end(), parts_b.begin(), parts_b.end(),
      [&](std::string_view x, std::string_view y) { return place(x) < place(y); });
}

void add_manifest(Json& json, const Manifest& manifest) {
  json["format"] = manifest.format;
  json["run"] = manifest.run;
  json["save"] = manifest.save;
  json["step"] = manifest.step;
  json["generation"] = manifest.generation;
  json["contents"] = manifest.has_optimizer_state() ? "training" : "weights";
  json["parameters"] = manifest.parameter_count();
  json["files"] = Json::array();
  for (const FileEntry& file : manifest.files) {
    json["files"].push_back({{"name", file.name},
                             {"bytes", file.bytes},
                             {"xxh3", io::to_hex(file.checksum)}});
  }
  std::vector<int> blocks(manifest.tensors.size(), 0);
  for (const BlockEntry& block : manifest.blocks) ++blocks[block.tensor];
  std::vector<std::size_t> order(manifest.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return comes_before(manifest.tensors[a].name, manifest.tensors[b].name);
  });
  json["tensors"] = Json::array();
  for (const std::size_t i : order) {
    const TensorEntry& tensor = manifest.tensors[i];
    const auto bytes =
        static_cast<std::uint64_t>(element_count(tensor.shape)) * size_of(tensor.dtype);
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", std::string(name_of(tensor.dtype))},
                               {"shape", tensor.shape},
                               {"bytes", bytes},
                               {"blocks", blocks[i]}});
  }
}

// What the system cannot read is a problem, too, for people. The index is always looked
// into: it is shown.
Findings all_of(const Path& directory, Depth depth) {
  try {
    return examine(directory, std::max(depth, Depth::index));
  } catch (const io::ReadError& error) {
    return {.problems = {error.what()}, .unreadable = {error.what()}};
  }
}

Json describe_checkpoint(const Path& directory, const Findings& findings, Depth depth) {
  Json json = {{"kind", "checkpoint"},
               {"path", directory.string()},
               {"bytes", total_bytes(directory)}};
  if (findings.manifest) {
    add_manifest(json, *findings.manifest);
    const std::string note = format_note(*findings.manifest, directory);
    if (!note.empty()) json["note"] = note;
  }
  if (findings.state) add_state(json, *findings.state);
  json["checked"] = name_of_depth(depth);
  json["problems"] = findings.problems;
  json["unreadable"] = findings.unreadable;
  return json;
}

Json describe_run(const Path& directory, const Path& checkpoints, Depth depth) {
  Json json = {{"kind", "run"}, {"path", directory.string()}};
  json["checkpoints"] = Json::array();
  json["problems"] = json["unreadable"] = Json::array();
  std::error_code ignored;
  const Path link = directory / "checkpoints";
  if (fs::is_symlink(link, ignored) && !fs::is_directory(link, ignored)) {
    json["unreadable"].push_back(fmt::format("the link '{}' leads to no directory ('{}')",
                                             link.string(),
                                             fs::read_symlink(link, ignored).string()));
    json["problems"] = json["unreadable"];
  }
  const Path latest = fs::read_symlink(checkpoints / kLatestName, ignored).filename();
  Json newest;
  for (const Listed& listed : list_checkpoints(checkpoints)) {
    const Findings findings = all_of(listed.path, depth);
    json["checkpoints"].push_back({{"name", listed.path.filename().string()},
                                   {"step", listed.step},
                                   {"generation", listed.generation},
                                   {"bytes", total_bytes(listed.path)},
                                   {"latest", listed.path.filename() == latest},
                                   {"problems", findings.problems},
                                   {"unreadable", findings.unreadable}});
    for (const std::string& problem : findings.problems)
      json["problems"].push_back(problem);
    for (const std::string& problem : findings.unreadable)
      json["unreadable"].push_back(problem);
    if (findings.problems.empty() && newest.is_null())
      newest = describe_checkpoint(listed.path, findings, Depth::sizes);
  }
  // A run that has not saved yet has a deck.
  TRIREME_REQUIRE_INPUT(
      !json["checkpoints"].empty() || fs::exists(directory / "deck.yaml", ignored),
      "'{}' is no run directory and no checkpoint: it holds no step_*",
      directory.string());
  if (!newest.is_null()) json["newest"] = std::move(newest);
  json["checked"] = name_of_depth(depth);
  return json;
}

// --- files ---------------------------------------------------------------------------

Json describe_corpus(const Path& path) {
  const data::Corpus corpus(path);
  const io::H5File file = io::H5File::open(path);
  Json json = {
      {"kind", "corpus"}, {"path", path.string()}, {"bytes", io::file_size(path)}};
  json["tokens"] = corpus.token_count();
  json["documents"] = corpus.document_count();
  if (corpus.has_sentences()) {
    json["sentences"] = corpus.sentence_count();
    json["sentence_language"] = corpus.sentence_language();
  }
  json["vocabulary_size"] = corpus.vocabulary_size();
  json["end_of_document"] = corpus.end_of_document();
  json["dtype"] = std::string(name_of(file.dataset("tokens").dtype()));
  json["checksum"] = io::to_hex(corpus.checksum());
  if (file.has_attribute("unigram_entropy")) {
    json["unigram_entropy"] = file.attribute<double>("unigram_entropy");
  }
  json["tokenizer"] = sizes_of(corpus.tokenizer_files());
  return json;
}

Json list_of_datasets(const io::H5File& file) {
  Json list = Json::array();
  for (const io::H5Entry& found : file.tree()) {
    if (found.kind == io::H5Entry::Kind::group) continue;
    Json entry = {{"name", "/" + found.path}};
    if (found.kind == io::H5Entry::Kind::link) {
      entry["dtype"] = "link";  // to another place, which is not shown
      list.push_back(std::move(entry));
      continue;
    }
    try {
      const io::H5Dataset dataset = file.dataset(found.path);
      entry["dtype"] = std::string(name_of(dataset.dtype()));
      entry["shape"] = dataset.shape();
    } catch (const InputError&) {
      entry["dtype"] = "other";  // texts, compounds: not ours to show
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json describe_hdf5(const Path& path) {
  const io::H5File file = io::H5File::open(path);
  // A file that lacks a part is taken for a corpus, too: the reader then says which part.
  if ((file.has("tokens") && file.has("documents")) ||
      (file.has_attribute("format_version") && file.has_attribute("token_count"))) {
    return describe_corpus(path);
  }
  Json json = {{"kind", "hdf5"}, {"path", path.string()}, {"bytes", io::file_size(path)}};
  json["attributes"] = Json::object();
  for (const std::string& name : file.attribute_names()) {
    json["attributes"][name] = file.attribute_text(name);
  }
  json["datasets"] = list_of_datasets(file);
  return json;
}

// Nobody vouches for a single file: it is opened in a process of its own.
Json describe_file(const Path& path, Depth depth) {
  const io::H5FileCheck check = io::check_hdf5(path);
  TRIREME_REQUIRE_INPUT(check.is_hdf5,
                        "{}; expected a corpus, a checkpoint or a run directory",
                        check.problem);
  Json json;
  std::vector<std::string> problems;
  try {
    TRIREME_REQUIRE_INPUT(check.problem.empty(), "{}", check.problem);
    json = io::parse_json<Json>(io::guarded_call(
        path, kListSeconds, [&] { return io::json_text(describe_hdf5(path)); }));
    if (json["kind"] == "corpus") {
      const std::string wrong = io::guarded_call(path, 0, [&] {
        const data::Corpus corpus(path);
        return depth == Depth::checksums ? corpus.verify() : corpus.documents_problem();
      });
      if (!wrong.empty()) {
        problems.push_back(fmt::format("'{}': {}", path.string(), wrong));
      }
    }
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
  if (json.is_null()) {
    json = {{"kind", "hdf5"}, {"path", path.string()}, {"bytes", check.bytes}};
  }
  json["checked"] = name_of_depth(depth);
  json["problems"] = problems;
  return json;
}

}  // namespace

std::string describe(const Path& path, Depth depth) {
  std::error_code error;
  const bool exists = fs::exists(path, error);
  if (error) throw InputError(io::system_message("cannot read", path, error.value()));
  TRIREME_REQUIRE_INPUT(
      exists, "'{}' does not exist: expected a corpus, a checkpoint or a run directory",
      path.string());
  Json json;
  if (!fs::is_directory(path, error)) {
    json = describe_file(path, depth);
  } else {
    const Path canonical = fs::canonical(path);
    const Path below = canonical / "checkpoints";
    if (is_checkpoint(canonical)) {
      // The index is opened only when its checksum holds, yet a file written damaged may
      // bear a right one.
      json = io::parse_json<Json>(io::guarded_call(canonical, 0, [&] {
        return io::json_text(
            describe_checkpoint(canonical, all_of(canonical, depth), depth));
      }));
    } else {
      const Path checkpoints = fs::is_directory(below, error) ? below : canonical;
      json = io::parse_json<Json>(io::guarded_call(canonical, 0, [&] {
        return io::json_text(describe_run(canonical, checkpoints, depth));
      }));
    }
  }
  return io::json_text(json, 1) + "\n";
}

}  // namespace trireme::ckpt
