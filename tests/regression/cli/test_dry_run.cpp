// `trireme train --dry-run`: checks the deck, prints parameters, FLOPs and memory, and
// makes neither a model nor a file.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "base/format.hpp"
#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kTokens = 512 * 1024;  // of a step of inputs/gpt/gpt2-124m.yaml
constexpr std::int64_t kWords = 50257;  // of GPT-2's vocabulary

// Rows of the word embedding that each of the tensor ranks keeps, with padding.
constexpr std::int64_t words_of_rank(std::int64_t ranks = 1) {
  return ((kWords + ranks - 1) / ranks + 127) / 128 * 128;
}

class DryRun : public Workplace {
 protected:
  json dry_run(std::vector<std::string> arguments, const RunOptions& options = {}) {
    const fs::path file = scratch_ / "dry.json";
    arguments.insert(arguments.begin(), "train");
    arguments.insert(arguments.end(), {"--dry-run", "--json", file});
    const RunResult result = trireme(arguments, options);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    out_ = result.out;
    return json::parse(slurp(file));
  }
  // A deck of inputs/ with some values changed; its corpus is not there.
  json input(const std::string& name, const std::vector<std::string>& sets,
             int ranks = 1) {
    std::vector<std::string> arguments = {source_file("inputs/" + name + ".yaml"),
                                          "--ranks", std::to_string(ranks)};
    for (const std::string& set : sets) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    return dry_run(arguments, {.directory = scratch_.path()});
  }
  // GPT-2 124M with some values changed.
  json gpt2(const std::vector<std::string>& sets, int ranks = 1) {
    return input("gpt/gpt2-124m", sets, ranks);
  }
  // No number in place of one that is not known, and a line that says why.
  void expect_no_memory(const json& result, const std::string& why) {
    EXPECT_EQ(result["memory"], json(nullptr));
    EXPECT_EQ(result["not_known"]["memory"], json::array({why}));
    EXPECT_THAT(out_,
                HasSubstr("memory of each rank\n  not known yet with " + why + "\n"));
    EXPECT_THAT(out_, Not(HasSubstr("optimizer state")));
  }
  std::string out_;
};

// Plans of all stages of this pipeline took 16 GB and were not done after ten minutes.
TEST_F(DryRun, OfADeepPipelineShowsTheStagesThatDiffer) {
  for (const std::string schedule : {"1f1b", "zero_bubble"}) {
    const json result =
        gpt2({"model.layers=4096", "parallel.pipeline=4096", "model.hidden=12",
              "model.sequence=8", "model.vocab=300", "batch.micro=1",
              "batch.global=65536", "parallel.schedule=" + schedule},
             4096);
    const json& stages = result["memory"]["stages"];
    ASSERT_LE(stages.size(), 8u);
    EXPECT_EQ(stages.front()["stage"], 0);
    EXPECT_EQ(stages.back()["stage"], 4095);
    EXPECT_EQ(stages[1]["stage"], 1);
    EXPECT_EQ(stages[1]["in_flight"], json::array({schedule == "1f1b" ? 4095 : 4096}));
    EXPECT_THAT(out_, HasSubstr(fmt::format("  {} of 4096: of those that have the same "
                                            "layers the first and the last\n",
                                            stages.size())));
  }
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &usage), 0);
  EXPECT_LT(usage.ru_maxrss, 500 * 1024) << "KiB, of the largest dry run";
}

// Each where asked: those that are shown otherwise are the same, and all together are the
// model.
TEST_F(DryRun, OfADeepPipelineShowsAllStagesWhereAsked) {
  const auto pipeline = [&](int stages, const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {source_file("inputs/gpt/gpt2-124m.yaml"),
                                          "--ranks", std::to_string(stages)};
    for (const std::string& set :
         {fmt::format("model.layers={}", stages),
          fmt::format("parallel.pipeline={}", stages), std::string("model.hidden=12"),
          std::string("model.sequence=8"), std::string("model.vocab=300"),
          std::string("batch.micro=1"), std::string("batch.global=512")}) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  };
  const json shown = dry_run(pipeline(80, {}));
  const json& some = shown["memory"]["stages"];
  EXPECT_LE(some.size(), 8u);
  EXPECT_THAT(out_, HasSubstr("--all-stages: all"));
  const json result = dry_run(pipeline(80, {"--all-stages"}));
  const json& all = result["memory"]["stages"];
  ASSERT_EQ(all.size(), 80u);
  EXPECT_THAT(out_, Not(HasSubstr("of 80:")));
  EXPECT_THAT(out_, HasSubstr("\n     40 "));
  std::int64_t parameters = 0;
  for (std::size_t s = 0; s < all.size(); ++s) {
    EXPECT_EQ(all[s]["stage"], s);
    parameters += all[s]["parameters"].get<std::int64_t>();
  }
  EXPECT_EQ(parameters, result["parameters"]);
  int stand_for = 0;
  for (json stage : some) {
    stand_for += stage["stands_for"].get<int>();
    stage["stands_for"] = 1;
    EXPECT_EQ(all[stage["stage"].get<std::size_t>()], stage);
  }
  EXPECT_EQ(stand_for, 80);
  EXPECT_EQ(shown["flops"], result["flops"]);
  std::vector<std::string> deeper = pipeline(1025, {"--all-stages", "--dry-run"});
  deeper.insert(deeper.begin(), "train");
  expect_refusal(trireme(deeper, {.directory = scratch_.path()}),
                 {"--all-stages", "1025", "at most 1,024 stages"});
}

TEST_F(DryRun, TellsWhatARunTakes) {
  const json result = dry_run({deck()});
  // V h + s h + L (12 h^2 + 13 h) + 2 h, with the vocabulary of the corpus.
  const std::int64_t h = 32,
                     parameters = 300 * h + 16 * h + 2 * (12 * h * h + 13 * h) + 2 * h;
  EXPECT_EQ(result["parameters"], parameters);
  EXPECT_THAT(out_, HasSubstr("is valid"));
  EXPECT_THAT(out_, HasSubstr("35,584"));
  // A step's FLOPs, with attention counted in full: 6 per matrix element and token, 12 L
  // s h per token for scores and values.
  const double tokens = 4 * 16;
  const double matrices = 2 * 12.0 * h * h + 300.0 * h;
  EXPECT_DOUBLE_EQ(result["flops"]["model"].get<double>(),
                   tokens * (6 * matrices + 12.0 * 2 * 16 * h));
  const json& stage = result["memory"]["stages"][0];
  EXPECT_GE(stage["weights"].get<double>(), 4.0 * static_cast<double>(parameters));
  EXPECT_GE(stage["optimizer"].get<double>(), 8.0 * static_cast<double>(parameters));
  std::int64_t sum = 0;
  for (const char* part :
       {"weights", "gradients", "optimizer", "activations", "scratch", "batch"}) {
    EXPECT_GT(stage[part].get<std::int64_t>(), 0) << part;
    sum += stage[part].get<std::int64_t>();
  }
  EXPECT_EQ(stage["total"], sum);
  for (const char* word : {"parameters", "model FLOPs", "hardware FLOPs", "weights",
                           "gradients", "optimizer state", "saved: ", "total"}) {
    EXPECT_THAT(out_, HasSubstr(word));
  }
  EXPECT_FALSE(fs::exists(run_dir()));
}

