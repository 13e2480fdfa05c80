// docs/read_weight.py: any HDF5 tool sees whole weights of tensor x pipeline x ZeRO.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

class H5py : public TrainingRuns {};

TEST_F(H5py, ReadsWholeWeightsOfAnyLayout) {
  Arguments arguments = {"train", "deck.yaml", "--run-dir", "run"};
  for (const char* key :
       {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2", "parallel.zero=1",
        "batch.micro=1", "run.steps=2", "run.sample_every=0", "run.validate_every=0"}) {
    arguments.insert(arguments.end(), {"--set", key});
  }
  const RunResult trained = trireme_on_ranks(8, arguments, options(1));
  ASSERT_EQ(trained.status, 0) << trained.err;
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  // Not the first python3 of PATH: a distribution's h5py belongs to the system's.
  const std::string python = "/usr/bin/python3";
  const std::string script = std::string(source) + "/docs/read_weight.py";
  const ckpt::CheckpointReader reader(newest("run"));
  // Of eight ranks, of which some own nothing of so small a model, and the index.
  EXPECT_GE(reader.manifest().files.size(), 6u);
  for (const char* name :
       {"model/embedding/word/weight", "model/layers/0/attention/qkv/weight",
        "model/layers/1/attention/qkv/weight", "model/layers/1/mlp/fc2/weight",
        "optimizer/exp_avg_sq/layers/1/attention/qkv/bias"}) {
    SCOPED_TRACE(name);
    const RunResult result =
        run({python, script, (scratch_ / "run").string(), name}, options(1));
    ASSERT_EQ(result.status, 0)
        << result.err << "python3-h5py is what tools/bootstrap --tests installs";
    const auto json = nlohmann::json::parse(result.out);
    const std::vector<float> truth = reader.read_whole(name);
    EXPECT_EQ(json["step"], 2);
    EXPECT_EQ(json["shape"].get<Shape>(), reader.tensor(name).shape);
    const double sum = std::accumulate(truth.begin(), truth.end(), 0.0);
    EXPECT_NEAR(json["sum"].get<double>(), sum, 1e-9 * static_cast<double>(truth.size()));
    EXPECT_EQ(json["first"].get<std::vector<float>>(),
              std::vector<float>(truth.begin(), truth.begin() + 3));
    EXPECT_EQ(json["last"].get<std::vector<float>>(),
              std::vector<float>(truth.end() - 3, truth.end()));
  }
  const RunResult list = run({python, script, (scratch_ / "run").string()}, options(1));
  EXPECT_THAT(list.out, ::testing::HasSubstr("model/layers/1/mlp/fc2/weight (24, 96)"));
  // A hole is no number.
  std::filesystem::remove(newest("run") / "shard_00000.h5");
  const RunResult hole = run({python, script, (scratch_ / "run").string(),
                              "model/layers/0/attention/qkv/weight"},
                             options(1));
  EXPECT_EQ(hole.status, 1);
  EXPECT_THAT(hole.err, ::testing::HasSubstr("has holes: is a shard missing?"));
}

}  // namespace
}  // namespace trireme::test
