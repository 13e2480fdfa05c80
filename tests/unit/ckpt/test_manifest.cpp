// Manifests: round trip, merging, and every flipped bit of the text found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "ckpt/manifest.hpp"
#include "io/checksum.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using ckpt::Manifest;
using test::message_of;
using ::testing::AnyOf;
using ::testing::HasSubstr;

Manifest sample() {
  Manifest manifest;
  manifest.set_identity({std::string(32, 'a'), std::string(32, 'b'), 12});
  manifest.samples = 96;
  manifest.tokens = 960;
  manifest.generation = 3;
  manifest.files = {{"shard_00000.h5", 4096, 0x123, 512},
                    {"index.h5", 100, ~std::uint64_t{0}}};
  manifest.tensors = {{"model/a", DType::float32, {4, 6}},
                      {"model/b", DType::bfloat16, {5}}};
  manifest.blocks = {{0, 0, "model/a/0", 2048, {7}, {0, 0, 4, 2}},
                     {0, 0, "model/a/1", 2080, {8}, {0, 2, 4, 4}},
                     {1, 0, "model/b/0", 3000, {9}, {0, 0, 5, 1}}};
  return manifest;
}

TEST(Manifest, RoundTrip) {
  const Manifest manifest = sample();
  const std::string text = manifest.to_text();
  const Manifest back = Manifest::from_text(text, "m");
  EXPECT_EQ(back.to_text(), text);
  EXPECT_EQ(back.identity(), manifest.identity());
  EXPECT_EQ(back.samples, 96);
  EXPECT_EQ(back.tokens, 960);
  EXPECT_EQ(back.files[0].stamp, 512u);
  EXPECT_EQ(back.generation, 3);
  EXPECT_EQ(back.files[1].checksum, ~std::uint64_t{0});
  EXPECT_EQ(back.tensors[1].dtype, DType::bfloat16);
  EXPECT_EQ(back.blocks[1].place, (ckpt::Rectangle{0, 2, 4, 4}));
  EXPECT_EQ(back.blocks[1].dataset, "model/a/1");
  EXPECT_EQ(back.parameter_count(), 29);
  EXPECT_FALSE(back.has_optimizer_state());
}

TEST(Manifest, EveryFlippedBitIsFound) {
  const std::string good = sample().to_text();
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(Manifest::from_text(bad, "m"), InputError) << bit;
  }
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(Manifest::from_text(good.substr(0, length), "m"), InputError) << length;
  }
  EXPECT_THROW(Manifest::from_text(good + " ", "m"), InputError);
}

TEST(Manifest, CheckFindsWhatDoesNotFit) {
  const auto error_of = [](auto&& change) {
    Manifest manifest = sample();
    change(manifest);
    return message_of<InputError>([&] { manifest.check("m"); });
  };
  EXPECT_EQ(error_of([](Manifest&) {}), "(nothing thrown)");
  EXPECT_THAT(error_of([](Manifest& m) { m.blocks.pop_back(); }),
              HasSubstr("the blocks of 'model/b' (5) hold 0 of its 5 elements"));
  EXPECT_THAT(error_of([](Manifest& m) {
                m.blocks[1].place = {0, 1, 4, 4};
              }),
              HasSubstr("two blocks of 'model/a' overlap"));
  EXPECT_THAT(error_of([](Manifest& m) { m.blocks[1].place.column = 3; }),
              HasSubstr("outside its shape (4, 6)"));
  EXPECT_THAT(error_of([](Manifest& m) { m.blocks[0].offset = 4090; }),
              HasSubstr("beyond the end of 'shard_00000.h5'"));
  EXPECT_THAT(error_of([](Manifest& m) { m.blocks[0].offset = ~std::uint64_t{0}; }),
              HasSubstr("beyond the end"));
  EXPECT_THAT(error_of([](Manifest& m) { m.blocks[0].file = 2; }), HasSubstr("unknown"));
  EXPECT_THAT(error_of([](Manifest& m) { m.files[0].name = "../x"; }),
              HasSubstr("outside its directory"));
}

