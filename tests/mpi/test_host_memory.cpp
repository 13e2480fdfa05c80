// The memory of a node is asked for by all ranks that are there: of nodes that are made
// up, with two ranks each.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/error.hpp"
#include "comm/mpi_communicator.hpp"
#include "plan/host_memory.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

class HostMemory : public ::testing::Test {
 protected:
  void require(std::int64_t free) {
    const std::string host = fmt::format("n{}", world_->rank() / 2);
    plan::require_host_memory(*world_, host, {.weights = 1u << 30, .optimizer = 2u << 30},
                              free);
  }
  std::shared_ptr<comm::Communicator> world_ = comm::make_mpi_world();
};

TEST_F(HostMemory, IsTakenByAllRanksOfANode) {
  const std::int64_t of_node = (world_->size() == 1 ? 3 : 6) * kGiB;
  require(of_node);
  const std::string message = test::message_of<InputError>([&] { require(of_node - 1); });
  EXPECT_THAT(message, HasSubstr(world_->size() == 1 ? "n0 (1 rank there)"
                                                     : "n0 (2 ranks there)"));
}

// All are told of the node that has too little, and nobody waits.
TEST_F(HostMemory, OneNodeIsEnoughToRefuse) {
  const int last = (world_->size() - 1) / 2;
  const bool is_there = world_->rank() / 2 == last;
  EXPECT_THAT(test::message_of<InputError>([&] { require(is_there ? 1 : 99 * kGiB); }),
              HasSubstr(fmt::format("host memory of n{}", last)));
}

}  // namespace
}  // namespace trireme
