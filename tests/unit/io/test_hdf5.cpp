// HDF5 wrapper: round trips of every type, offsets, virtual datasets, errors, damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

#include "base/plural.hpp"
#include "io/hdf5.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Hdf5, AttributesRoundTrip) {
  const test::Scratch scratch;
  {
    io::H5File file = io::H5File::create(scratch / "f.h5");
    file.set_attribute("step", std::int64_t{-7});
    file.set_attribute("step", std::int64_t{1000});  // replaces
    file.set_attribute("seed", ~std::uint64_t{0});
    file.set_attribute("scale", 0.1);
    file.set_attribute("name", std::string("trirème"));
    file.set_attribute("empty", std::string());
    file.set_attribute("shape", std::vector<std::int64_t>{2, 3});
    file.set_attribute("nothing", Shape{});
    file.make_group("a/b").set_attribute("here", std::int64_t{1});
    file.close();
  }
  const io::H5File file = io::H5File::open(scratch / "f.h5");
  EXPECT_EQ(file.attribute<std::int64_t>("step"), 1000);
  EXPECT_EQ(file.attribute<std::uint64_t>("seed"), ~std::uint64_t{0});
  EXPECT_EQ(file.attribute<double>("scale"), 0.1);
  EXPECT_EQ(file.attribute<double>("step"), 1000.0);
  EXPECT_EQ(file.attribute<std::string>("name"), "trirème");
  EXPECT_EQ(file.attribute<std::string>("empty"), "");
  EXPECT_THAT(file.attribute<std::vector<std::int64_t>>("shape"), ElementsAre(2, 3));
  EXPECT_TRUE(file.attribute<Shape>("nothing").empty());
  EXPECT_EQ(file.group("a/b").attribute<std::int64_t>("here"), 1);
  EXPECT_EQ(file.group("a/b").name(), "/a/b");
  EXPECT_THAT(file.attribute_names(), ::testing::Contains("nothing"));
  EXPECT_EQ(file.attribute_text("shape"), "2, 3");

  EXPECT_THAT(
      message_of<InputError>([&] { file.attribute<double>("none"); }),
      AllOf(HasSubstr("attribute 'none' of / in '"), HasSubstr("f.h5' is missing")));
  EXPECT_THAT(message_of<InputError>([&] { file.attribute<std::string>("step"); }),
              HasSubstr("is not a string"));
  EXPECT_THAT(message_of<InputError>([&] { file.attribute<std::int64_t>("scale"); }),
              HasSubstr("is not an integer"));
  EXPECT_THAT(message_of<InputError>([&] { file.attribute<std::int64_t>("shape"); }),
              HasSubstr("has 2 values; expected one"));
}

TEST(Hdf5, LongAttributeIsRefused) {
  const test::Scratch scratch;
  io::H5File file = io::H5File::create(scratch / "f.h5");
  EXPECT_THAT(
      message_of<Error>([&] { file.set_attribute("deck", std::string(100000, 'x')); }),
      HasSubstr("too long for an attribute"));
  file.write_text("deck", std::string(100000, 'x'));
  EXPECT_EQ(file.read_text("deck").size(), 100000u);
}

template <class T>
void round_trip(const std::vector<T>& values) {
  const test::Scratch scratch;
  {
    io::H5File file = io::H5File::create(scratch / "f.h5");
    const auto n = static_cast<index_t>(values.size());
    file.make_dataset("x/y", dtype_of<T>, {n}).write(values);
    file.close();
  }
  const io::H5File file = io::H5File::open(scratch / "f.h5");
  const io::H5Dataset dataset = file.dataset("x/y");
  EXPECT_EQ(dataset.dtype(), dtype_of<T>);
  const std::vector<T> back = dataset.read<T>();
  ASSERT_EQ(back.size(), values.size());
  EXPECT_EQ(std::memcmp(back.data(), values.data(), values.size() * sizeof(T)), 0);
  // The offset leads to the same bytes without HDF5.
  ASSERT_TRUE(dataset.offset().has_value());
  EXPECT_EQ(*dataset.offset() % 64, 0u);
  std::vector<T> raw(values.size());
  io::FileReader(scratch / "f.h5")
      .read_at(*dataset.offset(), raw.data(), raw.size() * sizeof(T));
  EXPECT_EQ(std::memcmp(raw.data(), values.data(), values.size() * sizeof(T)), 0);
}

