// Machine files: those of inputs/machines, what is wrong with bad ones, and the page of
// their keys.
#include "plan/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "config/deck_error.hpp"
#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string small_file() {
  return "name: small\n"
         "device:\n"
         "  name: device\n"
         "  memory: 16e9\n"
         "  multiprocessors: 10\n"
         "  nominal_peak: {fp32: 10e12}\n"
         "  gemm_peak: {fp32: 8e12}\n"
         "  gemm_share: 0.9\n"
         "  tiles: [{rows: 64, columns: 64, share: 1}]\n"
         "  wave: 1e-6\n"
         "  launch: 2e-6\n"
         "  bandwidth: 100e9\n"
         "  row_share: 0.8\n"
         "network:\n"
         "  levels:\n"
         "    - {name: node, devices: 4, bandwidth: 50e9, latency: 1e-6}\n"
         "    - {name: fabric, devices: 64, bandwidth: 5e9, latency: 5e-6}\n";
}

std::string with(std::string text, const std::string& old, const std::string& by) {
  const std::size_t at = text.find(old);
  TRIREME_REQUIRE(at != std::string::npos, "no '{}' in the text", old);
  return text.replace(at, old.size(), by);
}

std::string machine_problem(const std::string& text) {
  try {
    parse_machine(text, "small.yaml");
  } catch (const config::DeckErrors& errors) {
    return errors.what();
  }
  return "";
}

TEST(Machine, IsWhatItsFileSays) {
  const Machine machine = parse_machine(small_file(), "small.yaml");
  EXPECT_EQ(machine.name, "small");
  EXPECT_EQ(machine.device.memory, 16e9);
  EXPECT_EQ(machine.device.multiprocessors, 10);
  EXPECT_EQ(machine.device.gemm_peak.of(DType::float32), 8e12);
  EXPECT_EQ(machine.device.gemm_peak.of(DType::bfloat16), 0.0);
  ASSERT_EQ(machine.network.size(), 2u);
  EXPECT_EQ(machine.level_of(3).name, "node");
  EXPECT_EQ(machine.level_of(4).name, "fabric");
  EXPECT_EQ(machine.software.attention, AttentionKind::fused);
  EXPECT_EQ(machine.software.zero3_share, 1.0);
}

TEST(Machine, FilesOfTheRepositoryCanBeRead) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("inputs/machines"))) {
    EXPECT_NO_THROW(load_machine(entry.path().string())) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 4);
}

// 100 GB/s, and 80 GB, in the units that people speak in.
TEST(MachineErrors, NameTheUnitOfAbsurdValues) {
  EXPECT_THAT(machine_problem(with(small_file(), "bandwidth: 100e9", "bandwidth: 100")),
              AllOf(HasSubstr("the machine file has 1 error"),
                    HasSubstr("device.bandwidth: 100   (small.yaml:12)"),
                    HasSubstr("is too small"), HasSubstr("bytes/s")));
  EXPECT_THAT(machine_problem(with(small_file(), "memory: 16e9", "memory: 16")),
              AllOf(HasSubstr("device.memory: 16 "), HasSubstr(" bytes")));
  EXPECT_THAT(machine_problem(with(small_file(), "launch: 2e-6", "launch: 2")),
              AllOf(HasSubstr("device.launch: 2 "), HasSubstr("is too large"),
                    HasSubstr("0 to 0.01 seconds")));
  EXPECT_THAT(machine_problem(with(small_file(), "bandwidth: 5e9", "bandwidth: 5")),
              AllOf(HasSubstr("network.levels"), HasSubstr("bandwidth: 5 is too small"),
                    HasSubstr("bytes/s")));
}

TEST(MachineErrors, AreSaidAllAtOnce) {
  std::string text = with(small_file(), "  launch: 2e-6\n", "");
  text = with(text, "gemm_share: 0.9", "gemm_share: 9");
  text = with(text, "row_share", "rowshare");
  EXPECT_THAT(
      machine_problem(text),
      AllOf(HasSubstr("4 errors"), HasSubstr("device.launch"), HasSubstr("is missing"),
            HasSubstr("0 to 0.01 seconds"), HasSubstr("device.gemm_share: 9"),
            HasSubstr("device.rowshare: 0.8"), HasSubstr("nearest: device.row_share")));
}

TEST(MachineErrors, AreOfWhatNoMachineIs) {
  EXPECT_THAT(machine_problem(with(small_file(), "{fp32: 8e12}", "{fp32: 12e12}")),
              AllOf(HasSubstr("device.gemm_peak.fp32"),
                    HasSubstr("is more than the nominal peak"), HasSubstr("FLOP/s")));
  EXPECT_THAT(machine_problem(with(small_file(), "  gemm_peak: {fp32: 8e12}\n", "")),
              HasSubstr("has no type with a rate"));
  EXPECT_THAT(machine_problem(with(small_file(), "devices: 64", "devices: 4")),
              HasSubstr("levels go from the inside out"));
  EXPECT_THAT(machine_problem(with(small_file(), "rows: 64, ", "")),
              HasSubstr("has an entry without 'rows'"));
  EXPECT_THAT(machine_problem(with(small_file(), "rows: 64", "row: 64")),
              HasSubstr("has a key 'row' that is not known here"));
}

TEST(MachineErrors, AreOfTextsThatAreNoMachine) {
  EXPECT_THAT(machine_problem(""), HasSubstr("is empty"));
  EXPECT_THAT(machine_problem("- 1\n"), HasSubstr("is not a map of keys"));
  EXPECT_THAT(machine_problem(small_file() + "name: other\n"),
              HasSubstr("stands here a second time"));
  EXPECT_THAT(machine_problem(with(small_file(), "name: small", "device: [1")),
              Not(::testing::IsEmpty()));
  EXPECT_THROW(load_machine("no such file.yaml"), InputError);
}

const char* const kKeysIntroduction = R"(# Machine files: every key

<!-- Written by the program from its own table of keys (src/plan/machine.cpp). After a change there:
     TRIREME_UPDATE_DOCS=1 ctest --test-dir build/release -R unit.plan.machine -->

A machine that [`trireme plan`](planner.md) predicts steps on is described by one YAML file;
`inputs/machines/` has commented ones. All numbers are in SI units: FLOP/s, bytes/s, bytes, seconds,
never GB or ms. The whole file is checked, and everything that is wrong is shown at once; keys that
are not listed are errors.

| Key | Unit | Default | Allowed | Meaning |
|---|---|---|---|---|
)";

std::string page_of_machine_keys() {
  std::string page = kKeysIntroduction;
  for (const MachineKeyInfo& key : machine_keys()) {
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.path,
                        key.unit.empty() ? "–" : key.unit,
                        key.default_value.empty() ? "must be given" : key.default_value,
                        key.allowed, key.description);
  }
  return page;
}

TEST(MachinePage, IsWhatTheTableSays) {
  const std::string path = test::source_path("docs/machine_files.md");
  const std::string page = page_of_machine_keys();
  if (std::getenv("TRIREME_UPDATE_DOCS") != nullptr) std::ofstream(path) << page;
  std::ostringstream written;
  written << std::ifstream(path).rdbuf();
  EXPECT_EQ(written.str(), page)
      << path << " is out of date: TRIREME_UPDATE_DOCS=1 ctest -R unit.plan.machine";
}

}  // namespace
}  // namespace trireme::plan
