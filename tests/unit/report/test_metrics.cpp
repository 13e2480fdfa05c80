// The log of a run: exact lines, what any JSON and CSV reader makes of them, resumption
// at every place where a kill can leave the files, and a disk that fills up.
#include "report/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "unit/io/scratch.hpp"

namespace trireme::report {
namespace {

using test::message_of;
using test::slurp;
using test::spill;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 9.0 / static_cast<double>(step + 1);
  record.grad_norm = 0.1;
  record.lr = 3e-4;
  record.samples = 32 * step;
  record.tokens = 8192 * step;
  record.seconds = 0.25;
  record.tokens_per_second = 32768;
  record.model_tflops = 0.171;
  record.hardware_tflops = 0.171;
  record.seconds_median = 0.24;
  record.other_seconds = 1.5;
  record.loss_mean = 3.5;
  record.time = "2025-03-01T12:30:05.250Z";
  return record;
}

ValidationRecord validation_of(std::int64_t step) {
  return {step, "kjv", 4.5, std::exp(4.5), 4096, 1.5, "2025-03-01T12:30:06.000Z"};
}

// Records 1..last, a validation after every second.
void write_run(MetricsWriter& writer, std::int64_t first, std::int64_t last) {
  for (std::int64_t step = first; step <= last; ++step) {
    writer.write(record_of(step));
    if (step % 2 == 0) writer.write(validation_of(step));
  }
}

TEST(Metrics, LinesAreExact) {
  EXPECT_EQ(to_json(record_of(2)),
            R"({"step": 2, "loss": 3, "grad_norm": 0.1, "lr": 3e-04, "samples": 64, )"
            R"("tokens": 16384, "seconds": 0.25, "tokens_per_second": 32768, )"
            R"("model_tflops": 0.171, "hardware_tflops": 0.171, "loss_scale": 1, )"
            R"("skipped": 0, "seconds_median": 0.24, "other_seconds": 1.5, )"
            R"("loss_mean": 3.5, "time": "2025-03-01T12:30:05.250Z"})");
  EXPECT_EQ(to_json(validation_of(2)),
            R"({"validation": {"step": 2, "name": "kjv", "loss": 4.5, )"
            R"("perplexity": 90.01713130052181, "tokens": 4096, "seconds": 1.5}, )"
            R"("time": "2025-03-01T12:30:06.000Z"})");
  EXPECT_EQ(to_csv(record_of(2)),
            "2,3,0.1,3e-04,64,16384,0.25,32768,0.171,0.171,1,0,,,,,,0.24,1.5,3.5,"
            "2025-03-01T12:30:05.250Z");
  EXPECT_EQ(to_csv(validation_of(2)),
            "2,,,,,,,,,,,,kjv,4.5,90.01713130052181,4096,1.5,,,,"
            "2025-03-01T12:30:06.000Z");
}

// Where a model has several objectives, each by its name.
TEST(Metrics, NameObjectives) {
  StepRecord step = record_of(2);
  ValidationRecord validation = validation_of(2);
  step.losses = validation.losses = {{"masked words", 2.5}, {"sentence \"order\"", NAN}};
  const std::string losses =
      R"("losses": {"masked words": 2.5, "sentence \"order\"": null})";
  EXPECT_THAT(to_json(step), HasSubstr("\"loss_mean\": 3.5, " + losses + ", \"time\""));
  EXPECT_THAT(to_json(validation), HasSubstr("\"seconds\": 1.5, " + losses + "}"));
  EXPECT_EQ(to_csv(step), to_csv(record_of(2)));
}

TEST(Metrics, CountEpochsOfABlend) {
  StepRecord step = record_of(2);
  step.losses = {{"masked words", 2.5}};
  step.epochs = {0.5, 1.25};
  EXPECT_THAT(to_json(step),
              HasSubstr(R"("masked words": 2.5}, "epochs": [0.5, 1.25], "time")"));
  EXPECT_EQ(to_csv(step), to_csv(record_of(2)));
  const std::vector<Scalar> points = to_scalars(step);
  EXPECT_EQ(points.back().tag, "train/epochs/1");
  EXPECT_EQ(points.back().value, 1.25);
}

