// SPDX-License-Identifier: Apache-2.0
//
// JSON with whole integers is read and written as it is.
#include "json/json_text.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;

Json Read(std::string_view text) { return std::get<Json>(ReadJson(text)); }
JsonMistake Mistake(std::string_view text) { return std::get<JsonMistake>(ReadJson(text)); }

TEST(JsonText, IsReadAndWrittenAsItIs) {
  for (const char* text :
       {"null", "true", R"({})", "[]", R"({"b":1,"a":[{},[],{"c":"\u0001\"é"}],"d":false})", "-5", "0.1",
        "1e+22", "-9223372036854775808", "18446744073709551615", "18446744073709551616",
        "-9223372036854775809",
        R"({"a":[123456789012345678901234567890,{"b":"x","c":-99999999999999999999,"d":[]},{}],"e":0.5})"}) {
    EXPECT_EQ(WriteJson(Read(text)), text);
  }
  EXPECT_EQ(WriteJson(Read("[1e2, 0.10000000000000001, 2.50]")), "[100.0,0.1,2.5]");
  EXPECT_EQ(WriteJson(Read(R"({"a": {"x": 1}, "b": 2, "a": [3]})")), R"({"a":[3],"b":2})");
  // As any other JSON, where nothing is long.
  const std::string nested = R"({"x":[1,2.5,"a",null,{"y":[[],[true]]}],"z":""})";
  EXPECT_EQ(Read(nested), Json::parse(nested));
}

TEST(JsonText, LongIntegersAreNumbers) {
  EXPECT_TRUE(IsLongInteger(Read("18446744073709551616")));
  EXPECT_FALSE(IsLongInteger(Read("18446744073709551615")));
  EXPECT_FALSE(IsLongInteger(Read("1e300")));
  EXPECT_EQ(NumberOf(Read("-18446744073709551616")), -0x1p64);
  EXPECT_EQ(NumberOf(Read("7")), 7.0);
  EXPECT_EQ(NumberOf(Read("\"7\"")), std::nullopt);
  EXPECT_EQ(Read("18446744073709551616"), Read("18446744073709551616"));
  EXPECT_NE(Read("18446744073709551616"), Read("18446744073709551617"));
}

TEST(JsonText, MistakesHaveTheirPlace) {
  EXPECT_EQ(Mistake("{\"a\": x}").byte, 7U);
  EXPECT_EQ(Mistake("").byte, 1U);
  EXPECT_EQ(Mistake("[1] 2").byte, 5U);
  EXPECT_FALSE(Mistake("[1").number_out_of_range);
  EXPECT_TRUE(Mistake("[1e999]").number_out_of_range);
}

TEST(JsonText, ContainersAndKeysAreTold) {
  std::string told;
  (void)ReadJson(R"({"a": [1, {}], "b": 2})", [&](int depth, Json::parse_event_t event) {
    told += std::to_string(depth);
    told += event == Json::parse_event_t::key ? 'k' : event == Json::parse_event_t::object_start ? 'o' : '.';
  });
  EXPECT_EQ(told, "1o1k2.3o3.2.1k1.");
}

}  // namespace
}  // namespace longspec
