// The list of parameters: order, names, what is counted.
#include "tensor/param_registry.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

ParamSpec spec(const std::string& name, ShardSpec shard) {
  ParamSpec result;
  result.name = name;
  result.shard = std::move(shard);
  return result;
}

TEST(ParamRegistryNames, KeepTheOrderOfRegistration) {
  ParamRegistry registry;
  EXPECT_EQ(registry.size(), 0u);
  EXPECT_EQ(registry.add(spec("z", replicated({3}))), 0u);
  EXPECT_EQ(registry.add(spec("a", replicated({4}))), 1u);
  EXPECT_EQ(registry.add(spec("m/weight", replicated({2, 2}))), 2u);
  ASSERT_EQ(registry.size(), 3u);
  EXPECT_EQ(registry.specs()[1].name, "a");
  EXPECT_EQ(registry.spec(2).name, "m/weight");
  EXPECT_EQ(registry.find("z"), 0u);
  EXPECT_EQ(registry.find("m/weight"), 2u);
  EXPECT_THROW(registry.spec(3), std::exception);
}

TEST(ParamRegistryNames, UnknownAndDoubleOnesAreErrors) {
  ParamRegistry registry;
  registry.add(spec("layers/0/mlp/fc1/weight", replicated({3})));
  EXPECT_THAT([&] { registry.add(spec("layers/0/mlp/fc1/weight", replicated({4}))); },
              ThrowsMessage<Error>(
                  HasSubstr("parameter 'layers/0/mlp/fc1/weight' is registered twice")));
  EXPECT_EQ(registry.size(), 1u);
  EXPECT_THAT([&] { registry.find("layers/0"); },
              ThrowsMessage<Error>(HasSubstr("no parameter 'layers/0'")));
}

// The model's parameters, not this rank's: unpadded, whole, tied copies once.
TEST(ParamRegistryCount, IsThatOfTheGlobalTensors) {
  ParamRegistry registry;
  EXPECT_EQ(registry.global_element_count(), 0);
  registry.add(spec("word", split({211, 16}, 0, 4, 3, 128)));
  EXPECT_THROW(split({211, 16}, 1, 4, 3, 128), Error);  // columns are not padded
  registry.add(spec("fc1", split({64, 16}, 0, 4, 3)));
  registry.add(spec("scalar", replicated({})));
  registry.add(spec("norm", replicated({16})));
  EXPECT_EQ(registry.global_element_count(), 211 * 16 + 64 * 16 + 1 + 16);
  ParamSpec copy = spec("word_of_last_stage", split({211, 16}, 0, 4, 3, 128));
  copy.tie = Tie::copy;
  registry.add(copy);
  EXPECT_EQ(registry.global_element_count(), 211 * 16 + 64 * 16 + 1 + 16);
}

// 10^12 parameters: more than 32 bits can count.
TEST(ParamRegistryCount, Is64BitsWide) {
  ParamRegistry registry;
  registry.add(spec("large", replicated({1000000, 1000000})));
  EXPECT_EQ(registry.global_element_count(), 1000000000000);
}

}  // namespace
}  // namespace trireme
