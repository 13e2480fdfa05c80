// report/run_account.cpp — see run_account.hpp.
//
// Example of a step of eight ranks: each computes for 1.0 s, and the loader of rank 5
// keeps it waiting for 0.5 s more, so that the others wait for its messages. Of 12 device
// seconds of the step 12 are slowest_step (and ideal: messages took no time), 8.5 busy,
// and 8 computing. Balance loses 3.5, by input alone, as that is what rank 5 has more of
// than the mean; and the input itself 0.5. All of it is the loader of rank 5.
#include "report/run_account.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <ranges>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "comm/rank_grid.hpp"
#include "config/enums.hpp"
#include "io/json.hpp"

namespace trireme::report {

namespace {

using Json = nlohmann::ordered_json;
using config::Axis;

constexpr int kAccountSchema = 2;
constexpr double kMilli = 1e-3;
constexpr double kBinsPerDoubling = 8.0;
constexpr const char* kPipeline = "pipeline";
constexpr double kMuchMore = 2.0;
constexpr double kIsReason = 0.5;

template <class Map>
void add_all(Map& to, const Map& from) {
  for (const auto& [name, value] : from) to[name] += value;
}

double sum_of(const Amounts& amounts) {
  double sum = 0.0;
  for (const auto& [name, value] : amounts) sum += value;
  return sum;
}

// Amounts that add up to `whole`, as these do to something; equal ones where they are all
// zero.
void scale_to(Amounts& amounts, double whole) {
  const double sum = sum_of(amounts);
  const auto count = static_cast<double>(amounts.size());
  for (auto& [name, value] : amounts) {
    value = sum > 0.0 ? whole * value / sum : whole / count;
  }
}

Json json_of(const Amounts& amounts) {
  Json json = Json::object();
  for (const auto& [name, value] : amounts) json[name] = value;
  return json;
}

double number(const Json& of, const char* key) {
  return io::json_value<double>(of, key);
}

const Json& object(const Json& of, const char* key) {
  const auto found = of.find(key);
  if (found == of.end() || !found->is_object()) {
    throw io::JsonError(0, 0, fmt::format("no object under '{}'", key));
  }
  return *found;
}

Amounts amounts_of(const Json& of, const char* key) {
  Amounts amounts;
  const Json& json = object(of, key);
  for (const auto& [name, value] : json.items()) {
    amounts[name] = number(json, name.c_str());
  }
  return amounts;
}

// In which the ranks of a group differ, by the group's name in RankAccount; all ranks are
// one group of kWorldAxis.
std::vector<Axis> axes_within(std::string_view name) {
  for (const comm::GroupAxes& group : comm::group_axes()) {
    if (group.name == name) return group.within;
  }
  return {Axis::tensor, Axis::context, Axis::data, Axis::pipeline};
}

}  // namespace

int outstanding_rank(const std::vector<double>& values, double times) {
  if (values.size() < 2) return -1;
  const auto most = std::ranges::max_element(values);
  double others = -*most;
  for (const double value : values) others += value;
  const double mean = others / static_cast<double>(values.size() - 1);
  const bool stands_out = *most > 0.0 && *most > times * mean;
  return stands_out ? static_cast<int>(most - values.begin()) : -1;
}

DeviceFlops& DeviceFlops::operator+=(const DeviceFlops& other) {
  stepping += other.stepping;
  ideal += other.ideal;
  slowest_step += other.slowest_step;
  slowest_rank += other.slowest_rank;
  busy += other.busy;
  computing += other.computing;
  add_all(transfer, other.transfer);
  add_all(balance, other.balance);
  add_all(beside, other.beside);
  add_all(between, other.between);
  return *this;
}

DeviceFlops& DeviceFlops::operator*=(double factor) {
  for (double* value :
       {&stepping, &ideal, &slowest_step, &slowest_rank, &busy, &computing}) {
    *value *= factor;
  }
  for (Amounts* amounts : {&transfer, &balance, &beside, &between}) {
    for (auto& [name, value] : *amounts) value *= factor;
  }
  return *this;
}

AxisSum& AxisSum::operator+=(const AxisSum& other) {
  seconds += other.seconds;
  calls += other.calls;
  bytes += other.bytes;
  skew += other.skew;
  transfer += other.transfer;
  sampled_bytes += other.sampled_bytes;
  return *this;
}

FlopCounts& FlopCounts::operator+=(const FlopCounts& other) {
  model += other.model;
  skipped += other.skipped;
  padding += other.padding;
  executed += other.executed;
  return *this;
}

double Account::seconds_of_bin(int bin) {
  return kMilli * std::exp2(bin / kBinsPerDoubling);
}

int Account::bin_of(double seconds) {
  constexpr double kLeast = 1e-9;
  const double doublings = std::log2(std::max(seconds, kLeast) / kMilli);
  return static_cast<int>(std::floor(kBinsPerDoubling * doublings));
}

double Account::step_seconds() const {
  double sum = 0.0;
  for (const TimePart part : kBusyParts) {
    const auto found = seconds.find(std::string(name_of(part)));
    if (found != seconds.end()) sum += found->second;
  }
  for (const auto& [name, axis] : axes) sum += axis.seconds;
  return sum;
}

Account& Account::operator+=(const Account& other) {
  if (began == 0.0) began = other.began;
  steps += other.steps;
  samples += other.samples;
  tokens += other.tokens;
  seconds_of_steps += other.seconds_of_steps;
  joules += other.joules;
  metered_tokens += other.metered_tokens;
  flops += other.flops;
  device += other.device;
  add_all(seconds, other.seconds);
  add_all(axes, other.axes);
  add_all(step_bins, other.step_bins);
  return *this;
}

Json Account::json() const {
  Json of_axes = Json::object();
  for (const auto& [name, axis] : axes) {
    of_axes[name] = {{"seconds", axis.seconds},   {"calls", axis.calls},
                     {"bytes", axis.bytes},       {"skew", axis.skew},
                     {"transfer", axis.transfer}, {"sampled_bytes", axis.sampled_bytes}};
  }
  Json bins = Json::object();
  for (const auto& [bin, count] : step_bins) bins[std::to_string(bin)] = count;
  return {{"schema_version", kAccountSchema},
          {"began", began},
          {"steps", steps},
          {"samples", samples},
          {"tokens", tokens},
          {"seconds_of_steps", seconds_of_steps},
          {"joules", joules},
          {"metered_tokens", metered_tokens},
          {"flops",
           {{"model", flops.model},
            {"skipped", flops.skipped},
            {"padding", flops.padding},
            {"executed", flops.executed}}},
          {"device_flops",
           {{"stepping", device.stepping},
            {"ideal", device.ideal},
            {"slowest_step", device.slowest_step},
            {"slowest_rank", device.slowest_rank},
            {"busy", device.busy},
            {"computing", device.computing},
            {"transfer", json_of(device.transfer)},
            {"balance", json_of(device.balance)},
            {"beside", json_of(device.beside)},
            {"between", json_of(device.between)}}},
          {"seconds", json_of(seconds)},
          {"axes", std::move(of_axes)},
          {"step_bins", std::move(bins)}};
}

Account Account::of_json(const Json& json) {
  const double schema = number(json, "schema_version");
  if (schema != kAccountSchema) {
    throw io::JsonError(0, 0, fmt::format("an account of schema version {}", schema));
  }
  const Json& flops = object(json, "flops");
  const Json& device = object(json, "device_flops");
  Account account{.began = number(json, "began"),
                  .steps = number(json, "steps"),
                  .samples = number(json, "samples"),
                  .tokens = number(json, "tokens"),
                  .seconds_of_steps = number(json, "seconds_of_steps"),
                  .joules = number(json, "joules"),
                  .metered_tokens = number(json, "metered_tokens"),
                  .flops = {.model = number(flops, "model"),
                            .skipped = number(flops, "skipped"),
                            .padding = number(flops, "padding"),
                            .executed = number(flops, "executed")},
                  .device = {.stepping = number(device, "stepping"),
                             .ideal = number(device, "ideal"),
                             .slowest_step = number(device, "slowest_step"),
                             .slowest_rank = number(device, "slowest_rank"),
                             .busy = number(device, "busy"),
                             .computing = number(device, "computing"),
                             .transfer = amounts_of(device, "transfer"),
                             .balance = amounts_of(device, "balance"),
                             .beside = amounts_of(device, "beside"),
                             .between = amounts_of(device, "between")},
                  .seconds = amounts_of(json, "seconds")};
  const Json& axes = object(json, "axes");
  for (const auto& [name, axis] : axes.items()) {
    account.axes[name] = {.seconds = number(axis, "seconds"),
                          .calls = number(axis, "calls"),
                          .bytes = number(axis, "bytes"),
                          .skew = number(axis, "skew"),
                          .transfer = number(axis, "transfer"),
                          .sampled_bytes = number(axis, "sampled_bytes")};
  }
  const Json& bins = object(json, "step_bins");
  for (const auto& [bin, count] : bins.items()) {
    account.step_bins[std::atoi(bin.c_str())] =
        io::json_value<std::int64_t>(bins, bin.c_str());
  }
  return account;
}

StartAccount::StartAccount(const comm::GridShape& grid, std::vector<std::string> axes,
                           const SampleFlops& flops, const std::vector<int>& tied_stages)
    : ranks_(grid.size()),
      axes_(std::move(axes)),
      flops_(flops),
      totals_(static_cast<std::size_t>(ranks_), PartSeconds(axes_.size())),
      saving_(totals_.size(), 0.0),
      hertz_(saving_),
      begins_(axes_.size(), saving_),
      least_waits_(axes_.size(), 0.0) {
  for (const std::string& axis : axes_) {
    std::vector<int>& groups =
        group_of_.emplace_back(static_cast<std::size_t>(ranks_), -1);
    const std::vector<Axis> within = axes_within(axis);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (groups[static_cast<std::size_t>(rank)] >= 0) continue;
      for (const int member : comm::members_of(grid, within, rank)) {
        groups[static_cast<std::size_t>(member)] = rank;
      }
    }
    if (axis != comm::kTied) continue;
    for (int rank = 0; rank < ranks_; ++rank) {
      const int stage = comm::coordinates_of(grid, rank).pipeline;
      if (std::ranges::find(tied_stages, stage) == tied_stages.end()) {
        groups[static_cast<std::size_t>(rank)] = -1;
      }
    }
  }
}

