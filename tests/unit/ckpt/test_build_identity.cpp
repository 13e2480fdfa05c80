// What the program says it is: every field known, and the same in a checkpoint.
#include "ckpt/build_identity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/version.hpp"
#include "io/hdf5.hpp"
#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::ckpt {
namespace {

using ::testing::MatchesRegex;

TEST(BuildIdentity, EveryFieldIsKnown) {
  std::map<std::string, std::string> found;
  for (const auto& [name, value] : build_identity()) {
    EXPECT_TRUE(found.emplace(name, value).second) << name << " twice";
    EXPECT_FALSE(value.empty()) << name;
    EXPECT_EQ(value.find_first_of("\n\t\"@"), std::string::npos) << name << ": " << value;
  }
  EXPECT_EQ(found["trireme"], kVersion);
  EXPECT_EQ(found["git"], git_describe());
  EXPECT_THAT(found["compiler"], MatchesRegex("[A-Za-z]+ [0-9.]+"));
  EXPECT_THAT(found["kokkos"],
              MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+ \\([A-Za-z, ]+\\)"));
  EXPECT_THAT(found["mpi"], MatchesRegex(".*MPI.*[0-9]\\.[0-9].*"));
  EXPECT_THAT(found["hdf5"], MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(found["blas"], MatchesRegex(".*BLAS.*|.*blas.*|.*MKL.*|BLIS.*"));
#ifdef KOKKOS_ENABLE_CUDA
  EXPECT_THAT(found["cuda"], MatchesRegex("[0-9]+\\.[0-9]+"));
#else
  EXPECT_THAT(found["onednn"], MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
#endif
}

TEST(BuildIdentity, StandsInEveryCheckpoint) {
  const test::Scratch scratch;
  const Saved saved = test::save_as(1, scratch.path(), 5);
  const io::H5File index = io::H5File::open(saved.path / "index.h5");
  EXPECT_EQ(index.attribute<std::string>("version"), program_version());
  const io::H5Group build = index.group("build");
  const BuildIdentity identity = build_identity();
  EXPECT_EQ(build.attribute_names().size(), identity.size());
  for (const auto& [name, value] : identity) {
    EXPECT_EQ(build.attribute<std::string>(name), value) << name;
  }
}

}  // namespace
}  // namespace trireme::ckpt
