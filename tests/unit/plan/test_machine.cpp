// Machine files: those of inputs/machines, what is wrong with bad ones, and the page of
// their keys.
#include "plan/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

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
  EXPECT_EQ(machine.network[0].name, "node");
  EXPECT_EQ(machine.network[1].name, "fabric");
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
  EXPECT_GE(files, 7);
}

std::string with_shares(const std::string& shares) {
  return with(small_file(), "gemm_share: 0.9", "gemm_share: " + shares);
}

TEST(Machine, HasNumbersForEachType) {
  const Machine same = parse_machine(small_file(), "small.yaml");
  EXPECT_EQ(same.device.gemm_share.bf16, 0.9);
  EXPECT_EQ(same.device.update_share.fp32, same.device.row_share.fp32);
  const Machine own = parse_machine(with_shares("{fp32: 0.7, bf16: 0.5}"), "small.yaml");
  EXPECT_EQ(own.device.gemm_share.fp32, 0.7);
  EXPECT_EQ(own.device.gemm_share.bf16, 0.5);
  EXPECT_THAT(machine_problem(with_shares("{bf16: 0.5}")),
              AllOf(HasSubstr("device.gemm_share"), HasSubstr("has none of fp32")));
  EXPECT_THAT(machine_problem(with_shares("{fp8: 0.5}")),
              HasSubstr("has a key 'fp8'; a number for all types, or a map"));
  EXPECT_THAT(machine_problem(with_shares("{fp32: 5}")),
              HasSubstr("fp32: 5 is too large"));
}

// All keys of the page, and nothing else; null for what a machine does not have.
TEST(Machine, IsJsonByAllItsKeys) {
  const Machine machine = parse_machine(small_file(), "small.yaml");
  const nlohmann::ordered_json json = machine_json(machine);
  std::vector<std::string> keys, told;
  for (const MachineKeyInfo& key : machine_keys()) keys.push_back(key.path);
  for (const auto& [key, value] : json.items()) told.push_back(key);
  EXPECT_EQ(told, keys);
  EXPECT_EQ(json["device.memory"], 16e9);
  EXPECT_EQ(json["device.multiprocessors"], 10);
  EXPECT_EQ(json["device.gemm_peak"]["fp32"], 8e12);
  EXPECT_TRUE(json["device.gemm_peak"]["bf16"].is_null());
  EXPECT_EQ(json["device.tiles"][0]["columns"], 64);
  EXPECT_EQ(json["network.levels"][1]["name"], "fabric");
  EXPECT_EQ(json["software.attention"], "fused");
  EXPECT_EQ(json["software.stage_messages"], "beside");
  EXPECT_EQ(json["software.step_seconds"], 0.0);
  for (const char* const key :
       {"software.name", "software.gradient_bytes", "storage.write_bandwidth"}) {
    EXPECT_TRUE(json[key].is_null()) << key;
  }
  const nlohmann::ordered_json other = machine_json(test::machine_named("selene"));
  EXPECT_EQ(other["software.name"], "Megatron-LM of 2021");
  EXPECT_EQ(other["software.attention"], "materialised");
  EXPECT_FALSE(other["storage.write_bandwidth"].is_null());
}

class MachineBase : public ::testing::Test {
 protected:
  MachineBase() { std::filesystem::create_directories(place_); }
  ~MachineBase() override { std::filesystem::remove_all(place_); }
  std::string spill(const std::string& name, const std::string& text) const {
    std::ofstream(place_ / name) << text;
    return (place_ / name).string();
  }
  std::string problem_of(const std::string& file) const {
    try {
      load_machine(file);
    } catch (const config::DeckErrors& errors) {
      return errors.what();
    }
    return "";
  }

 private:
  std::filesystem::path place_ =
      std::filesystem::temp_directory_path() / fmt::format("machines-{}", ::getpid());
};

