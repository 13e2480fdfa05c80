// report/efficiency.cpp — see efficiency.hpp.
//
// Everything follows from the facts: factors first, then what each loses by its parts,
// then the same as losses, which join what belongs together. A rank that waits for its
// loader, for example, loses its own time beside its kernels, and that of all others,
// whom the balance counts as waiting for it: that is one loss, of the loader, and names
// the rank. Quotients of nothing are 1 for a factor and 0 for a share, so that a report
// of a start that did nothing has no numbers that are none.
#include "report/efficiency.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <ranges>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/enums.hpp"
#include "io/json.hpp"
#include "report/ratio.hpp"

namespace trireme::report {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr std::size_t kShownLosses = 3;
// Ranks of which each has its own row; of more, the stages' means and extremes remain.
constexpr std::size_t kMostRankRows = 256;
// A rank stands out that has this much more of something than the mean.
constexpr double kStandsOut = 1.1;
// Of the slowest rank the others' waits are said to be from this share of all time on.
constexpr double kNamed = 0.005;
// Seconds of a run of which the beginning says nothing of a long one.
constexpr double kShortRun = 600.0;

constexpr const char* kEffectiveTime = "effective_time";
constexpr const char* kOrchestration = "orchestration";
constexpr const char* kTransfer = "transfer";
constexpr const char* kSerialisation = "serialisation";
constexpr const char* kLoadBalance = "load_balance";
constexpr const char* kFlopRate = "flop_rate";
constexpr const char* kUsefulFlops = "useful_flops";

double seconds_of(const Account& account, TimePart part) {
  const auto found = account.seconds.find(std::string(name_of(part)));
  return found == account.seconds.end() ? 0.0 : found->second;
}

struct FactorText {
  const char* name;
  const char* label;
  const char* meaning;
};
constexpr FactorText kFactorTexts[] = {
    {kEffectiveTime, "effective time", "in steps that stand, of all time of all starts"},
    {kTransfer, "transfer", "of that, had messages taken no time"},
    {kSerialisation, "serialisation", "had no rank waited for what others do before"},
    {kLoadBalance, "load balance", "the mean rank is busy, of the slowest one's time"},
    {kOrchestration, "orchestration", "in kernels, of the time that ranks are busy"},
    {kFlopRate, "FLOP rate", "of the measured peak, in kernels"},
    {kUsefulFlops, "useful FLOPs", "of the algorithm, of those executed"},
};

struct Advice {
  const char* part;
  const char* text;
};
constexpr Advice kAdvice[] = {
    {"set_up", "longer starts; corpus and checkpoints on a faster disk"},
    {"warm_up", "longer starts: the first step makes libraries and memory ready"},
    {"lost", "checkpoint.every shorter: what was done after the last one is done again"},
    {"validation", "run.validate_every longer, or run.validate_samples fewer"},
    {"checkpoint", "checkpoint.async: true, checkpoint.every longer, or a faster disk"},
    {"sample", "run.sample_every longer"},
    {"other", "the log says what the run did beside its steps"},
    {"input", "the corpus on a local disk or in memory; more cores for this rank"},
    {"host",
     "batch.micro larger: what surrounds kernels then costs less for each sample"},
    {"tensor", "parallel.tensor within a node, or smaller; parallel.sequence: true"},
    {"context", "parallel.context within a node, or smaller"},
    {"gradient", "more micro-batches (batch.global larger), behind which it hides"},
    {"pipeline", "batch.micro larger, or fewer chunks (parallel.virtual_pipeline)"},
    {"model", "fewer ranks to a copy of the model"},
    {"tied", "the first and the last stage on one node"},
    {"world", "nothing of its own: all ranks wait here for the last of them"},
    {"bubble", "more micro-batches, parallel.virtual_pipeline, or zero-bubble schedules"},
    {"stragglers", "see what else runs on the nodes: now one rank is late, now another"},
    {"passes", "parallel.stages dealt otherwise, or look at this rank's clock"},
    {"optimizer", "parallel.stages dealt otherwise, or parallel.zero"},
    {"recomputation", "memory.recompute: selective or none, where memory allows it"},
    {"padding", "model.vocab a multiple of 128 x parallel.tensor"},
    {"skipped_updates", "precision.loss_scale; bf16 where the hardware has it"},
};
const char* advice_of(std::string_view part) {
  const auto found = std::ranges::find(kAdvice, part, &Advice::part);
  TRIREME_REQUIRE(found != std::end(kAdvice), "no advice on the loss '{}'", part);
  return found->text;
}

std::vector<LostPart> parts_of(const Amounts& amounts) {
  std::vector<LostPart> parts;
  for (const auto& [name, flops] : amounts) parts.push_back({name, flops});
  return parts;
}

Json json_of(const Factor& factor) {
  Json parts = Json::object();
  for (const LostPart& part : factor.parts) {
    parts[part.name] = ratio(part.flops, factor.denominator.flops);
  }
  return {{"name", factor.name},
          {"value", factor.value()},
          {"numerator", factor.numerator.name},
          {"denominator", factor.denominator.name},
          {"lost", std::move(parts)}};
}

Json json_of(const PartSeconds& seconds, const std::vector<std::string>& axes,
             double steps) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kTimeParts; ++i) {
    const auto part = static_cast<TimePart>(i);
    json[std::string(name_of(part))] = ratio(seconds[part], steps);
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    json[axes[a]] = ratio(seconds.axes()[a], steps);
  }
  return json;
}

}  // namespace

