// What a run tells NCCL by its environment, and which of a user's settings it refuses.
#include "comm/nccl_environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using Given = std::map<std::string, std::string>;

Variables settings(const Given& given, bool is_deterministic) {
  return nccl_settings(
      [&](const char* name) {
        const auto found = given.find(name);
        return found == given.end() ? nullptr : found->second.c_str();
      },
      is_deterministic);
}
std::string refusal(const Given& given, bool is_deterministic = true) {
  try {
    settings(given, is_deterministic);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(NcclEnvironment, PromisedBitsExcludeWhatVaries) {
  EXPECT_THAT(settings({}, true),
              UnorderedElementsAre(
                  Pair("NCCL_RUNTIME_CONNECT", "0"), Pair("NCCL_ALGO", "Ring,Tree"),
                  Pair("NCCL_NVLS_ENABLE", "0"), Pair("NCCL_COLLNET_ENABLE", "0"),
                  Pair("NCCL_TUNER_PLUGIN", "none")));
  EXPECT_THAT(settings({}, false),
              UnorderedElementsAre(Pair("NCCL_RUNTIME_CONNECT", "0")));
  // What it has set it finds again, and a process that it starts does.
  Given own;
  for (const auto& [name, value] : settings({}, true)) own[name] = value;
  EXPECT_THAT(settings(own, true), IsEmpty());
}

TEST(NcclEnvironment, SettingsThatDoNotContradictStay) {
  for (const char* algorithms :
       {"Ring", "tree", "ring,tree", "RING,TREE,PAT", "ring;allreduce:tree",
        "^NVLS,NVLSTree,CollnetDirect,CollnetChain",
        "^nvls,nvlstree,collnetdirect,collnetchain,tree;broadcast:ring"}) {
    EXPECT_THAT(settings({{"NCCL_ALGO", algorithms}}, true),
                Not(Contains(Key("NCCL_ALGO"))))
        << algorithms;
  }
  EXPECT_THAT(settings({{"NCCL_RUNTIME_CONNECT", "1"}}, true),
              Not(Contains(Key("NCCL_RUNTIME_CONNECT"))));
  EXPECT_EQ(refusal({{"NCCL_TUNER_PLUGIN", "None"}, {"NCCL_NVLS_ENABLE", "0"}}),
            "accepted");
  EXPECT_EQ(refusal({{"NCCL_PROTO", "Simple"}, {"NCCL_DEBUG", "INFO"}}), "accepted");
  EXPECT_EQ(refusal({{"NCCL_ALGO", "NVLS"}, {"NCCL_TUNER_PLUGIN", "ofi"}}, false),
            "accepted");
}

TEST(NcclEnvironment, ContradictionsAreRefusedAllAtOnce) {
  for (const char* algorithms :
       {"NVLS", "ring,nvls", "^ring", "^nvls,nvlstree", "allreduce:ring",
        "ring;allreduce:nvlstree", "allreduce:^tree", "collnet", ""}) {
    EXPECT_THAT(refusal({{"NCCL_ALGO", algorithms}}),
                AllOf(HasSubstr(std::string("NCCL_ALGO=") + algorithms),
                      HasSubstr("Ring,Tree"), HasSubstr("run.deterministic=false")))
        << algorithms;
  }
  EXPECT_THAT(refusal({{"NCCL_NVLS_ENABLE", "1"},
                       {"NCCL_COLLNET_ENABLE", "1"},
                       {"NCCL_TUNER_PLUGIN", "ofi"}}),
              AllOf(HasSubstr("NCCL_NVLS_ENABLE=1"), HasSubstr("NCCL_COLLNET_ENABLE=1"),
                    HasSubstr("NCCL_TUNER_PLUGIN=ofi: a tuner may choose"),
                    HasSubstr("Unset them, or")));
  // Whoever sets one of these has slower messages, or what there is anyway.
  EXPECT_EQ(refusal({{"NCCL_COMM_BLOCKING", "1"}}), "accepted");
  EXPECT_EQ(refusal({{"NCCL_COMM_BLOCKING", "0"}}), "accepted");
}

TEST(NcclEnvironment, IsSetAndRecorded) {
  for (const auto& [name, value] : nccl_variables()) ::unsetenv(name.c_str());
  EXPECT_THAT(nccl_variables(), IsEmpty());
  ::setenv("NCCL_DEBUG", "WARN", 1);
  ::setenv("NCCL_NET", "AWS Libfabric", 1);  // the network and who drives it, too
  ::setenv("NCCL_NET_PLUGIN", "ofi", 1);
  ::setenv("NOT_NCCL_DEBUG", "WARN", 1);
  settle_nccl(*make_self_communicator("world"), true);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  EXPECT_THAT(nccl_variables(), AllOf(Contains(Pair("NCCL_DEBUG", "WARN")),
                                      Contains(Pair("NCCL_NET", "AWS Libfabric")),
                                      Contains(Pair("NCCL_NET_PLUGIN", "ofi")),
                                      Contains(Pair("NCCL_ALGO", "Ring,Tree")),
                                      Contains(Pair("CUDA_DEVICE_MAX_CONNECTIONS", "32")),
                                      Not(Contains(Key("NOT_NCCL_DEBUG")))));
  settle_nccl(*make_self_communicator("world"), true);  // again
  for (const auto& [name, value] : nccl_variables()) ::unsetenv(name.c_str());
}

}  // namespace
}  // namespace trireme::comm