// Each number of a record of train.jsonl, but the step.
TEST(Metrics, CurvesHaveTheNamesOfTheFields) {
  const auto curves = [](const std::vector<Scalar>& scalars) {
    std::map<std::string, double> all;
    for (const Scalar& scalar : scalars) {
      EXPECT_TRUE(all.emplace(scalar.tag, scalar.value).second) << scalar.tag;
    }
    return all;
  };
  StepRecord step = record_of(2);
  ValidationRecord validation = validation_of(2);
  step.losses = validation.losses = {{"masked words", 2.5}};
  const auto train = curves(to_scalars(step));
  const auto object = nlohmann::json::parse(to_json(step));
  std::size_t numbers = 0;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_number() || name == "step") continue;
    ++numbers;
    ASSERT_EQ(train.count("train/" + name), 1u) << name;
    EXPECT_EQ(train.at("train/" + name), value.get<double>()) << name;
  }
  EXPECT_EQ(train.size(), numbers + 1);  // and the objective
  EXPECT_EQ(train.at("train/losses/masked words"), 2.5);
  EXPECT_THAT(curves(to_scalars(validation)),
              ElementsAre(Pair("validation/kjv/loss", 4.5),
                          Pair("validation/kjv/losses/masked words", 2.5),
                          Pair("validation/kjv/perplexity", std::exp(4.5)),
                          Pair("validation/kjv/seconds", 1.5),
                          Pair("validation/kjv/tokens", 4096.0)));
  // The set that a split makes.
  validation.name = "validation";
  EXPECT_EQ(curves(to_scalars(validation)).count("validation/loss"), 1u);
}

// Whoever looks at the file while the run goes on sees each record at once.
TEST(Metrics, GoToTensorBoardOnRequest) {
  const test::Scratch scratch;
  {
    MetricsWriter writer(scratch.path(), std::nullopt);
    write_run(writer, 1, 2);
  }
  const io::Path directory = scratch / kEventDirectory;
  EXPECT_FALSE(std::filesystem::exists(directory));
  MetricsWriter writer(scratch.path(), 2, EventFileName{17.5, "node1", 3});
  const io::Path path = directory / "events.out.tfevents.0000000017.node1.3";
  std::string content =
      framed_record(version_event(17.5)) + framed_record(start_event(17.5, 3));
  EXPECT_EQ(slurp(path), content);
  const auto expect_more = [&](const std::string& record) {  // of whatever time
    const std::string found = slurp(path);
    ASSERT_EQ(found.size(), content.size() + framed_record(record).size());
    constexpr std::size_t kHeader = 12, kTime = 1 + sizeof(double);
    EXPECT_EQ(found.substr(0, content.size()), content);
    EXPECT_EQ(found.substr(content.size() + kHeader + kTime, record.size() - kTime),
              record.substr(kTime));
    content = found;
  };
  writer.write(record_of(3));
  expect_more(scalars_event(0.0, 3, to_scalars(record_of(3))));
  writer.write(validation_of(4));
  expect_more(scalars_event(0.0, 4, to_scalars(validation_of(4))));
  EXPECT_EQ(read_metrics(writer.json_path()).steps.size(), 3u);
  writer.sync();
  writer.close();
  EXPECT_EQ(slurp(path), content);
}

TEST(Metrics, CsvRowsHaveTheColumnsOfTheHeader) {
  const auto commas = [](std::string_view line) {
    return std::count(line.begin(), line.end(), ',');
  };
  EXPECT_EQ(commas(kCsvHeader), commas(to_csv(record_of(1))));
  EXPECT_EQ(commas(kCsvHeader), commas(to_csv(validation_of(1))));
  EXPECT_THAT(std::string(kCsvHeader),
              StartsWith("step,loss,grad_norm,lr,samples,tokens,seconds,"));
}

TEST(Metrics, WhatIsNotFiniteIsStillJson) {
  StepRecord record = record_of(1);
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  record.lr = -std::numeric_limits<double>::infinity();
  const auto object = nlohmann::json::parse(to_json(record));
  EXPECT_TRUE(object.at("loss").is_null());
  EXPECT_TRUE(object.at("grad_norm").is_null());
  EXPECT_THAT(to_csv(record), StartsWith("1,nan,nan,nan,32,"));
}