void StartAccount::add(const std::vector<RankAccount::Taken>& ranks,
                       const Samples& samples, double metered_share) {
  TRIREME_REQUIRE(ranks.size() == totals_.size(), "an account of {} got {}",
                  format_plural(ranks_, "rank"), ranks.size());
  const std::size_t steps = ranks.front().steps.size();
  double joules = 0.0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    TRIREME_REQUIRE(ranks[r].steps.size() == steps, "rank {} has {}, rank 0 {}", r,
                    format_plural(static_cast<index_t>(ranks[r].steps.size()), "step"),
                    steps);
    totals_[r] += ranks[r].between;
    for (const TimePart part : kPartsBetweenSteps) {
      sums_.seconds[std::string(name_of(part))] += ranks[r].between[part];
      sums_.device.between[std::string(name_of(part))] += ranks[r].between[part];
    }
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      const AxisCounts& counts = ranks[r].counts.at(a);
      sums_.axes[axes_[a]] += AxisSum{.calls = counts.calls,
                                      .bytes = counts.bytes,
                                      .skew = counts.skew,
                                      .transfer = counts.transfer,
                                      .sampled_bytes = counts.sampled_bytes};
      begins_[a][r] += counts.begin;
    }
    saving_[r] += ranks[r].saving;
    hertz_[r] = ranks[r].hertz;
    joules += ranks[r].joules;
  }
  for (std::size_t step = 0; step < steps; ++step) add_step(ranks, step);
  sums_.joules += joules;
  if (joules > 0.0) sums_.metered_tokens += metered_share * samples.tokens;
  const double kept = samples.all - samples.skipped;
  sums_.flops += {.model = flops_.model * kept,
                  .skipped = flops_.model * samples.skipped,
                  .padding = flops_.padding * samples.all,
                  .executed = flops_.executed * samples.all};
  sums_.samples += samples.all;
  sums_.tokens += samples.tokens;
}

