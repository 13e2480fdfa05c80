// inference/evaluation_progress.cpp — see evaluation_progress.hpp.
//
// A file may be of another evaluation, or of none, and its sums would then be added to
// these in silence: it is read whole and held against what this one is of before any
// sample is looked at. Nothing in it is believed to be of its kind. A file that is
// refused stays as it is, as its owner may have taken hours to fill it.
#include "inference/evaluation_progress.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "comm/on_ranks.hpp"
#include "io/json.hpp"

namespace trireme::inference {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKind = "trireme evaluation progress";

Json json_of(const EvaluationSums& sums) {
  Json losses = Json::array(), counts = Json::array();
  for (const auto& of : sums.objectives) {
    losses.push_back(of.sum);
    counts.push_back(of.count);
  }
  return {{"samples", sums.samples},
          {"losses", std::move(losses)},
          {"counts", std::move(counts)},
          {"bytes", sums.bytes},
          {"seconds", sums.seconds}};
}

bool is_number(const Json& json) {
  return json.is_number() && std::isfinite(json.get<double>());
}
bool is_amount(const Json& json) {
  return is_number(json) && json.get<double>() >= 0.0;
}

// Whether it is what json_of() makes; before the first sample there are no objectives.
bool is_sums(const Json& json, std::size_t objectives) {
  if (!json.is_object() || !json.contains("samples") ||
      !json["samples"].is_number_unsigned() ||
      json["samples"].get<std::uint64_t>() > (std::uint64_t{1} << 62)) {
    return false;
  }
  const std::size_t expected = json["samples"] == 0 ? 0 : objectives;
  const auto are = [&](const char* key, bool (*is)(const Json&)) {
    return json.contains(key) && json[key].is_array() && json[key].size() == expected &&
           std::ranges::all_of(json[key], is);
  };
  return are("losses", is_number) && are("counts", is_amount) &&
         is_amount(json.value("bytes", Json())) &&
         is_amount(json.value("seconds", Json()));
}

EvaluationSums sums_from(const Json& json) {
  EvaluationSums sums = {.samples = json["samples"].get<index_t>(),
                         .bytes = json["bytes"].get<double>(),
                         .seconds = json["seconds"].get<double>()};
  for (std::size_t i = 0; i < json["losses"].size(); ++i) {
    sums.objectives.push_back(
        {json["losses"][i].get<double>(), json["counts"][i].get<double>()});
  }
  return sums;
}

// In what the evaluation that a file is of differs from this one, for people: checksums
// of files are not among it.
std::string differences(const Json& theirs, const Json& ours) {
  if (!theirs.is_object()) return "it does not say of which";
  Json all = ours;
  all.update(theirs);
  std::vector<std::string> parts;
  for (const auto& [key, ignored] : all.items()) {
    const Json there = theirs.value(key, Json()), here = ours.value(key, Json());
    if (there == here) continue;
    if (key == "manifest") {
      parts.emplace_back("it is of another checkpoint");
    } else if (key == "sets") {
      parts.emplace_back("it is of other corpora, or of other parts of them");
    } else {
      parts.push_back(fmt::format("{} is {} there, and {} here", key,
                                  there.is_null() ? "not set" : io::json_excerpt(there),
                                  here.is_null() ? "not set" : io::json_excerpt(here)));
    }
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

ProgressFile::ProgressFile(comm::Communicator& world, const io::Path& path,
                           const std::string& identity, std::size_t sets,
                           std::size_t objectives)
    : path_(path), identity_(identity), objectives_(objectives), sums_(sets) {
  if (path_.empty()) return;
  const std::string text = comm::on_first_rank(world, [&] {
    const bool is_there = std::filesystem::exists(path_);
    const std::string found =
        is_there ? io::read_file(path_, "progress of an evaluation") : "";
    if (is_there) read(found, identity_);
    return found;
  });
  if (world.rank() != 0 && !text.empty()) read(text, identity_);
}

void ProgressFile::read(const std::string& text, const std::string& identity) {
  const Json json = io::parse_json_or_null<Json>(text);
  bool is_ours = json.is_object() && json.value("kind", Json()) == kKind &&
                 json.contains("of") && json.contains("sets") && json["sets"].is_array();
  for (std::size_t i = 0; is_ours && i < json["sets"].size(); ++i) {
    is_ours = is_sums(json["sets"][i], objectives_);
  }
  TRIREME_REQUIRE_INPUT(is_ours,
                        "'{}' is not the progress of an evaluation, and is not written "
                        "over: name another file",
                        path_.string());
  const std::string apart = differences(json["of"], io::parse_json<Json>(identity));
  TRIREME_REQUIRE_INPUT(apart.empty(),
                        "'{}' is the progress of another evaluation: {}. Name another "
                        "file, or remove it",
                        path_.string(), apart);
  TRIREME_REQUIRE_INPUT(json["sets"].size() == sums_.size(),
                        "'{}' is damaged: it holds {} of {}. Remove it", path_.string(),
                        format_plural(std::ssize(json["sets"]), "set"), sums_.size());
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] = sums_from(json["sets"][i]);
}

void ProgressFile::save(std::size_t set, const EvaluationSums& sums, Log& log) {
  sums_.at(set) = sums;
  if (path_.empty()) return;
  Json json = {
      {"kind", kKind}, {"of", io::parse_json<Json>(identity_)}, {"sets", Json::array()}};
  for (const EvaluationSums& one : sums_) json["sets"].push_back(json_of(one));
  try {
    io::write_file(path_, io::json_text(json, 1) + "\n");
  } catch (const Error& error) {
    if (!has_warned_) {
      log.warning("{}. The evaluation goes on, and begins anew if it is killed",
                  error.what());
    }
    has_warned_ = true;
  }
}

}  // namespace trireme::inference
