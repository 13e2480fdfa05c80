// Commands for a person to copy: quoted, complete, and broken where a shell goes on.
#include "run/run_commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::run {
namespace {

TEST(RunCommands, GoOn) {
  TrainCommand train{.deck = "my deck.yaml"};
  EXPECT_EQ(continue_command(train), "  trireme train 'my deck.yaml' --resume auto");
  EXPECT_EQ(advice_to_go_on(train),
            "To go on:\n  trireme train 'my deck.yaml' --resume auto");
  train = {.launcher = {"mpiexec", "-n", "2"},
           .program = "build/release/bin/trireme",
           .deck = "inputs/quickstart.yaml",
           .overrides = {"run.steps=10", "data.train=[{path: a.h5, weight: 1}]",
                         "run.stop_after=5"},
           .run_dir = "runs/mine"};
  EXPECT_EQ(
      continue_command(train),
      "  mpiexec -n 2 build/release/bin/trireme train inputs/quickstart.yaml \\\n"
      "      --run-dir runs/mine --set run.steps=10 \\\n"
      "      --set 'data.train=[{path: a.h5, weight: 1}]' --set run.stop_after=5 \\\n"
      "      --resume auto");
}

TEST(RunCommands, MoreStepsTakeThePlaceOfThoseGiven) {
  const TrainCommand train{.deck = "deck.yaml",
                           .overrides = {"run.steps=10", "run.steps_of_mine=1"}};
  EXPECT_EQ(advice_to_train_on(train, 10),
            "To train on, twice as long for example:\n"
            "  trireme train deck.yaml --set run.steps_of_mine=1 --resume auto \\\n"
            "      --set run.steps=20");
}

TEST(RunCommands, Generate) {
  const TrainCommand train{.launcher = {"srun", "-n", "8"},
                           .deck = "deck.yaml",
                           .overrides = {"model.layers=2"}};
  EXPECT_EQ(
      generate_command(train, "runs/it's", true),
      "  trireme generate --checkpoint 'runs/it'\\''s' --prompt 'Once upon a time'");
  EXPECT_EQ(generate_command(train, "run", false),
            "  trireme generate --checkpoint run --prompt-ids 0");
}

TEST(RunCommands, Fill) {
  EXPECT_EQ(fill_command({.launcher = {"srun"}}, "runs/it's", "[MASK]"),
            "  trireme fill 'runs/it'\\''s' --text 'Once upon a [MASK]'");
}

}  // namespace
}  // namespace trireme::run