void StartAccount::add_step(const std::vector<RankAccount::Taken>& ranks,
                            std::size_t step) {
  double busiest = 0.0, longest = 0.0, all = 0.0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const PartSeconds& mine = ranks[r].steps[step].seconds;
    totals_[r] += mine;
    sums_.device.stepping += mine.step();
    sums_.device.busy += mine.busy();
    sums_.device.computing += mine.compute();
    busiest = std::max(busiest, mine.busy());
    longest = std::max(longest, mine.step());
    all += mine.step();
    for (const TimePart part : kBusyParts) {
      sums_.seconds[std::string(name_of(part))] += mine[part];
    }
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      sums_.axes[axes_[a]].seconds += mine.axes()[a];
    }
  }
  sums_.device.slowest_step += ranks_ * busiest;
  sums_.steps += 1.0;
  sums_.seconds_of_steps += all / ranks_;
  ++sums_.step_bins[Account::bin_of(longest)];
  // Who comes last waits for the transfer alone.
  std::vector<double> least(ranks.size());
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    std::ranges::fill(least, -1.0);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (group_of_[a][r] < 0) continue;
      double& of_group = least[static_cast<std::size_t>(group_of_[a][r])];
      const double wait = ranks[r].steps[step].seconds.axes()[a];
      of_group = of_group < 0.0 ? wait : std::min(of_group, wait);
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (group_of_[a][r] < 0) continue;
      least_waits_[a] += least[static_cast<std::size_t>(group_of_[a][r])];
    }
  }
}

