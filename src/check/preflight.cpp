// check/preflight.cpp — see preflight.hpp.
//
// All ranks do each check together, and every rank judges all nodes by the same gathered
// times and errors. Nodes exchange messages in pairs, each with both of its neighbours
// in a ring: of 4 nodes first (0 1) and (2 3), then (3 0) and (1 2). If node 2 is slow,
// so are both pairs that it is in; nodes 1 and 3 have one fast pair each, and the better
// of a node's two times is the one that counts.
#include "check/preflight.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <system_error>

#include "base/error.hpp"
#include "base/error_message.hpp"
#include "base/exec.hpp"
#include "base/format.hpp"
#include "base/machine.hpp"
#include "base/temporary_name.hpp"
#include "base/wall_time.hpp"
#include "comm/group.hpp"
#include "kernels/initialize.hpp"
#include "kernels/machine_peaks.hpp"

namespace trireme::check {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kWrittenBytes = std::size_t{1} << 20;
constexpr index_t kExchanged = 1 << 18;  // elements of an all-reduce
constexpr int kExchanges = 3;            // the best counts

// A check, and when a node is slow in it: many times the median of the nodes, and by
// more than other users of a file system or network explain.
struct Check {
  const char* name;
  const char* what;
  double times, seconds;
};
constexpr std::array<Check, 4> kChecks = {
    {{"write", "writing, syncing and reading 1 MiB", 10.0, 2.0},
     {"memory", "taking the memory of the run", 10.0, 10.0},
     {"compute", "a matrix product", 2.0, 0.1},
     {"exchange", "an all-reduce of 1 MiB with a neighbour", 5.0, 0.02}}};
constexpr std::size_t kWrite = 0;

// What one rank found in one check.
struct Outcome {
  double seconds = 0.0;
  std::string problem;
};

template <class Work>
Outcome outcome_of(const Check& check, const PreflightOptions& options,
                   const Work& work) {
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  try {
    if (options.hook) options.hook(check.name);
    work();
  } catch (const std::exception& error) {
    outcome.problem = message_of(error);
  }
  outcome.seconds = seconds_since(start);
  return outcome;
}

void try_writing(const std::vector<io::Path>& directories, int rank) {
  for (const io::Path& directory : directories) {
    const io::Path file = temporary_name(io::existing_ancestor(directory) / "preflight");
    const std::string content(kWrittenBytes, static_cast<char>('a' + rank % 26));
    io::write_file(file, content);  // syncs
    const bool is_same = io::read_file(file) == content;
    std::error_code ignored;
    fs::remove(file, ignored);
    TRIREME_REQUIRE(is_same, "'{}' reads otherwise than it was written", file.string());
  }
}

// Leftovers of other jobs are what is looked for on a host. Memory of a device is taken.
void try_memory(double rank_bytes, double node_bytes) {
  if constexpr (kHostExecution) {
    const std::int64_t there = available_memory_now();
    TRIREME_REQUIRE(there <= 0 || node_bytes <= static_cast<double>(there),
                    "the run takes {} of this node, where {} are free",
                    format_bytes(node_bytes), format_bytes(static_cast<double>(there)));
  } else {
    const Exec exec;
    const DeviceArray<float> memory("trireme::check::preflight",
                                    static_cast<std::size_t>(rank_bytes) / sizeof(float));
    kernels::fill(exec, View1<float>(memory), 1.0f);
    exec.fence("preflight");
  }
}

// What neighbours sum must be the sum, and every rank of them times it.
void try_exchange(comm::Group& group, int leader, Outcome& outcome) {
  const Exec exec;
  const DeviceArray<float> values("trireme::check::preflight", kExchanged);
  const float mine = static_cast<float>(leader % 1024 + 1);
  const double expected = group.control().all_reduce(static_cast<double>(mine));
  double best = std::numeric_limits<double>::infinity();
  bool is_right = true;
  for (int i = 0; i < kExchanges; ++i) {
    kernels::fill(exec, View1<float>(values), mine);
    exec.fence("preflight");
    group.control().barrier();
    const auto start = std::chrono::steady_clock::now();
    group.all_reduce(exec, comm::span_of(View1<float>(values)), comm::Op::sum,
                     "preflight");
    exec.fence("preflight");
    best = std::min(best, seconds_since(start));
    const auto host =
        Kokkos::create_mirror_view_and_copy(Kokkos::DefaultHostExecutionSpace(), values);
    for (std::size_t e = 0; e < host.extent(0); ++e) is_right &= host(e) == expected;
  }
  outcome.seconds += best;
  if (!is_right) outcome.problem = "the sum with a neighbour is wrong";
}

// The nodes of a world: each spoken for by its first rank, in order of these.
struct Nodes {
  std::vector<std::string> names;
  std::vector<std::size_t> of_rank;  // index into names
  std::vector<int> first_rank;       // of each node

  Nodes(const std::vector<std::string>& host_of_rank,
        const std::vector<std::string>& name_of_rank) {
    std::vector<std::string> hosts;
    std::map<std::string, std::size_t> known;
    for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
      const auto [place, is_new] = known.emplace(host_of_rank[rank], hosts.size());
      of_rank.push_back(place->second);
      if (!is_new) continue;
      hosts.push_back(host_of_rank[rank]);
      names.push_back(name_of_rank[rank]);
      first_rank.push_back(static_cast<int>(rank));
    }
    const std::set<std::string> different(names.begin(), names.end());
    if (different.size() < names.size() || different.count("") > 0) names = hosts;
  }
};

