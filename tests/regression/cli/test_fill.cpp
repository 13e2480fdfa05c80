// `trireme fill`: words, spans and probabilities as Hugging Face's logits have them, what
// is shown, and wrong input.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/sentence_piece_library.hpp"
#include "regression/cli/model_uses.hpp"
#include "regression/cli/small_checkpoint.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::size_t kWords = 97;  // of the fixtures
constexpr const char* kNarrow = "precision.compute=bf16";

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
    EXPECT_EQ(words[i].at("ids"), json::array({ids[i]}));
    EXPECT_NEAR(words[i].at("probability").get<double>(), std::exp(logits[ids[i]]) / sum,
                2e-5);
    if (ids[i] < 5) continue;  // special tokens
    EXPECT_EQ(words[i].at("text"), "w" + std::to_string(ids[i]));
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
      const json& masks = results[n].at("gaps");
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

// A text of make_t5_use_fixtures.py with its gaps.
struct Span {
  std::vector<std::int32_t> words;
  double probability = 0.0;
  bool is_cut = false;

  std::string text() const {
    std::string text;
    for (const std::int32_t id : words)
      text += (text.empty() ? "" : " ") + word_of_t5(id);
    return text;
  }
};
struct TextWithSpans {
  std::string text;
  std::vector<std::int32_t> ids;
  std::vector<Span> spans;

  std::string filled() const {
    std::string filled = text;
    for (std::size_t gap = 0; gap < spans.size(); ++gap) {
      const std::string sentinel = word_of_t5(static_cast<std::int32_t>(96 - gap));
      const std::string words = spans[gap].text();
      const std::size_t at = filled.find(sentinel);
      filled.replace(at, sentinel.size(), words);
      if (words.empty() && at > 0) filled.erase(at - 1, 1);  // the blank before it
    }
    return filled.starts_with(' ') ? filled.substr(1) : filled;
  }
};

std::vector<TextWithSpans> texts_with_spans(const std::string& name) {
  const io::SafetensorsReader oracle(
      (hugging_face_fixture(name) / "uses.safetensors").string());
  const auto texts = texts_of(oracle, "source", "lengths", 0, word_of_t5);
  const auto ids = elements<std::int32_t>(oracle.at("source"));
  const auto words = elements<std::int32_t>(oracle.at("words"));
  const auto cut = elements<std::int32_t>(oracle.at("cut"));
  const auto probability = elements<double>(oracle.at("probability"));
  const std::size_t columns = ids.size() / texts.size();
  const std::size_t gaps = cut.size() / texts.size();
  const auto longest = std::ssize(words) / std::ssize(cut);
  std::vector<TextWithSpans> all;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(n * columns);
    all.push_back({texts[n], {begin, begin + static_cast<std::ptrdiff_t>(columns)}, {}});
    for (std::size_t i = n * gaps; i < (n + 1) * gaps && probability[i] > 0.0; ++i) {
      const auto first = words.begin() + static_cast<std::ptrdiff_t>(i) * longest;
      all.back().spans.push_back(
          {{first, std::find(first, first + longest, -1)}, probability[i], cut[i] == 1});
    }
  }
  return all;
}

void expect_spans(const json& result, const TextWithSpans& want) {
  SCOPED_TRACE(want.text);
  EXPECT_EQ(result.at("text"), want.text);
  EXPECT_EQ(result.at("filled"), want.filled());
  const json& gaps = result.at("gaps");
  ASSERT_EQ(gaps.size(), want.spans.size());
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    ASSERT_EQ(gaps[i].at("words").size(), 1u);
    const json& words = gaps[i].at("words").at(0);
    EXPECT_EQ(words.at("ids"), want.spans[i].words);
    EXPECT_EQ(words.at("text"), want.spans[i].text());
    EXPECT_NEAR(words.at("probability").get<double>(), want.spans[i].probability, 2e-5);
    EXPECT_EQ(gaps[i].at("cut"), want.spans[i].is_cut);
    EXPECT_EQ(word_of_t5(want.ids.at(gaps[i].at("position").get<std::size_t>())),
              "<extra_id_" + std::to_string(i) + ">");
  }
}

