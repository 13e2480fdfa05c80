// Exceptions of libraries, as users read them.
#include "base/error_message.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <vector>

#include "base/error.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ErrorMessage, OfOurOwnErrorsStands) {
  EXPECT_EQ(message_of(Error("the disk is full")), "the disk is full");
  EXPECT_EQ(message_of(InputError("no such key")), "no such key");
}

TEST(ErrorMessage, SaysThatMemoryIsMissing) {
  const std::string advice = "`trireme train --dry-run` tells what a run takes";
  try {
    std::vector<int>().reserve(std::size_t{1} << 62);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_THAT(message_of(error), StartsWith("out of memory ("));
    EXPECT_THAT(message_of(error), HasSubstr(advice));
  }
  EXPECT_THAT(message_of(std::bad_alloc()), StartsWith("out of memory (std::bad_alloc)"));
  const std::runtime_error kokkos(
      "Kokkos ERROR: Host memory space failed to allocate 1.5 GiB (label=\"weight\").");
  EXPECT_THAT(message_of(kokkos),
              StartsWith("out of memory (Host memory space failed to allocate 1.5 GiB "
                         "(label=\"weight\")): `trireme"));
}

TEST(ErrorMessage, OfTheSystemNamesTheFile) {
  try {
    std::filesystem::create_directory("/proc/none/here");
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_EQ(message_of(error), error.what());
    EXPECT_THAT(message_of(error), HasSubstr("/proc/none/here"));
  }
}

TEST(ErrorMessage, OfALibraryIsNotAll) {
  EXPECT_EQ(message_of(std::out_of_range("[json.exception.type_error.302] type")),
            "an error that trireme has no words for: [json.exception.type_error.302] "
            "type. Please report it, with the command and its files");
}

}  // namespace
}  // namespace trireme