TEST(Metrics, NamesAreQuoted) {
  ValidationRecord record = validation_of(1);
  record.name = "a \"b\", c\n\xff";
  const auto object = nlohmann::json::parse(to_json(record));
  EXPECT_EQ(object.at("validation").at("name"), "a \"b\", c\n\xef\xbf\xbd");
  EXPECT_THAT(to_csv(record), HasSubstr(",\"a \"\"b\"\", c\n\xff\",4.5,"));
}

TEST(Metrics, EachRecordIsThereAtOnceAndReadsBackExactly) {
  const test::Scratch scratch;
  MetricsWriter writer(scratch.path(), std::nullopt);
  EXPECT_EQ(slurp(scratch / "train.csv"), std::string(kCsvHeader) + "\n");
  StepRecord record = record_of(1);
  record.loss = 1.0 / 3.0;
  record.lr = 5e-324;
  record.tokens = std::int64_t{1} << 60;
  writer.write(record);
  EXPECT_EQ(slurp(scratch / "train.jsonl"), to_json(record) + "\n");
  EXPECT_THAT(slurp(scratch / "train.csv"), EndsWith(to_csv(record) + "\n"));
  writer.write(validation_of(1));
  const MetricsLog log = read_metrics(writer.json_path());
  ASSERT_EQ(log.steps.size(), 1u);
  ASSERT_EQ(log.validations.size(), 1u);
  EXPECT_EQ(log.steps[0].loss, record.loss);
  EXPECT_EQ(log.steps[0].lr, record.lr);
  EXPECT_EQ(log.steps[0].tokens, record.tokens);
  EXPECT_EQ(log.validations[0].name, "kjv");
  EXPECT_EQ(log.unreadable_lines, 0);
}

TEST(Metrics, ResumedRunHasEachStepOnce) {
  const test::Scratch once, twice;
  {
    MetricsWriter writer(once.path(), std::nullopt);
    write_run(writer, 1, 9);
  }
  {
    MetricsWriter writer(twice.path(), std::nullopt);
    write_run(writer, 1, 7);  // killed after 7; the last checkpoint is of step 4
  }
  MetricsWriter writer(twice.path(), 4);
  EXPECT_EQ(writer.cut().kept, 6);
  EXPECT_EQ(writer.cut().cut, 4);
  EXPECT_EQ(writer.cut().unreadable, 0);
  write_run(writer, 5, 9);
  for (const char* name : {"train.jsonl", "train.csv"}) {
    EXPECT_EQ(slurp(twice / name), slurp(once / name));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(twice.path()), {}), 2);
}

// Lines as version 0.1.0 wrote them. They stay as they are; train.csv has one header.
TEST(Metrics, RunsOfOlderProgramsGoOn) {
  const test::Scratch scratch;
  const std::string old =
      R"({"step": 2, "loss": 3, "grad_norm": 0.1, "lr": 3e-04, "samples": 64, )"
      R"("tokens": 16384, "seconds": 0.25, "tokens_per_second": 32768, )"
      R"("model_tflops": 0.171, "hardware_tflops": 0.171, "loss_scale": 1, )"
      R"("skipped": 0})"
      "\n"
      R"({"validation": {"step": 2, "name": "kjv", "loss": 4.5, "perplexity": 90, )"
      R"("tokens": 4096, "seconds": 1.5}})"
      "\n";
  spill(scratch / "train.jsonl", old);
  spill(scratch / "train.csv", "step,loss\n2,3\n");  // whatever it was
  MetricsWriter writer(scratch.path(), 2);
  EXPECT_EQ(writer.cut().kept, 2);
  writer.write(record_of(4));
  EXPECT_EQ(slurp(scratch / "train.jsonl"), old + to_json(record_of(4)) + "\n");
  EXPECT_EQ(slurp(scratch / "train.csv"),
            std::string(kCsvHeader) +
                "\n2,3,0.1,3e-04,64,16384,0.25,32768,0.171,0.171,1,0,,,,,,,,,\n"
                "2,,,,,,,,,,,,kjv,4.5,90,4096,1.5,,,,\n" +
                to_csv(record_of(4)) + "\n");
  const MetricsLog log = read_metrics(writer.json_path());
  ASSERT_EQ(log.steps.size(), 2u);
  EXPECT_EQ(log.steps[0].time, "");
  EXPECT_TRUE(std::isnan(log.steps[0].seconds_median));
  EXPECT_EQ(log.steps[1].time, record_of(4).time);
  EXPECT_EQ(log.steps[1].seconds_median, 0.24);
  EXPECT_EQ(log.unreadable_lines, 0);
}

