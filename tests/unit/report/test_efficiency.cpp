// The account of a run and its efficiency: the identity, what a loss is said to be, and
// several starts, by steps of which every part is known.
#include "report/efficiency.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "comm/rank_grid.hpp"
#include "io/json.hpp"

namespace trireme::report {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Json = nlohmann::ordered_json;

const std::vector<std::string> kAxes = {"tensor", "gradient", "pipeline", "world"};

struct StepParts {
  double passes = 0.0, optimizer = 0.0, input = 0.0, host = 0.0;
  std::vector<double> waits = {0.0, 0.0, 0.0, 0.0};
};

RankAccount::Step step_of(std::int64_t number, const StepParts& parts) {
  PartSeconds seconds(kAxes.size());
  seconds[TimePart::passes] = parts.passes;
  seconds[TimePart::optimizer] = parts.optimizer;
  seconds[TimePart::input] = parts.input;
  seconds[TimePart::host] = parts.host;
  seconds.axes() = parts.waits;
  return {number, seconds};
}

// What each rank takes, all of whose steps are alike.
RankAccount::Taken steps_of(const StepParts& parts, int steps) {
  RankAccount::Taken taken{
      .steps = {},
      .between = PartSeconds(kAxes.size()),
      .counts = std::vector<AxisCounts>(kAxes.size(), {.calls = 1.0, .bytes = 100.0})};
  for (int i = 0; i < steps; ++i) taken.steps.push_back(step_of(i + 1, parts));
  return taken;
}

constexpr SampleFlops kFlops = {.model = 0.06, .padding = 0.005, .executed = 0.08};

EfficiencyFacts facts_of(const StartAccount& start, double peak, double stretch = 1.0) {
  EfficiencyFacts facts{.is_complete = true,
                        .run_directory = "runs/a",
                        .step = 10,
                        .steps = 10,
                        .ranks = static_cast<int>(start.ranks().size()),
                        .peak = peak,
                        .account = start.account(peak, stretch),
                        .steps_of_start = static_cast<std::int64_t>(start.steps()),
                        .axes = start.axes(),
                        .rank_seconds = start.ranks()};
  facts.stages.assign(start.ranks().size(), 0);
  double all = 0.0;
  for (const PartSeconds& rank : start.ranks()) all += rank.total();
  facts.device_seconds = all;
  facts.capacity = all * peak;
  return facts;
}

double value_of(const Efficiency& efficiency, std::string_view name) {
  for (const Factor& factor : efficiency.factors()) {
    if (factor.name == name) return factor.value();
  }
  throw Error(fmt::format("no factor {}", name));
}

// Every part of every rank is another random number: the chain holds, each factor's parts
// are what it loses, and nothing is lost twice.
TEST(Efficiency, IdentityHoldsToRounding) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> any(0.0, 1.0);
  for (int run = 0; run < 20; ++run) {
    const comm::GridShape grid{.tensor = 2, .data = 2, .pipeline = 2};
    StartAccount start(grid, kAxes, kFlops);
    for (int interval = 0; interval < 3; ++interval) {
      std::vector<RankAccount::Taken> ranks;
      for (int rank = 0; rank < grid.size(); ++rank) {
        RankAccount::Taken taken = steps_of({}, 0);
        for (int i = 0; i < 4; ++i) {
          taken.steps.push_back(
              step_of(i, {any(random),
                          any(random),
                          any(random),
                          any(random),
                          {any(random), any(random), any(random), any(random)}}));
        }
        taken.between[TimePart::validation] = any(random);
        taken.between[TimePart::checkpoint] = any(random);
        ranks.push_back(taken_from_bytes(bytes_of(taken), kAxes.size()));
      }
      start.add(ranks, {.all = 32, .skipped = 8, .tokens = 64});
    }
    EfficiencyFacts facts = facts_of(start, 7.0, 1.25);
    facts.ready_seconds = 3.0;
    facts.ready_flops = 3.0 * 7.0;
    facts.device_seconds += 8.0;
    facts.capacity += 8.0 * 7.0;
    const Efficiency efficiency(facts);
    EXPECT_GT(efficiency.goodput(), 0.0);
    EXPECT_NEAR(efficiency.product() / efficiency.goodput(), 1.0, 1e-9);
    double before = facts.capacity;
    for (const Factor& factor : efficiency.factors()) {
      EXPECT_EQ(factor.denominator.flops, before) << factor.name;
      before = factor.numerator.flops;
      double lost = 0.0;
      for (const LostPart& part : factor.parts) lost += part.flops;
      EXPECT_NEAR(lost, factor.denominator.flops - factor.numerator.flops,
                  1e-9 * facts.capacity)
          << factor.name;
    }
    double shares = efficiency.goodput();
    for (const Loss& loss : efficiency.losses()) shares += loss.share;
    const DeviceFlops& device = facts.account.device;
    shares += (device.computing - facts.account.flops.executed) / facts.capacity;
    EXPECT_NEAR(shares, 1.0, 1e-9);
    EXPECT_NEAR(facts.account.step_seconds() * 7.0, device.stepping,
                1e-9 * device.stepping);
  }
}

