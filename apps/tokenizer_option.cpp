// apps/tokenizer_option.cpp — see tokenizer_option.hpp.
#include "apps/tokenizer_option.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "apps/program_files.hpp"
#include "base/error.hpp"
#include "check/run_start.hpp"
#include "ckpt/directory.hpp"
#include "ckpt/manifest.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/verify.hpp"
#include "data/corpus.hpp"
#include "io/hdf5.hpp"

namespace trireme::apps {

namespace fs = std::filesystem;

namespace {

// GPT-2's files: TRIREME_GPT2_DIR, else beside the executable, where bootstrap put them.
fs::path gpt2_directory() {
  if (const char* named = std::getenv("TRIREME_GPT2_DIR")) return named;
  const fs::path place = shared_files() / "gpt2";
  TRIREME_REQUIRE_INPUT(
      fs::is_directory(place),
      "GPT-2's vocabulary is not in '{}': run tools/bootstrap and build "
      "again, or set TRIREME_GPT2_DIR to a directory with encoder.json and "
      "vocab.bpe",
      place.string());
  return place;
}

// One with a manifest: a directory of others may well have names like step_500.
bool has_checkpoints(const fs::path& directory) {
  return fs::is_directory(directory) &&
         std::ranges::any_of(ckpt::list_checkpoints(directory),
                             [](const auto& listed) { return listed.generation >= 0; });
}

// A checkpoint, or a run, keeps the tokenizer of its corpus.
bool is_trained(const fs::path& path) {
  return fs::is_directory(path) &&
         (fs::exists(path / ckpt::kManifestName) || has_checkpoints(path) ||
          has_checkpoints(path / "checkpoints"));
}

void require_no_run(const fs::path& path) {
  TRIREME_REQUIRE_INPUT(
      !check::has_run_records(path),
      "--tokenizer '{}': the run has no checkpoint there: give one by its name, or the "
      "corpus of the run (data.train of its deck.yaml)",
      path.string());
}

data::Tokenizer tokenizer_of_checkpoint(const fs::path& path) {
  const ckpt::Path newest = ckpt::require_newest(path, ckpt::Depth::index);
  const data::TokenizerFiles files = ckpt::CheckpointReader(newest).state().tokenizer;
  TRIREME_REQUIRE_INPUT(!files.empty(),
                        "--tokenizer '{}': the checkpoint names no tokenizer: give the "
                        "corpus that it was trained on, or its tokenizer's files",
                        path.string());
  return data::Tokenizer::from_files(files);
}

}  // namespace

data::Tokenizer load_tokenizer(const std::vector<std::string>& names) {
  if (names.size() == 1) {
    const std::string& name = names[0];
    if (name == "gpt2") return data::Tokenizer::load({gpt2_directory()});
    std::error_code ignored;
    TRIREME_REQUIRE_INPUT(fs::status(name, ignored).type() != fs::file_type::not_found,
                          "--tokenizer '{}' does not exist: give gpt2, or the files of a "
                          "tokenizer (`trireme tokenize --train-bpe` makes one)",
                          name);
    // A corpus brings the tokenizer it was made with.
    if (fs::is_regular_file(name) && io::check_hdf5(name).is_hdf5) {
      return data::Tokenizer::from_files(data::Corpus(name).tokenizer_files());
    }
    if (is_trained(name)) return tokenizer_of_checkpoint(name);
    require_no_run(name);
  }
  return data::Tokenizer::load({names.begin(), names.end()});
}

}  // namespace trireme::apps
