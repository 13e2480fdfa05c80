// `trireme generate` on a small checkpoint: output, reproducibility, and wrong input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/utf8.hpp"
#include "data/sentence_piece_library.hpp"
#include "regression/cli/small_checkpoint.hpp"
#include "support/run_binary.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class GenerateCli : public testing::Test {
 protected:
  GenerateCli() {
    // A model this small gains nothing by threads, and loses much where cores are busy.
    ::setenv("OMP_NUM_THREADS", "1", 1);
    make_checkpoint(scratch_ / "run");
  }

  RunResult generate(std::vector<std::string> arguments, int ranks = 0) const {
    arguments.insert(arguments.begin(), {"generate", "--checkpoint", scratch_ / "run"});
    return ranks == 0 ? trireme(arguments) : trireme_on_ranks(ranks, arguments);
  }
  static std::vector<json> lines(const std::string& text) {
    std::vector<json> result;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) result.push_back(json::parse(line));
    return result;
  }
  fs::path step() const { return scratch_ / "run/checkpoints/step_00000007"; }

  Scratch scratch_;
};

TEST_F(GenerateCli, TextIsPromptAndContinuation) {
  const RunResult result =
      generate({"--prompt", "in the beginning", "--max-tokens", "9"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("in the beginning"));
  EXPECT_EQ(valid_utf8_prefix(result.out), result.out.size());
  EXPECT_THAT(result.err, HasSubstr("tokens/s"));
  // Streamed, side by side and on several ranks: the same text.
  const RunResult again = generate({"--prompt", "in the beginning", "--max-tokens", "9",
                                    "--out", scratch_ / "out.txt"});
  EXPECT_THAT(again.out, IsEmpty());
  EXPECT_EQ(slurp(scratch_ / "out.txt"), result.out);
}

TEST_F(GenerateCli, JsonlHasEverything) {
  const RunResult result = generate(
      {"--prompt", "the word", "--prompt", "the end of it all", "--max-tokens", "8",
       "--num-samples", "3", "--format", "jsonl", "--json", scratch_ / "all.json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto texts = lines(result.out);
  ASSERT_EQ(texts.size(), 6u);
  const auto tokenizer = small_tokenizer();
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(texts[i]["prompt_number"], i / 3);
    EXPECT_EQ(texts[i]["sample"], i % 3);
    EXPECT_EQ(texts[i]["prompt"], i < 3 ? "the word" : "the end of it all");
    EXPECT_EQ(texts[i]["prompt_ids"],
              tokenizer.encode(texts[i]["prompt"].get<std::string>()));
    std::string text;
    append_repaired(tokenizer.decode(texts[i]["ids"]), text);
    EXPECT_EQ(texts[i]["text"], text);
    EXPECT_TRUE(texts[i]["finish"] == "max_tokens" ||
                texts[i]["finish"] == "end_of_document");
  }
  EXPECT_NE(texts[0]["ids"], texts[1]["ids"]);
  const json all = json::parse(slurp(scratch_ / "all.json"));
  EXPECT_EQ(all["step"], 7);
  EXPECT_EQ(all["results"].size(), 6u);
}

TEST_F(GenerateCli, SeedsRanksAndGroupsGiveTheSameTexts) {
  const std::vector<std::string> arguments = {
      "--prompt", "the word", "--prompt",      "und die", "--prompt",     "the end",
      "--format", "jsonl",    "--top-k",       "50",      "--top-p",      "0.95",
      "--seed",   "3",        "--num-samples", "2",       "--max-tokens", "10"};
  const RunResult alone = generate(arguments);
  ASSERT_EQ(alone.status, 0) << alone.err;
  const RunResult ranks = generate(arguments, 3);
  ASSERT_EQ(ranks.status, 0) << ranks.err;
  EXPECT_EQ(ranks.out, alone.out);
  auto other = arguments;
  other[13] = "4";
  EXPECT_NE(generate(other).out, alone.out);
  // The second prompt's texts do not depend on the third's being there.
  auto fewer = arguments;
  fewer.erase(fewer.begin() + 4, fewer.begin() + 6);
  const auto all = lines(alone.out), some = lines(generate(fewer).out);
  ASSERT_EQ(some.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(some[i]["ids"], all[i]["ids"]);
}

TEST_F(GenerateCli, GreedyIsTemperatureZero) {
  const auto greedy = generate({"--prompt", "the", "--greedy", "--seed", "1"});
  EXPECT_EQ(greedy.status, 0) << greedy.err;
  EXPECT_EQ(greedy.out, generate({"--prompt", "the", "--temperature", "0"}).out);
  EXPECT_EQ(greedy.out, generate({"--prompt", "the", "--top-k", "1"}).out);
  // It would be one text, printed several times.
  for (const std::vector<std::string>& how : std::vector<std::vector<std::string>>{
           {"--greedy"}, {"--temperature", "0"}, {"--top-k", "1"}}) {
    std::vector<std::string> several = {"--prompt", "the", "--num-samples", "2"};
    several.insert(several.end(), how.begin(), how.end());
    const auto refused = generate(several);
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(refused.out, "");
    EXPECT_THAT(refused.err, HasSubstr("--num-samples 2"));
    EXPECT_THAT(refused.err, HasSubstr("gives one text of each prompt"));
  }
}

TEST_F(GenerateCli, PromptFilesIdsAndNone) {
  spill(scratch_ / "prompts.txt", "the word\n\nthe end\r\n");
  const RunResult plain = generate({"--prompt-file", scratch_ / "prompts.txt", "--format",
                                    "jsonl", "--max-tokens", "3"});
  ASSERT_EQ(plain.status, 0) << plain.err;
  ASSERT_EQ(lines(plain.out).size(), 2u);
  EXPECT_EQ(lines(plain.out)[1]["prompt"], "the end");
  spill(scratch_ / "prompts.jsonl", "{\"prompt\": \"the word\"}\n{\"ids\": [1, 2, 3]}\n");
  const RunResult jsonl = generate({"--prompt-file", scratch_ / "prompts.jsonl",
                                    "--format", "jsonl", "--max-tokens", "3"});
  ASSERT_EQ(jsonl.status, 0) << jsonl.err;
  EXPECT_EQ(lines(jsonl.out)[0]["ids"], lines(plain.out)[0]["ids"]);
  EXPECT_EQ(lines(jsonl.out)[1]["prompt_ids"], (std::vector<int>{1, 2, 3}));
  // As many tokens as ever: the context ends the text before.
  EXPECT_EQ(generate({"--prompt", "the", "--max-tokens", "1000000000000"}).status, 0);
  spill(scratch_ / "prompts.jsonl", "{\"ids\": [4294967297]}\n");
  const RunResult large = generate({"--prompt-file", scratch_ / "prompts.jsonl"});
  EXPECT_EQ(large.status, 2);
  EXPECT_THAT(large.err,
              testing::AllOf(HasSubstr("prompts.jsonl:1: "), HasSubstr("token numbers")));
  // No prompt and an empty one: the beginning of a document.
  const RunResult none = generate({"--max-tokens", "5"});
  EXPECT_EQ(none.status, 0) << none.err;
  EXPECT_EQ(generate({"--max-tokens", "5", "--prompt", ""}).out, none.out);
}

TEST_F(GenerateCli, FullContextIsSaidAndSlides) {
  const RunResult stop = generate({"--prompt", "the", "--max-tokens", "100"});
  EXPECT_EQ(stop.status, 0);
  if (stop.err.find("context was full") == std::string::npos) {
    EXPECT_THAT(stop.err, HasSubstr("tokens in"));  // the text ended before
  }
  const RunResult slide = generate({"--prompt-ids", "1", "--max-tokens", "60", "--greedy",
                                    "--slide", "--format", "jsonl"});
  ASSERT_EQ(slide.status, 0) << slide.err;
  const json text = lines(slide.out)[0];
  if (text["finish"] == "max_tokens") {
    EXPECT_EQ(text["ids"].size(), 60u);
    EXPECT_EQ(text["slides"], 3);  // 24 positions, then 12 more at a time
  }
}

TEST_F(GenerateCli, SlideCutsALongPrompt) {
  std::string ids;
  for (int i = 0; i < 61; ++i) ids += std::to_string(i * 37 % 290 + 5) + " ";
  const std::vector<std::string> arguments = {
      "--prompt-ids", ids,       "--prompt-ids", "7 8",  "--max-tokens", "3",
      "--greedy",     "--slide", "--format",     "jsonl"};
  for (const int ranks : {0, 2}) {
    const RunResult result = generate(arguments, ranks);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("prompt 1 has 61 tokens, and the model's context "
                                      "24: the first 37 are not read"));
    EXPECT_THAT(result.err, testing::Not(HasSubstr("prompt 2")));
    const auto texts = lines(result.out);
    EXPECT_EQ(texts[0]["prompt_tokens_unread"], 37);
    EXPECT_EQ(texts[0]["prompt_ids"].size(), 61u);
    EXPECT_EQ(texts[1]["prompt_tokens_unread"], 0);
  }
}

TEST_F(GenerateCli, NarrowTypesAndUnlikePromptsSideBySide) {
  const std::vector<std::string> prompts = {"the", "in the beginning was", "a word"};
  for (const std::string type : {"bf16", "fp16"}) {
    const std::vector<std::string> settings = {"--greedy",
                                               "--max-tokens",
                                               "9",
                                               "--format",
                                               "jsonl",
                                               "--set",
                                               "precision.compute=" + type};
    std::vector<std::string> all = settings;
    for (const std::string& prompt : prompts) {
      all.insert(all.end(), {"--prompt", prompt});
    }
    const RunResult together = generate(all);
    ASSERT_EQ(together.status, 0) << together.err;
    const auto texts = lines(together.out);
    ASSERT_EQ(texts.size(), prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      std::vector<std::string> one = settings;
      one.insert(one.end(), {"--prompt", prompts[i]});
      const RunResult alone = generate(one);
      ASSERT_EQ(alone.status, 0) << alone.err;
      EXPECT_EQ(lines(alone.out).at(0)["ids"], texts[i]["ids"]) << type << " " << i;
    }
  }
}

TEST_F(GenerateCli, TakesAnyNameOfACheckpoint) {
  const std::string expected = generate({"--prompt", "the", "--max-tokens", "4"}).out;
  for (const fs::path& path :
       {scratch_ / "run/checkpoints", step(), scratch_ / "run/checkpoints/latest"}) {
    EXPECT_EQ(trireme({"generate", "--checkpoint", path, "--prompt", "the",
                       "--max-tokens", "4"})
                  .out,
              expected)
        << path;
  }
}

TEST_F(GenerateCli, WrongInputIsExplained) {
  const auto expect = [&](const std::vector<std::string>& arguments,
                          const std::vector<std::string>& parts) {
    const RunResult result = generate(arguments);
    EXPECT_EQ(result.status, 2) << arguments[0];
    EXPECT_THAT(result.out, IsEmpty());
    for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  };
  std::string long_prompt;
  for (int i = 0; i < 40; ++i) long_prompt += "x ";
  expect({"--prompt", long_prompt}, {"prompt 1 has", "context has 24", "--slide"});
  expect({"--prompt-ids", "1 2 300"}, {"token 300", "vocabulary has 300"});
  expect({"--prompt-ids", "1 two"}, {"--prompt-ids", "two"});
  expect({"--prompt-file", scratch_ / "none.txt"}, {"prompt file", "none.txt"});
  expect({"--temperature", "-1", "--top-p", "2"}, {"temperature -1", "top-p 2"});
  for (const char* seed : {"-1", "99999999999999999999", "1.5", ""}) {
    expect({"--seed", seed}, {"--seed", "0 to 2^64 - 1"});
  }
  expect({"--set", "model.layers=3"},
         {"--set model.layers=3", "takes precision.compute"});
  expect({"--set", "precision.loss_scale.initial=4"}, {"loss_scale.initial=4"});
  expect({"--set", "precision.compute=fp8"}, {"precision.compute", "fp8"});
  // Where nothing can be written is known before anything is computed.
  for (const char* option : {"--out", "--json"}) {
    expect({option, scratch_ / "nowhere/x"}, {"nowhere", "there is no directory"});
    expect({option, "-"}, {"/dev/stdout"});
  }
  spill(scratch_ / "bad.jsonl", "{\"prompt\": 3}\n");
  expect({"--prompt-file", scratch_ / "bad.jsonl"},
         {"bad.jsonl:1: expected an object", "\"prompt\""});
  spill(scratch_ / "deep.jsonl",
        "{\"prompt\": \"a\"}\n{\"prompt\": " + test::nested_json(100000) + "}\n");
  expect({"--prompt-file", scratch_ / "deep.jsonl"},
         {"deep.jsonl:2:75: nested more than 64 levels deep"});
  spill(scratch_ / "beyond.jsonl", "{\"prompt\": \"a\"}\n\n{\"ids\": [1e999]}\n");
  expect({"--prompt-file", scratch_ / "beyond.jsonl"},
         {"beyond.jsonl:3:", "number overflow parsing '1e999'"});
  spill(scratch_ / "empty.txt", "\n\n");
  expect({"--prompt-file", scratch_ / "empty.txt"}, {"empty.txt", "no prompt"});
}

TEST_F(GenerateCli, DamageIsFound) {
  for (const fs::directory_entry& entry : fs::directory_iterator(step())) {
    if (entry.path().filename().string().find("shard") == std::string::npos) continue;
    std::string content = slurp(entry.path());
    content[content.size() / 2] ^= 1;
    spill(entry.path(), content);
  }
  const RunResult result = generate({"--prompt", "the"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("shard"), HasSubstr("expected")));
  EXPECT_THAT(result.out, IsEmpty());
  // A run stands for its newest checkpoint that is whole.
  fs::copy(scratch_ / "run", scratch_ / "two", fs::copy_options::recursive);
  const fs::path checkpoints = scratch_ / "two/checkpoints";
  fs::remove_all(checkpoints / "latest");
  make_checkpoint(scratch_ / "older");
  const fs::path whole = fs::canonical(scratch_ / "older/checkpoints/latest");
  fs::rename(checkpoints / whole.filename(), checkpoints / "step_99999999");
  fs::rename(whole, checkpoints / whole.filename());
  const RunResult older = trireme({"generate", "--checkpoint", scratch_ / "two",
                                   "--prompt", "the", "--max-tokens", "2"});
  EXPECT_EQ(older.status, 0) << older.err;
  EXPECT_THAT(older.err, AllOf(HasSubstr("a newer checkpoint cannot be used"),
                               HasSubstr("step_99999999")));
}

TEST_F(GenerateCli, WithoutATokenizerTokensAreNumbers) {
  make_checkpoint(scratch_ / "bare", {.with_tokenizer = false});
  const auto bare = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"generate", "--checkpoint", scratch_ / "bare"});
    return trireme(arguments);
  };
  const RunResult text = bare({"--prompt", "the"});
  EXPECT_EQ(text.status, 2);
  EXPECT_THAT(text.err, AllOf(HasSubstr("no tokenizer"), HasSubstr("--prompt-ids")));
  const RunResult none = bare({});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("prompt 1 is empty"));
  const RunResult ids = bare({"--prompt-ids", "5,6 7", "--max-tokens", "4", "--greedy"});
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_THAT(ids.out, testing::MatchesRegex("5 6 7 [0-9]+ [0-9]+ [0-9]+ [0-9]+\n"));
}

