// report/efficiency_json.cpp — efficiency.json, whose fields docs/efficiency.md explains.
// What is not known is null, so that no reader takes a zero for a measurement. Rows of
// single ranks end where there are hundreds, as a report of ten thousand must be read,
// too: stages have means and extremes instead.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>

#include "base/error.hpp"
#include "comm/process_groups.hpp"
#include "config/enums.hpp"
#include "io/json.hpp"
#include "report/efficiency.hpp"
#include "report/efficiency_schema.hpp"
#include "report/ratio.hpp"
#include "report/run_report.hpp"

namespace trireme::report {

namespace {

using Json = nlohmann::ordered_json;

// Ranks of which each has its own row; of more, the stages' means and extremes remain.
constexpr std::size_t kMostRankRows = 256;

Json grid_json(const comm::GridShape& grid) {
  Json order = Json::array();
  for (const config::Axis axis : grid.order) order.push_back(config::name_of(axis));
  return {{"tensor", grid.tensor},
          {"context", grid.context},
          {"data", grid.data},
          {"pipeline", grid.pipeline},
          {"order", std::move(order)}};
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
    const auto is_of = [&](int rank) {
      return facts_.stages[static_cast<std::size_t>(rank)] == stage;
    };
    stages.push_back({{"stage", stage},
                      {"ranks", count},
                      {"slowest_rank", slowest},
                      {"seconds", json_of(sum, facts_.axes, steps * count)},
                      {"extremes", extremes_json(stage)},
                      {"memory", memory_json(facts_.memory, is_of)}});
  }
  for (std::size_t r = 0; ranks.size() <= kMostRankRows && r < ranks.size(); ++r) {
    rows.push_back({{"rank", r},
                    {"stage", facts_.stages.at(r)},
                    {"seconds", json_of(ranks[r], facts_.axes, steps)}});
  }
  return {{"steps", facts_.steps_of_start},
          {"stages", stages},
          {"ranks", rows},
          {"messages", sites_json()}};
}

// Of a step, by part and axis: the least and the most of the stage's ranks.
Json Efficiency::extremes_json(int stage) const {
  Json extremes = Json::object();
  const auto steps = static_cast<double>(facts_.steps_of_start);
  for (std::size_t r = 0; r < facts_.rank_seconds.size(); ++r) {
    if (facts_.stages[r] != stage) continue;
    const Json seconds = json_of(facts_.rank_seconds[r], facts_.axes, steps);
    for (const auto& [name, value] : seconds.items()) {
      Json& of = extremes[name];
      if (of.is_null()) of = {{"least", value}, {"most", value}, {"rank_most", r}};
      if (value < of["least"]) of["least"] = value;
      if (value > of["most"]) {
        of["most"] = value;
        of["rank_most"] = r;
      }
    }
  }
  return extremes;
}

Json Efficiency::sites_json() const {
  Json sites = Json::array();
  for (const SiteMessages& site : facts_.sites) {
    sites.push_back({{"axis", site.axis},
                     {"site", site.site},
                     {"operation", site.operation},
                     {"ranks", site.ranks},
                     {"calls", site.calls},
                     {"bytes", site.bytes}});
  }
  return sites;
}

Json Efficiency::kernels_json() const {
  Json list = Json::array();
  for (std::size_t i = 0; i < kKernelKinds; ++i) {
    const KernelClass& kernels = facts_.kernels[i];
    if (kernels.calls <= 0.0) continue;
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
    row["bound"] = roof_of(kernels);
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

Json Efficiency::pop_json() const {
  const auto known = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  return {{"parallel_efficiency", parallel()},
          {"load_balance", factor("load_balance").value()},
          {"communication_efficiency", communication()},
          {"serialisation", factor("serialisation").value()},
          {"transfer", factor("transfer").value()},
          {"computation_scaling", known(computation_scaling())},
          {"global_efficiency", known(global())},
          {"reference", facts_.reference ? Json(facts_.reference->path) : Json()}};
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
  const double step = ratio(account.seconds_of_steps, account.steps);
  return {
      {"step_seconds_mean", step},
      {"tokens_per_second", ratio(account.tokens, step * account.steps)},
      {"model_tflops_per_device", tflops_of(account.flops.model)},
      {"hardware_tflops_per_device", tflops_of(account.flops.executed)},
      {"hardware_share_of_peak", ratio(account.flops.executed, account.device.stepping)},
      {"hardware_share_of_nominal_peak",
       facts_.nominal_peak > 0.0 ? Json(share_of_nominal_peak()) : Json()}};
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

Json Efficiency::energy_json() const {
  const Account& account = facts_.account;
  if (account.metered_tokens <= 0.0) return nullptr;
  return {{"meters", facts_.meters},
          {"joules", account.joules},
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
          {"nominal_peak_tflops",
           facts_.nominal_peak > 0.0 ? Json(1e-12 * facts_.nominal_peak) : Json()},
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
                    {"grid", grid_json(facts_.grid)},
                    {"tied_stages", facts_.tied_stages},
                    {"compute", name_of(facts_.type)}};
  const Json json = {
      {"schema_version", kEfficiencySchema},
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
      {"pipeline", pipeline_json(facts_.pipeline)},
      {"memory", memory_json(facts_.memory)}};
  return io::json_text(json, 2) + "\n";
}

}  // namespace trireme::report
