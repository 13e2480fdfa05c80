// check/inspection.cpp — see inspection.hpp.
//
// ckpt knows files and no decks. What a deck or the records of a run add is put on top
// of its JSON here, as far as it can be read: a checkpoint that was copied away from its
// run is shown without them.
#include "check/inspection.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <variant>

#include "base/error.hpp"
#include "ckpt/describe.hpp"
#include "config/load.hpp"
#include "io/json.hpp"
#include "model/blueprint.hpp"
#include "model/facts.hpp"
#include "step/deck_model.hpp"

namespace trireme::check {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDeckName = "deck.yaml";
constexpr const char* kRecordsName = "train.jsonl";

// A file of the run, where it has one. The checkpoints are shown without what cannot be
// read (it is of another user, say), and `problem` says so.
std::optional<std::string> read_if_there(const io::Path& path, Json& json,
                                         const char* problem) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path, ignored))) return {};
  try {
    return io::read_file(path);
  } catch (const Error& error) {
    json[problem] = error.what();
    return {};
  }
}

// The run directory that a checkpoint, or a directory of them, lies in.
io::Path run_of(const io::Path& path, const Json& json) {
  const io::Path canonical = fs::canonical(path);
  if (json["kind"] == "checkpoint") return canonical.parent_path().parent_path();
  std::error_code ignored;
  if (fs::exists(canonical / kDeckName, ignored)) return canonical;
  return canonical.filename() == "checkpoints" ? canonical.parent_path() : canonical;
}

Json model_of(const config::Deck& deck) {
  Json model = {{"kind", std::string(config::name_of(deck.model.kind))}};
  for (const auto& [name, value] : model::facts_of(deck.model).values) {
    std::visit([&](const auto& of) { model[name] = of; }, value);
  }
  model["parameters"] = model::make_blueprint(deck.model).parameter_count();
  return model;
}

// The last losses of train.jsonl, none of a later step than `last`: read from its end, as
// it may be long. False where it has lines, and none is a record.
bool add_losses(Json& training, std::string_view records, std::int64_t last) {
  std::vector<Json> sets;
  std::int64_t validated = -1;
  bool is_read = records.empty();
  while (!records.empty()) {
    const std::size_t end = records.find_last_not_of('\n');
    if (end == std::string_view::npos) break;
    const std::size_t before = records.substr(0, end + 1).find_last_of('\n');
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    // A line that a kill has torn is passed over.
    const Json record =
        io::parse_json_or_null<Json>(records.substr(begin, end + 1 - begin));
    records = records.substr(0, begin);
    if (!record.is_object()) continue;
    is_read = true;
    const bool is_validation = record.contains("validation");
    const Json& values = is_validation ? record["validation"] : record;
    if (!values.is_object() || !values.contains("loss")) continue;
    std::int64_t at = 0;
    std::string name;
    try {
      at = io::json_value<std::int64_t>(values, "step");
      if (is_validation) name = io::json_value<std::string>(values, "name");
      // A loss that is not finite is written as null.
      if (!values["loss"].is_null()) io::json_value<double>(values, "loss");
    } catch (const io::JsonError&) {
      continue;  // no record of a run
    }
    if (at > last) continue;
    if (is_validation) {
      if (validated >= 0 && at != validated) break;  // a step record came before it
      validated = at;
      sets.push_back({{"name", name}, {"step", at}, {"loss", values["loss"]}});
    } else if (!training.contains("loss")) {
      training["loss"] = {{"step", at}, {"value", values["loss"]}};
    } else if (validated >= 0) {
      break;
    }
  }
  std::reverse(sets.begin(), sets.end());
  if (!sets.empty()) training["validation"] = sets;
  return is_read;
}

// `checkpoint` says nothing where a run has not saved yet, and where none can be read.
Json training_of(const Json& checkpoint, const std::optional<config::Deck>& deck,
                 bool has_saved) {
  Json training = Json::object();
  const bool is_known = checkpoint.contains("step") || !has_saved;
  const auto step = checkpoint.value("step", std::int64_t{0});
  if (is_known) training["step"] = step;
  // Weights of another program were never trained by this deck.
  if (deck && is_known && checkpoint.value("contents", "training") == "training") {
    training["steps"] = deck->run.steps.steps;
    training["finished"] = step >= deck->run.steps.steps;
  }
  if (checkpoint.contains("state")) {
    const Json& state = checkpoint["state"];
    training["samples"] = state["samples"];
    training["tokens"] = state["tokens"];
    if (state.contains("best_step")) {
      training["best_validation"] = {{"step", state["best_step"]},
                                     {"loss", state["best_loss"]}};
    }
  }
  return training;
}

// A vocabulary that the corpus was to say is that of the weights.
config::Deck read_deck(const std::string& text, const Json& checkpoint) {
  config::Deck deck = config::parse_resolved(text);
  if (deck.model.vocab != 0 || !checkpoint.contains("tensors")) return deck;
  const std::string vocabulary = step::vocabulary_tensor(deck);
  for (const Json& tensor : checkpoint["tensors"]) {
    if (tensor["name"] == vocabulary) {
      deck.model.vocab = tensor["shape"][0].get<index_t>();
    }
  }
  return deck;
}

void add_run(Json& json, const io::Path& path) {
  const bool is_run = json["kind"] == "run";
  Json checkpoint = Json::object();
  if (!is_run) checkpoint = json;
  if (json.contains("newest")) checkpoint = json["newest"];
  const io::Path run = run_of(path, json);
  std::string text = checkpoint.value("deck", std::string());
  if (is_run) text = read_if_there(run / kDeckName, json, "deck_problem").value_or(text);
  std::optional<config::Deck> deck;
  if (!text.empty() && !json.contains("deck_problem")) {
    json["deck"] = text;
    try {
      deck = read_deck(text, checkpoint);
      json["model"] = model_of(*deck);
    } catch (const Error& error) {
      json["deck_problem"] = error.what();
    }
  }
  const bool has_saved =
      !is_run || !json["checkpoints"].empty() || !json["problems"].empty();
  json["training"] = training_of(checkpoint, deck, has_saved);
  Json& training = json["training"];
  const auto records = read_if_there(run / kRecordsName, training, "records_problem");
  const auto all = std::numeric_limits<std::int64_t>::max();
  const auto last = is_run ? all : checkpoint.value("step", std::int64_t{0});
  if (records && !add_losses(training, *records, last)) {
    training["records_problem"] =
        fmt::format("no line of '{}' is a record", (run / kRecordsName).string());
  }
}

}  // namespace

std::string inspect(const io::Path& path, ckpt::Depth depth) {
  const std::string found = ckpt::describe(path, depth);
  Json json = io::parse_json<Json>(found);
  if (json["kind"] != "run" && json["kind"] != "checkpoint") return found;
  add_run(json, path);
  return io::json_text(json, 1) + "\n";
}

}  // namespace trireme::check
