// A GPT goes on in further layouts than tests/restart/test_layouts.cpp tries every day:
// out of eight ranks and into them, and between ZeRO 3 and unlike stages.
#include "restart/gpt_layouts.hpp"

namespace trireme::test {
namespace {

class LayoutRestarts : public GptLayouts {};

TEST_F(LayoutRestarts, ToTheRounding) {
  start("one-whole", "one");
  for (const char* name : {"one", "eight", "zero3", "tensor", "tensor4", "chunks"}) {
    start_half(name);
  }
  expect_crossings({{"eight", "one"},
                    {"zero3", "uneven"},
                    {"tensor4", "zero3"},
                    {"tensor", "eight"},
                    {"one", "uneven"},
                    {"chunks", "eight"}});
}

}  // namespace
}  // namespace trireme::test
