// Checkpoints in which every size and checksum is right, and what they say is wrong:
// parts of other saves, blocks that share or exchange places, links, numbers that are
// none. Each is refused by whoever opens or reads it, with the file and what is the
// matter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ckpt/verify.hpp"
#include "support/hdf5_edit.hpp"
#include "unit/ckpt/crafted.hpp"
#include "unit/ckpt/sample.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ckpt::Depth;
using ckpt::Manifest;
using test::make_right;
using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kQkv = "model/qkv/weight";

constexpr int kTogether = -3;

// Who wrote: one rank, three ranks, or three that share a file.
class Crafted : public ::testing::TestWithParam<int> {
 protected:
  ckpt::Path save(const std::string& name, std::int64_t step) const {
    const int ranks = GetParam();
    fs::remove_all(scratch_ / name / ckpt::step_name(step));
    return ranks == kTogether ? test::save_together(3, scratch_ / name, step).path
                              : test::save_as(ranks, scratch_ / name, step).path;
  }
  static std::string read_all(const fs::path& step) {
    return message_of<InputError>([&] {
      test::RankMemory memory(0, 1, false);
      memory.read(ckpt::CheckpointReader(step));
    });
  }
  static std::string problems(const fs::path& step, Depth depth) {
    return fmt::format("{}", fmt::join(ckpt::problems_of(step, depth), "\n"));
  }
  // `depth`: the lightest check that finds it. Who reads may find another sign of it
  // first.
  static void expect_refused(const fs::path& step, Depth depth, const std::string& text,
                             const std::string& when_read = "") {
    for (const Depth d : {Depth::sizes, Depth::index, Depth::checksums}) {
      const std::string found = problems(step, d);
      SCOPED_TRACE(static_cast<int>(d));
      EXPECT_THAT(found, d < depth ? ::testing::Matcher<std::string>(IsEmpty())
                                   : AllOf(Not(IsEmpty()), HasSubstr(text)));
    }
    if (depth == Depth::checksums) return;  // who reads needs no HDF5
    EXPECT_THAT(read_all(step), HasSubstr(when_read.empty() ? text : when_read));
  }

