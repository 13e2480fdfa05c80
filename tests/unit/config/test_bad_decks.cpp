// Wrong decks: every mistake is found, at its line, with what is allowed and the nearest
// fix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deck_testing.hpp"

namespace trireme::config {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::vector<std::string> overrides;
  int ranks;
  std::string key, what, fix;
};

// The small deck: 4 layers, hidden 64, 4 heads, sequence 32, vocabulary 211, global
// batch 32.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      // unknown and misspelt
      {{"model.hiden=64"}, 0, "model.hiden", "not a key", "model.hidden"},
      {{"model.lr=1e-3"}, 0, "model.lr", "not a key", "optimizer.lr"},
      {{"lr=1e-3"}, 0, "lr", "not a key", "optimizer.lr"},
      {{"modle.layers=2"}, 0, "modle.layers", "not a key", "model.layers"},
      {{"batch.micro_batch_size=4"},
       0,
       "batch.micro_batch_size",
       "not a key",
       "batch.micro"},
      {{"model.n_layer=4"}, 0, "model.n_layer", "not a key", "model.layers"},
      {{"zzzzzzzz=1"}, 0, "zzzzzzzz", "not a key", ""},
      {{"precision.loss_scale.inital=4"},
       0,
       "precision.loss_scale.inital",
       "not a key",
       "precision.loss_scale.initial"},
      {{"model=3"}, 0, "model", "section", ""},
      {{"layers"}, 0, "", "not an override", ""},
      // wrong type
      {{"model.layers=many"}, 0, "model.layers", "not a whole number", ""},
      {{"model.layers=2.5"}, 0, "model.layers", "not a whole number", "3"},
      {{"model.layers=99999999999999999999"}, 0, "model.layers", "is too large", "4096"},
      {{"run.steps=1e30 tokens"}, 0, "run.steps", "not a length", ""},
      {{"run.time_limit=99999999999999d"}, 0, "run.time_limit", "is too large", "none"},
      {{"model.hidden=16777216"}, 0, "model.hidden", "parameters", ""},
      {{"batch.micro=16777216", "batch.global=16777216", "model.sequence=67108864"},
       0,
       "batch.micro",
       "activations at a time",
       ""},
      {{"model.layers=\"2\""}, 0, "model.layers", "text in quotes", "model.layers: 2"},
      {{"model.layers=\"2.5\""}, 0, "model.layers", "text in quotes", "layers: 3"},
      {{"model.layers=[2]"}, 0, "model.layers", "is a list", "model.layers: 2"},
      {{"model.layers={a: 2}"}, 0, "model.layers", "section with keys", ""},
      {{"model.layers="}, 0, "model.layers", "has no value", ""},
      {{"optimizer.lr=fast"}, 0, "optimizer.lr", "not a number", ""},
      {{"optimizer.lr=\"fast\""}, 0, "optimizer.lr", "text in quotes", ""},
      {{"optimizer.lr=.nan"}, 0, "optimizer.lr", "not a number", ""},
      {{"model.bias=yes"}, 0, "model.bias", "neither true nor false", "model.bias: true"},
      {{"data.train={path: a.h5}"}, 0, "data.train", "a path or a list", ""},
      {{"data.train=[{pth: a.h5}]"}, 0, "data.train", "'pth'", "path"},
      {{"data.train=[{path: a.h5, weight: 0}]"}, 0, "data.train", "too small", ""},
      {{"data.validation=v.h5"}, 0, "data.validation", "names with paths", "main: v.h5"},
      {{"optimizer.betas=0.9"}, 0, "optimizer.betas", "a list of 2 numbers", ""},
      {{"optimizer.betas=[0.9, 1.0]"}, 0, "optimizer.betas", "1.0 is too large", ""},
      {{"checkpoint.on_signal=USR1"},
       0,
       "checkpoint.on_signal",
       "a list of signals",
       "[USR1]"},
      {{"checkpoint.on_signal=[SIGTERM]"}, 0, "checkpoint.on_signal", "SIGTERM", "TERM"},
      {{"parallel.order=[tensor, data]"}, 0, "parallel.order", "four axes", "pipeline"},
      {{"parallel.order=[tensor, tensor, data, context]"},
       0,
       "parallel.order",
       "twice",
       ""},
      // wrong word, wrong unit
      {{"model.kind=gtp"}, 0, "model.kind", "not one of the words", "gpt"},
      {{"model.activation=gelutanh"}, 0, "model.activation", "not one of", "gelu_tanh"},
      {{"optimizer.schedule=cosin"}, 0, "optimizer.schedule", "not one of", "cosine"},
      {{"precision.compute=float32"}, 0, "precision.compute", "not one of", ""},
      {{"precision.gradients=fp16"}, 0, "precision.gradients", "not one of", ""},
      {{"precision.gradients=bf16"},
       0,
       "precision.gradients",
       "goes with precision.compute: bf16 alone",
       "precision.gradients: fp32, or precision.compute: bf16"},
      {{"precision.gradients=bf16", "precision.compute=fp16"},
       0,
       "precision.gradients",
       "the loss scale of fp16",
       "precision.gradients: fp32"},
      {{"precision.attention=flash"}, 0, "precision.attention", "not one of", ""},
      {{"precision.attention=cudnn", "model.attention_dropout=0"},
       0,
       "precision.attention",
       "goes with elements of 16 bits",
       "precision.attention: own, or precision.compute: bf16"},
      {{"precision.attention=cudnn", "precision.compute=bf16",
        "model.attention_dropout=0.1"},
       0,
       "precision.attention",
       "has no dropout of Trireme's masks",
       "model.attention_dropout: 0"},
      {{"precision.attention=cudnn", "precision.compute=bf16",
        "model.attention_dropout=0", "model.kind=bert"},
       0,
       "precision.attention",
       "has no attention with padding, as that of model.kind: bert is",
       "precision.attention: own"},
      {{"run.steps=5m"}, 0, "run.steps", "is a time", "steps"},
      {{"run.steps=10 epochs"}, 0, "run.steps", "unit 'epochs'", "10 steps"},
      {{"run.time_limit=90"}, 0, "run.time_limit", "no unit", "90s"},
      {{"run.hang_timeout=10min"}, 0, "run.hang_timeout", "not a time", "10m"},
      // out of range
      {{"model.layers=0"}, 0, "model.layers", "too small", "model.layers: 1"},
      {{"model.dropout=1.0"}, 0, "model.dropout", "too large", ""},
      {{"model.dropout=-0.1"}, 0, "model.dropout", "too small", "model.dropout: 0"},
      {{"precision.loss_scale.initial=512", "precision.loss_scale.minimum=1024"},
       0,
       "precision.loss_scale.initial",
       "is below precision.loss_scale.minimum (1024)",
       "precision.loss_scale.initial: 1024, or precision.loss_scale.minimum: 512"},
      // round(65536 p) is 0, and 65536: masks cannot have these rates
      {{"model.dropout=1e-6"},
       0,
       "model.dropout",
       "too small: masks are drawn from 16-bit words",
       "model.dropout: 0"},
      {{"model.attention_dropout=0.999999"},
       0,
       "model.attention_dropout",
       "too large: masks are drawn from 16-bit words",
       "model.attention_dropout: 0.9999847412109375"},
      {{"parallel.zero=4"}, 0, "parallel.zero", "too large", "parallel.zero: 3"},
      {{"optimizer.lr=0"}, 0, "optimizer.lr", "too small", ""},
      {{"run.steps=0"}, 0, "run.steps", "too small", "run.steps: 1"},
      {{"run.stop_after=0"}, 0, "run.stop_after", "too small", "run.stop_after: 1"},
      {{"run.stop_after=none"}, 0, "run.stop_after", "not a length", "never"},
      {{"run.stop_after=[1]"}, 0, "run.stop_after", "is a list", ""},
      {{"run.time_limit=0s"}, 0, "run.time_limit", "too small", "none"},
      {{"run.seed=-1"}, 0, "run.seed", "too small", "0"},
      // impossible splits
      {{"model.heads=5"},
       0,
       "model.heads",
       "does not divide model.hidden (64)",
       "model.heads: 4, or model.hidden: 65"},
      {{"model.head_size=0"}, 0, "model.head_size", "too small", "model.head_size: 1"},
      {{"model.d_kv=128"}, 0, "model.d_kv", "is not a key", "model.head_size"},
      {{"model.kv_heads=3"},
       0,
       "model.kv_heads",
       "does not divide model.heads (4)",
       "model.kv_heads: 2"},
      {{"parallel.tensor=3"},
       0,
       "parallel.tensor",
       "does not divide model.heads (4)",
       "parallel.tensor: 2"},
      {{"parallel.tensor=4", "model.kv_heads=2"},
       0,
       "parallel.tensor",
       "model.kv_heads (2)",
       "parallel.tensor: 2"},
      {{"parallel.tensor=4", "model.ffn_hidden=250"},
       0,
       "parallel.tensor",
       "model.ffn_hidden (250)",
       "parallel.tensor: 2"},
      {{"parallel.tensor=2", "parallel.sequence=true", "model.sequence=33"},
       0,
       "parallel.tensor",
       "model.sequence (33)",
       ""},
      {{"model.vocab=2", "parallel.tensor=4"},
       0,
       "model.vocab",
       "smaller than parallel.tensor",
       "parallel.tensor: 2"},
      {{"model.vocab=corpus", "data.train=none"},
       0,
       "model.vocab",
       "data.train names none",
       "data.train"},
      {{"parallel.pipeline=7"},
       0,
       "parallel.pipeline",
       "7 chunks; with 4 layers some would have nothing",
       "parallel.pipeline: 6"},
      {{"parallel.pipeline=2", "parallel.virtual_pipeline=4"},
       0,
       "parallel.pipeline",
       "8 chunks",
       "parallel.virtual_pipeline: 3"},
      {{"parallel.pipeline=3", "parallel.stages=[2, 0, 2]"},
       0,
       "parallel.stages",
       "nothing at all in it",
       "[2, 1, 1]"},
      {{"parallel.schedule=zero_bubble"},
       0,
       "parallel.schedule",
       "is of a pipeline; there is none",
       "parallel.schedule: 1f1b"},
      {{"parallel.balance=measured"},
       0,
       "parallel.balance",
       "is of a pipeline; there is none",
       "parallel.balance: modelled"},
      {{"memory.recompute=selective", "memory.recompute_layers=2"},
       0,
       "memory.recompute_layers",
       "without that it says nothing",
       "memory.recompute: full"},
      {{"parallel.pipeline=2", "run.sample_every=10"},
       0,
       "run.sample_every",
       "stages have parts",
       "run.sample_every: 0"},
      {{"parallel.virtual_pipeline=2"},
       0,
       "parallel.virtual_pipeline",
       "needs a pipeline",
       "1"},
      {{"parallel.pipeline=2", "parallel.stages=[3, 2]"},
       0,
       "parallel.stages",
       "places 5 layers; the model has 4",
       "[2, 2]"},
      {{"parallel.pipeline=2", "parallel.stages=[4]"},
       0,
       "parallel.stages",
       "has 1 number;",
       "[2, 2]"},
      {{"batch.micro=3"},
       0,
       "batch.global",
       "not a multiple of micro × data = 3 × 1",
       "batch.global: 33, or batch.micro: 2"},
      {{"batch.micro=8"},
       8,
       "batch.global",
       "8 × 8 = 64",
       "batch.global: 64, or batch.micro: 4"},
      {{"parallel.pipeline=4", "parallel.virtual_pipeline=1", "parallel.tensor=2"},
       12,
       "parallel.data",
       "12 ranks cannot divide into copies of the model of 8",
       "start 8 ranks"},
      {{"parallel.data=4", "batch.global=12"},
       6,
       "parallel.data",
       "grid of 4 ranks",
       "auto"},
      {{"parallel.data=4"}, 1, "parallel.data", "there are 1", "auto"},
      {{"parallel.tensor=4"},
       2,
       "parallel.data",
       "2 ranks cannot divide",
       "start 4 ranks"},
      {{"batch.ramp_up={start: 40, increment: 8, samples: 10}"},
       0,
       "batch.ramp_up",
       "starts at 40, above",
       "start: 32"},
      {{"batch.ramp_up={start: 8, increment: 7, samples: 10}"},
       0,
       "batch.ramp_up",
       "32 - 8 is not a multiple of 7",
       "increment: 6"},
      {{"batch.ramp_up={start: 8, samples: 10}"},
       0,
       "batch.ramp_up",
       "lacks one",
       "increment"},
      {{"batch.ramp_up={start: 8, increment: 8, samples: 10, start: 16}"},
       0,
       "batch.ramp_up",
       "has 'start' a second time; remove one",
       ""},
      {{"data.train=[{path: a.h5, weight: 1, weight: 2}]"},
       0,
       "data.train",
       "has 'weight' a second time; remove one",
       ""},
      // parts of a value: the fix is all of it
      {{"batch.ramp_up={start: 8, incremet: 8, samples: 10}"},
       0,
       "batch.ramp_up",
       "has a key 'incremet' that is not known here",
       "batch.ramp_up: {start: 8, increment: 8, samples: 10}"},
      {{"batch.ramp_up={start: 8, increment: 0.6, samples: '10'}"},
       0,
       "batch.ramp_up",
       "increment: 0.6 is not a whole number",
       "batch.ramp_up: {start: 8, increment: 1, samples: 10}"},
      {{"data.train={path: a.h5, weight: 2}"},
       0,
       "data.train",
       "is a section with keys; a path or a list of paths is wanted",
       "data.train: [{path: a.h5, weight: 2}]"},
      {{"data.train=[]"}, 0, "data.train", "is an empty list", "data.train: corpus.h5"},
      {{"data.validation={a: x.h5, \"no\": z.h5, a: y.h5}"},
       0,
       "data.validation",
       "has the name 'a' twice",
       "data.validation: {a: x.h5, \"no\": z.h5, a_2: y.h5}"},
      {{"data.validation=\"a, b.h5\""},
       0,
       "data.validation",
       "is text in quotes; names with paths are wanted",
       "data.validation: {main: \"a, b.h5\"}"},
      {{"data.validation={a: ~nobody-here/v.h5}"},
       0,
       "data.validation",
       "a: names the user 'nobody-here', who is not known here",
       "data.validation: {a: \"./~nobody-here/v.h5\"}"},
      {{"data.train=~nobody-here/v.h5"},
       0,
       "data.train",
       "names the user 'nobody-here', who is not known here",
       "data.train: ./~nobody-here/v.h5"},
      {{"data.split=[0.5, 0.2, 0.2]"}, 0, "data.split", "has the sum 0.9", "0.555556"},
      {{"data.split=[0, 1, 0]"}, 0, "data.split", "nothing to train on", ""},
      {{"data.split=[1, 0, 0]", "data.validation={a: v.h5}"},
       0,
       "data.split",
       "validation",
       "remove data.split"},
      {{"optimizer.min_lr=1"},
       0,
       "optimizer.min_lr",
       "above optimizer.lr (0.0003)",
       "3e-05"},
      {{"optimizer.warmup=1000"},
       0,
       "optimizer.warmup",
       "1,000 steps; the schedule ends at 1,000",
       "100"},
      {{"optimizer.schedule=wsd", "optimizer.warmup=500", "optimizer.cooldown=600"},
       0,
       "optimizer.cooldown",
       "takes 600 steps and the warm-up 500; the schedule has 1,000",
       "optimizer.cooldown: 500"},
      // By default it is a tenth of decay, which is not always there.
      {{"optimizer.schedule=wsd", "optimizer.warmup=950"},
       0,
       "optimizer.cooldown",
       "takes 100 steps and the warm-up 950",
       "optimizer.cooldown: 50"},
      {{"model.layers=4097"}, 0, "model.layers", "is too large", ""},
      {{"model.position=rope", "model.hidden=60", "model.heads=4"},
       0,
       "model.position",
       "even head size; it is 15",
       "model.head_size: 16"},
  };
  return all;
}

