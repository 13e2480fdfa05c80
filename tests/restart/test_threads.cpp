// One run with one, two and three threads, by the program: a process counts its threads
// once, so that each number of them takes a process of its own. Not one bit may differ,
// but for fp32 on a processor without AVX-512: there oneDNN sums other rows at once where
// the same product is cut into other parts, and only the losses have to agree.
#include <string>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

class ThreadsOfRuns : public TrainingRuns {
 protected:
  // A text of three documents, long enough for samples of three tiles of attention.
  ThreadsOfRuns() {
    const std::string text = io::read_file(fixture("sample.txt"));
    make_corpus(scratch_, "long.h5", {text, text, text}, trained_tokenizer());
  }

  // Products are cut differently for each number of threads; of four heads, three threads
  // take keys and queries of attention's backward pass apart, fewer take them together.
  void run_with(const std::string& run, const Arguments& keys, int threads) const {
    Arguments arguments;
    for (const char* key :
         {"model.hidden=96", "model.heads=4", "model.sequence=160", "data.train=long.h5",
          "batch.micro=1", "batch.global=2", "run.steps=3", "run.sample_every=0"}) {
      arguments.insert(arguments.end(), {"--set", key});
    }
    for (const std::string& key : keys) arguments.insert(arguments.end(), {"--set", key});
    const RunResult result = train(run, arguments, "deck.yaml", threads);
    ASSERT_EQ(result.status, 0) << result.err;
  }

  void expect_near_losses(const std::string& a, const std::string& b, int steps) const {
    const report::MetricsLog one = metrics(a), other = metrics(b);
    ASSERT_EQ(one.steps.size(), static_cast<std::size_t>(steps));
    ASSERT_EQ(other.steps.size(), one.steps.size());
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_NEAR(other.steps[i].loss, one.steps[i].loss, 1e-5) << "step " << i + 1;
    }
  }
};

TEST_F(ThreadsOfRuns, DoNotShowInABit) {
  struct Case {
    std::string name;
    bool has_same_bits;
    Arguments keys;
  };
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0;
  for (const Case& of :
       {Case{"fp32", has_avx512, {}}, Case{"bf16", true, {"precision.compute=bf16"}},
        Case{"widened", true, {"precision.compute=bf16", "precision.gemm=widened"}}}) {
    SCOPED_TRACE(of.name);
    const std::string alone = of.name + "_1";
    ASSERT_NO_FATAL_FAILURE(run_with(alone, of.keys, 1));
    for (const int threads : {2, 3}) {
      const std::string together = of.name + "_" + std::to_string(threads);
      ASSERT_NO_FATAL_FAILURE(run_with(together, of.keys, threads));
      if (of.has_same_bits) {
        expect_same_checkpoint(newest(alone), newest(together));
        expect_same_metrics(alone, together, 3);
      } else {
        expect_near_losses(alone, together, 3);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::test
