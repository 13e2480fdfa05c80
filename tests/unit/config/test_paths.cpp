// Paths in decks: home directories and variables are filled in, and what is written is
// read as the same path.
#include "config/paths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "deck_testing.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::config {
namespace {

using ::testing::HasSubstr;

class PathsInDecks : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("HOME", "/rowers/one", 1);
    ::setenv("TRIREME_TEST_DATA", "/data/a $b", 1);
    ::setenv("TRIREME_TEST_TILDE", "~x", 1);
    ::setenv("TRIREME_TEST_EMPTY", "", 1);
    ::unsetenv("TRIREME_TEST_NONE");
  }
  static std::string expanded(const std::string& text) {
    const auto path = expand_path(text);
    return path.value ? *path.value : "none: " + path.what;
  }
};

TEST_F(PathsInDecks, AreFilledIn) {
  EXPECT_EQ(expanded("corpus.h5"), "corpus.h5");
  EXPECT_EQ(expanded("~"), "/rowers/one");
  EXPECT_EQ(expanded("~/c.h5"), "/rowers/one/c.h5");
  EXPECT_EQ(expanded("a/~/c.h5"), "a/~/c.h5");
  EXPECT_EQ(expanded("./~x"), "./~x");
  const passwd* user = ::getpwuid(::getuid());
  ASSERT_NE(user, nullptr);
  EXPECT_EQ(expanded(std::string("~") + user->pw_name + "/c"),
            std::string(user->pw_dir) + "/c");
  ::unsetenv("HOME");
  EXPECT_EQ(expanded("~/c"), std::string(user->pw_dir) + "/c");
  // What a variable holds is not looked into again.
  EXPECT_EQ(expanded("$TRIREME_TEST_DATA/c.h5"), "/data/a $b/c.h5");
  EXPECT_EQ(expanded("${TRIREME_TEST_DATA}2/$TRIREME_TEST_TILDE"), "/data/a $b2/~x");
  EXPECT_EQ(expanded("$TRIREME_TEST_TILDE/c"), "~x/c");
  EXPECT_EQ(expanded("$$HOME/a$$"), "$HOME/a$");
}

TEST_F(PathsInDecks, ThatCannotBe) {
  EXPECT_THAT(expanded("~no-such-rower/c"), HasSubstr("the user 'no-such-rower'"));
  for (const char* name : {"TRIREME_TEST_NONE", "TRIREME_TEST_EMPTY"}) {
    for (const char* form : {"/x/${}/y", "${}"}) {
      std::string text = form;
      text.insert(text.find('}'), name);
      EXPECT_THAT(expanded(text), HasSubstr(std::string("the variable ") + name + ","));
    }
  }
  for (const char* text : {"a$", "$/a", "$1", "${}", "${HOME", "${HO-ME}", "$ HOME"}) {
    EXPECT_THAT(expanded(text), HasSubstr("dollar sign")) << text;
  }
  EXPECT_EQ(expand_path("a$/b").fix, "a$$/b");
}

TEST_F(PathsInDecks, AreWrittenAsTheyAreRead) {
  for (const char* path :
       {"c.h5", "/a b/c", "$HOME/c", "${HOME}", "a$$b$", "x~", "./~x"}) {
    EXPECT_EQ(expanded(path_text(path)), path);
  }
  EXPECT_EQ(expanded(path_text("~x/c")), "./~x/c");
  EXPECT_EQ(path_text("./~x/c"), "./~x/c");
}

TEST_F(PathsInDecks, OfEveryKey) {
  const std::vector<std::string> set = {
      "data.train=[{path: ~/a.h5, weight: 1}, {path: $TRIREME_TEST_DATA/b.h5, weight: "
      "2}]",
      "data.validation={books: \"${TRIREME_TEST_DATA}/c.h5\"}",
      "run.dir=$TRIREME_TEST_DATA/run", "checkpoint.dir=~/$$checkpoints"};
  const Deck deck = small_with(set);
  EXPECT_EQ(deck.data.train.at(0).path, "/rowers/one/a.h5");
  EXPECT_EQ(deck.data.train.at(1).path, "/data/a $b/b.h5");
  EXPECT_EQ(deck.data.validation.at(0).path, "/data/a $b/c.h5");
  EXPECT_EQ(deck.run.dir, "/data/a $b/run");
  EXPECT_EQ(deck.checkpoint.dir, "/rowers/one/$checkpoints");
  // The resolved deck makes the same run where there are no such variables.
  const std::string text = resolved_text(deck);
  ::setenv("HOME", "/elsewhere", 1);
  ::unsetenv("TRIREME_TEST_DATA");
  const Deck again = parse_resolved(text);
  EXPECT_EQ(again.data.train.at(1).path, deck.data.train.at(1).path);
  EXPECT_EQ(again.data.validation.at(0).path, deck.data.validation.at(0).path);
  EXPECT_EQ(again.run.dir, deck.run.dir);
  EXPECT_EQ(again.checkpoint.dir, deck.checkpoint.dir);
  EXPECT_EQ(resolved_text(again), text);
  // All that is wrong now, in the deck's lines.
  const auto errors = errors_with(set);
  ASSERT_EQ(errors.size(), 3u) << format_errors(errors);
  EXPECT_EQ(errors[0].key, "data.train");
  EXPECT_THAT(errors[1].what, HasSubstr("books: names the variable TRIREME_TEST_DATA"));
  EXPECT_EQ(errors[2].key, "run.dir");
  EXPECT_EQ(errors_of(std::string(kSmall) + "run:\n  dir: $TRIREME_TEST_DATA/run\n")
                .at(0)
                .place,
            "test.yaml:4");
}

