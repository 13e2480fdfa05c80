// `trireme embed`: vectors of texts as Hugging Face's models have them, the same whatever
// the number of ranks, and wrong input.
#include <cmath>

#include "io/hdf5.hpp"
#include "regression/cli/model_uses.hpp"
#include "regression/cli/small_checkpoint.hpp"
#include "support/minilm.hpp"

namespace trireme::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kHidden = 30;  // of the fixtures
constexpr int kSequence = 17;

class Embed : public Workplace {
 protected:
  RunResult embed(const fs::path& model, std::vector<std::string> arguments,
                  int ranks = 0) const {
    arguments.insert(arguments.begin(), {"embed", model});
    return ranks == 0 ? trireme(arguments) : trireme_on_ranks(ranks, arguments);
  }
  fs::path write_lines(const std::string& name,
                       const std::vector<std::string>& texts) const {
    std::string all;
    for (const std::string& text : texts) all += text + "\n";
    spill(scratch_ / name, all);
    return scratch_ / name;
  }
  static std::vector<float> vectors_in(const fs::path& file) {
    return io::H5File::open(file).dataset("embeddings").read<float>();
  }
  // The largest difference, beside the largest number.
  static double distance(const std::vector<float>& got, const std::vector<double>& want) {
    EXPECT_EQ(got.size(), want.size());
    double most = 0.0, largest = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(got[i]) - want.at(i)));
      largest = std::max(largest, std::abs(want[i]));
    }
    return most / largest;
  }
};

TEST_F(Embed, AsHuggingFaceHasThem) {
  for (const std::string name : {"bert_odd", "bert_pre_odd"}) {
    SCOPED_TRACE(name);
    convert_fixture(scratch_, name);
    const io::SafetensorsReader oracle(
        (hugging_face_fixture(name) / "uses.safetensors").string());
    const fs::path lines =
        write_lines(name + ".txt", texts_of(oracle, "tokens", "lengths"));
    for (const auto& [pool, tensor] :
         {std::pair{"mean", "mean"}, std::pair{"cls", "first"}}) {
      SCOPED_TRACE(pool);
      const fs::path out = scratch_ / (name + pool + ".h5");
      const RunResult result =
          embed(scratch_ / name, {"--text", lines, "--pool", pool, "--out", out});
      ASSERT_EQ(result.status, 0) << result.err;
      EXPECT_THAT(result.err, Not(HasSubstr("warning")));
      EXPECT_LT(distance(vectors_in(out), elements<double>(oracle.at(tensor))), 2e-5);
      const io::H5File file = io::H5File::open(out);
      EXPECT_EQ(file.dataset("tokens").read<std::int32_t>(),
                elements<std::int32_t>(oracle.at("lengths")));
      EXPECT_EQ(file.attribute<std::string>("pool"), pool);
      EXPECT_EQ(file.attribute<std::int64_t>("normalize"), 0);
      EXPECT_THAT(file.attribute<std::string>("model"), HasSubstr(name));
      EXPECT_THAT(file.attribute<std::string>("tokenizer"), HasSubstr("WordPiece"));
    }
  }
}

// A model that somebody has trained, with its own tokenizer: vectors of texts by the
// program are those of the hidden states that Hugging Face's has.
TEST_F(Embed, OfATrainedModel) {
  if (minilm_directory().empty()) GTEST_SKIP() << kNoMiniLm;
  const RunResult converted =
      trireme({"convert", minilm_directory(), scratch_ / "minilm"});
  ASSERT_EQ(converted.status, 0) << converted.err;
  const io::SafetensorsReader oracle(minilm_fixture("oracle.safetensors").string());
  const auto lengths = elements<std::int32_t>(oracle.at("lengths"));
  const auto hidden = elements<float>(oracle.at("hidden"));
  const auto columns = static_cast<std::size_t>(oracle.at("hidden").shape[1]);
  std::vector<double> mean, first;
  std::size_t row = 0;
  for (const std::int32_t length : lengths) {
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0.0;
      for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) {
        sum += static_cast<double>(hidden[(row + i) * columns + j]);
      }
      mean.push_back(sum / length);
      first.push_back(static_cast<double>(hidden[row * columns + j]));
    }
    row += static_cast<std::size_t>(length);
  }
  for (const auto& [pool, want] : {std::pair{"mean", mean}, std::pair{"cls", first}}) {
    SCOPED_TRACE(pool);
    const fs::path out = scratch_ / (std::string(pool) + ".h5");
    const RunResult result =
        embed(scratch_ / "minilm",
              {"--text", minilm_fixture("texts.txt"), "--pool", pool, "--out", out});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_LT(distance(vectors_in(out), want), 2e-5);
    EXPECT_EQ(io::H5File::open(out).dataset("tokens").read<std::int32_t>(), lengths);
  }
}