// Any value of another kind: nothing but an InputError, which names the file.
TEST(Manifest, EveryValueOfAnotherKindIsDamage) {
  using Json = nlohmann::ordered_json;
  const std::string text = sample().to_text();
  const Json whole = Json::parse(text);
  std::vector<Json> others;
  for (const char* other : {"null", "true", "-1", "1.5", "1e300", "9223372036854775808",
                            "4294967296", "\"x\"", "[]", "{}", "[[]]", "[-1]", "[0]"}) {
    others.push_back(Json::parse(other));
  }
  int refused = 0;
  const auto expect_damage = [&](const Json& changed, const std::string& what) {
    Json body = changed;
    body.erase("xxh3");
    const std::string after = body.dump().substr(1);
    const std::string sum = io::to_hex(io::checksum(after.data(), after.size()));
    try {
      Manifest::from_text("{\"xxh3\": \"" + sum + "\",\n" + after, "m").check("m");
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), AnyOf(HasSubstr("'m' is damaged: "),
                                      HasSubstr("'m' has checkpoint format")))
          << what;
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << ": " << error.what();
    }
  };
  const Json flat = whole.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    Json::json_pointer place(pointer);
    while (!place.empty()) {
      for (const Json& other : others) {
        Json changed = whole;
        changed[place] = other;
        expect_damage(changed, place.to_string() + " is " + other.dump());
      }
      place.pop_back();
    }
  }
  EXPECT_GT(refused, 1000);
  // No scalar is stored.
  Json scalar = whole;
  scalar["tensors"][1]["shape"] = Json::array();
  scalar["blocks"][2]["start"] = Json::array();
  scalar["blocks"][2]["shape"] = Json::array();
  expect_damage(scalar, "scalar");
}

TEST(Manifest, SaysWhichEntryIsWrong) {
  const auto error_of = [](const std::string& what, const std::string& by) {
    std::string text = sample().to_text();
    const std::size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    text.replace(at, what.size(), by);
    const std::string body = text.substr(text.find('\n') + 1);
    const std::string sum = io::to_hex(io::checksum(body.data(), body.size()));
    return message_of<InputError>(
        [&] { Manifest::from_text("{\"xxh3\": \"" + sum + "\",\n" + body, "m"); });
  };
  EXPECT_THAT(
      error_of(R"("bytes":100)", R"("bytes":100.0)"),
      HasSubstr("'m' is damaged: files[1]: 'bytes' is 100.0; expected an integer"));
  EXPECT_THAT(error_of(R"("shape":[5])", R"("shape":5)"),
              HasSubstr("'m' is damaged: tensors[1]: 'shape' is 5; expected a list"));
  EXPECT_THAT(error_of(R"("start":[0],"shape":[5])", R"("start":[],"shape":[])"),
              HasSubstr("'m' is damaged: blocks[2]: a block of 'model/b', elements ()"));
  EXPECT_THAT(error_of(R"("xxh3":["0000000000000008"])", R"("xxh3":[8])"),
              HasSubstr("'m' is damaged: blocks[1]: 'xxh3' is [8]; expected a list"));
  EXPECT_THAT(error_of("\"step\": 12", "\"step\": 12,,"),
              HasSubstr("'m' is damaged: line 5, column "));
}

// Against every pair, for rectangles of all kinds: beside each other, crossing, inside.
TEST(Manifest, CheckFindsEveryOverlap) {
  std::mt19937 random(7);
  const auto below = [&](index_t n) { return static_cast<index_t>(random() % n); };
  int apart = 0;
  constexpr int kTries = 4000;
  for (int i = 0; i < kTries; ++i) {
    Manifest manifest = sample();
    manifest.files = {{"shard_00000.h5", 1 << 20, 0, 0}};
    manifest.tensors = {{"model/a", DType::float32, {9, 8}}};
    manifest.blocks.clear();
    bool expected = false;
    for (int n = 0; n < 2 + i % 5; ++n) {
      ckpt::Rectangle place{below(9), below(8), 0, 0};
      place.rows = 1 + below(std::min<index_t>(9 - place.row, 4));
      place.columns = 1 + below(std::min<index_t>(8 - place.column, 4));
      for (const auto& other : manifest.blocks) {
        expected |= ckpt::intersection(place, other.place).has_value();
      }
      const auto offset = static_cast<std::uint64_t>(n) * 4096;
      manifest.blocks.push_back({0, 0, "x", offset, {0}, place});
    }
    const std::string message = message_of<InputError>([&] { manifest.check("m"); });
    EXPECT_EQ(message.find("overlap") != std::string::npos, expected) << message;
    apart += expected ? 0 : 1;
  }
  EXPECT_GT(apart, kTries / 10);
  EXPECT_LT(apart, kTries - kTries / 10);
}

