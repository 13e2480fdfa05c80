// train --trace: a timeline of all ranks on which what one hands to the other is in
// order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/sentence_piece_library.hpp"
#include "regression/cli/sample_corpora.hpp"
#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::SizeIs;

class TrainTrace : public Workplace {
 protected:
  fs::path trace() const { return scratch_ / "trace.json"; }
  std::vector<std::string> arguments(std::vector<std::string> overrides,
                                     const std::vector<std::string>& options = {}) const {
    overrides.insert(overrides.end(), {"batch.global=8"});  // 4 micro-batches
    std::vector<std::string> all = train_arguments(overrides, {"--trace", trace()});
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }
  // Events of a rank with this name ("forward 0"), in the order of time.
  static std::vector<json> events(const json& trace, int rank, const std::string& name) {
    std::vector<json> found;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] == "X" && event["pid"] == rank && event["name"] == name) {
        found.push_back(event);
      }
    }
    std::sort(found.begin(), found.end(), [](const json& a, const json& b) {
      return a["ts"].get<double>() < b["ts"].get<double>();
    });
    return found;
  }
  static double begin(const json& event) { return event["ts"].get<double>(); }
  static double end(const json& event) {
    return event["ts"].get<double>() + event["dur"].get<double>();
  }
};

TEST_F(TrainTrace, OfAPipeline) {
  const RunResult result =
      trireme_on_ranks(2, arguments({"parallel.pipeline=2"}, {"--trace-steps", "2-3"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("trace of 2 steps of 2 ranks in '"));
  const json trace = json::parse(slurp(this->trace()));
  EXPECT_EQ(trace["otherData"]["ranks"], 2);
  EXPECT_EQ(trace["otherData"]["steps"], 2);
  EXPECT_EQ(trace["otherData"]["lost_events"], 0);
  // Nothing else is left.
  for (const auto& entry : fs::directory_iterator(this->trace().parent_path())) {
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("json.")));
  }
  const double error = trace["otherData"]["clock_error_us"];
  for (int m = 0; m < 4; ++m) {
    const auto first = events(trace, 0, "forward " + std::to_string(m));
    const auto second = events(trace, 1, "forward " + std::to_string(m));
    const auto back = events(trace, 1, "backward " + std::to_string(m));
    const auto last = events(trace, 0, "backward " + std::to_string(m));
    for (const auto* of : {&first, &second, &back, &last}) ASSERT_EQ(of->size(), 2u);
    for (std::size_t step = 0; step < 2; ++step) {
      SCOPED_TRACE("micro-batch " + std::to_string(m) + ", step " + std::to_string(step));
      EXPECT_EQ(first[step]["args"]["microbatch"], m);
      EXPECT_LE(begin(first[step]), end(first[step]));
      // What a stage waits for is inside of its pass.
      EXPECT_LE(end(first[step]), end(second[step]) + error);
      EXPECT_LE(end(second[step]), begin(back[step]));
      EXPECT_LE(end(back[step]), end(last[step]) + error);
    }
  }
  // Each message is under way at one end when it arrives at the other.
  const auto sends = events(trace, 0, "send");
  const auto receives = events(trace, 1, "recv");
  ASSERT_EQ(sends.size(), 2u * 4);
  ASSERT_EQ(receives.size(), sends.size());
  for (std::size_t i = 0; i < sends.size(); ++i) {
    EXPECT_EQ(sends[i]["args"]["site"], "activations");
    EXPECT_EQ(sends[i]["args"]["elements"], 2 * 16 * 32);
    EXPECT_GT(sends[i]["tid"], 0);
    EXPECT_LE(begin(sends[i]), end(receives[i]) + error);
  }
  // What the first rank is busy with lies one in the other, or one after the other.
  std::vector<json> busy;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] == 0 && event["tid"] == 0) {
      busy.push_back(event);
    }
  }
  ASSERT_GT(busy.size(), 20u);
  for (const json& a : busy) {
    for (const json& b : busy) {
      const bool cross = begin(a) < begin(b) && begin(b) < end(a) && end(a) < end(b);
      EXPECT_FALSE(cross && end(b) - end(a) > 1e-3) << a << " and " << b;
    }
  }
}

#ifndef KOKKOS_ENABLE_CUDA  // parts of passes are in the trace of a host alone