TEST(BadDecks, EachMistakeAlone) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.overrides[0]);
    const auto errors = errors_with(c.overrides, c.ranks);
    ASSERT_EQ(errors.size(), 1u) << format_errors(errors);
    EXPECT_EQ(errors[0].key, c.key);
    EXPECT_THAT(errors[0].what, HasSubstr(c.what));
    EXPECT_THAT(errors[0].fix, HasSubstr(c.fix));
    if (!c.key.empty()) {
      EXPECT_FALSE(errors[0].place.empty());
      EXPECT_FALSE(errors[0].allowed.empty());
    }
  }
}

// What the fix says is right: taking it makes the error go away.
TEST(BadDecks, FixesMendThem) {
  int tried = 0;
  for (const Case& c : cases()) {
    auto overrides = c.overrides;
    std::string fix = errors_with(overrides, c.ranks).at(0).fix;
    const std::size_t alternative = fix.find(", or ");
    if (alternative != std::string::npos) fix = fix.substr(0, alternative);
    const std::size_t colon = fix.find(": ");
    if (colon == std::string::npos || fix.find('.') > colon) continue;
    SCOPED_TRACE(c.overrides[0] + " -> " + fix);
    overrides.push_back(fix.substr(0, colon) + "=" + fix.substr(colon + 2));
    const auto left = errors_with(overrides, c.ranks);
    EXPECT_TRUE(left.empty()) << format_errors(left);
    ++tried;
  }
  EXPECT_GE(tried, 30);
}