// Eight ranks compute for 1 s; the loader of rank 5 keeps it 0.5 s longer.
TEST(Efficiency, AStarvedRankIsWhatAllWaitFor) {
  StartAccount start({.data = 8}, kAxes, kFlops);
  std::vector<RankAccount::Taken> ranks(
      8, steps_of({.passes = 1.0, .waits = {0, .5, 0, 0}}, 4));
  ranks[5] = steps_of({.passes = 1.0, .input = 0.5}, 4);
  start.add(ranks, {.all = 4});
  const Efficiency efficiency(facts_of(start, 1.0));
  EXPECT_NEAR(value_of(efficiency, "effective_time"), 1.0, 1e-12);
  EXPECT_NEAR(value_of(efficiency, "transfer"), 1.0, 1e-12);
  EXPECT_NEAR(value_of(efficiency, "serialisation"), 1.0, 1e-12);
  EXPECT_NEAR(value_of(efficiency, "load_balance"), 8.5 / 12, 1e-12);
  EXPECT_NEAR(value_of(efficiency, "orchestration"), 8.0 / 8.5, 1e-12);
  const Loss& first = efficiency.losses().front();
  EXPECT_EQ(first.name, "input");
  EXPECT_EQ(first.rank, 5);
  EXPECT_EQ(first.stage, 0);
  EXPECT_NEAR(first.share, 4.0 / 12, 1e-12);
  EXPECT_THAT(efficiency.text(), HasSubstr("(rank 5, stage 0)"));
}

// Waits that all ranks of a group share are for the transfer; those of one less are not.
TEST(Efficiency, TransferIsWhatTheLastToComeWaits) {
  StartAccount start({.tensor = 2}, kAxes, kFlops);
  start.add({steps_of({.passes = 1.0, .waits = {0.3, 0, 0, 0.1}}, 4),
             steps_of({.passes = 0.8, .waits = {0.3, 0, 0, 0.3}}, 4)},
            {.all = 4});
  const Efficiency efficiency(facts_of(start, 1.0));
  EXPECT_NEAR(value_of(efficiency, "transfer"), 2.0 / 2.8, 1e-12);
  EXPECT_NEAR(value_of(efficiency, "load_balance"), 0.9, 1e-12);
  EXPECT_EQ(efficiency.losses().front().name, "tensor");
  EXPECT_NEAR(efficiency.losses().front().share, 0.3 / 0.4 * 0.8 / 2.8, 1e-12);
}

// Of four stages the first and the last hold a copy of the embedding: what these two wait
// is their transfer, and the stages in between are neither the last to come nor in any
// mean.
TEST(Efficiency, TiedMessagesAreOfTheStagesThatHoldACopy) {
  const std::vector<std::string> axes = {"tied", "gradient", "pipeline", "world"};
  const auto start_of = [&](double begin_of_last) {
    StartAccount start({.pipeline = 4}, axes, kFlops, {0, 3});
    const RankAccount::Taken holder =
        steps_of({.passes = 1.0, .waits = {0.3, 0, 0, 0}}, 4);
    const RankAccount::Taken between =
        steps_of({.passes = 1.0, .waits = {0, 0, 0, 0.3}}, 4);
    std::vector<RankAccount::Taken> ranks = {holder, between, between, holder};
    ranks[0].counts[0].begin = 1.0;
    ranks[3].counts[0].begin = begin_of_last;
    start.add(ranks, {.all = 4});
    return start;
  };
  const StartAccount even = start_of(1.0001);
  EXPECT_NEAR(even.account(1.0, 1.0).device.transfer.at("tied"), 4 * 4 * 0.3, 1e-12);
  EXPECT_EQ(even.slowest_sender("tied"), -1);
  EXPECT_EQ(start_of(5.0).slowest_sender("tied"), 3);
  EfficiencyFacts facts = facts_of(even, 1.0);
  facts.tied_stages = {0, 3};
  const Json json = io::parse_json<Json>(Efficiency(facts).json());
  EXPECT_EQ(json["run"]["tied_stages"], Json::array({0, 3}));
}

