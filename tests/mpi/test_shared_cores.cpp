// What a run says of cores that it shares: the rank that waited most, on every rank.
#include "report/shared_cores.hpp"

#include <gmock/gmock.h>

#include <sstream>

#include "comm/mpi_communicator.hpp"

namespace trireme::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SharedCores, NamesTheRankThatWaitedMost) {
  const auto world = comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
  const int last = world->size() - 1;
  const double waited = world->rank() == last ? 30.0 : 1.0;
  const std::string note =
      shared_cores_note(*world, {.ran = 70.0, .waited = waited, .offered = 1.0});
  EXPECT_THAT(note, HasSubstr("threads of rank " + std::to_string(last) +
                              " were kept from running for 30% of"));
  EXPECT_THAT(note, HasSubstr("OMP_NUM_THREADS"));
  EXPECT_THAT(note, Not(HasSubstr("virtual machine")));
  std::istringstream lines(note);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(SharedCores, TellsAHostThatTakesTime) {
  const auto world = comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
  const double stolen = world->rank() == 0 ? 2.0 : 0.0;
  EXPECT_THAT(shared_cores_note(*world, {.ran = 9.0, .stolen = stolen, .offered = 10.0}),
              HasSubstr("virtual machine of rank 0 took 20% of its cores' time"));
}

TEST(SharedCores, SaysNothingOfOnesOwn) {
  const auto world = comm::make_mpi_world({.wait = comm::WaitPolicy::yield});
  EXPECT_EQ(shared_cores_note(*world, {.ran = 90.0, .waited = 5.0, .offered = 99.0}), "");
  EXPECT_EQ(shared_cores_note(*world, {}), "");
}

}  // namespace
}  // namespace trireme::report
