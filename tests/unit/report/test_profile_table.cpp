// The profile of one rank and of several: bounds, regions that add up to the step, passes
// over the rows, and the same as JSON.
#include "report/profile_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "report/step_profile.hpp"

namespace trireme::report {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Every stretch takes two seconds.
class EvenClock : public KernelClock {
 public:
  void begin(std::size_t) override {}
  void end(std::size_t) override {}
  double seconds(std::size_t) override { return 2.0; }
};

void call(KernelProfile& profile, const Kernel& kernel, Section section,
          Component component) {
  profile.begin(kernel, section, component);
  profile.end();
}

// Two steps of a layer on a machine of 10 FLOP/s and 100 bytes/s; (rows, h) has 50 bytes.
RankProfile example_rank() {
  KernelProfile profile(std::make_unique<EvenClock>());
  const Kernel gemm("trireme::kernels::gemm", {.flops = 10, .bytes = 50});
  const Kernel large("trireme::kernels::gemm", {.flops = 1, .bytes = 300});
  const Kernel scores("trireme::kernels::attention_forward",
                      {.flops = 20, .masked_flops = 10, .bytes = 40});
  for (int step = 0; step < 2; ++step) {
    profile.note_visit(Section::forward, Component::norms);
    call(profile, {"trireme::kernels::layer_norm_forward", {.bytes = 150}},
         Section::forward, Component::norms);
    call(profile, gemm, Section::forward, Component::mlp);
    call(profile, large, Section::forward, Component::mlp);
    call(profile, scores, Section::forward, Component::attention);
    call(profile, gemm, Section::backward, Component::mlp);
    call(profile, {"trireme::kernels::attention_backward[delta]", {.bytes = 999}},
         Section::backward, Component::attention);
    call(profile, {"trireme::kernels::dropout_backward", {.bytes = 100}},
         Section::backward, Component::norms);
    call(profile, {"trireme::kernels::adamw", {.bytes = 700}}, Section::optimizer,
         Component::none);
    call(profile, {"trireme::kernels::add", {.bytes = 70}}, Section::communication,
         Component::mlp);
    call(profile, "trireme::kernels::fill", Section::forward, Component::none);
  }
  profile.resolve();
  RankProfile rank{.steps = 2,
                   .seconds = 60.0,
                   .communication = 10.0,
                   .data = 1.0,
                   .machine = {.flops = 10.0, .bytes = 100.0},
                   .layers = 0,
                   .row_bytes = 50.0,
                   .kernels = {}};
  rank.take(profile);
  return rank;
}

const KernelUse& use_of(const ProfileTable& table, const std::string& kernel,
                        const std::string& section) {
  for (const KernelUse& use : table.kernels()) {
    if (use.kernel == kernel && use.section == section) return use;
  }
  throw Error("no kernel " + kernel);
}

const ProfileTable::Region& region_of(const ProfileTable& table,
                                      const std::string& name) {
  for (const auto& region : table.regions()) {
    if (region.name == name) return region;
  }
  throw Error("no region " + name);
}

TEST(ProfileTable, OfOneRank) {
  const ProfileTable table({.first_step = 3, .last_step = 4}, {example_rank()});
  EXPECT_EQ(table.step_seconds(), 30.0);
  // Products of one label are each set against their own bound: 1 s, and 3 s of memory.
  const KernelUse& gemm = use_of(table, "kernels::gemm", "forward");
  EXPECT_EQ(gemm.calls, 2.0);
  EXPECT_EQ(gemm.flops, 11.0);
  EXPECT_EQ(gemm.bytes, 350.0);
  EXPECT_EQ(gemm.seconds, 4.0);
  EXPECT_EQ(gemm.bound, 1.0 + 3.0);
  EXPECT_EQ(table.kernels().front().kernel, "kernels::gemm");  // the most time
  // What a mask hides is not necessary.
  EXPECT_EQ(use_of(table, "kernels::attention_forward", "forward").bound, 1.0);
  EXPECT_NEAR(table.roofline(), 1.5 + 1.0 + 3.0 + 1.0 + 1.0 + 9.99 + 1.0 + 7.0 + 0.7,
              1e-12);
}

TEST(ProfileTable, RegionsAddUpToTheStep) {
  const ProfileTable table({}, {example_rank()});
  double sum = 0.0;
  for (const auto& region : table.regions()) sum += region.seconds;
  EXPECT_NEAR(sum, 30.0, 1e-12);
  EXPECT_EQ(region_of(table, "mlp").forward, 4.0);
  EXPECT_EQ(region_of(table, "mlp").backward, 2.0);
  EXPECT_EQ(region_of(table, "norms").seconds, 4.0);
  EXPECT_EQ(region_of(table, "optimizer").seconds, 2.0);
  // The wait, with the kernel in it; that is part of no layer.
  EXPECT_EQ(region_of(table, "communication").seconds, 5.0);
  EXPECT_EQ(region_of(table, "data").seconds, 0.5);
  EXPECT_EQ(region_of(table, "embedding").seconds, 0.0);
  // The rest of the step, of which a kernel in no region is part.
  EXPECT_NEAR(region_of(table, "other").seconds, 30 - 6 - 4 - 4 - 2 - 5 - 0.5, 1e-12);
}

// 150 bytes forward and 100 backward are 3 and 2 times (rows, h): no product, no part of
// attention and nothing of the optimizer counts.
TEST(ProfileTable, PassesOverRows) {
  const ProfileTable table({}, {example_rank()});
  EXPECT_NEAR(table.passes_per_layer(), 5.0, 1e-12);
}

TEST(ProfileTable, OfRanksIsTheMean) {
  RankProfile second = example_rank();
  second.seconds = 80.0;
  second.layers = 0;  // a stage with the embedding alone
  second.kernels = {{.kernel = "kernels::embedding_forward",
                     .region = "embedding",
                     .section = "forward",
                     .calls = 2,
                     .bytes = 400,
                     .seconds = 20.0,
                     .bound = 4.0}};
  const ProfileTable table({}, {example_rank(), second});
  EXPECT_EQ(table.step_seconds(), 35.0);
  const KernelUse& embedding = use_of(table, "kernels::embedding_forward", "forward");
  EXPECT_EQ(embedding.seconds, 5.0);
  EXPECT_EQ(embedding.most_seconds, 10.0);
  EXPECT_EQ(embedding.most_rank, 1);
  const KernelUse& gemm = use_of(table, "kernels::gemm", "forward");
  EXPECT_EQ(gemm.seconds, 2.0);
  EXPECT_EQ(gemm.most_seconds, 4.0);
  EXPECT_EQ(gemm.most_rank, 0);
  EXPECT_EQ(region_of(table, "embedding").most_rank, 1);
  EXPECT_NEAR(table.passes_per_layer(), 5.0, 1e-12);
  EXPECT_THAT(table.text(), HasSubstr("mean of 2 ranks"));
  EXPECT_THAT(table.text(), HasSubstr("embedding     | 10000.00 |        1 |  5000.00"));
}

TEST(ProfileTable, TextKeepsTheWidth) {
  for (const auto& ranks :
       {std::vector{example_rank()}, std::vector{example_rank(), example_rank()}}) {
    const ProfileTable table({.first_step = 3, .last_step = 4}, ranks);
    std::istringstream lines(table.text());
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), 80u) << line;
    EXPECT_THAT(table.text(), HasSubstr("Profile of 2 steps (3 to 4) in float32: 30"));
    EXPECT_THAT(table.text(), HasSubstr("gemm (mlp)"));
  }
}