  test::Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(, Crafted, ::testing::Values(1, 3, kTogether),
                         [](const auto& info) {
                           return info.param < 0 ? "SharedFile"
                                                 : "Files" + std::to_string(info.param);
                         });

TEST_P(Crafted, NothingIsWrongWithWhatIsWhole) {
  const fs::path step = save("a", 5);
  make_right(step);
  EXPECT_EQ(problems(step, Depth::checksums), "");
  EXPECT_EQ(read_all(step), "(nothing thrown)");
}

// --- parts of other saves ------------------------------------------------------------

TEST_P(Crafted, IndexOfAnotherStepOrSave) {
  const fs::path step = save("a", 240);
  const fs::path old = save("a", 236), twin = save("b", 240);
  const auto replace = fs::copy_options::overwrite_existing;
  fs::copy_file(old / "index.h5", step / "index.h5", replace);
  make_right(step);
  expect_refused(step, Depth::index,
                 "is not the index of this checkpoint: it is of run ");
  EXPECT_THAT(read_all(step), AllOf(HasSubstr("step 236"), HasSubstr("step 240")));
  fs::copy_file(twin / "index.h5", step / "index.h5", replace);
  make_right(step);
  expect_refused(step, Depth::index, "is not the index of this checkpoint");
}

TEST_P(Crafted, ShardOfAnotherStepOrSave) {
  for (const char* other : {"a", "b"}) {
    const fs::path step = save("a", 240);
    const fs::path old = save(other, std::string(other) == "a" ? 236 : 240);
    fs::copy_file(old / "shard_00000.h5", step / "shard_00000.h5",
                  fs::copy_options::overwrite_existing);
    make_right(step);
    if (std::string(other) == "b") make_right(step);
    expect_refused(step, Depth::sizes,
                   "shard_00000.h5' is of another checkpoint: its stamp is 'run ");
  }
}

TEST_P(Crafted, DirectoryOfAnotherStep) {
  const fs::path step = save("a", 240);
  fs::rename(step, scratch_ / "a/step_00000999");
  expect_refused(scratch_ / "a/step_00000999", Depth::sizes,
                 "is of step 240, and its directory is called 'step_00000999'");
  fs::rename(scratch_ / "a/step_00000999", scratch_ / "a/best");
  EXPECT_EQ(read_all(scratch_ / "a/best"), "(nothing thrown)");
  fs::rename(scratch_ / "a/best", step);
  make_right(step, [](Manifest& m) { m.step = 999; });
  expect_refused(step, Depth::sizes, "is of step 999, and its directory is called");
}

// --- what the index says -------------------------------------------------------------

TEST_P(Crafted, StateThatNoRunHas) {
  const auto expect = [&](const char* name, auto value, const std::string& text) {
    SCOPED_TRACE(name);
    const fs::path step = save("a", 240);
    test::set_attribute(step / "index.h5", name, value);
    make_right(step);
    expect_refused(step, Depth::index, text);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect("samples", std::int64_t{7}, "counts 7 samples");
  expect("tokens", std::int64_t{-1}, "and -1 tokens");
  expect("step", std::int64_t{3}, "step 3");
  expect("step", std::numeric_limits<std::int64_t>::max(), "is not the index of this");
  expect("step", std::string("240"), "attribute 'step' of / in '");
  expect("step", ~std::uint64_t{0}, "is 18446744073709551615; expected an integer");
  expect("seed", std::int64_t{-1}, "attribute 'seed'");
  expect("best_loss", nan, "index.h5': best_loss is nan; expected a number");
  expect("best_step", std::int64_t{241}, "best_step is 241");
  expect("loss_scale", nan, "loss_scale is nan");
  expect("loss_scale", 0.0, "loss_scale is 0");
  expect("skipped_steps", std::int64_t{-2}, "skipped_steps is -2");
  expect("save", std::string(32, '0'), "is not the index of this checkpoint");
  expect("format", std::string("another"), "is not the index of a checkpoint");
}

TEST_P(Crafted, CountersThatNoRunHas) {
  const auto expect = [&](const test::ManifestChange& change, const std::string& text) {
    const fs::path step = save("a", 240);
    make_right(step, change);
    expect_refused(step, Depth::sizes, text);
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  expect([](Manifest& m) { m.step = -7; }, "has step -7; expected 0 to");
  expect([](Manifest& m) { m.samples = kMost - 5; }, "has samples 9223372036854775802");
  expect([](Manifest& m) { m.tokens = -1; }, "has tokens -1");
  expect([](Manifest& m) { m.generation = kMost; }, "has generation 9223372036854775807");
  expect([](Manifest& m) { m.run = "x"; }, "expected two names of 32 hexadecimal digits");
}

TEST_P(Crafted, IndexShowsOtherTensors) {
  fs::path step = save("a", 5);
  const auto expect = [&](const std::string& text) {
    make_right(step);
    expect_refused(step, Depth::index, text);
    step = save("a", 5);
  };
  const auto replace = [&](const std::vector<io::VirtualPiece>& pieces,
                           const Shape& shape = {36, 5}, DType dtype = DType::float32,
                           const char* name = kQkv) {
    test::remove_object(step / "index.h5", name);
    io::H5File index = io::H5File::open_for_writing(step / "index.h5");
    index.make_virtual_dataset(name, dtype, shape, pieces);
    index.close();
  };
  const auto truth = io::H5File::open(step / "index.h5").dataset(kQkv).pieces();
  ASSERT_GE(truth.size(), 3u);
  replace(truth);
  make_right(step);
  EXPECT_EQ(read_all(step), "(nothing thrown)");

  test::remove_object(step / "index.h5", kQkv);
  expect("does not show the tensor 'model/qkv/weight'");
  replace({{{0}, {3}, "shard_00000.h5", "model/norm/0"}}, {3}, DType::float32, "model/x");
  expect("shows a tensor 'model/x' that manifest.json does not list");
  replace(truth, {37, 5});
  expect("shows 'model/qkv/weight' as float32 (37, 5)");
  replace(truth, {36, 5}, DType::float64);
  expect("shows 'model/qkv/weight' as float64 (36, 5)");
  std::vector<io::VirtualPiece> pieces = truth;
  pieces[1].file = "../step_00000004/" + pieces[1].file;
  replace(pieces);
  expect("takes 'model/qkv/weight' from other places");
  pieces = truth;
  std::swap(pieces[0].dataset, pieces[1].dataset);
  replace(pieces);
  expect("takes 'model/qkv/weight' from other places");
  pieces = truth;
  pieces.pop_back();
  replace(pieces);
  expect("takes 'model/qkv/weight' from other places");
}

TEST_P(Crafted, LinksInTheIndex) {
  const fs::path other = save("b", 5);
  for (const char* name : {kQkv, "model/qkv", "deck", "grid", "tokenizer", "extra/note",
                           "model/of_no_use"}) {
    SCOPED_TRACE(name);
    const fs::path step = save("a", 5);
    test::make_external_link(step / "index.h5", name, (other / "index.h5").string(),
                             std::string(name));
    make_right(step);
    expect_refused(step, Depth::index, "link: what it leads to is no part of the");
    EXPECT_THAT(read_all(step), HasSubstr(std::string("/") + name + " is a"));
  }
  const fs::path step = save("a", 5);
  test::make_soft_link(step / "index.h5", "model/norm", "/model/qkv/bias");
  make_right(step);
  expect_refused(step, Depth::index, "/model/norm is a link");
}

// --- blocks --------------------------------------------------------------------------

// Two blocks of one size in one file.
std::pair<std::size_t, std::size_t> two_alike(const Manifest& m) {
  for (std::size_t a = 0; a < m.blocks.size(); ++a) {
    for (std::size_t b = a + 1; b < m.blocks.size(); ++b) {
      if (m.blocks[a].file == m.blocks[b].file &&
          m.bytes_of(m.blocks[a]).bytes == m.bytes_of(m.blocks[b]).bytes) {
        return {a, b};
      }
    }
  }
  return {0, 0};
}

TEST_P(Crafted, BlocksThatShareOrExchangePlaces) {
  const auto expect = [&](const test::ManifestChange& change, const std::string& text,
                          const std::string& when_read = "") {
    const fs::path step = save("a", 5);
    make_right(step, change);
    expect_refused(step, Depth::sizes, text, when_read);
  };
  expect(
      [](Manifest& m) {
        const auto [a, b] = two_alike(m);
        ASSERT_NE(a, b);
        m.blocks[a].offset = m.blocks[b].offset;
      },
      "share bytes of 'shard_00000.h5'");
  expect([](Manifest& m) { m.blocks[0].offset = m.blocks[1].offset - 4; }, "share bytes");
  const std::string moved = "shard_00000.h5': the blocks do not lie where manifest.json";
  expect(
      [](Manifest& m) {
        const auto [a, b] = two_alike(m);
        std::swap(m.blocks[a].offset, m.blocks[b].offset);
      },
      moved);
  expect(
      [](Manifest& m) {
        const auto [a, b] = two_alike(m);
        std::swap(m.blocks[a].tensor, m.blocks[b].tensor);
        std::swap(m.blocks[a].place, m.blocks[b].place);
      },
      moved, "from other places than the blocks");
  expect(
      [](Manifest& m) {
        const auto [a, b] = two_alike(m);
        std::swap(m.blocks[a].dataset, m.blocks[b].dataset);
      },
      moved, "from other places than the blocks");
  expect([](Manifest& m) { m.blocks.front().offset -= 4; }, moved);
}

TEST_P(Crafted, ListsWithDoublesAndHoles) {
  const auto expect = [&](const test::ManifestChange& change, const std::string& text) {
    const fs::path step = save("a", 5);
    make_right(step, change);
    expect_refused(step, Depth::sizes, text);
  };
  expect([](Manifest& m) { m.files.push_back(m.files.front()); },
         "names the file 'shard_00000.h5' twice");
  expect([](Manifest& m) { m.files.push_back(m.files.back()); },
         "names the file 'index.h5' twice");
  expect([](Manifest& m) { m.files.pop_back(); }, "lists no index.h5");
  expect([](Manifest& m) { m.files.front().stamp.reset(); }, "names no stamp of");
  expect([](Manifest& m) { m.files.front().stamp = std::uint64_t{1} << 40; },
         "lies beyond its end");
  expect([](Manifest& m) { m.tensors[1].name = m.tensors[0].name; }, "twice");
  expect([](Manifest& m) { m.tensors[0].name = "deck"; }, "expected names below model/");
  expect([](Manifest& m) { m.blocks.pop_back(); }, "of its");
  expect([](Manifest& m) { m.blocks.push_back(m.blocks.front()); }, "share bytes");
}

// Products of what stands in a manifest, where they are no number any more.
TEST_P(Crafted, IntegersThatWrapAround) {
  const auto expect = [&](const std::string& what, const std::string& by,
                          const std::string& text) {
    SCOPED_TRACE(by);
    const fs::path step = save("a", 5);
    test::replace_in_manifest(step, what, by);
    expect_refused(step, Depth::sizes, text);
  };
  const std::string norm = R"({"name":"model/norm","dtype":"float32","shape":[5]})";
  ASSERT_THAT(test::slurp(save("a", 5) / "manifest.json"), HasSubstr(norm));
  const auto with_shape = [&](const std::string& shape) {
    return R"({"name":"model/norm","dtype":"float32","shape":)" + shape + "}";
  };
  for (const char* shape : {"[8589934592,2147483648]", "[0,5]", "[4611686018427387904]",
                            "[-5]", "[]", "[1,1,1,1,1,1,1,1,5]"}) {
    expect(norm, with_shape(shape), "");
  }
  expect(R"("generation": 1)", R"("generation": 9223372036854775807)", "generation");
  expect(R"("generation": 1)", R"("generation": 9223372036854775808)",
         "'generation' is 9223372036854775808; expected an integer");
  expect(R"("step": 5)", R"("step": 5.0)", "'step' is 5.0; expected an integer");
  expect(R"("step": 5)", R"("step": -7)", "has step -7");
  expect(R"("offset":)", R"("offset":-)", "expected an integer");
  expect(R"("tensor":0)", R"("tensor":-1)", "expected an integer");
  expect(R"("file":0)", R"("file":18446744073709551615)", "unknown tensor or file");
  expect(R"("start":[)", R"("start":[9223372036854775807,)", "is no part of its shape");
  expect(R"("start":[)", R"("start":[1e300,)", "'start' is [1e+300");
  expect(R"("format_version": 3)", R"("format_version": 4294967299)",
         "expected an integer");
}

// A block whose rows have no bytes, by arithmetic that wraps: nothing is divided by them.
TEST_P(Crafted, BlockOfImpossibleShape) {
  const fs::path step = save("a", 5);
  std::string text = test::slurp(step / "manifest.json");
  const std::string norm = R"("model/norm","dtype":"float32","shape":[5])";
  const std::string wide =
      R"("model/norm","dtype":"float32","shape":[1,4611686018427387904])";
  text.replace(text.find(norm), norm.size(), wide);
  const std::size_t block = text.find("model/norm/0");
  const std::size_t start = text.find(R"("start":[0],"shape":[5])", block);
  ASSERT_NE(start, std::string::npos);
  text.replace(start, 23, R"("start":[0,0],"shape":[1,4611686018427387904])");
  test::spill(step / "manifest.json", test::with_right_sum(text));
  expect_refused(step, Depth::sizes, "model/norm");
}

// --- shards, as HDF5 shows them ------------------------------------------------------

TEST_P(Crafted, ShardsThatShowOtherBlocks) {
  const auto shard = [](const fs::path& step) { return step / "shard_00000.h5"; };
  const std::string name = "model/dense/0";
  const auto expect = [&](const std::function<void(const fs::path&)>& change,
                          const std::string& text) {
    const fs::path step = save("a", 5);
    change(shard(step));
    make_right(step);
    expect_refused(step, Depth::checksums, text);
  };
  expect([&](const fs::path& p) { test::make_soft_link(p, "model/x", "/" + name); },
         "/model/x is a link");
  expect([&](const fs::path& p) { test::make_external_link(p, name, "o.h5", "x"); },
         "/model/dense/0 is a link");
  expect([&](const fs::path& p) { test::remove_object(p, name); },
         "it has no dataset 'model/dense/0'");
  expect([&](const fs::path& p) { test::make_external_dataset(p, name, "raw", 16); },
         "in other files");
  expect(
      [&](const fs::path& p) {
        io::H5File file = io::H5File::open_for_writing(p);
        file.dataset(name).set_attribute("start", std::vector<std::int64_t>{0, 1});
        file.close();
      },
      "its dataset 'model/dense/0' is another block");
  expect(
      [&](const fs::path& p) {
        io::H5File file = io::H5File::open_for_writing(p);
        file.make_dataset("model/more", DType::float32, {3});
        file.close();
      },
      "its dataset 'model/more' is in no block");
  expect([&](const fs::path& p) { test::set_attribute(p, "step", std::int64_t{4}); },
         "it is of step 4, the checkpoint of 5");
}

// --- numbers -------------------------------------------------------------------------

TEST_P(Crafted, NumbersThatAreNone) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const char* name : {kQkv, "optimizer/exp_avg/dense"}) {
      const fs::path step = save("a", 5);
      test::set_element(step, name, 1, bad);
      make_right(step);
      EXPECT_EQ(problems(step, Depth::index), "");
      const std::string text = fmt::format(
          "1 number of '{}' is not finite; the first is {} at (0, 1)", name, bad);
      EXPECT_THAT(problems(step, Depth::checksums),
                  AllOf(HasSubstr("shard_00000.h5"), HasSubstr(text)));
      EXPECT_THAT(read_all(step), AllOf(HasSubstr("the checkpoint '"), HasSubstr(text)));
      EXPECT_THAT(
          message_of<InputError>([&] { ckpt::CheckpointReader(step).read_whole(name); }),
          HasSubstr(text));
    }
  }
}

