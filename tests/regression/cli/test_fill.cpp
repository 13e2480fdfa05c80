// `trireme fill`: words and probabilities as Hugging Face's logits have them, what is
// shown, and wrong input.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "regression/cli/bert_uses.hpp"
#include "regression/cli/small_checkpoint.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::size_t kWords = 97;  // of the fixtures

class Fill : public Workplace {
 protected:
  RunResult fill(const fs::path& model, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"fill", model});
    return trireme(arguments);
  }
};

void expect_words(const json& words, const double* logits) {
  std::vector<std::size_t> ids(kWords);
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  std::ranges::sort(ids, [&](auto a, auto b) { return logits[a] > logits[b]; });
  double sum = 0.0;
  for (const std::size_t id : ids) sum += std::exp(logits[id]);
  for (std::size_t i = 0; i < words.size(); ++i) {
    EXPECT_EQ(words[i].at("id"), ids[i]);
    EXPECT_NEAR(words[i].at("probability").get<double>(), std::exp(logits[ids[i]]) / sum,
                2e-5);
    if (ids[i] < 5) continue;  // special tokens
    EXPECT_EQ(words[i].at("word"), "w" + std::to_string(ids[i]));
  }
}

TEST_F(Fill, AsHuggingFaceHasThem) {
  for (const std::string name : {"bert_odd", "bert_pre_odd"}) {
    SCOPED_TRACE(name);
    convert_fixture(scratch_, name);
    const io::SafetensorsReader oracle(
        (hugging_face_fixture(name) / "uses.safetensors").string());
    const auto logits = elements<double>(oracle.at("logits"));
    const auto ids = elements<std::int32_t>(oracle.at("masked"));
    std::vector<std::string> arguments = {"--top", "7", "--json", scratch_ / "f.json"};
    const auto texts = texts_of(oracle, "masked", "masked_lengths");
    for (const std::string& text : texts) {
      arguments.insert(arguments.end(), {"--text", text});
    }
    const RunResult result = fill(scratch_ / name, arguments);
    ASSERT_EQ(result.status, 0) << result.err;
    const json results = json::parse(slurp(scratch_ / "f.json")).at("results");
    ASSERT_EQ(results.size(), texts.size());
    const std::size_t columns = ids.size() / texts.size();
    for (std::size_t n = 0; n < texts.size(); ++n) {
      SCOPED_TRACE(texts[n]);
      EXPECT_EQ(results[n].at("text"), texts[n]);
      const json& masks = results[n].at("masks");
      std::size_t next = 0;
      for (std::size_t i = 0; i < columns; ++i) {
        if (ids[n * columns + i] != 4) continue;
        ASSERT_LT(next, masks.size());
        EXPECT_EQ(masks[next].at("position"), i);
        EXPECT_EQ(masks[next].at("words").size(), 7u);
        expect_words(masks[next++].at("words"), &logits[(n * columns + i) * kWords]);
      }
      EXPECT_EQ(next, masks.size());
    }
  }
}

TEST_F(Fill, Screen) {
  convert_fixture(scratch_, "bert_odd");
  const RunResult one =
      fill(scratch_ / "bert_odd", {"--text", "w5 [MASK] w7", "--top", "2"});
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, testing::MatchesRegex("w5 \\[MASK\\] w7\n"
                                             "    0\\.[0-9]{4}  [^ ]+\n"
                                             "    0\\.[0-9]{4}  [^ ]+\n"));
  const RunResult two =
      fill(scratch_ / "bert_odd", {"--text", "[MASK] [MASK]", "--top", "1"});
  ASSERT_EQ(two.status, 0) << two.err;
  EXPECT_THAT(two.out, HasSubstr("\n  mask 1 of 2\n"));
  EXPECT_THAT(two.out, HasSubstr("\n  mask 2 of 2\n"));
}

TEST_F(Fill, Refusals) {
  convert_fixture(scratch_, "bert_odd");
  make_checkpoint(scratch_ / "gpt");
  expect_refusal(fill(scratch_ / "gpt", {"--text", "[MASK]"}),
                 {"of kind gpt", "trireme fill"});
  expect_refusal(fill(scratch_ / "bert_odd", {"--text", "w5 w6"}), {"has no [MASK]"});
  std::string text = "[MASK]";
  for (int i = 0; i < 15; ++i) text += " w9";
  expect_refusal(fill(scratch_ / "bert_odd", {"--text", text}),
                 {"18 tokens", "17 at most", "by 1"});
  expect_refusal(fill(scratch_ / "bert_odd", {}), {"--text"});
  expect_refusal(fill(scratch_ / "bert_odd", {"--text", "[MASK]", "--top", "0"}),
                 {"--top"});
}

}  // namespace
}  // namespace trireme::test