// Left to the build and the machine, or Trireme's own, attention goes with every type and
// with dropout; a deck that says nothing leaves it.
TEST(BadDecks, AttentionThatNobodyNamedIsAllowed) {
  EXPECT_EQ(Deck().precision.attention, AttentionKernels::automatic);
  EXPECT_EQ(small_with({}).precision.attention, AttentionKernels::automatic);
  for (const char* word : {"auto", "own"}) {
    const std::string attention = std::string("precision.attention=") + word;
    EXPECT_TRUE(errors_with({attention, "model.attention_dropout=0.1"}, 0).empty());
    EXPECT_TRUE(
        errors_with({attention, "precision.compute=bf16", "model.attention_dropout=0.1"},
                    0)
            .empty());
  }
  EXPECT_TRUE(errors_with({"precision.attention=cudnn", "precision.compute=fp16",
                           "model.attention_dropout=0"},
                          0)
                  .empty());
}

// The last values that are right.
TEST(BadDecks, LimitsThemselvesAreAllowed) {
  EXPECT_TRUE(
      errors_with({"precision.compute=bf16", "precision.gradients=bf16"}, 0).empty());
  EXPECT_TRUE(errors_with({"model.layers=4096"}, 0).empty());
  EXPECT_EQ(errors_with({"model.layers=4097"}, 0).at(0).allowed, "integer: 1 to 4096");
  // From 0.5 / 65536 on round(65536 p) is 1.
  EXPECT_TRUE(errors_with({"model.dropout=7.63e-6"}, 0).empty());
  EXPECT_EQ(errors_with({"model.dropout=7.62e-6"}, 0).size(), 1u);
  EXPECT_TRUE(errors_with({"model.attention_dropout=0.99999237"}, 0).empty());
  EXPECT_EQ(errors_with({"model.attention_dropout=0.99999238"}, 0).size(), 1u);
  EXPECT_TRUE(
      errors_with(
          {"optimizer.schedule=wsd", "optimizer.warmup=400", "optimizer.cooldown=600"}, 0)
          .empty());
}

