// report/banner.cpp — see banner.hpp.
//
// Each line of the banner is a function from the facts to the parts of that line, and a
// part is added only where its fact is known: what is not known is left out, and so is a
// line without parts. Lines are wrapped where they are long, behind a label of fixed
// width, so that logs of different runs can be read side by side.
#include "report/banner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

#include "base/format.hpp"
#include "base/words.hpp"
#include "comm/rank_grid.hpp"
#include "model/facts.hpp"
#include "step/deck_model.hpp"

namespace trireme::report {

namespace {

constexpr int kLabelColumns = 14;

// The parts of one line; unwanted ones are left out.
class Line {
 public:
  template <class... Args>
  void add(bool wanted, fmt::format_string<Args...> format, Args&&... args) {
    if (wanted) parts_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  void put(std::string& out, const char* label) const {
    if (parts_.empty()) return;
    out += fmt::format("  {:<{}}", label, kLabelColumns - 2);
    out += wrap_list(parts_, kScreenColumns, kLabelColumns) + '\n';
  }

 private:
  std::vector<std::string> parts_;
};

std::string count_text(std::int64_t count, std::string_view unit) {
  return format_count(static_cast<double>(count), unit);
}

Line model_line(const BannerInfo& info) {
  Line line;
  line.add(true, "{}", count_text(info.parameters, "parameter"));
  for (const std::string& fact : model::facts_of(info.deck.model).line) {
    line.add(true, "{}", fact);
  }
  return line;
}

Line grid_line(const BannerInfo& info) {
  const comm::GridShape grid = step::grid_shape(info.deck);
  const int ranks = grid.size();
  Line line;
  line.add(true, "{}", format_plural(ranks, "rank"));
  line.add(info.hosts > 1, "{}", format_plural(info.hosts, "host"));
  line.add(ranks > 1, "{}", comm::to_string(grid));
  line.add(true, "{} per rank", format_plural(info.machine.threads, "thread"));
  line.add(!info.wait_policy.empty(), "{} while waiting", info.wait_policy);
  return line;
}

// Says how threads are bound, or which devices ranks have. Where nodes differ in many
// ways, a few of them tell enough.
void put_ways(const std::vector<std::string>& ways, const char* label, std::string& out) {
  constexpr std::size_t kShown = 4;
  const std::size_t count = ways.size();
  const auto put = [&](std::string_view text) {
    Line line;
    for (const std::string_view part : split(text, ", ")) line.add(true, "{}", part);
    line.put(out, label);
    label = "";
  };
  for (std::size_t i = 0; i < std::min(count, kShown); ++i) put(ways[i]);
  if (count > kShown) put(fmt::format("{} more (environment.json)", count - kShown));
}

Line machine_line(const BannerInfo& info) {
  const Machine& machine = info.machine;
  Line line;
  line.add(!machine.host.empty(), "{}", machine.host);
  line.add(!machine.device.empty(), "{}", machine.device);
  line.add(!machine.cpu.empty(), "{}", machine.cpu);
  line.add(!machine.isa.empty() && machine.device.empty(), "{}", machine.isa);
  line.add(true, "{}", format_plural(machine.cores, "core"));
  line.add(machine.memory_bytes > 0, "{}",
           format_bytes(static_cast<double>(machine.memory_bytes)));
  line.add(!machine.backend.empty(), "Kokkos {}", machine.backend);
  return line;
}

// What two runs of one version may differ in; all of it is in environment.json.
Line build_line(const BannerInfo& info) {
  const std::map<std::string_view, const char*> named = {
      {"compiler", ""},  {"kokkos", "Kokkos "}, {"mpi", ""}, {"hdf5", "HDF5 "},
      {"cuda", "CUDA "}, {"onednn", "oneDNN "}, {"blas", ""}};
  Line line;
  for (const auto& [name, value] : info.build) {
    if (const auto known = named.find(name); known != named.end()) {
      line.add(!value.empty(), "{}{}", known->second, value);
    } else if (name == "build_type") {
      line.add(value != "Release", "{}", value);
    }
  }
  return line;
}

Line precision_line(const BannerInfo& info) {
  Line line;
  const config::PrecisionConfig& precision = info.deck.precision;
  line.add(true, "{}", config::name_of(precision.compute));
  line.add(precision.gradients != config::Gradients::fp32, "gradients {}",
           config::name_of(precision.gradients));
  line.add(info.gemm_tflops > 0.0, "GEMM peak {} (measured)",
           format_flops(info.gemm_tflops));
  return line;
}

Line corpus_line(const BannerInfo& info) {
  Line line;
  for (const CorpusEpochs& corpus : info.corpora) line.add(true, "{}", corpus.path);
  line.add(true, "{} to train on", count_text(info.corpus_tokens, "token"));
  return line;
}

Line validation_line(const BannerInfo& info) {
  Line line;
  for (const BannerInfo::Set& set : info.validation) {
    line.add(true, "{}: {}", set.name, count_text(set.tokens, "token"));
  }
  return line;
}

Line batch_line(const BannerInfo& info) {
  const config::BatchConfig& batch = info.deck.batch;
  Line line;
  line.add(true, "{}", format_plural(batch.global, "sample"));
  line.add(true, "{}", format_plural(batch.global * info.deck.model.sequence, "token"));
  line.add(true, "micro-batches of {}", batch.micro);
  return line;
}

Line steps_line(const BannerInfo& info) {
  const config::Deck& deck = info.deck;
  const std::int64_t steps = deck.run.steps.steps;
  const double tokens = static_cast<double>(steps) *
                        static_cast<double>(deck.batch.global * deck.model.sequence);
  Line line;
  line.add(true, "{}", format_grouped(steps));
  line.add(true, "{}", format_count(tokens, "token"));
  if (info.corpora.size() == 1) {
    line.add(true, "{:.3g} epochs", info.corpora.front().epochs);
  }
  line.add(info.first_step > 0, "{} done before", format_grouped(info.first_step));
  const auto& limit = deck.run.time_limit;
  line.add(limit.has_value(), "time limit {}", format_duration(limit.value_or(0.0)));
  return line;
}

// Of a blend each corpus has epochs of its own.
Line epochs_line(const BannerInfo& info) {
  Line line;
  for (const CorpusEpochs& corpus : info.corpora) {
    line.add(info.corpora.size() > 1, "{}: {:.3g}", corpus.path, corpus.epochs);
  }
  return line;
}

Line checkpoints_line(const BannerInfo& info) {
  Line line;
  const config::CheckpointConfig& checkpoint = info.deck.checkpoint;
  line.add(true, "{}", checkpoint.dir);
  line.add(checkpoint.every.steps > 0, "every {}",
           format_plural(checkpoint.every.steps, "step"));
  return line;
}

}  // namespace

std::string banner(const BannerInfo& info) {
  std::string kind(config::name_of(info.deck.model.kind));
  for (char& c : kind) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string out = fmt::format("Trireme {}: training a {}\n", info.version, kind);
  model_line(info).put(out, "model");
  grid_line(info).put(out, "grid");
  put_ways(info.bindings, "binding", out);
  put_ways(info.devices, "devices", out);
  machine_line(info).put(out, "machine");
  build_line(info).put(out, "build");
  precision_line(info).put(out, "precision");
  Line attention;
  attention.add(!info.attention.empty(), "{}", info.attention);
  attention.put(out, "attention");
  corpus_line(info).put(out, "corpus");
  validation_line(info).put(out, "validation");
  batch_line(info).put(out, "batch");
  steps_line(info).put(out, "steps");
  epochs_line(info).put(out, "epochs");
  Line run;
  run.add(true, "{}", info.deck.run.dir);
  run.put(out, "run");
  checkpoints_line(info).put(out, "checkpoints");
  return out;
}

}  // namespace trireme::report