// Published sizes; no corpus is there, and the largest model's state would take 25 GB.
TEST_F(DryRun, DecksOfTheProject) {
  const std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> decks = {
      {"gpt2-124m", 124439808, 768},
      {"gpt2-355m", 354823168, 1024},
      {"gpt2-774m", 774030080, 1280},
      {"gpt2-1.5b", 1557611200, 1600}};
  for (const auto& [name, parameters, h] : decks) {
    const json result = dry_run({source_file("inputs/gpt/" + name + ".yaml")},
                                {.directory = scratch_.path()});
    EXPECT_EQ(result["parameters"], parameters) << name;
    EXPECT_EQ(result["memory"]["stages"][0]["weights"],
              4 * (parameters + (words_of_rank() - kWords) * h))
        << name;
  }
}

// Narayanan et al. 2021, table 1, and MT-NLG: billions of parameters as printed there, on
// that many devices of 80 GB, in the grid named there.
TEST_F(DryRun, DecksOfPublishedPipelines) {
  struct Published {
    const char *name, *billions;
    int ranks, tensor, pipeline, data;
  };
  for (const Published& of : {Published{"ptd-p-1.7b", "1.7", 32, 1, 1, 32},
                              {"ptd-p-3.6b", "3.6", 64, 2, 1, 32},
                              {"ptd-p-7.5b", "7.5", 128, 4, 1, 32},
                              {"ptd-p-18.4b", "18.4", 256, 8, 1, 32},
                              {"ptd-p-39.1b", "39.1", 512, 8, 2, 32},
                              {"ptd-p-76.1b", "76.1", 1024, 8, 4, 32},
                              {"ptd-p-145.6b", "145.6", 1536, 8, 8, 24},
                              {"ptd-p-310.1b", "310.1", 1920, 8, 16, 15},
                              {"ptd-p-529.6b", "529.6", 2520, 8, 35, 9},
                              {"ptd-p-1008b", "1008.0", 3072, 8, 64, 6},
                              {"mt-nlg-530b", "529.6", 2240, 8, 35, 8}}) {
    const json result =
        dry_run({source_file(std::string("inputs/gpt/") + of.name + ".yaml"), "--ranks",
                 std::to_string(of.ranks)},
                {.directory = scratch_.path()});
    EXPECT_EQ(fmt::format("{:.1f}", result["parameters"].get<double>() / 1e9),
              of.billions);
    const json& stages = result["memory"]["stages"];
    EXPECT_EQ(stages.size(), static_cast<std::size_t>(of.pipeline)) << of.name;
    std::int64_t all = 0;  // parameters; the last stage's tied embedding is a copy
    for (const json& stage : stages) {
      EXPECT_LT(stage["total"], 80e9) << of.name;
      EXPECT_GT(stage["total"], 30e9) << of.name;
      all += stage["parameters"].get<std::int64_t>();
    }
    EXPECT_EQ(all, result["parameters"]) << of.name;
    EXPECT_EQ(result["grid"], (json{{"tensor", of.tensor},
                                    {"context", 1},
                                    {"data", of.data},
                                    {"pipeline", of.pipeline}}))
        << of.name;
  }
}

// Of the lists of inputs/t5/base.yaml, 12 layers of the encoder and 12 of the decoder,
// those that a stage has.
struct LayersOfT5 {
  LayersOfT5(int first, int count)
      : begin(first),
        end(first + count),
        encoder(std::min(end, 12) - std::min(begin, 12)),
        decoder(count - encoder),
        begins_decoder(decoder > 0 && begin <= 12) {}
  // As docs/models.md has them.
  std::string text() const {
    const auto run = [](const char* stack, int from, int until) {
      if (from == until) return std::string();
      const char* to = until - from == 2 ? "and" : "to";
      return fmt::format("{} {} {} {}", stack, from, to, until - 1);
    };
    const std::string of_encoder = run("encoder", begin, begin + encoder);
    const std::string of_decoder = run("decoder", end - 12 - decoder, end - 12);
    const char* between = of_encoder.empty() || of_decoder.empty() ? "" : ", ";
    return of_encoder + between + of_decoder;
  }
  int begin, end, encoder, decoder;
  bool begins_decoder;  // the encoder's last norm, then, and the decoder's words
};

