// JSON: where errors are said to be, how deep values may be, typed access, and what
// messages show of large values.
#include "io/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "unit/io/scratch.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using test::message_of;
using test::nested_json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string error_of(const std::string& text) {
  return message_of<InputError>([&] { parse_json_file<json>(text, "f.json"); });
}

TEST(Json, ErrorsHaveTheirPlace) {
  EXPECT_THAT(error_of("{\"a\": 1,\n \"b\": x}"),
              StartsWith("f.json:2:7: not valid JSON: syntax error"));
  EXPECT_THAT(error_of(""), StartsWith("f.json:1:1: not valid JSON"));
  EXPECT_THAT(error_of("[1, 2"), StartsWith("f.json:1:5: not valid JSON"));
  EXPECT_THAT(error_of("{}\n{}"), StartsWith("f.json:2:1: not valid JSON"));
  EXPECT_THAT(error_of("[\n\n\"\xff\"]"), StartsWith("f.json:3:2: not valid JSON"));
  EXPECT_THAT(error_of("[\"a\nb\"]"), HasSubstr("not valid JSON"));
  for (const char* text : {"", "{\"a\": 1,\n \"b\": x}", "[1e999]"}) {
    EXPECT_THAT(error_of(text), Not(HasSubstr("json.exception"))) << text;
    EXPECT_TRUE(parse_json_or_null<json>(text).is_null()) << text;
  }
}

TEST(Json, NumbersBeyondAllAreErrors) {
  EXPECT_THAT(error_of("[1,\n1e999]"),
              StartsWith("f.json:2:6: number overflow parsing '1e999'"));
  EXPECT_THAT(error_of("{\n\"a\": -1e400\n}"),
              StartsWith("f.json:2:12: number overflow"));
  EXPECT_EQ(parse_json<json>("1e308").get<double>(), 1e308);
}

TEST(Json, LinesCountFromTheFirst) {
  try {
    parse_json<json>("{");
    FAIL();
  } catch (const JsonError& error) {
    EXPECT_THAT(error.in_file("x.jsonl", 17), StartsWith("x.jsonl:17:1: not valid"));
  }
}

TEST(Json, ValuesAreNotNestedTooDeep) {
  EXPECT_EQ(message_of<InputError>([] { parse_json<json>(nested_json(64)); }),
            "(nothing thrown)");
  EXPECT_EQ(error_of("\n" + nested_json(65)),
            "f.json:2:65: nested more than 64 levels deep");
  // A million levels would overflow the stack wherever they are copied or freed.
  EXPECT_THAT(error_of(nested_json(1000000)), HasSubstr("nested more than 64 levels"));
  EXPECT_TRUE(parse_json_or_null<ordered_json>(nested_json(100000)).is_null());
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(error_of(objects), HasSubstr("nested more than 64 levels"));
  // Brackets in strings are text; many lists beside each other are not deep.
  EXPECT_EQ(parse_json<json>("[\"" + std::string(1000, '[') + "\\\"" +
                             std::string(1000, '{') + "\"]")[0]
                .get<std::string>()
                .size(),
            2001u);
  std::string flat = "[[]";
  for (int i = 0; i < 1000; ++i) flat += ",[]";
  EXPECT_EQ(parse_json<json>(flat + "]").size(), 1001u);
}

TEST(Json, KeysThatMayStandOnce) {
  const auto parse = [](const char* text) {
    return message_of<io::JsonError>(
        [&] { io::parse_json<nlohmann::json>(text, io::Keys::once); });
  };
  EXPECT_EQ(parse(R"({"a": {"a": 1, "b": [{"a": 1}, {"a": 2}]}, "b": {}})"),
            "(nothing thrown)");
  EXPECT_EQ(parse("{\"a\": 1,\n\"b\": {\"c\": 1, \"c\": 2}}"),
            "line 2, column 17: a second key \"c\" in one object");
  EXPECT_EQ(parse(R"({"b": {"a": 1}, "a": 1, "\u0061": 2})"),
            "line 1, column 32: a second key \"a\" in one object");
  // Else the last one holds.
  EXPECT_EQ(io::parse_json<nlohmann::json>(R"({"a": 1, "a": 2})")["a"], 2);
}

TEST(Json, TypedValues) {
  const auto object = parse_json<ordered_json>(
      R"({"i": -7, "u": 18446744073709551615, "d": 1.5, "t": true, "s": "x",
          "l": [1, 2], "w": ["a"], "n": null})");
  EXPECT_EQ(json_value<int>(object, "i"), -7);
  EXPECT_EQ(json_value<std::uint64_t>(object, "u"), ~std::uint64_t{0});
  EXPECT_EQ(json_value<double>(object, "d"), 1.5);
  EXPECT_EQ(json_value<double>(object, "i"), -7.0);
  EXPECT_EQ(json_value<bool>(object, "t"), true);
  EXPECT_EQ(json_value<std::string>(object, "s"), "x");
  EXPECT_EQ(json_value<std::vector<std::int64_t>>(object, "l"),
            (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(json_value<std::vector<std::string>>(object, "w"),
            std::vector<std::string>{"a"});
  EXPECT_EQ(json_list(object, "l").size(), 2u);

  const auto error = [](auto&& call) { return message_of<JsonError>(call); };
  EXPECT_EQ(error([&] { json_value<std::uint64_t>(object, "i"); }),
            "'i' is -7; expected an integer from 0 to 18446744073709551615");
  EXPECT_THAT(error([&] { json_value<std::int64_t>(object, "u"); }),
              HasSubstr("'u' is 18446744073709551615; expected an integer from -9"));
  EXPECT_THAT(error([&] { json_value<int>(object, "d"); }), HasSubstr("'d' is 1.5"));
  EXPECT_THAT(error([&] { json_value<int>(object, "t"); }), HasSubstr("'t' is true"));
  EXPECT_THAT(error([&] { json_value<bool>(object, "i"); }), HasSubstr("true or false"));
  EXPECT_THAT(error([&] { json_value<std::string>(object, "n"); }),
              HasSubstr("'n' is null; expected a string"));
  EXPECT_THAT(error([&] { json_value<double>(object, "none"); }),
              HasSubstr("'none' is missing; expected a number"));
  EXPECT_THAT(error([&] { json_value<std::vector<std::int64_t>>(object, "w"); }),
              HasSubstr("'w' is [\"a\"]; expected a list, each of it an integer"));
  EXPECT_THAT(error([&] { json_list(object, "s"); }), HasSubstr("expected a list"));
  EXPECT_THAT(error([&] { json_list(object["l"], "s"); }), HasSubstr("'s' is missing"));
}

TEST(Json, ExcerptsAreShort) {
  EXPECT_EQ(json_excerpt(parse_json<ordered_json>(R"({"b": [1, "x\n"], "a": null})")),
            R"({"b":[1,"x\n"],"a":null})");
  const std::string list = json_excerpt(json(std::vector<int>(100000, 7)), 50);
  EXPECT_EQ(list.size(), 53u);
  EXPECT_THAT(list, EndsWith("7..."));
  // Characters stay whole.
  EXPECT_EQ(json_excerpt(json(std::string("ab\xc3\xa4")), 4), "\"ab...");
  const std::string many = json_excerpt(json(std::string(1000000, 'a')), 50);
  EXPECT_LE(many.size(), 53u);
  // A parser's message shows what it read last; that may be the whole file.
  EXPECT_LT(error_of("[\"" + std::string(100000, 'a')).size(), 400u);
}

}  // namespace
}  // namespace trireme::io