TEST_F(GenerateCli, AT5MakesATextOfThePrompt) {
  if (!data::has_sentence_piece()) GTEST_SKIP() << "a build without SentencePiece";
  make_t5_checkpoint(scratch_ / "t5");
  const auto t5 = [&](std::vector<std::string> arguments, int ranks = 0) {
    arguments.insert(arguments.begin(), {"generate", "--checkpoint", scratch_ / "t5"});
    return ranks == 0 ? trireme(arguments) : trireme_on_ranks(ranks, arguments);
  };
  const std::string gap = "The <extra_id_0> of it.";
  const std::vector<std::string> several = {"--prompt", gap,    "--prompt",      "It was",
                                            "--seed",   "3",    "--num-samples", "2",
                                            "--format", "jsonl"};
  const RunResult drawn = t5(several);
  ASSERT_EQ(drawn.status, 0) << drawn.err;
  const auto texts = lines(drawn.out);
  ASSERT_EQ(texts.size(), 4u);
  const auto tokenizer = small_t5_tokenizer();
  EXPECT_EQ(texts[0]["prompt_ids"], tokenizer.encode(gap));
  EXPECT_THAT(texts[0]["prompt_ids"].get<std::vector<data::TokenId>>(),
              testing::Contains(tokenizer.vocabulary_size() - 1));
  EXPECT_NE(texts[0]["ids"], texts[1]["ids"]);
  EXPECT_EQ(t5(several, 3).out, drawn.out);

  // A text has a line of its own, below its prompt. It ends with </s>, or is full.
  const RunResult greedy = t5({"--prompt", gap, "--greedy"});
  ASSERT_EQ(greedy.status, 0) << greedy.err;
  EXPECT_THAT(greedy.out, StartsWith(gap + "\n"));
  EXPECT_THAT(greedy.err, testing::Not(HasSubstr("--slide")));
  const RunResult narrow =
      t5({"--prompt", gap, "--greedy", "--set", "precision.compute=bf16"});
  EXPECT_EQ(narrow.status, 0) << narrow.err;

  const auto expect_refusal = [&](const std::vector<std::string>& arguments,
                                  const std::string& message) {
    const RunResult refused = t5(arguments);
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(refused.out, "");
    EXPECT_THAT(refused.err, HasSubstr(message));
  };
  expect_refusal({}, "prompt 1 is empty, and this kind of model makes its texts from");
  std::string long_prompt;
  for (int i = 0; i < 40; ++i) long_prompt += "x ";
  expect_refusal({"--prompt", long_prompt}, "but this model reads 24 at most");
  expect_refusal({"--prompt", gap, "--slide"}, "forgets nothing of them: leave it out");
}