// Where blocks lie is in the stamp, in whatever order the manifest has them.
TEST(Manifest, StampsTellFilesApart) {
  const Manifest manifest = sample();
  const std::string stamp = manifest.stamp_of({0, 1, 2});
  EXPECT_EQ(stamp.size(), ckpt::kStampBytes);
  EXPECT_THAT(stamp, HasSubstr("run " + std::string(32, 'a') + " save " +
                               std::string(32, 'b') + " step 00000000000000000012"));
  EXPECT_EQ(manifest.stamp_of({2, 0, 1}), stamp);
  EXPECT_NE(manifest.stamp_of({0, 1}), stamp);
  const auto expect_other = [&](auto&& change) {
    Manifest other = sample();
    change(other);
    EXPECT_NE(other.stamp_of({0, 1, 2}), stamp);
  };
  expect_other([](Manifest& m) { m.step = 11; });
  expect_other([](Manifest& m) { m.run[3] = 'c'; });
  expect_other([](Manifest& m) { m.save[3] = 'c'; });
  expect_other([](Manifest& m) { m.blocks[2].offset += 8; });
  expect_other([](Manifest& m) { m.blocks[2].dataset += "0"; });
  expect_other([](Manifest& m) { m.tensors[1].dtype = DType::float16; });
  expect_other([](Manifest& m) { m.tensors[0].name += "0"; });
  expect_other([](Manifest& m) { m.tensors[0].shape = {4, 7}; });
  expect_other([](Manifest& m) { m.blocks[0].place = {1, 0, 3, 2}; });
}

TEST(Manifest, Merge) {
  Manifest first = sample();
  Manifest second;
  second.files = {{"shard_00001.h5", 4096, 1}};
  second.tensors = {{"model/c", DType::float32, {2}},
                    {"model/a", DType::float32, {4, 6}}};
  second.blocks = {{1, 0, "x", 0, {0}, {0, 0, 4, 6}}};
  first.merge({second});
  ASSERT_EQ(first.tensors.size(), 3u);
  EXPECT_EQ(first.tensors[first.blocks.back().tensor].name, "model/a");
  EXPECT_EQ(first.files[first.blocks.back().file].name, "shard_00001.h5");
  second.tensors[1].shape = {6, 4};
  EXPECT_THAT(message_of<Error>([&] { first.merge({second}); }),
              HasSubstr("ranks disagree on tensor 'model/a'"));
}

TEST(Manifest, OtherVersionsAreRefused) {
  std::string body = sample().to_text();
  body = body.substr(body.find('\n') + 1);
  const std::string now = "\"format_version\": 3";
  body.replace(body.find(now), now.size(), "\"format_version\": 1");
  const auto sum = io::to_hex(io::checksum(body.data(), body.size()));
  const std::string text = "{\"xxh3\": \"" + sum + "\",\n" + body;
  EXPECT_THAT(message_of<InputError>([&] { Manifest::from_text(text, "m"); }),
              HasSubstr("has checkpoint format 1; this program reads 2 and 3"));
}

TEST(Manifest, Generation) {
  const test::Scratch scratch;
  EXPECT_EQ(ckpt::peek_generation(scratch.path()), -1);
  test::spill(scratch / ckpt::kManifestName, sample().to_text());
  EXPECT_EQ(ckpt::peek_generation(scratch.path()), 3);
  test::spill(scratch / ckpt::kManifestName, "\n\"generation\": x");
  EXPECT_EQ(ckpt::peek_generation(scratch.path()), -1);
  // What no program wrote, nobody counts on from.
  test::spill(scratch / ckpt::kManifestName, "\n\"generation\": 9223372036854775807,");
  EXPECT_EQ(ckpt::peek_generation(scratch.path()), -1);
}

}  // namespace
}  // namespace trireme