class DryRunOfKinds : public DryRun {
 protected:
  // Counts by hand for stages of T5 base with so many layers, letters as in
  // docs/math/memory.md. Of ReLU the result alone is kept.
  void expect_stages_of_t5(const json& result, const std::vector<int>& layers) {
    const std::int64_t h = 768, a = 12, f = 4 * h, words = 32128 * h, table = 32 * a;
    const std::int64_t source = 8 * 512, target = 8 * 114;  // rows of a micro-batch
    EXPECT_EQ(result["parameters"], 222903552);
    const json& stages = result["memory"]["stages"];
    ASSERT_EQ(stages.size(), 4u);
    int first = 0;
    for (int s = 0; s < 4; ++s) {
      SCOPED_TRACE(fmt::format("stage {} of {}", s, testing::PrintToString(layers)));
      const json& stage = stages[static_cast<std::size_t>(s)];
      const int count = layers[static_cast<std::size_t>(s)];
      const LayersOfT5 of(first, count);
      first = of.end;
      EXPECT_EQ(stage["layers"], json::array({count}));
      const int kept = 4 - s;  // micro-batches, by 1F1B
      EXPECT_EQ(stage["in_flight"], json::array({kept}));
      std::int64_t own = of.encoder * (12 * h * h + 2 * h);
      own += of.decoder * (16 * h * h + 3 * h);
      if (s == 0) own += words + table;
      if (of.begins_decoder) own += h + table;
      if (s == 3) own += h;
      EXPECT_EQ(stage["parameters"], own);
      // Of the words that the first stage has, and of tables that another one has.
      std::int64_t copies = of.begins_decoder || s == 3 ? words : 0;
      if (s > 0 && of.encoder > 0) copies += table;
      if (of.decoder > 0 && !of.begins_decoder) copies += table;
      EXPECT_EQ(stage["weights"], 4 * (own + copies));
      EXPECT_EQ(stage["gradients"], stage["weights"]);
      EXPECT_EQ(stage["optimizer"], 8 * (own + copies));
      const std::int64_t cross = target * (2 * h + a) + source * 2 * h;
      const json& saved = stage["activations_by_category"];
      EXPECT_EQ(saved["attention"], 4 * kept *
                                        (of.encoder * source * (4 * h + a) +
                                         of.decoder * (target * (4 * h + a) + cross)));
      EXPECT_EQ(saved["mlp"], 4 * kept * f * (of.encoder * source + of.decoder * target));
      // Text up to the encoder's last layer, memory and text from there on.
      const std::int64_t rows = of.end <= 12 ? source : source + target;
      EXPECT_EQ(elements_sent(result, s), s == 3 ? 0 : 256 * h * rows);
    }
  }
  // In a step, from a stage to the next.
  static std::int64_t elements_sent(const json& result, int stage) {
    std::int64_t elements = 0;
    for (const json& message : result["messages"]) {
      if (message["stage"] == stage && message["site"] == "activations" &&
          message["operation"] == "send") {
        elements += message["elements"].get<std::int64_t>();
      }
    }
    return elements;
  }
  // Bytes are what was counted and at most so many more, between arrays: each begins at a
  // multiple of 256 bytes.
  static void expect_bytes(const json& bytes, std::int64_t counted, std::int64_t more) {
    EXPECT_GE(bytes.get<std::int64_t>(), counted);
    EXPECT_LE(bytes.get<std::int64_t>(), counted + more);
  }
};

// What docs/models.md says of it.
TEST_F(DryRunOfKinds, StagesOfT5AreAsDocumented) {
  const json dealt = input("t5/base", {"parallel.pipeline=4"}, 4);
  expect_stages_of_t5(dealt, {5, 5, 7, 7});
  EXPECT_THAT(
      out_,
      AllOf(HasSubstr("(12 + 12) x 768 x 12, encoder + decoder\n"),
            HasSubstr("  sequences, vocabulary   512 + 114, 32,128\n"),
            HasSubstr("\n  stage     layers in flight parameters   weights     state "
                      "activations "),
            HasSubstr("\n      0          5         4      60.1M 229.2 MiB 687.5 MiB "),
            HasSubstr("\n      1          5         3      35.4M 135.0 MiB 405.1 MiB "),
            HasSubstr("\n      2          7         2      61.4M 328.2 MiB 984.6 MiB "),
            HasSubstr("\n      3          7         1      66.1M 346.2 MiB   1.0 GiB ")));
  const json split = input("t5/base", {"parallel.pipeline=4", "parallel.split=3"}, 4);
  expect_stages_of_t5(split, {4, 4, 4, 12});
  EXPECT_THAT(
      out_, HasSubstr("\n      3         12         1       113M 526.2 MiB   1.5 GiB "));

  const std::string chapter = slurp(source_file("docs/models.md"));
  std::array<int, 2> first = {0, 0};
  for (std::size_t s = 0; s < 4; ++s) {
    std::string row = fmt::format("\n| {} |", s);
    for (std::size_t way = 0; way < 2; ++way) {
      const json& stage = (way == 0 ? dealt : split)["memory"]["stages"][s];
      const LayersOfT5 of(first[way], stage["layers"][0]);
      first[way] = of.end;
      row += fmt::format(" {}{} | {} |", of.text(), s == 3 ? ", head" : "",
                         format_count(stage["parameters"].get<double>()));
    }
    EXPECT_THAT(chapter, HasSubstr(row + "\n"));
  }
}

// With 77 predictions of each sample, and the pair.
TEST_F(DryRunOfKinds, BertWithBothHeads) {
  const std::int64_t h = 1024, a = 16, f = 4 * h, layers = 24, samples = 8, words = 30522;
  const std::int64_t rows = samples * 512, masked = samples * 77, padding = 70;
  const std::int64_t parameters = 336226108;
  const json result = input("bert/336m", {});
  EXPECT_EQ(result["parameters"], parameters);
  const json& stage = result["memory"]["stages"][0];
  EXPECT_EQ(stage["layers"], json::array({layers}));
  // Words of the table and of the head's bias are padded to whole tiles.
  expect_bytes(stage["weights"], 4 * (parameters + padding * (h + 1)), 4 * 64);
  EXPECT_EQ(stage["gradients"], stage["weights"]);
  EXPECT_EQ(stage["optimizer"], 2 * stage["weights"].get<std::int64_t>());
  const json& saved = stage["activations_by_category"];
  // The embedding, two sums of each layer and the last norm; three arrays of each head.
  expect_bytes(saved["hidden"],
               4 * h * (rows * (2 * layers + 2) + 3 * masked + 3 * samples),
               256 * layers);
  expect_bytes(saved["norm"], 4 * (rows * ((h + 2) * 2 * layers + 2) + masked * (h + 2)),
               256 * layers);
  expect_bytes(saved["attention"], 4 * rows * layers * (4 * h + a), 256 * layers);
  expect_bytes(saved["mlp"], 8 * rows * layers * f, 256 * layers);
  expect_bytes(saved["logits"], 4 * (masked + 6 * samples), 256 * 5);
  EXPECT_EQ(saved["gradient"], 4 * (words + padding));  // of the bias
  EXPECT_THAT(
      out_, AllOf(HasSubstr("  parameters              336,226,108 (336M)\n"),
                  HasSubstr("  layers x hidden x heads 24 x 1024 x 16\n"),
                  HasSubstr("  norms                   before the branches (pre)\n"),
                  HasSubstr(" (attention counted in full)\n"),  // of which none is causal
                  HasSubstr("  predictions of a sample 77, and the pair of segments\n"),
                  HasSubstr("  weights                 1.3 GiB\n"),
                  HasSubstr("  saved: hidden           807.3 MiB\n"),
                  HasSubstr("  saved: norm             771.9 MiB\n")));

  // Both heads are the last stage's, which has the words once more.
  const std::int64_t layer = 12 * h * h + 13 * h;
  const json stages = input("bert/336m", {"parallel.pipeline=2"}, 2)["memory"]["stages"];
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0]["parameters"], (words + 512 + 2) * h + 12 * layer);
  EXPECT_EQ(stages[1]["parameters"],
            12 * layer + 2 * h + (h * h + 3 * h + words) + (h * h + 3 * h + 2));
  expect_bytes(
      stages[1]["weights"],
      4 * (stages[1]["parameters"].get<std::int64_t>() + padding + (words + padding) * h),
      4 * 64);
}

