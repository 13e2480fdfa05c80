// The words of `inspect` for a model: those that all kinds share, and what a kind has
// besides, by its name in the JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "check/inspection.hpp"

namespace trireme::check {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

std::string text_of(const Json& model) {
  return inspection_text({{"kind", "run"},
                          {"path", "runs/a"},
                          {"checkpoints", Json::array()},
                          {"problems", Json::array()},
                          {"model", model},
                          {"training", Json::object()}});
}

TEST(InspectionText, OfAGpt) {
  Json model = {{"kind", "gpt"},       {"layers", 12},
                {"hidden", 768},       {"heads", 12},
                {"kv_heads", 12},      {"head_size", 64},
                {"ffn_hidden", 3072},  {"sequence", 1024},
                {"vocabulary", 50257}, {"parameters", 124439808}};
  EXPECT_THAT(
      text_of(model),
      StartsWith("Run runs/a\n"
                 "  model             gpt: 12 layers x 768 hidden x 12 heads,\n"
                 "                    3,072 in the feed-forward blocks, sequence 1,024,\n"
                 "                    vocabulary 50,257\n"
                 "  parameters        124,439,808\n"));
  model["heads"] = 8;
  model["kv_heads"] = 2;
  EXPECT_THAT(text_of(model),
              HasSubstr("12 layers x 768 hidden x 8 heads of 64,\n"
                        "                    2 of keys and values, 3,072 in the feed"));
}

TEST(InspectionText, OfWhatAKindHasBesides) {
  EXPECT_THAT(
      text_of({{"kind", "odd"},
               {"layers", 2},
               {"hidden", 32},
               {"heads", 4},
               {"kv_heads", 4},
               {"head_size", 8},
               {"ffn_hidden", 128},
               {"decoder_layers", 3},
               {"norm_placement", "post"},
               {"parameters", 1000}}),
      HasSubstr("odd: 2 layers x 32 hidden x 4 heads,\n"
                "                    128 in the feed-forward blocks, decoder layers 3,\n"
                "                    norm placement post\n"));
}

}  // namespace
}  // namespace trireme::check