// Over all starts; what was cut does not count.
TEST(Metrics, LastAndBestValidationOfTheRun) {
  const test::Scratch scratch;
  const auto validate = [](MetricsWriter& writer, std::int64_t step, const char* name,
                           double loss) {
    ValidationRecord record = validation_of(step);
    record.name = name;
    record.loss = loss;
    writer.write(record);
  };
  {
    MetricsWriter writer(scratch.path(), std::nullopt);
    EXPECT_TRUE(writer.validations().empty());
    EXPECT_FALSE(writer.training());
    StepRecord first = record_of(1);
    first.loss_mean = kNotKnown;  // of an older program
    writer.write(first);
    writer.write(record_of(2));
    validate(writer, 2, "held out", 3.0);
    validate(writer, 2, "other", 9.0);
    validate(writer, 4, "held out", 2.5);
    validate(writer, 4, "other", std::numeric_limits<double>::quiet_NaN());
    validate(writer, 6, "held out", 1.0);  // beyond what was saved
  }
  MetricsWriter writer(scratch.path(), 5);
  ASSERT_EQ(writer.validations().size(), 2u);
  EXPECT_EQ(writer.validations()[0].best.loss, 2.5);
  EXPECT_EQ(writer.training()->first.step, 1);
  EXPECT_EQ(writer.training()->first.loss, 4.5);
  EXPECT_EQ(writer.training()->last.step, 2);
  EXPECT_EQ(writer.training()->best.loss, 3.5);
  validate(writer, 6, "held out", 2.75);
  const LossSummary& set = writer.validations()[0];
  EXPECT_EQ(set.name, "held out");
  EXPECT_EQ(set.first.loss, 3.0);
  EXPECT_EQ(set.last.step, 6);
  EXPECT_EQ(set.last.loss, 2.75);
  EXPECT_EQ(set.best.step, 4);
  EXPECT_EQ(set.best.loss, 2.5);
  EXPECT_EQ(writer.validations()[1].best.loss, 9.0);
  EXPECT_TRUE(std::isnan(writer.validations()[1].last.loss));
}

TEST(Metrics, StartingAfreshKeepsNothing) {
  const test::Scratch scratch;
  {
    MetricsWriter writer(scratch.path(), std::nullopt);
    writer.write(validation_of(0));
    write_run(writer, 1, 3);
  }
  const MetricsWriter writer(scratch.path(), std::nullopt);
  EXPECT_EQ(writer.cut().cut, 5);
  EXPECT_EQ(slurp(scratch / "train.jsonl"), "");
}

// The files are cut off at every byte: a resumed run must come to the same files.
TEST(Metrics, TornAnywhereIsRepaired) {
  const test::Scratch whole, torn;
  {
    MetricsWriter writer(whole.path(), std::nullopt);
    write_run(writer, 1, 3);
  }
  const std::string json = slurp(whole / "train.jsonl");
  const std::string csv = slurp(whole / "train.csv");
  for (std::size_t size = 0; size <= json.size(); size += 23) {
    spill(torn / "train.jsonl", json.substr(0, size));
    spill(torn / "train.csv", csv.substr(0, csv.size() * size / json.size()));
    const auto complete = std::count(json.begin(), json.begin() + size, '\n');
    const std::int64_t restored = complete >= 3 ? 2 : complete >= 1 ? 1 : 0;
    {
      MetricsWriter writer(torn.path(), restored);
      EXPECT_LE(writer.cut().unreadable, 1);
      if (restored == 0) write_run(writer, 1, 3);
      if (restored == 1) write_run(writer, 2, 3);
      if (restored == 2) write_run(writer, 3, 3);
    }
    ASSERT_EQ(slurp(torn / "train.jsonl"), json) << "cut off at byte " << size;
    ASSERT_EQ(slurp(torn / "train.csv"), csv) << "cut off at byte " << size;
  }
}

