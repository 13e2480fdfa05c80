// report/run_report.cpp — see run_report.hpp.
//
// The text is for who comes back to a terminal: how far the run is, how good, and where.
// The file has the same and the tables that were shown before it, so that no program
// reads what is meant for people. A pipeline's part is made apart, since efficiency.json
// has it, too.
#include "report/run_report.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "config/enums.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "model/losses.hpp"

namespace trireme::report {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportSchemaVersion = 1;
constexpr int kNameColumns = 12;

Json json_of(const LossSummary::Loss& loss) {
  return {{"step", loss.step}, {"nats_per_token", loss.loss}};
}

Json json_of(const LossSummary& losses) {
  Json json = Json::object();
  if (!losses.name.empty()) json["name"] = losses.name;
  json["first"] = json_of(losses.first);
  json["last"] = json_of(losses.last);
  json["best"] = json_of(losses.best);
  return json;
}

Json json_of(const EffectiveTime& time) {
  return {{"starts", time.starts},
          {"seconds_counted", time.counted},
          {"seconds_running", time.running},
          {"seconds_between_starts", time.waiting},
          {"share", time.share()}};
}

std::string at_step(const LossSummary::Loss& loss) {
  return fmt::format("{} at step {}", model::text_of_loss(loss.loss, 4),
                     format_grouped(loss.step));
}

std::string line(const std::string& label, const std::vector<std::string>& parts) {
  std::string head = fmt::format("  {:<{}}", label + "  ", kNameColumns);
  int indent = display_width(head);
  if (indent > kScreenColumns / 2) {
    indent = kNameColumns + 2;
    head = fmt::format("  {}\n{:{}}", label, "", indent);
  }
  return head + wrap_list(parts, kScreenColumns, indent) + "\n";
}

}  // namespace

Json pipeline_json(const std::optional<step::PipelineReport>& report) {
  if (!report) return nullptr;
  Json json = {{"stages", report->shape.stages},
               {"chunks", report->shape.chunks},
               {"microbatches", report->shape.microbatches},
               {"schedule", config::name_of(report->schedule)},
               {"step_seconds", report->measured},
               {"step_seconds_simulated", nullptr},
               {"bubble_share", report->measured_bubble()},
               {"bubble_share_simulated", nullptr},
               {"bubble_share_theory", nullptr},
               {"step_seconds_ideal_network", report->ideal},
               {"bubble_share_ideal_network", report->ideal_bubble()}};
  if (const std::optional<double> theory = report->theoretical_bubble()) {
    json["bubble_share_theory"] = *theory;
  }
  if (report->simulated) {
    json["step_seconds_simulated"] = *report->simulated;
    json["bubble_share_simulated"] = report->simulated_bubble();
  }
  return json;
}

std::string_view name_of(StartEnd end) {
  constexpr std::array<std::string_view, 3> kNames = {"finished", "stop_after",
                                                      "stopped_early"};
  return kNames.at(static_cast<std::size_t>(end));
}

void tell_job_script(StartEnd end) {
  const char* file = std::getenv("TRIREME_END_FILE");
  if (file == nullptr || *file == '\0') return;
  io::write_file(file, fmt::format("{}\n", name_of(end)));
}

std::string RunReport::text() const {
  std::string text = fmt::format("Result: step {} of {}, in {}\n", format_grouped(step),
                                 format_grouped(steps), run_directory);
  if (training) {
    text += line("training", {fmt::format("mean loss {} up to step {}",
                                          model::text_of_loss(training->last.loss, 4),
                                          format_grouped(training->last.step))});
  }
  for (const LossSummary& set : validations) {
    std::vector<std::string> parts = {"loss " + at_step(set.last)};
    if (set.first.step != set.last.step && std::isfinite(set.best.loss)) {
      parts.push_back(set.best.step == set.last.step ? "the best"
                                                     : "best " + at_step(set.best));
    }
    text += line(set.name, parts);
  }
  if (corpora.size() > 1) {
    std::vector<std::string> parts;
    for (const CorpusEpochs& corpus : corpora) {
      parts.push_back(fmt::format("{}: {:.3g}", corpus.path, corpus.epochs));
    }
    text += line("epochs", parts);
  }
  return text;
}

std::string RunReport::json(const SectionTable& table) const {
  Json sets = Json::array();
  for (const LossSummary& set : validations) sets.push_back(json_of(set));
  Json trained_on = Json::array();
  for (const CorpusEpochs& corpus : corpora) {
    trained_on.push_back({{"path", corpus.path}, {"epochs", corpus.epochs}});
  }
  Json json = {{"schema_version", kReportSchemaVersion},
               {"start", start},
               {"time", time},
               {"end", name_of(end)},
               {"reason", reason},
               {"run_directory", run_directory},
               {"step", step},
               {"steps", steps},
               {"losses",
                {{"training", training ? json_of(*training) : Json()},
                 {"validation", std::move(sets)}}},
               {"corpora", std::move(trained_on)},
               {"effective_time", json_of(effective)},
               {"this_start", table.json()}};
  json["this_start"]["pipeline"] = pipeline_json(pipeline);
  return io::json_text(json, 2) + "\n";
}

}  // namespace trireme::report
