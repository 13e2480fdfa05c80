// check/corpus_checks.cpp — see corpus_checks.hpp.
#include "check/corpus_checks.hpp"

#include <sys/stat.h>

#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/format.hpp"
#include "comm/rank_list.hpp"
#include "data/tokenizer_files.hpp"
#include "io/checksum.hpp"

namespace trireme::check {

void require_documents(const data::Corpora& corpora) {
  // Files are known by device and inode and not by name, as training and validation parts
  // may be of one file.
  std::set<std::tuple<dev_t, ino_t, off_t, time_t, long>> checked;
  for (const auto& corpus : corpora) {
    struct stat file = {};
    const bool is_known = ::stat(corpus->path().c_str(), &file) == 0;
    if (is_known && !checked
                         .emplace(file.st_dev, file.st_ino, file.st_size,
                                  file.st_mtim.tv_sec, file.st_mtim.tv_nsec)
                         .second) {
      continue;
    }
    const std::string problem = corpus->documents_problem();
    TRIREME_REQUIRE_INPUT(problem.empty(), "corpus '{}': {}", corpus->path().string(),
                          problem);
  }
}

void require_same_corpora(comm::Communicator& world, const std::string& host,
                          const std::string& identity) {
  if (world.size() == 1) return;
  const std::vector<std::string> hosts = world.gather(host);
  std::vector<std::string> corpora = world.gather(identity);
  const bool same = comm::all_same(corpora);
  for (std::string& checksums : corpora) checksums = "checksums " + checksums;
  TRIREME_REQUIRE_INPUT(same,
                        "the ranks have different corpora under the names that are "
                        "given: {}. Name files that all of them see, or put the same "
                        "ones everywhere",
                        comm::grouped_by_text(corpora, hosts));
}

void require_corpora_of(const ckpt::CheckpointReader& checkpoint,
                        const data::Corpora& corpora) {
  const auto& texts = checkpoint.state().texts;
  const auto then = texts.find(kCorporaText);
  const std::string now = data::identity_of(corpora);
  TRIREME_REQUIRE_INPUT(
      then == texts.end() || then->second == now,
      "the corpora of data.train are not those that '{}' was trained on: their checksums "
      "are {} now and were {}. Put the old files back, or start a new run in another "
      "run.dir.",
      checkpoint.path().string(), now, then->second);
}

void require_tokenizer_of(const ckpt::CheckpointReader& checkpoint,
                          const data::Corpus& corpus, Log& log) {
  const auto& files = checkpoint.state().tokenizer;
  if (files.empty()) {
    log.warning(
        "'{}' names no tokenizer: whether its tokens are those of the corpus is unknown",
        checkpoint.path().string());
    return;
  }
  TRIREME_REQUIRE_INPUT(
      data::is_one_tokenizer(files, corpus.tokenizer_files()),
      "'{}' was trained with another tokenizer than corpus '{}' was made with: make the "
      "corpus anew with the checkpoint's (trireme tokenize --tokenizer {})",
      checkpoint.path().string(), corpus.path().string(),
      shell_word(checkpoint.path().string()));
}

}  // namespace trireme::check
