// inference/evaluation_progress.cpp — see evaluation_progress.hpp.
#include "inference/evaluation_progress.hpp"

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
  return {{"samples", sums.samples},
          {"loss", sums.loss},
          {"tokens", sums.tokens},
          {"bytes", sums.bytes},
          {"seconds", sums.seconds}};
}

// Whether it is what json_of() makes.
bool is_sums(const Json& json) {
  if (!json.is_object() || !json.contains("samples") ||
      !json["samples"].is_number_unsigned() ||
      json["samples"].get<std::uint64_t>() > (std::uint64_t{1} << 62)) {
    return false;
  }
  for (const char* key : {"loss", "tokens", "bytes", "seconds"}) {
    if (!json.contains(key) || !json[key].is_number() ||
        !std::isfinite(json[key].get<double>()) || json[key].get<double>() < 0.0) {
      return false;
    }
  }
  return true;
}

EvaluationSums sums_from(const Json& json) {
  return {.samples = json["samples"].get<index_t>(),
          .loss = json["loss"].get<double>(),
          .tokens = json["tokens"].get<double>(),
          .bytes = json["bytes"].get<double>(),
          .seconds = json["seconds"].get<double>()};
}

}  // namespace

ProgressFile::ProgressFile(comm::Communicator& world, const io::Path& path,
                           const std::string& identity, std::size_t sets)
    : path_(path), identity_(identity), sums_(sets) {
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
    is_ours = is_sums(json["sets"][i]);
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
