// Commands that compute nothing do not begin Kokkos, which in a build for GPUs wants one:
// they work on a cluster's login nodes. Whoever touched Kokkos in them all the same would
// end there, as Kokkos refuses what comes before its beginning.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class WithoutKokkos : public Workplace {
 protected:
  // Kokkos says what it is where it begins.
  static std::string output_of(const std::vector<std::string>& arguments,
                               int threads = 1) {
    const RunResult result = trireme(
        arguments, {.environment = {{"KOKKOS_PRINT_CONFIGURATION", "true"},
                                    {"OMP_NUM_THREADS", fmt::format("{}", threads)}}});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out + result.err;
  }
  static void expect_none(const std::vector<std::string>& arguments) {
    EXPECT_THAT(output_of(arguments), Not(HasSubstr("Kokkos"))) << arguments.front();
  }
};

TEST_F(WithoutKokkos, CorporaAreMadeAndLookedAt) {
  spill(scratch_ / "text.txt", small_text(400));
  const fs::path made = scratch_ / "made.h5";
  expect_none({"tokenize", "--train-bpe", "300", "--out", made, scratch_ / "text.txt"});
  expect_none({"inspect", "--verify", made});
  expect_none({"--help"});
}

TEST_F(WithoutKokkos, CheckpointsAreConvertedAndLookedAt) {
  expect_none({"convert", hugging_face_fixture("gpt2_tiny"), scratch_ / "there"});
  expect_none({"inspect", "--verify", scratch_ / "there"});
  expect_none({"convert", scratch_ / "there", scratch_ / "back"});
}

TEST_F(WithoutKokkos, DecksAreCheckedAndPlanned) {
  for (const char* set : {"precision.compute=fp32", "precision.compute=bf16",
                          "precision.compute=fp16", "run.sample_every=2"}) {
    expect_none({"train", deck(), "--dry-run", "--set", set});
  }
  expect_none({"train", deck(), "--dry-run", "--set", "model.layers=4", "--set",
               "parallel.pipeline=2", "--set", "parallel.tensor=2", "--set",
               "parallel.sequence=true", "--set", "parallel.schedule=zero_bubble",
               "--set", "batch.global=8", "--set", "memory.recompute=full"});
  expect_none({"jobscript", deck(), "--machine", "cpu", "--nodes", "1", "--time", "1h",
               "--out", scratch_ / "job.sbatch"});
  expect_none({"plan", deck(), "--machine",
               source_file("inputs/machines/perlmutter-gpu.yaml"), "--devices", "4"});
  expect_refusal(trireme({"train", deck(), "--dry-run", "--set", "model.heads=5"}),
                 {"model.heads"});
}

TEST_F(WithoutKokkos, WhatComputesHasIt) {
  EXPECT_THAT(output_of({"selftest"}), HasSubstr("Kokkos Version"));
}

// Products of 16 bits have memory for each thread.
TEST_F(WithoutKokkos, ThreadsArePlannedThatARunHas) {
  const fs::path file = scratch_ / "dry.json";
  for (const int threads : {1, 2}) {
    // Widened products keep memory for each thread; others may keep none.
    const std::string type = "precision.compute=bf16", way = "precision.gemm=widened";
    output_of({"train", deck(), "--dry-run", "--set", type, "--set", way, "--json", file},
              threads);
    const json planned = json::parse(slurp(file))["memory"]["stages"][0]["products"];
    fs::remove_all(run_dir());
    output_of({"train", deck(), "--set", type, "--set", way}, threads);
    const json report = json::parse(slurp(run_dir() / "report.json"));
    EXPECT_EQ(report["this_start"]["memory"]["products"]["bytes_planned"], planned)
        << threads;
    EXPECT_GT(planned, threads * 1'000'000);
  }
}

}  // namespace
}  // namespace trireme::test
