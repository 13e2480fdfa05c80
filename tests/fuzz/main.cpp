// tests/fuzz/main.cpp — tries the readers of tests/fuzz/targets.hpp with changed inputs.
//
//   trireme_fuzz [TARGET...] [--seconds N] [--seed N]   each target for N seconds
//   trireme_fuzz TARGET --input FILE                    one input, in this process
//   trireme_fuzz --self-test                            are faults found?
//
// TRIREME_FUZZ_SECONDS stands for --seconds. The same seed tries the same inputs in the
// same order, more of them on a faster machine. A child process reads them; the parent
// sees how it ends, and keeps the input that ended it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <stdexcept>

#include "base/error.hpp"
#include "fuzz/mutator.hpp"
#include "fuzz/targets.hpp"

namespace trireme::fuzz {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{1} << 16;
// An input for which a reader takes longer hangs it: whole ones take a millisecond, and
// some tens under sanitizers.
constexpr unsigned kHangSeconds = 20;
constexpr rlim_t kAddressSpace = rlim_t{4} << 30;
// Readers that recurse are to be found by inputs of this size.
constexpr rlim_t kStack = rlim_t{1} << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// In memory that parent and child share: what is being read, and how many were.
struct Progress {
  std::int64_t inputs;
  std::int64_t accepted;
  std::size_t bytes;
  char input[kMostBytes];
  char fault[1024];
};

struct Options {
  double seconds = 4.0;
  std::uint64_t seed = 1;
};

// Did the target take it? What is a fault leaves through another exception.
bool accepts(const Target& target, const std::string& input) {
  try {
    target.read(input);
  } catch (const InputError&) {
    return false;
  }
  return true;
}

std::vector<std::string> read_seeds(const Target& target, const fs::path& tests) {
  std::vector<fs::path> files;
  for (const std::string& name : target.seeds) {
    if (!fs::is_directory(tests / name)) {
      files.push_back(tests / name);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(tests / name)) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file),
                       std::istreambuf_iterator<char>());
    if (!file) throw std::runtime_error("cannot read " + path.string());
  }
  if (seeds.empty()) throw std::runtime_error("no seeds for " + target.name);
  return seeds;
}

// The child: reads until the time is over. Inputs that were taken are changed again, for
// they lead deeper.
void read_many(const Target& target, std::vector<std::string> pool,
               const Options& options, Progress& progress) {
  using Clock = std::chrono::steady_clock;
  if (!kSanitized) {
    const rlimit space{kAddressSpace, kAddressSpace};
    ::setrlimit(RLIMIT_AS, &space);
    const rlimit stack{kStack, kStack};
    ::setrlimit(RLIMIT_STACK, &stack);
    // Libraries take them to print a trace, and may hang in it.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(fault, SIG_DFL);
  }
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  const std::size_t seeds = pool.size();
  constexpr std::size_t kMostPool = 512;
  Mutator mutator(options.seed, target.words, kMostBytes);
  while (Clock::now() < end) {
    const auto number = static_cast<std::size_t>(progress.inputs);
    std::string input = number < seeds ? pool[number] : mutator.mutant(pool, seeds);
    progress.bytes = input.size();
    std::memcpy(progress.input, input.data(), input.size());
    ::alarm(kHangSeconds);
    const bool accepted = accepts(target, input);
    progress.inputs += 1;
    if (!accepted) continue;
    progress.accepted += 1;
    if (number < seeds) continue;
    if (pool.size() < kMostPool) {
      pool.push_back(std::move(input));
    } else {
      pool[seeds + number % (kMostPool - seeds)] = std::move(input);
    }
  }
  ::alarm(0);
}

std::string ending(int status, const char* fault) {
  if (WIFSIGNALED(status)) {
    return WTERMSIG(status) == SIGALRM
               ? fmt::format("did not end within {} s", kHangSeconds)
               : fmt::format("signal {} ({})", WTERMSIG(status),
                             strsignal(WTERMSIG(status)));
  }
  return fault[0] != '\0' ? fault : fmt::format("status {}", WEXITSTATUS(status));
}

