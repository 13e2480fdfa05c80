// train --profile: what each kernel took beside its bound, on one rank and on several;
// and what a tool of Kokkos sees of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

class TrainProfile : public Workplace {
 protected:
  fs::path file() const { return run_dir() / "profile.json"; }
  json profile() const { return json::parse(slurp(file())); }
  // The sum of a figure over the kernels of this name and, if given, region.
  static double sum(const json& profile, const std::string& key,
                    const std::string& kernel, const std::string& region = "") {
    double sum = 0.0;
    for (const json& use : profile["kernels"]) {
      if (use["kernel"] != kernel) continue;
      if (region.empty() || use["region"] == region) sum += use[key].get<double>();
    }
    return sum;
  }
  // Products, and those that do what follows them as well.
  static double sum_of_products(const json& profile, const std::string& key,
                                const std::string& region) {
    return sum(profile, key, "kernels::gemm", region) +
           sum(profile, key, "kernels::linear_forward[fused]", region);
  }
  static void expect_whole(const json& profile) {
    double seconds = 0.0, bound = 0.0;
    for (const auto& [name, region] : profile["regions"].items()) {
      SCOPED_TRACE(name);
      EXPECT_GE(region["seconds"].get<double>(), 0.0);
      seconds += region["seconds"].get<double>();
    }
    const double step = profile["step_seconds"];
    EXPECT_NEAR(seconds, step, 1e-9 * step);
    double last = step;
    for (const json& use : profile["kernels"]) {
      bound += use["bound_seconds"].get<double>();
      EXPECT_LE(use["seconds"].get<double>(), last);
      EXPECT_LE(use["seconds"].get<double>(), use["seconds_max"].get<double>() + 1e-12);
      last = use["seconds"];
    }
    EXPECT_NEAR(bound, profile["roofline_seconds"].get<double>(), 1e-9 * step);
  }
};