TEST(Hdf5, EveryElementType) {
  round_trip<float>({1.5f, -0.0f, NAN});
  round_trip<double>({0.1, 1e300, -INFINITY});
  round_trip<bf16>({bf16(1.0f), bf16(-3e38f), bf16(NAN)});
  round_trip<fp16>({fp16(1.0f), fp16(65504.0f), fp16(6e-8f)});
  round_trip<std::int32_t>({-1, 2});
  round_trip<std::int64_t>({-(std::int64_t{1} << 62), 3});
  round_trip<std::uint8_t>({0, 255});
  round_trip<std::uint16_t>({0, 65535, 7});
  round_trip<std::uint32_t>({4000000000u});
  round_trip<std::uint64_t>({~std::uint64_t{0}});
}

TEST(Hdf5, RowsAndShapes) {
  const test::Scratch scratch;
  io::H5File file = io::H5File::create(scratch / "f.h5");
  io::H5Dataset matrix = file.make_dataset("m", DType::int32, {5, 3});
  std::vector<std::int32_t> values(15);
  std::iota(values.begin(), values.end(), 0);
  for (index_t row = 0; row < 5; ++row) matrix.write_rows(row, 1, &values[row * 3], 12);
  std::vector<std::int32_t> part(6);
  matrix.read_rows(2, 2, part.data(), 24);
  EXPECT_THAT(part, ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(message_of<Error>([&] { matrix.read_rows(4, 2, part.data(), 24); }),
              HasSubstr("rows 4 to 6 of /m"));
  EXPECT_THAT(message_of<Error>([&] { matrix.read_rows(0, 2, part.data(), 20); }),
              HasSubstr("take 24 bytes; the buffer has 20"));
  EXPECT_THAT(message_of<InputError>([&] { matrix.read<float>(); }),
              HasSubstr("holds int32; expected float32"));
  io::H5Dataset scalar = file.make_dataset("s", DType::float64, {});
  scalar.write(std::vector<double>{2.5});
  EXPECT_THAT(scalar.read<double>(), ElementsAre(2.5));
  io::H5Dataset empty = file.make_dataset("e", DType::float32, {0, 4});
  EXPECT_TRUE(empty.read<float>().empty());
}

TEST(Hdf5, BytesTextAndListing) {
  const test::Scratch scratch;
  const std::string bytes("\0\xff\0merges", 9);
  {
    io::H5File file = io::H5File::create(scratch / "f.h5");
    file.write_bytes("tokenizer/merges.txt", bytes);
    file.write_bytes("tokenizer/empty", "");
    file.write_text("deck", "model:\n  layers: 2  # ä\n");
    file.write_text("none", "");
    file.close();
  }
  const io::H5File file = io::H5File::open(scratch / "f.h5");
  EXPECT_EQ(file.read_bytes("tokenizer/merges.txt"), bytes);
  EXPECT_EQ(file.read_bytes("tokenizer/empty"), "");
  EXPECT_EQ(file.read_text("deck"), "model:\n  layers: 2  # ä\n");
  EXPECT_EQ(file.read_text("none"), "");
  EXPECT_THAT(file.children(), ElementsAre("deck", "none", "tokenizer"));
  EXPECT_TRUE(file.is_group("tokenizer"));
  EXPECT_FALSE(file.is_group("deck"));
  EXPECT_FALSE(file.has("tokenizer/none/deeper"));
  EXPECT_THAT(message_of<InputError>([&] { file.dataset("tokens"); }),
              HasSubstr("has no dataset /tokens"));
  EXPECT_THAT(message_of<InputError>([&] { file.dataset("tokenizer"); }),
              HasSubstr("has no dataset /tokenizer"));
  EXPECT_THAT(message_of<InputError>([&] { file.group("deck"); }),
              HasSubstr("no group /deck"));
}

// What is known of a file's groups is of all its handles.
TEST(Hdf5, GroupsAreKnownByTheirWholeNames) {
  const test::Scratch scratch;
  io::H5File file = io::H5File::create(scratch / "f.h5");
  io::H5Group a = file.make_group("a");
  io::H5Group c = a.make_group("b/c");
  file.make_group("a/b/c").write_text("whole", "1");
  c.make_group("a/b").write_text("below", "2");
  file.make_group("b").write_text("beside", "3");
  a.write_text("text", "4");
  for (int i = 0; i < 2; ++i) {  // a dataset is no group the second time either
    EXPECT_THAT(message_of<InputError>([&] { file.make_group("a/text/d"); }),
                HasSubstr("f.h5' has no group /a/text"));
    EXPECT_THAT(message_of<InputError>([&] { a.make_group("text"); }),
                HasSubstr("f.h5' has no group /a/text"));
  }
  file.close();
  const io::H5File read = io::H5File::open(scratch / "f.h5");
  EXPECT_EQ(read.read_text("a/b/c/whole"), "1");
  EXPECT_EQ(read.read_text("a/b/c/a/b/below"), "2");
  EXPECT_EQ(read.read_text("b/beside"), "3");
}

TEST(Hdf5, SameContentSameBytes) {
  const test::Scratch scratch;
  for (const char* name : {"a.h5", "b.h5"}) {
    io::H5File file = io::H5File::create(scratch / name);
    file.make_dataset("g/x", DType::float32, {3}).write(std::vector<float>{1, 2, 3});
    file.set_attribute("k", std::string("v"));
    file.close();
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // stamps count seconds
  }
  EXPECT_EQ(test::slurp(scratch / "a.h5"), test::slurp(scratch / "b.h5"));
}

// What several processes do: HDF5 makes the file, plain writes fill it.
TEST(Hdf5, FilledByPlainWrites) {
  const test::Scratch scratch;
  std::uint64_t offset = 0;
  {
    io::H5File file = io::H5File::create(scratch / "f.h5");
    offset = file.make_dataset("tokens", DType::uint16, {1000}).offset().value();
    file.close();
  }
  std::vector<std::uint16_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{0});
  io::FileWriter first(scratch / "f.h5", io::FileWriter::Mode::existing);
  io::FileWriter second(scratch / "f.h5", io::FileWriter::Mode::existing);
  second.write_at(offset + 1000, tokens.data() + 500, 1000);
  first.write_at(offset, tokens.data(), 1000);
  EXPECT_EQ(io::H5File::open(scratch / "f.h5").dataset("tokens").read<std::uint16_t>(),
            tokens);
}