// Counts by hand, see tests/unit/model; what such a model saves is not known yet.
TEST_F(DryRun, VariantsOfTheModel) {
  const json plain = gpt2({});
  EXPECT_EQ(plain["parameters"], 124439808);
  for (const json& why : plain["not_known"]) EXPECT_EQ(why, json::array());
  const std::vector<std::pair<std::string, std::int64_t>> variants = {
      {"model.tie_embeddings=false", 38597376},
      {"model.bias=false", -12 * 8448 - 768},
      {"model.norm=rmsnorm", -25 * 768},
      {"model.position=rope", -786432},
      {"model.activation=relu", 0},
      {"model.activation=swiglu", 12 * 2362368}};
  for (const auto& [set, more] : variants) {
    const json result = gpt2({set});
    EXPECT_EQ(result["parameters"], 124439808 + more) << set;
    const std::size_t equals = set.find('=');
    expect_no_memory(result, set.substr(0, equals) + ": " + set.substr(equals + 1));
    // Per token and layer, forward and backward: the product of the gate.
    const double gate = set == "model.activation=swiglu" ? 12 * 6.0 * 768 * 3072 : 0.0;
    EXPECT_NEAR(
        result["flops"]["model"].get<double>() - plain["flops"]["model"].get<double>(),
        gate * kTokens, 1e-12 * plain["flops"]["model"].get<double>())
        << set;
    EXPECT_EQ(result["flops"]["hardware"], json(nullptr)) << set;  // no layers to count
  }
  // Grouped keys and values: the layers have them.
  const json grouped = gpt2({"model.kv_heads=4"});
  const std::int64_t parameters = 124439808 - 12 * 1024 * 769;
  EXPECT_EQ(grouped["parameters"], parameters);
  EXPECT_EQ(grouped["memory"]["stages"][0]["weights"],
            4 * (parameters + (words_of_rank() - kWords) * 768));
  const json relative = gpt2({"model.position=relative"});
  EXPECT_EQ(relative["parameters"], json(nullptr));
  expect_no_memory(relative, "model.position: relative");
}

TEST_F(DryRun, TensorRanksShareTheModel) {
  const json whole = gpt2({})["memory"]["stages"][0];
  const json result = gpt2({"parallel.tensor=4"}, 4);
  EXPECT_THAT(out_, HasSubstr("without the MPI library's own"));
  EXPECT_EQ(result["parameters"], 124439808);
  EXPECT_EQ(result["flops"]["model"], gpt2({})["flops"]["model"]);
  const json stage = result["memory"]["stages"][0];
  // A layer's four matrices are split and the biases
  // of the two that are split by rows; norms and the other biases are on every rank.
  const std::int64_t h = 768;
  const std::int64_t layer = 12 * h * h / 4 + (3 * h + 4 * h) / 4 + 2 * h + 4 * h;
  const std::int64_t elements = words_of_rank(4) * h + 1024 * h + 12 * layer + 2 * h;
  EXPECT_EQ(stage["weights"], 4 * elements);
  EXPECT_EQ(stage["gradients"], 4 * elements);
  EXPECT_EQ(stage["optimizer"], 8 * elements);
  EXPECT_EQ(stage["batch"], whole["batch"]);
  const json& saved = stage["activations_by_category"];
  for (const auto& [category, amount] : whole["activations_by_category"].items()) {
    EXPECT_LE(saved[category], amount) << category;
    EXPECT_GE(4 * saved[category].get<std::int64_t>(), amount.get<std::int64_t>())
        << category;
  }
  EXPECT_LT(stage["activations"], whole["activations"]);
  // Each rank has its part of the sequence between the tensor-parallel regions.
  const json split =
      gpt2({"parallel.tensor=4", "parallel.sequence=true"}, 4)["memory"]["stages"][0];
  EXPECT_EQ(split["weights"], stage["weights"]);
  EXPECT_EQ(4 * split["activations_by_category"]["hidden"].get<std::int64_t>(),
            saved["hidden"]);
  EXPECT_EQ(split["activations_by_category"]["attention"], saved["attention"]);
}

// docs/math/memory.md, letter by letter; the difference is alignment.
TEST_F(DryRun, ActivationsAreThoseOfTheFormula) {
  const std::int64_t h = 768, f = 4 * h, a = 12, layers = 12, s = 1024;
  for (const std::int64_t micro : {1, 3}) {
    for (const std::int64_t t : {1, 2, 4}) {
      for (const bool sequence : {false, true}) {
        const json stage = gpt2({fmt::format("batch.micro={}", micro),
                                 fmt::format("batch.global={}", 6 * micro),
                                 fmt::format("parallel.tensor={}", t),
                                 fmt::format("parallel.sequence={}", sequence)},
                                static_cast<int>(t))["memory"]["stages"][0];
        const std::int64_t rows = micro * s, between = sequence ? rows / t : rows;
        const std::map<std::string, std::int64_t> want = {
            {"hidden", 4 * between * h * (2 * layers + 1)},
            {"norm", 4 * between * (h + 2) * (2 * layers + 1)},
            {"attention", 4 * rows * layers * (4 * h + a) / t},
            {"mlp", 8 * rows * layers * f / t},
            {"logits", 4 * rows}};
        std::int64_t all = 0;
        for (const auto& [category, bytes] : stage["activations_by_category"].items()) {
          const std::int64_t expected = want.contains(category) ? want.at(category) : 0;
          EXPECT_GE(bytes.get<std::int64_t>(), expected) << category;
          EXPECT_LE(bytes.get<std::int64_t>(), expected + 256 * 5 * layers) << category;
          all += bytes.get<std::int64_t>();
        }
        EXPECT_EQ(stage["activations"].get<std::int64_t>(), all);
      }
    }
  }
}