// "" where nothing was found, else what; the input is then kept in `kept`.
std::string try_target(const Target& target, const std::vector<std::string>& seeds,
                       const Options& options, const fs::path& kept) {
  void* memory = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  auto& progress = *new (memory) Progress{};
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("cannot start a process");
  if (child == 0) {
    int status = 0;
    try {
      read_many(target, seeds, options, progress);
    } catch (const std::exception& error) {
      std::snprintf(progress.fault, sizeof(progress.fault), "threw: %s", error.what());
      status = 3;
    }
    std::fflush(nullptr);
    ::_exit(status);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string found;
  if (status != 0) {
    std::ofstream(kept, std::ios::binary)
        .write(progress.input, static_cast<std::streamsize>(progress.bytes));
    found = ending(status, progress.fault);
  }
  std::printf("%-12s %10lld inputs in %.0f s, %lld of them taken, seed %llu\n",
              target.name.c_str(), static_cast<long long>(progress.inputs),
              options.seconds, static_cast<long long>(progress.accepted),
              static_cast<unsigned long long>(options.seed));
  const bool all_seeds = progress.inputs >= static_cast<std::int64_t>(seeds.size());
  if (found.empty() && (!all_seeds || progress.accepted == 0)) {
    found = "not even one of the whole inputs was taken";
  }
  ::munmap(memory, sizeof(Progress));
  return found;
}

// Targets that fail on what changes of their seed lead to.
const std::vector<std::pair<Target, std::string>>& planted() {
  static const auto throws = [](const std::string& input) {
    if (input.find("null") != std::string::npos) throw std::runtime_error("planted");
  };
  static const auto crashes = [](const std::string& input) {
    if (input.size() > 3 && input[0] == '\xff') std::abort();
  };
  static const auto refuses = [](const std::string&) { throw InputError("no"); };
  static const std::vector<std::pair<Target, std::string>> all = {
      {{"throws", +throws, {}, {}}, "threw: planted"},
      {{"crashes", +crashes, {}, {}}, "signal 6"},
      {{"refuses", +refuses, {}, {}}, "not even one"},
  };
  return all;
}

int self_test() {
  int missed = 0;
  for (const auto& [target, expected] : planted()) {
    const fs::path kept = fs::path(scratch_directory()) / "kept";
    const std::string found =
        try_target(target, {"seed 1", "seed 2"}, {.seconds = 1.0}, kept);
    if (found.starts_with(expected)) continue;
    std::printf("%s: found '%s' in place of '%s'\n", target.name.c_str(), found.c_str(),
                expected.c_str());
    missed += 1;
  }
  return missed == 0 ? 0 : 1;
}

int read_one(const Target& target, const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string input((std::istreambuf_iterator<char>(file)), {});
  if (!file) throw std::runtime_error("cannot read " + path.string());
  try {
    target.read(input);
    std::puts("taken");
  } catch (const InputError& error) {
    std::printf("refused: %s\n", error.what());
  }
  return 0;
}

const Target& target_of(const std::string& name) {
  for (const Target& target : targets()) {
    if (target.name == name) return target;
  }
  std::string names;
  for (const Target& target : targets()) names += " " + target.name;
  throw std::runtime_error("no target '" + name + "'; there are" + names);
}

int run(int argc, char** argv) {
  Options options;
  std::vector<const Target*> chosen;
  if (const char* seconds = std::getenv("TRIREME_FUZZ_SECONDS")) {
    options.seconds = std::stod(seconds);
  }
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      if (i + 1 >= argc) throw std::runtime_error(word + " needs a value");
      return std::string(argv[++i]);
    };
    if (word == "--self-test") return self_test();
    if (word == "--seconds") {
      options.seconds = std::stod(value());
    } else if (word == "--seed") {
      options.seed = std::stoull(value());
    } else if (word == "--input") {
      if (chosen.size() != 1) throw std::runtime_error("--input needs one target");
      return read_one(*chosen.front(), value());
    } else {
      chosen.push_back(&target_of(word));
    }
  }
  if (chosen.empty()) {
    for (const Target& target : targets()) chosen.push_back(&target);
  }
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  const fs::path tests = fs::path(source != nullptr ? source : ".") / "tests";
  int faults = 0;
  for (const Target* target : chosen) {
    const fs::path kept = fmt::format("fuzz-{}-{}.input", target->name, options.seed);
    const std::string found =
        try_target(*target, read_seeds(*target, tests), options, kept);
    if (found.empty()) continue;
    faults += 1;
    std::printf("%s: %s\n  the input: %s\n  again: trireme_fuzz %s --input %s\n",
                target->name.c_str(), found.c_str(), fs::absolute(kept).c_str(),
                target->name.c_str(), kept.c_str());
  }
  return faults == 0 ? 0 : 1;
}

// Removed with what is in it when the program ends.
struct Scratch {
  std::string path = (fs::temp_directory_path() / "trireme-fuzz-XXXXXX").string();
  Scratch() {
    if (::mkdtemp(path.data()) == nullptr) {
      throw std::runtime_error("cannot make " + path);
    }
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

const std::string& scratch_directory() {
  static const Scratch scratch;
  return scratch.path;
}

}  // namespace trireme::fuzz

int main(int argc, char** argv) {
  try {
    trireme::fuzz::scratch_directory();  // the parent's, before any child
    return trireme::fuzz::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme_fuzz: %s\n", error.what());
    return 2;
  }
}