TEST(BadDecksTogether, AllAtOnceWithLines) {
  const auto errors = errors_of(
      "model:\n"
      "  layers: 12\n"
      "  hiden: 768\n"     // line 3
      "  heads: twelve\n"  // line 4
      "  sequence: 1024\n"
      "  dropout: 1.5\n"        // line 6
      "optimiser: {lr: 1.0}\n"  // line 7
      "run:\n"
      "  steps: 5 minutes\n"             // line 9
      "  hang_timeout: 60\n"             // line 10
      "batch: {micro: 3, global: 32}\n"  // line 11
      "data: 3\n",                       // line 12
      {{"model.kind=gpd", "memory.recompute=some"}, "", 4});
  std::vector<std::string> found;
  for (const DeckError& error : errors) found.push_back(error.place + " " + error.key);
  EXPECT_THAT(found, ::testing::UnorderedElementsAre(
                         "test.yaml:3 model.hiden", "test.yaml:4 model.heads",
                         "test.yaml:6 model.dropout", "test.yaml:7 optimiser",
                         "test.yaml:9 run.steps", "test.yaml:10 run.hang_timeout",
                         "test.yaml:11 batch.global", "test.yaml:12 data",
                         "--set model.kind", "--set memory.recompute"));
}

TEST(BadDecksTogether, ReadsWell) {
  try {
    parse(
        "model: {layers: 4, hidden: 256, heads: 5, sequence: 32, vocab: 99}\n"
        "optimizer:\n  shedule: cosine\n",
        "inputs/my.yaml");
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "the deck has 2 errors\n"
        "\n"
        "  optimizer.shedule: cosine   (inputs/my.yaml:3)\n"
        "    is not a key of the deck\n"
        "    allowed: keys of optimizer: kind, lr, min_lr, schedule, warmup, decay, "
        "cooldown, betas, eps, weight_decay, clip_norm\n"
        "    nearest: optimizer.schedule\n"
        "\n"
        "  model.heads: 5   (inputs/my.yaml:1)\n"
        "    does not divide model.hidden (256): without model.head_size every head has "
        "hidden / heads elements\n"
        "    allowed: a divisor of 256\n"
        "    nearest: model.heads: 4, or model.hidden: 255");
  }
}

