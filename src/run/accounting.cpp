// run/accounting.cpp — see accounting.hpp.
//
// Ranks measure by themselves; every kInterval steps, and before each checkpoint, what
// they have goes to rank 0 in one message, and only rank 0 knows what all have come to.
// The account of earlier starts is in the checkpoint that this one goes on from. A run
// that branches off another begins a new one: its directory lists other starts, and their
// wall time is not its own.
#include "run/accounting.hpp"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ranges>
#include <utility>

#include "base/device.hpp"
#include "base/host_name.hpp"
#include "base/wall_time.hpp"
#include "comm/communicator.hpp"
#include "io/json.hpp"
#include "model/blueprint.hpp"
#include "nn/embedding.hpp"
#include "report/kernel_classes.hpp"
#include "report/message_waits.hpp"
#include "report/site_messages.hpp"

namespace trireme::run {

namespace {

// The account that a checkpoint has; a new one where it has none, or another run's, which
// this one branched off from. All starts of the directory are of the run then, also those
// that ended before there was a checkpoint; but not those of a program that kept none.
report::Account past_account(const std::string& text,
                             const std::vector<report::StartRecord>& starts) {
  constexpr double kSame = 1e-6;
  try {
    if (!text.empty()) {
      auto account =
          report::Account::of_json(io::parse_json<nlohmann::ordered_json>(text));
      const auto is_its = [&account](const report::StartRecord& start) {
        return std::abs(start.began - account.began) < kSame;
      };
      if (std::ranges::any_of(starts, is_its)) return account;
    }
  } catch (const io::JsonError&) {  // of another program
  }
  report::Account fresh;
  const bool kept_none = text.empty() && starts.back().first_step > 0;
  fresh.began = kept_none ? starts.back().began : starts.front().began;
  return fresh;
}

// Of a sample: products of heads with rows of the vocabulary that stand for no word,
// forward and twice backward.
double padding_flops(const model::Blueprint& blueprint, index_t ranks) {
  const model::SharedTable& table = blueprint.vocabulary_table();
  const index_t words = (table.rows + ranks - 1) / ranks;
  const index_t rows = (words + nn::kVocabularyMultiple - 1) / nn::kVocabularyMultiple *
                       nn::kVocabularyMultiple * ranks;
  index_t positions = 0;
  for (const model::BlockSpec& block : blueprint.blocks) {
    if (block.objective < 0 || block.table != table.name) continue;
    positions += blueprint.batch.streams.at(extent(block.stream)).sequence;
  }
  constexpr double kFlops = 3 * 2;
  return kFlops * static_cast<double>((rows - table.rows) * table.columns) *
         static_cast<double>(positions);
}

// Of ranks that share a host or a device one reads its energy.
bool is_first_of(const std::vector<std::string>& names, int rank) {
  const auto first = std::ranges::find(names, names.at(static_cast<std::size_t>(rank)));
  return first - names.begin() == rank;
}

// The device whose energy this rank reads; empty where it has none, or another reads it.
// Collective.
std::string metered_device(comm::Communicator& world) {
  const std::optional<Device> device = current_device();
  const std::string uuid = device ? device->uuid : std::string();
  return is_first_of(world.gather(uuid), world.rank()) ? uuid : std::string();
}

report::SampleFlops sample_flops(const Accounting::Setting& setting) {
  const model::Blueprint& blueprint = setting.replica.part().blueprint;
  return {.model = blueprint.model_flops(),
          .padding = padding_flops(blueprint, setting.grid.shape().tensor),
          .executed = setting.executed_flops};
}

report::RankAccount::Sources sources_of(const Accounting::Setting& setting) {
  report::RankAccount::Sources sources{.timers = setting.replica.timers(),
                                       .groups = setting.replica.part().groups,
                                       .profile = setting.profile};
  if (setting.replica.is_asynchronous()) {
    sources.pass_seconds = [&replica = setting.replica] {
      return replica.pass_seconds();
    };
  }
  return sources;
}

}  // namespace

Accounting::Accounting(const Setting& setting, const std::string& past,
                       const report::RunHistory* history)
    : setting_(setting),
      timers_(setting.replica.timers()),
      world_(*setting.grid.groups().world),
      rank_(sources_of(setting)),
      hosts_(world_.gather(host_name())),
      meter_(is_first_of(hosts_, world_.rank())),
      device_energy_(metered_device(world_)),
      history_(history) {
  // More than a step of hundreds of layers and micro-batches has.
  constexpr std::size_t kMostMessages = 8192;
  for (comm::Group* group : setting.replica.part().groups.all()) {
    if (group->size() == 1) continue;
    recorded_.push_back({group, comm::MessageTimes(kMostMessages)});
  }
  if (world_.any(!recorded_.empty())) {
    clock_.emplace(world_);
    reading_ = clock_->read();
  }
  if (world_.any(meter_.has_energy())) meters_.emplace_back("processors");
  if (world_.any(device_energy_.is_known())) meters_.emplace_back("devices");
  metered_share_ = metered_share();
  if (history == nullptr) return;
  past_ = past_account(past, history->starts());
  start_.emplace(setting.grid.shape(), rank_.axes(), sample_flops(setting),
                 setting.replica.part().groups.tied_stages());
}

// A rank's energy is known where that of its device is or, without one, its host's.
// Collective.
double Accounting::metered_share() {
  const std::vector<std::int64_t> of_hosts =
      world_.gather(std::int64_t{meter_.has_energy() ? 1 : 0});
  const std::vector<std::int64_t> of_devices =
      world_.gather(std::int64_t{device_energy_.is_known() ? 1 : 0});
  double metered = 0.0;
  for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
    const auto host = std::ranges::find(hosts_, hosts_[rank]) - hosts_.begin();
    if (of_devices[rank] + of_hosts[static_cast<std::size_t>(host)] > 0) metered += 1.0;
  }
  return metered / static_cast<double>(hosts_.size());
}

