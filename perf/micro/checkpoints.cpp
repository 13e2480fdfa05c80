// perf/micro/checkpoints.cpp — saving and loading a checkpoint beside the bound: plain
// write(2) with fsync, plain read(2), memcpy, of the same bytes on the same disk by the
// same ranks, in turns.
//
//   mpiexec -n 2 trireme_checkpoints DIRECTORY [MiB per rank] [rounds]
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/saver.hpp"
#include "comm/mpi_communicator.hpp"
#include "main_on_ranks.hpp"

namespace trireme::perf {
namespace {

namespace fs = std::filesystem;

constexpr index_t kColumns = 1024;
constexpr int kTensors = 6;

// Of the slowest rank, in seconds; all begin together.
double time_of(comm::Communicator& world, const std::function<void()>& work) {
  world.barrier();
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return world.all_reduce(seconds.count(), comm::Op::max);
}

void require(bool holds, const char* call) {
  TRIREME_REQUIRE(holds, "{}: {}", call, std::strerror(errno));
}

void write_plainly(const fs::path& path, const std::vector<float>& data) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  require(file >= 0, "open");
  const auto* from = reinterpret_cast<const char*>(data.data());
  const std::size_t bytes = data.size() * sizeof(float);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t put =
        ::write(file, from + done, std::min<std::size_t>(bytes - done, 1 << 20));
    require(put > 0, "write");
    done += static_cast<std::size_t>(put);
  }
  require(::fsync(file) == 0, "fsync");
  ::close(file);
}

void read_plainly(const fs::path& path, std::vector<float>& data) {
  const int file = ::open(path.c_str(), O_RDONLY);
  require(file >= 0, "open");
  auto* to = reinterpret_cast<char*>(data.data());
  const std::size_t bytes = data.size() * sizeof(float);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got =
        ::read(file, to + done, std::min<std::size_t>(bytes - done, 1 << 20));
    require(got > 0, "read");
    done += static_cast<std::size_t>(got);
  }
  ::close(file);
}

// Out of the page cache, as far as the system follows the advice.
void forget(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  if (file < 0) return;
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

void forget_all(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) forget(entry.path());
}

struct Series {
  std::string name;
  std::vector<double> plain, ours;

  // How much of the bound's speed is reached: the median of the rounds.
  std::string text(double bytes) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < plain.size(); ++i) ratios.push_back(plain[i] / ours[i]);
    std::sort(ratios.begin(), ratios.end());
    const auto best = [&](const std::vector<double>& seconds) {
      return bytes / *std::min_element(seconds.begin(), seconds.end()) / 1e9;
    };
    return fmt::format(
        "{:<12} {:6.2f} GB/s   bound {:6.2f} GB/s   {:.2f} of it ({:.2f} "
        "to {:.2f})",
        name, best(ours), best(plain), ratios[ratios.size() / 2], ratios.front(),
        ratios.back());
  }
};

int run(int argc, char** argv) {
  const auto communicator = comm::make_mpi_world();
  comm::Communicator& world = *communicator;
  TRIREME_REQUIRE_INPUT(argc >= 2, "usage: {} DIRECTORY [MiB per rank] [rounds]",
                        argv[0]);
  const fs::path directory = argv[1];
  const index_t mib = argc > 2 ? std::stol(argv[2]) : 512;
  const int rounds = argc > 3 ? std::stoi(argv[3]) : 5;
  const index_t rows = (mib << 20) / 4 / kColumns / kTensors;  // of this rank, per tensor
  std::vector<float> data(static_cast<std::size_t>(rows * kColumns * kTensors));
  std::vector<float> other(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 65521);
  const double bytes = static_cast<double>(data.size() * sizeof(float)) * world.size();
  const Shape shape = {rows * world.size(), kColumns};
  const ckpt::Region mine{{world.rank() * rows, 0, rows, kColumns}, 0, kColumns};
  const auto name_of = [](int i) { return fmt::format("model/{}", i); };
  const auto at = [&](std::vector<float>& values, int i) {
    return reinterpret_cast<std::byte*>(values.data() + i * rows * kColumns);
  };
  std::vector<ckpt::TensorPart> parts;
  for (int i = 0; i < kTensors; ++i) {
    parts.push_back({name_of(i), DType::float32, shape, {mine}, at(data, i), true});
  }
  const fs::path plain = directory / fmt::format("plain.{}", world.rank());
  const fs::path checkpoints = directory / "checkpoints";
  const fs::path step = checkpoints / ckpt::step_name(1);
  const auto remove_all = [&] {
    world.barrier();
    if (world.rank() == 0) fs::remove_all(checkpoints);
    fs::remove(plain);
    world.barrier();
  };
  const auto load = [&] {
    const ckpt::CheckpointReader reader(world, step);
    for (int i = 0; i < kTensors; ++i) {
      reader.read(Exec(),
                  {name_of(i), DType::float32, shape, {mine}, at(other, i), true});
    }
  };

  ckpt::TrainingState state;
  state.step = 1;
  ckpt::Saver saver(world, "node", {.directory = checkpoints});
  saver.reserve(parts);
  // As in training: what stops it, and all of it.
  double stopped = 0.0;
  const auto save_all = [&] {
    stopped = time_of(world, [&] { saver.begin(Exec(), parts, state, {.keep = 0}); });
    const ckpt::SaveReport report = saver.finish();
    TRIREME_REQUIRE(report.error.empty(), "{}", report.error);
  };
  Series stop{"stop", {}, {}}, save{"save", {}, {}}, cold{"load", {}, {}},
      warm{"load, cached", {}, {}};
  for (int round = 0; round <= rounds; ++round) {  // the first is not counted
    remove_all();
    const double t[7] = {
        time_of(world, [&] { std::memcpy(other.data(), data.data(), data.size() * 4); }),
        time_of(world, [&] { write_plainly(plain, data); }),
        time_of(world, save_all),
        time_of(world, [&] { read_plainly(plain, other); }),
        time_of(world, load),
        (world.barrier(), forget(plain), forget_all(step),
         time_of(world, [&] { read_plainly(plain, other); })),
        (world.barrier(), forget(plain), forget_all(step), time_of(world, load))};
    TRIREME_REQUIRE(other == data, "what was loaded is not what was saved");
    if (round == 0) continue;
    stop.plain.push_back(t[0]), stop.ours.push_back(stopped);
    save.plain.push_back(t[1]), save.ours.push_back(t[2]);
    warm.plain.push_back(t[3]), warm.ours.push_back(t[4]);
    cold.plain.push_back(t[5]), cold.ours.push_back(t[6]);
  }
  remove_all();
  if (world.rank() != 0) return 0;
  fmt::print("{} ranks x {} MiB, {} rounds\n", world.size(), mib, rounds);
  for (const Series* series : {&stop, &save, &cold, &warm}) {
    fmt::print("{}\n", series->text(bytes));
  }
  return 0;
}

}  // namespace
}  // namespace trireme::perf

int main(int argc, char** argv) {
  return trireme::perf::main_on_ranks("trireme_checkpoints", argc, argv,
                                      trireme::perf::run);
}