// Versions before variables were known wrote paths as they were.
TEST_F(PathsInDecks, OfAResolvedDeckAreNeverFilledIn) {
  const Deck deck = parse_resolved(std::string(kSmall) +
                                   "run: {dir: $HOME/run}\n"
                                   "checkpoint: {dir: \"${TRIREME_TEST_NONE}/a$\"}\n");
  EXPECT_EQ(deck.run.dir, "$HOME/run");
  EXPECT_EQ(deck.checkpoint.dir, "${TRIREME_TEST_NONE}/a$");
  const Deck tilde = parse_resolved(
      "model: {layers: 4, hidden: 64, heads: 4, sequence: 32, vocab: 211}\n"
      "data: {train: [{path: ~/c.h5, weight: 2}, {path: b$$1$$$$.h5, weight: 1}],"
      " validation: {books: $TRIREME_TEST_DATA}}\n");
  EXPECT_EQ(tilde.data.train.at(0).path, "./~/c.h5");
  EXPECT_EQ(tilde.data.train.at(1).path, "b$1$$.h5");
  EXPECT_EQ(tilde.data.validation.at(0).path, "$TRIREME_TEST_DATA");
  const Deck again = parse_resolved(resolved_text(deck));
  EXPECT_EQ(again.run.dir, deck.run.dir);
  EXPECT_EQ(again.checkpoint.dir, deck.checkpoint.dir);
}

// Those that SLURM sets in a job may be missing before it, and no others.
TEST_F(PathsInDecks, OfAJobWaitForIt) {
  ::setenv("SLURM_TEST_SET", "7", 1);
  ::unsetenv("SLURM_TEST_DIR");
  const std::string text =
      "model: {layers: 4, hidden: 64, heads: 4, sequence: 32, vocab: 211}\n"
      "data: {train: [{path: here.h5, weight: 1}, {path: $SLURM_TEST_DIR/a.h5, weight: "
      "2}]}\n"
      "run: {dir: \"$TRIREME_TEST_DATA/$SLURM_TEST_SET/$$x/${SLURM_TEST_DIR}\"}\n";
  const test::Scratch scratch;
  const std::string file = (scratch / "deck.yaml").string();
  test::spill(file, text);
  const Examined before = examine(file, {.before_job = true});
  EXPECT_TRUE(before.errors.empty()) << format_errors(before.errors);
  const std::string run = "/data/a $b/7/$x/${SLURM_TEST_DIR}";
  EXPECT_EQ(before.deck.run.dir, run);
  const std::map<std::string, std::string> waiting = {
      {"$SLURM_TEST_DIR/a.h5", "SLURM_TEST_DIR"},
      {run, "SLURM_TEST_DIR"},
      {run + "/checkpoints", "SLURM_TEST_DIR"}};
  EXPECT_EQ(before.job_paths, waiting);
  const Examined in_job = examine(file);
  ASSERT_EQ(in_job.errors.size(), 2u);
  EXPECT_THAT(in_job.errors[0].what, HasSubstr("the variable SLURM_TEST_DIR, which is"));
  EXPECT_TRUE(in_job.job_paths.empty());
  test::spill(file, text + "checkpoint: {dir: $SLURM_TEST_DIR/$TRIREME_TEST_NONE}\n");
  const Examined other = examine(file, {.before_job = true});
  ASSERT_EQ(other.errors.size(), 1u);
  EXPECT_THAT(other.errors[0].what, HasSubstr("the variable TRIREME_TEST_NONE, which"));
}

// The shell has filled it in.
TEST_F(PathsInDecks, OfTheCommandLineAreTakenAsTheyAre) {
  for (const char* name : {"$HOME/run", "~run"}) {
    const Deck deck = parse(kSmall, "t.yaml", {{}, name, 0});
    const std::string file = *name == '~' ? std::string("./") + name : name;
    EXPECT_EQ(deck.run.dir, file);
    EXPECT_EQ(deck.checkpoint.dir, file + "/checkpoints");
    const Deck again = parse_resolved(resolved_text(deck));
    EXPECT_EQ(again.run.dir, file);
    EXPECT_EQ(again.checkpoint.dir, file + "/checkpoints");
  }
}

}  // namespace
}  // namespace trireme::config