// A rank that is late now and then is a straggler, one that always is makes the load
// uneven.
TEST(Efficiency, StragglersAreNoImbalance) {
  StartAccount start({.data = 2}, kAxes, kFlops);
  std::vector<RankAccount::Taken> ranks(2, steps_of({}, 0));
  for (int i = 0; i < 4; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      const bool is_late = i % 2 == rank;
      ranks[static_cast<std::size_t>(rank)].steps.push_back(step_of(
          i, {.passes = is_late ? 1.5 : 1.0, .waits = {0, is_late ? 0.0 : 0.5, 0, 0}}));
    }
  }
  start.add(ranks, {.all = 4});
  const Efficiency late(facts_of(start, 1.0));
  EXPECT_NEAR(value_of(late, "load_balance"), 1.0, 1e-12);
  EXPECT_NEAR(value_of(late, "serialisation"), 1.25 / 1.5, 1e-12);
  EXPECT_EQ(late.losses().front().name, "stragglers");

  StartAccount slow({.pipeline = 2}, kAxes, kFlops);
  slow.add({steps_of({.passes = 1.0, .waits = {0, 0, 0.5, 0}}, 4),
            steps_of({.passes = 1.5}, 4)},
           {.all = 4});
  EfficiencyFacts facts = facts_of(slow, 1.0);
  facts.stages = {0, 1};
  const Efficiency uneven(facts);
  EXPECT_NEAR(value_of(uneven, "load_balance"), 2.5 / 3, 1e-12);
  EXPECT_EQ(uneven.losses().front().name, "passes");
  EXPECT_EQ(uneven.losses().front().rank, 1);
  EXPECT_EQ(uneven.losses().front().stage, 1);
}

// A pipeline's bubble is what its schedule says, and no transfer.
TEST(Efficiency, BubbleIsOfTheReplay) {
  StartAccount start({.pipeline = 2}, kAxes, kFlops);
  const RankAccount::Taken stage = steps_of({.passes = 1.0, .waits = {0, 0, 0.35, 0}}, 4);
  start.add({stage, stage}, {.all = 4});
  const Efficiency efficiency(facts_of(start, 1.0, 1.25));
  EXPECT_NEAR(value_of(efficiency, "serialisation"), 1.0 / 1.25, 1e-12);
  EXPECT_NEAR(value_of(efficiency, "transfer"), 1.25 / 1.35, 1e-12);
  EXPECT_EQ(efficiency.losses().at(0).name, "bubble");
  EXPECT_EQ(efficiency.losses().at(1).name, "pipeline");
  EXPECT_NEAR(efficiency.losses().at(1).share, 0.1 / 1.35, 1e-12);
}

// Starts of other ranks and machines add up; what was read back is what was written.
TEST(Efficiency, AccountsOfStartsAddUp) {
  StartAccount one({.data = 2}, kAxes, kFlops), two({.data = 4}, kAxes, kFlops);
  one.add({steps_of({.passes = 10.0}, 1), steps_of({.passes = 8.0}, 1)}, {.all = 2});
  two.add({steps_of({.passes = 5.0}, 1), steps_of({.passes = 4.0}, 1),
           steps_of({.passes = 4.0}, 1), steps_of({.passes = 4.0}, 1)},
          {.all = 2});
  Account account = one.account(2.0, 1.0);
  account.began = 1234.5;
  const Account read =
      Account::of_json(io::parse_json<Json>(io::exact_json_text(account.json())));
  EXPECT_EQ(read, account);
  account += two.account(3.0, 1.0);
  EXPECT_EQ(account.began, 1234.5);
  EXPECT_DOUBLE_EQ(account.device.slowest_rank, 2 * 2.0 * 10.0 + 4 * 3.0 * 5.0);
  EXPECT_DOUBLE_EQ(account.device.slowest_step, account.device.slowest_rank);
  EXPECT_DOUBLE_EQ(account.device.busy, 2.0 * 18.0 + 3.0 * 17.0);
  EXPECT_DOUBLE_EQ(account.flops.model, 4 * 0.06);
  EXPECT_DOUBLE_EQ(account.steps, 2.0);
  std::int64_t binned = 0;
  for (const auto& [bin, count] : account.step_bins) binned += count;
  EXPECT_EQ(binned, 2);
  EXPECT_THAT(
      [] {
        Account::of_json(Json{{"began", 1.0}});
      },
      ThrowsMessage<io::JsonError>(HasSubstr("schema_version")));
  Json older = account.json();
  older["schema_version"] = 1;
  EXPECT_THAT([&] { Account::of_json(older); },
              ThrowsMessage<io::JsonError>(HasSubstr("schema version 1")));
  EXPECT_THAT([] { taken_from_bytes("seven b", 4); },
              ThrowsMessage<Error>(HasSubstr("7 bytes")));
}