double Factor::value() const {
  return denominator.flops > 0.0 ? numerator.flops / denominator.flops : 1.0;
}

Efficiency::Efficiency(const EfficiencyFacts& facts) : facts_(facts) {
  add_factors();
  add_losses();
}

void Efficiency::add_factors() {
  const Account& account = facts_.account;
  const DeviceFlops& device = account.device;
  const FlopCounts& flops = account.flops;
  Quantity before{"capacity", facts_.capacity};
  const auto add = [&](const char* name, const char* quantity, double value,
                       std::vector<LostPart> parts) {
    const Quantity numerator{quantity, value};
    factors_.push_back({name, numerator, before, std::move(parts)});
    before = numerator;
  };
  std::vector<LostPart> between = {{"set_up", facts_.ready_seconds * facts_.peak}};
  double known = between.front().flops;
  for (const TimePart part : kPartsBetweenSteps) {
    double seconds = seconds_of(account, part);
    // Starts end with a checkpoint, which what they save does not know of.
    if (part == TimePart::checkpoint) seconds += facts_.ending_seconds;
    between.push_back({std::string(name_of(part)), seconds * facts_.peak});
    known += between.back().flops;
  }
  between.push_back({"lost", facts_.capacity - device.stepping - known});
  add(kEffectiveTime, "stepping", device.stepping, std::move(between));
  add(kTransfer, "ideal_network", device.ideal, parts_of(device.transfer));
  add(kSerialisation, "slowest_rank", device.slowest_rank,
      {{"bubble", device.ideal - device.slowest_step},
       {"stragglers", device.slowest_step - device.slowest_rank}});
  add(kLoadBalance, "busy", device.busy, parts_of(device.balance));
  add(kOrchestration, "computing", device.computing, parts_of(device.beside));
  add(kFlopRate, "executed_flops", flops.executed, kernel_losses());
  add(kUsefulFlops, "model_flops", flops.model,
      {{"recomputation", flops.executed - flops.model - flops.skipped - flops.padding},
       {"padding", flops.padding},
       {"skipped_updates", flops.skipped}});
}

// By classes of kernels: what sampled steps took beyond their FLOPs at the peak.
std::vector<LostPart> Efficiency::kernel_losses() const {
  const double lost = facts_.account.device.computing - facts_.account.flops.executed;
  std::vector<LostPart> parts;
  double sum = 0.0;
  for (std::size_t i = 0; i < kKernelKinds; ++i) {
    const KernelClass& kernels = facts_.kernels[i];
    const double beyond = kernels.seconds - ratio(kernels.flops, facts_.peak);
    if (kernels.seconds <= 0.0 || beyond <= 0.0) continue;
    parts.push_back({std::string(name_of(static_cast<KernelKind>(i))), beyond});
    sum += beyond;
  }
  if (parts.empty()) return {{"kernels", lost}};
  for (LostPart& part : parts) part.flops *= lost / sum;
  return parts;
}

double Efficiency::goodput() const {
  return ratio(facts_.account.flops.model, facts_.capacity);
}

double Efficiency::product() const {
  double product = 1.0;
  for (const Factor& factor : factors_) product *= factor.value();
  return product;
}

const Factor& Efficiency::factor(std::string_view name) const {
  const auto found = std::ranges::find(factors_, name, &Factor::name);
  TRIREME_REQUIRE(found != factors_.end(), "no factor '{}'", name);
  return *found;
}

double Efficiency::communication() const {
  return factor(kSerialisation).value() * factor(kTransfer).value();
}

double Efficiency::parallel() const {
  return factor(kLoadBalance).value() * communication();
}