// BERT and T5 on two stages: each pass has the parts of the blocks that its stage has.
class TrainTraceOfKinds : public TrainTrace {
 protected:
  // The second step of a run on two stages.
  json traced(const std::string& kind, const std::vector<std::string>& overrides = {}) {
    const fs::path corpus = scratch_ / (kind + ".h5");
    if (kind == "bert") {
      make_sample_corpus_of_bert(corpus);
    } else {
      make_sample_corpus_of_t5(corpus);
    }
    std::vector<std::string> all = {"parallel.pipeline=2", "run.validate_every=0"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const RunResult result =
        train_kind(kind, corpus, all, {"--trace", trace(), "--trace-steps", "2"}, 2);
    EXPECT_EQ(result.status, 0) << result.err;
    json trace = json::parse(slurp(this->trace()));
    EXPECT_EQ(trace["otherData"]["steps"], 1);
    EXPECT_EQ(trace["otherData"]["lost_events"], 0);
    return trace;
  }
  // What of the model a rank was at within its pass of this name, in the order of time.
  static std::vector<std::string> parts_of(const json& trace, int rank,
                                           const std::string& name) {
    const std::vector<json> passes = events(trace, rank, name);
    EXPECT_EQ(passes.size(), 1u) << name;
    std::vector<json> found;
    for (const char* part : {"embedding", "norms", "attention", "mlp", "head"}) {
      for (const json& event : events(trace, rank, part)) {
        if (begin(passes.at(0)) <= begin(event) && end(event) <= end(passes[0])) {
          found.push_back(event);
        }
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const json& a, const json& b) { return begin(a) < begin(b); });
    std::vector<std::string> names;
    for (const json& event : found) names.push_back(event["name"]);
    return names;
  }
  static auto count(const std::vector<std::string>& parts, const char* part) {
    return std::count(parts.begin(), parts.end(), part);
  }
  // Elements of the messages from the first stage to the second.
  static std::vector<int> elements_sent(const json& trace) {
    std::vector<int> elements;
    for (const json& event : events(trace, 0, "send")) {
      EXPECT_EQ(event["args"]["site"], "activations");
      elements.push_back(event["args"]["elements"]);
    }
    return elements;
  }
};

TEST_F(TrainTraceOfKinds, Bert) {
  const json trace = traced("bert");
  for (const std::string m : {"0", "1"}) {
    SCOPED_TRACE("micro-batch " + m);
    EXPECT_THAT(parts_of(trace, 0, "forward " + m),
                ElementsAre("embedding", "norms", "attention", "mlp"));
    // A layer, the norm behind all, the pair's head and that of masked words.
    EXPECT_THAT(parts_of(trace, 1, "forward " + m),
                ElementsAre("norms", "attention", "mlp", "norms", "head", "head"));
    const auto back = parts_of(trace, 1, "backward " + m);
    EXPECT_EQ(count(back, "head"), 2);
    EXPECT_EQ(back.at(0), "head");
    EXPECT_EQ(count(parts_of(trace, 0, "backward " + m), "head"), 0);
  }
  EXPECT_THAT(elements_sent(trace), AllOf(SizeIs(Ge(2u)), Each(2 * 32 * 32)));
}

// The first stage has all of the encoder and the decoder's first layer.
TEST_F(TrainTraceOfKinds, T5) {
  if (!data::has_sentence_piece()) GTEST_SKIP() << "a build without SentencePiece";
  const json trace = traced("t5", {"parallel.stages=[3, 1]", "model.decoder_sequence=8"});
  for (const std::string m : {"0", "1"}) {
    SCOPED_TRACE("micro-batch " + m);
    // Words of the source, two layers, a norm; words of the target, a layer.
    EXPECT_THAT(
        parts_of(trace, 0, "forward " + m),
        ElementsAre("embedding", "norms", "attention", "mlp", "norms", "attention", "mlp",
                    "norms", "embedding", "norms", "attention", "attention", "mlp"));
    EXPECT_THAT(parts_of(trace, 1, "forward " + m),
                ElementsAre("norms", "attention", "attention", "mlp", "head"));
    // Gradients of inputs and of weights, of both kinds of attention.
    const auto back = parts_of(trace, 1, "backward " + m);
    EXPECT_EQ(count(back, "attention"), 4);
    EXPECT_EQ(count(back, "head"), 1);
    EXPECT_EQ(count(parts_of(trace, 0, "backward " + m), "attention"), 2 * 2 + 4);
  }
  // Memory and text in one message.
  EXPECT_THAT(elements_sent(trace), AllOf(SizeIs(Ge(2u)), Each(2 * (32 + 8) * 32)));
}

#endif

// Where launches go on beside the host: each pass once more, as the device was at it. On
// a host a kernel runs when it is launched, and copies alone come late.
TEST_F(TrainTrace, OfADevice) {
  const RunResult result = trireme_on_ranks(
      2, arguments({"parallel.pipeline=2"}, {"--late", "--trace-steps", "2-3"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Pipeline: 2 stages"));
  const json trace = json::parse(slurp(this->trace()));
  int row = -1;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["pid"] == 1 && event["args"]["name"] == "kernels") {
      row = event["tid"];
    }
  }
  ASSERT_GT(row, 0);
  for (int m = 0; m < 4; ++m) {
    for (const std::string kind : {"forward ", "backward "}) {
      SCOPED_TRACE(kind + std::to_string(m));
      std::vector<json> host, device;
      for (const json& event : events(trace, 1, kind + std::to_string(m))) {
        (event["tid"] == 0 ? host : device).push_back(event);
      }
      ASSERT_EQ(host.size(), 2u);
      ASSERT_EQ(device.size(), 2u);
      for (std::size_t step = 0; step < 2; ++step) {
        EXPECT_EQ(device[step]["tid"], row);
        EXPECT_EQ(device[step]["args"]["microbatch"], m);
        EXPECT_GE(begin(device[step]), begin(host[step]) - 100.0);  // us
        EXPECT_LE(end(device[step]), end(host[step]) + 100.0);
      }
    }
  }
}

// Steps go on while it is written.
TEST_F(TrainTrace, OfASave) {
  const RunResult result = trireme(
      arguments({"run.steps=60", "checkpoint.every=10"}, {"--trace-steps", "2-59"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const json trace = json::parse(slurp(this->trace()));
  const auto writes = events(trace, 0, "write");
  ASSERT_THAT(writes.size(), Ge(1u));
  int meanwhile = 0;
  for (const json& pass : events(trace, 0, "forward 0")) {
    for (const json& write : writes) {
      if (begin(write) < begin(pass) && end(pass) < end(write)) ++meanwhile;
    }
  }
  EXPECT_THAT(meanwhile, Ge(static_cast<int>(writes.size())));
}

TEST_F(TrainTrace, OfOneRankAndOfARunThatEnds) {
  const RunResult whole = trireme(arguments({}));
  ASSERT_EQ(whole.status, 0) << whole.err;
  const json trace = json::parse(slurp(this->trace()));
  EXPECT_EQ(trace["otherData"]["steps"], 3);  // 2 to 4
  EXPECT_EQ(events(trace, 0, "forward 3").size(), 3u);
  EXPECT_EQ(events(trace, 0, "optimizer").size(), 3u);
  // Of step 2, and looks at how far it is; the run's end is out.
  EXPECT_THAT(events(trace, 0, "checkpoint").size(), AllOf(Ge(1u), Le(3u)));

  fs::remove_all(run_dir());
  const RunResult short_run = trireme(arguments({}, {"--trace-steps", "4-9"}));
  ASSERT_EQ(short_run.status, 0) << short_run.err;
  EXPECT_EQ(json::parse(slurp(this->trace()))["otherData"]["steps"], 1);
  fs::remove_all(run_dir());
  fs::remove(this->trace());
  const RunResult none = trireme(arguments({}, {"--trace-steps", "5-9"}));
  ASSERT_EQ(none.status, 0) << none.err;
  EXPECT_THAT(none.err + none.out, HasSubstr("the run ended before step 5"));
  EXPECT_FALSE(fs::exists(this->trace()));
}

TEST_F(TrainTrace, RefusesBeforeItBegins) {
  RunResult result = trireme(arguments({}, {"--trace-steps", "3-1"}));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--trace-steps 3-1: expected two numbers"));
  result = train({}, {"--trace", scratch_ / "no/such/place.json"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("no/such"));
  for (const char* stream : {"-", "/dev/stdout"}) {
    result = train({}, {"--trace", stream});
    EXPECT_EQ(result.status, 2) << stream;
    EXPECT_THAT(result.err, HasSubstr("a trace is a file of its own")) << stream;
  }
  // Neither the deck nor a corpus is written over.
  const std::string text = slurp(deck());
  result = train({}, {"--trace", deck()});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("is also what is read"));
  EXPECT_EQ(slurp(deck()), text);
  result = train({}, {"--trace", corpus()});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("holds a corpus, vectors or weights"));
  EXPECT_FALSE(fs::exists(run_dir()));
  EXPECT_EQ(train({}, {"--trace-steps", "1-2"}).status, 2);
  EXPECT_EQ(train({}, {"--trace", trace(), "--dry-run"}).status, 2);
  // Nor is what the run itself has written.
  ASSERT_EQ(train().status, 0);
  result = train({}, {"--resume", "auto", "--trace", run_dir() / "train.jsonl"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("is part of the run or checkpoint"));
}

}  // namespace
}  // namespace trireme::test