TEST(Hdf5, VirtualDataset) {
  const test::Scratch scratch;
  for (int shard = 0; shard < 2; ++shard) {
    io::H5File file =
        io::H5File::create(scratch / ("shard_" + std::to_string(shard) + ".h5"));
    std::vector<float> part(6, static_cast<float>(shard + 1));
    file.make_dataset("block", DType::float32, {2, 3}).write(part);
    file.close();
  }
  {
    io::H5File file = io::H5File::create(scratch / "index.h5");
    // Shard 0 has columns 0-2 of rows 0-1, shard 1 the columns 3-5; row 2 nobody.
    io::H5Dataset whole =
        file.make_virtual_dataset("model/w", DType::float32, {3, 6},
                                  {{{0, 0}, {2, 3}, "shard_0.h5", "block"},
                                   {{0, 3}, {2, 3}, "shard_1.h5", "block"}});
    EXPECT_TRUE(whole.is_virtual());
    EXPECT_FALSE(whole.offset().has_value());
    file.close();
  }
  const auto read = [&] {
    return io::H5File::open(scratch / "index.h5").dataset("model/w").read<float>();
  };
  std::vector<float> values = read();
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 6),
              ElementsAre(1, 1, 1, 2, 2, 2));
  EXPECT_TRUE(std::isnan(values[12]) && std::isnan(values[17]));
  std::filesystem::remove(scratch / "shard_1.h5");
  values = read();
  EXPECT_EQ(values[2], 1.0f);
  EXPECT_TRUE(std::isnan(values[3])) << "a missing shard must not read as zeros";
  // The directory may be moved: shards are found beside the index.
  std::filesystem::create_directory(scratch / "moved");
  for (const char* name : {"index.h5", "shard_0.h5"}) {
    std::filesystem::rename(scratch / name, scratch / "moved" / name);
  }
  EXPECT_EQ(
      io::H5File::open(scratch / "moved/index.h5").dataset("model/w").read<float>()[2],
      1.0f);
}

TEST(Hdf5, VirtualBfloat16) {
  const test::Scratch scratch;
  io::H5File file = io::H5File::create(scratch / "index.h5");
  file.make_virtual_dataset("w", DType::bfloat16, {2}, {{{0}, {1}, "none.h5", "b"}});
  file.close();
  const auto values = io::H5File::open(scratch / "index.h5").dataset("w").read<bf16>();
  EXPECT_TRUE(std::isnan(static_cast<float>(values[0])));
}