// The rank that has most of a part, where it stands out from the mean; -1: none does.
int Efficiency::outstanding_rank(TimePart part) const {
  const std::vector<PartSeconds>& ranks = facts_.rank_seconds;
  if (ranks.size() < 2) return -1;
  double mean = 0.0;
  std::size_t most = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    mean += ranks[r][part] / static_cast<double>(ranks.size());
    if (ranks[r][part] > ranks[most][part]) most = r;
  }
  return ranks[most][part] > kStandsOut * mean ? static_cast<int>(most) : -1;
}

int Efficiency::slowest_rank() const {
  const auto slowest = std::ranges::max_element(facts_.rank_seconds, std::ranges::less(),
                                                &PartSeconds::busy);
  return static_cast<int>(slowest - facts_.rank_seconds.begin());
}

void Efficiency::add_loss(const std::string& name, double flops, int rank) {
  Loss& loss = losses_.emplace_back(Loss{.name = name,
                                         .share = ratio(flops, facts_.capacity),
                                         .rank = rank,
                                         .advice = advice_of(name)});
  if (rank < 0 || static_cast<std::size_t>(rank) >= facts_.stages.size()) return;
  loss.stage = facts_.stages[static_cast<std::size_t>(rank)];
}

// The rank that is why time was lost between steps, or to messages along an axis; -1:
// none is.
int Efficiency::reason_of(const std::string& part) const {
  const auto axis = std::ranges::find(facts_.axes, part);
  const auto a = static_cast<std::size_t>(axis - facts_.axes.begin());
  if (a < facts_.slowest_senders.size()) return facts_.slowest_senders[a];
  if (part == name_of(TimePart::checkpoint) && facts_.slowest_saver >= 0) {
    return facts_.slowest_saver;
  }
  for (const TimePart of : kPartsBetweenSteps) {
    if (part == name_of(of)) return outstanding_rank(of);
  }
  return -1;
}

void Efficiency::add_losses() {
  const DeviceFlops& device = facts_.account.device;
  for (const char* name : {kEffectiveTime, kTransfer, kSerialisation}) {
    for (const LostPart& part : factor(name).parts) {
      add_loss(part.name, part.flops, reason_of(part.name));
    }
  }
  // What a rank does beside its kernels costs its own time and, where it has more of that
  // than others, theirs.
  for (const TimePart part : kBusyParts) {
    const std::string name(name_of(part));
    const auto of = [&name](const Amounts& amounts) {
      const auto found = amounts.find(name);
      return found == amounts.end() ? 0.0 : found->second;
    };
    const double balance = of(device.balance), beside = of(device.beside);
    const bool is_uneven = balance > std::max(beside, kNamed * facts_.capacity);
    add_loss(name, balance + beside, is_uneven ? slowest_rank() : outstanding_rank(part));
  }
  for (const LostPart& part : factor(kUsefulFlops).parts) {
    add_loss(part.name, part.flops, -1);
  }
  const bool is_short =
      facts_.device_seconds < kShortRun * static_cast<double>(facts_.ranks);
  const auto rank_of = [is_short](const Loss& loss) {
    const bool is_of_start =
        loss.name == "set_up" || loss.name == name_of(TimePart::warm_up);
    return is_short && is_of_start ? loss.share - 1.0 : loss.share;
  };
  std::ranges::stable_sort(losses_, std::ranges::greater(), rank_of);
}

std::string Efficiency::text() const {
  std::string text = fmt::format(
      "Efficiency of the run: {} of {} that stand, {}, {} x {}\n",
      format_grouped(static_cast<std::int64_t>(facts_.account.steps)),
      format_plural(facts_.steps, "step"), format_plural(facts_.starts, "start"),
      format_plural(facts_.ranks, "device"), format_flops(1e-12 * facts_.peak));
  text += fmt::format("  {:<16}{:>7}  {}\n", "goodput", format_percent(goodput()),
                      "of all time at the measured peak; the product of:");
  for (const FactorText& row : kFactorTexts) {
    text += fmt::format("  {:<16}{:>7}  {}\n", row.label,
                        format_percent(factor(row.name).value()), row.meaning);
  }
  text += "Largest losses\n";
  for (std::size_t i = 0; i < std::min(kShownLosses, losses_.size()); ++i) {
    const Loss& loss = losses_[i];
    std::string where;
    if (loss.rank >= 0)
      where = fmt::format(" (rank {}, stage {})", loss.rank, loss.stage);
    text += fmt::format("  {:<16}{:>7}  {}\n", loss.name, format_percent(loss.share),
                        wrap_words(loss.advice + where, kScreenColumns, 27));
  }
  return text;
}

