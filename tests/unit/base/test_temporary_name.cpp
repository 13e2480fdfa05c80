// Names of what is not yet whole: never the same twice, and whose they are.
#include "base/temporary_name.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/host_name.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

TEST(TemporaryName, SaysWhoseItIs) {
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) names.insert(temporary_name("dir/x.tmp-1.h5").string());
  EXPECT_EQ(names.size(), 100u);
  const std::filesystem::path path = *names.begin();
  EXPECT_EQ(path.parent_path(), "dir");
  EXPECT_EQ(temporary_name("x").parent_path(), ".");
  const std::string name = path.filename().string();
  EXPECT_EQ(name_to_be(name), "x.tmp-1.h5");
  for (const char* more : {"", ".tokens"}) {
    const auto owner = owner_of_temporary(name + more);
    ASSERT_TRUE(owner.has_value()) << name << more;
    EXPECT_EQ(owner->of, "x.tmp-1.h5");
    EXPECT_EQ(owner->host, host_name());
    EXPECT_EQ(owner->process, ::getpid());
    EXPECT_TRUE(may_be_alive(*owner));
  }
}

TEST(TemporaryName, OfEarlierVersionsAndOfOthers) {
  const auto owner = owner_of_temporary(".x.tmp-node-1-4711");
  ASSERT_TRUE(owner.has_value());
  EXPECT_EQ(owner->of, "x");
  EXPECT_EQ(owner->host, "node-1");
  EXPECT_EQ(owner->process, 4711);
  for (const char* name :
       {"", "x", ".x", "x.tmp-node-4711", ".x.tmp-", ".x.tmp-node", ".x.tmp-node-0",
        ".x.tmp-node-12x", ".x.tmp-node-99999999999", ".x.tmp-node-0123456789abcdef"}) {
    EXPECT_FALSE(owner_of_temporary(name).has_value()) << name;
  }
  EXPECT_EQ(name_to_be(".x.tmp-node"), "x");
  EXPECT_EQ(name_to_be("x.tmp-node-1"), "");
  EXPECT_EQ(name_to_be(".x"), "");
}

TEST(TemporaryName, AreFoundByWhatTheyShallBeCalled) {
  const test::Scratch scratch;
  for (const char* name : {".step_1.tmp-a-1", ".latest.tmp-a-1", ".run.json.tmp-a-1",
                           "step_1.tmp-a-1", ".step_1", "latest"}) {
    test::spill(scratch / name, "");
  }
  const auto count = [&](std::string_view wanted) {
    return temporaries_in(scratch.path(),
                          [&](std::string_view name) { return name.starts_with(wanted); })
        .size();
  };
  EXPECT_EQ(count(""), 3u);
  EXPECT_EQ(count("step_"), 1u);
  EXPECT_EQ(count("l"), 1u);
  EXPECT_EQ(count("x"), 0u);
  EXPECT_TRUE(temporaries_in("none", [](std::string_view) { return true; }).empty());
}

}  // namespace
}  // namespace trireme
