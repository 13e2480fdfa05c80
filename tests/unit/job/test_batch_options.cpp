// #SBATCH lines: what SLURM 22.05's sbatch was seen to read from each, and that it reads
// from ours the bytes that went in.
#include "job/batch_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "unit/io/scratch.hpp"

namespace trireme::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::vector<std::pair<std::string, std::string>> pairs_of(const std::string& script) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const BatchOption& option : batch_options(script, "a.sh")) {
    pairs.emplace_back(option.name, option.value);
  }
  return pairs;
}

TEST(BatchOptions, AreReadAsSbatchDoes) {
  const std::vector<std::pair<std::string, std::string>> seen = {
      {R"("a b")", "a b"},       {R"('it'\''s')", "it's"}, {"a#b", "a"},
      {R"("a#b")", "a#b"},       {R"(a\b)", "ab"},         {R"("a\b")", "ab"},
      {R"('a\b')", "ab"},        {R"("a\"b")", R"(a"b)"},  {R"("a\\b")", R"(a\b)"},
      {R"("a'b")", "a'b"},       {R"('a"b')", R"(a"b)"},   {"a$(x)`y`", "a$(x)`y`"},
      {R"(" a  b ")", " a  b "}, {"a;b!c", "a;b!c"},       {R"(a" "b)", "a b"}};
  for (const auto& [text, value] : seen) {
    EXPECT_THAT(pairs_of("#SBATCH --job-name=" + text + "\n"),
                ElementsAre(Pair("job-name", value)))
        << text;
  }
}

TEST(BatchOptions, HaveOneNameEach) {
  EXPECT_THAT(pairs_of("#!/bin/bash\n"
                       "#SBATCH -N 4 --exclusive -c16  # of a node\n"
                       "#SBATCH\t--constraint \"gpu&hbm80g\"\n"
                       "# SBATCH --no=1\n"
                       "#SBATCHX --no=2\n"
                       "#SBATCH --nodes=8\n"
                       "launcher=(srun)  #SBATCH --no=3"),
              ElementsAre(Pair("nodes", "8"), Pair("exclusive", ""),
                          Pair("cpus-per-task", "16"), Pair("constraint", "gpu&hbm80g")));
}

TEST(BatchOptions, BringAnyBytesToSbatch) {
  std::vector<std::string> values = {"a b",    "a\"b",     "it's", "#1",        "\\",
                                     "a\\\"",  "\"\"",     "$(x)", "`touch x`", "  ",
                                     "-x --y", "\xff\xfe", "ü€",   "100%j"};
  std::string all;
  for (int c = 0x20; c < 0x100; ++c) {
    if (c != 0x7f) all += static_cast<char>(c);
  }
  values.push_back(all);
  for (const std::string& value : values) {
    const std::string line = batch_line({"account", value});
    EXPECT_THAT(pairs_of(line), ElementsAre(Pair("account", value))) << line;
  }
  EXPECT_EQ(batch_line({"exclusive", ""}), "#SBATCH --exclusive\n");
  EXPECT_EQ(batch_line({"time", "0-04:00:00"}), "#SBATCH --time=0-04:00:00\n");
}

TEST(BatchOptions, RefuseWhatSbatchWould) {
  const auto refusal = [](const std::string& line) {
    return test::message_of<InputError>([&] { batch_options("\n" + line, "a.sh"); });
  };
  EXPECT_THAT(refusal("#SBATCH --comment=\"a"), HasSubstr("a.sh:2: a quote is open"));
  EXPECT_THAT(refusal("#SBATCH --job-name=a b"), HasSubstr("a.sh:2: 'b' is no option"));
  EXPECT_THAT(refusal("#SBATCH --=3"), HasSubstr("a.sh:2: '--=3' is no option"));
  EXPECT_THAT(refusal("#SBATCH --a;b=3"), HasSubstr("a.sh:2: '--a;b=3' is no option"));
  EXPECT_THAT(refusal("#SBATCH -"), HasSubstr("a.sh:2: '-' is no option"));
  EXPECT_THAT(refusal("#SBATCH -Z 3"), HasSubstr("a.sh:2: '-Z' is a short option"));
}

}  // namespace
}  // namespace trireme::job