Account StartAccount::account(double peak, double stretch) const {
  Account account = sums_;
  DeviceFlops& device = account.device;
  device.ideal = stretch * device.slowest_step;
  double most = 0.0;
  for (const PartSeconds& rank : totals_) most = std::max(most, rank.busy());
  device.slowest_rank = ranks_ * most;
  share_out(account);
  device *= peak;
  return account;
}

int StartAccount::slowest_saver() const {
  return outstanding_rank(saving_, kMuchMore);
}

int StartAccount::slowest_sender(const std::string& axis) const {
  const auto found = std::ranges::find(axes_, axis);
  if (found == axes_.end()) return -1;
  const auto a = static_cast<std::size_t>(found - axes_.begin());
  std::vector<int> members;  // of any group of the axis
  std::vector<double> begins;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (group_of_[a][static_cast<std::size_t>(rank)] < 0) continue;
    members.push_back(rank);
    begins.push_back(begins_[a][static_cast<std::size_t>(rank)]);
  }
  const int slowest = outstanding_rank(begins, kMuchMore);
  // What others wait for it is no longer than that.
  if (slowest < 0) return -1;
  const auto s = static_cast<std::size_t>(slowest);
  const double least = least_waits_[a] / static_cast<double>(members.size());
  return begins[s] >= kIsReason * least ? members[s] : -1;
}

// What each of three losses is by its reasons.
void StartAccount::share_out(Account& account) const {
  DeviceFlops& device = account.device;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const AxisSum& axis = account.axes[axes_[a]];
    double& transfer = device.transfer[axes_[a]];
    if (axis.skew + axis.transfer > 0.0) {
      transfer = axis.seconds * axis.transfer / (axis.skew + axis.transfer);
      continue;
    }
    transfer = least_waits_[a];
    // What a stage waits for the others' passes is no transfer.
    if (axes_[a] == kPipeline) {
      transfer = std::max(0.0, transfer - (device.ideal - device.slowest_step));
    }
  }
  if (sum_of(device.transfer) <= 0.0) {
    for (const std::string& axis : axes_) {
      device.transfer[axis] = account.axes[axis].seconds;
    }
  }
  scale_to(device.transfer, device.stepping - device.ideal);
  const auto slowest =
      std::ranges::max_element(totals_, std::ranges::less(), &PartSeconds::busy);
  for (const TimePart part : kBusyParts) {
    const std::string name(name_of(part));
    double mean = 0.0;
    for (const PartSeconds& rank : totals_) mean += rank[part] / ranks_;
    device.balance[name] = std::max(0.0, (*slowest)[part] - mean);
    if (part == TimePart::input || part == TimePart::host) {
      device.beside[name] = ranks_ * mean;
    }
  }
  scale_to(device.balance, device.slowest_rank - device.busy);
}

}  // namespace trireme::report