TEST(BadDecksTogether, OptionsAndLongTexts) {
  EXPECT_EQ(format_errors({{"--resume", "", "x", "is damaged:\n  a file", "", ""}}),
            "the options have 1 error\n\n  --resume: x\n    is damaged:\n      a file");
  EXPECT_THAT(format_errors({{"--resume", "", "x", "", "", ""},
                             {"run.dir", "d.yaml:1", "y", "", "", ""}}),
              ::testing::StartsWith("the deck and the options have 2 errors\n"));
}

TEST(BadDecksText, RequiredAndDuplicateKeys) {
  auto errors = errors_of("data: {train: c.h5}\n");
  ASSERT_EQ(errors.size(), 4u);
  for (const DeckError& error : errors) EXPECT_EQ(error.what, "is missing");
  EXPECT_TRUE(errors_of("# only a comment\n").size() == 1);
  EXPECT_TRUE(errors_of("").size() == 1);

  const std::string twice = std::string(kSmall) + "run: {steps: 5, seed: 2, steps: 7}\n";
  errors = errors_of(twice);
  ASSERT_EQ(errors.size(), 1u) << format_errors(errors);
  EXPECT_EQ(errors[0].key, "run.steps");
  EXPECT_EQ(errors[0].place, "test.yaml:3");
  EXPECT_THAT(errors[0].what, HasSubstr("a second time"));

  errors = errors_of(std::string(kSmall) +
                     "run: {steps: 5}\nbatch: {micro: 2}\n"
                     "run: {seed: 2}\n");
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].key, "run");
  EXPECT_EQ(errors[0].place, "test.yaml:5");
  EXPECT_THAT(errors[0].what, HasSubstr("line 3"));
}