// What a file says goes before what its base says, key by key.
TEST_F(MachineBase, IsWhatAFileDoesNotSay) {
  spill("small.yaml", small_file());
  spill("middle.yaml", "base: small.yaml\ndevice: {memory: 32e9, launch: 5e-6}\n");
  const Machine machine = load_machine(
      spill("top.yaml",
            "base: middle.yaml\nname: top\ndevice: {launch: 3e-6}\nnetwork:\n  levels:\n"
            "    - {name: all, devices: 2, bandwidth: 1e9, latency: 0}\n"));
  EXPECT_EQ(machine.name, "top");
  EXPECT_EQ(machine.device.memory, 32e9);
  EXPECT_EQ(machine.device.launch, 3e-6);
  EXPECT_EQ(machine.device.bandwidth, 100e9);
  EXPECT_EQ(machine.network.size(), 1u);
}

TEST_F(MachineBase, HasItsErrorsAtItsPlace) {
  spill("small.yaml", with(small_file(), "launch: 2e-6", "launch: 2"));
  EXPECT_THAT(
      problem_of(spill("top.yaml", "base: small.yaml\nnames: top\n")),
      AllOf(HasSubstr("2 errors"), HasSubstr("small.yaml:11"), HasSubstr("top.yaml:2")));
  EXPECT_THAT(problem_of(spill("alone.yaml", "base: none.yaml\n")),
              AllOf(HasSubstr("base: none.yaml"), HasSubstr("alone.yaml:1")));
  EXPECT_THAT(problem_of(spill("ring.yaml", "base: ring.yaml\n")),
              HasSubstr("files go round in a ring"));
  EXPECT_THAT(problem_of(spill("list.yaml", "base: [1]\n")), HasSubstr("base: "));
}

// What is assumed of GPUs is the same of all of them; where files share it by a base it
// cannot differ.
TEST(Machine, FilesOfGpusAssumeTheSame) {
  const Machine a = test::machine_named("selene-trireme"),
                b = test::machine_named("dgx2-v100"),
                c = test::machine_named("perlmutter-gpu");
  for (const Machine* other : {&b, &c}) {
    EXPECT_EQ(other->device.row_share.fp16, a.device.row_share.fp16);
    EXPECT_EQ(other->device.attention_share.fp16, a.device.attention_share.fp16);
    EXPECT_EQ(other->device.wave, a.device.wave);
    EXPECT_EQ(other->device.launch, a.device.launch);
    ASSERT_EQ(other->device.tiles.size(), a.device.tiles.size());
    for (std::size_t i = 0; i < a.device.tiles.size(); ++i) {
      EXPECT_EQ(other->device.tiles[i].rows, a.device.tiles[i].rows);
      EXPECT_EQ(other->device.tiles[i].columns, a.device.tiles[i].columns);
      EXPECT_EQ(other->device.tiles[i].share, a.device.tiles[i].share);
    }
    ASSERT_EQ(other->network.size(), a.network.size());
    for (std::size_t i = 0; i < a.network.size(); ++i) {
      EXPECT_EQ(other->network[i].latency, a.network[i].latency);
    }
  }
  // Of nominal rates: products, memory, links inside a node and out of it.
  const auto shares = [](const Machine& m, double memory, double inside, double outside) {
    return std::vector<double>{
        m.device.gemm_peak.fp16 / m.device.nominal_peak.fp16, m.device.bandwidth / memory,
        m.network[0].bandwidth / inside, m.network[1].bandwidth / outside};
  };
  const std::vector<double> of_a = shares(a, 2039e9, 300e9, 25e9),
                            of_b = shares(b, 900e9, 150e9, 6.25e9),
                            of_c = shares(c, 1555e9, 300e9, 25e9);
  const std::vector<double> rule = {0.87, 0.88, 0.77, 0.88};
  for (std::size_t i = 0; i < rule.size(); ++i) {
    EXPECT_NEAR(of_a[i], rule[i], 0.002);
    EXPECT_NEAR(of_b[i], rule[i], 0.002);
    EXPECT_NEAR(of_c[i], rule[i], 0.002);
  }
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
  EXPECT_THAT(
      machine_problem(with(small_file(), "bandwidth: 5e9", "bandwidth: 5")),
      AllOf(HasSubstr("network.levels"), HasSubstr("line 17: bandwidth: 5 is too small"),
            HasSubstr("bytes/s"), HasSubstr("nearest: 1000000)"),
            Not(HasSubstr("network.levels: 1000000"))));
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
              AllOf(HasSubstr("device.gemm_peak: fp32: 12000000000000"),
                    HasSubstr("is more than the nominal peak"), HasSubstr("FLOP/s")));
  EXPECT_THAT(machine_problem(with(small_file(), "  gemm_peak: {fp32: 8e12}\n", "")),
              AllOf(HasSubstr("device.gemm_peak"), HasSubstr("is missing")));
  EXPECT_THAT(machine_problem(with(small_file(), "devices: 64", "devices: 62")),
              HasSubstr("each holds a whole number of those inside it"));
  EXPECT_THAT(machine_problem(with(small_file(), "bandwidth: 50e9", "bandwidth: 50e6")),
              HasSubstr("level 'node' has a bandwidth of 50000000, in bytes/s, the one"));
  EXPECT_THAT(machine_problem(
                  with(small_file(), "memory: 16e9", "memory: 16e9\n  reserved: 20e9")),
              AllOf(HasSubstr("device.reserved: 20000000000"),
                    HasSubstr("is all of device.memory")));
  EXPECT_THAT(machine_problem(with(small_file(), "devices: 64", "devices: 4")),
              HasSubstr("levels go from the inside out"));
  EXPECT_THAT(machine_problem(with(small_file(), "rows: 64, ", "")),
              HasSubstr("has an entry without 'rows'"));
  EXPECT_THAT(machine_problem(with(small_file(), "rows: 64", "row: 64")),
              HasSubstr("has a key 'row' that is not known here"));
}