TEST(Metrics, ALineWithoutItsEndIsTornEvenIfItParses) {
  const test::Scratch scratch;
  spill(scratch / "train.jsonl", to_json(record_of(1)) + "\n" + to_json(record_of(2)));
  MetricsWriter writer(scratch.path(), 2);
  EXPECT_EQ(writer.cut().kept, 1);
  EXPECT_EQ(writer.cut().unreadable, 1);
  EXPECT_EQ(slurp(scratch / "train.jsonl"), to_json(record_of(1)) + "\n");
}

TEST(Metrics, DamagedLinesAndDoubleStepsGo) {
  const test::Scratch scratch;
  const std::string zeros(100, '\0');  // what a power cut leaves on some file systems
  spill(scratch / "train.jsonl",
        to_json(record_of(1)) + "\n" + zeros + "\n[1, 2]\n{\"step\": \"2\"}\n\n" +
            to_json(record_of(2)) + "\n" + to_json(record_of(1)) + "\n" +
            to_json(record_of(2)) + "\n" + to_json(validation_of(2)) + "\n");
  MetricsWriter writer(scratch.path(), 5);
  EXPECT_EQ(writer.cut().kept, 3);
  EXPECT_EQ(writer.cut().cut, 2);
  EXPECT_EQ(writer.cut().unreadable, 4);
  EXPECT_EQ(slurp(scratch / "train.jsonl"), to_json(record_of(1)) + "\n" +
                                                to_json(record_of(2)) + "\n" +
                                                to_json(validation_of(2)) + "\n");
}

TEST(Metrics, NullsSurviveAResumption) {
  const test::Scratch scratch;
  StepRecord record = record_of(1);
  record.grad_norm = std::numeric_limits<double>::infinity();
  std::string before;
  {
    MetricsWriter writer(scratch.path(), std::nullopt);
    writer.write(record);
    before = slurp(scratch / "train.csv");
  }
  const MetricsWriter writer(scratch.path(), 1);
  EXPECT_EQ(slurp(scratch / "train.csv"), before);
  EXPECT_TRUE(std::isnan(read_metrics(writer.json_path()).steps.at(0).grad_norm));
}

TEST(Metrics, FullDiskIsAnErrorThatNamesTheFile) {
  test::on_full_disks(64 << 10, [](const test::FullDisk& disk) {
    MetricsWriter writer(disk.path(), std::nullopt);
    const std::string message = message_of<Error>([&] {
      for (std::int64_t step = 1; step < 100000; ++step) writer.write(record_of(step));
    });
    EXPECT_THAT(message, AllOf(HasSubstr((disk / "train.").string()),
                               HasSubstr(disk.cause()), HasSubstr(disk.advice())));
    // Nothing torn stays behind, and a start that cannot cut the log leaves it whole.
    const std::string before = slurp(disk / "train.jsonl");
    EXPECT_THAT(before, EndsWith("}\n"));
    EXPECT_EQ(read_metrics(writer.json_path()).unreadable_lines, 0);
    disk.fill();
    EXPECT_THAT(message_of<Error>([&] { MetricsWriter(disk.path(), 30); }),
                HasSubstr(disk.cause()));
    EXPECT_EQ(slurp(disk / "train.jsonl"), before);
  });
}

TEST(Metrics, UnwritableAndClosed) {
  const test::Scratch scratch;
  spill(scratch / "file", "");
  EXPECT_THAT(message_of<Error>([&] { MetricsWriter(scratch / "file", std::nullopt); }),
              HasSubstr("train.jsonl"));
  MetricsWriter writer(scratch.path(), std::nullopt);
  writer.sync();
  writer.close();
  writer.close();
  EXPECT_THAT(message_of<Error>([&] { writer.write(record_of(1)); }),
              HasSubstr("has been closed"));
}

}  // namespace
}  // namespace trireme::report
