// perf/micro/collectives.cpp — what a Group adds to MPI: each collective through
// it, as the raw non-blocking call polled in the same way, and as the blocking call, in
// turns.
//
//   OMP_NUM_THREADS=1 mpiexec -n 2 bin/trireme_collectives [rounds] [json]
// One line per collective and size: the median microseconds of a call, and the median
// over the rounds of the ratios to the two others with their quartiles. Ranks need a core
// each.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "comm/mpi_communicator.hpp"
#include "main_on_ranks.hpp"

namespace trireme::perf {
namespace {

using comm::Group;
using Seconds = std::chrono::duration<double>;

enum Variant { ours, raw, blocking, kVariants };

void poll(MPI_Request request) {
  for (int done = 0; done == 0;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

// `count` elements on each rank, whole; a rank's block is a part of it.
struct Buffers {
  Buffers(index_t count, int ranks)
      : whole("whole", static_cast<std::size_t>(count)),
        other("other", static_cast<std::size_t>(count)),
        block("block", static_cast<std::size_t>(count / ranks)),
        counts(static_cast<std::size_t>(ranks), static_cast<int>(count / ranks)) {
    for (int r = 0; r < ranks; ++r) {
      places.push_back(r * static_cast<int>(count / ranks));
    }
  }
  comm::Span all() const { return comm::span_of(View1<float>(whole)); }
  comm::Span part() const { return comm::span_of(View1<float>(block)); }
  int size() const { return static_cast<int>(whole.extent(0)); }
  int part_size() const { return static_cast<int>(block.extent(0)); }

  DeviceArray<float> whole, other, block;
  std::vector<int> counts, places;
};

struct Case {
  const char* name;
  void (*call)(Variant, Group&, const Exec&, const Buffers&);
};

void all_reduce(Variant variant, Group& world, const Exec& exec, const Buffers& buffers) {
  float* data = buffers.whole.data();
  MPI_Request request;
  switch (variant) {
    case ours:
      world.all_reduce(exec, buffers.all());
      return;
    case raw:
      MPI_Iallreduce(MPI_IN_PLACE, data, buffers.size(), MPI_FLOAT, MPI_SUM,
                     MPI_COMM_WORLD, &request);
      return poll(request);
    default:
      MPI_Allreduce(MPI_IN_PLACE, data, buffers.size(), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
  }
}

void reduce_scatter(Variant variant, Group& world, const Exec& exec,
                    const Buffers& buffers) {
  const float* from = buffers.whole.data();
  float* to = buffers.block.data();
  MPI_Request request;
  switch (variant) {
    case ours:
      world.reduce_scatter(exec, buffers.all(), buffers.part());
      return;
    case raw:
      MPI_Ireduce_scatter(from, to, buffers.counts.data(), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD, &request);
      return poll(request);
    default:
      MPI_Reduce_scatter(from, to, buffers.counts.data(), MPI_FLOAT, MPI_SUM,
                         MPI_COMM_WORLD);
  }
}

void all_gather(Variant variant, Group& world, const Exec& exec, const Buffers& buffers) {
  const float* from = buffers.block.data();
  float* to = buffers.whole.data();
  MPI_Request request;
  switch (variant) {
    case ours:
      world.all_gather(exec, buffers.part(), buffers.all());
      return;
    case raw:
      MPI_Iallgatherv(from, buffers.part_size(), MPI_FLOAT, to, buffers.counts.data(),
                      buffers.places.data(), MPI_FLOAT, MPI_COMM_WORLD, &request);
      return poll(request);
    default:
      MPI_Allgatherv(from, buffers.part_size(), MPI_FLOAT, to, buffers.counts.data(),
                     buffers.places.data(), MPI_FLOAT, MPI_COMM_WORLD);
  }
}

void broadcast(Variant variant, Group& world, const Exec& exec, const Buffers& buffers) {
  float* data = buffers.whole.data();
  MPI_Request request;
  switch (variant) {
    case ours:
      world.broadcast(exec, buffers.all(), 0);
      return;
    case raw:
      MPI_Ibcast(data, buffers.size(), MPI_FLOAT, 0, MPI_COMM_WORLD, &request);
      return poll(request);
    default:
      MPI_Bcast(data, buffers.size(), MPI_FLOAT, 0, MPI_COMM_WORLD);
  }
}

void all_to_all(Variant variant, Group& world, const Exec& exec, const Buffers& buffers) {
  const float* from = buffers.whole.data();
  float* to = buffers.other.data();
  const int count = buffers.part_size();
  MPI_Request request;
  switch (variant) {
    case ours:
      world.all_to_all(exec, buffers.all(), comm::span_of(View1<float>(buffers.other)));
      return;
    case raw:
      MPI_Ialltoall(from, count, MPI_FLOAT, to, count, MPI_FLOAT, MPI_COMM_WORLD,
                    &request);
      return poll(request);
    default:
      MPI_Alltoall(from, count, MPI_FLOAT, to, count, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

// To the next rank of a ring, from the one before, as between pipeline stages.
void send_recv(Variant variant, Group& world, const Exec& exec, const Buffers& buffers) {
  const int ranks = world.size();
  const int next = (world.rank() + 1) % ranks;
  const int before = (world.rank() + ranks - 1) % ranks;
  const float* from = buffers.whole.data();
  float* to = buffers.other.data();
  switch (variant) {
    case ours: {
      comm::Request received, sent;
      world.together([&] {
        received =
            world.start_recv(exec, comm::span_of(View1<float>(buffers.other)), before);
        sent = world.start_send(exec, buffers.all(), next);
      });
      received.wait(exec);
      sent.wait(exec);
      return;
    }
    case raw: {
      MPI_Request received, sent;
      MPI_Irecv(to, buffers.size(), MPI_FLOAT, before, 0, MPI_COMM_WORLD, &received);
      MPI_Isend(from, buffers.size(), MPI_FLOAT, next, 0, MPI_COMM_WORLD, &sent);
      poll(received);
      return poll(sent);
    }
    default:
      MPI_Sendrecv(from, buffers.size(), MPI_FLOAT, next, 0, to, buffers.size(),
                   MPI_FLOAT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

constexpr Case kCases[] = {{"all_reduce", all_reduce}, {"reduce_scatter", reduce_scatter},
                           {"all_gather", all_gather}, {"broadcast", broadcast},
                           {"all_to_all", all_to_all}, {"send_recv", send_recv}};

struct Quartiles {
  double low, median, high;
};
Quartiles quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(share *
                                           static_cast<double>(values.size() - 1))];
  };
  return {at(0.25), at(0.5), at(0.75)};
}

nlohmann::ordered_json measure(const Case& test, std::size_t bytes, int rounds,
                               Group& world) {
  const Exec exec;
  const int ranks = world.size();
  const auto count =
      static_cast<index_t>(bytes / sizeof(float)) / ranks * ranks;  // whole blocks
  const Buffers buffers(count, ranks);
  // Some milliseconds a turn.
  const int calls = std::max(2, static_cast<int>((std::size_t{4} << 20) / bytes));
  std::array<std::vector<double>, kVariants> seconds;
  for (int round = -1; round < rounds; ++round) {  // the first warms up
    for (int turn = 0; turn < kVariants; ++turn) {
      const auto variant = static_cast<Variant>((turn + round + 1) % kVariants);
      MPI_Barrier(MPI_COMM_WORLD);
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) test.call(variant, world, exec, buffers);
      const double spent = Seconds(std::chrono::steady_clock::now() - begin).count();
      double slowest = spent;
      MPI_Allreduce(&spent, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (round >= 0) seconds[variant].push_back(slowest / calls);
    }
  }
  const auto over = [&](Variant other) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < seconds[ours].size(); ++i) {
      ratios.push_back(seconds[ours][i] / seconds[other][i]);
    }
    return quartiles(ratios);
  };
  const auto microseconds = [&](Variant variant) {
    return 1e6 * quartiles(seconds[variant]).median;
  };
  const Quartiles to_raw = over(raw), to_blocking = over(blocking);
  if (world.rank() == 0) {
    std::printf(
        "%-15s %9zu %9.1f %9.1f %9.1f   %5.3f (%5.3f-%5.3f)   %5.3f (%5.3f-%5.3f)\n",
        test.name, bytes, microseconds(ours), microseconds(raw), microseconds(blocking),
        to_raw.median, to_raw.low, to_raw.high, to_blocking.median, to_blocking.low,
        to_blocking.high);
    std::fflush(stdout);
  }
  return {{"collective", test.name},
          {"bytes", bytes},
          {"microseconds", microseconds(ours)},
          {"over_raw", {to_raw.low, to_raw.median, to_raw.high}},
          {"over_blocking", {to_blocking.low, to_blocking.median, to_blocking.high}}};
}

int run(int argc, char** argv) {
  int rounds = 40;
  if (argc > 1) rounds = std::atoi(argv[1]);
  if (rounds < 1) throw Error("the number of rounds is a whole number from 1");
  const auto world =
      std::make_shared<Group>(comm::make_mpi_world({.wait = comm::WaitPolicy::spin}));
  const int ranks = world->size();  // around the ring
  world->open({{(world->rank() + 1) % ranks}, {(world->rank() + ranks - 1) % ranks}});
  if (world->rank() == 0) {
    std::printf("%d ranks, %d rounds\n%-15s %9s %9s %9s %9s   %-21s   %s\n",
                world->size(), rounds, "collective", "bytes", "us", "raw us", "block. us",
                "over raw", "over blocking");
  }
  nlohmann::ordered_json results;
  for (const Case& test : kCases) {
    for (std::size_t bytes = 1 << 10; bytes <= 16 << 20; bytes *= 4) {
      results.push_back(measure(test, bytes, rounds, *world));
    }
  }
  if (argc > 2 && world->rank() == 0) {
    std::FILE* file = std::fopen(argv[2], "w");
    if (file == nullptr) throw Error(fmt::format("cannot write '{}'", argv[2]));
    std::fputs((results.dump(2) + "\n").c_str(), file);
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace trireme::perf

int main(int argc, char** argv) {
  return trireme::perf::main_on_ranks("trireme_collectives", argc, argv,
                                      trireme::perf::run);
}