Accounting::InSteps::InSteps(Accounting& owner)
    : owner_(owner), phase_(owner.timers_, Phase::step) {
  owner_.is_in_steps_ = true;
  owner_.rank_.enter_steps();
}

Accounting::InSteps::~InSteps() {
  owner_.rank_.leave_steps();
  owner_.is_in_steps_ = false;
}

Accounting::Beside::Beside(Accounting& owner, Phase phase)
    : owner_(owner), is_in_steps_(owner.is_in_steps_), phase_(owner.timers_, phase) {
  if (!is_in_steps_) return;
  owner_.rank_.leave_steps();
  owner_.close_records();
}

Accounting::Beside::~Beside() {
  if (is_in_steps_) owner_.rank_.enter_steps();
}

void Accounting::note_report(index_t samples, index_t tokens, bool is_skipped) {
  samples_.all += static_cast<double>(samples);
  samples_.tokens += static_cast<double>(tokens);
  if (is_skipped) samples_.skipped += static_cast<double>(samples);
}

void Accounting::record_messages() {
  if (ends_to_split_ > 0) return;  // those of a step before are still waited for
  for (Recorded& of : recorded_) {
    of.times.clear();
    of.group->record_to(&of.times);
  }
  ends_to_split_ = 2;
}

void Accounting::close_records() {
  for (Recorded& of : recorded_) of.times.close();
}

// All ranks record the same steps. Clocks are read again behind each of them, so that it
// lies between two readings.
void Accounting::split_recorded() {
  ends_to_split_ = 0;
  for (const Recorded& of : recorded_) of.group->record_to(nullptr);
  if (!clock_) return;
  const report::ClockReading before = std::exchange(reading_, clock_->read());
  for (const Recorded& of : recorded_) {
    rank_.add_waits(*of.group,
                    report::split_waits(of.group->control(), of.times, before, reading_));
  }
}

void Accounting::end_step(std::int64_t step) {
  rank_.end_step(step);
  meter_.look();
  close_records();
  if (ends_to_split_ > 0 && --ends_to_split_ == 0) split_recorded();
  ++gathered_steps_;
  if (--left_ <= 0) {
    gather();
    choose_interval();
  }
}

// The same on all ranks, whose clocks differ by a little. Twice the last at most: of the
// first steps of a start some are long.
void Accounting::choose_interval() {
  const auto now = Timers::Clock::now();
  const std::chrono::duration<double> passed = now - std::exchange(gathered_, now);
  const std::int64_t steps = std::exchange(gathered_steps_, 0);
  const double step =
      world_.all_reduce(passed.count() / static_cast<double>(steps), comm::Op::max);
  const double fitting =
      std::clamp(kIntervalSeconds / step, 1.0,
                 static_cast<double>(std::min(2 * interval_, kInterval)));
  left_ = interval_ = static_cast<std::int64_t>(fitting);
}