// Pairs of neighbours in a ring, each node with both of its own: who is slow with one of
// them may wait for that one, who is slow with both is slow.
Outcome exchange(comm::Communicator& world, const Nodes& nodes,
                 const PreflightOptions& options) {
  const std::size_t node = nodes.of_rank[static_cast<std::size_t>(world.rank())];
  const bool leads = nodes.first_rank[node] == world.rank();
  const auto leaders = world.split(leads ? 0 : -1, world.rank(), "preflight");
  Outcome best;
  if (leaders == nullptr) return best;
  const int size = leaders->size();
  best.seconds = std::numeric_limits<double>::infinity();
  for (int shift = 0; shift < 2; ++shift) {
    const int place = (leaders->rank() + shift) % size;
    const auto pair = leaders->split(place / 2, place, "preflight");
    Outcome outcome = outcome_of(kChecks.back(), options, [] {});
    comm::Group group(pair);
    try_exchange(group, leaders->rank(), outcome);
    // Alone, where their number is odd: no exchange.
    if (pair->size() == 1 && size > 1) continue;
    best.seconds = std::min(best.seconds, outcome.seconds);
    if (!outcome.problem.empty()) best.problem = outcome.problem;
  }
  return best;
}

struct Findings {
  std::vector<std::string> lines;
  std::set<std::string> bad;       // nodes
  std::vector<std::string> times;  // for the log
  std::size_t not_writing = 0;     // nodes
};

double median_of(std::vector<double> values) {
  // The lower middle counts: of two nodes the better one.
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Every rank's outcome of a check, and what it says of the nodes.
void judge(std::size_t number, const Outcome& mine, comm::Communicator& world,
           const Nodes& nodes, Findings& findings) {
  const Check& check = kChecks[number];
  const std::vector<double> seconds = world.gather(mine.seconds);
  const std::vector<std::string> problems = world.gather(mine.problem);
  std::vector<double> of_node(nodes.names.size(), 0.0);
  std::set<std::size_t> failed;
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    const std::size_t node = nodes.of_rank[rank];
    of_node[node] = std::max(of_node[node], seconds[rank]);
    if (problems[rank].empty()) continue;
    findings.lines.push_back(fmt::format("{} (rank {}), {}: {}", nodes.names[node], rank,
                                         check.name, problems[rank]));
    failed.insert(node);
  }
  const double median = median_of(of_node);
  findings.times.push_back(fmt::format("{} {}", check.name, format_duration(median)));
  for (std::size_t node = 0; node < of_node.size(); ++node) {
    if (of_node[node] > check.times * median && of_node[node] - median > check.seconds &&
        failed.count(node) == 0) {
      findings.lines.push_back(
          fmt::format("{}, {}: {} took {}, where the median of the nodes is {}",
                      nodes.names[node], check.name, check.what,
                      format_duration(of_node[node]), format_duration(median)));
      failed.insert(node);
    }
  }
  for (const std::size_t node : failed) findings.bad.insert(nodes.names[node]);
  if (number == kWrite) findings.not_writing = failed.size();
}

}  // namespace

std::string preflight(comm::Communicator& world, const PreflightOptions& options) {
  const Nodes nodes(world.gather(options.host), world.gather(options.node));
  const std::size_t node = nodes.of_rank[static_cast<std::size_t>(world.rank())];
  const bool leads = nodes.first_rank[node] == world.rank();
  const auto rank_bytes = static_cast<double>(options.memory_bytes);
  double node_bytes = 0.0;
  const std::vector<double> bytes = world.gather(rank_bytes);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    if (nodes.of_rank[rank] == node) node_bytes += bytes[rank];
  }
  Findings findings;
  const auto check = [&](std::size_t number, const std::function<void()>& work) {
    judge(number, outcome_of(kChecks[number], options, work), world, nodes, findings);
  };
  check(kWrite, [&] {
    if (leads) try_writing(options.directories, world.rank());
  });
  check(1, [&] { try_memory(rank_bytes, node_bytes); });
  check(2, [] { (void)kernels::measured_gemm_peak(Exec()); });
  judge(3, exchange(world, nodes, options), world, nodes, findings);

  const std::string list = fmt::format("{}", fmt::join(findings.lines, "\n  "));
  TRIREME_REQUIRE_INPUT(findings.not_writing < nodes.names.size(),
                        "preflight: no node can write where the run should:\n  {}\nName "
                        "directories that can be written to (run.dir, checkpoint.dir)",
                        list);
  if (!findings.bad.empty()) {
    throw Error(fmt::format(
        "preflight: {} of {} not fit for the run:\n  {}\nTo leave "
        "{} out, give sbatch: --exclude={}",
        findings.bad.size(),
        format_plural(static_cast<std::int64_t>(nodes.names.size()), "node"), list,
        findings.bad.size() == 1 ? "it" : "them", fmt::join(findings.bad, ",")));
  }
  return fmt::format("preflight: {} fit for the run ({})",
                     format_plural(static_cast<std::int64_t>(nodes.names.size()), "node"),
                     fmt::join(findings.times, ", "));
}

}  // namespace trireme::check
