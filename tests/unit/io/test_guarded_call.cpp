// Guarded calls: results and errors pass, crashes and endless loops are survived.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <new>

#include "io/guarded_call.hpp"
#include "io/hdf5.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(GuardedCall, ResultsAndErrorsPass) {
  const std::string big(1 << 20, 'x');  // more than a pipe holds
  EXPECT_EQ(io::guarded_call("f", 0, [&] { return big; }), big);
  EXPECT_EQ(io::guarded_call("f", 0, [] { return std::string(); }), "");
  const auto error_of = [](auto&& work) {
    return message_of<InputError>([&] { io::guarded_call("some.h5", 1, work); });
  };
  EXPECT_EQ(error_of([]() -> std::string { throw InputError("what the user did"); }),
            "what the user did");
  EXPECT_EQ(message_of<Error>([] {
              io::guarded_call("f", 0, []() -> std::string { throw Error("system"); });
            }),
            "system");
  EXPECT_THAT(error_of([]() -> std::string { throw std::bad_alloc(); }),
              HasSubstr("more memory than there is"));
  EXPECT_THAT(error_of([]() -> std::string {
                ::raise(SIGSEGV);
                return "";
              }),
              AllOf(HasSubstr("'some.h5' is damaged"), HasSubstr("signal 11")));
  EXPECT_THAT(error_of([]() -> std::string {
                while (true) ::pause();
              }),
              HasSubstr("did not end within 1 s"));
}

// Every flipped bit of a file with all kinds of objects: read or refused, never fatal.
TEST(GuardedCall, DamagedHdf5) {
  const test::Scratch scratch;
  {
    io::H5File file = io::H5File::create(scratch / "f.h5");
    file.set_attribute("name", std::string("text"));
    file.set_attribute("list", std::vector<std::int64_t>{1, 2, 3});
    file.make_dataset("a/b", DType::float32, {3}).write(std::vector<float>{1, 2, 3});
    file.write_text("deck", "text");
    file.make_virtual_dataset("v", DType::float32, {3}, {{{0}, {3}, "g.h5", "x"}});
    file.close();
  }
  const std::string good = test::slurp(scratch / "f.h5");
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); at += 11) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    test::spill(scratch / "f.h5", bad);
    try {
      io::guarded_call(scratch / "f.h5", 10, [&] {
        const io::H5File file = io::H5File::open(scratch / "f.h5");
        file.attribute_text("name");
        file.attribute_text("list");
        file.dataset("a/b").read<float>();
        file.dataset("v").read<float>();
        return file.read_text("deck");
      });
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace trireme