// Bytes per parameter over d ranks: 16; 8 + 8 / d; 4 + 12 / d; 16 / d (ZeRO's stages 0 to
// 3), besides buffers; shares are whole rows.
TEST_F(DryRun, DataRanksReplicateOrShard) {
  const json whole = gpt2({})["memory"]["stages"][0];
  const std::int64_t padded_words = (words_of_rank() - kWords) * 768;
  const std::int64_t all = 8 * (std::int64_t{124439808} + padded_words);
  for (const int ranks : {2, 4, 8}) {
    // The ranks share the micro-batches too, and so the work of a step.
    const auto on_ranks = [&](const char* zero) {
      json stage = gpt2({zero}, ranks)["memory"]["stages"][0];
      EXPECT_EQ(stage["flops"].get<double>() * ranks, whole["flops"].get<double>());
      EXPECT_NEAR(stage["bytes_moved"].get<double>() * ranks,
                  whole["bytes_moved"].get<double>(),
                  0.02 * whole["bytes_moved"].get<double>());
      for (const char* work : {"flops", "bytes_moved"}) stage[work] = whole[work];
      return stage;
    };
    json stage = on_ranks("parallel.zero=1");
    const auto shared = [&](const json& bytes, std::int64_t of) {
      EXPECT_NEAR(bytes.get<double>(), static_cast<double>(of / ranks), 1e-3 * of);
    };
    shared(stage["optimizer"], all);
    shared(stage["buffers"],
           4 * ((words_of_rank() + 1024) * 768 + 12 * 768 * 768 + 13 * 768));
    // The parts of the ranks are equal and aligned: each bucket's slabs end in zeros.
    const auto padding = [&](const char* name) {
      const auto more = stage[name].get<std::int64_t>() - whole[name].get<std::int64_t>();
      EXPECT_GE(more, 0) << name;
      EXPECT_LE(more, 1e-4 * static_cast<double>(all)) << name;
      stage[name] = whole[name];
      return more;
    };
    const std::int64_t padded = padding("weights") + padding("gradients");
    EXPECT_EQ(whole["total"].get<std::int64_t>() - stage["total"].get<std::int64_t>(),
              all - stage["optimizer"].get<std::int64_t>() -
                  stage["buffers"].get<std::int64_t>() - padded);
    shared(stage["checkpoint_copy"], 12 * std::int64_t{124439808});
    stage["checkpoint_copy"] = whole["checkpoint_copy"];
    stage["optimizer"] = whole["optimizer"];
    stage["buffers"] = whole["buffers"];
    stage["total"] = whole["total"];
    stage["device_total"] = whole["device_total"];
    EXPECT_EQ(stage, whole);
    EXPECT_THAT(out_, HasSubstr("ZeRO 1: a part in " + std::to_string(ranks)));
    json replica = on_ranks("parallel.zero=0");
    shared(replica["checkpoint_copy"], 12 * std::int64_t{124439808});
    replica["checkpoint_copy"] = whole["checkpoint_copy"];
    EXPECT_EQ(replica, whole);
    EXPECT_THAT(out_, Not(HasSubstr("ZeRO")));
  }
  // The embedding's gradients, and in stage 3 its weights, have memory of their own; two
  // layers take turns in the rest.
  const std::int64_t h = 768, layer = 12 * h * h + 13 * h;
  const std::int64_t embedding = (words_of_rank() + 1024) * h;
  for (const int zero : {2, 3}) {
    const std::string set = "parallel.zero=" + std::to_string(zero);
    const json stage = gpt2({set}, 8)["memory"]["stages"][0];
    const double per_slab = all / 2 / 8;
    EXPECT_NEAR(stage["optimizer"].get<double>(), 2 * per_slab, 1e-3 * per_slab);
    EXPECT_NEAR(stage["gradients"].get<double>(), per_slab, 1e-3 * per_slab);
    const double weights = zero == 3 ? per_slab : 8 * per_slab;
    EXPECT_NEAR(stage["weights"].get<double>(), weights, 1e-3 * weights);
    const double whole_buckets = 4.0 * (embedding + 2 * layer) * (zero == 3 ? 2 : 1);
    const double parts = 4.0 * (embedding + 2 * layer) / 8;
    EXPECT_NEAR(stage["buffers"].get<double>(), whole_buckets + parts, 0.01 * parts);
    EXPECT_EQ(gpt2({set})["memory"]["stages"][0], whole);
  }
}

// Every stage's part: all parameters once, no more in flight than 1F1B keeps.
TEST_F(DryRun, ShowsEveryStage) {
  const json plain = gpt2({});
  const json pipeline = gpt2({"parallel.pipeline=4", "parallel.zero=0"}, 4);
  EXPECT_EQ(pipeline["parameters"], plain["parameters"]);
  EXPECT_EQ(pipeline["flops"], plain["flops"]);
  const json& stages = pipeline["memory"]["stages"];
  ASSERT_EQ(stages.size(), 4u);
  std::int64_t parameters = 0, layers = 0, weights = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    parameters += stages[s]["parameters"].get<std::int64_t>();
    weights += stages[s]["weights"].get<std::int64_t>();
    layers += stages[s]["layers"][0].get<std::int64_t>();
    EXPECT_EQ(stages[s]["in_flight"][0], 4 - s);
    EXPECT_GT(stages[s]["buffers"], 0);
    EXPECT_NEAR(stages[s]["optimizer"].get<double>(),
                2.0 * stages[s]["weights"].get<double>(), 1.0);
  }
  EXPECT_EQ(parameters, pipeline["parameters"]);
  EXPECT_EQ(layers, 12);
  // The word embedding is on the first stage and on the last.
  const double copy = 4.0 * static_cast<double>(words_of_rank() * 768);
  const double whole = plain["memory"]["stages"][0]["weights"].get<double>();
  EXPECT_NEAR(static_cast<double>(weights), whole + copy, 1e-4 * whole);
  EXPECT_THAT(out_,
              AllOf(HasSubstr("stages of the pipeline, memory of each rank\n"),
                    HasSubstr("which takes most\n"),
                    HasSubstr("messages of each rank in a step\n"
                              "  stage         model      pipeline          tied\n"
                              "      0      16 bytes       1.5 GiB     147.2 MiB")));
  for (int stage = 0; stage < 4; ++stage) {
    std::int64_t activations = 0;
    for (const json& message : pipeline["messages"]) {
      if (message["stage"] == stage && message["site"] == "activations" &&
          message["operation"] == "send") {
        activations += message["calls"].get<std::int64_t>();
      }
    }
    EXPECT_EQ(activations, stage == 3 ? 0 : 128);
  }
  const json chunks = gpt2({"parallel.pipeline=2", "parallel.virtual_pipeline=2",
                            "parallel.schedule=zero_bubble", "parallel.stages=[2,3,7,0]"},
                           2);
  EXPECT_EQ(chunks["memory"]["stages"][0]["layers"], json::array({2, 7}));
  EXPECT_EQ(chunks["memory"]["stages"][1]["layers"], json::array({3, 0}));
}

