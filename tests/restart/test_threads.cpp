// One run with one, two and three threads, by the program: a process counts its threads
// once, so that each number of them takes a process of its own. Not one bit may differ.
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
};

TEST_F(ThreadsOfRuns, DoNotShowInABit) {
  struct Case {
    std::string name;
    Arguments keys;
  };
  for (const Case& of :
       {Case{"fp32", {}}, Case{"bf16", {"precision.compute=bf16"}},
        Case{"widened", {"precision.compute=bf16", "precision.gemm=widened"}}}) {
    SCOPED_TRACE(of.name);
    const std::string alone = of.name + "_1";
    ASSERT_NO_FATAL_FAILURE(run_with(alone, of.keys, 1));
    for (const int threads : {2, 3}) {
      const std::string together = of.name + "_" + std::to_string(threads);
      ASSERT_NO_FATAL_FAILURE(run_with(together, of.keys, threads));
      expect_same_checkpoint(newest(alone), newest(together));
      expect_same_metrics(alone, together, 3);
    }
  }
}

}  // namespace
}  // namespace trireme::test
