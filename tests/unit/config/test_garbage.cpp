// Whatever the file holds: a deck, or an InputError; never anything else.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "config/key_table.hpp"
#include "config/kinds.hpp"
#include "deck_testing.hpp"

namespace trireme::config {
namespace {

// Returns whether it was refused.
bool refused(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    const Deck deck = parse(text, "fuzz.yaml", {overrides, "", 1});
    // What is taken must be whole: it can be written and read.
    parse_resolved(resolved_text(deck), 1);
    return false;
  } catch (const InputError& error) {
    EXPECT_GT(std::string(error.what()).size(), 20u);
    return true;
  }
}

TEST(GarbageBytes, AreRefused) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 200, '\0');
    for (char& c : text) c = static_cast<char>(random());
    EXPECT_TRUE(refused(text));
  }
}

TEST(GarbageYaml, OfDeckWords) {
  const std::vector<std::string> words = {"model",
                                          "layers",
                                          "batch",
                                          ":",
                                          ": ",
                                          "\n",
                                          "\n  ",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          ", ",
                                          "- ",
                                          "12",
                                          "-1",
                                          "1e99",
                                          "1e-400",
                                          ".inf",
                                          "auto",
                                          "none",
                                          "tokens",
                                          "*a",
                                          "&a ",
                                          "!!int ",
                                          "|",
                                          ">",
                                          "\"",
                                          "'",
                                          "#",
                                          "?",
                                          "%",
                                          "@",
                                          "`",
                                          "~",
                                          "hidden: 4",
                                          "<<: *a",
                                          "--- ",
                                          "...",
                                          "\t",
                                          "parallel.tensor",
                                          "stages",
                                          "true",
                                          "99999999999999999999",
                                          "ramp_up",
                                          "\xff",
                                          "ö",
                                          "\r"};
  std::mt19937_64 random(2);
  for (int i = 0; i < 4000; ++i) {
    std::string text = i % 2 == 0 ? "" : kSmall;
    const int count = 1 + static_cast<int>(random() % 30);
    for (int k = 0; k < count; ++k) text += words[random() % words.size()];
    refused(text);
  }
}

// A right deck with one byte changed, taken away or put in.
TEST(GarbageMutations, OfARightDeck) {
  const std::string right = resolved_text(small_with({}));
  std::mt19937_64 random(3);
  int taken = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = right;
    const std::size_t at = random() % text.size();
    const char byte = static_cast<char>(random() % 96 + 32);
    switch (random() % 3) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.erase(at, 1 + random() % 5);
        break;
      default:
        text.insert(at, 1 + random() % 3, byte);
    }
    taken += refused(text) ? 0 : 1;
  }
  EXPECT_GT(taken, 100);  // many changes are harmless (in digits, comments)
  EXPECT_LT(taken, 2900);
}

TEST(GarbageOverrides, ExtremeValuesOfEveryKey) {
  for (const char* value : {"0",
                            "-1",
                            "1",
                            "9223372036854775807",
                            "1e18",
                            "1e308",
                            "-1e308",
                            "1e-308",
                            "[]",
                            "{}",
                            "[1, 2, 3]",
                            "{a: b}",
                            "auto",
                            "none",
                            "true",
                            "1099511627776",
                            "9e18 tokens",
                            "1 tokens",
                            "99999999999d",
                            "x",
                            "~",
                            "\"\"",
                            "[[[[1]]]]",
                            "[1099511627776, 1099511627776]"}) {
    for (const char* key : {"model.layers",
                            "model.hidden",
                            "model.heads",
                            "model.sequence",
                            "model.vocab",
                            "model.ffn_hidden",
                            "model.kv_heads",
                            "model.head_size",
                            "batch.micro",
                            "batch.global",
                            "batch.ramp_up",
                            "parallel.tensor",
                            "parallel.pipeline",
                            "parallel.virtual_pipeline",
                            "parallel.context",
                            "parallel.data",
                            "parallel.stages",
                            "parallel.order",
                            "optimizer.lr",
                            "optimizer.min_lr",
                            "optimizer.warmup",
                            "optimizer.decay",
                            "optimizer.cooldown",
                            "optimizer.betas",
                            "run.steps",
                            "run.stop_after",
                            "run.time_limit",
                            "run.seed",
                            "run.dir",
                            "data.train",
                            "data.validation",
                            "data.split",
                            "data.seed",
                            "checkpoint.on_signal",
                            "checkpoint.every"}) {
      SCOPED_TRACE(std::string(key) + "=" + value);
      refused(kSmall, {std::string(key) + "=" + value});
      refused(kSmall, {"model.layers=4096", "parallel.pipeline=16",
                       std::string(key) + "=" + value});
    }
  }
  for (const char* kind : {"model.kind=bert", "model.kind=t5"}) {
    for (const Key& key : key_table()) {
      if (has_key(ModelKind::gpt, key.info.path)) continue;
      for (const char* value :
           {"0", "1", "2", "3", "1e-308", "0.9999999999999999", "1e18", "1e308",
            "67108864", "65536", "true", "none", "[1]"}) {
        SCOPED_TRACE(fmt::format("{} {}={}", kind, key.info.path, value));
        refused(kSmall, {kind, key.info.path + "=" + value});
        refused(kSmall, {kind, "model.sequence=67108864", "batch.micro=1",
                         "parallel.pipeline=4", key.info.path + "=" + value});
      }
    }
  }
  for (const char* text :
       {"", "=", "==", "a=b=c", ".=1", "model.=1", ".model=2", "model..x=1",
        "model.layers", "=3", "model.layers=2\nrun: 3", "run.steps={",
        "run.dir=: :", "run.dir=*x", "run.dir=--- a\n--- b"}) {
    SCOPED_TRACE(text);
    refused(kSmall, {text});
  }
}

TEST(GarbageYaml, DeepAndLarge) {
  EXPECT_TRUE(refused(std::string(100000, '[')));
  std::string deep = "model: ";
  deep.append(1000, '{').append(1000, '}');
  EXPECT_TRUE(refused(deep));
  std::string wide = "a: ";
  EXPECT_TRUE(refused(wide.append(1 << 20, 'x')));
  // Each line eight times the one before: 10^8 values if they were all made.
  std::string bomb = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 9; ++i) {
    bomb += fmt::format("a{0}: &a{0} [*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1}]\n",
                        i, i - 1);
  }
  EXPECT_TRUE(refused(bomb));
}

}  // namespace
}  // namespace trireme::config