// Of a stage each data rank keeps the same parts as of a whole model, and has memory for
// two layers and the words besides.
TEST_F(DryRun, DataRanksShareWhatAStageHas) {
  const std::int64_t h = 768, layer = 12 * h * h + 13 * h, words = kWords * h;
  constexpr double d = 4;
  for (const std::string schedule : {"1f1b", "gpipe", "zero_bubble"}) {
    const std::string order = "parallel.schedule=" + schedule;
    const std::string split = "parallel.stages=[4, 4, 4]";
    const std::vector<std::string> sets = {order, "parallel.pipeline=3", split};
    const auto stages = [&](const char* zero) {
      std::vector<std::string> all = sets;
      all.push_back(zero);
      return gpt2(all, 3 * 4);
    };
    const json whole = stages("parallel.zero=0");
    for (const int zero : {2, 3}) {
      const json shared = stages(zero == 2 ? "parallel.zero=2" : "parallel.zero=3");
      EXPECT_EQ(shared["parameters"], whole["parameters"]);
      EXPECT_THAT(out_, HasSubstr(fmt::format("ZeRO {}: a part in 4", zero)));
      for (std::size_t s = 0; s < 3; ++s) {
        SCOPED_TRACE(fmt::format("{}, ZeRO {}, stage {}", schedule, zero, s));
        const json &all = whole["memory"]["stages"][s],
                   &part = shared["memory"]["stages"][s];
        const auto expect_part = [&](const char* what, double parts) {
          const double wanted = all[what].get<double>() / parts;
          EXPECT_NEAR(part[what].get<double>(), wanted, 1e-3 * wanted) << what;
        };
        expect_part("weights", zero == 3 ? d : 1);
        expect_part("gradients", d);
        expect_part("optimizer", d);
        expect_part("activations", 1);
        expect_part("scratch", 1);
        const auto elements = static_cast<double>(2 * layer + (s == 1 ? 0 : words));
        const double buffers = 4 * elements * (zero == 3 ? 2 + 1 / d : 1 + 1 / d);
        EXPECT_NEAR(part["buffers"].get<double>(), all["buffers"].get<double>() + buffers,
                    1e-3 * buffers);
        // Gradients of every unit in every one of 32 micro-batches.
        const std::int64_t units = 4 + (s == 1 ? 0 : 2);
        std::int64_t reductions = 0, gathers = 0;
        for (const json& message : shared["messages"]) {
          if (message["stage"] != s || message["axis"] != "gradient") continue;
          const auto calls = message["calls"].get<std::int64_t>();
          if (message["site"] == "gradients") reductions += calls;
          if (message["site"] == "weights (ZeRO)") gathers += calls;
        }
        EXPECT_EQ(reductions, 32 * units);
        EXPECT_EQ(gathers, zero == 2 ? units : 0);
      }
    }
  }
}

TEST_F(DryRun, SaysWhatIsNotKnown) {
  const json plain = gpt2({});
  const auto unchanged = [&](const json& result) {
    EXPECT_EQ(result["parameters"], plain["parameters"]);
    EXPECT_EQ(result["flops"]["model"], plain["flops"]["model"]);
    EXPECT_EQ(result["flops"]["model_causal"], plain["flops"]["model_causal"]);
  };
  // Narrow weights beside those of single precision, and activations of half the size.
  const json& wide = plain["memory"]["stages"][0];
  for (const std::string precision : {"bf16", "fp16"}) {
    const json result = gpt2({"precision.compute=" + precision});
    unchanged(result);
    EXPECT_EQ(result["flops"], plain["flops"]);
    const json& narrow = result["memory"]["stages"][0];
    EXPECT_EQ(2 * narrow["weights"].get<std::int64_t>(),
              3 * wide["weights"].get<std::int64_t>());
    EXPECT_EQ(narrow["gradients"], wide["gradients"]);
    EXPECT_EQ(narrow["optimizer"], wide["optimizer"]);
    for (const char* category : {"hidden", "mlp"}) {
      EXPECT_EQ(2 * narrow["activations_by_category"][category].get<std::int64_t>(),
                wide["activations_by_category"][category].get<std::int64_t>())
          << category;
    }
  }
  // Gradients of 16 bits, and messages of them.
  const auto gradients_of = [&](const std::string& type) {
    return gpt2(
        {"precision.compute=bf16", "precision.gradients=" + type, "parallel.zero=2"}, 4);
  };
  const auto bytes_sent = [](const json& result) {
    std::int64_t bytes = 0;
    for (const json& message : result["messages"]) {
      if (message["site"] == "gradients") bytes += message["bytes"].get<std::int64_t>();
    }
    return bytes;
  };
  const json with_fp32 = gradients_of("fp32"), with_bf16 = gradients_of("bf16");
  const json &before = with_fp32["memory"]["stages"][0],
             &after = with_bf16["memory"]["stages"][0];
  for (const char* halved : {"gradients", "buffers"}) {
    EXPECT_EQ(2 * after[halved].get<std::int64_t>(), before[halved].get<std::int64_t>())
        << halved;
  }
  EXPECT_EQ(after["optimizer"], before["optimizer"]);
  EXPECT_EQ(after["weights"], before["weights"]);
  EXPECT_GT(bytes_sent(with_bf16), 0);
  EXPECT_EQ(2 * bytes_sent(with_bf16), bytes_sent(with_fp32));
  expect_no_memory(gpt2({"parallel.context=2"}, 2), "parallel.context: 2");

  // All layers forward once more: 24 h^2 + 4 s h per token and layer.
  const json full = gpt2({"memory.recompute=full"});
  unchanged(full);
  EXPECT_DOUBLE_EQ(full["flops"]["hardware"].get<double>(),
                   plain["flops"]["hardware"].get<double>() +
                       kTokens * 12 * (24.0 * 768 * 768 + 4.0 * 1024 * 768));
  EXPECT_LT(full["memory"]["stages"][0]["activations"],
            plain["memory"]["stages"][0]["activations"]);
  // A third of them only.
  const json some = gpt2({"memory.recompute=full", "memory.recompute_layers=4"});
  EXPECT_DOUBLE_EQ(some["flops"]["hardware"].get<double>(),
                   plain["flops"]["hardware"].get<double>() +
                       kTokens * 4 * (24.0 * 768 * 768 + 4.0 * 1024 * 768));
  // Norms of layers, and half of the MLP's; no products.
  const json selective = gpt2({"memory.recompute=selective"});
  unchanged(selective);
  EXPECT_EQ(selective["flops"], plain["flops"]);
  const json& kept = selective["memory"]["stages"][0]["activations_by_category"];
  const json& all = plain["memory"]["stages"][0]["activations_by_category"];
  const std::int64_t norm = 4 * 4 * 1024 * 768;  // of 4 samples
  EXPECT_EQ(all["norm"].get<std::int64_t>() - kept["norm"].get<std::int64_t>(),
            24 * norm);
  EXPECT_EQ(2 * kept["mlp"].get<std::int64_t>(), all["mlp"].get<std::int64_t>());
  for (const char* same : {"hidden", "attention", "logits"}) {
    EXPECT_EQ(kept[same], all[same]) << same;
  }

  // Steps are smaller while the batch grows.
  EXPECT_THAT(out_, HasSubstr(": 10.0B tokens in all"));
  gpt2({"batch.ramp_up={start: 64, increment: 64, samples: 1000000}"});
  EXPECT_THAT(out_, HasSubstr(": at most "));

  // Several at once, in lines of a terminal's width.
  const json several = gpt2({"model.position=rope", "parallel.context=2",
                             "model.bias=false", "model.norm=rmsnorm", "parallel.zero=3"},
                            4);
  EXPECT_EQ(several["not_known"]["memory"],
            json::array({"model.norm: rmsnorm", "model.position: rope",
                         "model.bias: false", "parallel.context: 2"}));
  const std::size_t memory = out_.find("memory of each rank\n");
  std::istringstream lines(out_.substr(memory));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80) << line;
}

