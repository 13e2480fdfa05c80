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
  std::vector<double> plain = {}, ours = {};

  void add(double seconds_of_plain, double seconds_of_ours) {
    plain.push_back(seconds_of_plain);
    ours.push_back(seconds_of_ours);
  }

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

// What a rank saves and loads: its rows of kTensors tensors, each split by rows over the
// ranks, in one allocation, and room of the same size for what comes back.
struct RankData {
  RankData(const comm::Communicator& world, index_t mib)
      : rows((mib << 20) / 4 / kColumns / kTensors),
        shape{rows * world.size(), kColumns},
        mine{{world.rank() * rows, 0, rows, kColumns}, 0, kColumns},
        saved(static_cast<std::size_t>(rows * kColumns * kTensors)),
        loaded(saved.size()) {
    for (std::size_t i = 0; i < saved.size(); ++i) {
      saved[i] = static_cast<float>(i % 65521);
    }
  }

  // The tensors of `values`, as a saver (TensorPart) or a reader (TensorTarget) has them.
  template <class Part>
  std::vector<Part> parts(std::vector<float>& values) const {
    std::vector<Part> parts;
    for (int i = 0; i < kTensors; ++i) {
      float* tensor = values.data() + i * rows * kColumns;
      parts.push_back({fmt::format("model/{}", i),
                       DType::float32,
                       shape,
                       {mine},
                       reinterpret_cast<std::byte*>(tensor),
                       true});
    }
    return parts;
  }
  std::size_t bytes() const { return saved.size() * sizeof(float); }

  index_t rows;  // of this rank, per tensor
  Shape shape;
  ckpt::Region mine;
  std::vector<float> saved, loaded;
};

class Rounds {
 public:
  Rounds(comm::Communicator& world, const fs::path& directory, index_t mib)
      : world_(world),
        data_(world, mib),
        plain_(directory / fmt::format("plain.{}", world.rank())),
        checkpoints_(directory / "checkpoints"),
        step_(checkpoints_ / ckpt::step_name(1)),
        parts_(data_.parts<ckpt::TensorPart>(data_.saved)),
        saver_(world, "node", {.directory = checkpoints_}) {
    if (world.rank() == 0) fs::create_directories(checkpoints_);
    state_.step = 1;
    saver_.reserve(Exec(), parts_);
  }
  ~Rounds() {
    remove_all();
    if (world_.rank() == 0) fs::remove_all(checkpoints_);
  }

  // The plain way and ours in turns, so that a slow moment of the disk hits both.
  void next(bool counted) {
    remove_all();
    std::vector<float>& loaded = data_.loaded;
    const auto copy = [&] {
      std::memcpy(loaded.data(), data_.saved.data(), data_.bytes());
    };
    const auto read = [&] { read_plainly(plain_, loaded); };
    const double copied = time_of(world_, copy);
    const double written = time_of(world_, [&] { write_plainly(plain_, data_.saved); });
    const double saved = time_of(world_, [&] { save(); });
    const double read_warm = time_of(world_, read);
    const double loaded_warm = time_of(world_, [&] { load(); });
    forget_files();
    const double read_cold = time_of(world_, read);
    forget_files();
    const double loaded_cold = time_of(world_, [&] { load(); });
    TRIREME_REQUIRE(loaded == data_.saved, "what was loaded is not what was saved");
    if (!counted) return;
    stop_.add(copied, stopped_);
    save_.add(written, saved);
    cold_.add(read_cold, loaded_cold);
    warm_.add(read_warm, loaded_warm);
  }

  void print() const {
    const double bytes = static_cast<double>(data_.bytes()) * world_.size();
    for (const Series* series : {&stop_, &save_, &cold_, &warm_}) {
      fmt::print("{}\n", series->text(bytes));
    }
  }

 private:
  // As in training: first what stops the step, then all of it.
  void save() {
    stopped_ =
        time_of(world_, [&] { saver_.begin(Exec(), parts_, state_, {.keep = 0}); });
    const ckpt::SaveReport report = saver_.finish();
    TRIREME_REQUIRE(report.error.empty(), "{}", report.error);
  }
  void load() {
    const ckpt::CheckpointReader reader(world_, step_);
    for (const auto& target : data_.parts<ckpt::TensorTarget>(data_.loaded)) {
      reader.read(Exec(), target);
    }
  }
  void forget_files() const {
    world_.barrier();
    forget(plain_);
    forget_all(step_);
  }
  void remove_all() const {
    world_.barrier();
    if (world_.rank() == 0) fs::remove_all(step_);
    fs::remove(plain_);
    world_.barrier();
  }

  comm::Communicator& world_;
  RankData data_;
  fs::path plain_, checkpoints_, step_;
  std::vector<ckpt::TensorPart> parts_;
  ckpt::TrainingState state_;
  ckpt::Saver saver_;
  double stopped_ = 0.0;
  Series stop_{"stop"}, save_{"save"}, cold_{"load"}, warm_{"load, cached"};
};

int run(int argc, char** argv) {
  const auto world = comm::make_mpi_world();
  TRIREME_REQUIRE_INPUT(argc >= 2, "usage: {} DIRECTORY [MiB per rank] [rounds]",
                        argv[0]);
  const index_t mib = argc > 2 ? std::stol(argv[2]) : 512;
  const int count = argc > 3 ? std::stoi(argv[3]) : 5;
  Rounds rounds(*world, argv[1], mib);
  for (int round = 0; round <= count; ++round) {
    rounds.next(/*counted=*/round > 0);
  }
  if (world->rank() != 0) return 0;
  fmt::print("{} ranks x {} MiB, {} rounds\n", world->size(), mib, count);
  rounds.print();
  return 0;
}

}  // namespace
}  // namespace trireme::perf

int main(int argc, char** argv) {
  return trireme::perf::main_on_ranks("trireme_checkpoints", argc, argv,
                                      trireme::perf::run);
}