TEST_F(Fill, SpansAreThoseOfHuggingFacesLogits) {
  for (const std::string name : {"t5_odd", "t5_v11_odd"}) {
    SCOPED_TRACE(name);
    convert_fixture(scratch_, name, tokenizer_of_t5());
    const std::vector<TextWithSpans> texts = texts_with_spans(name);
    std::vector<std::string> arguments = {"fill", scratch_ / name, "--json",
                                          scratch_ / "f.json"};
    std::ptrdiff_t cut = 0, all = 0;
    for (const TextWithSpans& text : texts) {
      arguments.insert(arguments.end(), {"--text", text.text});
      cut += std::ranges::count(text.spans, true, &Span::is_cut);
      all += std::ssize(text.spans);
    }
    const RunResult result = trireme(arguments);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr(fmt::format(
                                "the words for {} of {} gaps are cut off", cut, all)));
    const json results = json::parse(slurp(scratch_ / "f.json")).at("results");
    ASSERT_EQ(results.size(), texts.size());
    for (std::size_t n = 0; n < texts.size(); ++n) expect_spans(results[n], texts[n]);
    EXPECT_EQ(trireme_on_ranks(2, arguments).out, result.out);
  }
}

TEST_F(Fill, ScreenOfSpans) {
  convert_fixture(scratch_, "t5_odd", tokenizer_of_t5());
  const RunResult one = fill(scratch_ / "t5_odd", {"--text", "w5 <extra_id_0> w7"});
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, testing::MatchesRegex("w5 <extra_id_0> w7\n"
                                             "w5.* w7\n"
                                             "    0\\.[0-9]{4}  [^\n]+\n"));
  const RunResult two =
      fill(scratch_ / "t5_odd", {"--text", "<extra_id_0> w5 <extra_id_1>"});
  ASSERT_EQ(two.status, 0) << two.err;
  EXPECT_THAT(two.out, HasSubstr("\n  <extra_id_0>\n    "));
  EXPECT_THAT(two.out, HasSubstr("\n  <extra_id_1>\n    "));
}

// The fixture of which two words have changed places in the table and in the tokenizer,
// padding and another.
void write_t5_with_padding_at(std::size_t id, const fs::path& directory) {
  const fs::path fixture = hugging_face_fixture("t5_odd");
  const io::SafetensorsReader weights(fixture / "model.safetensors");
  const io::SafeTensor& table = weights.at("shared.weight");
  std::vector<std::byte> rows(table.data, table.data + table.bytes);
  const auto bytes = static_cast<std::ptrdiff_t>(rows.size() / kWords);
  const auto other = rows.begin() + static_cast<std::ptrdiff_t>(id) * bytes;
  std::swap_ranges(rows.begin(), rows.begin() + bytes, other);
  io::SafetensorsWriter writer;
  for (const auto& [name, tensor] : weights.tensors()) {
    const bool is_table = name == "shared.weight";
    writer.add(name, tensor.dtype.value(), tensor.shape,
               from_memory(is_table ? rows.data() : tensor.data));
  }
  fs::create_directory(directory);
  writer.write(directory / "model.safetensors");

  json config = json::parse(slurp(fixture / "config.json"));
  config["n_positions"] = 100;
  config["pad_token_id"] = config["decoder_start_token_id"] = id;
  spill(directory / "config.json", config.dump());
  json tokenizer = json::parse(tokenizer_of_t5().at("tokenizer.json"));
  json& words = tokenizer["model"]["vocab"];
  words["<pad>"] = id;
  words[word_of_t5(static_cast<std::int32_t>(id))] = 0;
  for (json& token : tokenizer["added_tokens"]) {
    if (token["content"] == "<pad>") token["id"] = id;
  }
  spill(directory / "tokenizer.json", tokenizer.dump());
}