TEST_F(DryRun, DoesNotAllocateTheModel) {
  // GPT-3's shape, 2.8 TB of state, in 3 GB of address space.
  const RunResult result = trireme_limited(
      "ulimit -v 3000000",
      {"train", source_file("inputs/gpt/gpt2-1.5b.yaml"), "--dry-run", "--set",
       "model.layers=96", "--set", "model.hidden=12288", "--set", "model.heads=96",
       "--set", "model.ffn_hidden=49152", "--set", "model.sequence=2048"},
      {.directory = scratch_.path()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("174,604,259,328"));  // 174.6 billion
}

TEST_F(DryRun, RanksAndWhatIsNotTrainedYet) {
  const json result = dry_run(
      {deck(), "--set", "model.bias=false", "--set", "parallel.data=2", "--ranks", "2"});
  EXPECT_EQ(result["ranks"], 2);
  EXPECT_EQ(result["grid"]["data"], 2);
  expect_refusal(train({"parallel.data=3"}, {"--dry-run", "--ranks", "2"}),
                 {"parallel.data", "3 ranks", "there are 2"});
}

// Status 0, and said: with all that is known, and null for what is not.
TEST_F(DryRun, ValidButNotTrainable) {
  EXPECT_EQ(dry_run({deck()})["trainable"], true);
  EXPECT_EQ(dry_run({deck()})["not_trainable"], json::array());
  for (const char* key_value : {"model.bias=false", "model.norm=rmsnorm",
                                "model.kv_heads=2", "model.position=relative"}) {
    const std::string setting = key_value;
    SCOPED_TRACE(setting);
    const std::string key = setting.substr(0, setting.find('='));
    const std::string value = setting.substr(setting.find('=') + 1);
    const json result = dry_run({deck(), "--set", setting});
    EXPECT_THAT(out_, HasSubstr("is valid, but this version cannot train it:\n  " + key +
                                ": " + value + " ("));
    EXPECT_EQ(result["trainable"], false);
    ASSERT_EQ(result["not_trainable"].size(), 1u);
    EXPECT_EQ(result["not_trainable"][0]["key"], key);
    EXPECT_EQ(result["not_trainable"][0]["value"], value);
    EXPECT_NE(result["not_trainable"][0]["reason"], "");
    const bool is_known = value != "relative";
    EXPECT_EQ(result["parameters"].is_null(), !is_known);
    EXPECT_EQ(result["flops"].is_null(), !is_known);
    if (!is_known) {
      EXPECT_THAT(out_, HasSubstr("parameters              not known yet with " + key));
      EXPECT_EQ(result["not_known"]["parameters"], json::array({key + ": " + value}));
    }
    std::istringstream lines(out_);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80) << line;
    // Training and job scripts refuse the same.
    expect_refusal(train({setting}), {key, value, "not supported by training yet"});
    expect_refusal(
        trireme({"jobscript", deck(), "--machine", "cpu", "--nodes", "1", "--time", "1h",
                 "--set", setting, "--out", scratch_ / "job.sbatch"}),
        {key, value, "not supported by training yet"});
    EXPECT_FALSE(fs::exists(scratch_ / "job.sbatch"));
  }
  // What layers are made again is of layers that are not there.
  const json result =
      dry_run({deck(), "--ranks", "2", "--set", "model.position=rope", "--set",
               "parallel.pipeline=2", "--set", "memory.recompute=full", "--set",
               "memory.recompute_layers=1"});
  EXPECT_EQ(result["memory"], json(nullptr));
  EXPECT_EQ(result["flops"]["hardware"], json(nullptr));
  EXPECT_TRUE(result["flops"]["model"].is_number());
}

