// What a right deck becomes: values, defaults that follow others, units, overrides.
#include "config/load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "config/check.hpp"
#include "deck_testing.hpp"

namespace trireme::config {
namespace {

TEST(LoadDefaults, OfDesign) {
  const Deck deck = parse(kSmall, "decks/tiny.yaml");
  EXPECT_EQ(deck.name, "tiny");
  EXPECT_EQ(deck.model.kind, ModelKind::gpt);
  EXPECT_EQ(deck.model.ffn_hidden, 256);
  EXPECT_EQ(deck.model.kv_heads, 4);
  EXPECT_EQ(deck.model.head_size, 16);
  EXPECT_EQ(deck.model.dropout, 0.1);
  EXPECT_TRUE(deck.model.tie_embeddings);
  EXPECT_EQ(deck.data.seed, 1234u);
  ASSERT_EQ(deck.data.train.size(), 1u);
  EXPECT_EQ(deck.data.train[0].path, "corpus.h5");
  EXPECT_EQ(deck.data.train[0].weight, 1.0);
  EXPECT_EQ(deck.data.split, (std::array<double, 3>{0.98, 0.02, 0.0}));
  EXPECT_EQ(deck.batch.micro, 1);
  EXPECT_EQ(deck.batch.global, 32);
  EXPECT_EQ(deck.parallel.data, 1);
  EXPECT_TRUE(deck.parallel.data_auto);
  EXPECT_EQ(deck.parallel.zero, 1);
  EXPECT_EQ(deck.optimizer.lr, 3e-4);
  EXPECT_EQ(deck.optimizer.min_lr, 3e-5);
  EXPECT_EQ(deck.optimizer.decay.steps, 1000);
  EXPECT_EQ(deck.optimizer.cooldown.steps, 100);
  EXPECT_EQ(deck.optimizer.betas[1], 0.95);
  EXPECT_EQ(deck.run.steps.steps, 1000);
  EXPECT_EQ(deck.run.dir, "runs/tiny");
  EXPECT_EQ(deck.run.hang_timeout, 600.0);
  EXPECT_FALSE(deck.run.time_limit);
  EXPECT_EQ(deck.checkpoint.dir, "runs/tiny/checkpoints");
  EXPECT_EQ(deck.checkpoint.on_signal,
            (std::vector<SignalName>{SignalName::usr1, SignalName::term}));
  EXPECT_FALSE(deck.checkpoint.wall_time_margin);
}

TEST(LoadDefaults, FollowWhatIsGiven) {
  const Deck deck = small_with({"optimizer.lr=1e-3", "run.steps=2e5 tokens", "run.seed=7",
                                "run.dir=out/x", "model.heads=8"});
  EXPECT_EQ(deck.optimizer.min_lr, 1e-4);
  // 200000 tokens / 32 = 6250 samples; / 32 a step = 195.3: 196 steps.
  EXPECT_EQ(deck.run.steps.steps, 196);
  EXPECT_EQ(deck.optimizer.decay, deck.run.steps);
  EXPECT_EQ(deck.data.seed, 7u);
  EXPECT_EQ(deck.checkpoint.dir, "out/x/checkpoints");
  EXPECT_EQ(deck.model.kv_heads, 8);
  EXPECT_EQ(deck.model.head_size, 8);
}

// T5-3B's: heads x head_size is not hidden, which then need not be a multiple of heads.
TEST(LoadValues, AHeadSizeOfItsOwn) {
  EXPECT_EQ(small_with({"model.heads=5", "model.head_size=24"}).model.head_size, 24);
}

TEST(LoadValues, OfEveryShape) {
  const Deck deck = parse(
      "model: {kind: bert, layers: 4, hidden: 96, heads: 4, kv_heads: 2, sequence: 64,\n"
      "        norm: rmsnorm, activation: swiglu, position: rope, bias: false,\n"
      "        tie_embeddings: false, vocab: 1e3}\n"
      "data:\n"
      "  train: [{path: a.h5, weight: 0.7}, {path: b.h5, weight: 2}]\n"
      "  validation: {books: v.h5, \"web pages\": \"w x.h5\"}\n"
      "  pairs: next\n"
      "batch: {micro: 2, global: 64, ramp_up: {start: 16, increment: 16, samples: "
      "6400}}\n"
      "parallel: {tensor: 2, pipeline: 2, data: auto, order: [data, tensor, pipeline, "
      "context],\n"
      "           stages: [3, 1], sequence: true}\n"
      "precision: {compute: fp16, loss_scale: {initial: 2.0e+4, window: 500}}\n"
      "memory: {recompute: selective}\n"
      "optimizer: {schedule: wsd, warmup: 320 samples, clip_norm: 0}\n"
      "run: {time_limit: 1h30m, hang_timeout: none}\n"
      "checkpoint: {on_signal: [], wall_time_margin: 90s, every: 0}\n",
      "all.yaml", {{}, "", 8});
  EXPECT_EQ(deck.model.kind, ModelKind::bert);
  EXPECT_EQ(deck.model.position, Position::rope);
  EXPECT_EQ(deck.model.vocab, 1000);
  EXPECT_FALSE(deck.model.bias);
  ASSERT_EQ(deck.data.train.size(), 2u);
  EXPECT_EQ(deck.data.train[0].weight, 0.7);
  EXPECT_EQ(deck.data.train[1].path, "b.h5");
  EXPECT_EQ(deck.data.train[1].weight, 2.0);
  EXPECT_EQ(deck.data.pairs, Pairs::next);
  ASSERT_EQ(deck.data.validation.size(), 2u);
  EXPECT_EQ(deck.data.validation[1].name, "web pages");
  EXPECT_EQ(deck.data.validation[1].path, "w x.h5");
  EXPECT_EQ(deck.parallel.data, 2);
  EXPECT_EQ(deck.parallel.ranks(), 8);
  EXPECT_EQ(deck.microbatches(), 16);
  EXPECT_EQ(deck.parallel.stages, (std::vector<index_t>{3, 1}));
  EXPECT_EQ(deck.parallel.order[0], Axis::data);
  EXPECT_EQ(deck.precision.loss_scale.initial, 20000.0);
  EXPECT_EQ(deck.precision.loss_scale.hysteresis, 2);
  EXPECT_EQ(deck.optimizer.clip_norm, 0.0);
  EXPECT_EQ(deck.run.time_limit, 5400.0);
  EXPECT_FALSE(deck.run.hang_timeout);
  EXPECT_EQ(deck.checkpoint.wall_time_margin, 90.0);
  EXPECT_TRUE(deck.checkpoint.on_signal.empty());
  // The ramp: 16, 32, 48 for a third of 6400 samples each, then 64.
  EXPECT_EQ(deck.batch.size_at(0), 16);
  EXPECT_EQ(deck.batch.size_at(2133), 16);
  EXPECT_EQ(deck.batch.size_at(2134), 32);
  EXPECT_EQ(deck.batch.size_at(6399), 48);
  EXPECT_EQ(deck.batch.size_at(6400), 64);
  EXPECT_EQ(deck.optimizer.warmup.steps, 20);  // 320 samples at 16 a step
}

TEST(LoadLengths, StepsThroughTheRamp) {
  BatchConfig batch;
  batch.global = 64;
  batch.ramp_up = RampUp{16, 16, 6400};
  // Against counting one step at a time.
  for (const index_t samples : {1, 15, 16, 17, 2134, 6399, 6400, 6401, 100000}) {
    index_t taken = 0, steps = 0;
    for (; taken < samples; ++steps) taken += batch.size_at(taken);
    Length length(samples);
    length.unit = LengthUnit::samples;
    EXPECT_EQ(steps_of(length, batch, 10), steps) << samples;
    length.unit = LengthUnit::tokens;
    length.amount = samples * 10 - 3;
    EXPECT_EQ(steps_of(length, batch, 10), steps) << samples;
  }
}

// The same from any place of the run.
TEST(LoadLengths, StepsFromTheMiddleOfTheRamp) {
  BatchConfig batch;
  batch.global = 64;
  batch.ramp_up = RampUp{16, 16, 6400};
  for (const index_t begin : {0, 16, 2128, 2144, 6384, 6400, 64000}) {
    for (const index_t samples : {1, 15, 16, 17, 33, 2134, 6399, 6401, 100000}) {
      index_t taken = begin, steps = 0;
      for (; taken < begin + samples; ++steps) taken += batch.size_at(taken);
      Length length(samples);
      length.unit = LengthUnit::samples;
      EXPECT_EQ(steps_of(length, batch, 10, begin), steps) << samples << " " << begin;
      length.unit = LengthUnit::tokens;
      length.amount = samples * 10 - 3;
      EXPECT_EQ(steps_of(length, batch, 10, begin), steps) << samples << " " << begin;
      length.unit = LengthUnit::steps;
      length.amount = 3;
      EXPECT_EQ(steps_of(length, batch, 10, begin), 3) << begin;
    }
  }
}

// Back again: what steps take, against counting one at a time.
TEST(LoadLengths, SamplesOfSteps) {
  BatchConfig batch;
  batch.global = 64;
  EXPECT_EQ(samples_of(10, batch), 640);
  batch.ramp_up = RampUp{16, 16, 6400};
  for (const index_t steps : {0, 1, 133, 134, 135, 200, 244, 245, 246, 1000}) {
    index_t taken = 0;
    for (index_t step = 0; step < steps; ++step) taken += batch.size_at(taken);
    EXPECT_EQ(samples_of(steps, batch), taken) << steps;
  }
}

TEST(LoadLengths, ToStopAfterMayBeNone) {
  EXPECT_FALSE(small_with({}).run.stop_after);
  EXPECT_FALSE(small_with({"run.stop_after=never"}).run.stop_after);
  const Deck deck = small_with({"run.stop_after=2e4 tokens", "optimizer.warmup=500"});
  ASSERT_TRUE(deck.run.stop_after);
  EXPECT_EQ(deck.run.stop_after->amount, 20000);
  EXPECT_EQ(deck.run.stop_after->unit, LengthUnit::tokens);
  EXPECT_EQ(deck.optimizer.decay.steps, 1000);
}

TEST(LoadOverrides, ReplaceAndSayWhereFrom) {
  const Deck deck =
      small_with({"model.layers=2", "model.layers=3", "data.train=[x.h5, y.h5]",
                  "batch.ramp_up={start: 8, increment: 8, samples: 100}"});
  EXPECT_EQ(deck.model.layers, 3);  // the last one holds
  EXPECT_EQ(deck.data.train.size(), 2u);
  ASSERT_TRUE(deck.batch.ramp_up);
  EXPECT_EQ(deck.batch.ramp_up->samples, 100);
  EXPECT_EQ(deck.origins.at("model.layers"), "--set");
  EXPECT_EQ(deck.origins.at("model.hidden"), "test.yaml:1");
  EXPECT_EQ(deck.origins.at("data.train"), "--set");
  EXPECT_FALSE(deck.given("optimizer.lr"));
  const Deck moved = parse(kSmall, "t.yaml", {{"run.dir=a"}, "else where", 0});
  EXPECT_EQ(moved.run.dir, "else where");
  EXPECT_EQ(moved.origins.at("run.dir"), "--run-dir");
}

// Corpora have lines of their own where they stand in lines of their own.
TEST(LoadOverrides, PartsSayWhereFrom) {
  const std::string text = std::string(kSmall).substr(0, std::string(kSmall).find('\n')) +
                           "\ndata:\n  train:\n    - a.h5\n    - {path: b.h5}\n"
                           "  validation:\n    books: c.h5\n    my web: d.h5\n";
  const Deck deck = parse(text, "test.yaml");
  EXPECT_EQ(deck.origins.at("data.train"), "test.yaml:3");
  EXPECT_EQ(deck.origins.at("data.train.0"), "test.yaml:4");
  EXPECT_EQ(deck.origins.at("data.train.1"), "test.yaml:5");
  EXPECT_EQ(deck.origins.at("data.validation.my web"), "test.yaml:8");
  EXPECT_FALSE(small_with({"data.train=[x.h5, y.h5]"}).given("data.train.0"));
}

// For who goes on to judge a wrong deck: what is known of it, and what is not.
TEST(LoadWrongDecks, AreExaminedAsFarAsTheyGo) {
  const std::string path = ::testing::TempDir() + "/trireme_wrong.yaml";
  std::ofstream(path) << kSmall << "run: {sed: 3, steps: many}\noptimizer: {lr: 1}\n";
  const Examined examined = examine(path, {.overrides = {"model.hidden=x"}});
  EXPECT_EQ(examined.errors.size(), 3u) << format_errors(examined.errors);
  EXPECT_EQ(examined.deck.data.train.at(0).path, "corpus.h5");
  EXPECT_EQ(examined.bad, (std::set<std::string>{"run.seed", "data.seed", "run.steps",
                                                 "optimizer.decay", "optimizer.cooldown",
                                                 "model.hidden", "model.head_size",
                                                 "model.ffn_hidden"}));
  std::ofstream(path) << "model: {layers: [\n";
  const Examined broken = examine(path, {.overrides = {"data.train=a.h5"}});
  EXPECT_EQ(broken.errors.size(), 1u);
  EXPECT_EQ(broken.bad.count("data.train"), 0u);
  EXPECT_EQ(broken.bad.count("run.dir"), 1u);
}

// A resolved deck given back for a run elsewhere must not write into the first one's
// checkpoints; those that were put apart on purpose stay there.
TEST(LoadOverrides, CheckpointsMoveWithTheRun) {
  const std::string resolved = resolved_text(parse(kSmall, "t.yaml", {{"run.dir=a"}}));
  EXPECT_EQ(parse(resolved, "t.yaml").checkpoint.dir, "a/checkpoints");
  EXPECT_EQ(parse(resolved, "t.yaml", {{}, "b", 0}).checkpoint.dir, "b/checkpoints");
  EXPECT_EQ(parse(resolved, "t.yaml", {{"run.dir=b"}}).checkpoint.dir, "b/checkpoints");
  const std::string apart =
      resolved_text(parse(kSmall, "t.yaml", {{"run.dir=a", "checkpoint.dir=/scratch"}}));
  EXPECT_EQ(parse(apart, "t.yaml", {{}, "b", 0}).checkpoint.dir, "/scratch");
}

// Numbers that are large but allowed: no overflow, no long loops.
TEST(LoadLengths, ExtremeRamps) {
  BatchConfig batch;
  batch.global = 1 << 24;
  batch.ramp_up = RampUp{1, 1, index_t{1} << 40};
  Length length(1000000000000000000);
  length.unit = LengthUnit::samples;
  const index_t steps = steps_of(length, batch, 1024);
  EXPECT_GT(steps, length.amount / batch.global);
  EXPECT_LT(steps, length.amount / batch.global + (index_t{1} << 24) * 17);
  EXPECT_EQ(batch.size_at((index_t{1} << 40) - 1), (1 << 24) - 1);
}

TEST(LoadFiles, FromDisk) {
  const std::string path = ::testing::TempDir() + "/trireme_deck.yaml";
  std::ofstream(path) << kSmall;
  EXPECT_EQ(load(path).name, "trireme_deck");
  const auto message = [](const std::string& file) -> std::string {
    try {
      load(file);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message("no/such/deck.yaml"), ::testing::HasSubstr("'no/such/deck.yaml'"));
  EXPECT_THAT(message(::testing::TempDir()), ::testing::HasSubstr("is a directory"));
}

TEST(LoadVocabulary, FromTheCorpus) {
  Deck deck = small_with({"model.vocab=corpus"});
  EXPECT_EQ(deck.model.vocab, 0);
  EXPECT_TRUE(set_vocabulary(deck, 8192, "c.h5").empty());
  EXPECT_EQ(deck.model.vocab, 8192);
  EXPECT_TRUE(set_vocabulary(deck, 8000, "c.h5").empty());  // more than it needs is fine
  EXPECT_EQ(deck.model.vocab, 8192);
  Deck small = small_with({});
  const auto errors = set_vocabulary(small, 8192, "c.h5");
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].place, "test.yaml:1");
  EXPECT_THAT(errors[0].what, ::testing::HasSubstr("c.h5 (8,192 tokens)"));
}

}  // namespace
}  // namespace trireme::config