TEST_F(Embed, InAnotherPrecision) {
  convert_fixture(scratch_, "bert_odd");  // with a head for pairs
  const fs::path lines = write_lines("t.txt", {"w5 w6", "w7 w8 w9"});
  const auto vectors = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--text", lines, "--out", scratch_ / "v.h5",
                                    "--overwrite"};
    all.insert(all.end(), more.begin(), more.end());
    const RunResult result = embed(scratch_ / "bert_odd", all);
    EXPECT_EQ(result.status, 0) << result.err;
    return vectors_in(scratch_ / "v.h5");
  };
  const std::vector<float> wide = vectors({});
  const std::vector<float> narrow = vectors({"--set", "precision.compute=bf16"});
  EXPECT_NE(narrow, wide);
  EXPECT_LT(distance(narrow, {wide.begin(), wide.end()}), 0.05);
}

TEST_F(Embed, LengthOne) {
  convert_fixture(scratch_, "bert_odd");
  const fs::path lines = write_lines("t.txt", {"w5 w6", "w7 w8 w9", "w10"});
  ASSERT_EQ(
      embed(scratch_ / "bert_odd", {"--text", lines, "--out", scratch_ / "a.h5"}).status,
      0);
  ASSERT_EQ(embed(scratch_ / "bert_odd",
                  {"--text", lines, "--out", scratch_ / "b.h5", "--normalize"})
                .status,
            0);
  const std::vector<float> plain = vectors_in(scratch_ / "a.h5");
  const std::vector<float> unit = vectors_in(scratch_ / "b.h5");
  std::vector<double> want;
  for (std::size_t text = 0; text < 3; ++text) {
    double squares = 0.0;
    for (std::size_t j = 0; j < kHidden; ++j) {
      squares += std::pow(static_cast<double>(plain.at(text * kHidden + j)), 2);
    }
    EXPECT_GT(std::abs(squares - 1.0), 0.01);
    for (std::size_t j = 0; j < kHidden; ++j) {
      want.push_back(static_cast<double>(plain[text * kHidden + j]) / std::sqrt(squares));
    }
  }
  EXPECT_LT(distance(unit, want), 1e-6);
}

// More texts than a window, of which the last is not full.
TEST_F(Embed, SameFileWhateverTheRanks) {
  convert_fixture(scratch_, "bert_pre_odd");
  std::vector<std::string> texts;
  for (int i = 0; i < 1100; ++i) {
    std::string text = "w" + std::to_string(5 + i % 92);
    for (int j = 0; j < i * 7 % 13; ++j) text += " w" + std::to_string(5 + (i + j) % 92);
    texts.push_back(text);
  }
  const fs::path lines = write_lines("many.txt", texts);
  std::string first;
  for (const int ranks : {1, 2}) {
    const fs::path out = scratch_ / (std::to_string(ranks) + ".h5");
    const RunResult result =
        embed(scratch_ / "bert_pre_odd", {"--text", lines, "--out", out}, ranks);
    ASSERT_EQ(result.status, 0) << result.err;
    if (first.empty()) first = slurp(out);
    EXPECT_EQ(slurp(out) == first, true) << ranks;
  }
  // In the order of the file: the last text alone has the same vector, but for rounding.
  const fs::path last = write_lines("last.txt", {texts.back()});
  ASSERT_EQ(
      embed(scratch_ / "bert_pre_odd", {"--text", last, "--out", scratch_ / "last.h5"})
          .status,
      0);
  const std::vector<float> all = vectors_in(scratch_ / "1.h5");
  const std::vector<double> tail(all.end() - kHidden, all.end());
  EXPECT_LT(distance(vectors_in(scratch_ / "last.h5"), tail), 2e-6);
}