// Of all ranks: as the stages say, and the model's with padding of the vocabulary, which
// two of the head's three products have on a host.
TEST_F(DryRun, HardwareFlopsAreWhatTheStagesCount) {
#ifdef KOKKOS_ENABLE_CUDA
  constexpr double kProducts = 3.0;
#else
  constexpr double kProducts = 2.0;
#endif
  const auto padding = [](std::int64_t tensor_ranks) {
    const std::int64_t rows = tensor_ranks * words_of_rank(tensor_ranks) - kWords;
    return kProducts * kTokens * 2.0 * 768 * static_cast<double>(rows);
  };
  const auto expect_sums = [&](const std::vector<std::string>& sets, int ranks,
                               std::int64_t tensor) {
    const json result = gpt2(sets, ranks);
    const json &flops = result["flops"], &stages = result["memory"]["stages"];
    double all = 0.0;
    for (const json& stage : stages) {
      all += ranks / result["grid"]["pipeline"].get<double>() *
             stage["stands_for"].get<double>() * stage["flops"].get<double>();
    }
    EXPECT_DOUBLE_EQ(flops["hardware"].get<double>(), all);
    EXPECT_NEAR(flops["hardware"].get<double>(),
                flops["model"].get<double>() + padding(tensor), 1e-5 * all);
    EXPECT_GT(flops["hardware"], flops["model"]);
    return all;
  };
  const double one = expect_sums({}, 1, 1);
  EXPECT_DOUBLE_EQ(one, gpt2({})["flops"]["model"].get<double>() + padding(1));
  expect_sums({"parallel.tensor=4", "parallel.pipeline=3", "parallel.data=2"}, 24, 4);
  // 12 heads of 96 in 768: half as wide again.
  expect_sums({"model.head_size=96", "parallel.tensor=2"}, 2, 2);
  EXPECT_THAT(out_, HasSubstr("head size               96, of 1152 together"));
}

TEST_F(DryRun, RunsCountTheSameFlops) {
  const json flops = dry_run({deck()})["flops"];
  ASSERT_EQ(train().status, 0);
  std::istringstream lines(slurp(run_dir() / "train.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const json record = json::parse(line);
  EXPECT_NEAR(record["hardware_tflops"].get<double>() * flops["model"].get<double>(),
              record["model_tflops"].get<double>() * flops["hardware"].get<double>(),
              1e-12 * flops["hardware"].get<double>());
}

// A build for CPUs would leave a machine's GPUs idle.
TEST_F(DryRun, JobScriptsForGpusWarn) {
#ifdef KOKKOS_ENABLE_CUDA
  const std::string machine = "cpu", other = "perlmutter";
#else
  const std::string machine = "perlmutter", other = "cpu";
#endif
  const auto script = [&](const std::string& name) {
    return trireme({"jobscript", deck(), "--machine", name, "--nodes", "1", "--time",
                    "1h", "--set", "batch.global=64"});
  };
  const RunResult warned = script(machine);
  EXPECT_EQ(warned.status, 0);
  EXPECT_THAT(warned.err, HasSubstr("warning: this program was built for "));
  EXPECT_THAT(warned.err, HasSubstr("'" + machine + "'"));
  EXPECT_THAT(warned.out, Not(HasSubstr("this program was built")));
  EXPECT_THAT(script(other).err, IsEmpty());
}

// What is there must fit; what is not there is named.
TEST_F(DryRun, CorporaThatAreThereAreChecked) {
  const auto refused = [&](const std::vector<std::string>& sets,
                           const std::vector<std::string>& parts) {
    expect_refusal(train(sets, {"--dry-run"}), parts);
  };
  refused({"model.vocab=100"}, {"model.vocab", "corpus.h5", "300"});
  const fs::path other = make_corpus(scratch_.path(), "other.h5", 310, 6000);
  refused({"data.validation={held_out: " + other.string() + "}"},
          {"was not made with the tokenizer"});
  refused({"model.sequence=100000"}, {"corpus.h5", "data.split"});
  spill(scratch_ / "text.h5", "text");
  refused({"data.validation={held_out: " + (scratch_ / "text.h5").string() + "}"},
          {"text.h5", "not an HDF5 file"});
  const json result = dry_run({deck(), "--set", "data.validation={held_out: none.h5}"});
  EXPECT_EQ(result["not_checked"], json::array({"data.validation.held_out: none.h5"}));
  EXPECT_THAT(out_, HasSubstr("not checked, as it is not there: data.validation."));
  EXPECT_EQ(result["warnings"], json::array());
}

// A start, a dry run, a plan and a job script warn of what is probably a mistake.
TEST_F(DryRun, ValidationOnWhatIsTrainedOn) {
  const std::string twice = "data.validation={held: " + corpus().string() + "}";
  const fs::path file = scratch_ / "dry.json";
  const std::string warning = "warning: data.validation.held is trained on, too";
  EXPECT_THAT(train({twice}, {"--dry-run", "--json", file}).err, HasSubstr(warning));
  EXPECT_EQ(json::parse(slurp(file))["warnings"].size(), 1u);
  const RunResult script =
      trireme({"jobscript", deck(), "--machine", "cpu", "--nodes", "1", "--time", "1h",
               "--set", "batch.global=64", "--set", twice});
  EXPECT_THAT(script.err, HasSubstr(warning));
  const RunResult plan = trireme({"plan", deck(), "--machine",
                                  source_file("inputs/machines/selene-trireme.yaml"),
                                  "--fixed", "--devices", "1", "--set", twice});
  EXPECT_THAT(plan.err, HasSubstr(warning));
  EXPECT_THAT(train({twice, "run.steps=1"}).err, HasSubstr(warning));
}

TEST_F(DryRun, SamplesOfTextTakeMemory) {
  const json without = dry_run({deck()});
  const json with = dry_run({deck(), "--set", "run.sample_every=2"});
  const auto memory = [](const json& result, const char* what) {
    return result["memory"]["stages"][0][what].get<std::int64_t>();
  };
  EXPECT_EQ(memory(without, "generation"), 0);
  // Keys and values of 2 layers, 16 positions and 32 columns at least.
  EXPECT_GE(memory(with, "generation"), 2 * 2 * 16 * 32 * 4);
  EXPECT_EQ(memory(with, "total") - memory(without, "total"), memory(with, "generation"));
  EXPECT_THAT(out_, HasSubstr("samples of text"));
}

TEST_F(DryRun, VocabularyWithoutACorpus) {
  expect_refusal(train({"data.train=none"}, {"--dry-run"}),
                 {"model.vocab", "data.train"});
  expect_refusal(train({"data.train=none.h5"}, {"--dry-run"}),
                 {"none.h5", "does not exist"});
  const json result =
      dry_run({deck(), "--set", "data.train=none.h5", "--set", "model.vocab=300"});
  EXPECT_EQ(result["parameters"], 35584);
}

}  // namespace
}  // namespace trireme::test
