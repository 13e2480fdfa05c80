// The table of a run's products as text: back to the bit, and whatever is wrong with one
// is said.
#include "step/gemm_table_text.hpp"

#include <gmock/gmock.h>

#include <limits>
#include <string>

#include "base/error.hpp"
#include "support/fake_gemm_tuner.hpp"

namespace trireme::step {
namespace {

using kernels::GemmTable;
using test::fake_library;
using test::fake_product;
using test::FakeEpilogue;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

GemmTable some_table() {
  GemmTable table{fake_library(), {}};
  kernels::GemmChoice choice{.workspace_bytes = 33554432,
                             .proposal = 3,
                             .proposals = 16,
                             .seconds = 0.1 + 0.2,
                             .untimed_seconds = 1e-300,
                             .about = "algorithm 66, \"tile\" 5"};
  choice.algorithm = {0, std::numeric_limits<std::uint64_t>::max(), 0x0123456789abcdef};
  table.products.emplace(fake_product(5), choice);
  ProductShape gradient{.type = DType::bfloat16,
                        .type_c = DType::float32,
                        .transpose_a = true,
                        .m = 31,
                        .n = 33,
                        .k = 257,
                        .lda = 40,
                        .ldb = 33,
                        .ldc = 64,
                        .alignment = 2};
  table.products.emplace(gradient, kernels::GemmChoice());
  ProductShape added = fake_product(7);
  added.ld_residual = 50;
  table.products.emplace(added, choice);
  table.products.emplace(fake_product(7, FakeEpilogue::gelu),
                         kernels::GemmChoice{.in_two_passes = true, .proposals = 4});
  return table;
}

// some_table() with one text for another.
std::string with(const std::string& from, const std::string& to) {
  std::string text = text_of(some_table());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return text.replace(at, from.size(), to);
}

TEST(GemmTableText, ComesBackToTheBit) {
  const GemmTable table = some_table();
  const GemmTable back = gemm_table_from(text_of(table), "a table");
  EXPECT_EQ(back.library, table.library);
  ASSERT_EQ(back.products.size(), table.products.size());
  for (const auto& [shape, choice] : table.products) {
    ASSERT_TRUE(back.has(shape));
    const kernels::GemmChoice& found = back.products.at(shape);
    EXPECT_TRUE(found.computes_as(choice));
    EXPECT_EQ(found.workspace_bytes, choice.workspace_bytes);
    EXPECT_EQ(found.proposal, choice.proposal);
    EXPECT_EQ(found.proposals, choice.proposals);
    EXPECT_EQ(found.seconds, choice.seconds);
    EXPECT_EQ(found.untimed_seconds, choice.untimed_seconds);
    EXPECT_EQ(found.about, choice.about);
  }
  EXPECT_EQ(text_of(back), text_of(table));
}

// A line for each product, for people.
TEST(GemmTableText, IsForPeopleToo) {
  EXPECT_EQ(
      text_of(GemmTable{fake_library(), {}}),
      "{\"kind\":\"trireme gemm table\",\"format\":1,\"library\":\"fakeBLAS 1.2.3\","
      "\"device\":\"Fake H100\",\"capability\":\"9.0\",\"multiprocessors\":7,\n"
      "\"products\": [\n]}\n");
  const std::string text =
      text_of(GemmTable{fake_library(), {{fake_product(5), kernels::GemmChoice()}}});
  EXPECT_THAT(text, HasSubstr("\n  {\"type\":\"bfloat16\",\"type_c\":\"bfloat16\","
                              "\"transposes\":\"NT\",\"m\":5,\"n\":48,\"k\":32,"
                              "\"lda\":32,\"ldb\":32,\"ldc\":48,\"alignment\":16,"
                              "\"algorithm\":[\"0000000000000000\","));
}

TEST(GemmTableText, EmptyWhereThereIsNoChoice) {
  EXPECT_EQ(text_of(GemmTable()), "");
  EXPECT_TRUE(gemm_table_from("", "a table").library.is_empty());
}

TEST(GemmTableText, ProductsAlone) {
  const std::vector<ProductShape> shapes = {fake_product(5),
                                            fake_product(6, FakeEpilogue::bias)};
  EXPECT_EQ(product_shapes_from(text_of(shapes)), shapes);
  EXPECT_TRUE(product_shapes_from(text_of(std::vector<ProductShape>())).empty());
}

TEST(GemmTableText, SaysWhatIsWrong) {
  const auto expect_refused = [](const std::string& text, const auto& message) {
    EXPECT_THAT([&] { gemm_table_from(text, "the table"); },
                ThrowsMessage<InputError>(AllOf(StartsWith("the table: "), message)));
  };
  expect_refused("{", HasSubstr("not valid JSON"));
  expect_refused("[]", HasSubstr("it is no table of products"));
  expect_refused(with("trireme gemm table", "manifest"), HasSubstr("no table"));
  expect_refused(with("\"format\":1", "\"format\":2"),
                 HasSubstr("of format 2, and this program knows format 1"));
  expect_refused(with("fakeBLAS 1.2.3", ""), HasSubstr("'library' is empty"));
  expect_refused(with("\"capability\":\"9.0\"", "\"capability\":9.0"),
                 HasSubstr("'capability' is 9.0; expected a string"));
  expect_refused(with("\"products\"", "\"product\""), HasSubstr("'products' is missing"));
}

TEST(GemmTableText, SaysWhatIsWrongWithAProduct) {
  const auto expect_refused = [](const std::string& from, const std::string& to,
                                 const std::string& message) {
    EXPECT_THAT([&] { gemm_table_from(with(from, to), "the table"); },
                ThrowsMessage<InputError>(HasSubstr("]: " + message)));
  };
  expect_refused("\"type\":\"bfloat16\"", "\"type\":\"int8\"", "'type' is 'int8'");
  expect_refused("\"NT\"", "\"NX\"", "'transposes' is NX; expected NN, NT, TN or TT");
  expect_refused("\"m\":5", "\"m\":0", "'m' is 0; expected a count from 1 on");
  expect_refused("\"m\":5", "\"m\":-1", "'m' is -1");
  expect_refused("\"m\":5", "\"m\":1e3", "'m' is 1000.0; expected an integer");
  expect_refused("\"m\":5", "\"m\":1099511627776", "'m' is 1099511627776");
  expect_refused("\"lda\":32", "\"lda\":31",
                 "'lda' is 31; expected 32 or more, the width of a row");
  expect_refused("\"alignment\":16", "\"alignment\":12", "'alignment' is 12");
  expect_refused("\"0123456789abcdef\"", "\"123\"",
                 "'algorithm' has a word '123'; expected 16 hexadecimal digits");
  expect_refused("[\"0000000000000000\",", "[", "'algorithm' has 7 words; expected 8");
  expect_refused("\"proposal\":3", "\"proposal\":16", "'proposal' is 16");
  expect_refused("\"workspace_bytes\":33554432", "\"workspace_bytes\":-1",
                 "'workspace_bytes' is -1");
  expect_refused("\"seconds\":0.30000000000000004", "\"seconds\":-0.5",
                 "'seconds' is -0.5; expected 0 or more seconds");
  expect_refused("\"two_passes\":true", "\"two_passes\":false", "'two_passes' is of");
  expect_refused("\"bias\":true,\"gelu\":true,\"ld_kept\":48",
                 "\"bias\":true,\"gelu\":false,\"ld_kept\":48",
                 "'epilogue' keeps what no activation takes");
  expect_refused("\"bias\":false,\"gelu\":false,\"ld_kept\":0,\"ld_residual\":50",
                 "\"bias\":false,\"gelu\":false,\"ld_kept\":0,\"ld_residual\":0",
                 "'epilogue' has nothing to do");
  expect_refused("\"ld_residual\":50", "\"ld_residual\":47", "'ld_residual' is 47");
  // One of the two products of 7 rows as the other.
  expect_refused("\"bias\":false,\"gelu\":false,\"ld_kept\":0,\"ld_residual\":50",
                 "\"bias\":true,\"gelu\":true,\"ld_kept\":48,\"ld_residual\":0",
                 "the product stands there twice");
}

}  // namespace
}  // namespace trireme::step