TEST_F(Embed, LongTextsAreCut) {
  convert_fixture(scratch_, "bert_odd");
  std::string whole = "w9";
  for (int i = 0; i < kSequence - 3; ++i) whole += " w" + std::to_string(20 + i);
  const fs::path lines = write_lines("long.txt", {whole, whole + " w5 w6", "w5"});
  const RunResult result =
      embed(scratch_ / "bert_odd", {"--text", lines, "--out", scratch_ / "o.h5"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("1 of 3 texts are longer than the model's 17 tokens"));
  const io::H5File file = io::H5File::open(scratch_ / "o.h5");
  EXPECT_EQ(file.dataset("tokens").read<std::int32_t>(),
            (std::vector<std::int32_t>{kSequence, kSequence, 3}));
  EXPECT_EQ(file.attribute<std::int64_t>("cut_texts"), 1);
  const std::vector<float> vectors = vectors_in(scratch_ / "o.h5");
  for (std::size_t j = 0; j < kHidden; ++j) {
    EXPECT_EQ(vectors.at(j), vectors.at(kHidden + j));
  }
}

TEST_F(Embed, JsonLinesAndBlankLines) {
  convert_fixture(scratch_, "bert_odd");
  const fs::path lines = write_lines("t.txt", {"w5 w6", "", "w7", "  "});
  const fs::path json =
      write_lines("t.jsonl", {R"({"id": 1, "body": "w5 w6"})", R"({"body": "w7"})"});
  const RunResult of_lines =
      embed(scratch_ / "bert_odd", {"--text", lines, "--out", scratch_ / "a.h5"});
  ASSERT_EQ(of_lines.status, 0) << of_lines.err;
  EXPECT_THAT(of_lines.err + of_lines.out, HasSubstr("2 blank lines left out"));
  EXPECT_EQ(io::H5File::open(scratch_ / "a.h5").dataset("offsets").read<std::int64_t>(),
            (std::vector<std::int64_t>{0, 7}));
  const RunResult of_json =
      embed(scratch_ / "bert_odd",
            {"--jsonl", json, "--key", "body", "--out", scratch_ / "b.h5"});
  ASSERT_EQ(of_json.status, 0) << of_json.err;
  EXPECT_EQ(vectors_in(scratch_ / "a.h5"), vectors_in(scratch_ / "b.h5"));
  expect_refusal(
      embed(scratch_ / "bert_odd", {"--jsonl", json, "--out", scratch_ / "c.h5"}),
      {"t.jsonl:1", "\"text\"", "--key"});
  EXPECT_FALSE(fs::exists(scratch_ / "c.h5"));
}

// What the refusal advises helps.
TEST_F(Embed, WithoutATokenizer) {
  const fs::path theirs = scratch_ / "theirs", lines = write_lines("t.txt", {"w5 w6"});
  fs::create_directory(theirs);
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy(hugging_face_fixture("bert_odd") / file, theirs / file);
  }
  const auto embedded = [&](const char* name) {
    const RunResult made = trireme({"convert", theirs, scratch_ / name});
    EXPECT_EQ(made.status, 0) << made.err;
    return embed(scratch_ / name, {"--text", lines, "--out", scratch_ / "o.h5"});
  };
  expect_refusal(embedded("bare"),
                 {"bare", "no tokenizer", "vocab.txt", "beside the weights",
                  "convert that directory again"});
  spill(theirs / "vocab.txt", tokenizer_of_bert().at("vocab.txt"));
  // Not by an option.
  expect_refusal(
      trireme({"convert", theirs, scratch_ / "x", "--tokenizer", theirs / "vocab.txt"}),
      {"--tokenizer is for Megatron datasets", "lie beside its weights"});
  const RunResult result = embedded("whole");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(vectors_in(scratch_ / "o.h5").size(), kHidden);
}

TEST_F(Embed, Refusals) {
  convert_fixture(scratch_, "bert_odd");
  const fs::path lines = write_lines("t.txt", {"w5"});
  const fs::path out = scratch_ / "o.h5";
  const auto of_model = [&](const fs::path& model) {
    return embed(model, {"--text", lines, "--out", out});
  };
  make_checkpoint(scratch_ / "gpt");
  expect_refusal(of_model(scratch_ / "gpt"), {"of kind gpt", "trireme embed"});
  expect_refusal(of_model(scratch_ / "none"), {"none"});
  expect_refusal(embed(scratch_ / "bert_odd", {"--out", out}), {"--text", "--jsonl"});
  expect_refusal(embed(scratch_ / "bert_odd", {"--text", scratch_ / "no", "--out", out}),
                 {"no"});
  expect_refusal(embed(scratch_ / "bert_odd",
                       {"--text", write_lines("blank.txt", {"", " "}), "--out", out}),
                 {"has no text"});
  expect_refusal(embed(scratch_ / "bert_odd", {"--text", lines, "--out", lines}),
                 {"t.txt"});
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(Embed, ReplacesItsOwnVectorsAlone) {
  convert_fixture(scratch_, "bert_odd");
  const fs::path model = scratch_ / "bert_odd", out = scratch_ / "o.h5";
  const fs::path first = write_lines("a.txt", {"w5"});
  const fs::path second = write_lines("b.txt", {"w6", "w7"});
  ASSERT_EQ(embed(model, {"--text", first, "--out", out, "--overwrite"}).status, 0);
  const std::string before = slurp(out);
  expect_refusal(embed(model, {"--text", second, "--out", out}),
                 {"exists already", "give --overwrite"});
  EXPECT_TRUE(slurp(out) == before);
  ASSERT_EQ(embed(model, {"--text", second, "--out", out, "--overwrite"}).status, 0);
  EXPECT_EQ(vectors_in(out).size(), 2 * kHidden);

  // A corpus, a part of a checkpoint, a file of somebody else, a text.
  const fs::path copy = scratch_ / "corpus.h5", foreign = scratch_ / "foreign.h5";
  fs::copy_file(corpus(), copy);
  io::H5File file = io::H5File::create(foreign);
  for (const char* name : {"embeddings", "offsets", "tokens"}) {
    file.make_dataset(name, DType::int64, {1}).write(std::vector<std::int64_t>{1});
  }
  file.close();
  make_checkpoint(scratch_ / "gpt");
  const fs::path index = scratch_ / "gpt/checkpoints/latest/index.h5";
  for (const fs::path& other : {copy, foreign, index, first}) {
    SCOPED_TRACE(other);
    const std::string content = slurp(other);
    ASSERT_FALSE(content.empty());
    expect_refusal(embed(model, {"--text", second, "--out", other, "--overwrite"}),
                   {other.filename(), "is no file of vectors", "remove it yourself"});
    EXPECT_TRUE(slurp(other) == content);
  }
}

}  // namespace
}  // namespace trireme::test