TEST(Hdf5, OpeningSaysWhatIsWrong) {
  const test::Scratch scratch;
  const auto open = [](const std::filesystem::path& path) {
    return message_of<InputError>([&] { io::H5File::open(path); });
  };
  EXPECT_THAT(open(scratch / "none.h5"), HasSubstr("none.h5' does not exist"));
  EXPECT_THAT(open(scratch.path()), HasSubstr("is a directory"));
  test::spill(scratch / "text.h5", "to be or not to be");
  EXPECT_THAT(open(scratch / "text.h5"), HasSubstr("is not an HDF5 file"));
  test::spill(scratch / "empty.h5", "");
  EXPECT_THAT(open(scratch / "empty.h5"), HasSubstr("is not an HDF5 file"));
  {
    io::H5File file = io::H5File::create(scratch / "f.h5");
    file.write_bytes("x", std::string(5000, 'x'));
    file.close();
  }
  EXPECT_TRUE(io::check_hdf5(scratch / "f.h5").problem.empty());
  const auto size = std::filesystem::file_size(scratch / "f.h5");
  EXPECT_EQ(io::check_hdf5(scratch / "f.h5").expected_bytes, size);
  std::filesystem::resize_file(scratch / "f.h5", size - 1);
  EXPECT_THAT(open(scratch / "f.h5"),
              AllOf(HasSubstr("is truncated"),
                    HasSubstr(format_grouped(static_cast<std::int64_t>(size))),
                    HasSubstr(format_grouped(static_cast<std::int64_t>(size) - 1))));
}

TEST(Hdf5, ErrorsCarryTheLibrarysCause) {
  const test::Scratch scratch;
  EXPECT_THAT(
      message_of<Error>([&] { io::H5File::create(scratch / "no/f.h5"); }),
      AllOf(HasSubstr("HDF5: cannot create '"), HasSubstr("No such file or directory")));
  io::H5File file = io::H5File::create(scratch / "f.h5");
  io::H5Dataset kept = file.make_dataset("x", DType::uint8, {1});
  EXPECT_THAT(
      message_of<Error>([&] { file.make_dataset("x", DType::uint8, {1}); }),
      AllOf(HasSubstr("cannot create /x in '"), HasSubstr("name already exists")));
  file.close();
  EXPECT_THAT(message_of<Error>([&] { kept.read<std::uint8_t>(); }),
              HasSubstr("was closed before"));
  EXPECT_THAT(message_of<Error>([&] { file.close(); }), HasSubstr("was closed before"));
}

TEST(Hdf5, FullDisk) {
  test::on_full_disks(1 << 20, [](const test::FullDisk& disk) {
    const std::string message = message_of<Error>([&] {
      io::H5File file = io::H5File::create(disk / "f.h5");
      file.write_bytes("x", std::string(2 << 20, 'x'));
      file.close();
    });
    EXPECT_THAT(message, AllOf(HasSubstr(disk.cause()), HasSubstr(disk.advice())));
  });
}

// Wherever writing fails (in a call, at the close, in a destructor), an error says so and
// HDF5 has nothing left to trip over: later files are written as if nothing had been.
TEST(Hdf5, LimitOnFileSizes) {
  const test::Scratch scratch;
  for (const std::size_t bytes : {0, 100, 1000, 3000, 9000}) {
    const auto path = scratch / ("f" + std::to_string(bytes) + ".h5");
    auto limit = std::make_unique<test::FileSizeLimit>(bytes);
    const std::string message = message_of<Error>([&] {
      io::H5File file = io::H5File::create(path);
      file.set_attribute("a", std::string("some text"));
      file.write_bytes("x", std::string(10000, 'x'));
      file.close();
    });
    std::filesystem::remove(path);
    const std::string dropped = message_of<Error>([&] {
      io::H5File file = io::H5File::create(path);
      file.make_dataset("large", DType::uint8, {100000});
      throw Error("on the way out");
    });
    limit.reset();
    std::filesystem::remove(path);
    EXPECT_THAT(message, AllOf(HasSubstr(path.string()), HasSubstr("File too large")));
    EXPECT_THAT(dropped, AnyOf(HasSubstr("File too large"), HasSubstr("on the way out")));
    EXPECT_THAT(message, Not(HasSubstr("buf =")));
    io::H5File file = io::H5File::create(path);
    file.write_bytes("x", std::string(10000, 'x'));
    file.close();
    EXPECT_EQ(io::H5File::open(path).read_bytes("x"), std::string(10000, 'x'));
  }
}

TEST(Hdf5, CallsFromManyThreads) {
  const test::Scratch scratch;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto path =
            scratch / ("f" + std::to_string(t) + "-" + std::to_string(i) + ".h5");
        io::H5File file = io::H5File::create(path);
        file.make_dataset("a/b/c", DType::int32, {3})
            .write(std::vector<std::int32_t>{t, i, 0});
        file.close();
        const auto back = io::H5File::open(path).dataset("a/b/c").read<std::int32_t>();
        EXPECT_EQ(back[0] * 100 + back[1], t * 100 + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trireme
