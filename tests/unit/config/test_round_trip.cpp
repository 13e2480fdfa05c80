// The resolved deck: reading it gives the same deck and the same text; the decks in
// inputs/ are right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "config/capability.hpp"
#include "config/key_table.hpp"
#include "config/kinds.hpp"
#include "deck_testing.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::config {
namespace {

void expect_same_again(const Deck& deck, int ranks) {
  const std::string text = resolved_text(deck);
  const Deck again = parse_resolved(text, ranks);
  EXPECT_EQ(resolved_text(again), text);
  EXPECT_EQ(again.optimizer.min_lr, deck.optimizer.min_lr);
  EXPECT_EQ(again.run.steps, deck.run.steps);
  EXPECT_EQ(again.optimizer.cooldown, deck.optimizer.cooldown);
  EXPECT_EQ(again.parallel.data, deck.parallel.data);
  EXPECT_EQ(again.run.time_limit, deck.run.time_limit);
  EXPECT_EQ(again.run.stop_after, deck.run.stop_after);
}

TEST(RoundTripResolved, EveryKeyIsWritten) {
  const std::string text = resolved_text(small_with({}));
  for (const Key& key : key_table()) {
    const KeyInfo& info = key.info;
    if (!has_key(ModelKind::gpt, info.path)) continue;
    const std::string last = info.path.substr(info.path.rfind('.') + 1);
    EXPECT_THAT(text, ::testing::HasSubstr("  " + last + ": ")) << info.path;
  }
  EXPECT_THAT(text, ::testing::HasSubstr(
                        "  loss_scale:\n    dynamic: true\n    initial: 65536\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("  min_lr: 3e-05\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("  hang_timeout: 10m\n"));
}

// Decks of checkpoints may have what earlier versions took, and keep it.
TEST(RoundTripResolved, DropoutThatOnlyEarlierVersionsTook) {
  Deck old = small_with({});
  old.model.dropout = 1e-6;
  old.model.attention_dropout = 0.999999;
  const std::string text = resolved_text(old);
  const Deck again = parse_resolved(text);
  EXPECT_EQ(again.model.dropout, 1e-6);
  EXPECT_EQ(again.model.attention_dropout, 0.999999);
  EXPECT_EQ(errors_of(text).size(), 2u);  // of a user it is none to begin a run with
  old.model.dropout = 1.0;
  EXPECT_THROW(parse_resolved(resolved_text(old)), DeckErrors);
}

// Decks drawn at random from values of every kind.
TEST(RoundTripResolved, ManyDecks) {
  std::mt19937_64 random(11);
  const auto pick = [&](std::vector<std::string> all) {
    return all[random() % all.size()];
  };
  const auto real = [&](double most) {
    return std::to_string(most * static_cast<double>(random() % 1000003) / 1000003.0);
  };
  for (int i = 0; i < 300; ++i) {
    const int ranks = 1 << (random() % 4);
    const std::string kind = pick({"gpt", "bert", "t5"});
    std::vector<std::string> set = {
        "model.kind=" + kind,
        "model.position=" + pick({"learned", "rope", "relative"}),
        "model.vocab=" + pick({"corpus", "50257", "2e5"}),
        "model.dropout=" + real(0.9),
        (kind == "t5" ? "model.norm_epsilon=" : "model.init_std=") + real(0.1) + "1",
        "data.train=" + pick({"a.h5", "\"with space.h5\"", "[a.h5, b.h5]", "\"12\"",
                              "[{path: x, weight: " + real(3) + "1}]", "\"tab\\there\"",
                              "\"quote\\\"d\"", "\"true\"", "ä/ö.h5"}),
        "data.split=[" + pick({"1, 0, 0", "0.9, 0.05, 0.05", "0.98,0.02,0"}) + "]",
        "batch.global=" + pick({"32", "64", "8"}),
        "batch.ramp_up=" + pick({"none", "{start: 8, increment: 8, samples: 1000}"}),
        "parallel.data=" + pick({"auto", std::to_string(ranks)}),
        "optimizer.lr=" + real(1.0) + "1",
        "optimizer.schedule=" + pick({"cosine", "constant", "linear"}),
        "optimizer.warmup=" + pick({"0", "10 steps", "64 samples", "1e3 tokens"}),
        "run.steps=" + pick({"1000", "1e5 samples", "123456789 tokens"}),
        "run.stop_after=" + pick({"never", "20", "640 samples", "3e4 tokens"}),
        "run.time_limit=" + pick({"none", "90s", "1h30m", "0.125s", "2d", "1.5h"}),
        "run.dir=" + pick({"runs/x", "\"a # b\"", "\"null\"", "'it''s'"}),
        "checkpoint.on_signal=" + pick({"[]", "[USR2]", "[TERM, INT, HUP]"}),
        "checkpoint.wall_time_margin=" + pick({"auto", "5m"}),
        "parallel.stages=" + pick({"auto", kind == "t5" ? "[8]" : "[4]"}),
        "model.head_size=" + pick({"16", "24", "2"})};
    if (random() % 3 == 0) {
      set[6] =
          "data.validation=" + pick({"{a: x.h5}", "{\"no\": y.h5, \"b c\": \"z: w\"}"});
    }
    SCOPED_TRACE(set[5] + " " + set[10] + " " + set[15]);
    expect_same_again(small_with(set, ranks), ranks);
  }
}

TEST(RoundTripResolved, OfInputs) {
  const char* root = std::getenv("TRIREME_SOURCE_DIR");
  ASSERT_NE(root, nullptr);
  int decks = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(root) + "/inputs")) {
    if (entry.path().extension() != ".yaml") continue;
    if (entry.path().string().find("/machines/") != std::string::npos) continue;
    SCOPED_TRACE(entry.path().string());
    const Deck deck = load(entry.path().string());  // as many ranks as its grid has
    expect_same_again(deck, deck.parallel.ranks());
    // A deck that training cannot run yet says so in its first lines.
    const bool only_dry_run =
        test::slurp(entry.path()).find("is accepted by --dry-run") != std::string::npos;
    EXPECT_EQ(errors_of_training(deck).empty(), !only_dry_run);
    // A short look at it, as slurm/scaling.sbatch takes: the schedule stays.
    const Deck trial = load(entry.path().string(), {.overrides = {"run.stop_after=20"}});
    EXPECT_EQ(trial.run.steps, deck.run.steps);
    EXPECT_EQ(trial.optimizer.decay, deck.optimizer.decay);
    ++decks;
  }
  EXPECT_GE(decks, 5);
}

// GPT-2's shapes: parameters by the closed formula.
TEST(RoundTripResolved, InputsHaveGpt2Shapes) {
  const std::string root = std::getenv("TRIREME_SOURCE_DIR");
  for (const auto& [name, parameters] :
       {std::pair<const char*, index_t>{"gpt2-124m", 124439808},
        {"gpt2-355m", 354823168},
        {"gpt2-774m", 774030080},
        {"gpt2-1.5b", 1557611200}}) {
    const Deck deck = load(root + "/inputs/gpt/" + name + ".yaml");
    const ModelConfig& m = deck.model;
    const index_t h = m.hidden;
    EXPECT_EQ(m.layers * (12 * h * h + 13 * h) + 2 * h + (m.vocab + m.sequence) * h,
              parameters);
    EXPECT_EQ(m.ffn_hidden, 4 * h);
    EXPECT_EQ(deck.name, name);
  }
}

}  // namespace
}  // namespace trireme::config