// What lies beside the steps of a start is lost at that start's peak: 1000 s at a peak of
// 100, of which 300 s of checkpoints, and 1000 s at 300.
TEST(Efficiency, EachStartLosesAtItsOwnPeak) {
  StartAccount one({.data = 1}, kAxes, kFlops), two({.data = 1}, kAxes, kFlops);
  RankAccount::Taken taken = steps_of({.passes = 70.0}, 10);
  taken.between[TimePart::checkpoint] = 300.0;
  one.add({taken}, {.all = 10});
  two.add({steps_of({.passes = 100.0}, 10)}, {.all = 10});
  EfficiencyFacts facts = facts_of(two, 300.0);
  facts.account = one.account(100.0, 1.0);
  facts.account += two.account(300.0, 1.0);
  facts.device_seconds = 2000.0;
  facts.capacity = 1000.0 * 100.0 + 1000.0 * 300.0;
  const Efficiency efficiency(facts);
  for (const Loss& loss : efficiency.losses()) {
    const double expected = loss.name == "checkpoint" ? 0.075 : 0.0;
    if (loss.name == "checkpoint" || loss.name == "lost") {
      EXPECT_NEAR(loss.share, expected, 1e-12) << loss.name;
    }
  }
}

// 100 steps of 1 s on two ranks, and 100 of 0.5 s on four, are steps of 0.75 s.
TEST(Efficiency, RatesAreOfStepsOnWhateverRanks) {
  StartAccount one({.data = 2}, kAxes, kFlops), two({.data = 4}, kAxes, kFlops);
  one.add(std::vector(2, steps_of({.passes = 1.0}, 100)), {.all = 400, .tokens = 4000});
  two.add(std::vector(4, steps_of({.passes = 0.5}, 100)), {.all = 400, .tokens = 4000});
  EfficiencyFacts facts = facts_of(two, 1.0);
  facts.account += one.account(1.0, 1.0);
  const Json json = io::parse_json<Json>(Efficiency(facts).json());
  EXPECT_NEAR(json["rates"]["step_seconds_mean"].get<double>(), 0.75, 1e-12);
  EXPECT_NEAR(json["rates"]["tokens_per_second"].get<double>(), 8000.0 / 150.0, 1e-9);
  EXPECT_NEAR(json["rates"]["model_tflops_per_device"].get<double>(),
              800 * 0.06 / 400.0 / 1e12, 1e-24);
}

// Of many ranks of a stage it is said who has least and most of what.
TEST(Efficiency, StagesHaveExtremes) {
  StartAccount start({.data = 300}, kAxes, kFlops);
  std::vector<RankAccount::Taken> ranks(300, steps_of({.passes = 1.0, .host = 0.1}, 4));
  ranks[170] = steps_of({.passes = 0.9, .host = 0.4}, 4);
  start.add(ranks, {.all = 4});
  const Json json = io::parse_json<Json>(Efficiency(facts_of(start, 1.0)).json());
  EXPECT_TRUE(json["this_start"]["ranks"].empty());
  const Json& of = json["this_start"]["stages"][0]["extremes"];
  EXPECT_NEAR(of["host"]["most"].get<double>(), 0.4, 1e-12);
  EXPECT_EQ(of["host"]["rank_most"], 170);
  EXPECT_NEAR(of["host"]["least"].get<double>(), 0.1, 1e-12);
  EXPECT_NEAR(of["passes"]["least"].get<double>(), 0.9, 1e-12);
  EXPECT_EQ(of["tensor"]["most"], 0.0);
}

