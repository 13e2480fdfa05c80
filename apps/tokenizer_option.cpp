// apps/tokenizer_option.cpp — see tokenizer_option.hpp.
#include "apps/tokenizer_option.hpp"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "apps/program_files.hpp"
#include "base/error.hpp"
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
  }
  return data::Tokenizer::load({names.begin(), names.end()});
}

}  // namespace trireme::apps
