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
#include <ranges>

#include "base/error.hpp"
#include "base/format.hpp"
#include "report/ratio.hpp"

namespace trireme::report {

namespace {

constexpr std::size_t kShownLosses = 3;
constexpr int kMeaningColumn = 27;  // of the table
// A rank stands out that has this many times as much of something as the others.
constexpr double kStandsOut = 1.1;
// Of the slowest rank the others' waits are said to be from this share of all time on.
constexpr double kNamed = 0.005;
// Seconds of a run of which the beginning says nothing of a long one.
constexpr double kShortRun = 600.0;

constexpr const char* kSetUp = "set_up";
constexpr const char* kEffectiveTime = "effective_time";
constexpr const char* kOrchestration = "orchestration";
constexpr const char* kTransfer = "transfer";
constexpr const char* kSerialisation = "serialisation";
constexpr const char* kLoadBalance = "load_balance";
constexpr const char* kFlopRate = "flop_rate";
constexpr const char* kUsefulFlops = "useful_flops";

double amount_of(const Amounts& amounts, std::string_view name) {
  const auto found = amounts.find(std::string(name));
  return found == amounts.end() ? 0.0 : found->second;
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
    {kSetUp, "longer starts; corpus and checkpoints on a faster disk"},
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
  std::vector<LostPart> between = {{kSetUp, facts_.ready_flops}};
  double known = facts_.ready_flops;
  for (const TimePart part : kPartsBetweenSteps) {
    double lost = amount_of(device.between, name_of(part));
    // Starts end with a checkpoint, which what they save does not know of.
    if (part == TimePart::checkpoint) lost += facts_.ending_flops;
    between.push_back({std::string(name_of(part)), lost});
    known += lost;
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

std::optional<double> Efficiency::computation_scaling() const {
  const Account& account = facts_.account;
  const double seconds = amount_of(account.seconds, name_of(TimePart::passes)) +
                         amount_of(account.seconds, name_of(TimePart::optimizer));
  if (!facts_.reference || seconds <= 0.0) return {};
  return facts_.reference->kernel_seconds_of_sample * account.samples / seconds;
}

std::optional<double> Efficiency::global() const {
  const std::optional<double> scaling = computation_scaling();
  return scaling ? std::optional(*scaling * parallel()) : scaling;
}

int Efficiency::outstanding_rank(TimePart part) const {
  std::vector<double> seconds;
  for (const PartSeconds& rank : facts_.rank_seconds) seconds.push_back(rank[part]);
  return report::outstanding_rank(seconds, kStandsOut);
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
    const double balance = amount_of(device.balance, name);
    const double beside = amount_of(device.beside, name);
    const bool is_uneven = balance > std::max(beside, kNamed * facts_.capacity);
    add_loss(name, balance + beside, is_uneven ? slowest_rank() : outstanding_rank(part));
  }
  for (const LostPart& part : factor(kUsefulFlops).parts) {
    add_loss(part.name, part.flops, -1);
  }
  std::ranges::stable_sort(losses_, std::ranges::greater(), &Loss::share);
}

// What only the beginning of a start takes, in a run of minutes: it would be nothing in
// one of days.
bool Efficiency::is_of_beginning(const Loss& loss) const {
  return facts_.device_seconds < kShortRun * static_cast<double>(facts_.ranks) &&
         (loss.name == kSetUp || loss.name == name_of(TimePart::warm_up));
}

// Those of the table, where what is of the beginning stands behind the others.
std::vector<Loss> Efficiency::shown_losses() const {
  std::vector<Loss> shown = losses_;
  std::ranges::stable_partition(
      shown, [this](const Loss& loss) { return !is_of_beginning(loss); });
  shown.resize(std::min(kShownLosses, shown.size()));
  return shown;
}

// A device's 10^12 operations a second while steps stand.
double Efficiency::tflops_of(double flops) const {
  return 1e-12 * ratio(flops, facts_.account.step_seconds());
}

// 0 where that peak is not known.
double Efficiency::share_of_nominal_peak() const {
  return ratio(facts_.account.flops.executed,
               facts_.account.step_seconds() * facts_.nominal_peak);
}

std::string Efficiency::rates_text() const {
  const Account& account = facts_.account;
  std::string meaning = fmt::format(
      "of the measured peak, in steps: {} a device, of which {} are the model's",
      format_flops(tflops_of(account.flops.executed)),
      format_flops(tflops_of(account.flops.model)));
  if (facts_.nominal_peak > 0.0) {
    meaning +=
        fmt::format("; {} of the nominal peak", format_percent(share_of_nominal_peak()));
  }
  return fmt::format(
      "  {:<16}{:>7}  {}\n", "hardware FLOPs",
      format_percent(ratio(account.flops.executed, account.device.stepping)),
      wrap_words(meaning, kScreenColumns, kMeaningColumn));
}

std::string Efficiency::pop_text() const {
  std::string text;
  const auto row = [&text](const char* label, double value, const std::string& meaning) {
    text += fmt::format("  {:<16}{:>7}  {}\n", label, format_percent(value),
                        wrap_words(meaning, kScreenColumns, kMeaningColumn));
  };
  row("parallel (POP)", parallel(), "transfer x serialisation x load balance");
  const std::optional<double> scaling = computation_scaling();
  if (!scaling) return text;
  row("computation", *scaling,
      fmt::format("scaling: kernel seconds of a sample in '{}' over those here",
                  facts_.reference->path));
  row("global (POP)", *global(), "parallel x computation");
  return text;
}

// Of a class of kernels, which of the two roofs is the nearer one.
const char* Efficiency::roof_of(const KernelClass& kernels) const {
  const double by_flops = ratio(kernels.needed_flops, facts_.peak);
  return by_flops >= ratio(kernels.bytes, facts_.bandwidth) ? "products" : "memory";
}

std::string Efficiency::roofline_text() const {
  if (facts_.bandwidth <= 0.0) return {};
  std::string text = fmt::format("{:<18}{:>9}{:>10}  {}\n", "Kernels of a step", "time",
                                 "of bound", "bound by the speed of");
  for (std::size_t i = 0; i < kKernelKinds; ++i) {
    const KernelClass& kernels = facts_.kernels[i];
    if (kernels.calls <= 0.0) continue;
    text += fmt::format("  {:<16}{:>9}{:>10}  {}\n", name_of(static_cast<KernelKind>(i)),
                        format_duration(kernels.seconds),
                        format_percent(ratio(kernels.bound, kernels.seconds)),
                        roof_of(kernels));
  }
  return text;
}

std::string Efficiency::links_text() const {
  if (facts_.links.empty()) return {};
  std::string text =
      fmt::format("{:<18}{:>12}{:>12}\n", "Messages along", "reached", "the probe");
  const auto rate = [](double bytes, double seconds) {
    return seconds > 0.0 ? format_bytes(bytes / seconds) + "/s" : std::string("-");
  };
  for (const LinkSpeed& link : facts_.links) {
    const auto found = facts_.account.axes.find(link.axis);
    const AxisSum axis = found != facts_.account.axes.end() ? found->second : AxisSum{};
    text += fmt::format("  {:<16}{:>12}{:>12}\n", link.axis,
                        rate(axis.sampled_bytes, axis.transfer),
                        rate(link.bytes_per_second, 1.0));
  }
  return text;
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
  text += rates_text() + pop_text();
  text += "Largest losses\n";
  for (const Loss& loss : shown_losses()) {
    std::string where;
    if (loss.rank >= 0)
      where = fmt::format(" (rank {}, stage {})", loss.rank, loss.stage);
    text += fmt::format("  {:<16}{:>7}  {}\n", loss.name, format_percent(loss.share),
                        wrap_words(loss.advice + where, kScreenColumns, kMeaningColumn));
  }
  return text + roofline_text() + links_text();
}

}  // namespace trireme::report