// Of ten thousand ranks, and of a hundred thousand steps, there is no more to say than of
// some hundred: what is kept and what is written has the size of the grid's pipeline.
TEST(Efficiency, SizeDoesNotGrowWithRanksAndSteps) {
  const comm::GridShape grid{.tensor = 8, .data = 160, .pipeline = 8};
  const auto size_of = [](const comm::GridShape& shape) {
    StartAccount start(shape, kAxes, kFlops);
    const auto ranks = static_cast<std::size_t>(shape.size());
    std::vector<RankAccount::Taken> taken(ranks, steps_of({.passes = 1.0}, 2));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      taken[rank].counts[0].begin = static_cast<double>(rank);
    }
    start.add(taken, {.all = 4});
    EfficiencyFacts facts = facts_of(start, 1.0);
    facts.grid = shape;
    facts.hosts.assign(ranks, "node");
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      facts.stages[rank] = comm::coordinates_of(shape, static_cast<int>(rank)).pipeline;
    }
    return Efficiency(facts).json().size();
  };
  ASSERT_EQ(grid.size(), 10240);
  comm::GridShape smaller = grid;
  smaller.data = 5;  // 320 ranks, which have no rows of their own either
  EXPECT_LT(static_cast<double>(size_of(grid)),
            1.05 * static_cast<double>(size_of(smaller)));

  StartAccount start({.data = 2}, kAxes, kFlops);
  const auto size_after = [&](int intervals) {
    const std::vector<RankAccount::Taken> ranks(2, steps_of({.passes = 1.0}, 100));
    for (int i = 0; i < intervals; ++i) start.add(ranks, {.all = 100});
    return io::exact_json_text(start.account(1.0, 1.0).json()).size();
  };
  const auto few = static_cast<double>(size_after(1));
  EXPECT_LT(static_cast<double>(size_after(999)), 2.0 * few);  // numbers have more digits
  EXPECT_EQ(start.steps(), 100'000.0);
}

// Of the hosts some tell their energy: so many of the tokens were made there.
TEST(Efficiency, EnergyIsOfWhatIsMetered) {
  StartAccount start({.data = 4}, kAxes, kFlops);
  std::vector<RankAccount::Taken> ranks(4, steps_of({.passes = 1.0}, 4));
  ranks[0].joules = 60.0;
  start.add(ranks, {.all = 4, .tokens = 40}, 0.5);
  EfficiencyFacts facts = facts_of(start, 1.0);
  facts.meters = {"processors"};
  const Json json = io::parse_json<Json>(Efficiency(facts).json());
  EXPECT_EQ(json["energy"]["joules_per_token"], 3.0);
  EXPECT_EQ(json["energy"]["meters"][0], "processors");
}

TEST(Efficiency, WhoStandsOutHasMuchMoreThanTheOthers) {
  EXPECT_EQ(outstanding_rank({1.0, 3.0, 1.0}, 2.0), 1);
  EXPECT_EQ(outstanding_rank({1.0, 1.9, 1.0}, 2.0), -1);
  EXPECT_EQ(outstanding_rank({0.0, 0.0}, 2.0), -1);
  EXPECT_EQ(outstanding_rank({0.0, 1.0}, 2.0), 1);
  EXPECT_EQ(outstanding_rank({5.0}, 1.1), -1);
}

// The file has losses in order of their size; the table of a run of minutes does not say
// that it mostly made itself ready.
TEST(Efficiency, SetUpOfAShortRunComesLastInTheTable) {
  StartAccount start({.data = 1}, kAxes, kFlops);
  start.add({steps_of({.passes = 1.0, .host = 0.5}, 10)}, {.all = 10});
  EfficiencyFacts facts = facts_of(start, 10.0);
  const auto with_set_up = [&](double seconds) {
    EfficiencyFacts more = facts;
    more.ready_seconds = seconds;
    more.ready_flops = 10.0 * seconds;
    more.device_seconds += seconds;
    more.capacity += 10.0 * seconds;
    return Efficiency(more);
  };
  const auto names_of = [](const Efficiency& efficiency) {
    std::vector<std::string> names;
    for (const Loss& loss : efficiency.losses()) names.push_back(loss.name);
    return names;
  };
  const Efficiency brief = with_set_up(20.0), longer = with_set_up(2000.0);
  for (const Efficiency* of : {&brief, &longer}) {
    EXPECT_TRUE(
        std::ranges::is_sorted(of->losses(), std::ranges::greater(), &Loss::share));
    EXPECT_EQ(names_of(*of).at(0), "set_up");
  }
  EXPECT_THAT(brief.text(), ContainsRegex("Largest losses\n  host "));
  EXPECT_THAT(longer.text(), ContainsRegex("Largest losses\n  set_up "));
}