TEST(BadDecksText, NotYaml) {
  const auto first = [](const std::string& text) {
    const auto errors = errors_of(text);
    EXPECT_EQ(errors.size(), 1u) << text;
    return errors.empty() ? DeckError{} : errors[0];
  };
  EXPECT_EQ(first("model: {layers: 4\nrun: 3\n").place.rfind("test.yaml:", 0), 0u);
  const DeckError bracket = first("model:\n  layers: [1, 2\n  hidden: 3\n");
  EXPECT_THAT(bracket.what, HasSubstr("is not YAML here"));
  const DeckError tab = first("model:\n\tlayers: 4\n");
  EXPECT_EQ(tab.place, "test.yaml:2");
  EXPECT_THAT(first("model: 3\n---\nmodel: 4\n").what, HasSubstr("second YAML document"));
  EXPECT_THAT(first("just text\n").what, HasSubstr("not a list of sections"));
  EXPECT_THAT(first("[1, 2]\n").what, HasSubstr("not a list of sections"));
  EXPECT_THAT(first(std::string("model: 3\0", 9)).what, HasSubstr("zero bytes"));
  EXPECT_THAT(first("a: &x [*x]\n").what, ::testing::Not(HasSubstr("missing")));
}

}  // namespace
}  // namespace trireme::config
