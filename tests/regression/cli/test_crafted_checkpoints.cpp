// Checkpoints with every checksum right, whose parts are of two saves, or which hold
// numbers that are none: each command refuses them with status 2, and a run goes on from
// the checkpoint before.
#include <cmath>
#include <regex>

#include "regression/cli/workplace.hpp"
#include "support/hdf5_edit.hpp"
#include "unit/ckpt/crafted.hpp"

namespace trireme::test {
namespace {

using testing::HasSubstr;

// Messages fit the width of a screen: a line that goes on is indented.
std::string without_breaks(const std::string& text) {
  return std::regex_replace(text, std::regex("\n +"), " ");
}

class CraftedCheckpoints : public Workplace {
 protected:
  CraftedCheckpoints() { EXPECT_EQ(train().status, 0); }
  fs::path step(int number) const {
    return run_dir() / ("checkpoints/step_0000000" + std::to_string(number));
  }
  // By every command that is given this checkpoint alone.
  void expect_refused_by_all(const std::vector<std::string>& parts) const {
    const std::string path = step(4).string();
    RunResult shown = trireme({"inspect", path, "--verify"});
    EXPECT_EQ(shown.status, 2) << shown.out;
    for (const std::string& part : parts) EXPECT_THAT(shown.err, HasSubstr(part));
    expect_refusal(trireme({"convert", path, scratch_ / "hf"}), parts);
    EXPECT_FALSE(fs::exists(scratch_ / "hf"));
    expect_error(trireme({"evaluate", "--checkpoint", path, "--data", corpus()}), 2,
                 parts);
    expect_error(trireme({"generate", "--checkpoint", path, "--prompt", "the"}), 2,
                 parts);
    expect_error(train({"run.steps=6"}, {"--resume", path}), 2, parts);
    expect_error(train({"run.dir=" + (scratch_ / "new").string()}, {"--init-from", path}),
                 2, parts);
  }
  // The checkpoint before is whole.
  void expect_to_go_on_from_before(const std::vector<std::string>& parts) const {
    const RunResult result = train({"run.steps=6"}, {"--resume", "auto"});
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string said = without_breaks(result.out + result.err);
    for (const std::string& part : parts) EXPECT_THAT(said, HasSubstr(part));
    EXPECT_EQ(manifest_of(step(6)).step, 6);
    EXPECT_EQ(manifest_of(step(6)).samples, 24);
  }
};

TEST_F(CraftedCheckpoints, IndexOfTheStepBefore) {
  fs::copy_file(step(2) / "index.h5", step(4) / "index.h5",
                fs::copy_options::overwrite_existing);
  make_right(step(4));
  EXPECT_EQ(trireme({"inspect", step(4)}).status, 2);
  EXPECT_EQ(trireme({"inspect", run_dir()}).status, 2);
  const std::string what = "index.h5' is not the index of this checkpoint: it is of run ";
  expect_refused_by_all({what, "step 2", "step 4"});
  expect_to_go_on_from_before({what});
}

TEST_F(CraftedCheckpoints, ShardOfTheStepBefore) {
  fs::copy_file(step(2) / "shard_00000.h5", step(4) / "shard_00000.h5",
                fs::copy_options::overwrite_existing);
  make_right(step(4));
  EXPECT_EQ(trireme({"inspect", step(4)}).status, 2);
  const std::string what = "shard_00000.h5' is of another checkpoint";
  expect_refused_by_all({what});
  expect_to_go_on_from_before({what});
}

TEST_F(CraftedCheckpoints, LinkInTheIndex) {
  make_external_link(step(4) / "index.h5", "deck", (step(2) / "index.h5").string(),
                     "deck");
  make_right(step(4));
  EXPECT_EQ(trireme({"inspect", step(4)}).status, 2);
  expect_refused_by_all({"index.h5'", "/deck is an external link"});
}

TEST_F(CraftedCheckpoints, NumbersThatAreNone) {
  set_element(step(4), "model/layers/0/attention/qkv/weight", 5, std::nanf(""));
  make_right(step(4));
  const std::string what =
      "1 number of 'model/layers/0/attention/qkv/weight' is not finite; the first is nan "
      "at (0, 5)";
  EXPECT_EQ(trireme({"inspect", step(4)}).status, 0);  // numbers are --verify's to find
  expect_refused_by_all({what});
  const RunResult resumed = train({"run.steps=6"}, {"--resume", step(4).string()});
  EXPECT_THAT(resumed.err, HasSubstr("the checkpoint '"));
  expect_to_go_on_from_before({what});
}

TEST_F(CraftedCheckpoints, SecondMomentsBelowZero) {
  set_element(step(4), "optimizer/exp_avg_sq/final_norm/bias", 3, -1.5f);
  make_right(step(4));
  const std::string what =
      "1 number of 'optimizer/exp_avg_sq/final_norm/bias' is not finite, or below zero, "
      "which no second moment is; the first is -1.5 at (3)";
  EXPECT_THAT(trireme({"inspect", step(4), "--verify"}).err, HasSubstr(what));
  expect_error(train({"run.steps=6"}, {"--resume", step(4).string()}), 2, {what});
  expect_to_go_on_from_before({what});
}

// Both the index and the manifest say it, but the deck in it knows better.
TEST_F(CraftedCheckpoints, CountsThatItsStepsDoNotMake) {
  const auto count = [&](std::int64_t samples, std::int64_t tokens) {
    set_attribute(step(4) / "index.h5", "samples", samples);
    set_attribute(step(4) / "index.h5", "tokens", tokens);
    make_right(step(4), [&](ckpt::Manifest& m) {
      m.samples = samples;
      m.tokens = tokens;
    });
  };
  count(7, 7 * 16);
  expect_error(train({"run.steps=6"}, {"--resume", step(4).string()}), 2,
               {"is of step 4 after 7 samples"});
  count(16, 7);
  expect_error(train({"run.steps=6"}, {"--resume", step(4).string()}), 2,
               {"counts 7 tokens in 16 samples of 16"});
  count((std::int64_t{1} << 62), 7);
  expect_error(train({"run.steps=6"}, {"--resume", step(4).string()}), 2,
               {"has samples 4611686018427387904"});
}

// As an attacker or a buggy writer would have it: no signal, status 2.
TEST_F(CraftedCheckpoints, IntegersThatWrapAround) {
  const std::string manifest = slurp(step(4) / "manifest.json");
  const std::string first = R"("start":[0,0],"shape":[300,32])";
  const std::string tensor = R"("shape":[300,32])";
  std::string text = manifest;
  text.replace(text.find(tensor), tensor.size(), R"("shape":[1,4611686018427387904])");
  ASSERT_NE(text.find(first), std::string::npos);
  text.replace(text.find(first), first.size(),
               R"("start":[0,0],"shape":[1,4611686018427387904])");
  spill(step(4) / "manifest.json", with_right_sum(text));
  EXPECT_EQ(trireme({"inspect", step(4)}).status, 2);
  expect_refused_by_all({"embedding/word/weight", "which no tensor has"});
  expect_to_go_on_from_before({"which no tensor has"});
}

TEST_F(CraftedCheckpoints, ManifestOfOtherKindsOfValues) {
  const auto expect = [&](const std::string& what, const std::string& by,
                          const std::string& part) {
    const std::string before = slurp(step(4) / "manifest.json");
    replace_in_manifest(step(4), what, by);
    EXPECT_EQ(trireme({"inspect", step(4)}).status, 2);
    expect_refused_by_all({"step_00000004/manifest.json' is damaged: " + part});
    spill(step(4) / "manifest.json", before);
  };
  // A scalar, of one block.
  const std::string whole = slurp(step(4) / "manifest.json");
  replace_in_manifest(step(4), R"("shape":[300,32])", R"("shape":[])");
  expect(
      R"("start":[0,0],"shape":[300,32])", R"("start":[],"shape":[])",
      "blocks[0]: a block of 'model/embedding/word/weight', elements () from (), is no "
      "part of its shape ()");
  spill(step(4) / "manifest.json", whole);
  expect(R"("offset":)", R"("offset":1.5,"spare":)", "blocks[0]: 'offset' is 1.5; ");
  replace_in_manifest(step(4), R"("dtype":"float32")", R"("dtype":["float32"])");
  expect_to_go_on_from_before(
      {"tensors[0]: 'dtype' is [\"float32\"]; expected a string"});
}

}  // namespace
}  // namespace trireme::test