// A start that did nothing has a report, without numbers that are none.
TEST(Efficiency, OfNothingIsWhole) {
  StartAccount start({.data = 2}, kAxes, kFlops);
  const Efficiency efficiency(facts_of(start, 0.0));
  EXPECT_EQ(efficiency.goodput(), 0.0);
  const Json json = io::parse_json<Json>(efficiency.json());
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["identity"]["factors"].size(), 7u);
  EXPECT_TRUE(json["this_start"]["ranks"].is_array());
  EXPECT_THAT(efficiency.json(), ::testing::Not(HasSubstr("nan")));
}

TEST(Efficiency, JsonHasWhatTheTableSays) {
  StartAccount start({.tensor = 2}, kAxes, kFlops);
  std::vector<RankAccount::Taken> ranks = {
      steps_of({.passes = 1.0, .waits = {0.3, 0, 0, 0.1}}, 4),
      steps_of({.passes = 0.8, .waits = {0.3, 0, 0, 0.3}}, 4)};
  ranks[0].joules = 80.0;
  ranks[0].hertz = 3e9;
  ranks[1].hertz = 2e9;
  ranks[1].counts[0].skew = 0.25;
  ranks[1].counts[0].transfer = 0.75;
  ranks[1].counts[0].sampled_bytes = 3 * 1024 * 1024;
  for (RankAccount::Taken& rank : ranks) {
    rank = taken_from_bytes(bytes_of(rank), kAxes.size());
  }
  start.add(ranks, {.all = 4, .tokens = 40});
  EfficiencyFacts facts = facts_of(start, 5.0);
  facts.bandwidth = 100.0;
  facts.kernels[0] = {
      .calls = 3, .seconds = 1, .flops = 5, .needed_flops = 5, .bytes = 10, .bound = 1};
  facts.kernels[2] = {.calls = 3, .seconds = 1, .bytes = 50, .bound = 0.5};
  facts.hosts = {"node1", "node1"};
  facts.hertz = start.hertz();
  facts.links = {
      {.axis = "tensor", .ranks = 2, .latency = 1e-6, .bytes_per_second = 2e9}};
  const Efficiency efficiency(facts);
  const Json json = io::parse_json<Json>(efficiency.json());
  EXPECT_EQ(json["machine"]["hosts"], Json::array({"node1"}));
  EXPECT_EQ(json["machine"]["clock"]["gigahertz"], 2.5);
  EXPECT_EQ(json["machine"]["clock"]["slowest_rank"], 1);
  EXPECT_EQ(json["machine"]["links"][0]["payload_bytes_per_second"], 2e9);
  EXPECT_EQ(json["energy"]["joules_per_token"], 2.0);
  EXPECT_EQ(json["device_seconds"]["messages"]["tensor"]["sampled_skew_seconds"], 0.25);
  EXPECT_EQ(json["identity"]["goodput"], efficiency.goodput());
  EXPECT_EQ(json["pop"]["parallel_efficiency"], efficiency.parallel());
  EXPECT_EQ(json["losses"][0]["name"], "tensor");
  EXPECT_TRUE(json["losses"][0]["rank"].is_null());
  EXPECT_NEAR(json["rates"]["tokens_per_second"].get<double>(), 40 / (4 * 1.4), 1e-9);
  EXPECT_EQ(json["kernels"]["classes"][0]["bound"], "products");
  EXPECT_EQ(json["kernels"]["classes"][1]["name"], "norms");
  EXPECT_EQ(json["kernels"]["classes"][1]["share_of_bound"], 0.5);
  EXPECT_THAT(efficiency.text(), ContainsRegex("norms +1.0+s +50%  memory\n"));
  EXPECT_THAT(efficiency.text(), ContainsRegex("tensor +4.0 MiB/s +1.9 GiB/s\n"));
  EXPECT_EQ(json["this_start"]["stages"][0]["ranks"], 2.0);
  EXPECT_EQ(json["this_start"]["stages"][0]["slowest_rank"], 0);
  EXPECT_EQ(json["device_seconds"]["messages"]["gradient"]["bytes"], 200.0);
  for (const Loss& loss : efficiency.losses()) EXPECT_FALSE(loss.advice.empty());
}