// One of two numbers of a key would be lost.
TEST(MachineErrors, AreOfKeysThatStandTwice) {
  EXPECT_THAT(
      machine_problem(with_shares("{fp32: 0.9, fp32: 0.1}")),
      AllOf(HasSubstr("device.gemm_share"), HasSubstr("has 'fp32' a second time")));
  EXPECT_THAT(
      machine_problem(with(small_file(), "rows: 64, ", "rows: 64, rows: 128, ")),
      AllOf(HasSubstr("device.tiles"), HasSubstr("line 9: has 'rows' a second time")));
  EXPECT_THAT(machine_problem(with(small_file(), "latency: 1e-6}",
                                   "latency: 1e-6, bandwidth: 60e9}")),
              AllOf(HasSubstr("network.levels"), HasSubstr("has 'bandwidth' a second")));
}

// A map without a type would be a device that multiplies nothing.
TEST(MachineErrors, AreOfEmptyMaps) {
  EXPECT_THAT(
      machine_problem(with(small_file(), "gemm_peak: {fp32: 8e12}", "gemm_peak: {}")),
      AllOf(HasSubstr("1 error"), HasSubstr("device.gemm_peak"),
            HasSubstr("small.yaml:7"), HasSubstr("is an empty map; a number")));
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

// Devices and software stay: only what is between the devices is another one's.
TEST(Machine, MayHaveAnothersNetwork) {
  const Machine own = parse_machine(small_file(), "small.yaml");
  Machine other = own;
  other.name = "large";
  other.device.memory *= 2.0;
  other.software.step_seconds = 1.0;
  other.network = {{"switch", 128, 25e9, 2e-6}};
  EXPECT_EQ(title_of(own), "small");
  const Machine both = with_network(own, other);
  EXPECT_EQ(title_of(both), "small with the network of large");
  ASSERT_EQ(both.network.size(), 1u);
  EXPECT_EQ(both.network.front().name, "switch");
  EXPECT_EQ(both.network.front().devices, 128);
  EXPECT_EQ(both.device.memory, own.device.memory);
  EXPECT_EQ(both.software.step_seconds, own.software.step_seconds);
}

const char* const kKeysIntroduction = R"(# Machine files: every key

<!-- Written by the program from its own table of keys (src/plan/machine.cpp). After a change there:
     TRIREME_UPDATE_DOCS=1 ctest --test-dir build/release -R unit.plan.machine -->

A machine that [`trireme plan`](planner.md) predicts steps on is described by one YAML file;
`inputs/machines/` has commented ones. All numbers are in SI units: FLOP/s, bytes/s, bytes, seconds,
never GB or ms. The whole file is checked, and everything that is wrong is shown at once; keys that
are not listed are errors. With `base: other.yaml`, a file beside it, it has that file's keys where it
does not say them itself; lists are taken whole. A number for each type of products is given once
for all, or as a map: `{fp32: 0.9, bf16: 0.8}`. No key may stand twice, nor may
one in an entry of a list or in such a map.

| Key | Unit | Default | Allowed | Meaning |
|---|---|---|---|---|
)";