TEST_F(GenerateCli, PaddedVocabularyGivesOnlyTokensOfTheTokenizer) {
  make_checkpoint(scratch_ / "padded", {.vocab = "1000"});
  const RunResult result =
      trireme({"generate", "--checkpoint", scratch_ / "padded", "--prompt", "the",
               "--temperature", "5", "--num-samples", "20", "--format", "jsonl"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const json& text : lines(result.out)) {
    for (const int id : text["ids"]) EXPECT_LT(id, kVocabulary);
  }
}

// Nothing is dropped here: the rate need be none that masks can have.
TEST_F(GenerateCli, ADropoutThatOnlyEarlierVersionsTook) {
  const std::vector<std::string> text = {"--prompt", "the", "--max-tokens", "5"};
  make_checkpoint(scratch_ / "old", {.dropout = 1e-6});
  std::vector<std::string> old = {"generate", "--checkpoint", scratch_ / "old"};
  old.insert(old.end(), text.begin(), text.end());
  const RunResult found = trireme(old);
  EXPECT_EQ(found.status, 0) << found.err;
  EXPECT_EQ(found.out, generate(text).out);
  old.insert(old.end(), {"--set", "precision.compute=bf16"});
  const RunResult narrow = trireme(old);
  EXPECT_EQ(narrow.status, 0) << narrow.err;
}

}  // namespace
}  // namespace trireme::test