TEST_F(TrainProfile, OfOneRank) {
  const RunResult result = train({"batch.global=8"}, {"--profile"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Profile of 2 steps (3 to 4) in float32: "));
  EXPECT_THAT(result.out, ContainsRegex("gemm \\(mlp\\) +32 "));
  EXPECT_THAT(result.out, ContainsRegex("linear_forward\\[fused\\] \\(mlp\\) +16 "));
  EXPECT_THAT(result.out, ContainsRegex("Passes over .*: [1-9][0-9.]+\n"));
  const json profile = this->profile();
  expect_whole(profile);
  EXPECT_EQ(profile["schema_version"], 1);
  EXPECT_EQ(profile["start"], 1);
  EXPECT_EQ(profile["first_step"], 3);
  EXPECT_EQ(profile["last_step"], 4);
  EXPECT_EQ(profile["compute_type"], "float32");
  // 4 micro-batches of 2 layers with two products, forward and twice backward.
  EXPECT_EQ(sum_of_products(profile, "calls", "mlp"), 4 * 2 * 2 * 3);
  EXPECT_EQ(sum_of_products(profile, "calls", "attention"), 4 * 2 * 2 * 3);
  EXPECT_EQ(sum_of_products(profile, "flops", "mlp"),
            4 * 2 * 3 * 2 * 2.0 * (2 * 16) * 32 * 128);
  for (const char* region : {"embedding", "norms", "attention", "mlp", "head"}) {
    const json& of = profile["regions"][region];
    EXPECT_GT(of["seconds_backward"].get<double>(), 0.0) << region;
    EXPECT_GT(of["seconds_forward"].get<double>(), 0.0) << region;
    EXPECT_NEAR(
        of["seconds_forward"].get<double>() + of["seconds_backward"].get<double>(),
        of["seconds"].get<double>(), 1e-12)
        << region;
  }
  EXPECT_GT(profile["regions"]["optimizer"]["seconds"].get<double>(), 0.0);
  EXPECT_THAT(profile["passes_per_layer"]["all"].get<double>(),
              AllOf(Gt(10.0), Le(90.0)));
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

// Whatever way products of 16 bits are computed, their time stands with their FLOPs.
TEST_F(TrainProfile, OfSixteenBits) {
  for (const char* products : {"auto", "widened"}) {
    SCOPED_TRACE(products);
    fs::remove_all(run_dir());
    const RunResult result =
        train({"precision.compute=bf16", std::string("precision.gemm=") + products},
              {"--profile"});
    ASSERT_EQ(result.status, 0) << result.err;
    const json profile = this->profile();
    expect_whole(profile);
    EXPECT_EQ(profile["compute_type"], "bfloat16");
    double flops = 0.0;
    for (const json& use : profile["kernels"]) {
      if (use["region"] != "mlp") continue;
      // Nothing stands beside the products that is a part of them.
      EXPECT_TRUE(use["flops"].get<double>() > 0.0 || use["bytes"].get<double>() > 0.0)
          << use;
      flops += use["flops"].get<double>();
    }
    EXPECT_GE(flops, 2 * 3 * 2 * 2.0 * (2 * 16) * 32 * 128);
  }
}

// Calls, FLOPs and bytes do not depend on how many steps are looked at.
TEST_F(TrainProfile, OfSomeSteps) {
  ASSERT_EQ(train({"run.steps=8"}, {"--profile"}).status, 0);
  const json all = profile();
  EXPECT_EQ(all["last_step"], 8);
  fs::remove_all(run_dir());
  const RunResult result = train({"run.steps=8"}, {"--profile=3"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json three = profile();
  EXPECT_EQ(three["first_step"], 3);
  EXPECT_EQ(three["last_step"], 5);
  EXPECT_NEAR(three["passes_per_layer"]["all"].get<double>(),
              all["passes_per_layer"]["all"].get<double>(), 1e-9);
  for (const char* key : {"calls", "flops", "bytes"}) {
    EXPECT_NEAR(sum(three, key, "kernels::gemm"), sum(all, key, "kernels::gemm"), 1e-3);
    EXPECT_NEAR(sum(three, key, "kernels::adamw"), sum(all, key, "kernels::adamw"), 1e-3);
  }
}

// A stage of a pipeline has kernels that the other has not; rows are means.
TEST_F(TrainProfile, OfRanks) {
  const RunResult result = trireme_on_ranks(
      2, train_arguments({"parallel.pipeline=2", "batch.global=8"}, {"--profile"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const json profile = this->profile();
  expect_whole(profile);
  EXPECT_EQ(profile["ranks"], 2);
  EXPECT_THAT(result.out, HasSubstr("a step, mean of 2 ranks"));
  EXPECT_EQ(sum_of_products(profile, "calls", "mlp"), 4 * 2 * 2 * 3 / 2);
  EXPECT_EQ(profile["regions"]["head"]["rank_max"], 1);
  EXPECT_EQ(profile["regions"]["embedding"]["rank_max"], 0);
  EXPECT_GT(profile["regions"]["communication"]["seconds"].get<double>(), 0.0);
}

// It goes on with the trace of the same steps, and changes no number of the run.
TEST_F(TrainProfile, ChangesNothing) {
  ASSERT_EQ(train({"run.steps=5"}).status, 0);
  const auto losses = [&] {
    std::vector<double> found;
    std::istringstream lines(slurp(run_dir() / "train.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const json record = json::parse(line);
      if (record.contains("loss")) found.push_back(record["loss"].get<double>());
    }
    return found;
  };
  const std::vector<double> without = losses();
  EXPECT_FALSE(fs::exists(file()));
  fs::remove_all(run_dir());
  const fs::path trace = scratch_ / "trace.json";
  ASSERT_EQ(train({"run.steps=5"}, {"--profile=2", "--trace", trace}).status, 0);
  EXPECT_EQ(losses(), without);
  EXPECT_TRUE(fs::exists(trace));
  EXPECT_TRUE(fs::exists(file()));
}

TEST_F(TrainProfile, OfARunThatEndsEarlier) {
  const RunResult result = train({"run.steps=2"}, {"--profile"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("the run ended before step 3"));
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(TrainProfile, RefusesBeforeItBegins) {
  for (const char* steps : {"0", "-1", "1.5", "many", "99999999999999999999"}) {
    SCOPED_TRACE(steps);
    const std::string option = std::string("--profile=") + steps;
    expect_refusal(train({}, {option}), {option, "at least 1"});
  }
  expect_refusal(train({}, {"--profile", "--dry-run"}), {"--profile", "--dry-run"});
  expect_refusal(train({}, {"--profile=5", "--dry-run"}), {"--profile", "--dry-run"});
  EXPECT_FALSE(fs::exists(run_dir()));
}

// Kernels, matrix products and regions, one within the other, are seen by any tool.
TEST_F(TrainProfile, KokkosToolsSeeTheSame) {
  const char* const tool = std::getenv("TRIREME_KOKKOS_TOOL");
  ASSERT_NE(tool, nullptr);
  const fs::path seen = scratch_ / "seen.txt";
  const RunResult result =
      trireme(train_arguments({"run.steps=1"}),
              {.environment = {{"KOKKOS_TOOLS_LIBS", tool},
                               {"TRIREME_KOKKOS_TOOL_FILE", seen.string()}}});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string text = slurp(seen);
  EXPECT_THAT(text, HasSubstr("\nregion forward\n"));
  EXPECT_THAT(text, HasSubstr("\n  region embedding\n"));
  EXPECT_THAT(text, HasSubstr("\n  region norms\n"));
  EXPECT_THAT(text, HasSubstr("\n    region attention\n"));
  EXPECT_THAT(text, HasSubstr("\n    region mlp\n      region trireme::kernels::gemm\n"));
  EXPECT_THAT(text, HasSubstr("\n  region head\n"));
  EXPECT_THAT(text, HasSubstr("\n  kernel trireme::kernels::adamw\n"));
  EXPECT_THAT(text, HasSubstr("\nregion backward\n"));
  EXPECT_THAT(text, HasSubstr("\nregion optimizer\n"));
  EXPECT_THAT(text, HasSubstr("\nend whole\n"));
}

}  // namespace
}  // namespace trireme::test