const char* const kAMachineOfGpus = R"(
## A machine of GPUs

`trireme plan --measure` makes the file of hosts. One with GPUs is written by hand; begin with the nearest of
`inputs/machines/` as its `base`, and change what is measured otherwise. `trireme_micro` is
[built for the GPU](../perf/README.md#kernels), `all_reduce_perf` is of NVIDIA's nccl-tests.

| Key | Where it comes from |
|---|---|
| `device.memory`, `device.multiprocessors`, `device.nominal_peak` | the data sheet, without sparsity; of the memory what `nvidia-smi` shows as total. `device.reserved`: what it shows as used by a rank that trains, less the memory of the run's own table |
| `device.gemm_peak` | `float matrix product` and `bf16 matrix product` in the head of `trireme_micro` (products of 8192³, which are also the peak in the banner of a run) |
| `device.gemm_share` | `of_gemm` of `trireme_micro --benchmark_filter='linear_.*bf16.*50304' --benchmark_min_time=30`: large products at the clock of a device under load; at most 1 |
| `device.tiles`, `device.wave` | assumed, as in the files there: `--from` corrects what is wrong of both together, by `device.gemm_share` |
| `device.bandwidth` | `memory triad` in the same head |
| `device.row_share` | the mean of `of_triad` of `--benchmark_filter='bf16>/[0-9]{5,}'`, kernels whose rows lie in no cache |
| `device.update_share` | `of_triad` of `--benchmark_filter='adamw.bf16'` |
| `device.attention_share` | `of_gemm` of `--benchmark_filter='attention<bf16, kMatrices, both>/batch:1/sequence:2048/dropout:0'`, divided by `device.gemm_share` |
| `device.launch` | `seconds` of `--benchmark_filter='copy_rows<bf16>/1024'`, 3 MB, less what these take at `device.bandwidth` |
| `network.levels` | in a node `all_reduce_perf -b 8 -e 1G -f 2 -g N`: `bandwidth` is `busbw` of the largest, `latency` is `time` of the smallest, divided by 2 log2 N. Between nodes the same with one rank on each of several; with all ranks of each node `busbw` is so many times the bandwidth of a device |
| `software.data_overlap` | `hidden` of `Gradient` in [the table of messages](runs.md#on-the-terminal) at the end of a run, or 0.5 as assumed there |
| `storage.write_bandwidth` | `save` of `trireme_checkpoints DIRECTORY`, in GB/s of all its ranks: as many as write at a time |

Then train a small model for some hundred steps with `run.probe: true` and plan by it
([`--from`](planner.md#by-a-run-of-ones-own)): a part that took more than a fifth longer or shorter than the file says is a number to
measure again.
)";

std::string page_of_machine_keys() {
  std::string page = kKeysIntroduction;
  for (const MachineKeyInfo& key : machine_keys()) {
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.path,
                        key.unit.empty() ? "–" : key.unit,
                        key.default_value.empty() ? "must be given" : key.default_value,
                        key.allowed, key.description);
  }
  return page + kAMachineOfGpus;
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
