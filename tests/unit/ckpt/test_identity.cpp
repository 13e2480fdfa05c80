// Names of runs and saves, and of the directories of steps.
#include <gtest/gtest.h>

#include <set>

#include "ckpt/identity.hpp"

namespace trireme {
namespace {

TEST(Identity, IsAnotherEachTime) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.insert(ckpt::random_id());
  EXPECT_EQ(ids.size(), 100u);
  for (const std::string& id : ids) EXPECT_TRUE(ckpt::is_id(id)) << id;
  for (const char* text : {"", "0123456789abcdef", "0123456789abcdef0123456789abcdeF",
                           "0123456789abcdef0123456789abcdef0"}) {
    EXPECT_FALSE(ckpt::is_id(text)) << text;
  }
}

TEST(Identity, ForPeople) {
  EXPECT_EQ((ckpt::Identity{"12", "ab", 240}.text()), "run 12, save ab, step 240");
}

}  // namespace
}  // namespace trireme