// Two stages, of which the second has more memory; what is sent, by site; the maker's
// peak; and a run to compare with, whose kernels took half as long for a sample.
TEST(Efficiency, JsonHasStagesSitesAndTheReference) {
  StartAccount start({.pipeline = 2}, kAxes, kFlops);
  const RankAccount::Taken stage = steps_of({.passes = 1.0}, 4);
  start.add({stage, stage}, {.all = 4});
  EfficiencyFacts facts = facts_of(start, 0.5);
  facts.stages = {0, 1};
  facts.grid = {.pipeline = 2};
  facts.memory = {{"weights", {10.0, 30.0}, {11.0, 29.0}}};
  facts.sites = {{.axis = "pipeline",
                  .site = "step::activations",
                  .operation = "send",
                  .ranks = 1,
                  .calls = 8,
                  .bytes = 800}};
  facts.nominal_peak = 2.0;
  const Efficiency alone(facts);
  EXPECT_FALSE(alone.global());
  EXPECT_THAT(alone.text(), ::testing::Not(HasSubstr("global")));
  const Json without = io::parse_json<Json>(alone.json());
  EXPECT_TRUE(without["pop"]["global_efficiency"].is_null());
  EXPECT_TRUE(without["pop"]["reference"].is_null());

  facts.reference = {"runs/one/efficiency.json", 1.0};
  const Efficiency efficiency(facts);
  const Json json = io::parse_json<Json>(efficiency.json());
  EXPECT_EQ(json["run"]["grid"]["pipeline"], 2);
  EXPECT_EQ(json["run"]["grid"]["order"].size(), 4u);
  EXPECT_EQ(json["machine"]["nominal_peak_tflops"], 2e-12);
  EXPECT_NEAR(json["rates"]["hardware_share_of_nominal_peak"].get<double>(),
              4 * 0.08 / (8.0 * 2.0), 1e-12);
  // In 8 device seconds 0.32 FLOPs, 4 of which would have been possible.
  EXPECT_THAT(efficiency.text(), ContainsRegex("hardware FLOPs +8.0%  of the measured"));
  EXPECT_THAT(efficiency.text(), ContainsRegex("2.0%[ \n]+of the nominal peak"));
  const Json& stages = json["this_start"]["stages"];
  EXPECT_EQ(stages[0]["memory"]["weights"]["bytes_planned"], 10.0);
  EXPECT_EQ(stages[1]["memory"]["weights"]["bytes_max"], 29.0);
  EXPECT_EQ(json["memory"]["weights"]["bytes_avg"], 20.0);
  EXPECT_EQ(json["this_start"]["messages"][0]["site"], "step::activations");
  EXPECT_EQ(json["this_start"]["messages"][0]["bytes"], 800.0);
  EXPECT_NEAR(json["pop"]["computation_scaling"].get<double>(), 0.5, 1e-12);
  EXPECT_NEAR(json["pop"]["global_efficiency"].get<double>(), 0.5 * efficiency.parallel(),
              1e-12);
  EXPECT_THAT(efficiency.text(), HasSubstr("runs/one/efficiency.json"));
}

TEST(EfficiencyKernelClasses, EveryKernelHasOne) {
  const std::pair<const char*, KernelKind> kExpected[] = {
      {"kernels::gemm", KernelKind::products},
      {"kernels::linear_forward[fused]", KernelKind::products},
      {"kernels::attention_backward[delta]", KernelKind::attention},
      {"kernels::residual_norm_backward", KernelKind::norms},
      {"kernels::embedding_dropout_forward", KernelKind::embedding},
      {"kernels::gelu_backward", KernelKind::activations},
      {"kernels::relu_forward", KernelKind::activations},
      {"kernels::tanh_backward", KernelKind::activations},
      {"kernels::gated_backward[gelu]", KernelKind::activations},
      {"kernels::rms_norm_forward", KernelKind::norms},
      {"kernels::cross_entropy_in_place", KernelKind::loss},
      {"kernels::square_sum_of_chunks[combine]", KernelKind::optimizer},
      {"copy", KernelKind::copies},
      {"kernels::something_new", KernelKind::other}};
  for (const auto& [kernel, kind] : kExpected) EXPECT_EQ(kind_of(kernel), kind) << kernel;
}

}  // namespace
}  // namespace trireme::report