TEST(ProfileTable, RanksSendItAsText) {
  const RankProfile rank = example_rank();
  const RankProfile again = RankProfile::of_text(rank.text());
  EXPECT_EQ(again.text(), rank.text());
  EXPECT_EQ(ProfileTable({}, {again}).json(), ProfileTable({}, {rank}).json());
}

TEST(ProfileTable, Json) {
  const auto json = nlohmann::json::parse(
      ProfileTable({.start = 4, .first_step = 3, .last_step = 4, .type = DType::bfloat16},
                   {example_rank()})
          .json());
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["start"], 4);
  EXPECT_EQ(json["compute_type"], "bfloat16");
  EXPECT_EQ(json["passes_per_layer"]["forward"], 3.0);
  EXPECT_EQ(json["passes_per_layer"]["backward"], 2.0);
  EXPECT_EQ(json["regions"]["mlp"]["seconds_forward"], 4.0);
  EXPECT_DOUBLE_EQ(json["kernels"][0]["gflops_per_second"].get<double>(), 11e-9 / 4);
}

TEST(ProfileTable, NoStepsNoTable) {
  RankProfile none = example_rank();
  none.steps = 0;
  EXPECT_THROW(ProfileTable({}, {none}), Error);
}

TEST(ProfileTable, NumberOfSteps) {
  EXPECT_EQ(parse_profile_steps("7").most_steps, 7);
  EXPECT_GT(parse_profile_steps("all").most_steps, 1000000);
  for (const char* bad : {"", "0", "-3", "7 ", "x"}) {
    EXPECT_THAT([&] { parse_profile_steps(bad); },
                ThrowsMessage<InputError>(HasSubstr("--profile=10")));
  }
}

}  // namespace
}  // namespace trireme::report
