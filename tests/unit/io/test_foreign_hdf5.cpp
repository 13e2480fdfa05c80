// HDF5 files that are not whole by themselves: links and data that lead elsewhere are
// refused wherever they are met, and named; parts of virtual datasets are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/hdf5.hpp"
#include "support/hdf5_edit.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ForeignHdf5 : public ::testing::Test {
 protected:
  ForeignHdf5() : path_(scratch_ / "f.h5") {
    for (const char* name : {"f.h5", "other.h5"}) {
      io::H5File file = io::H5File::create(scratch_ / name);
      file.make_dataset("a/b/x", DType::float32, {3}).write(std::vector<float>{1, 2, 3});
      file.write_text("text", "to be");
      file.close();
    }
  }

  test::Scratch scratch_;
  std::filesystem::path path_;
};

TEST_F(ForeignHdf5, AreRefusedOnEveryWay) {
  const auto expect_refused = [&](const std::string& name, const char* kind) {
    SCOPED_TRACE(name);
    const io::H5File file = io::H5File::open(path_);
    const auto refusal =
        AllOf(HasSubstr("f.h5'"), HasSubstr("/" + name + " is " + kind + " link"));
    const std::string below = name == "a" ? "a/b/x" : name;
    EXPECT_THAT(message_of<InputError>([&] { file.has(below); }), refusal);
    EXPECT_THAT(message_of<InputError>([&] { file.dataset(below); }), refusal);
    EXPECT_THAT(message_of<InputError>([&] { file.group(below); }), refusal);
    EXPECT_THAT(message_of<InputError>([&] { file.is_group(below); }), refusal);
    EXPECT_THAT(message_of<InputError>([&] { file.read_text(below); }), refusal);
    EXPECT_THAT(message_of<InputError>([&] { file.read_bytes(below); }), refusal);
  };
  test::make_external_link(path_, "a/b/x", "other.h5", "a/b/x");
  expect_refused("a/b/x", "an external");
  test::make_soft_link(path_, "a/b/x", "/text");
  expect_refused("a/b/x", "a soft");
  test::make_external_link(path_, "text", "none.h5", "text");
  expect_refused("text", "an external");
  test::make_external_link(path_, "a", "other.h5", "a");
  expect_refused("a", "an external");
}

TEST_F(ForeignHdf5, DataElsewhereAreRefused) {
  test::spill(scratch_ / "raw", std::string(12, '\x42'));
  test::make_external_dataset(path_, "a/b/x", (scratch_ / "raw").string(), 3);
  const io::H5File file = io::H5File::open(path_);
  EXPECT_THAT(message_of<InputError>([&] { file.dataset("a/b/x"); }),
              AllOf(HasSubstr("/a/b/x in '"), HasSubstr("its data in other files")));
}

TEST_F(ForeignHdf5, TextsAndBytesAreOfTheFile) {
  {
    io::H5File file = io::H5File::open_for_writing(path_);
    file.make_virtual_dataset("bytes", DType::uint8, {3}, {{{0}, {3}, "other.h5", "x"}});
    file.close();
  }
  test::make_texts(path_, "texts", 3);
  const io::H5File file = io::H5File::open(path_);
  EXPECT_EQ(file.read_text("text"), "to be");
  EXPECT_THAT(message_of<InputError>([&] { file.read_bytes("bytes"); }),
              HasSubstr("/bytes in '"));
  EXPECT_THAT(message_of<InputError>([&] { file.read_text("texts"); }),
              HasSubstr("is not one text"));
}

// 2^44 bytes that are nowhere: no attempt to hold them in memory.
TEST_F(ForeignHdf5, HollowDatasetsAreRefused) {
  test::make_hollow_dataset(path_, "a/b/x", std::uint64_t{1} << 44);
  const io::H5File file = io::H5File::open(path_);
  EXPECT_THAT(
      message_of<InputError>([&] { file.read_bytes("a/b/x"); }),
      AllOf(HasSubstr("/a/b/x in '"), HasSubstr("claims 17,592,186,044,416 bytes")));
}

TEST_F(ForeignHdf5, AreListedAndNotFollowed) {
  test::make_external_link(path_, "a/c", "other.h5", "a");
  test::make_soft_link(path_, "a/b/loop", "/a");
  const io::H5File file = io::H5File::open(path_);
  std::vector<std::string> found;
  for (const io::H5Entry& entry : file.tree()) {
    const char* kinds[] = {"group", "dataset", "link"};
    found.push_back(entry.path + " " + kinds[static_cast<int>(entry.kind)]);
  }
  EXPECT_THAT(found, ElementsAre("a group", "a/b group", "a/b/loop link", "a/b/x dataset",
                                 "a/c link", "text dataset"));
}

TEST_F(ForeignHdf5, PiecesOfVirtualDatasets) {
  const std::vector<io::VirtualPiece> pieces = {{{0, 0}, {2, 3}, "s0.h5", "model/w/0"},
                                                {{0, 3}, {2, 4}, "s1.h5", "model/w/0"},
                                                {{2, 0}, {1, 7}, "s1.h5", "model/w/1"}};
  {
    io::H5File file = io::H5File::open_for_writing(path_);
    file.make_virtual_dataset("w", DType::float32, {3, 7}, pieces);
    file.make_virtual_dataset("v", DType::uint8, {5}, {{{1}, {1}, "s.h5", "v"}});
    file.close();
  }
  const io::H5File file = io::H5File::open(path_);
  EXPECT_EQ(file.dataset("w").pieces(), pieces);
  EXPECT_EQ(file.dataset("v").pieces().at(0).start, Shape{1});
  EXPECT_FALSE(file.dataset("a/b/x").is_virtual());
}

TEST_F(ForeignHdf5, IntegersThatDoNotFitAreRefused) {
  {
    io::H5File file = io::H5File::open_for_writing(path_);
    file.set_attribute("step", (std::uint64_t{1} << 63) + 5);
    file.set_attribute("seed", std::int64_t{-1});
    file.close();
  }
  const io::H5File file = io::H5File::open(path_);
  EXPECT_THAT(message_of<InputError>([&] { file.attribute<std::int64_t>("step"); }),
              AllOf(HasSubstr("attribute 'step'"), HasSubstr("is 9223372036854775813")));
  EXPECT_THAT(message_of<InputError>([&] { file.attribute<std::uint64_t>("seed"); }),
              HasSubstr("is -1; expected an integer from 0"));
}

}  // namespace
}  // namespace trireme
