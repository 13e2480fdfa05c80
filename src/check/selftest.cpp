// check/selftest.cpp — the list of checks, and those of the machine, messages and files.
//
// All ranks make every check together, and a check that finds something throws. Checks
// use the program's own code on small inputs and compare with something simpler, so that
// a build or a machine that computes wrongly is found within seconds, without the test
// suite.
#include "check/selftest.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/error_message.hpp"
#include "base/plural.hpp"
#include "base/wall_time.hpp"
#include "comm/group.hpp"
#include "comm/rank_grid.hpp"
#include "io/atomic_file.hpp"
#include "io/checksum.hpp"
#include "io/hdf5.hpp"
#include "kernels/machine_peaks.hpp"

namespace trireme::check {

namespace {

using Clock = std::chrono::steady_clock;

// values[i] = first + step * i, on the device.
DeviceArray<float> ramp(const Exec& exec, index_t count, float first, float step) {
  const DeviceArray<float> array("selftest", static_cast<std::size_t>(count));
  launch(
      exec, "trireme::check::selftest_ramp", count, KOKKOS_LAMBDA(const index_t i) {
        array(i) = first + step * static_cast<float>(i);
      });
  return array;
}

void expect_values(const std::string& what, const DeviceArray<float>& array,
                   const std::function<double(index_t)>& expected) {
  const auto values = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), array);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double right = expected(static_cast<index_t>(i));
    TRIREME_REQUIRE(static_cast<double>(values(i)) == right,
                    "{}: element {} is {}, not {}", what, i, values(i), right);
  }
}

// A directory for this process, gone at the end.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::error_code error;
    const io::Path parent = std::filesystem::temp_directory_path(error);
    const char* variable = std::getenv("TMPDIR");
    TRIREME_REQUIRE(!error, "no directory for temporary files: TMPDIR is '{}': {}",
                    variable ? variable : "", error.message());
    path_ = parent / fmt::format("trireme-selftest-{}", ::getpid());
    io::create_directories(path_);
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const io::Path& path() const { return path_; }

 private:
  io::Path path_;
};

CheckResult run_check(comm::Communicator& world, const std::string& name,
                      const std::function<std::string()>& check) {
  CheckResult result;
  result.name = name;
  const auto start = Clock::now();
  std::string failure;
  try {
    result.figures = check();
  } catch (const std::exception& error) {
    failure = message_of(error);
    if (failure.empty()) failure = "failed";
  }
  result.seconds = seconds_since(start);
  result.passed = !world.any(!failure.empty());
  if (!result.passed) {
    const auto failures = world.gather(failure);
    for (std::size_t rank = 0; rank < failures.size(); ++rank) {
      if (failures[rank].empty()) continue;
      result.figures = failures.size() == 1
                           ? failures[rank]
                           : fmt::format("rank {}: {}", rank, failures[rank]);
      break;
    }
  }
  return result;
}

}  // namespace

std::vector<CheckResult> selftest(
    const comm::Environment& environment,
    const std::function<void(const CheckResult&)>& on_check) {
  const std::shared_ptr<comm::Communicator>& world = environment.world();
  const Exec exec;
  // A check that fails on one rank may leave the others waiting for it.
  world->set_timeout(30.0);
  const std::vector<std::pair<std::string, std::function<std::string()>>> list = {
      {"random numbers", [&] { return checks::random_numbers(exec); }},
      {"matrix products", [&] { return checks::matrix_products(exec); }},
      {"attention", [&] { return checks::attention(exec); }},
      {"layer norm", [&] { return checks::layer_norm(exec); }},
      {"GeLU", [&] { return checks::gelu(exec); }},
      {"cross-entropy", [&] { return checks::cross_entropy(exec); }},
      {"gradients of a model", [&] { return checks::gradients(exec); }},
      {"messages", [&] { return checks::collectives(exec, *world); }},
      {"process grids", [&] { return checks::process_grids(world); }},
      {"HDF5 files", [&] { return checks::hdf5_files(); }},
      {"memory bandwidth", [&] { return checks::memory_bandwidth(exec, *world); }},
      {"matrix product peak", [&] { return checks::gemm_peak(exec, *world); }},
      {"training", [&] { return checks::training(exec, world); }},
  };
  std::vector<CheckResult> results;
  for (const auto& [name, check] : list) {
    results.push_back(run_check(*world, name, check));
    if (on_check) on_check(results.back());
  }
  world->set_timeout(0.0);
  return results;
}