Json Efficiency::ranks_json() const {
  const auto steps = static_cast<double>(facts_.steps_of_start);
  const std::vector<PartSeconds>& ranks = facts_.rank_seconds;
  Json stages = Json::array(), rows = Json::array();
  const int most = facts_.stages.empty() ? -1 : std::ranges::max(facts_.stages);
  for (int stage = 0; stage <= most; ++stage) {
    PartSeconds sum(facts_.axes.size());
    double count = 0.0, longest = 0.0;
    int slowest = -1;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (facts_.stages[r] != stage) continue;
      sum += ranks[r];
      count += 1.0;
      if (slowest < 0 || ranks[r].compute() > longest) {
        longest = ranks[r].compute();
        slowest = static_cast<int>(r);
      }
    }
    stages.push_back({{"stage", stage},
                      {"ranks", count},
                      {"slowest_rank", slowest},
                      {"seconds", json_of(sum, facts_.axes, steps * count)}});
  }
  for (std::size_t r = 0; ranks.size() <= kMostRankRows && r < ranks.size(); ++r) {
    rows.push_back({{"rank", r},
                    {"stage", facts_.stages.at(r)},
                    {"seconds", json_of(ranks[r], facts_.axes, steps)}});
  }
  return {{"steps", facts_.steps_of_start}, {"stages", stages}, {"ranks", rows}};
}

Json Efficiency::kernels_json() const {
  Json list = Json::array();
  for (std::size_t i = 0; i < kKernelKinds; ++i) {
    const KernelClass& kernels = facts_.kernels[i];
    if (kernels.calls <= 0.0) continue;
    const double by_flops = ratio(kernels.needed_flops, facts_.peak);
    const double by_bytes = ratio(kernels.bytes, facts_.bandwidth);
    Json& row = list.emplace_back(Json{{"name", name_of(static_cast<KernelKind>(i))},
                                       {"calls", kernels.calls},
                                       {"flops", kernels.flops},
                                       {"flops_needed", kernels.needed_flops},
                                       {"bytes", kernels.bytes},
                                       {"seconds", kernels.seconds},
                                       {"seconds_bound", nullptr},
                                       {"bound", nullptr},
                                       {"share_of_bound", nullptr}});
    if (facts_.bandwidth <= 0.0) continue;
    row["seconds_bound"] = kernels.bound;
    row["bound"] = by_flops >= by_bytes ? "products" : "memory";
    row["share_of_bound"] = ratio(kernels.bound, kernels.seconds);
  }
  return list;
}

Json Efficiency::identity_json() const {
  Json factors = Json::array(), quantities = Json::object();
  for (const Factor& factor : factors_) {
    factors.push_back(json_of(factor));
    quantities[factor.denominator.name] = factor.denominator.flops;
    quantities[factor.numerator.name] = factor.numerator.flops;
  }
  return {{"goodput", goodput()},
          {"product", product()},
          {"factors", std::move(factors)},
          {"quantities_flops", std::move(quantities)}};
}

// Only against another run could one say how computation scales.
Json Efficiency::pop_json() const {
  return {{"parallel_efficiency", parallel()},
          {"load_balance", factor(kLoadBalance).value()},
          {"communication_efficiency", communication()},
          {"serialisation", factor(kSerialisation).value()},
          {"transfer", factor(kTransfer).value()},
          {"computation_scaling", nullptr},
          {"global_efficiency", nullptr}};
}

Json Efficiency::losses_json() const {
  const auto place = [](int number) { return number < 0 ? Json() : Json(number); };
  Json losses = Json::array();
  for (const Loss& loss : losses_) {
    losses.push_back({{"name", loss.name},
                      {"share", loss.share},
                      {"rank", place(loss.rank)},
                      {"stage", place(loss.stage)},
                      {"advice", loss.advice}});
  }
  return losses;
}

Json Efficiency::rates_json() const {
  const Account& account = facts_.account;
  const double step = ratio(account.step_seconds(), account.steps * facts_.ranks);
  const double per_device = account.step_seconds() * 1e12;
  return {
      {"step_seconds_mean", step},
      {"tokens_per_second", ratio(account.tokens, step * account.steps)},
      {"model_tflops_per_device", ratio(account.flops.model, per_device)},
      {"hardware_tflops_per_device", ratio(account.flops.executed, per_device)},
      {"hardware_share_of_peak", ratio(account.flops.executed, account.device.stepping)}};
}

