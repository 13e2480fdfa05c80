// inference/evaluation_progress.cpp — see evaluation_progress.hpp.
#include "inference/evaluation_progress.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
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
  TRIREME_REQUIRE_INPUT(
      json["of"] == io::parse_json<Json>(identity) && json["sets"].size() == sums_.size(),
      "'{}' is the progress of another evaluation: of {}, and this one is of {}. Name "
      "another file, or remove it",
      path_.string(), io::json_text(json["of"]), identity);
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