namespace checks {

std::string collectives(const Exec& exec, comm::Communicator& control) {
  comm::Group world(control);
  const int size = world.size();
  const int rank = world.rank();
  const auto ranks = static_cast<double>(size);
  constexpr index_t kCount = 100;  // sums of thousands of ranks are exact in float

  auto own = ramp(exec, kCount, static_cast<float>(rank), 1.0f);
  world.all_reduce(exec, comm::span_of(own));
  expect_values("all-reduce", own, [&](index_t i) {
    return ranks * (ranks - 1) / 2 + ranks * static_cast<double>(i);
  });

  own = ramp(exec, kCount, static_cast<float>(rank), 1.0f);
  const DeviceArray<float> all("selftest", static_cast<std::size_t>(kCount * size));
  world.all_gather(exec, comm::span_of(own), comm::span_of(all));
  expect_values("all-gather", all,
                [](index_t i) { return static_cast<double>(i / kCount + i % kCount); });

  world.reduce_scatter(exec, comm::span_of(all), comm::span_of(own));
  expect_values("reduce-scatter", own,
                [&](index_t i) { return ranks * (rank + static_cast<double>(i)); });

  own = ramp(exec, kCount, static_cast<float>(rank), 1.0f);
  world.broadcast(exec, comm::span_of(own), size - 1);
  expect_values("broadcast", own,
                [&](index_t i) { return ranks - 1 + static_cast<double>(i); });

  if (size > 1) {  // around the ring
    own = ramp(exec, kCount, static_cast<float>(rank), 1.0f);
    const DeviceArray<float> received("selftest", static_cast<std::size_t>(kCount));
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    world.open({{left}, {right}});
    comm::Request receive, send;
    world.together([&] {
      receive = world.start_recv(exec, comm::span_of(received), left);
      send = world.start_send(exec, comm::span_of(own), right);
    });
    receive.wait(exec);
    send.wait(exec);
    expect_values("send and receive", received,
                  [&](index_t i) { return left + static_cast<double>(i); });
  }
  if (size == 1) return "one rank";

  constexpr index_t kLarge = index_t{1} << 20;
  const auto large = ramp(exec, kLarge, 0.0f, 0.0f);
  world.all_reduce(exec, comm::span_of(large));
  const auto start = Clock::now();
  constexpr int kTimes = 5;
  for (int i = 0; i < kTimes; ++i) world.all_reduce(exec, comm::span_of(large));
  exec.fence("selftest");
  const double seconds =
      world.control().all_reduce(seconds_since(start), comm::Op::max) / kTimes;
  return fmt::format("{}; all-reduce of 4 MiB in {:.2f} ms", format_plural(size, "rank"),
                     seconds * 1e3);
}

std::string process_grids(const std::shared_ptr<comm::Communicator>& world) {
  const int size = world->size();
  const int pairs = size % 2 == 0 ? 2 : 1;
  int made = 0;
  for (const comm::GridShape& shape :
       {comm::GridShape{.tensor = size}, comm::GridShape{.data = size},
        comm::GridShape{.pipeline = size},
        comm::GridShape{.tensor = pairs, .data = size / pairs}}) {
    const comm::RankGrid grid(world, shape);
    TRIREME_REQUIRE(grid.rank_of(grid.coordinates()) == world->rank(),
                    "rank {} is not at its coordinates in the grid {}", world->rank(),
                    to_string(shape));
    for (const comm::Axis axis :
         {comm::Axis::tensor, comm::Axis::data, comm::Axis::pipeline}) {
      comm::Group& group = axis == comm::Axis::tensor ? *grid.groups().tensor
                           : axis == comm::Axis::data ? *grid.groups().gradient
                                                      : *grid.groups().pipeline;
      TRIREME_REQUIRE(group.size() == shape.extent(axis) &&
                          group.rank() == grid.coordinates().along(axis),
                      "grid {}: group '{}' has {}, this is number {}; expected {} and {}",
                      to_string(shape), group.name(), format_plural(group.size(), "rank"),
                      group.rank(), shape.extent(axis), grid.coordinates().along(axis));
      const std::int64_t sum = group.control().all_reduce(std::int64_t{group.rank()});
      const std::int64_t extent = shape.extent(axis);
      TRIREME_REQUIRE(sum == extent * (extent - 1) / 2,
                      "grid {}: ranks of '{}' add to {}", to_string(shape), group.name(),
                      sum);
    }
    ++made;
  }
  return fmt::format("{} over {}", format_plural(made, "shape"),
                     format_plural(size, "rank"));
}

std::string hdf5_files() {
  const ScratchDirectory scratch;
  constexpr index_t kRows = 512, kColumns = 4096;  // of each of two shards: 8 MiB
  std::vector<float> values(static_cast<std::size_t>(kRows * kColumns));
  std::vector<io::VirtualPiece> pieces;
  const auto start = Clock::now();
  for (int shard = 0; shard < 2; ++shard) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 65521) + 100000.0f * static_cast<float>(shard);
    }
    const std::string name = fmt::format("shard_{}.h5", shard);
    io::AtomicFile file(scratch.path() / name);
    io::H5File h5 = io::H5File::create(file.temporary());
    h5.make_dataset("tensor", DType::float32, {kRows, kColumns}).write(values);
    h5.close();
    file.commit();
    pieces.push_back({{shard * kRows, 0}, {kRows, kColumns}, name, "tensor"});
  }
  const double written = seconds_since(start);
  io::H5File index = io::H5File::create(scratch.path() / "index.h5");
  index.make_virtual_dataset("tensor", DType::float32, {2 * kRows, kColumns}, pieces);
  index.close();

  const auto whole =
      io::H5File::open(scratch.path() / "index.h5").dataset("tensor").read<float>();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::size_t shard = i / values.size();
    const float expected = static_cast<float>(i % values.size() % 65521) +
                           100000.0f * static_cast<float>(shard);
    TRIREME_REQUIRE(whole[i] == expected,
                    "element {} of a virtual dataset over two files is {}, not {}", i,
                    whole[i], expected);
  }
  return fmt::format("16 MiB written, synced and read as one: {:.0f} MiB/s in '{}'",
                     16.0 / written, scratch.path().parent_path().string());
}

std::string memory_bandwidth(const Exec& exec, comm::Communicator& world) {
  world.barrier();  // ranks of a node share it
  const double own = kernels::measured_memory_bandwidth(exec);
  const double sum = world.all_reduce(own);
  std::string text = fmt::format("{:.1f} GB/s", own / 1e9);
  if (world.size() > 1) text += fmt::format(" on rank 0, {:.1f} on all", sum / 1e9);
  return text;
}

std::string gemm_peak(const Exec& exec, comm::Communicator& world) {
  world.barrier();
  const double own = kernels::measured_gemm_peak(exec, DType::float32);
  const double sum = world.all_reduce(own);
  std::string text = fmt::format("{:.0f} GFLOP/s in float32", own / 1e9);
  if (world.size() > 1) text += fmt::format(" on rank 0, {:.0f} on all", sum / 1e9);
  return text;
}

}  // namespace checks

}  // namespace trireme::check