TEST_F(Fill, TextsBeginWithPaddingWhateverItsIdIs) {
  convert_fixture(scratch_, "t5_odd", tokenizer_of_t5());
  write_t5_with_padding_at(40, scratch_ / "there");
  const RunResult converted =
      trireme({"convert", scratch_ / "there", scratch_ / "moved"});
  ASSERT_EQ(converted.status, 0) << converted.err;
  std::vector<std::string> arguments;
  for (const TextWithSpans& text : texts_with_spans("t5_odd")) {
    arguments.insert(arguments.end(), {"--text", text.text});
  }
  const RunResult moved = fill(scratch_ / "moved", arguments);
  ASSERT_EQ(moved.status, 0) << moved.err;
  EXPECT_EQ(moved.out, fill(scratch_ / "t5_odd", arguments).out);

  const std::vector<std::string> prompt = {
      "--max-tokens", "12", "--temperature", "0", "--prompt", "w5 w6 w7"};
  const auto generate = [&](const char* model) {
    std::vector<std::string> all = {"generate", "--checkpoint", scratch_ / model};
    all.insert(all.end(), prompt.begin(), prompt.end());
    const RunResult result = trireme(all);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(generate("moved"), generate("t5_odd"));
}

// Keys of `data` that a model's are judged by are those that it was trained with.
TEST_F(Fill, InAnotherPrecision) {
  convert_fixture(scratch_, "bert_odd");  // with a head for pairs
  const auto first_word = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--text", "w5 [MASK] w7", "--json", scratch_ / "f.json"});
    const RunResult result = fill(scratch_ / "bert_odd", more);
    EXPECT_EQ(result.status, 0) << result.err;
    const json gap = json::parse(slurp(scratch_ / "f.json")).at("results").at(0);
    return gap.at("gaps").at(0).at("words").at(0).at("probability").get<double>();
  };
  const double wide = first_word({}), narrow = first_word({"--set", kNarrow});
  EXPECT_NE(narrow, wide);
  EXPECT_NEAR(narrow, wide, 0.05 * wide);
}

// What stands around gaps stays as it is, and pieces join it as they say.
TEST_F(Fill, TextAroundSpansIsKept) {
  if (!data::has_sentence_piece()) GTEST_SKIP() << "a build without SentencePiece";
  make_t5_checkpoint(scratch_ / "t5");
  const RunResult result =
      fill(scratch_ / "t5", {"--text", "The   KING of <extra_id_0>,  é <extra_id_1>.",
                             "--json", scratch_ / "f.json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json filled = json::parse(slurp(scratch_ / "f.json")).at("results").at(0);
  EXPECT_THAT(filled.at("filled").get<std::string>(),
              testing::MatchesRegex("The   KING of.*,  é.*\\."));
  EXPECT_THAT(filled.at("filled").get<std::string>(),
              testing::Not(HasSubstr("<extra_id_")));
  const RunResult narrow =
      fill(scratch_ / "t5", {"--text", "The <extra_id_0>.", "--set", kNarrow});
  EXPECT_EQ(narrow.status, 0) << narrow.err;
}

TEST_F(Fill, RefusalsOfSpans) {
  convert_fixture(scratch_, "t5_odd", tokenizer_of_t5());
  const auto expect = [&](const std::string& text, const std::vector<std::string>& parts,
                          std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--text", text});
    expect_refusal(fill(scratch_ / "t5_odd", more), parts);
  };
  expect("w5 [MASK] w6", {"has no <extra_id_0>", "\"the <extra_id_0> of God\""});
  expect("w5 <extra_id_1> w6", {"has <extra_id_1> where <extra_id_0> is to be"});
  expect("<extra_id_0> w5 <extra_id_0>",
         {"has <extra_id_0> where <extra_id_1> is to be"});
  expect("<extra_id_0> <extra_id_2> <extra_id_1>",
         {"has <extra_id_2> where <extra_id_1> is to be", "number the gaps"});
  std::string many, text = "<extra_id_0>";
  for (int i = 0; i < 22; ++i) many += "<extra_id_" + std::to_string(i) + "> w5 ";
  expect(many, {"has 22 gaps", "fills 21 at most", "40 sentinels", "writes 22 tokens"});
  for (int i = 0; i < 100; ++i) text += " w9";
  expect(text, {"102 tokens with </s>", "100 at most", "by 2"});
  expect("<extra_id_0>", {"--top 3", "kind t5", "leave --top out"}, {"--top", "3"});
  EXPECT_EQ(fill(scratch_ / "t5_odd", {"--text", "<extra_id_0>", "--top", "1"}).status,
            0);

  TextFiles without = tokenizer_of_t5();
  json tokenizer = json::parse(without.at("tokenizer.json"));
  for (json& token : tokenizer["added_tokens"]) {
    if (token["id"] == 96) token["content"] = "<extra_id_x>";
  }
  without["tokenizer.json"] = tokenizer.dump();
  convert_fixture(scratch_, "t5_v11_odd", without);
  expect_refusal(fill(scratch_ / "t5_v11_odd", {"--text", "<extra_id_0>"}),
                 {"has no sentinels, <extra_id_0> and so on", "its own tokenizer"});
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