TEST(CraftedMoments, BelowZero) {
  const test::Scratch scratch;
  const std::vector<float> values = {1, 2, -3, 4, -5, 6};
  const auto comm = comm::make_self_communicator("world");
  const auto part = [&](const std::string& name) {
    return ckpt::TensorPart{name,
                            DType::float32,
                            {2, 3},
                            ckpt::regions_of(replicated({2, 3})),
                            reinterpret_cast<const std::byte*>(values.data()),
                            true};
  };
  const auto saved = ckpt::save_checkpoint(
      Exec(), *comm, scratch.path(), test::sample_state(1),
      {part("model/w"), part("optimizer/exp_avg/w"), part("optimizer/exp_avg_sq/w")});
  const auto problems = ckpt::problems_of(saved.path, Depth::checksums);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0],
              HasSubstr("2 numbers of 'optimizer/exp_avg_sq/w' are not finite, or below "
                        "zero, which no second moment is; the first is -3 at (0, 2)"));
  const ckpt::CheckpointReader reader(saved.path);
  EXPECT_EQ(reader.read_whole("optimizer/exp_avg/w"), values);
  EXPECT_THROW(reader.read_whole("optimizer/exp_avg_sq/w"), InputError);
}

// Weights that are all none: a line for each would say nothing more.
TEST(CraftedNumbers, ListsEnd) {
  const test::Scratch scratch;
  const std::vector<float> values(1, std::nanf(""));
  const auto comm = comm::make_self_communicator("world");
  std::vector<ckpt::TensorPart> parts;
  for (int i = 0; i < 40; ++i) {
    parts.push_back({fmt::format("model/{:02}", i),
                     DType::float32,
                     {1},
                     ckpt::regions_of(replicated({1})),
                     reinterpret_cast<const std::byte*>(values.data()),
                     true});
  }
  const auto saved =
      ckpt::save_checkpoint(Exec(), *comm, scratch.path(), test::sample_state(1), parts);
  const auto problems = ckpt::problems_of(saved.path, Depth::checksums);
  EXPECT_LT(problems.size(), 20u);
  EXPECT_THAT(problems.back(), HasSubstr("28 more problems"));
}

