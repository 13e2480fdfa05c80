// `trireme convert` between Hugging Face's models and checkpoints: GPT-2 there and back
// bit by bit, and everything that such a directory can have wrong with it; T5 with its
// tokenizer.
#include <cmath>
#include <nlohmann/json.hpp>

#include "regression/cli/safetensors_text.hpp"
#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Convert : public Workplace {
 protected:
  Convert() {
    fs::create_directories(scratch_ / "hf");
    fs::create_directories(scratch_ / "out");
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(hugging_face_fixture("gpt2_tiny") / name, scratch_ / "hf" / name);
    }
    tensors_ = read_safetensors(weights());
  }
  fs::path weights() const { return scratch_ / "hf/model.safetensors"; }

  RunResult convert(const fs::path& in, const fs::path& out,
                    const std::vector<std::string>& options = {}) const {
    std::vector<std::string> arguments = {"convert", in, out};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return trireme(arguments);
  }
  // hf to a checkpoint and back: what came back.
  TensorTexts there_and_back() {
    for (const char* name : {"there", "back"}) fs::remove_all(scratch_ / name);
    const RunResult there = convert(scratch_ / "hf", scratch_ / "there");
    EXPECT_EQ(there.status, 0) << there.err;
    err_ = there.err;
    const RunResult back = convert(scratch_ / "there", scratch_ / "back");
    EXPECT_EQ(back.status, 0) << back.err;
    return read_safetensors(scratch_ / "back/model.safetensors");
  }
  void set_config(const std::string& key, const json& value) const {
    json config = json::parse(slurp(scratch_ / "hf/config.json"));
    config[key] = value;
    spill(scratch_ / "hf/config.json", config.dump());
  }
  // hf cannot be converted, and nothing is made of it.
  void expect_refused(const std::vector<std::string>& parts) const {
    expect_refusal(convert(scratch_ / "hf", scratch_ / "out/made"), parts);
    EXPECT_THAT(tree(scratch_ / "out"), IsEmpty());
  }
  TensorTexts tensors_;
  std::string err_;
};

TEST_F(Convert, ThereAndBackBitByBit) {
  for (const char* name : {"gpt2_tiny", "gpt2_odd"}) {
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(hugging_face_fixture(name) / file, scratch_ / "hf" / file,
                    fs::copy_options::overwrite_existing);
    }
    EXPECT_EQ(there_and_back(), read_safetensors(weights())) << name;
    const json before = json::parse(slurp(scratch_ / "hf/config.json"));
    const json after = json::parse(slurp(scratch_ / "back/config.json"));
    for (const char* key :
         {"model_type", "architectures", "vocab_size", "n_positions", "n_embd", "n_layer",
          "n_head", "n_inner", "activation_function", "layer_norm_epsilon", "resid_pdrop",
          "attn_pdrop", "embd_pdrop", "initializer_range", "eos_token_id", "bos_token_id",
          "tie_word_embeddings", "scale_attn_weights"}) {
      EXPECT_EQ(after[key], before[key]) << name << ": " << key;
    }
    EXPECT_EQ(trireme({"inspect", scratch_ / "there", "--verify"}).status, 0);
  }
}

TEST_F(Convert, LeftoversOfKilledCallsGo) {
  const std::string script =
      "left=\"$1/.there.tmp-$(hostname)-$(sh -c 'echo $$')-0123456789abcdef\"\n"
      "mkdir \"$left\" && echo half > \"$left/shard_00000.h5\"\n"
      "exec \"$0\" convert \"$1/hf\" \"$1/there/\"";
  const RunResult result = run(
      {"/bin/sh", "-c", script, std::getenv("TRIREME_BINARY"), scratch_.path().string()});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("removed '"));
  EXPECT_THAT(result.err, HasSubstr("killed process"));
  for (const auto& entry : fs::directory_iterator(scratch_.path())) {
    EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos);
  }
}

