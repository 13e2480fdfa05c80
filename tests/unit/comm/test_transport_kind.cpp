// What carries device messages: the build's choice, and what a user may say instead.
#include "comm/transport_kind.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "comm/nccl_link.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(TransportKind, IsWhatTheBuildHasUnlessSaid) {
  const bool is_nccl = has_nccl() && !kHostExecution;
  EXPECT_EQ(choose_transport(nullptr),
            is_nccl ? TransportKind::nccl : TransportKind::mpi);
  EXPECT_EQ(choose_transport(""), choose_transport(nullptr));
  EXPECT_EQ(choose_transport("mpi"), TransportKind::mpi);
  EXPECT_EQ(name_of(TransportKind::mpi), "mpi");
  EXPECT_EQ(name_of(TransportKind::nccl), "nccl");
}

TEST(TransportKind, OtherValuesAreRefused) {
  EXPECT_THAT([] { choose_transport("NCCL"); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("TRIREME_TRANSPORT is 'NCCL'"),
                                              HasSubstr("mpi or nccl"))));
  if (has_nccl()) {
    EXPECT_EQ(choose_transport("nccl"), TransportKind::nccl);
    EXPECT_FALSE(nccl_version().empty());
    return;
  }
  EXPECT_EQ(nccl_version(), "");
  EXPECT_THAT([] { choose_transport("nccl"); },
              ThrowsMessage<InputError>(
                  AllOf(HasSubstr("has no NCCL"), HasSubstr("build for NVIDIA GPUs"))));
}

}  // namespace
}  // namespace trireme::comm