// --- the format before ---------------------------------------------------------------

// As it was written before parts had an identity: read, compared as far as can be, and
// said so.
TEST_P(Crafted, OldFormatIsRead) {
  const fs::path step = save("a", 240), old = save("a", 236);
  const auto age = [](const fs::path& path) {
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() != ".h5") continue;
      test::remove_object(entry.path(), ckpt::kStampName);
      if (entry.path().filename() != "index.h5") continue;
      test::set_attribute(entry.path(), "format_version", std::int64_t{2});
      test::remove_attribute(entry.path(), "run");
      test::remove_attribute(entry.path(), "save");
    }
    make_right(path, [](Manifest& m) {
      m.format = 2;
      m.run = m.save = "";
      for (ckpt::FileEntry& file : m.files) file.stamp.reset();
    });
  };
  age(step);
  age(old);
  EXPECT_THAT(test::slurp(step / "manifest.json"),
              AllOf(HasSubstr("\"format_version\": 2"), Not(HasSubstr("\"save\""))));
  EXPECT_EQ(problems(step, Depth::checksums), "");
  EXPECT_EQ(read_all(step), "(nothing thrown)");
  const ckpt::CheckpointReader reader(step);
  EXPECT_EQ(reader.state().run, "");
  EXPECT_EQ(reader.state().samples, 240 * 32);
  EXPECT_THAT(ckpt::format_note(reader.manifest(), step),
              AllOf(HasSubstr("checkpoint format 2"), HasSubstr("cannot be checked")));
  // The next save has a name.
  const auto comm = comm::make_self_communicator("world");
  const auto saved = ckpt::save_checkpoint(Exec(), *comm, scratch_ / "c", reader.state(),
                                           test::RankMemory(0, 1, true).parts());
  EXPECT_TRUE(ckpt::is_id(ckpt::read_manifest(saved.path).run));
  EXPECT_EQ(ckpt::format_note(ckpt::read_manifest(saved.path), saved.path), "");

  fs::copy_file(old / "index.h5", step / "index.h5",
                fs::copy_options::overwrite_existing);
  make_right(step);
  expect_refused(step, Depth::index, "is not the index of this checkpoint");
}

}  // namespace
}  // namespace trireme
