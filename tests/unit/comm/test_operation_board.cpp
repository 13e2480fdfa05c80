// The board of operations: what one writes another reads, also from a damaged file, and
// how it is told. The ranks here are boards in one process.
#include "comm/operation_board.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "comm/board_format.hpp"
#include "comm/self_communicator.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Clock = OperationBoard::Clock;

class OperationBoardFile : public testing::Test {
 protected:
  std::filesystem::path make(const std::string& host, int slots, int ranks) const {
    const auto file = scratch_.path() / ("ranks." + host);
    OperationBoard::create_file(file, host, slots, ranks);
    return file;
  }
  RankState only_state() const {
    const BoardReading reading = read_boards(scratch_.path());
    EXPECT_THAT(reading.problems, IsEmpty());
    EXPECT_THAT(reading.ranks, SizeIs(1));
    return reading.ranks.empty() ? RankState() : reading.ranks.front();
  }
  static double seconds_now() {
    return std::chrono::duration<double>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  test::Scratch scratch_;
};

TEST_F(OperationBoardFile, HoldsTheOperationAndTheLastOne) {
  OperationBoard board(make("node7", 2, 4), 1, 3);
  RankState state = only_state();  // slot 0 is nobody's yet
  EXPECT_EQ(state.rank, 3);
  EXPECT_EQ(state.ranks, 4);
  EXPECT_EQ(state.process, ::getpid());
  EXPECT_EQ(state.host, "node7");
  EXPECT_EQ(state.activity, RankActivity::computing);
  EXPECT_NEAR(state.since, seconds_now(), 5.0);
  EXPECT_THAT(describe_now(state, state.since + 3.0),
              AllOf(HasSubstr("rank 3 (process "), HasSubstr("on node7"),
                    HasSubstr("not in a message since 3.0 s; no message before")));

  board.enter({"all_reduce", "row-parallel output", "tensor", 17, 4096}, Clock::now());
  state = only_state();
  EXPECT_EQ(state.activity, RankActivity::waiting);
  EXPECT_THAT(describe_now(state, state.since + 0.5),
              HasSubstr("in all_reduce 'row-parallel output' of group tensor (call 17, "
                        "4,096 elements), since 0.5 s"));
  EXPECT_THAT(describe_now(state, state.since + 12.4),
              HasSubstr("since 12.4 s, no sign of life for 12.4 s"));
  board.give_sign(Clock::now() + std::chrono::seconds(12));
  EXPECT_THAT(describe_now(only_state(), state.since + 12.4), Not(HasSubstr("no sign")));

  board.leave(Clock::now());
  state = only_state();
  EXPECT_EQ(state.activity, RankActivity::computing);
  EXPECT_THAT(describe_now(state, state.since + 700.1),
              HasSubstr("not in a message since 700.1 s; last: all_reduce "
                        "'row-parallel output' of group tensor"));

  board.enter({"recv", "", "pipeline", 2, 8, 1}, Clock::now());
  EXPECT_THAT(describe_past(only_state()),
              AllOf(HasSubstr("in recv of group pipeline with its rank 1 (call 2, "
                              "8 elements), since 20"),
                    HasSubstr("Z")));
}

TEST_F(OperationBoardFile, CutsLongNames) {
  OperationBoard board(make("host", 1, 1), 0, 0);
  const std::string name(500, 'x');
  board.enter({name.c_str(), name.c_str(), name.c_str(), 1, 0}, Clock::now());
  const RankState state = only_state();
  EXPECT_EQ(state.operation, std::string(39, 'x'));
  EXPECT_EQ(state.group, std::string(55, 'x'));
  EXPECT_EQ(state.site, std::string(103, 'x'));
}

TEST_F(OperationBoardFile, OutlivesAKilledProcess) {
  const auto file = make("host", 1, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    OperationBoard board(file, 0, 0);
    board.enter({"barrier", "", "world", 3}, Clock::now());
    ::raise(SIGKILL);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(only_state().process, child);
  EXPECT_THAT(unclean_ends(scratch_.path()),
              ElementsAre(HasSubstr("1 of 1 rank did not"),
                          HasSubstr("in barrier of group world (call 3), since ")));
}

// A busy writer, and a reader that must not see halves of two operations.
TEST_F(OperationBoardFile, IsReadWhole) {
  OperationBoard board(make("host", 1, 1), 0, 0);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    const std::string long_name(90, 'l');
    while (!stop) {
      board.enter({"all_reduce", "s", "a", 1, 1}, Clock::now());
      board.enter({"recv", long_name.c_str(), "bbbb", 2, 2}, Clock::now());
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  int whole = 0;
  for (int i = 0; i < 2000; ++i) {
    const RankState state = only_state();
    const bool first = state.operation == "all_reduce" && state.site == "s" &&
                       state.group == "a" && state.sequence == 1 && state.elements == 1;
    const bool second = state.operation == "recv" && state.site.size() == 90 &&
                        state.group == "bbbb" && state.sequence == 2 &&
                        state.elements == 2;
    whole += first || second || state.operation.empty() ? 1 : 0;
  }
  stop = true;
  writer.join();
  EXPECT_EQ(whole, 2000);
}

TEST_F(OperationBoardFile, DamageIsSaidAndTheRestIsRead) {
  OperationBoard good(make("b", 1, 3), 0, 1);
  test::spill(scratch_.path() / "ranks.a", "notes of mine on the ranks");
  test::spill(scratch_.path() / "ranks.c", "");
  { const OperationBoard cut(make("d", 2, 3), 0, 2); }
  std::filesystem::resize_file(scratch_.path() / "ranks.d", 600);
  { const OperationBoard wrong(make("e", 1, 3), 0, 2); }
  std::fstream(scratch_.path() / "ranks.e").seekp(sizeof(BoardHeader) + 4).put('\x77');
  std::filesystem::create_directory(scratch_.path() / "ranks.f");

  const BoardReading reading = read_boards(scratch_.path());
  EXPECT_THAT(reading.problems,
              ElementsAre(HasSubstr("ranks.a"), HasSubstr("ranks.c"),
                          AllOf(HasSubstr("ranks.d"), HasSubstr("too short")),
                          AllOf(HasSubstr("ranks.e"), HasSubstr("slot 0 is damaged"))));
  ASSERT_THAT(reading.ranks, SizeIs(2));
  EXPECT_EQ(reading.ranks[0].rank, 1);
  EXPECT_EQ(reading.ranks[1].rank, 2);
  EXPECT_THAT(unclean_ends(scratch_.path()), SizeIs(4 + 1 + 2));
}

// Its ranks go on; one of them says so, once.
TEST_F(OperationBoardFile, CutUnderItsRanksIsGivenUp) {
  const auto file = make("host", 40, 40);  // of three pages
  OperationBoard first(file, 0, 0), second(file, 1, 1), far(file, 39, 39);
  EXPECT_EQ(first.take_loss(), "");
  std::filesystem::resize_file(file, 5000);
  first.enter({"barrier", "", "world", 1}, Clock::now());
  EXPECT_THAT(first.take_loss(),
              AllOf(HasSubstr("ranks.host' was cut short"), HasSubstr("Training goes on"),
                    HasSubstr("on host")));
  std::filesystem::resize_file(file, 0);
  for (OperationBoard* board : {&first, &second, &far}) {
    board->give_sign(Clock::now());
    board->enter({"barrier", "", "world", 2}, Clock::now());
    board->leave(Clock::now());
    EXPECT_EQ(board->take_loss(), "");
    board->end(true);
  }
  EXPECT_THAT(unclean_ends(scratch_.path()), ElementsAre(HasSubstr("no whole account")));
}

TEST_F(OperationBoardFile, EndsAreClean) {
  EXPECT_THAT(unclean_ends(scratch_.path()), IsEmpty());
  EXPECT_THAT(unclean_ends(scratch_.path() / "nowhere"), IsEmpty());
  const auto file = make("host", 12, 12);
  std::vector<std::unique_ptr<OperationBoard>> boards;
  for (int rank = 0; rank < 12; ++rank) {
    boards.push_back(std::make_unique<OperationBoard>(file, rank, rank));
    boards.back()->enter({"barrier", "", "world", 1}, Clock::now());
  }
  for (const auto& board : boards) board->give_sign(Clock::now());
  boards[6]->leave(Clock::now() - std::chrono::seconds(5));
  boards[6]->give_sign(Clock::now() - std::chrono::seconds(5));
  boards[4]->end(false);
  std::vector<std::string> ends = unclean_ends(scratch_.path());
  ASSERT_THAT(ends, SizeIs(10));
  EXPECT_THAT(ends[0], HasSubstr("12 of 12 ranks did not"));
  EXPECT_THAT(ends[1], AllOf(HasSubstr("rank 4 "), HasSubstr("ended by an error")));
  EXPECT_THAT(ends[2], AllOf(HasSubstr("rank 6 "), HasSubstr("not in a message")));
  EXPECT_THAT(ends[9], HasSubstr("and 4 more ranks"));
  for (const auto& board : boards) board->end(true);
  EXPECT_THAT(unclean_ends(scratch_.path()), IsEmpty());
}

TEST_F(OperationBoardFile, IsMadeAnew) {
  const auto self = make_self_communicator("world");
  { const OperationBoard other(make("other", 1, 2), 0, 1); }
  test::spill(scratch_.path() / "ranks.txt", "mine");
  test::spill(scratch_.path() / kHangName, "a table");
  const OpenedBoard opened = open_board(*self, scratch_.path(), "here/there");
  EXPECT_EQ(opened.note, "");
  ASSERT_NE(opened.board, nullptr);
  EXPECT_TRUE(std::filesystem::exists(scratch_.path() / "ranks.here_there"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path() / "ranks.other"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.path() / kHangName));
  EXPECT_EQ(test::slurp(scratch_.path() / "ranks.txt"), "mine");

  const OpenedBoard none = open_board(*self, scratch_.path() / "nowhere", "here");
  EXPECT_EQ(none.board, nullptr);
  EXPECT_THAT(none.note, AllOf(HasSubstr("1 of 1 rank will"), HasSubstr("nowhere")));
}

OperationBoard::DeviceLane lane(std::uint64_t key, std::int64_t begun, std::int64_t ended,
                                const char* operation, index_t elements, int peer = -1) {
  return {.key = key,
          .group = "tensor",
          .begun = begun,
          .ended = ended,
          .operation = operation,
          .site = "a site",
          .elements = elements,
          .peer = peer,
          .is_running = true,
          .since = Clock::now() - std::chrono::seconds(9)};
}

TEST_F(OperationBoardFile, HoldsWhatTheDeviceIsAt) {
  OperationBoard board(make("node", 2, 2), 0, 0);
  EXPECT_THAT(only_state().lanes, IsEmpty());
  board.note_device({lane(7, 5, 3, "all_reduce", 100), lane(8, 2, 2, "", 0)});
  const auto lanes = only_state().lanes;
  ASSERT_THAT(lanes, SizeIs(2));
  EXPECT_EQ(lanes[0].key, 7u);
  EXPECT_EQ(lanes[0].begun, 5);
  EXPECT_EQ(lanes[0].ended, 3);
  EXPECT_EQ(lanes[0].group, "tensor");
  EXPECT_EQ(lanes[0].operation, "all_reduce");
  EXPECT_EQ(lanes[0].site, "a site");
  EXPECT_EQ(lanes[0].elements, 100);
  EXPECT_NEAR(lanes[0].since, seconds_now() - 9.0, 5.0);
  EXPECT_EQ(lanes[1].key, 8u);
  // More than there is room for: those that are busy are there.
  std::vector<OperationBoard::DeviceLane> many(40, lane(1, 4, 4, "", 0));
  many.push_back(lane(99, 4, 3, "broadcast", 1));
  board.note_device(many);
  EXPECT_THAT(only_state().lanes, SizeIs(16));
  EXPECT_EQ(only_state().lanes.front().key, 99u);
  board.note_device({});
  EXPECT_THAT(only_state().lanes, IsEmpty());
}

TEST_F(OperationBoardFile, KnowsWhoIsLate) {
  const auto file = make("node", 4, 4);
  OperationBoard boards[] = {{file, 0, 0}, {file, 1, 1}, {file, 2, 2}, {file, 3, 3}};
  const auto stuck = lane(7, 5, 3, "all_reduce", 100);
  boards[0].note_device({stuck});
  EXPECT_THAT(boards[0].late_ranks(stuck), HasSubstr("is not known"));
  boards[1].note_device({lane(6, 1, 0, "send", 1), lane(7, 3, 3, "", 0)});
  boards[2].note_device({lane(7, 6, 3, "all_reduce", 100)});
  boards[3].note_device({lane(6, 9, 8, "recv", 1)});  // of another communicator
  EXPECT_THAT(boards[0].late_ranks(stuck),
              AllOf(HasSubstr("late: it has begun 3 operations there. rank 1 (process"),
                    Not(HasSubstr("rank 2")), Not(HasSubstr("rank 3"))));
  boards[1].note_device({lane(7, 4, 3, "all_gather", 100)});
  EXPECT_THAT(boards[0].late_ranks(stuck),
              AllOf(HasSubstr("rank 1 does something else there: all_gather 'a site' of "
                              "group tensor (number 4, 100 elements)"),
                    Not(HasSubstr("rank 2")), Not(HasSubstr("late"))));
  boards[1].note_device({lane(7, 4, 3, "all_reduce", 100)});
  EXPECT_THAT(boards[0].late_ranks(stuck), HasSubstr("All its ranks have begun it"));
  // A message has one name at either end.
  const auto received = lane(8, 1, 0, "recv", 10, 1);
  boards[1].note_device({lane(8, 1, 0, "send", 10, 0)});
  EXPECT_THAT(boards[0].late_ranks(received), HasSubstr("All its ranks have begun it"));
  boards[1].note_device({lane(8, 1, 0, "send", 12, 0)});
  EXPECT_THAT(boards[0].late_ranks(received), HasSubstr("rank 1 does something else"));
}

TEST_F(OperationBoardFile, HangIsToldOnce) {
  const auto file = make("host", 2, 2);
  OperationBoard first(file, 0, 0);
  const OperationBoard second(file, 1, 1);
  first.enter({"barrier", "", "world", 9}, Clock::now());
  testing::internal::CaptureStderr();
  first.report_hang(2.0);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, AllOf(HasSubstr("run.hang_timeout: rank 0 waited 2.0 s"),
                          HasSubstr("rank 0 (process"), HasSubstr("in barrier"),
                          HasSubstr("rank 1 (process"), HasSubstr("not in a message")));
  EXPECT_EQ(test::slurp(scratch_.path() / kHangName), text);
  testing::internal::CaptureStderr();
  second.report_hang(2.0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace trireme::comm