TEST_F(Convert, GeneratesFromWhatWasConverted) {
  ASSERT_EQ(convert(scratch_ / "hf", scratch_ / "there").status, 0);
  const RunResult result =
      trireme({"generate", "--checkpoint", scratch_ / "there", "--prompt-ids", "1 2 3",
               "--greedy", "--max-tokens", "5", "--format", "jsonl"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(json::parse(result.out)["ids"].empty());
  // It has no tokenizer, so that text is none.
  expect_refusal(
      trireme({"generate", "--checkpoint", scratch_ / "there", "--prompt", "x"}),
      {"no tokenizer", "--prompt-ids"});
}

TEST_F(Convert, PrefixMayBeMissing) {
  TensorTexts bare;
  for (const auto& [name, tensor] : tensors_) {
    ASSERT_TRUE(name.starts_with("transformer.")) << name;
    bare[name.substr(12)] = tensor;
  }
  write_safetensors(weights(), bare);
  EXPECT_EQ(there_and_back(), tensors_);
}

// fp32 holds every bf16 and fp16 value: what comes back is the same number.
TEST_F(Convert, HalfPrecision) {
  TensorTexts stored = tensors_, expected = tensors_;
  for (auto& [name, tensor] : stored) {
    tensor.dtype = "BF16";
    tensor.bytes = mapped<std::uint32_t, std::uint16_t>(
        tensor.bytes, [](std::uint32_t bits) { return bits >> 16; });
    expected[name].bytes = mapped<std::uint16_t, std::uint32_t>(
        tensor.bytes, [](std::uint32_t bits) { return bits << 16; });
  }
  write_safetensors(weights(), stored);
  EXPECT_EQ(there_and_back(), expected);

  // Every finite fp16 number there is, those near zero too.
  unsigned next = 0;
  for (auto& [name, tensor] : stored) {
    tensor.dtype = "F16";
    tensor.bytes = mapped<std::uint16_t, std::uint16_t>(tensor.bytes, [&](std::uint16_t) {
      next = (next + 1) % 0xfc00;
      return static_cast<std::uint16_t>((next & 0x7c00) == 0x7c00 ? 0 : next);
    });
    expected[name].bytes =
        mapped<std::uint16_t, float>(tensor.bytes, [](std::uint16_t bits) {
          const int exponent = bits >> 10 & 31, fraction = bits & 1023;
          const double size = exponent == 0 ? std::ldexp(fraction, -24)
                                            : std::ldexp(1024 + fraction, exponent - 25);
          return static_cast<float>(bits & 0x8000 ? -size : size);
        });
  }
  write_safetensors(weights(), stored);
  EXPECT_EQ(there_and_back(), expected);
}

TEST_F(Convert, SeveralFiles) {
  TensorTexts first, second;
  json map;
  for (const auto& [name, tensor] : tensors_) {
    const bool is_first = first.size() <= second.size();
    (is_first ? first : second)[name] = tensor;
    map[name] = is_first ? "model-1.safetensors" : "model-2.safetensors";
  }
  write_safetensors(scratch_ / "hf/model-1.safetensors", first);
  write_safetensors(scratch_ / "hf/model-2.safetensors", second);
  fs::remove(weights());
  spill(scratch_ / "hf/model.safetensors.index.json", json{{"weight_map", map}}.dump());
  EXPECT_EQ(there_and_back(), tensors_);
  fs::remove(scratch_ / "hf/model-2.safetensors");
  expect_refused({"names 2 files", "'model-2.safetensors'", "the whole model"});
}

TEST_F(Convert, IntoSeveralFiles) {
  ASSERT_EQ(convert(scratch_ / "hf", scratch_ / "there").status, 0);
  const RunResult result =
      convert(scratch_ / "there", scratch_ / "back",
              {"--max-shard-size", "64KB", "--json", scratch_ / "made.json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json made = json::parse(slurp(scratch_ / "made.json"));
  const auto files = made["files"].get<int>();
  EXPECT_GE(files, 7);
  EXPECT_THAT(result.out,
              HasSubstr("in 40 tensors and " + std::to_string(files) + " files"));
  const json index = json::parse(slurp(scratch_ / "back/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], made["parameters"].get<int>() * 4);
  TensorTexts together;
  for (const auto& [name, file] : index["weight_map"].items()) {
    together[name] = read_safetensors(scratch_ / "back" / file.get<std::string>())[name];
  }
  EXPECT_EQ(together, tensors_);
  // And to a checkpoint again, and to one file.
  ASSERT_EQ(convert(scratch_ / "back", scratch_ / "again").status, 0);
  ASSERT_EQ(convert(scratch_ / "again", scratch_ / "one").status, 0);
  EXPECT_EQ(read_safetensors(scratch_ / "one/model.safetensors"), tensors_);
}

TEST_F(Convert, SizesOfFilesThatAreNone) {
  ASSERT_EQ(convert(scratch_ / "hf", scratch_ / "there").status, 0);
  for (const char* size : {"5", "GB", "0GB", "-1GB", "5XB", "1.5GB", "5 5GB",
                           "99999999999999999999GB", "20000000TB"}) {
    expect_refusal(convert(scratch_ / "there", scratch_ / "out/made",
                           {std::string("--max-shard-size=") + size}),
                   {"--max-shard-size", "5GB"});
  }
  expect_refusal(
      convert(scratch_ / "hf", scratch_ / "out/made", {"--max-shard-size", "5GB"}),
      {"--max-shard-size is for what a checkpoint is converted to", "leave it out"});
  EXPECT_THAT(tree(scratch_ / "out"), IsEmpty());
  EXPECT_EQ(
      convert(scratch_ / "there", scratch_ / "out/made", {"--max-shard-size", "1 gib"})
          .status,
      0);
}

TEST_F(Convert, IndexesThatLie) {
  const auto spill_index = [&](const json& map) {
    spill(scratch_ / "hf/model.safetensors.index.json", json{{"weight_map", map}}.dump());
  };
  fs::rename(weights(), scratch_ / "hf/model-1.safetensors");
  json map;
  for (const auto& [name, tensor] : tensors_) map[name] = "model-1.safetensors";
  spill_index(map);
  EXPECT_EQ(there_and_back(), tensors_);
  json other = map;
  other["transformer.wte.weight"] = (scratch_ / "hf/model-1.safetensors").string();
  spill_index(other);
  expect_refused({"index.json", "transformer.wte.weight", "in the same directory"});
  other["transformer.wte.weight"] = "../hf/model-1.safetensors";
  spill_index(other);
  expect_refused({"index.json", "../hf/model-1", "in the same directory"});
  other = map;
  other["transformer.wte.bias"] = "model-1.safetensors";
  spill_index(other);
  expect_refused({"'transformer.wte.bias'", "does not hold it", "as one program wrote"});
  spill_index(map);
  fs::copy_file(scratch_ / "hf/model-1.safetensors", scratch_ / "hf/model-2.safetensors");
  map["transformer.wte.weight"] = "model-2.safetensors";
  spill_index(map);
  expect_refused({"model-2.safetensors", "is in 'model-1.safetensors' too"});
}

TEST_F(Convert, TiedHeadMayBeStored) {
  TensorTexts stored = tensors_;
  stored["lm_head.weight"] = tensors_["transformer.wte.weight"];
  write_safetensors(weights(), stored);
  EXPECT_EQ(there_and_back(), tensors_);
  // safetensors' save_model() keeps one of the names of what is tied, whichever.
  stored.erase("transformer.wte.weight");
  write_safetensors(weights(), stored);
  EXPECT_EQ(there_and_back(), tensors_);
  stored["transformer.wte.weight"] = tensors_["transformer.wte.weight"];
  stored["lm_head.weight"].bytes[5] ^= 1;
  write_safetensors(weights(), stored);
  expect_refused({"not equal, while Trireme ties them",
                  "lm_head.weight (211, 48) and transformer.wte.weight (211, 48)"});
}

TEST_F(Convert, TensorsThatAreNotTheModels) {
  TensorTexts stored = tensors_;
  stored.erase("transformer.h.1.mlp.c_fc.bias");
  stored.erase("transformer.ln_f.weight");
  stored["transformer.h.3.ln_1.weight"] = tensors_["transformer.h.0.ln_1.weight"];
  TensorText& wrong = stored["transformer.h.0.attn.c_attn.weight"];
  std::swap(wrong.shape[0], wrong.shape[1]);
  write_safetensors(weights(), stored);
  expect_refused({"hf", "config.json", "3 layers, hidden 48", "missing (2)",
                  "h.1.mlp.c_fc.bias (192)", "ln_f.weight (48)", "wrong (1)",
                  "h.0.attn.c_attn.weight: expected (48, 144), found (144, 48)",
                  "not part of the model (1)", "h.3.ln_1.weight (48)"});
  // The other side of it: a config.json of another model.
  write_safetensors(weights(), tensors_);
  set_config("n_layer", 4);
  expect_refused({"4 layers", "missing (12)"});
}

TEST_F(Convert, DamagedWeights) {
  const std::string whole = slurp(weights());
  for (const std::size_t size : {whole.size() - 1, whole.size() / 2, std::size_t{500},
                                 std::size_t{9}, std::size_t{3}, std::size_t{0}}) {
    spill(weights(), whole.substr(0, size));
    expect_refused({"model.safetensors", size > 9 * 1000 ? "truncated" : "file"});
  }
  spill(weights(), "version https://git-lfs.github.com/spec/v1\noid sha256:12\n");
  expect_refused({"model.safetensors", "not a safetensors file"});
  fs::remove(weights());
  expect_refused({"hf", "neither model.safetensors nor"});
  spill(scratch_ / "hf/pytorch_model.bin", "pickle");
  expect_refused({"pytorch_model.bin", "safe_serialization"});
}

TEST_F(Convert, NumbersThatAreNone) {
  TensorTexts stored = tensors_;
  TensorText& bias = stored["transformer.h.1.mlp.c_fc.bias"];
  ASSERT_EQ(bias.dtype, "F32");
  const float bad[] = {std::nanf(""), INFINITY};
  std::memcpy(bias.bytes.data() + 7 * sizeof(float), bad, sizeof bad);
  write_safetensors(weights(), stored);
  expect_refused({"model.safetensors", "2 numbers of 'transformer.h.1.mlp.c_fc.bias' are",
                  "the first is nan at (7)"});
}

// More layers than there are names for: no memory is asked for them.
TEST_F(Convert, ImpossiblyManyLayers) {
  set_config("n_layer", 2147483647);
  expect_refused({"hf", "says 2,147,483,647 layers", "tensors in all"});
}

TEST_F(Convert, ConfigThatIsNotGpt2s) {
  const std::string config = slurp(scratch_ / "hf/config.json");
  set_config("model_type", "llama");
  expect_refused({"config.json", "model_type", "llama", "gpt2"});
  spill(scratch_ / "hf/config.json", config);
  set_config("activation_function", "relu");
  set_config("n_head", 5);
  set_config("layer_norm_epsilon", 1e-6);
  expect_refused({"activation_function", "relu", "gelu_new", "n_head", "5 heads", "48",
                  "layer_norm_epsilon", "1e-06"});
  spill(scratch_ / "hf/config.json", config.substr(0, 100));
  expect_refused({"config.json:5:8: not valid JSON"});
}

TEST_F(Convert, EndOfTextOutsideTheVocabulary) {
  set_config("eos_token_id", 50256);
  const TensorTexts back = there_and_back();
  EXPECT_EQ(back, tensors_);
  EXPECT_THAT(err_, HasSubstr("warning"));
  EXPECT_THAT(err_,
              HasSubstr("eos_token_id 50256 is no id of the vocabulary (0 to 210)"));
  EXPECT_TRUE(
      json::parse(slurp(scratch_ / "back/config.json"))["eos_token_id"].is_null());
  EXPECT_EQ(trireme({"generate", "--checkpoint", scratch_ / "there", "--prompt-ids", "1",
                     "--max-tokens", "3"})
                .status,
            0);
}

TEST_F(Convert, InputsThatAreNone) {
  const fs::path out = scratch_ / "out/made";
  expect_refusal(convert(scratch_ / "none", out), {"none", "does not exist"});
  expect_refusal(convert(scratch_ / "out", out), {"out", "no checkpoint"});
  expect_refusal(convert(corpus(), out), {"corpus.h5", "Hugging Face directory"});
  expect_refusal(convert(weights(), out), {"model.safetensors", "config.json"});
  EXPECT_THAT(tree(scratch_ / "out"), IsEmpty());
}

TEST_F(Convert, OutputsThatCannotBe) {
  const auto before = tree(scratch_.path());
  const fs::path in = scratch_ / "hf";
  expect_refusal(convert(in, scratch_ / "out"), {"out", "exists already"});
  expect_refusal(convert(in, scratch_ / "hf/config.json"),
                 {"config.json", "exists already"});
  const RunResult below = convert(in, scratch_ / "hf/config.json/made");
  expect_refusal(below, {"hf/config.json/", "Not a directory"});
  EXPECT_EQ(tree(scratch_.path()), before);
}

TEST_F(Convert, DiskFull) {
  // Either direction leaves nothing.
  const std::string limit = "ulimit -f 100";
  const fs::path out = scratch_ / "out/made";
  expect_error(trireme_limited(limit, {"convert", scratch_ / "hf", out}), 1,
               {"out", "File too large"});
  EXPECT_THAT(tree(scratch_ / "out"), IsEmpty());
  ASSERT_EQ(convert(scratch_ / "hf", scratch_ / "there").status, 0);
  expect_error(trireme_limited(limit, {"convert", scratch_ / "there", out}), 1,
               {"out", "File too large"});
  EXPECT_THAT(tree(scratch_ / "out"), IsEmpty());
}

TEST_F(Convert, TrainedRun) {
  ASSERT_EQ(train().status, 0);
  const RunResult result =
      convert(run_dir(), scratch_ / "made", {"--json", scratch_ / "made.json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("optimizer state stays behind"));
  const json made = json::parse(slurp(scratch_ / "made.json"));
  EXPECT_EQ(made["direction"], "checkpoint_to_hugging_face");
  EXPECT_EQ(made["step"], 4);
  EXPECT_EQ(made["parameters"], 35584);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json",
                           "tokenizer_config.json", "generation_config.json"}) {
    EXPECT_TRUE(fs::exists(scratch_ / "made" / name)) << name;
  }
  EXPECT_THAT(convert(run_dir(), scratch_ / "quiet", {"--weights-only"}).out,
              Not(HasSubstr("optimizer")));
  // And to a checkpoint again: the same text comes out of it.
  ASSERT_EQ(convert(scratch_ / "made", scratch_ / "again").status, 0);
  const auto generated = [&](const fs::path& from) {
    return trireme({"generate", "--checkpoint", from, "--prompt", "the oar", "--seed",
                    "5", "--max-tokens", "9"})
        .out;
  };
  EXPECT_THAT(generated(run_dir()), testing::StartsWith("the oar"));
  EXPECT_EQ(generated(scratch_ / "again"), generated(run_dir()));
  // Weights make no run to resume.
  expect_refusal(train({}, {"--resume", scratch_ / "again", "--run-dir", scratch_ / "r"}),
                 {"again", "optimizer", "--init-from"});
  EXPECT_FALSE(fs::exists(scratch_ / "r"));
}

// T5's way of sizing heads has no word in GPT-2's config.json.
TEST_F(Convert, HeadsThatGpt2CannotHave) {
  ASSERT_EQ(train({"model.head_size=12"}).status, 0);
  EXPECT_THAT(trireme({"inspect", run_dir()}).out,
              HasSubstr("2 layers x 32 hidden x 4 heads of 12"));
  expect_refusal(convert(run_dir(), scratch_ / "out/made"),
                 {"not a model that transformers' GPT-2 can express",
                  "model.head_size: only hidden / heads can be exported"});
  EXPECT_THAT(tree(scratch_ / "out"), IsEmpty());
}

// Trained on a corpus of a SentencePiece model, exported with it, and begun with again.
TEST_F(Convert, T5BringsItsSentencePieceModel) {
  const fs::path model = source_file("tests/parity/fixtures/tokenizer/unigram.model");
  spill(scratch_ / "text.txt", small_text(6000));
  const RunResult made = trireme({"tokenize", "--tokenizer", model, "--extra-ids", "100",
                                  "--out", scratch_ / "t5.h5", scratch_ / "text.txt"});
  if (made.err.find("libsentencepiece-dev") != std::string::npos) {
    GTEST_SKIP() << "NO SENTENCEPIECE: " << made.err;
  }
  ASSERT_EQ(made.status, 0) << made.err;
  spill(scratch_ / "t5.yaml",
        "model: {kind: t5, layers: 1, hidden: 16, heads: 2, sequence: 32}\n"
        "data: {train: " +
            (scratch_ / "t5.h5").string() +
            "}\nbatch: {micro: 2, global: 4}\nrun: {steps: 2}\n");
  const auto train = [&](const char* run, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", scratch_ / "t5.yaml", "--run-dir",
                                          scratch_ / run};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme(arguments);
  };
  RunResult trained = train("first", {});
  ASSERT_EQ(trained.status, 0) << trained.err;
  RunResult result = convert(scratch_ / "first", scratch_ / "there", {"--weights-only"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("with the tokenizer"));
  EXPECT_TRUE(slurp(scratch_ / "there/spiece.model") == slurp(model));
  const fs::path config = scratch_ / "there/tokenizer_config.json";
  EXPECT_EQ(json::parse(slurp(config))["extra_ids"], 100);

  result = convert(scratch_ / "there", scratch_ / "again");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  trained = train("second", {"--init-from", scratch_ / "again"});
  EXPECT_EQ(trained.status, 0) << trained.err;

  spill(config, R"({"extra_ids": 500})");
  expect_refusal(
      convert(scratch_ / "there", scratch_ / "out/made"),
      {"SentencePiece, unigram", "4,500 tokens", "4,100 rows", "another model"});
  EXPECT_THAT(tree(scratch_ / "out"), IsEmpty());
}

// Megatron's .idx and .bin: two documents of 16-bit ids.
class ConvertMegatron : public Workplace {
 protected:
  ConvertMegatron() {
    std::string index("MMIDIDX\0\0", 9);
    put<std::uint64_t>(index, 1);
    put<std::uint8_t>(index, 8);
    put<std::uint64_t>(index, 2);
    put<std::uint64_t>(index, 3);
    for (const std::int32_t length : {3, 2}) put(index, length);
    for (const std::int64_t place : {0, 6}) put(index, place);
    for (const std::int64_t bound : {0, 1, 2}) put(index, bound);
    spill(scratch_ / "set.idx", index);
    std::string ids;
    for (const std::uint16_t id : {11, 12, 13, 14, 15}) put(ids, id);
    spill(scratch_ / "set.bin", ids);
  }
  template <class T>
  static void put(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  RunResult convert(const std::vector<std::string>& more,
                    const char* name = "set.idx") const {
    std::vector<std::string> arguments = {"convert", scratch_ / name,
                                          scratch_ / "set.h5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme(arguments);
  }
};

TEST_F(ConvertMegatron, IntoACorpus) {
  const RunResult result =
      convert({"--tokenizer", corpus(), "--json", scratch_ / "made"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 documents, 7 tokens of a vocabulary of 300"));
  const json made = json::parse(slurp(scratch_ / "made"));
  EXPECT_EQ(made["direction"], "megatron_to_corpus");
  EXPECT_EQ(made["tokens"], 7);
  const RunResult seen = trireme({"inspect", scratch_ / "set.h5", "--verify"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  expect_refusal(convert({"--tokenizer", corpus()}), {"set.h5", "exists already"});
}

TEST_F(ConvertMegatron, WithItsSentences) {
  expect_refusal(convert({"--tokenizer", corpus(), "--sentences"}),
                 {"has 2 sequences in 2 documents", "--split-sentences"});
  std::string index = slurp(scratch_ / "set.idx");
  index[26] = 2;  // one document of both sequences
  const std::int64_t bounds[] = {0, 2};
  index.resize(index.size() - 3 * sizeof(bounds[0]));
  spill(scratch_ / "set.idx",
        index + std::string(reinterpret_cast<const char*>(bounds), sizeof(bounds)));
  const RunResult result =
      convert({"--tokenizer", corpus(), "--sentences", "--json", scratch_ / "made"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(json::parse(slurp(scratch_ / "made"))["sentences"], 2);
  const RunResult seen = trireme({"inspect", scratch_ / "set.h5", "--verify"});
  EXPECT_EQ(seen.status, 0) << seen.err;
}

// llm.c's files, told from the tokens of a Megatron dataset by how they begin.
TEST_F(ConvertMegatron, OfLlmCToo) {
  std::string file;
  for (const std::int32_t value : {20240520, 1, 6}) put(file, value);
  file.resize(1024);
  for (const std::uint16_t id : {0, 11, 12, 0, 13, 14}) put(file, id);
  spill(scratch_ / "web.bin", file);
  expect_refusal(convert({}, "web.bin"), {"token file of llm.c", "--tokenizer"});
  expect_refusal(convert({"--tokenizer", corpus(), "--sentences"}, "web.bin"),
                 {"--sentences is for Megatron datasets"});
  const RunResult result =
      convert({"--tokenizer", corpus(), "--json", scratch_ / "made"}, "web.bin");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 documents, 6 tokens of a vocabulary of 300"));
  EXPECT_EQ(json::parse(slurp(scratch_ / "made"))["direction"], "llm_c_to_corpus");
  spill(scratch_ / "web.bin", file.substr(0, 1030));
  fs::remove(scratch_ / "set.h5");
  expect_refusal(convert({"--tokenizer", corpus()}, "web.bin"),
                 {"web.bin", "cut short", "make 1036"});
}

TEST_F(ConvertMegatron, WhatIsMissingOrWrong) {
  const auto before = tree(scratch_.path());
  expect_refusal(convert({}), {"token ids alone", "--tokenizer"});
  expect_refusal(
      convert({"--tokenizer", corpus(), "--max-shard-size", "5GB"}),
      {"--max-shard-size", "'" + (scratch_ / "set.idx").string() + "' is none"});
  spill(scratch_ / "set.bin", slurp(scratch_ / "set.bin").substr(0, 9));
  expect_refusal(convert({"--tokenizer", corpus()}), {"set.bin", "cut short"});
  EXPECT_EQ(tree(scratch_.path()), before);
}

}  // namespace
}  // namespace trireme::test
