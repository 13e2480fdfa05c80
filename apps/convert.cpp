// apps/convert.cpp — `trireme convert`: between the formats of others and ours; what IN
// is says which way.
//
// A model is converted by rank 0 alone; token ids of others, which may be those of a
// large corpus, by all ranks together. OUT must not exist: it is written under a
// temporary name, and what killed calls have left under such names goes before the work
// begins. Everything that the user can have got wrong is looked at before anything is
// written.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "apps/tokenizer_option.hpp"
#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "ckpt/convert.hpp"
#include "ckpt/hugging_face.hpp"
#include "comm/on_ranks.hpp"
#include "data/llm_c_dataset.hpp"
#include "data/megatron_dataset.hpp"
#include "data/sentences.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::apps {
namespace {

struct ConvertOptions {
  std::string in, out, json, max_shard_size;
  std::vector<std::string> tokenizer;
  bool weights_only = false, sentences = false;
};

// "5GB" in bytes. Units are those of transformers: GB is 10^9, GiB 2^30.
std::uint64_t shard_bytes(const std::string& text) {
  struct Unit {
    std::string_view name;
    std::uint64_t bytes;
  };
  static constexpr std::array<Unit, 8> kUnits = {{{"kb", 1'000},
                                                  {"mb", 1'000'000},
                                                  {"gb", 1'000'000'000},
                                                  {"tb", 1'000'000'000'000},
                                                  {"kib", std::uint64_t{1} << 10},
                                                  {"mib", std::uint64_t{1} << 20},
                                                  {"gib", std::uint64_t{1} << 30},
                                                  {"tib", std::uint64_t{1} << 40}}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = number_in<std::uint64_t>(text.substr(0, digits));
  const std::string unit = lower_case(trimmed(text.substr(digits)));
  for (const Unit& known : kUnits) {
    if (!number || *number == 0 || unit != known.name) continue;
    if (const auto bytes = checked_multiply(*number, known.bytes)) return *bytes;
  }
  throw InputError(
      fmt::format("--max-shard-size '{}' is no size: expected a whole number "
                  "above 0 with kB, MB, GB or TB (KiB, MiB, GiB or TiB), as "
                  "in 5GB",
                  text));
}

void report_model(const ckpt::Converted& made, const char* direction,
                  const ConvertOptions& options, Log& log) {
  log.info("{}: {} in {}{}, {}", made.to.string(),
           format_plural(made.parameters, "parameter"),
           format_plural(made.tensors, "tensor"),
           made.files > 1 ? " and " + format_plural(made.files, "file") : "",
           made.has_tokenizer ? "with the tokenizer" : "without a tokenizer");
  if (made.drops_optimizer && !options.weights_only) {
    log.info(
        "  optimizer state stays behind: a Hugging Face directory holds weights only "
        "(--weights-only says that you know)");
  }
  if (options.json.empty()) return;
  nlohmann::ordered_json json;
  json["direction"] = direction;
  json["in"] = made.from.string();
  json["out"] = made.to.string();
  json["step"] = made.step;
  json["parameters"] = made.parameters;
  json["tensors"] = made.tensors;
  if (made.files > 0) json["files"] = made.files;
  json["tokenizer"] = made.has_tokenizer;
  json["optimizer_dropped"] = made.drops_optimizer;
  json["warnings"] = log.warnings();
  io::write_file(options.json, io::json_text(json, 2) + "\n");
}

void require_no_shards(const ConvertOptions& options) {
  TRIREME_REQUIRE_INPUT(options.max_shard_size.empty(),
                        "--max-shard-size is for what a checkpoint is converted to, and "
                        "'{}' is none: leave it out",
                        options.in);
}

void report_corpus(const data::CorpusSummary& made, const char* direction,
                   const data::Tokenizer& tokenizer, const ConvertOptions& options,
                   Log& log) {
  log.info("{}: {}, {} of a vocabulary of {}", options.out,
           format_plural(made.documents, "document"), format_plural(made.tokens, "token"),
           tokenizer.vocabulary_size());
  if (made.sentences > 0) log.info("  {}", format_plural(made.sentences, "sentence"));
  if (made.empty_documents > 0) {
    log.warning("{} left out", format_plural(made.empty_documents, "empty document"));
  }
  if (options.json.empty()) return;
  nlohmann::ordered_json json;
  json["direction"] = direction;
  json["in"] = options.in;
  json["out"] = options.out;
  json["documents"] = made.documents;
  json["tokens"] = made.tokens;
  if (options.sentences) json["sentences"] = made.sentences;
  json["vocabulary"] = tokenizer.vocabulary_size();
  json["empty_documents"] = made.empty_documents;
  json["unigram_entropy"] = made.unigram_entropy;
  json["warnings"] = log.warnings();
  io::write_file(options.json, io::json_text(json, 2) + "\n");
}

// Token ids of others become a corpus: all ranks share the work. `what` is it that IN is.
template <class TokenFiles, class Convert>
void convert_tokens(const ConvertOptions& options, comm::Communicator& world,
                    const char* what, const char* direction, const Convert& convert) {
  Log log(world.rank() == 0);
  TRIREME_REQUIRE_INPUT(
      !options.tokenizer.empty(),
      "'{}' is a {}, which holds token ids alone: name the tokenizer they "
      "were made with (--tokenizer gpt2, its files, or a corpus of it)",
      options.in, what);
  require_no_shards(options);
  io::require_absent(options.out);
  const data::Tokenizer tokenizer = load_tokenizer(options.tokenizer);
  std::optional<TokenFiles> files;
  comm::on_every_rank(world, [&] { files.emplace(options.in); });
  data::CorpusOptions corpus_options;
  if (options.sentences) corpus_options.sentences = data::Language::none;
  const data::CorpusSummary made =
      convert(*files, tokenizer, options.out, world, corpus_options);
  if (world.rank() == 0) report_corpus(made, direction, tokenizer, options, log);
}

void require_no_sentences(const ConvertOptions& options) {
  TRIREME_REQUIRE_INPUT(!options.sentences,
                        "--sentences is for Megatron datasets, and '{}' is none: leave "
                        "it out",
                        options.in);
}

void convert_any_tokens(const ConvertOptions& options, comm::Communicator& world) {
  if (data::is_llm_c_dataset(options.in)) {
    require_no_sentences(options);
    convert_tokens<data::LlmCDataset>(options, world, "token file of llm.c",
                                      "llm_c_to_corpus", data::convert_llm_c_dataset);
  } else {
    convert_tokens<data::MegatronDataset>(options, world, "Megatron dataset",
                                          "megatron_to_corpus",
                                          data::convert_megatron_dataset);
  }
}

void convert_model(const ConvertOptions& options) {
  Log log;
  TRIREME_REQUIRE_INPUT(options.tokenizer.empty(),
                        "--tokenizer is for Megatron datasets and token files of llm.c: "
                        "'{}' is neither, and a model brings its own, by the files that "
                        "lie beside its weights",
                        options.in);
  require_no_sentences(options);
  if (ckpt::is_hugging_face_directory(options.in)) {
    require_no_shards(options);
    report_model(ckpt::import_hugging_face(options.in, options.out, log),
                 "hugging_face_to_checkpoint", options, log);
    return;
  }
  const bool exists = std::filesystem::exists(options.in);
  TRIREME_REQUIRE_INPUT(
      std::filesystem::is_directory(options.in),
      "'{}' {}: expected a Hugging Face directory (with config.json), a checkpoint or "
      "run directory, a Megatron dataset (.idx and .bin), or a token file of llm.c "
      "(.bin)",
      options.in, exists ? "is nothing that can be converted" : "does not exist");
  const std::uint64_t most = options.max_shard_size.empty()
                                 ? ckpt::kDefaultShardBytes
                                 : shard_bytes(options.max_shard_size);
  report_model(ckpt::export_hugging_face(options.in, options.out, log, most),
               "checkpoint_to_hugging_face", options, log);
}

}  // namespace

void add_convert(CommandLine& line) {
  const auto options = std::make_shared<ConvertOptions>();
  CLI::App& command = line.add_command(
      "convert",
      "A Hugging Face directory (GPT-2, BERT, T5) to a checkpoint; a checkpoint to "
      "such a directory; a Megatron dataset (.idx and .bin) or a token file of llm.c "
      "(.bin) to a corpus: what IN is says which.",
      [options](comm::Environment& environment) {
        comm::Communicator& world = *environment.world();
        comm::on_first_rank(world, [&] {
          // Inside OUT there is no directory yet.
          const std::filesystem::path json(options->json);
          if (json.parent_path() != std::filesystem::path(options->out)) {
            require_output(options->json, {options->in});
          }
          Log log;
          remove_leftovers(options->out, log);
        });
        if (data::is_llm_c_dataset(options->in) ||
            data::is_megatron_dataset(options->in)) {
          convert_any_tokens(*options, world);
        } else {
          comm::on_first_rank(world, [&] { convert_model(*options); });
        }
        return 0;
      });
  command
      .add_option(
          "IN", options->in,
          "a directory with config.json; or a run directory, its checkpoints, one "
          "step_* directory or latest; or a Megatron dataset's .idx; or llm.c's .bin")
      ->required();
  command
      .add_option("OUT", options->out,
                  "a directory that does not exist yet; of a "
                  "Megatron dataset or of llm.c's, the corpus (.h5)")
      ->required();
  command
      .add_option(
          "--tokenizer", options->tokenizer,
          "of a Megatron dataset or llm.c's: gpt2, or the files of the one it was made "
          "with, as of trireme tokenize")
      ->allow_extra_args(false)
      ->delimiter(',');
  command.add_flag("--sentences", options->sentences,
                   "of a Megatron dataset made with --split-sentences: keep where its "
                   "sentences begin");
  command.add_option("--max-shard-size", options->max_shard_size,
                     "of a Hugging Face directory that is made: bytes of weights in one "
                     "file, as in 500MB; more are cut into several with an index "
                     "(default 5GB)");
  command.add_flag("--weights-only", options->weights_only,
                   "weights are all that is wanted: say nothing about optimizer state, "
                   "which is never converted");
  command.add_option("--json", options->json, "write what was made to this file too");
}

}  // namespace trireme::apps
