// `trireme train` with corpora that are none, damaged, or do not fit the model.
#include "base/plural.hpp"
#include "io/hdf5.hpp"
#include "regression/cli/workplace.hpp"
#include "support/hdf5_edit.hpp"

namespace trireme::test {
namespace {

class TrainData : public Workplace {
 protected:
  void expect_refused(const RunResult& result, const std::vector<std::string>& parts) {
    expect_refusal(result, parts);
    EXPECT_FALSE(fs::exists(run_dir()));
  }
  RunResult train_on(const fs::path& path) const {
    return train({"data.train=" + path.string()});
  }
  // The corpus with some of its bytes changed.
  fs::path damaged(const std::string& content) const {
    spill(scratch_ / "damaged.h5", content);
    return scratch_ / "damaged.h5";
  }
};

TEST_F(TrainData, Missing) {
  expect_refused(train_on(scratch_ / "none.h5"), {"none.h5", "does not exist"});
  expect_refused(train({"data.train=none"}), {"data.train"});
}

TEST_F(TrainData, DirectoryOrText) {
  expect_refused(train_on(scratch_.path()), {"is a directory"});
  spill(scratch_ / "book.txt", small_text(100));
  expect_refused(train_on(scratch_ / "book.txt"),
                 {"book.txt", "not an HDF5 file", "trireme tokenize"});
  spill(scratch_ / "empty.h5", "");
  expect_refused(train_on(scratch_ / "empty.h5"), {"empty.h5", "not an HDF5 file"});
}

TEST_F(TrainData, HDF5OfAnotherKind) {
  const fs::path checkpoint = scratch_ / "converted";
  ASSERT_EQ(trireme({"convert", hugging_face_fixture("gpt2_tiny"), checkpoint}).status,
            0);
  for (const auto& entry : fs::recursive_directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".h5" || entry.is_symlink()) continue;
    expect_refused(train_on(entry.path()), {entry.path().filename(), "not a corpus",
                                            "dataset tokens", "trireme tokenize"});
  }
}

TEST_F(TrainData, TruncatedAnywhere) {
  const std::string whole = slurp(corpus());
  for (const double part : {0.0005, 0.01, 0.3, 0.9, 0.9999}) {
    const auto size = static_cast<std::size_t>(part * static_cast<double>(whole.size()));
    const RunResult result = train_on(damaged(whole.substr(0, size)));
    expect_refused(result, {"damaged.h5"});
    if (size > 100) {
      EXPECT_THAT(result.err, testing::HasSubstr("truncated"));
      EXPECT_THAT(result.err,
                  testing::HasSubstr(format_grouped(static_cast<std::int64_t>(size))));
    }
  }
}

// Ids beyond the vocabulary would read beyond the embedding table.
TEST_F(TrainData, TokensBeyondTheVocabulary) {
  // Tokens are nearly all of this one; half of them are damaged.
  std::string content = slurp(make_corpus(scratch_.path(), "large.h5", 300, 60000));
  for (std::size_t i = content.size() / 4; i < content.size() / 4 * 3; ++i) {
    content[i] = '\xff';
  }
  const RunResult result = train_on(damaged(content));
  // Not 2: steps may have been trained by then.
  expect_error(result, 1,
               {"damaged.h5", "65535", "vocabulary of 300", "trireme inspect"});
}

// Every command that uses a corpus refuses one whose documents are not in order.
TEST_F(TrainData, DocumentsThatDoNotAscend) {
  const fs::path lines = scratch_ / "lines.h5";
  const auto tokenize = [&](const fs::path& tokenizer, const fs::path& out) {
    return trireme({"tokenize", "--tokenizer", tokenizer, "--documents", "line", "--out",
                    out, corpus().string() + ".txt"});
  };
  ASSERT_EQ(tokenize(corpus(), lines).status, 0);
  ASSERT_EQ(train_on(lines).status, 0);
  fs::rename(run_dir(), scratch_ / "trained");
  fs::copy_file(lines, scratch_ / "damaged.h5");
  const std::uint64_t late = std::uint64_t{1} << 63;
  io::FileWriter writer(scratch_ / "damaged.h5", io::FileWriter::Mode::existing);
  writer.write_at(
      io::H5File::open(lines).dataset("documents").offset().value() + 3 * sizeof(late),
      &late, sizeof(late));
  writer.close();
  const std::vector<std::string> parts = {
      "damaged.h5",
      "/documents does not ascend: document 3 begins at token "
      "9223372036854775808 and ends at token "};
  const std::string path = (scratch_ / "damaged.h5").string();
  expect_refused(train_on(path), parts);
  expect_refused(train({"data.validation={other: " + path + "}"}), parts);
  expect_refused(train({"data.train=" + path}, {"--dry-run"}), parts);
  expect_error(
      trireme({"evaluate", "--checkpoint", scratch_ / "trained", "--data", path}), 2,
      parts);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--verify"}}) {
    std::vector<std::string> arguments = {"inspect", path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult shown = trireme(arguments);
    EXPECT_EQ(shown.status, 2) << shown.out;
    for (const std::string& part : parts) {
      EXPECT_THAT(shown.err, testing::HasSubstr(part));
    }
  }
  // Its tokenizer is whole.
  EXPECT_EQ(tokenize(path, scratch_ / "again.h5").status, 0);
}

// Bytes of another file than the one that is named, by a link or by the dataset's layout.
TEST_F(TrainData, TokensThatLieInAnotherFile) {
  const fs::path path = scratch_ / "linked.h5";
  const auto expect_refused_by_all = [&](const std::string& words) {
    const std::vector<std::string> parts = {"linked.h5", words};
    expect_refused(train_on(path), parts);
    expect_refused(train({"data.validation={other: " + path.string() + "}"}), parts);
    expect_refused(train({"data.train=" + path.string()}, {"--dry-run"}), parts);
    for (const std::vector<std::string>& inspect :
         {std::vector<std::string>{"inspect", path}, {"inspect", path, "--verify"}}) {
      const RunResult shown = trireme(inspect);
      EXPECT_EQ(shown.status, 2) << shown.out;
      for (const std::string& part : parts) {
        EXPECT_THAT(shown.err, testing::HasSubstr(part));
      }
    }
  };
  fs::copy_file(corpus(), path);
  make_external_link(path, "tokens", corpus().string(), "tokens");
  expect_refused_by_all("tokens is an external link");
  make_external_link(path, "tokens", (scratch_ / "none.h5").string(), "tokens");
  expect_refused_by_all("tokens is an external link");
  make_soft_link(path, "tokens", "documents");
  expect_refused_by_all("tokens is a soft link");
  make_external_dataset(path, "tokens", corpus().string(), 1000);
  expect_refused_by_all("keeps its data in other files");
}

TEST_F(TrainData, VocabularyThatDoesNotFit) {
  expect_refused(train({"model.vocab=299"}),
                 {"model.vocab", "299", "smaller than the vocabulary of", "300 tokens",
                  "at least 300", "model.vocab: corpus"});
  const fs::path other = make_corpus(scratch_.path(), "other.h5", 270, 600);
  expect_refused(train({"data.train=[{path: " + corpus().string() +
                        ", weight: 1}, {path: " + other.string() + ", weight: 1}]"}),
                 {"other.h5", "270", "300", "tokenizer"});
  expect_refused(train({"data.validation={other: " + other.string() + "}"}),
                 {"other.h5", "270", "300", "tokenizer"});
  // More than the corpus has is allowed: padding, tokens to come.
  EXPECT_EQ(train({"model.vocab=320"}).status, 0);
}

TEST_F(TrainData, ShorterThanASample) {
  const fs::path little = make_corpus(scratch_.path(), "little.h5", 270, 8);
  expect_refused(train({"data.train=" + little.string(), "model.sequence=4096"}),
                 {"little.h5", "4097", "model.sequence"});
  // Enough to train on, too little to cut validation from.
  expect_refused(train({"model.sequence=512"}),
                 {"corpus.h5", "validation", "data.split"});
}

}  // namespace
}  // namespace trireme::test
