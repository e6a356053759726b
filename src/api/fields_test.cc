// SPDX-License-Identifier: Apache-2.0
//
// Bodies of requests as JSON: what is wrong is named with its place, and nothing hostile takes long.
#include "api/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json/json_text.h"

namespace longspec::api {
namespace {

using ::testing::HasSubstr;

std::string Repeat(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

Error ErrorOf(std::string_view text, const JsonLimits& limits = {}) {
  auto json = ParseJson(text, limits);
  if (auto* error = std::get_if<Error>(&json)) return *error;
  ADD_FAILURE() << "accepted: " << text.substr(0, 100);
  return {};
}

nlohmann::ordered_json ValueOf(std::string_view text, const JsonLimits& limits = {}) {
  auto json = ParseJson(text, limits);
  if (auto* value = std::get_if<nlohmann::ordered_json>(&json)) return *value;
  ADD_FAILURE() << std::get<Error>(json).message;
  return {};
}

TEST(OpenAiJson, MistakesHaveAPlace) {
  EXPECT_EQ(ErrorOf(R"({"a": 1,, "b": 2})").message, "not JSON: a mistake at byte 9");
  EXPECT_EQ(ErrorOf("").code, "invalid_json");
  EXPECT_EQ(ErrorOf("{} {}").status_code, 400);
  EXPECT_THAT(ErrorOf("[1e999]").message, HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf("[NaN]").message, HasSubstr("byte 2"));
}

TEST(OpenAiJson, TextThatIsNotUtf8IsAMistake) {
  EXPECT_THAT(ErrorOf("\"\xff\"").message, HasSubstr("byte 2"));
  EXPECT_EQ(ErrorOf("\"\xc3\"").code, "invalid_json");
  EXPECT_EQ(ValueOf("\"\xc3\xa9\""), "\xc3\xa9");
}

// Texts that were cut within a character are sent so by Python and JavaScript.
TEST(OpenAiJson, HalfASurrogatePairIsAReplacement) {
  const std::string replacement = "\xEF\xBF\xBD";
  EXPECT_EQ(ValueOf(R"("\ud83d")"), replacement);
  EXPECT_EQ(ValueOf(R"("\uDE00")"), replacement);
  EXPECT_EQ(ValueOf(R"("a\ud83db")"), "a" + replacement + "b");
  EXPECT_EQ(ValueOf(R"("\ud83d\ude00")"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(ValueOf(R"("\ud83d\ud83d\ude00\ude00")"), replacement + "\xF0\x9F\x98\x80" + replacement);
  EXPECT_EQ(ValueOf(R"("\ud83d\n\u0041")"), replacement + "\nA");
  EXPECT_EQ(ValueOf(R"("\\ud83d")"), "\\ud83d");  // no escape, but its letters
  EXPECT_EQ(ValueOf(R"({"\ud83d": 1})").begin().key(), replacement);
  EXPECT_EQ(ErrorOf(R"(["\ud83d",,])").message, "not JSON: a mistake at byte 11");
  for (const char* cut : {R"("\ud83)", R"("\ud83d)", R"("\ud83d\u)", "\"\\"})
    EXPECT_EQ(ErrorOf(cut).code, "invalid_json");
}

TEST(OpenAiJson, NestingHasALimit) {
  const int most = JsonLimits().nesting;
  const std::string deepest = Repeat("[", most) + Repeat("]", most);
  EXPECT_TRUE(ValueOf(deepest).is_array());
  EXPECT_THAT(ErrorOf("[" + deepest + "]").message, HasSubstr("64 brackets within each other"));
  EXPECT_EQ(ErrorOf(Repeat("{\"a\":", 1'000'000)).status_code, 413);
  // Brackets in strings are none, even after quotes and backslashes.
  EXPECT_EQ(ValueOf("\"\\\"" + Repeat("[", 100) + "\\\\\""), "\"" + Repeat("[", 100) + "\\");
}

TEST(OpenAiJson, SizeHasALimit) {
  const JsonLimits limits{.bytes = 20, .values = 4};
  EXPECT_EQ(ErrorOf("\"" + std::string(19, 'a') + "\"", limits).code, "request_too_large");
  EXPECT_TRUE(ValueOf("\"" + std::string(18, ',') + "\"", limits).is_string());
  EXPECT_TRUE(ValueOf("[1, 2, 3]", limits).is_array());
  EXPECT_EQ(ErrorOf("[1, 2, 3, 4]", limits).message, "the request has more than 4 values");
  EXPECT_EQ(ErrorOf(std::string(JsonLimits().bytes + 1, ' ')).status_code, 413);
  // Keys are looked for one by one, in as many objects as there are.
  const std::string object = R"({"a":0,"b":0,"c":0})";  // 3 comparisons
  const JsonLimits keys{.keys = 3, .compared_keys = 6};
  EXPECT_TRUE(ValueOf("[" + object + "," + object + "]", keys).is_array());
  EXPECT_THAT(ErrorOf("[" + object + "," + object + "," + object + "]", keys).message, HasSubstr("keys"));
  EXPECT_THAT(ErrorOf(R"({"a":0,"b":0,"c":0,"d":0})", keys).message, HasSubstr("more than 3 keys"));
}

TEST(OpenAiJson, IntegersAreWhole) {
  const std::string text = R"({"a":[123456789012345678901234567890,0.1],"b":-18446744073709551616})";
  EXPECT_EQ(WriteJson(ValueOf(text)), text);
  EXPECT_EQ(WriteJson(LoadJson(text)), text);
  EXPECT_EQ(Describe(ValueOf("99999999999999999999")), "99999999999999999999");
}

TEST(OpenAiJson, OfAKeyGivenTwiceTheLastCounts) { EXPECT_EQ(ValueOf(R"({"a": 1, "a": 2})")["a"], 2); }

TEST(OpenAiJson, DescriptionsAreShort) {
  EXPECT_EQ(Describe(nlohmann::ordered_json("x")), "\"x\"");
  EXPECT_EQ(Describe(nlohmann::ordered_json(std::string(1000, 'x'))), "a longer text");
  EXPECT_EQ(Describe(nlohmann::ordered_json(1.5)), "1.5");
  EXPECT_EQ(Describe(nlohmann::ordered_json(nullptr)), "null");
  EXPECT_EQ(Describe(nlohmann::ordered_json::array({1})), "a list");
  EXPECT_EQ(Describe(nlohmann::ordered_json::object()), "an object");
}

}  // namespace
}  // namespace longspec::api