Json Efficiency::seconds_json() const {
  const Account& account = facts_.account;
  Json parts = Json::object(), axes = Json::object();
  for (const auto& [name, value] : account.seconds) parts[name] = value;
  for (const auto& [name, axis] : account.axes) {
    axes[name] = {{"device_seconds", axis.seconds},
                  {"calls", axis.calls},
                  {"bytes", axis.bytes},
                  {"sampled_skew_seconds", axis.skew},
                  {"sampled_transfer_seconds", axis.transfer},
                  {"sampled_bytes", axis.sampled_bytes}};
  }
  return {{"all", facts_.device_seconds},
          {"set_up", facts_.ready_seconds},
          {"parts", std::move(parts)},
          {"messages", std::move(axes)}};
}

Json Efficiency::histogram_json() const {
  Json bins = Json::array();
  for (const auto& [bin, count] : facts_.account.step_bins) {
    bins.push_back({{"seconds_from", Account::seconds_of_bin(bin)},
                    {"seconds_to", Account::seconds_of_bin(bin + 1)},
                    {"steps", count}});
  }
  return bins;
}

Json Efficiency::pipeline_json() const {
  if (!facts_.pipeline) return nullptr;
  const step::PipelineReport& report = *facts_.pipeline;
  Json pipeline = {{"stages", report.shape.stages},
                   {"chunks", report.shape.chunks},
                   {"microbatches", report.shape.microbatches},
                   {"schedule", config::name_of(report.schedule)},
                   {"bubble_share", report.measured_bubble()},
                   {"bubble_share_simulated", nullptr}};
  if (report.simulated) pipeline["bubble_share_simulated"] = report.simulated_bubble();
  return pipeline;
}

Json Efficiency::memory_json() const {
  Json memory = Json::object();
  for (const auto& [planned, row] : facts_.memory) {
    memory[row.name] = {{"bytes_planned", planned},
                        {"bytes_min", row.min},
                        {"bytes_avg", row.avg},
                        {"bytes_max", row.max}};
  }
  return memory;
}

Json Efficiency::energy_json() const {
  const Account& account = facts_.account;
  if (account.metered_tokens <= 0.0) return nullptr;
  return {{"joules", account.joules},
          {"tokens", account.metered_tokens},
          {"joules_per_token", account.joules / account.metered_tokens}};
}

Json Efficiency::machine_json() const {
  Json links = Json::array();
  for (const LinkSpeed& link : facts_.links) {
    links.push_back({{"axis", link.axis},
                     {"ranks", link.ranks},
                     {"latency_seconds", link.latency},
                     {"payload_bytes_per_second", link.bytes_per_second},
                     {"slowest_rank", link.slowest_rank}});
  }
  std::vector<std::string> hosts;
  for (const std::string& host : facts_.hosts) {
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  Json clock = nullptr;
  const auto slowest = std::ranges::min_element(facts_.hertz);
  if (slowest != facts_.hertz.end() && *slowest > 0.0) {
    double mean = 0.0;
    for (const double hertz : facts_.hertz) {
      mean += hertz / static_cast<double>(facts_.hertz.size());
    }
    clock = {{"gigahertz", 1e-9 * mean},
             {"gigahertz_least", 1e-9 * *slowest},
             {"slowest_rank", slowest - facts_.hertz.begin()}};
  }
  return {{"hosts", std::move(hosts)},
          {"clock", std::move(clock)},
          {"peak_tflops", 1e-12 * facts_.peak},
          {"memory_gigabytes_per_second",
           facts_.bandwidth > 0.0 ? Json(1e-9 * facts_.bandwidth) : Json()},
          {"links", std::move(links)}};
}

std::string Efficiency::json() const {
  const Json run = {{"directory", facts_.run_directory},
                    {"start", facts_.start},
                    {"starts", facts_.starts},
                    {"step", facts_.step},
                    {"steps", facts_.steps},
                    {"devices", facts_.ranks},
                    {"compute", name_of(facts_.type)}};
  const Json json = {
      {"schema_version", kSchemaVersion},
      {"complete", facts_.is_complete},
      {"time", facts_.time},
      {"run", run},
      {"machine", machine_json()},
      {"identity", identity_json()},
      {"pop", pop_json()},
      {"losses", losses_json()},
      {"rates", rates_json()},
      {"energy", energy_json()},
      {"steps", facts_.account.steps},
      {"samples", facts_.account.samples},
      {"tokens", facts_.account.tokens},
      {"device_seconds", seconds_json()},
      {"step_histogram", histogram_json()},
      {"this_start", ranks_json()},
      {"kernels",
       {{"steps_profiled", facts_.profiled_steps}, {"classes", kernels_json()}}},
      {"pipeline", pipeline_json()},
      {"memory", memory_json()}};
  return io::json_text(json, 2) + "\n";
}

}  // namespace trireme::report
