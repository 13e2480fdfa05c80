// report/metrics.cpp — see metrics.hpp.
//
// The fields of a record stand in one list, visit_step() and the like, which one visitor
// walks to write JSON, another to write CSV, a third to make points of curves and a
// fourth to read JSON back: a new field is a line of that list and a column of
// kCsvHeader. Steps and validations share the rows of train.csv, so that a validation is
// a row whose columns of steps are empty.
#include "report/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/wall_time.hpp"
#include "io/json.hpp"

namespace trireme::report {

namespace {

using ParsedJson = nlohmann::json;

// The fields of a record, in the order of the files. One list serves writing to both
// files and reading back.
template <class Record, class Visit>
void visit_step(Record& record, Visit&& visit) {
  visit("step", record.step);
  visit("loss", record.loss);
  visit("grad_norm", record.grad_norm);
  visit("lr", record.lr);
  visit("samples", record.samples);
  visit("tokens", record.tokens);
  visit("seconds", record.seconds);
  visit("tokens_per_second", record.tokens_per_second);
  visit("model_tflops", record.model_tflops);
  visit("hardware_tflops", record.hardware_tflops);
  visit("loss_scale", record.loss_scale);
  visit("skipped", record.skipped);
}

// What was added since; the time is written last, behind a validation, too.
template <class Record, class Visit>
void visit_step_additions(Record& record, Visit&& visit) {
  visit("seconds_median", record.seconds_median);
  visit("other_seconds", record.other_seconds);
  visit("loss_mean", record.loss_mean);
}

template <class Record, class Visit>
void visit_validation(Record& record, Visit&& visit) {
  visit("step", record.step);
  visit("name", record.name);
  visit("loss", record.loss);
  visit("perplexity", record.perplexity);
  visit("tokens", record.tokens);
  visit("seconds", record.seconds);
}

constexpr int kStepColumns = 12;
constexpr int kValidationColumns = 5;
constexpr int kStepAdditions = 3;

std::string json_text(std::int64_t value) {
  return std::to_string(value);
}
std::string json_text(double value) {
  return std::isfinite(value) ? format_exact(value) : "null";
}
std::string json_text(const std::string& value) {
  return io::json_text(ParsedJson(value));
}

std::string csv_text(std::int64_t value) {
  return std::to_string(value);
}
std::string csv_text(double value) {
  return std::isfinite(value) ? format_exact(value) : "nan";
}
std::string csv_text(const std::string& value) {  // RFC 4180
  if (value.find_first_of(",\"\r\n") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

struct JsonLine {
  std::string text = "{";
  template <class T>
  void operator()(std::string_view key, const T& value) {
    if (text.size() > 1) text += ", ";
    text += fmt::format("{}: {}", json_text(std::string(key)), json_text(value));
  }
  // The loss of each objective, where there are several.
  void operator()(const model::NamedLosses& losses) {
    if (losses.empty()) return;
    JsonLine inner;
    for (const auto& [name, mean] : losses) inner(name, mean);
    text += fmt::format(", \"losses\": {}}}", inner.text);
  }
  // Of each corpus, where there are several.
  void operator()(const std::vector<double>& epochs) {
    if (epochs.empty()) return;
    std::string list;
    for (const double count : epochs) {
      list += (list.empty() ? "" : ", ") + json_text(count);
    }
    text += fmt::format(", \"epochs\": [{}]", list);
  }
};

// Empty in place of what an older record does not have.
std::string csv_addition(double value) {
  return std::isnan(value) ? std::string() : csv_text(value);
}

// The step is where a point stands, and a set's name is part of the tags.
struct CurvePoints {
  std::string group;  // of tags, with its slash
  std::vector<Scalar> scalars = {};
  void operator()(const std::string& key, double value) {
    scalars.push_back({group + key, value});
  }
  void operator()(const std::string& key, std::int64_t value) {
    if (key != "step") (*this)(key, static_cast<double>(value));
  }
  void operator()(const std::string&, const std::string&) {}
  void operator()(const model::NamedLosses& losses) {
    for (const auto& [name, mean] : losses) (*this)("losses/" + name, mean);
  }
  void operator()(const std::vector<double>& epochs) {
    for (std::size_t i = 0; i < epochs.size(); ++i) {
      (*this)("epochs/" + std::to_string(i), epochs[i]);
    }
  }
};

struct JsonFields {
  const ParsedJson& object;
  void operator()(const char* key, std::int64_t& value) const {
    value = io::json_value<std::int64_t>(object, key);
  }
  void operator()(const char* key, std::string& value) const {
    value = io::json_value<std::string>(object, key);
  }
  void operator()(const char* key, double& value) const {
    const auto field = object.find(key);
    const bool is_null = field != object.end() && field->is_null();
    value = is_null ? std::numeric_limits<double>::quiet_NaN()
                    : io::json_value<double>(object, key);
  }
};

// Reads the fields that records of older versions lack; they keep their values there.
struct JsonAdditions {
  const ParsedJson& object;
  template <class T>
  void operator()(const char* key, T& value) const {
    if (object.contains(key)) JsonFields{object}(key, value);
  }
};

// Calls step(record, line) or validation(record, line) for each line; returns how many
// were neither.
template <class OnStep, class OnValidation>
std::int64_t read_lines(std::string_view text, OnStep&& on_step,
                        OnValidation&& on_validation) {
  std::int64_t unreadable = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const bool torn = end == std::string_view::npos;
    text.remove_prefix(torn ? text.size() : end + 1);
    try {
      const ParsedJson object = io::parse_json<ParsedJson>(line);
      TRIREME_REQUIRE(!torn, "the line has no end");
      if (object.contains("validation")) {
        ValidationRecord record;
        visit_validation(record, JsonFields{object["validation"]});
        JsonAdditions{object}("time", record.time);
        on_validation(record, line);
      } else {
        StepRecord record;
        visit_step(record, JsonFields{object});
        visit_step_additions(record, JsonAdditions{object});
        JsonAdditions{object}("time", record.time);
        on_step(record, line);
      }
    } catch (const Error&) {
      ++unreadable;
    }
  }
  return unreadable;
}

}  // namespace

std::string to_json(const StepRecord& record) {
  JsonLine line;
  visit_step(record, line);
  visit_step_additions(record, line);
  line(record.losses);
  line(record.epochs);
  line("time", record.time);
  return line.text + '}';
}

std::string to_json(const ValidationRecord& record) {
  JsonLine line;
  visit_validation(record, line);
  line(record.losses);
  return fmt::format("{{\"validation\": {}}}, \"time\": {}}}", line.text,
                     json_text(record.time));
}

std::string to_csv(const StepRecord& record) {
  std::string line;
  visit_step(record, [&](const char*, const auto& value) {
    if (!line.empty()) line += ',';
    line += csv_text(value);
  });
  line += std::string(kValidationColumns, ',');
  visit_step_additions(
      record, [&](const char*, double value) { line += ',' + csv_addition(value); });
  return line + ',' + csv_text(record.time);
}

std::string to_csv(const ValidationRecord& record) {
  std::string line;
  visit_validation(record, [&](const char*, const auto& value) {
    if (line.empty()) {  // the step; then the columns of a step's record, empty
      line = csv_text(value) + std::string(kStepColumns - 1, ',');
    } else {
      line += ',' + csv_text(value);
    }
  });
  return line + std::string(kStepAdditions, ',') + ',' + csv_text(record.time);
}

std::vector<Scalar> to_scalars(const StepRecord& record) {
  CurvePoints points{"train/"};
  visit_step(record, points);
  visit_step_additions(record, points);
  points(record.losses);
  points(record.epochs);
  return points.scalars;
}

std::vector<Scalar> to_scalars(const ValidationRecord& record) {
  const std::string set = record.name == "validation" ? "" : record.name + "/";
  CurvePoints points{"validation/" + set};
  visit_validation(record, points);
  points(record.losses);
  return points.scalars;
}

MetricsLog read_metrics(const io::Path& path) {
  MetricsLog log;
  log.unreadable_lines = read_lines(
      io::read_file(path, "training log"),
      [&](const StepRecord& record, std::string_view) { log.steps.push_back(record); },
      [&](const ValidationRecord& record, std::string_view) {
        log.validations.push_back(record);
      });
  return log;
}

MetricsWriter::MetricsWriter(const io::Path& directory,
                             std::optional<std::int64_t> restored_step,
                             const std::optional<EventFileName>& events) {
  const io::Path json_path = directory / "train.jsonl";
  const io::Path csv_path = directory / "train.csv";
  std::string json, csv;
  csv.append(kCsvHeader) += '\n';
  std::error_code ignored;  // what cannot be seen cannot be written either: said below
  if (std::filesystem::exists(json_path, ignored)) {
    std::int64_t last_step = -1;
    const auto keep = [&](const auto& record, std::string_view line,
                          bool stands_already) {
      if (!restored_step || record.step > *restored_step || stands_already) {
        ++cut_.cut;
        return;
      }
      ++cut_.kept;
      note(record);
      json.append(line) += '\n';
      csv += to_csv(record) + '\n';
    };
    cut_.unreadable = read_lines(
        io::read_file(json_path, "training log"),
        [&](const StepRecord& record, std::string_view line) {
          keep(record, line, record.step <= last_step);
          last_step = std::max(last_step, record.step);
        },
        [&](const ValidationRecord& record, std::string_view line) {
          keep(record, line, false);
        });
  }
  io::write_file(json_path, json);
  io::write_file(csv_path, csv);
  json_.emplace(json_path, io::FileWriter::Mode::existing);
  csv_.emplace(csv_path, io::FileWriter::Mode::existing);
  if (!events) return;
  // What is beyond the restored step is no more, in TensorBoard, too.
  events_.emplace(directory / kEventDirectory, *events, restored_step.value_or(-1) + 1);
}

void LossSummary::add(Loss found) {
  last = found;
  if (found.loss < best.loss || std::isnan(best.loss)) best = found;
}

void MetricsWriter::note(const StepRecord& record) {
  const bool is_known = !std::isnan(record.loss_mean);
  const LossSummary::Loss found{record.step, is_known ? record.loss_mean : record.loss};
  if (training_) {
    training_->add(found);
  } else {
    training_.emplace(found);
  }
}

void MetricsWriter::note(const ValidationRecord& record) {
  const auto set = std::ranges::find(validations_, record.name, &LossSummary::name);
  const LossSummary::Loss found{record.step, record.loss};
  if (set == validations_.end()) {
    validations_.emplace_back(found, record.name);
  } else {
    set->add(found);
  }
}

template <class Record>
void MetricsWriter::append(const Record& record) {
  json_->append(to_json(record) + '\n');
  csv_->append(to_csv(record) + '\n');
  if (events_) events_->write(wall_seconds(), record.step, to_scalars(record));
  note(record);
}

void MetricsWriter::write(const StepRecord& record) {
  append(record);
}

void MetricsWriter::write(const ValidationRecord& record) {
  append(record);
}

void MetricsWriter::sync() {
  json_->sync();
  csv_->sync();
  if (events_) events_->sync();
}

void MetricsWriter::close() {
  json_->close();
  csv_->close();
  if (events_) events_->close();
}

}  // namespace trireme::report