void Accounting::gather() {
  report::RankAccount::Taken mine = rank_.take();
  mine.joules = meter_.take_joules() + device_energy_.take_joules();
  mine.hertz = meter_.hertz();
  const std::vector<std::string> all = world_.gather_to_first(bytes_of(mine));
  const report::StartAccount::Samples samples = std::exchange(samples_, {});
  if (!start_) return;
  std::vector<report::RankAccount::Taken> ranks;
  ranks.reserve(all.size());
  for (const std::string& bytes : all) {
    ranks.push_back(report::taken_from_bytes(bytes, rank_.axes().size()));
  }
  start_->add(ranks, samples, metered_share_);
  look_for_slow_steps(ranks);
}

// What is usual is the mean of the start's other steps so far.
void Accounting::look_for_slow_steps(
    const std::vector<report::RankAccount::Taken>& ranks) {
  const auto& steps = ranks.front().steps;
  for (const report::RankAccount::Step& step : steps) {
    slow_steps_.add(step.number, step.seconds.step());
  }
  const std::optional<report::SlowStep> slow = slow_steps_.take();
  if (!slow || start_->steps() <= 1.0 || !setting_.say) return;
  const auto found =
      std::ranges::find(steps, slow->step, &report::RankAccount::Step::number);
  if (found == steps.end()) return;
  const auto i = static_cast<std::size_t>(found - steps.begin());
  std::vector<report::PartSeconds> excess;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const report::PartSeconds& mine = ranks[r].steps[i].seconds;
    report::PartSeconds others = mine;  // less those of the step itself
    others *= -1.0;
    others += start_->ranks()[r];
    others *= -1.0 / (start_->steps() - 1.0);
    excess.push_back(mine);
    excess.back() += others;
  }
  setting_.say(describe(*slow, excess, rank_.axes()));
}

report::Account Accounting::account(double peak) const {
  report::Account account = past_;
  account += start_->account(peak, stretch_);
  return account;
}

std::string Accounting::text(double peak) const {
  return start_ ? io::exact_json_text(account(peak).json()) : std::string();
}

std::optional<step::PipelineReport> Accounting::replay() {
  const auto report = setting_.replica.pipeline_report(rank_.passes_of_a_step());
  if (!report) return report;
  // Of all copies of the pipeline the slowest counts, and behind its passes the update.
  const double update = world_.all_reduce(
      setting_.profile.kernel_seconds().optimizer_of_a_step(), comm::Op::max);
  const double ideal = world_.all_reduce(report->ideal, comm::Op::max) + update;
  const double work = world_.all_reduce(report->ideal_work, comm::Op::max) + update;
  stretch_ = work > 0.0 ? std::max(1.0, ideal / work) : 1.0;
  return report;
}

report::EfficiencyFacts Accounting::facts(double peak) const {
  const report::DeviceTime time =
      report::device_time(history_->starts(), past_.began, peak, history_->now());
  const comm::GridShape& shape = setting_.grid.shape();
  report::EfficiencyFacts facts{
      .time = iso_time(wall_seconds()),
      .grid = shape,
      .start = history_->starts().back().number,
      .starts = time.starts,
      .ranks = world_.size(),
      .peak = peak,
      .account = account(peak),
      .capacity = time.flops,
      .device_seconds = time.seconds,
      .ready_seconds = time.ready,
      .ready_flops = time.ready_flops,
      .ending_flops = time.ending_flops,
      .steps_of_start = static_cast<std::int64_t>(start_->steps()),
      .axes = start_->axes(),
      .rank_seconds = start_->ranks()};
  facts.tied_stages = setting_.replica.part().groups.tied_stages();
  facts.meters = meters_;
  facts.hosts = hosts_;
  facts.hertz = start_->hertz();
  facts.slowest_saver = start_->slowest_saver();
  for (const std::string& axis : facts.axes) {
    facts.slowest_senders.push_back(start_->slowest_sender(axis));
  }
  for (int rank = 0; rank < shape.size(); ++rank) {
    facts.stages.push_back(comm::coordinates_of(shape, rank).pipeline);
  }
  return facts;
}

std::optional<report::EfficiencyFacts> Accounting::finish(
    const report::MachineSpeed& speed) {
  if (ends_to_split_ > 0) split_recorded();
  gather();
  const double peak = world_.all_reduce(speed.flops) / static_cast<double>(world_.size());
  const auto kernels = report::mean_of_ranks(
      world_, report::classes_of(setting_.profile.of_rank(speed, 0.0)));
  auto sites = report::messages_by_site(setting_.replica.part().groups);
  if (!start_) return {};
  report::EfficiencyFacts facts = this->facts(peak);
  facts.sites = std::move(sites);
  facts.is_complete = true;
  facts.bandwidth = speed.bytes;
  facts.profiled_steps = setting_.profile.steps();
  facts.kernels = *kernels;
  return facts;
}

}  // namespace trireme::run
